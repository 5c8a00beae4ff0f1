// SPDX-License-Identifier: GPL-2.0
//! Sends of UD: what a program sets in any order is in the ring, whole.

#[allow(dead_code)]
mod support;

use qpair_abi::doorbell;
use qpair_abi::entry::{opcode, send_flags, Sge, UdWqe, BLOCK_WORDS};
use qpair_verbs::datagram::Address;
use qpair_verbs::list::List;
use qpair_verbs::request::{Payload, Refusal, Request};
use qpair_verbs::template::Templates;
use support::{send, Asked, Bench, Sent};

const TO: Address = Address {
    gid: [0x1122_3344_5566_7788, 0x99aa_bbcc_ddee_ff00],
    route: 0xedcb_0f00_a987_8765,
    mac: 0x0605_0403_0201,
    qpn: 0x01_0007,
    q_key: 0x1111_1111,
};

fn bench(sges: u32, inline: u32) -> Bench {
    Bench::new(Asked {
        sges,
        inline,
        is_ud: true,
        ..Asked::default()
    })
}

/// Posts one send by a list.
fn post(bench: &Bench, request: Request, payload: Payload<'_>) -> Result<(), Refusal> {
    bench.post_sends(|sends| {
        // SAFETY: Tests give their own memory.
        unsafe { sends.put_datagram(request, TO, payload) }
    })
}

/// The address of a request, and the words behind it.
fn parts(sent: &Sent) -> (Address, &[u64]) {
    let remote = sent.head.remote_addr;
    let address = Address {
        gid: [sent.body[0], sent.body[1]],
        route: u64::from(sent.head.inline_bytes & !0xff) << 32 | u64::from(sent.head.rkey),
        mac: sent.body[2],
        qpn: remote as u32,
        q_key: (remote >> 32) as u32,
    };
    (address, &sent.body[4..])
}

fn sges(count: u64) -> Vec<Sge> {
    let sge = |i| Sge {
        addr: 0x1000 + i,
        bytes: 10,
        lkey: 7,
    };
    (0..count).map(sge).collect()
}

#[test]
fn an_address_and_sges() {
    let mut bench = bench(12, 0);
    for (qp, is_ud) in [(&bench.qp, true), (&Bench::new(Asked::default()).qp, false)] {
        assert_eq!(qp.is_ud(), is_ud);
        let posted = qp.post_send(|list| {
            assert_eq!(list.is_ud(), is_ud);
            Ok(())
        });
        posted.unwrap();
    }
    for count in [0, 1, 4, 5, 8, 12] {
        let all = sges(count);
        post(&bench, send(count, true), Payload::Gather(&all)).unwrap();
        assert_eq!(bench.execute(1), 1);
        assert_eq!(bench.poll(9).len(), 1);
        let sent = bench.sent.pop_front().unwrap();
        let (address, body) = parts(&sent);
        assert_eq!((address, sent.head.wr_id), (TO, count));
        assert_eq!(u64::from(sent.head.sges), count);
        let least = (8 + 2 * count as usize).div_ceil(BLOCK_WORDS);
        assert_eq!(usize::from(sent.head.blocks), least);
        for (words, expected) in body.chunks(Sge::WORDS).zip(&all) {
            let sge = Sge::decode(&[words[0], words[1]]);
            assert_eq!((sge.addr, sge.bytes, sge.lkey), (expected.addr, 10, 7));
        }
    }
    let refused = post(&bench, send(0, true), Payload::Gather(&sges(13)));
    assert_eq!(refused, Err(Refusal::Invalid));
}

#[test]
fn a_common_form_is_the_same_send() {
    let mut bench = bench(1, 0);
    let sge = sges(1)[0];
    let all = [opcode::SEND, opcode::SEND_IMM].map(|opcode| (opcode, opcode == opcode::SEND_IMM));
    for (opcode, has_imm) in all {
        let request = Request {
            opcode,
            imm: if has_imm { 5 } else { 0 },
            ..send(u64::MAX, true)
        };
        let form = Request { imm: 0, ..request };
        let template = Templates::new(UdWqe::WORDS, |_, _| Some(form))
            .get(0, 0)
            .unwrap();
        let common = |list: &mut List<'_>| {
            let mut row = list.row(template);
            let own = (u64::MAX, 5);
            match has_imm {
                false => row.put_datagram::<false>(own, TO, &sge),
                true => row.put_datagram::<true>(own, TO, &sge),
            }
        };
        bench.qp.post_send(common).unwrap();
        post(&bench, request, Payload::Gather(&[sge])).unwrap();
        assert_eq!(bench.execute(9), 2);
        let [first, second] = [0, 0].map(|at| bench.sent.remove(at).unwrap());
        assert_eq!((first.head, first.body), (second.head, second.body));
        assert_eq!(bench.poll(9).len(), 2);
    }
}

#[test]
fn inline_bytes() {
    let mut bench = bench(1, 192);
    let text: Vec<u8> = (0..193).map(|i| i as u8).collect();
    let part = |bytes: usize| Sge {
        addr: text.as_ptr() as u64,
        bytes: bytes as u32,
        lkey: 0,
    };
    for bytes in [0, 1, 64, 65, 128, 192] {
        let request = Request {
            opcode: opcode::SEND_IMM,
            imm: 5,
            ..send(1, true)
        };
        post(&bench, request, Payload::Inline(&[part(bytes)])).unwrap();
        assert_eq!(bench.execute(1), 1);
        assert_eq!(bench.poll(9).len(), 1);
        let sent = bench.sent.pop_front().unwrap();
        let (address, body) = parts(&sent);
        assert_eq!((address, sent.head.imm), (TO, 5));
        let flags = send_flags::SIGNALED | send_flags::INLINE;
        assert_eq!((sent.head.flags, sent.head.sges), (flags, 0));
        assert_eq!((sent.head.inline_bytes & 0xff) as usize, bytes);
        let got: Vec<u8> = body.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(got[..bytes], text[..bytes]);
    }
    let refused = post(&bench, send(0, true), Payload::Inline(&[part(193)]));
    assert_eq!(refused, Err(Refusal::Invalid));
}

/// Sets a part of the send that was begun.
type Setter = fn(&Bench);

/// A series of sends, each with these setters after it.
fn series(bench: &Bench, sends: &[(Request, &[Setter])]) -> Result<(), Refusal> {
    bench.qp.start();
    for (request, setters) in sends {
        // SAFETY: Between start and complete.
        unsafe { bench.qp.begin_datagram(*request) };
        for set in *setters {
            set(bench);
        }
    }
    // SAFETY: As above.
    unsafe { bench.qp.complete() }
}

fn to(bench: &Bench) {
    // SAFETY: Called by `series`.
    unsafe { bench.qp.address(TO) }
}

fn data(bench: &Bench) {
    // SAFETY: Called by `series`.
    unsafe { bench.qp.data(Payload::Gather(&sges(1))) }
}

fn inline(bench: &Bench) {
    // SAFETY: Called by `series`; no bytes are read.
    unsafe { bench.qp.data(Payload::Inline(&[])) }
}

fn much(bench: &Bench) {
    // SAFETY: Called by `series`.
    unsafe { bench.qp.data(Payload::Gather(&sges(3))) }
}

#[test]
fn parts_are_set_in_any_order() {
    let mut bench = bench(6, 0);
    let orders: [&[Setter]; 5] = [
        &[to, data],
        &[data, to],
        &[to],
        &[data, to, data, to],
        &[inline, to, data],
    ];
    let sends: Vec<_> = (0..)
        .zip(orders)
        .map(|(id, set)| (send(id, true), set))
        .collect();
    series(&bench, &sends).unwrap();
    assert_eq!(bench.execute(9), 5);
    for (id, sges) in [(0, 1), (1, 1), (2, 0), (3, 1), (4, 1)] {
        let sent = bench.sent.pop_front().unwrap();
        assert_eq!(sent.head.flags, send_flags::SIGNALED);
        assert_eq!((sent.head.wr_id, sent.head.sges), (id, sges));
        assert_eq!(parts(&sent).0, TO);
    }
}

#[test]
fn a_series_is_posted_as_a_whole_or_not_at_all() {
    let bench = bench(2, 0);
    let write = Request {
        opcode: opcode::WRITE,
        ..send(2, true)
    };
    let whole: &[Setter] = &[to, data];
    let cases: [(Request, &[Setter], Refusal); 3] = [
        (send(2, true), &[data], Refusal::Invalid),
        (send(2, true), &[to, much], Refusal::Invalid),
        (write, whole, Refusal::Unsupported),
    ];
    for (request, setters, refusal) in cases {
        let sends = [
            (send(1, true), whole),
            (request, setters),
            (send(3, true), whole),
        ];
        assert_eq!(series(&bench, &sends), Err(refusal));
        assert_eq!(bench.doorbell(doorbell::SQ), 0);
    }
    bench.qp.start();
    // SAFETY: Between start and abort.
    unsafe {
        bench.qp.begin_datagram(send(1, true));
        bench.qp.abort();
    }
    series(&bench, &[(send(1, true), whole)]).unwrap();
    assert_eq!(
        bench.doorbell(doorbell::SQ),
        2,
        "two blocks: what was aborted is not posted"
    );
}

#[test]
fn other_opcodes_are_refused() {
    let mut bench = bench(2, 0);
    let all = [
        opcode::NOP,
        opcode::WRITE,
        opcode::WRITE_IMM,
        opcode::READ,
        opcode::COMPARE_SWAP,
        opcode::FETCH_ADD,
        opcode::LOCAL_INV,
        opcode::SEND_INV,
        opcode::BIND,
        opcode::FLUSH,
        opcode::ATOMIC_WRITE,
    ];
    for opcode in all {
        let request = Request {
            opcode,
            ..send(1, true)
        };
        let refused = post(&bench, request, Payload::Gather(&sges(1)));
        assert_eq!(refused, Err(Refusal::Unsupported), "{opcode}");
        let whole: &[Setter] = &[to, data];
        let refused = series(&bench, &[(request, whole)]);
        assert_eq!(refused, Err(Refusal::Unsupported), "{opcode}");
    }
    assert_eq!(bench.doorbell(doorbell::SQ), 0);
    post(&bench, send(1, true), Payload::Gather(&[])).unwrap();
    assert_eq!(bench.execute(9), 1, "the queue pair goes on");
}

#[test]
fn a_state_refuses_posts() {
    let bench = bench(1, 0);
    bench.qp.permit(false, true);
    let refused = post(&bench, send(1, true), Payload::Gather(&[]));
    assert_eq!(refused, Err(Refusal::State));
    let whole: &[Setter] = &[to, data];
    let sends = [(send(1, true), whole)];
    assert_eq!(series(&bench, &sends), Err(Refusal::State));
    bench.qp.permit(true, true);
    assert_eq!(series(&bench, &sends), Ok(()));
}

#[test]
fn the_queue_holds_what_was_asked() {
    for (asked, inline) in [(1, 0), (4, 192), (12, 16)] {
        let mut bench = bench(asked, inline);
        let all = sges(asked.into());
        for round in 0..50 {
            for id in 0..4 {
                let posted = post(&bench, send(id, id == 3), Payload::Gather(&all));
                assert_eq!(posted, Ok(()), "{asked} {inline} {round}");
            }
            assert_eq!(bench.execute(9), 4);
            assert_eq!(bench.poll(9).len(), 1);
        }
    }
}
