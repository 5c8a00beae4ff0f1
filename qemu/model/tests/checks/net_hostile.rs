// SPDX-License-Identifier: GPL-2.0
//! Frames with wrong contents, to queue pairs of all services in all states. Memory that the device may
//! not access fails the test, so does a panic.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::Number;
use qpair_roce::extended::Aeth;
use qpair_roce::extended::AtomicEth;
use qpair_roce::extended::Deth;
use qpair_roce::extended::Reth;
use qpair_roce::extended::Syndrome;
use qpair_roce::extended::With;
use qpair_roce::header::Service;
use qpair_roce::operation::Operation;
use qpair_roce::psn::Psn;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;

checks![any_frame_does_no_harm, a_wrong_frame_changes_counters_alone];

/// Where an IPv4 frame has its headers.
const IP: usize = 14;
const UDP: usize = IP + 20;
const BTH: usize = UDP + 8;
const ICRC: usize = 4;

/// Another frame, which is like this one.
fn changed(rng: &mut Rng, frame: &[u8], dest: Number) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if rng.one_in(3) {
        let bytes = BTH + 12 + ICRC + 4 * rng.below(300) as usize;
        frame.resize(bytes, 0);
    }
    for _ in 0..rng.below(4) {
        let most = if rng.one_in(2) { BTH + 40 } else { frame.len() };
        let at = BTH + rng.below((most.min(frame.len()) - BTH) as u64) as usize;
        frame[at] = rng.odd() as u8;
    }
    if rng.one_in(3) {
        // An operation of this or of another service.
        frame[BTH] = rng.pick(&[0, 0x20, 0x60]) | rng.below(0x1e) as u8;
    }
    if !rng.one_in(4) {
        let [_, number @ ..] = dest.raw().to_be_bytes();
        frame[BTH + 5..BTH + 8].copy_from_slice(&number);
    }
    if rng.one_in(2) {
        // Near its number.
        let psn = u32::from_be_bytes(frame[BTH + 8..BTH + 12].try_into().unwrap());
        let psn = psn.wrapping_add(rng.below32(40)).wrapping_sub(20);
        frame[BTH + 8..BTH + 12].copy_from_slice(&psn.to_be_bytes());
    }
    sealed(frame)
}

/// Requests of all kinds.
fn requests(f: &mut Far, rng: &mut Rng) {
    let bytes = 1 + rng.below32(5000);
    let sge = f.mrs[0].sge(0, bytes);
    for opcode in [work::SEND, work::WRITE, work::READ] {
        let into = f.mrs[1].sge(1 << 16, 5000);
        f.recv(1, &[into]);
        let wqe = f.remote(opcode, 0);
        let has = f.connection.service == service::RC || opcode != work::READ;
        if has {
            f.post(wqe, &[sge]);
        }
    }
}

fn any_frame_does_no_harm() {
    with_seeds("any_frame_does_no_harm", 12, |rng| {
        let connection = Connection {
            service: rng.pick(&[service::RC, service::RC, service::UC]),
            log_mtu: 8 + rng.below(3) as u8,
            ..Connection::default()
        };
        let mut f = Far::with(connection);
        f.lan.sent = Some(Vec::new());
        requests(&mut f, rng);
        f.lan.settle();
        let frames = f.lan.sent.take().unwrap();
        assert!(frames.len() >= 2);
        for _ in 0..40 {
            let place = rng.below(2) as usize;
            match rng.below(6) {
                0 => {
                    f.reset(place);
                    if rng.one_in(4) {
                        f.connect(place);
                    }
                }
                1 if f.state(place) == qp_state::RESET => f.connect(place),
                2 if f.state(0) == qp_state::RTS => requests(&mut f, rng),
                _ => {}
            }
            for _ in 0..10 {
                let (from, frame) = &frames[rng.below(frames.len() as u64) as usize];
                let frame = changed(rng, frame, f.qps[1 - from].number);
                assert!(f.lan.deliver(1 - from, &frame));
            }
            f.lan.pass(rng.below(1_000_000));
            f.done(0);
            f.done(1);
        }
        // They still work.
        for place in [0, 1] {
            f.reset(place);
        }
        f.lan.settle();
        for place in [0, 1] {
            f.connect(place);
            f.done(place);
        }
        let (from, into) = (f.mrs[0].sge(0, 3000), f.mrs[1].sge(1 << 16, 5000));
        f.recv(1, &[into]);
        let wqe = f.remote(work::SEND, 0);
        f.send(wqe, &[from]);
        assert_eq!(f.done(0).len(), 1);
        assert_eq!(f.done(1).len(), 1);
    });
}

/// What a frame that is dropped may change, besides the turns.
const COUNTED: [Counter; 9] = [
    Counter::FramesIn,
    Counter::FramesOut,
    Counter::FramesForeign,
    Counter::FramesMalformed,
    Counter::FramesCorrupt,
    Counter::OutOfSequence,
    Counter::Duplicates,
    Counter::Dropped,
    Counter::Stale,
];

/// The second gets a frame, and has nothing of it: neither its memory nor its queue pair changes, and
/// no interrupt is raised. A queue pair of UC may count it as a message that was lost, so the PSN that
/// it expects may change.
fn is_dropped(f: &mut Far, frame: &[u8], what: &str) {
    let (qp, is_uc) = (f.qps[1].number, f.connection.service == service::UC);
    let context = |f: &mut Far| {
        let context = f.m(1).query_qp(qp);
        QpContext {
            rq_psn: if is_uc { 0 } else { context.rq_psn },
            ..context
        }
    };
    let before = context(f);
    f.m(1).raised();
    let (memory, counts) = (f.m(1).memory.contents(), *f.m(1).f.counters());
    f.lan.deliver(1, frame);
    let serves = matches!(before.state, qp_state::RTR | qp_state::RTS | qp_state::SQD);
    let answers = std::mem::take(&mut f.m(1).f.host_mut().frames).len();
    assert!(answers <= usize::from(serves), "{what}: {answers} answers");
    assert!(f.m(1).memory.contents() == memory, "{what}: memory");
    assert_eq!(f.m(1).raised(), [], "{what}");
    for counter in Counter::ALL.iter().filter(|it| **it != Counter::Turns) {
        let counted = f.m(1).f.counter(*counter) - counts[*counter as usize];
        let most = u64::from(COUNTED.contains(counter));
        assert!(counted <= most, "{what}: {counted} {}", counter.name());
    }
    assert_eq!(context(f), before, "{what}");
}

/// A change of a frame that no queue pair takes for its own, or in its place.
type Change = (&'static str, fn(&Far, &mut Forged));

const OF_ALL: [Change; 3] = [
    ("a generation that is over", |_, it| {
        it.headers.dest ^= 1 << 16
    }),
    ("a number that is none", |_, it| it.headers.dest ^= 1 << 15),
    ("the admin queue pair", |_, it| it.headers.dest = 0),
];

/// Those of connections: their peers and numbers.
const OF_CONNECTIONS: [Change; 3] = [
    ("another address", |_, it| {
        it.route.from = gid_bytes(gid_at(7))
    }),
    ("a datagram", |_, it| {
        it.headers.service = Service::Ud(Deth::default());
        it.headers.operation = Operation::SendOnly(With::Nothing);
    }),
    ("a packet from before", |_, it| {
        it.headers.psn = it.headers.psn.previous();
    }),
];

const OF_RC: [Change; 9] = [
    ("a packet of UC", |_, it| it.headers.service = Service::Uc),
    ("a packet too early", |_, it| {
        it.headers.psn = it.headers.psn.plus(1)
    }),
    ("a packet far too early", |_, it| {
        it.headers.psn = it.headers.psn.plus(0x7f_ffff);
    }),
    ("an early READ of any key", |_, it| {
        it.headers.psn = it.headers.psn.plus(2);
        it.headers.operation = Operation::Read(Reth {
            addr: 0,
            key: 1,
            bytes: 1 << 31,
        });
        it.payload.clear();
    }),
    ("an atomic from before", |f, it| {
        let Reth { addr, key, .. } = Forged::reth(f);
        it.headers.psn = it.headers.psn.previous();
        it.headers.operation = Operation::FetchAdd(AtomicEth {
            addr,
            key,
            swap_add: 1,
            compare: 0,
        });
        it.payload.clear();
    }),
    ("a READ from before", |f, it| {
        it.headers.psn = it.headers.psn.previous();
        it.headers.operation = Operation::Read(Forged::reth(f));
        it.payload.clear();
    }),
    ("an acknowledgement", |_, it| {
        it.headers.operation = Operation::Acknowledge(AETH);
        it.payload.clear();
    }),
    ("the answer to a READ", |_, it| {
        it.headers.operation = Operation::ReadReplyOnly(AETH);
    }),
    ("the answer to an atomic", |_, it| {
        it.headers.operation = Operation::AtomicReply(AETH, 1);
        it.payload.clear();
    }),
];

const AETH: Aeth = Aeth {
    syndrome: Syndrome::Sequence,
    msn: 0,
};

/// A queue pair of UC answers nothing, so a wrong message is lost in its place, too.
const OF_UC: [Change; 5] = [
    ("a packet of RC", |_, it| it.headers.service = Service::Rc),
    ("a wrong key", |f, it| {
        let key = Forged::reth(f).key ^ 1 << 16;
        it.headers.operation = Operation::WriteOnly(
            Reth {
                key,
                ..Forged::reth(f)
            },
            None,
        );
    }),
    ("a wrong address", |f, it| {
        let addr = Forged::reth(f).addr + (1 << 20) - 7;
        it.headers.operation = Operation::WriteOnly(
            Reth {
                addr,
                ..Forged::reth(f)
            },
            None,
        );
    }),
    ("a wrong length", |f, it| {
        let bytes = 9;
        it.headers.operation = Operation::WriteOnly(
            Reth {
                bytes,
                ..Forged::reth(f)
            },
            None,
        );
    }),
    ("the end of no message", |_, it| {
        it.headers.operation = Operation::WriteLast(None);
    }),
];

const OF_UD: [Change; 2] = [
    ("a wrong Q_Key", |_, it| {
        it.headers.service = Service::Ud(Deth {
            q_key: KEY ^ 1,
            source: 5,
        });
    }),
    ("a packet of RC", |_, it| it.headers.service = Service::Rc),
];

/// Frames like this one whose bytes are wrong: of no RoCE, of another host, or malformed.
fn wrong_bytes(frame: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = (0..frame.len())
        .map(|bytes| (format!("{bytes} bytes"), frame[..bytes].to_vec()))
        .collect();
    for (at, bits, sealing) in [
        (5, 1, false),
        (12, 1, false),
        (IP, 0x10, false),
        (IP, 1, false),
        (IP + 3, 1, false),
        (IP + 6, 0x20, false),
        (IP + 7, 1, false),
        (IP + 9, 1, false),
        (UDP + 3, 1, false),
        (UDP + 5, 4, false),
        (BTH + 12, 1, false),
        // Right checksums: an unknown opcode, padding, a transport version, a P_Key.
        (BTH, 0x80, true),
        (BTH, 0x1f, true),
        (BTH + 1, 1, true),
        (BTH + 2, 1, true),
    ] {
        let mut wrong = frame.to_vec();
        wrong[at] ^= bits;
        if sealing {
            wrong = sealed(wrong);
        }
        all.push((format!("{bits:#x} at {at}"), wrong));
    }
    // All that is left of the packet is padding.
    let mut short = sealed(frame[..BTH + 12 + ICRC].to_vec());
    short[BTH + 1] |= 0x30;
    all.push(("padding alone".into(), sealed(short)));
    all
}

/// The PSN that the second expects; a queue pair of UD takes any.
fn next_psn(f: &mut Far, right: &Forged) -> Psn {
    let qp = f.qps[1].number;
    match f.m(1).query_qp(qp) {
        QpContext {
            state: qp_state::RTR..=qp_state::SQD,
            service: service::RC | service::UC,
            rq_psn,
            ..
        } => Psn::new(rq_psn),
        _ => right.headers.psn,
    }
}

fn a_wrong_frame_changes_counters_alone() {
    for (service, own) in [
        (service::RC, &OF_RC[..]),
        (service::UC, &OF_UC[..]),
        (service::UD, &OF_UD[..]),
    ] {
        for state in qp_state::RESET..=qp_state::ERROR {
            let mut f = Far::with(Connection {
                service,
                ..Connection::default()
            });
            f.reset(1);
            f.bring_to(1, state);
            let serves = (qp_state::RTR..=qp_state::SQD).contains(&state);
            if serves {
                f.recv(5, &[f.mrs[1].sge(1 << 16, 512)]);
            }
            let right = match service {
                service::UD => Forged::send_only(&f),
                _ => Forged::write(&f, 0),
            };
            let connected: &[Change] = match service {
                service::UD => &[],
                _ => &OF_CONNECTIONS,
            };
            for (what, change) in OF_ALL.iter().chain(connected).chain(own) {
                let mut wrong = Forged {
                    payload: right.payload.clone(),
                    ..right
                };
                wrong.headers.psn = next_psn(&mut f, &right);
                change(&f, &mut wrong);
                is_dropped(&mut f, &wrong.frame(), what);
            }
            let frame = right.frame();
            for (what, wrong) in wrong_bytes(&frame) {
                is_dropped(&mut f, &wrong, &what);
            }
            if !serves {
                is_dropped(&mut f, &frame, "a right frame");
                continue;
            }
            // It still takes a right one.
            let mut right = right;
            right.headers.psn = next_psn(&mut f, &right);
            let before = f.m(1).memory.contents();
            f.lan.deliver(1, &right.frame());
            assert!(f.m(1).memory.contents() != before, "{service} in {state}");
        }
    }
}
