// SPDX-License-Identifier: GPL-2.0
//! Atomics: operands and the place of the result are in the ring, whole.

#[allow(dead_code)]
mod support;

use qpair_abi::doorbell;
use qpair_abi::entry::{opcode, send_flags, Sge};
use qpair_verbs::atomic::Atomic;
use qpair_verbs::qp::Qp;
use qpair_verbs::request::{Payload, Refusal, Request};
use support::{send, Asked, Bench, Sent};

const INTO: Sge = Sge {
    addr: 0x7000_0010,
    bytes: 8,
    lkey: 7,
};

fn atomic(id: u64, signaled: bool) -> Atomic {
    Atomic {
        request: Request {
            opcode: opcode::COMPARE_SWAP,
            remote_addr: 0x1234_5678,
            rkey: 99,
            ..send(id, signaled)
        },
        compare_add: u64::MAX - 5,
        swap: 1 << 63,
    }
}

/// Posts one by a list.
fn post(bench: &Bench, atomic: Atomic, payload: Payload<'_>) -> Result<(), Refusal> {
    bench.post_sends(|sends| sends.put_atomic(atomic, payload))
}

/// Checks that this is [`atomic`] as the device reads it.
fn is_whole(sent: &Sent, id: u64) {
    let head = &sent.head;
    assert_eq!((head.opcode, head.wr_id), (opcode::COMPARE_SWAP, id));
    assert_eq!((head.blocks, head.sges, head.inline_bytes), (1, 1, 0));
    assert_eq!(
        (head.remote_addr, head.rkey, head.imm),
        (0x1234_5678, 99, 0)
    );
    let sge = Sge::decode(&[sent.body[2], sent.body[3]]);
    assert_eq!(sent.body[..2], [u64::MAX - 5, 1 << 63]);
    assert_eq!((sge.addr, sge.bytes, sge.lkey), (0x7000_0010, 8, 7));
}

#[test]
fn operands_and_an_sge() {
    for sq_sig_all in [false, true] {
        let mut bench = Bench::new(Asked {
            sq_sig_all,
            ..Asked::default()
        });
        for id in 0..20 {
            post(&bench, atomic(id, true), Payload::Gather(&[INTO])).unwrap();
            post(&bench, atomic(id, false), Payload::Gather(&[INTO])).unwrap();
            assert_eq!(bench.execute(9), 2);
            let signaled = [true, sq_sig_all].map(u8::from);
            for flag in signaled {
                let sent = bench.sent.pop_front().unwrap();
                is_whole(&sent, id);
                assert_eq!(sent.head.flags, flag * send_flags::SIGNALED);
            }
            bench.poll(9);
        }
    }
}

#[test]
fn other_data_are_refused() {
    let bench = Bench::new(Asked {
        sges: 2,
        inline: 8,
        ..Asked::default()
    });
    let bytes = [0u8; 8];
    let inline = [Sge {
        addr: bytes.as_ptr() as u64,
        ..INTO
    }];
    let wrong = [
        Payload::Gather(&[]),
        Payload::Gather(&[INTO, INTO]),
        Payload::Inline(&inline),
    ];
    for payload in wrong {
        let refused = post(&bench, atomic(1, true), payload);
        assert_eq!(refused, Err(Refusal::Invalid), "{payload:?}");
        let refused = series(&bench, |qp| one(qp, payload));
        assert_eq!(refused, Err(Refusal::Invalid), "{payload:?}");
    }
    let none = Bench::new(Asked {
        sges: 0,
        ..Asked::default()
    });
    let refused = post(&none, atomic(1, true), Payload::Gather(&[INTO]));
    assert_eq!(refused, Err(Refusal::Invalid));
    for bench in [&bench, &none] {
        assert_eq!(bench.doorbell(doorbell::SQ), 0);
    }
}

/// A series of sends that `f` makes.
fn series(bench: &Bench, f: impl FnOnce(&Qp)) -> Result<(), Refusal> {
    bench.qp.start();
    f(&bench.qp);
    // SAFETY: Started above.
    unsafe { bench.qp.complete() }
}

/// An atomic with these data, in a series.
fn one(qp: &Qp, payload: Payload<'_>) {
    // SAFETY: Called in a series.
    unsafe {
        qp.begin_atomic(atomic(1, true));
        qp.data(payload);
    }
}

#[test]
fn atomics_in_a_series() {
    let mut bench = Bench::new(Asked::default());
    let into = [INTO];
    let done = series(&bench, |qp| {
        // SAFETY: In the series.
        unsafe {
            qp.begin(send(1, true));
            qp.begin_atomic(atomic(2, true));
            qp.data(Payload::Gather(&into));
            qp.begin_atomic(atomic(3, true));
            qp.data(Payload::Gather(&into));
            qp.begin(send(4, true));
            qp.data(Payload::Gather(&into));
        }
    });
    assert_eq!(done, Ok(()));
    assert_eq!(bench.execute(9), 4);
    for id in [2, 3] {
        is_whole(&bench.sent[id as usize - 1], id);
    }
    let sges: Vec<_> = bench.sent.iter().map(|sent| sent.head.sges).collect();
    assert_eq!(sges, [0, 1, 1, 1]);
    let ids: Vec<_> = bench.sent.iter().map(|sent| sent.head.wr_id).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
}

#[test]
fn one_without_data_fails_the_series() {
    let mut bench = Bench::new(Asked::default());
    let into = [INTO];
    let data = Payload::Gather(&into);
    // SAFETY: Each is called in a series.
    let cases: [fn(&Qp, Payload<'_>); 6] = unsafe {
        [
            |qp, _| qp.begin_atomic(atomic(1, true)),
            |qp, _| {
                qp.begin_atomic(atomic(1, true));
                qp.begin(send(2, true));
            },
            |qp, data| {
                qp.begin_atomic(atomic(1, true));
                qp.begin(send(2, true));
                qp.data(data);
                qp.data(data);
            },
            |qp, data| {
                qp.begin_atomic(atomic(1, true));
                qp.begin_atomic(atomic(2, true));
                qp.data(data);
            },
            |qp, data| {
                qp.begin_atomic(atomic(1, true));
                qp.data(data);
                qp.data(data);
            },
            |qp, data| {
                qp.data(data);
                qp.begin_atomic(atomic(1, true));
                qp.data(data);
            },
        ]
    };
    for (at, case) in cases.into_iter().enumerate() {
        let done = series(&bench, |qp| case(qp, data));
        assert_eq!(done, Err(Refusal::Invalid), "{at}");
        assert_eq!(bench.doorbell(doorbell::SQ), 0);
        // Nothing of it is left.
        assert_eq!(series(&bench, |_| {}), Ok(()));
        // SAFETY: In the series.
        let more = series(&bench, |qp| unsafe { qp.data(data) });
        assert_eq!(more, Err(Refusal::Invalid), "{at}");
        bench.qp.start();
        // SAFETY: Started above.
        unsafe {
            bench.qp.begin_atomic(atomic(1, true));
            bench.qp.abort();
        }
    }
    let wrong = series(&bench, |qp| {
        // SAFETY: In the series.
        unsafe {
            qp.begin(send(1, true));
            qp.data(Payload::Gather(&[INTO; 2]));
            qp.data(data);
        }
    });
    assert_eq!(
        wrong,
        Err(Refusal::Invalid),
        "of an atomic that was aborted"
    );
    assert_eq!(bench.execute(9), 0);
    bench.qp.permit(false, true);
    let state = series(&bench, |qp| one(qp, data));
    assert_eq!(state, Err(Refusal::State));
}
