// SPDX-License-Identifier: GPL-2.0
//! Memory windows.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::AdminError;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_model::Config;

checks![
    a_window_is_a_part_of_its_region,
    a_window_has_rights_of_its_own,
    a_window_of_type_one_is_bound_anew,
    a_window_of_type_two_is_of_its_queue_pair,
    a_window_based_on_zero,
    atomics_by_a_window,
    binds_that_are_refused,
    binds_that_are_malformed,
    invalidations_that_are_refused,
    a_send_invalidates,
    a_send_that_cannot_invalidate,
    a_send_to_itself_that_cannot_invalidate,
    a_window_is_invalidated_during_a_message,
    a_bound_region_is_busy,
    the_end_of_a_queue_pair_unbinds,
    keys_of_windows,
    windows_are_objects,
];

fn a_window_is_a_part_of_its_region() {
    for kind in [mw_type::ONE, mw_type::TWO] {
        let (mut p, window, key) = bound(kind, 4096, 64);
        let context = MwContext::decode(&p.m.query(kind::MW, window));
        let expected = MwContext {
            pd: p.pd_b,
            kind,
            access: access::REMOTE,
            tag: 1,
            region: p.mr_b.key,
            qp: match kind {
                mw_type::ONE => Number::default(),
                _ => p.b.number,
            },
            addr: p.mr_b.va + 4096,
            bytes: 64,
        };
        assert_eq!(context, expected);
        let first = p.mr_b.va + 4096;
        p.m.memory.set_word(p.mr_a.addr, 77);
        assert_eq!(try_key(&mut p, work::WRITE, key, first), DONE);
        assert_eq!(p.m.memory.word(p.mr_b.addr + 4096), 77);
        p.m.memory.set_word(p.mr_b.addr + 4096 + 56, 78);
        assert_eq!(try_key(&mut p, work::READ, key, first + 56), DONE);
        assert_eq!(p.m.memory.word(p.mr_a.addr), 78);
        for (addr, detail) in [
            (first - 1, Detail::Range),
            (first + 57, Detail::Range),
            (u64::MAX - 3, Detail::Range),
            (0, Detail::Range),
        ] {
            let (mut p, _, key) = bound(kind, 4096, 64);
            assert_eq!(try_key(&mut p, work::WRITE, key, addr), refused(detail));
            assert_eq!(p.state(p.b.number), qp_state::ERROR);
        }
        // Its key is of requests to it alone.
        let (mut p, _, key) = bound(kind, 0, 64);
        let own = Sge {
            lkey: key,
            ..p.mr_a.sge(0, 8)
        };
        p.send(p.remote(work::WRITE, 0), &[own]);
        let protection = (Status::LocalProtection, Detail::Key);
        assert_eq!(outcome(&p.done_a()[0]), protection);
    }
}

fn a_window_has_rights_of_its_own() {
    let rights = [
        (work::WRITE, access::REMOTE_WRITE),
        (work::READ, access::REMOTE_READ),
    ];
    for (opcode, right) in rights {
        for (given, expected) in [
            (right, DONE),
            (access::REMOTE & !right, refused(Detail::Rights)),
            (0, refused(Detail::Rights)),
        ] {
            let mut p = Pair::new();
            // The region itself permits nothing to the peer.
            let own = access::LOCAL_WRITE | access::BIND;
            let mr = p.m.mr_at(p.pd_b, 1 << 20, 4096, own);
            let key = p.m.mw(p.pd_b, mw_type::TWO).1;
            let wqe = BindWqe {
                access: given.into(),
                ..Pair::bind(key, &mr, 0, 4096)
            };
            let key = p.bind_at_b(wqe).unwrap();
            assert_eq!(try_key(&mut p, opcode, key, mr.va), expected);
            if expected == DONE {
                let by_region = mr.key.raw();
                let weak = try_key(&mut p, opcode, by_region, mr.va);
                assert_eq!(weak, refused(Detail::Rights));
            }
        }
    }
    // So has the queue pair.
    let mut p = Pair::with(|_, b| b.access = access::REMOTE_READ);
    let key = p.m.mw(p.pd_b, mw_type::ONE).1;
    let wqe = Pair::bind(key, &p.mr_b, 0, 64);
    let key = p.bind_at_b(wqe).unwrap();
    let va = p.mr_b.va;
    let invalid = (Status::RemoteInvalidRequest, Detail::Rights);
    assert_eq!(try_key(&mut p, work::WRITE, key, va), invalid);
}

fn a_window_of_type_one_is_bound_anew() {
    let (mut p, window, first) = bound(mw_type::ONE, 0, 64);
    let va = p.mr_b.va;
    // Elsewhere, by a chosen tag, and whatever the tag was.
    let wqe = BindWqe {
        window: first | 0xff,
        new_key: first & !0xff | 0xc3,
        ..Pair::bind(first, &p.mr_b, 128, 8)
    };
    let second = p.bind_at_b(wqe).unwrap();
    assert_eq!(try_key(&mut p, work::WRITE, second, va + 128), DONE);
    assert_eq!(
        try_key(&mut p, work::WRITE, first, va),
        refused(Detail::Key)
    );
    again(&mut p);
    assert_eq!(
        try_key(&mut p, work::WRITE, second, va + 128),
        DONE,
        "not of the queue pair"
    );
    // Another queue pair of the domain may use and bind it.
    let mut cq = p.m.cq(4);
    let spec = Machine::spec(p.pd_b, &cq);
    let mut other = p.m.qp(&spec);
    p.m.connect(other.number, other.number);
    let wqe = by_key(&p, work::WRITE, second, va + 128);
    p.m.send(&mut other, wqe, &[p.mr_b.sge(0, 8)]);
    assert_eq!(p.m.drain(&mut cq)[0].status, 0);
    // A bind of no bytes unbinds; the key is the new one, and the region is not looked at.
    let wqe = BindWqe {
        region: 0,
        ..Pair::bind(second, &p.mr_b, 0, 0)
    };
    p.m.post_words(&mut other, &bind_words(wqe));
    p.m.ring_sq(&other);
    p.m.settle();
    assert_eq!(p.m.drain(&mut cq)[0].status, 0);
    let context = MwContext::decode(&p.m.query(kind::MW, window));
    assert_eq!((context.tag, context.region.raw()), (wqe.new_key as u8, 0));
    let detail = refused(Detail::Key);
    assert_eq!(try_key(&mut p, work::WRITE, wqe.new_key, va), detail);
    again(&mut p);
    assert_eq!(try_key(&mut p, work::WRITE, second, va + 128), detail);
    again(&mut p);
    let wqe = Pair::bind(wqe.new_key, &p.mr_b, 0, 64);
    assert!(p.bind_at_b(wqe).is_ok(), "it can be bound again");
}

fn a_window_of_type_two_is_of_its_queue_pair() {
    let (mut p, window, key) = bound(mw_type::TWO, 0, 64);
    let va = p.mr_b.va;
    let mut cq = p.m.cq(4);
    let spec = Machine::spec(p.pd_b, &cq);
    let mut other = p.m.qp(&spec);
    p.m.connect(other.number, other.number);
    let wqe = by_key(&p, work::WRITE, key, va);
    p.m.send(&mut other, wqe, &[p.mr_b.sge(0, 8)]);
    assert_eq!(outcome(&p.m.drain(&mut cq)[0]), refused(Detail::Domain));
    p.m.events0();
    assert_eq!(try_key(&mut p, work::WRITE, key, va), DONE);
    // It is invalidated before it is bound again.
    let inval = SendWqe {
        rkey: key,
        ..wqe_of(work::LOCAL_INV)
    };
    p.m.send(&mut p.b, inval, &[]);
    let cqes = p.done_b();
    assert_eq!(outcome(&cqes[0]), DONE);
    assert_eq!((cqes[0].opcode, cqes[0].bytes), (work::LOCAL_INV, 0));
    let context = MwContext::decode(&p.m.query(kind::MW, window));
    let unbound = MwContext {
        pd: p.pd_b,
        kind: mw_type::TWO,
        tag: key as u8,
        ..MwContext::default()
    };
    assert_eq!(context, unbound);
    let wqe = Pair::bind(key, &p.mr_b, 0, 64);
    let next = p.bind_at_b(wqe).unwrap();
    assert_eq!(try_key(&mut p, work::WRITE, next, va), DONE);
    assert_eq!(try_key(&mut p, work::WRITE, key, va), refused(Detail::Key));
}

fn wqe_of(opcode: u8) -> SendWqe {
    wqe(opcode, 1)
}

fn a_window_based_on_zero() {
    let mut p = Pair::new();
    let key = p.m.mw(p.pd_b, mw_type::TWO).1;
    let wqe = BindWqe {
        access: (access::REMOTE | access::ZERO_BASED).into(),
        ..Pair::bind(key, &p.mr_b, 512, 64)
    };
    let key = p.bind_at_b(wqe).unwrap();
    p.m.memory.set_word(p.mr_a.addr, 5);
    assert_eq!(try_key(&mut p, work::WRITE, key, 56), DONE);
    assert_eq!(p.m.memory.word(p.mr_b.addr + 512 + 56), 5);
    let past = try_key(&mut p, work::WRITE, key, 57);
    assert_eq!(past, refused(Detail::Range));
}

fn atomics_by_a_window() {
    let (mut p, _, key) = bound(mw_type::TWO, 64, 64);
    p.m.memory.set_word(p.mr_b.addr + 64, 40);
    let wqe = AtomicWqe {
        rkey: key,
        ..p.atomic(work::FETCH_ADD, 64, 2, 0)
    };
    p.send_atomic(wqe, &[p.mr_a.sge(0, 8)]);
    assert_eq!(outcome(&p.done_a()[0]), DONE);
    assert_eq!(p.m.memory.word(p.mr_b.addr + 64), 42);
    let wqe = AtomicWqe {
        remote_addr: p.mr_b.va + 128,
        ..wqe
    };
    p.send_atomic(wqe, &[p.mr_a.sge(0, 8)]);
    assert_eq!(outcome(&p.done_a()[0]), refused(Detail::Range));
}

fn binds_that_are_refused() {
    for case in 0..17 {
        let mut p = Pair::new();
        let (window, key) = p.m.mw(p.pd_b, mw_type::TWO);
        let one = p.m.mw(p.pd_b, mw_type::ONE).1;
        let foreign = p.m.mw(p.pd_a, mw_type::TWO).1;
        let no_bind = access::ALL & !access::BIND;
        let no_write = access::ALL & !access::LOCAL_WRITE;
        let (no_bind, no_write) = (
            p.m.mr_at(p.pd_b, 0, 4096, no_bind),
            p.m.mr_at(p.pd_b, 0, 4096, no_write),
        );
        let good = Pair::bind(key, &p.mr_b, 0, 64);
        let zero = u32::from(access::ZERO_BASED);
        let with = |right: u8| BindWqe {
            access: right.into(),
            ..Pair::bind(key, &no_write, 0, 64)
        };
        let (wqe, detail) = match case {
            0 => (
                // A number that no window has.
                BindWqe {
                    window: key + (1 << 20),
                    ..good
                },
                Some(Detail::Key),
            ),
            1 => (BindWqe { window: 0, ..good }, Some(Detail::Key)),
            2 => (Pair::bind(foreign, &p.mr_b, 0, 64), Some(Detail::Domain)),
            3 => (
                BindWqe {
                    new_key: one,
                    ..good
                },
                Some(Detail::Key),
            ),
            4 => (BindWqe { new_key: 1, ..good }, Some(Detail::Key)),
            5 => (BindWqe { region: 0, ..good }, Some(Detail::Key)),
            6 => (
                BindWqe {
                    region: key,
                    ..good
                },
                Some(Detail::Key),
            ),
            7 => (Pair::bind(key, &p.mr_a, 0, 64), Some(Detail::Domain)),
            8 => (Pair::bind(key, &no_bind, 0, 64), Some(Detail::Rights)),
            9 => (with(access::REMOTE_WRITE), Some(Detail::Rights)),
            10 => (with(access::REMOTE_ATOMIC), Some(Detail::Rights)),
            11 => (with(access::REMOTE_READ), None),
            12 => (
                Pair::bind(key, &p.mr_b, (1 << 20) - 63, 64),
                Some(Detail::Range),
            ),
            13 => (
                BindWqe {
                    addr: p.mr_b.va - 1,
                    ..good
                },
                Some(Detail::Range),
            ),
            14 => (
                BindWqe {
                    bytes: u64::MAX,
                    ..good
                },
                Some(Detail::Range),
            ),
            15 => (BindWqe { bytes: 0, ..good }, Some(Detail::Range)),
            _ => {
                let wqe = Pair::bind(one, &p.mr_b, 0, 64);
                (
                    BindWqe {
                        access: zero,
                        ..wqe
                    },
                    Some(Detail::Rights),
                )
            }
        };
        let before: [u64; 8] = p.m.query(kind::MW, window);
        let done = p.bind_at_b(wqe);
        let Some(detail) = detail else {
            assert!(done.is_ok());
            continue;
        };
        assert_eq!(done, Err((Status::WindowBind, detail)), "{case}");
        assert_eq!(p.m.query::<8>(kind::MW, window), before, "{case}");
    }
    let (mut p, _, key) = bound(mw_type::TWO, 0, 64);
    let wqe = Pair::bind(key, &p.mr_b, 0, 64);
    let twice = (Status::WindowBind, Detail::State);
    assert_eq!(p.bind_at_b(wqe), Err(twice));
    let mr = p.mr_b.va;
    again(&mut p);
    assert_eq!(try_key(&mut p, work::WRITE, key, mr), refused(Detail::Key));
}

fn binds_that_are_malformed() {
    use Status::LocalQpOperation;
    for case in 0..7 {
        let (mut p, _, key) = bound(mw_type::ONE, 0, 64);
        let good = Pair::bind(key, &p.mr_b, 0, 64);
        let flags = send_flags::SIGNALED;
        let (wqe, detail) = match case {
            0 => (BindWqe { sges: 1, ..good }, Detail::Sges),
            1 => (BindWqe { access: 64, ..good }, Detail::Flags),
            2 => {
                let local = u32::from(access::LOCAL_WRITE);
                (
                    BindWqe {
                        access: local,
                        ..good
                    },
                    Detail::Flags,
                )
            }
            3 => {
                let flags = flags | send_flags::SOLICITED;
                (BindWqe { flags, ..good }, Detail::Flags)
            }
            4 => (
                BindWqe {
                    inline_bytes: 1,
                    ..good
                },
                Detail::Inline,
            ),
            // Of several faults the first counts.
            _ => {
                let all = BindWqe {
                    sges: 1,
                    inline_bytes: 1,
                    ..good
                };
                match case {
                    5 => (BindWqe { access: 64, ..all }, Detail::Flags),
                    _ => (all, Detail::Sges),
                }
            }
        };
        assert_eq!(p.bind_at_b(wqe), Err((LocalQpOperation, detail)), "{case}");
    }
    // UC has neither.
    for opcode in [work::BIND, work::LOCAL_INV, work::SEND_INV] {
        let mut p = Pair::with(|a, b| {
            (a.service, b.service) = (service::UC, service::UC);
        });
        p.send(wqe_of(opcode), &[]);
        let unknown = (LocalQpOperation, Detail::Opcode);
        assert_eq!(outcome(&p.done_a()[0]), unknown);
    }
}

fn invalidations_that_are_refused() {
    for (case, detail) in [
        (0, Detail::Key),
        (1, Detail::Key),
        (2, Detail::Domain),
        (3, Detail::State),
        (4, Detail::State),
        (5, Detail::Domain),
        (6, Detail::Sges),
    ] {
        let kind = if case == 3 {
            mw_type::ONE
        } else {
            mw_type::TWO
        };
        let (mut p, _, key) = bound(kind, 0, 64);
        let mut cq = p.m.cq(4);
        let spec = Machine::spec(p.pd_b, &cq);
        let mut other = p.m.qp(&spec);
        p.m.connect(other.number, other.number);
        let key = match case {
            0 => key + 1,
            1 => p.mr_b.key.raw(),
            2 => p.m.mw(p.pd_a, mw_type::TWO).1,
            4 => p.m.mw(p.pd_b, mw_type::TWO).1,
            _ => key,
        };
        let inval = SendWqe {
            rkey: key,
            ..wqe_of(work::LOCAL_INV)
        };
        let sges = if case == 6 {
            vec![p.mr_b.sge(0, 8)]
        } else {
            vec![]
        };
        // Each but the fifth is of the queue pair that bound the window.
        let cqe = if case == 5 {
            p.m.send(&mut other, inval, &sges);
            p.m.drain(&mut cq)[0]
        } else {
            p.m.send(&mut p.b, inval, &sges);
            p.done_b()[0]
        };
        let status = match case {
            6 => Status::LocalQpOperation,
            _ => Status::WindowBind,
        };
        assert_eq!(outcome(&cqe), (status, detail), "{case}");
    }
}

fn a_send_invalidates() {
    let (mut p, window, key) = bound(mw_type::TWO, 0, 64);
    p.m.memory.set_word(p.mr_a.addr, 3);
    let into = p.mr_b.sge(4096, 64);
    send_inv_into(&mut p, into, key);
    assert_eq!(p.m.memory.word(p.mr_b.addr + 4096), 3);
    let context = MwContext::decode(&p.m.query(kind::MW, window));
    assert_eq!((context.tag, context.region), (1, Number::default()));
    let va = p.mr_b.va;
    assert_eq!(try_key(&mut p, work::WRITE, key, va), refused(Detail::Key));
    // Without bytes, and inline.
    for inline in [false, true] {
        let (mut p, _, key) = bound(mw_type::TWO, 0, 64);
        p.recv(5, &[p.mr_b.sge(0, 8)]);
        let wqe = SendWqe {
            imm: key,
            ..wqe_of(work::SEND_INV)
        };
        let words = match inline {
            true => inline_words(wqe, &[1, 2, 3]),
            false => wqe_words(wqe, &[]),
        };
        p.m.post_words(&mut p.a, &words);
        p.m.ring_sq(&p.a);
        p.m.settle();
        assert_eq!(outcome(&p.done_a()[0]), DONE);
        let got = p.done_b()[0];
        let (bytes, flags) = (u32::from(inline) * 3, cqe_flags::RECV | cqe_flags::INV);
        assert_eq!((got.bytes, got.imm, got.flags), (bytes, key, flags));
    }
}

/// The peer fails, and gives no answer.
fn a_send_that_cannot_invalidate() {
    for (case, detail) in [
        (0, Detail::Key),
        (1, Detail::State),
        (2, Detail::State),
        (3, Detail::Domain),
    ] {
        let kind = if case == 1 {
            mw_type::ONE
        } else {
            mw_type::TWO
        };
        let (mut p, _, key) = bound(kind, 0, 64);
        let named = match case {
            0 => key + 1,
            2 => p.m.mw(p.pd_b, mw_type::TWO).1,
            3 => p.m.mw(p.pd_a, mw_type::TWO).1,
            _ => key,
        };
        p.recv(5, &[p.mr_b.sge(0, 64)]);
        let wqe = SendWqe {
            imm: named,
            ..wqe_of(work::SEND_INV)
        };
        p.send(wqe, &[p.mr_a.sge(0, 8)]);
        let unanswered = (Status::RetryExceeded, Detail::NotReady);
        assert_eq!(outcome(&p.done_a()[0]), unanswered, "{case}");
        let got = p.done_b();
        assert_eq!(outcome(&got[0]), (Status::LocalAccess, detail));
        assert_eq!((got[0].wr_id, got[0].imm), (5, 0));
        for qp in [p.a.number, p.b.number] {
            assert_eq!(p.state(qp), qp_state::ERROR);
        }
    }
    // A receive that is too short comes first: the window stays.
    let (mut p, window, key) = bound(mw_type::TWO, 0, 64);
    p.recv(5, &[p.mr_b.sge(0, 4)]);
    let wqe = SendWqe {
        imm: key,
        ..wqe_of(work::SEND_INV)
    };
    p.send(wqe, &[p.mr_a.sge(0, 8)]);
    let short = (Status::RemoteInvalidRequest, Detail::ShortReceive);
    assert_eq!(outcome(&p.done_a()[0]), short);
    let context = MwContext::decode(&p.m.query(kind::MW, window));
    assert_eq!(context.region, p.mr_b.key);
}

fn a_send_to_itself_that_cannot_invalidate() {
    let mut m = Machine::new();
    let (pd, mut cq) = (m.pd(), m.cq(4));
    let mut qp = m.qp(&Machine::spec(pd, &cq));
    m.connect(qp.number, qp.number);
    m.recv(&mut qp, 5, &[]);
    m.send(&mut qp, wqe_of(work::SEND_INV), &[]);
    let cqes = m.drain(&mut cq);
    let seen: Vec<_> = cqes.iter().map(|cqe| (cqe.wr_id, outcome(cqe).0)).collect();
    assert_eq!(seen, [(5, Status::LocalAccess), (1, Status::Flush)]);
}

fn a_window_is_invalidated_during_a_message() {
    let (mut p, key) = long_write(|p| {
        let key = p.m.mw(p.pd_b, mw_type::TWO).1;
        let wqe = Pair::bind(key, &p.mr_b, 0, 1 << 20);
        p.bind_at_b(wqe).unwrap()
    });
    let inval = SendWqe {
        rkey: key,
        ..wqe_of(work::LOCAL_INV)
    };
    p.m.send(&mut p.b, inval, &[]);
    assert_eq!(outcome(&p.done_a()[0]), refused(Detail::Key));
    assert!(p.m.f.counter(Counter::WriteBytes) < 1 << 16);
    assert_eq!(outcome(&p.done_b()[0]), DONE);
}

fn a_bound_region_is_busy() {
    let (mut p, window, key) = bound(mw_type::TWO, 0, 64);
    let mr = p.mr_b.key;
    let one = p.m.mw(p.pd_b, mw_type::ONE).1;
    let wqe = Pair::bind(one, &p.mr_b, 0, 8);
    let one = p.bind_at_b(wqe).unwrap();
    let busy = |p: &mut Pair| {
        assert_eq!(p.m.destroy(kind::MR, mr), Err(AdminError::Busy));
        let context = MrContext::decode(&p.m.query(kind::MR, mr));
        let done = p.m.modify_mr(mr, mr_mask::ACCESS, &context);
        assert_eq!(done, Err(AdminError::Busy));
    };
    busy(&mut p);
    p.m.destroy(kind::MW, window).unwrap();
    let va = p.mr_b.va;
    assert_eq!(try_key(&mut p, work::WRITE, one, va), DONE);
    busy(&mut p);
    // To another region.
    let other = p.m.mr(p.pd_b, 4096);
    let wqe = Pair::bind(one, &other, 0, 8);
    p.bind_at_b(wqe).unwrap();
    p.m.destroy(kind::MR, mr).unwrap();
    assert_eq!(p.m.destroy(kind::MR, other.key), Err(AdminError::Busy));
    assert_eq!(try_key(&mut p, work::WRITE, key, va), refused(Detail::Key));
}

fn the_end_of_a_queue_pair_unbinds() {
    for destroys in [false, true] {
        let (mut p, window, key) = bound(mw_type::TWO, 0, 64);
        let one = p.m.mw(p.pd_b, mw_type::ONE).1;
        let other = p.m.mr(p.pd_b, 4096);
        let wqe = Pair::bind(one, &other, 0, 8);
        p.bind_at_b(wqe).unwrap();
        p.m.set_state(p.b.number, qp_state::ERROR).unwrap();
        let context = MwContext::decode(&p.m.query(kind::MW, window));
        assert_eq!(context.region, p.mr_b.key, "an error ends nothing");
        if destroys {
            p.m.destroy(kind::QP, p.b.number).unwrap();
        } else {
            again(&mut p);
            let va = p.mr_b.va;
            assert_eq!(try_key(&mut p, work::WRITE, key, va), refused(Detail::Key));
        }
        let context = MwContext::decode(&p.m.query(kind::MW, window));
        assert_eq!((context.region.raw(), context.qp.raw()), (0, 0));
        p.m.destroy(kind::MR, p.mr_b.key).unwrap();
        let busy = p.m.destroy(kind::MR, other.key);
        assert_eq!(busy, Err(AdminError::Busy), "type 1 stays bound");
    }
}

fn keys_of_windows() {
    let mut m = Machine::new();
    let pd = m.pd();
    let mut followers = 0;
    for _ in 0..200 {
        let (number, key) = m.mw(pd, mw_type::TWO);
        assert_eq!(number.index(), 0);
        assert!((1..=2047).contains(&number.generation()));
        assert_eq!(window_of(key), Some((number, 0)));
        assert_eq!(window_of(key | 0xff), Some((number, 0xff)));
        let (next, _) = {
            m.destroy(kind::MW, number).unwrap();
            m.mw(pd, mw_type::TWO)
        };
        followers += u32::from(number.next_of(2047) == next);
        m.destroy(kind::MW, next).unwrap();
        let mr = m.mr(pd, 64);
        assert_eq!(window_of(mr.key.raw()), None, "{}", mr.key);
        m.destroy(kind::MR, mr.key).unwrap();
    }
    assert!(followers < 5, "{followers} keys follow from the one before");
}

fn windows_are_objects() {
    let config = Config {
        mws: 3,
        ..Config::default()
    };
    let mut m = Machine::with(config);
    let pd = m.pd();
    let objects = m.f.objects();
    let mws = [1, 2, 1].map(|kind| m.mw(pd, kind).0);
    assert_eq!(m.f.objects(), objects + 3);
    let good = MwContext {
        pd,
        kind: mw_type::ONE,
        ..MwContext::default()
    };
    let mut fails = |context: MwContext, error| {
        assert_eq!(m.create(kind::MW, &context.encode()), Err(error));
    };
    fails(good, AdminError::Full);
    fails(MwContext { kind: 0, ..good }, AdminError::Attribute);
    fails(MwContext { kind: 3, ..good }, AdminError::Attribute);
    let none = Number::new(9, 9);
    fails(MwContext { pd: none, ..good }, AdminError::Reference);
    assert_eq!(m.destroy(kind::PD, pd), Err(AdminError::Busy));
    for mw in mws {
        m.destroy(kind::MW, mw).unwrap();
        assert_eq!(m.destroy(kind::MW, mw), Err(AdminError::Number));
    }
    let found = m.with_context(kind::MW, verb::QUERY, mws[0], 0, &[0; 8]);
    assert_eq!(found, Err(AdminError::Number));
    m.destroy(kind::PD, pd).unwrap();
    // A function without windows.
    let mut m = Machine::with(Config {
        mws: 0,
        ..Config::default()
    });
    let pd = m.pd();
    let full = m.create(kind::MW, &MwContext { pd, ..good }.encode());
    assert_eq!(full, Err(AdminError::Full));
}
