// SPDX-License-Identifier: GPL-2.0
//! Fast registration memory regions beside other objects and requests.

use super::checks;
use super::frmr::bind_error;
use super::frmr::block_pair;
use super::frmr::ended;
use super::frmr::memory;
use super::frmr::pair;
use super::frmr::wqe_of;
use super::frmr::PAGE;
use super::frmr::VA;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::regs::offset;
use qpair_abi::status::AdminError;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_model::Config;
use qpair_testkit::with_seeds;

checks![
    a_send_invalidates_after_its_bytes,
    queue_pairs_end_no_registration,
    a_fault_registers_nothing,
    keys_of_frmrs,
    keys_of_destroyed_frmrs_are_counted,
    frmrs_are_objects,
    a_function_without_frmrs,
    frmrs_and_regions_have_limits_of_their_own,
    any_requests_in_any_order,
];

fn a_send_invalidates_after_its_bytes() {
    // The receive is in the FRMR that the message invalidates.
    let (mut p, frmr, key, at) = block_pair(3);
    let own = Sge {
        addr: VA,
        bytes: 64,
        lkey: key,
    };
    p.m.memory.set_word(p.mr_a.addr, 77);
    send_inv_into(&mut p, own, key);
    assert_eq!(p.m.memory.word(at), 77);
    assert_eq!(p.m.query_frmr(frmr).valid, 0);
    // A receive that is too short comes first.
    let (mut p, frmr, key, _) = block_pair(3);
    p.recv(5, &[p.mr_b.sge(0, 4)]);
    let wqe = SendWqe {
        imm: key,
        ..wqe_of(work::SEND_INV)
    };
    p.send(wqe, &[p.mr_a.sge(0, 8)]);
    let short = (Status::RemoteInvalidRequest, Detail::ShortReceive);
    assert_eq!(outcome(&p.done_a()[0]), short);
    assert_eq!(p.m.query_frmr(frmr).valid, 1);
}

/// An FRMR is of its domain, whichever queue pair has registered it.
fn queue_pairs_end_no_registration() {
    for end in [qp_state::ERROR, qp_state::RESET, u8::MAX] {
        let (mut p, frmr, key, at) = block_pair(4);
        let before = p.m.query_frmr(frmr);
        let b = p.b.number;
        match end {
            u8::MAX => _ = p.m.destroy(kind::QP, b).unwrap(),
            state => _ = p.m.set_state(b, state).unwrap(),
        }
        p.m.settle();
        assert_eq!(p.m.query_frmr(frmr), before, "{end}");
        // Another queue pair of the domain uses and invalidates it.
        let mut cq = p.m.cq(4);
        let mut other = p.m.qp(&Machine::spec(p.pd_b, &cq));
        p.m.connect(other.number, other.number);
        let wqe = by_key(&p, work::WRITE, key, VA + 64);
        p.m.memory.set_word(p.mr_b.addr, 6);
        p.m.send(&mut other, wqe, &[p.mr_b.sge(0, 8)]);
        p.m.send(&mut other, invalidation(key), &[]);
        assert!(p.m.drain(&mut cq).iter().all(|cqe| cqe.status == 0));
        assert_eq!(p.m.memory.word(at + 64), 6);
        assert_eq!(p.m.query_frmr(frmr), ended(&before));
    }
}

fn a_fault_registers_nothing() {
    let (mut p, frmr, key) = pair();
    let wqe = registration(key | 1, VA, block(memory(&p.m), PAGE));
    p.m.f
        .set_faults("fail=mw-bind,opcode=reg-mr,nth=1")
        .unwrap();
    assert_eq!(p.register(wqe), bind_error(Detail::Injected));
    assert_eq!(
        p.m.query_frmr(frmr),
        FrmrContext {
            pd: p.pd_b,
            ..FrmrContext::default()
        }
    );
    again(&mut p);
    assert_eq!(p.register(wqe), DONE);
}

fn keys_of_frmrs() {
    let mut m = Machine::new();
    let pd = m.pd();
    let (mut followers, mut seen) = (0, Vec::new());
    let mut last = Number::default();
    for _ in 0..126 {
        let (number, key) = m.frmr(pd);
        assert_eq!(number.index(), 0);
        assert!((1..=63).contains(&number.generation()));
        assert_eq!(key, FRMR_KEY | u32::from(number.generation()) << 24);
        assert_eq!(
            (window_of(key), frmr_of(key | 0xff)),
            (None, Some((number, 0xff)))
        );
        followers += u32::from(last.next_of(63) == number);
        last = number;
        seen.push(number.generation());
        m.destroy(kind::FRMR, number).unwrap();
        let (mr, window) = (m.mr(pd, 64), m.mw(pd, mw_type::TWO));
        assert!((1..=16383).contains(&mr.key.generation()));
        assert_eq!((frmr_of(mr.key.raw()), frmr_of(window.1)), (None, None));
        m.destroy(kind::MR, mr.key).unwrap();
        m.destroy(kind::MW, window.0).unwrap();
    }
    assert!(
        followers < 10,
        "{followers} keys follow from the one before"
    );
    assert_eq!(seen[..63], seen[63..], "each generation once, then again");
    seen.truncate(63);
    seen.sort_unstable();
    assert!(seen.into_iter().eq(1..=63));
}

fn keys_of_destroyed_frmrs_are_counted() {
    let (mut p, frmr, key, at) = block_pair(3);
    let stale = |p: &mut Pair| {
        again(p);
        p.m.f.counter(Counter::Stale)
    };
    // An old tag is not the key of a destroyed one.
    let got = try_key(&mut p, work::WRITE, key ^ 1, VA);
    assert_eq!((got, stale(&mut p)), (refused(Detail::Key), 0));
    p.m.destroy(kind::FRMR, frmr).unwrap();
    assert_eq!(p.m.frmr(p.pd_b).0.index(), frmr.index());
    let got = try_key(&mut p, work::WRITE, key, VA);
    assert_eq!((got, stale(&mut p)), (refused(Detail::Key), 1));
    let got = p.send_inv(key)[1];
    let expected = (Status::LocalAccess, Detail::Key);
    assert_eq!((got, stale(&mut p)), (expected, 2));
    let got = p.invalidate(key);
    assert_eq!((got, stale(&mut p)), (bind_error(Detail::Key), 3));
    let got = p.register(registration(key, VA, block(at, PAGE)));
    assert_eq!((got, stale(&mut p)), (bind_error(Detail::Key), 4));
}

fn frmrs_are_objects() {
    let config = Config {
        frmrs: 3,
        ..Config::default()
    };
    let mut m = Machine::with(config);
    let pd = m.pd();
    let objects = m.f.objects();
    let frmrs = [(); 3].map(|()| m.frmr(pd).0);
    m.srq(pd, 4);
    assert_eq!(m.f.objects(), objects + 4);
    let good = FrmrContext {
        pd,
        ..FrmrContext::default()
    };
    let mut fails = |context: FrmrContext, error| {
        assert_eq!(m.create(kind::FRMR, &context.encode()), Err(error));
    };
    fails(good, AdminError::Full);
    let none = Number::new(9, 9);
    fails(FrmrContext { pd: none, ..good }, AdminError::Reference);
    fails(FrmrContext { access: 1, ..good }, AdminError::Reserved);
    fails(FrmrContext { tag: 1, ..good }, AdminError::Reserved);
    fails(FrmrContext { valid: 1, ..good }, AdminError::Reserved);
    fails(FrmrContext { addr: 1, ..good }, AdminError::Reserved);
    let buffer = block(0, 1);
    fails(FrmrContext { buffer, ..good }, AdminError::Reserved);
    assert_eq!(m.destroy(kind::PD, pd), Err(AdminError::Busy));
    // Its key and its number are of an FRMR alone.
    let key = Number::from_raw(frmr_key(frmrs[0], 0));
    for (kind, number) in [
        (kind::FRMR, key),
        (kind::MR, key),
        (kind::MR, frmrs[0]),
        (kind::MW, frmrs[0]),
    ] {
        assert_eq!(m.destroy(kind, number), Err(AdminError::Number));
    }
    // A region at an index that no FRMR has.
    let [_, _, _, region] = [(); 4].map(|()| m.mr(pd, 64).key);
    let words = [0; 8];
    for (kind, verb, number, error) in [
        (kind::MR, verb::QUERY, key, AdminError::Number),
        (kind::MR, verb::MODIFY, key, AdminError::Number),
        (kind::FRMR, verb::QUERY, key, AdminError::Number),
        (kind::FRMR, verb::QUERY, region, AdminError::Number),
        (kind::FRMR, verb::MODIFY, frmrs[0], AdminError::Command),
    ] {
        let got = m.with_context(kind, verb, number, 0, &words);
        assert_eq!(got, Err(error), "{kind} {verb}");
    }
    let got = m.destroy(kind::FRMR, region);
    assert_eq!(got, Err(AdminError::Number));
    // Registered or not.
    for frmr in frmrs {
        m.destroy(kind::FRMR, frmr).unwrap();
        let (gone, words) = (Err(AdminError::Number), [0; 8]);
        assert_eq!(m.destroy(kind::FRMR, frmr), gone);
        assert_eq!(
            m.with_context(kind::FRMR, verb::QUERY, frmr, 0, &words),
            gone
        );
    }
    let at = memory(&m);
    let (frmr, _) = frmr_of(m.registered(pd, VA, block(at, PAGE))).unwrap();
    m.destroy(kind::FRMR, frmr).unwrap();
}

fn a_function_without_frmrs() {
    let mut m = Machine::with(Config {
        frmrs: 0,
        ..Config::default()
    });
    assert_eq!(m.f.reg_read(offset::LIMIT_FRMR), 0);
    let (pd, mut cq) = (m.pd(), m.cq(4));
    let context = FrmrContext {
        pd,
        ..FrmrContext::default()
    };
    let made = m.create(kind::FRMR, &context.encode());
    assert_eq!(made, Err(AdminError::Full));
    let spec = Machine::spec(pd, &cq);
    let registers = QpSpec {
        flags: qp_flags::REGISTERS,
        ..spec
    };
    let context = m.qp_context(&registers);
    let made = m.create(kind::QP, &context.encode());
    assert_eq!(made, Err(AdminError::Reserved));
    let mut qp = m.qp(&spec);
    m.connect(qp.number, qp.number);
    let wqe = registration(FRMR_KEY, VA, block(memory(&m), PAGE));
    m.post_words(&mut qp, &wqe.encode());
    m.ring_sq(&qp);
    m.settle();
    let unknown = (Status::LocalQpOperation, Detail::Opcode);
    assert_eq!(outcome(&m.drain(&mut cq)[0]), unknown);
}

fn frmrs_and_regions_have_limits_of_their_own() {
    for regions_first in [false, true] {
        let config = Config {
            mrs: 2,
            frmrs: 3,
            ..Config::default()
        };
        let mut m = Machine::with(config);
        let pd = m.pd();
        let context = FrmrContext {
            pd,
            ..FrmrContext::default()
        };
        let region = MrContext {
            pd,
            ..MrContext::default()
        };
        let (frmr, region) = (context.encode(), region.encode());
        let mut kinds = [(kind::FRMR, frmr, 3), (kind::MR, region, 2)];
        if regions_first {
            kinds.reverse();
        }
        for (kind, words, count) in kinds {
            for _ in 0..count {
                m.create(kind, &words).unwrap();
            }
            assert_eq!(m.create(kind, &words), Err(AdminError::Full), "{kind}");
        }
    }
}

/// What software knows of an FRMR.
struct Known {
    frmr: Number,
    context: FrmrContext,
}

impl Known {
    fn new(p: &mut Pair) -> Self {
        let pd = p.pd_b;
        Self {
            frmr: p.m.frmr(pd).0,
            context: FrmrContext {
                pd,
                ..FrmrContext::default()
            },
        }
    }

    /// The detail of a use by a key with a tag, which needs a right; none if it is permitted.
    fn used(&self, tag: u8, right: u8) -> Detail {
        if self.context.tag != tag || self.context.valid == 0 {
            return Detail::Key;
        }
        match self.context.access & right {
            0 => Detail::Rights,
            _ => Detail::None,
        }
    }
}

/// A status, unless there is no detail.
fn failed(status: Status, detail: Detail) -> (Status, Detail) {
    match detail {
        Detail::None => DONE,
        _ => (status, detail),
    }
}

fn any_requests_in_any_order() {
    with_seeds("frmr_objects::any_requests_in_any_order", 40, |rng| {
        let mut p = Pair::registering(Machine::new());
        let blocks = [(); 3].map(|()| memory(&p.m));
        let mut all = [(); 3].map(|()| Known::new(&mut p));
        for step in 1..80 {
            let known = &mut all[rng.below(3) as usize];
            let tag = rng.below(3) as u8;
            let key = frmr_key(known.frmr, tag);
            let was = known.context;
            let got = match rng.below(9) {
                0..3 => {
                    let wqe = RegWqe {
                        access: rng.below(16) as u32,
                        ..registration(key, VA + step, block(rng.pick(&blocks), PAGE))
                    };
                    let detail = match was.valid {
                        0 => Detail::None,
                        _ => Detail::State,
                    };
                    if detail == Detail::None {
                        known.context = FrmrContext {
                            access: wqe.access as u8,
                            tag,
                            valid: 1,
                            addr: wqe.addr,
                            buffer: wqe.buffer,
                            ..was
                        };
                    }
                    (p.register(wqe), failed(Status::WindowBind, detail))
                }
                3 => {
                    let detail = match was.tag == tag {
                        true => Detail::None,
                        false => Detail::Key,
                    };
                    if was.tag == tag {
                        known.context = ended(&was);
                    }
                    (p.invalidate(key), failed(Status::WindowBind, detail))
                }
                4 => {
                    let detail = match known.used(tag, access::REMOTE) {
                        Detail::Key if was.tag == tag => Detail::State,
                        detail => detail,
                    };
                    if detail == Detail::None {
                        known.context = ended(&was);
                    }
                    (p.send_inv(key)[1], failed(Status::LocalAccess, detail))
                }
                5 => {
                    p.m.destroy(kind::FRMR, known.frmr).unwrap();
                    let got = try_key(&mut p, work::READ, key, VA);
                    *known = Known::new(&mut p);
                    (got, refused(Detail::Key))
                }
                is_read => {
                    let (opcode, right) = match is_read % 2 {
                        0 => (work::READ, access::REMOTE_READ),
                        _ => (work::WRITE, access::REMOTE_WRITE),
                    };
                    let words = blocks.map(|at| p.m.memory.word(at));
                    p.m.memory.set_word(p.mr_a.addr, step);
                    let got = try_key(&mut p, opcode, key, was.addr);
                    let detail = known.used(tag, right);
                    for (at, word) in blocks.into_iter().zip(words) {
                        let is_here = at == was.buffer.root && detail == Detail::None;
                        let expected = match opcode {
                            work::WRITE if is_here => step,
                            _ => word,
                        };
                        assert_eq!(p.m.memory.word(at), expected);
                        if opcode == work::READ && is_here {
                            assert_eq!(p.m.memory.word(p.mr_a.addr), word);
                        }
                    }
                    (got, failed(Status::RemoteAccess, detail))
                }
            };
            assert_eq!(got.0, got.1, "step {step}");
            if got.0 != DONE {
                again(&mut p);
            }
            for known in &all {
                assert_eq!(p.m.query_frmr(known.frmr), known.context);
            }
        }
    });
}
