// SPDX-License-Identifier: GPL-2.0
//! Binds and invalidations of memory windows, as they are in the ring.

#[allow(dead_code)]
mod support;

use qpair_abi::command::access;
use qpair_abi::doorbell;
use qpair_abi::entry::{opcode, send_flags, BindWqe, SendWqe, Sge};
use qpair_verbs::qp::Qp;
use qpair_verbs::request::{Payload, Refusal, Request};
use qpair_verbs::window::Bind;
use support::{send, Asked, Bench, Sent};

fn bind(id: u64, signaled: bool) -> Bind {
    Bind {
        request: Request {
            opcode: opcode::BIND,
            ..send(id, signaled)
        },
        access: access::REMOTE.into(),
        window: 0x8010_0203,
        new_key: 0x8010_0204,
        region: 77,
        addr: 0x7000_0000,
        bytes: 5 << 32,
    }
}

/// Checks that this is [`bind`] as the device reads it.
fn is_whole(sent: &Sent, id: u64, flags: u8) {
    let [first, second, third, fourth] = sent.head.encode();
    let words = [first, second, third, fourth, sent.body[0], sent.body[1]];
    let expected = BindWqe {
        opcode: opcode::BIND,
        flags,
        blocks: 1,
        sges: 0,
        access: access::REMOTE.into(),
        wr_id: id,
        addr: 0x7000_0000,
        window: 0x8010_0203,
        inline_bytes: 0,
        bytes: 5 << 32,
        region: 77,
        new_key: 0x8010_0204,
    };
    assert_eq!(BindWqe::decode(&words), expected);
}

#[test]
fn binds_by_a_list() {
    for sq_sig_all in [false, true] {
        let mut bench = Bench::new(Asked {
            sq_sig_all,
            sges: 0,
            ..Asked::default()
        });
        for id in 0..20 {
            let posted = bench.post_sends(|sends| {
                sends.put_bind(bind(id, true))?;
                sends.put_bind(bind(id, false))
            });
            assert_eq!(posted, Ok(()));
            assert_eq!(bench.execute(9), 2);
            for flag in [true, sq_sig_all].map(u8::from) {
                let sent = bench.sent.pop_front().unwrap();
                is_whole(&sent, id, flag * send_flags::SIGNALED);
            }
            bench.poll(9);
        }
    }
}

/// A series of sends that `f` makes.
fn series(bench: &Bench, f: impl FnOnce(&Qp)) -> Result<(), Refusal> {
    bench.qp.start();
    f(&bench.qp);
    // SAFETY: Started above.
    unsafe { bench.qp.complete() }
}

const SGE: Sge = Sge {
    addr: 0x100,
    bytes: 8,
    lkey: 7,
};

#[test]
fn a_program_chooses_the_tag_alone() {
    let mut bench = Bench::new(Asked::default());
    for new_key in [0x04, 0xff04, 0xffff_ff04, 0x7010_0204] {
        let bind = Bind {
            new_key,
            ..bind(1, true)
        };
        assert_eq!(bench.post_sends(|sends| sends.put_bind(bind)), Ok(()));
        assert_eq!(bench.execute(1), 1);
        is_whole(&bench.sent.pop_front().unwrap(), 1, send_flags::SIGNALED);
        bench.poll(9);
    }
}

#[test]
fn a_bind_in_a_series() {
    let mut bench = Bench::new(Asked::default());
    let invalidation = Request {
        opcode: opcode::LOCAL_INV,
        rkey: 0x8010_0204,
        ..send(4, true)
    };
    let with_key = Request {
        opcode: opcode::SEND_INV,
        imm: 0x8010_0204,
        ..send(3, true)
    };
    let done = series(&bench, |qp| {
        // SAFETY: In the series.
        unsafe {
            qp.begin(send(1, true));
            qp.bind(Ok(bind(2, true)));
            qp.begin(with_key);
            qp.data(Payload::Gather(&[SGE]));
            qp.begin(invalidation);
        }
    });
    assert_eq!(done, Ok(()));
    assert_eq!(bench.execute(9), 4);
    is_whole(&bench.sent[1], 2, send_flags::SIGNALED);
    let heads: Vec<_> = bench.sent.iter().map(|sent| sent.head).collect();
    let expected = |request: Request, sges| SendWqe {
        opcode: request.opcode,
        flags: send_flags::SIGNALED,
        blocks: 1,
        sges,
        imm: request.imm,
        wr_id: request.wr_id,
        rkey: request.rkey,
        ..SendWqe::default()
    };
    assert_eq!(heads[0], expected(send(1, true), 0), "it got no data");
    assert_eq!(heads[2], expected(with_key, 1));
    assert_eq!(heads[3], expected(invalidation, 0));
}

#[test]
fn one_that_is_refused_fails_the_series() {
    let mut bench = Bench::new(Asked::default());
    /// Requests of a series, and why it is refused.
    type Case = (fn(&Qp), Refusal);
    // SAFETY: Each is called in a series.
    let cases: [Case; 4] = unsafe {
        [
            (|qp| qp.bind(Err(Refusal::Invalid)), Refusal::Invalid),
            (
                |qp| {
                    qp.bind(Ok(bind(1, true)));
                    qp.data(Payload::Gather(&[SGE]));
                },
                Refusal::Invalid,
            ),
            (
                |qp| {
                    qp.data(Payload::Gather(&[SGE]));
                    qp.bind(Ok(bind(1, true)));
                },
                Refusal::Invalid,
            ),
            (
                |qp| {
                    for id in 0..1000 {
                        qp.bind(Ok(bind(id, true)));
                    }
                },
                Refusal::Full,
            ),
        ]
    };
    for (case, refusal) in cases {
        assert_eq!(series(&bench, case), Err(refusal));
        assert_eq!(bench.doorbell(doorbell::SQ), 0);
        assert_eq!(series(&bench, |_| {}), Ok(()), "nothing of it is left");
    }
    assert_eq!(bench.execute(9), 0);
    bench.qp.permit(false, true);
    // SAFETY: In the series.
    let state = series(&bench, |qp| unsafe { qp.bind(Ok(bind(1, true))) });
    assert_eq!(state, Err(Refusal::State));
}
