// SPDX-License-Identifier: GPL-2.0
//! Fast registration memory regions: the queue pairs that register, states, keys and rights.

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

checks![
    only_queue_pairs_that_register_do,
    no_change_lets_a_queue_pair_register,
    every_request_in_every_state,
    of_two_faults_the_first_counts,
    an_frmr_has_its_rights_alone,
];

pub(super) const PAGE: u64 = 4096;
pub(super) const VA: u64 = 0x1234_5678_7000_0000;

pub(super) fn bind_error(detail: Detail) -> (Status, Detail) {
    (Status::WindowBind, detail)
}

/// A pair that registers, and an FRMR of the second one's: its number and key.
pub(super) fn pair() -> (Pair, Number, u32) {
    let mut p = Pair::registering(Machine::new());
    let (frmr, key) = p.m.frmr(p.pd_b);
    (p, frmr, key)
}

/// The same with a registered block of 4 KiB: its number, its key, and where it is.
pub(super) fn block_pair(tag: u8) -> (Pair, Number, u32, u64) {
    let (mut p, frmr, key) = pair();
    let (key, at) = (key | u32::from(tag), memory(&p.m));
    let wqe = registration(key, VA, block(at, PAGE));
    assert_eq!(p.register(wqe), DONE);
    (p, frmr, key, at)
}

pub(super) fn memory(m: &Machine) -> u64 {
    m.memory.alloc(PAGE, PAGE, Grant::Write)
}

pub(super) fn wqe_of(opcode: u8) -> SendWqe {
    wqe(opcode, 1)
}

fn only_queue_pairs_that_register_do() {
    use Status::LocalQpOperation;
    let unknown = (LocalQpOperation, Detail::Opcode);
    for service in [service::RC, service::UC, service::UD] {
        let mut m = Machine::new();
        let (pd, mut cq) = (m.pd(), m.cq(4));
        let spec = match service {
            service::UD => ud_spec(pd, &cq),
            _ => QpSpec {
                service,
                ..Machine::spec(pd, &cq)
            },
        };
        let registers = QpSpec {
            flags: qp_flags::REGISTERS,
            ..spec
        };
        let context = m.qp_context(&registers);
        let made = m.create(kind::QP, &context.encode());
        match made {
            Ok(qp) if service == service::RC => {
                assert_eq!(m.query_qp(qp).flags, qp_flags::REGISTERS);
            }
            _ => assert_eq!(made, Err(AdminError::Attribute)),
        }
        let (frmr, key) = m.frmr(pd);
        let at = memory(&m);
        // The opcode is unknown, whatever else is wrong.
        for flags in [send_flags::SIGNALED, u8::MAX] {
            let mut qp = m.qp(&spec);
            match service {
                service::UD => ud_start(&mut m, qp.number, KEY),
                _ => m.connect(qp.number, qp.number),
            }
            let wqe = RegWqe {
                flags,
                ..registration(key, VA, block(at, PAGE))
            };
            m.post_words(&mut qp, &wqe.encode());
            m.ring_sq(&qp);
            m.settle();
            assert_eq!(outcome(&m.drain(&mut cq)[0]), unknown, "{service}");
            assert_eq!(m.query_frmr(frmr).valid, 0);
        }
    }
}

fn no_change_lets_a_queue_pair_register() {
    let mut p = Pair::new();
    let (frmr, key) = p.m.frmr(p.pd_b);
    let b = p.b.number;
    p.m.set_state(b, qp_state::RESET).unwrap();
    let connect = qp_mask::STATE | qp_mask::PEER;
    let drain = qp_mask::STATE | qp_mask::NOTIFY;
    let mut seen = 0;
    for (mask, state) in [
        (qp_mask::STATE, qp_state::INIT),
        (connect, qp_state::RTR),
        (qp_mask::ACCESS, 0),
        (qp_mask::RETRY, 0),
        (qp_mask::TIMERS, 0),
        (qp_mask::Q_KEY, 0),
        (qp_mask::STATE, qp_state::RTS),
        (drain, qp_state::SQD),
        (qp_mask::STATE, qp_state::RTS),
    ] {
        let context = QpContext {
            state,
            peer: p.a.number,
            flags: qp_flags::REGISTERS,
            ..QpContext::default()
        };
        p.m.modify(b, mask, &context).unwrap();
        seen |= mask;
        assert_eq!(p.m.query_qp(b).flags, 0, "{mask:#x}");
    }
    assert_eq!(seen, qp_mask::ALL & !(qp_mask::PATH | qp_mask::SQ_PSN));
    p.b.sq_tail = 0;
    let unknown = (Status::LocalQpOperation, Detail::Opcode);
    let wqe = registration(key, VA, block(memory(&p.m), PAGE));
    assert_eq!(p.register(wqe), unknown);
    assert_eq!(p.m.query_frmr(frmr).valid, 0);
}

/// What an FRMR has been through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It was never registered.
    New,
    Registered,
    Invalidated,
}

/// What a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Key,
    OtherTag,
    OtherGeneration,
    OtherIndex,
    /// An FRMR of another domain, in the same state.
    Foreign,
    Window,
    Region,
    /// The number of the FRMR itself.
    Number,
}

const STATES: [State; 3] = [State::New, State::Registered, State::Invalidated];
const NAMED: [Named; 8] = [
    Named::Key,
    Named::OtherTag,
    Named::OtherGeneration,
    Named::OtherIndex,
    Named::Foreign,
    Named::Window,
    Named::Region,
    Named::Number,
];

/// A pair, an FRMR in a state, and what is named.
struct Case {
    p: Pair,
    frmr: Number,
    key: u32,
    at: u64,
}

impl Case {
    fn new(state: State, named: Named) -> Self {
        let (mut p, mut frmr, mut key) = pair();
        if named == Named::Foreign {
            (frmr, key) = p.m.frmr(p.pd_a);
        }
        let at = memory(&p.m);
        if state != State::New {
            key |= 7;
            let pd = if named == Named::Foreign {
                p.pd_a
            } else {
                p.pd_b
            };
            let mut cq = p.m.cq(3);
            let spec = QpSpec {
                flags: qp_flags::REGISTERS,
                ..Machine::spec(pd, &cq)
            };
            let mut qp = p.m.qp(&spec);
            p.m.connect(qp.number, qp.number);
            p.m.post_words(&mut qp, &registration(key, VA, block(at, PAGE)).encode());
            if state == State::Invalidated {
                p.m.post(&mut qp, invalidation(key), &[]);
            }
            p.m.ring_sq(&qp);
            p.m.settle();
            assert!(p.m.drain(&mut cq).iter().all(|cqe| cqe.status == 0));
        }
        let window = p.m.mw(p.pd_b, mw_type::TWO).1;
        let key = match named {
            Named::Key | Named::Foreign => key,
            Named::OtherTag => key ^ 1,
            Named::OtherGeneration => {
                let other = frmr.next_of(Number::FRMR_GENERATIONS);
                frmr_key(other, key as u8)
            }
            Named::OtherIndex => key ^ 1 << 20,
            Named::Window => window,
            Named::Region => p.mr_b.key.raw(),
            Named::Number => frmr.raw(),
        };
        Self { p, frmr, key, at }
    }

    /// Registrations and invalidations that the device has counted.
    fn counts(&self) -> [u64; 2] {
        [Counter::Registrations, Counter::Invalidations].map(|which| self.p.m.f.counter(which))
    }

    /// Checks that the FRMR is what it was.
    fn unchanged(&mut self, before: &FrmrContext) {
        assert_eq!(self.p.m.query_frmr(self.frmr), *before);
    }
}

fn every_request_in_every_state() {
    for state in STATES {
        for named in NAMED {
            registers(state, named);
            invalidates(state, named);
            is_invalidated_by_peer(state, named);
            if named != Named::Region {
                is_used_by_peer(state, named);
                is_used_by_itself(state, named);
            }
        }
    }
}

fn registers(state: State, named: Named) {
    let mut case = Case::new(state, named);
    let before = case.p.m.query_frmr(case.frmr);
    let buffer = block(case.at + 64, 128);
    let wqe = registration(case.key, VA + 1, buffer);
    let wqe = RegWqe {
        access: access::REMOTE_READ.into(),
        ..wqe
    };
    let [registered, invalidated] = case.counts();
    let got = case.p.register(wqe);
    let counts = [registered + u64::from(got == DONE), invalidated];
    assert_eq!(case.counts(), counts);
    let expected = match named {
        Named::Key | Named::OtherTag if state != State::Registered => DONE,
        Named::Key | Named::OtherTag => bind_error(Detail::State),
        Named::Foreign => bind_error(Detail::Domain),
        _ => bind_error(Detail::Key),
    };
    assert_eq!(got, expected, "{state:?} {named:?}");
    if got != DONE {
        return case.unchanged(&before);
    }
    let registered = FrmrContext {
        pd: case.p.pd_b,
        access: access::REMOTE_READ,
        tag: case.key as u8,
        valid: 1,
        addr: VA + 1,
        buffer,
    };
    case.unchanged(&registered);
}

/// What an FRMR is when its registration has ended.
pub(super) fn ended(before: &FrmrContext) -> FrmrContext {
    FrmrContext {
        pd: before.pd,
        tag: before.tag,
        ..FrmrContext::default()
    }
}

fn invalidates(state: State, named: Named) {
    let mut case = Case::new(state, named);
    let before = case.p.m.query_frmr(case.frmr);
    let [registered, invalidated] = case.counts();
    let got = case.p.invalidate(case.key);
    let counts = [registered, invalidated + u64::from(got == DONE)];
    assert_eq!(case.counts(), counts);
    let expected = match named {
        Named::Key => DONE,
        Named::Foreign => bind_error(Detail::Domain),
        // It is not bound.
        Named::Window => bind_error(Detail::State),
        _ => bind_error(Detail::Key),
    };
    assert_eq!(got, expected, "{state:?} {named:?}");
    match got {
        DONE => case.unchanged(&ended(&before)),
        _ => case.unchanged(&before),
    }
}

fn is_invalidated_by_peer(state: State, named: Named) {
    let mut case = Case::new(state, named);
    let before = case.p.m.query_frmr(case.frmr);
    let [registered, invalidated] = case.counts();
    let [sent, got] = case.p.send_inv(case.key);
    let counts = [registered, invalidated + u64::from(got == DONE)];
    assert_eq!(case.counts(), counts);
    let expected = match named {
        Named::Key if state == State::Registered => DONE,
        Named::Key | Named::Window => (Status::LocalAccess, Detail::State),
        Named::Foreign => (Status::LocalAccess, Detail::Domain),
        _ => (Status::LocalAccess, Detail::Key),
    };
    assert_eq!(got, expected, "{state:?} {named:?}");
    if got == DONE {
        assert_eq!(sent, DONE);
        return case.unchanged(&ended(&before));
    }
    assert_eq!(sent, (Status::RetryExceeded, Detail::NotReady));
    case.unchanged(&before);
}

/// The detail of a use; none if it is permitted.
fn use_of(state: State, named: Named) -> Detail {
    match named {
        Named::Key if state == State::Registered => Detail::None,
        Named::Foreign => Detail::Domain,
        _ => Detail::Key,
    }
}

fn is_used_by_peer(state: State, named: Named) {
    let expected = match use_of(state, named) {
        Detail::None => DONE,
        detail => refused(detail),
    };
    for opcode in [work::WRITE, work::READ, work::FETCH_ADD, work::ATOMIC_WRITE] {
        let mut case = Case::new(state, named);
        let (p, key) = (&mut case.p, case.key);
        let wqe = by_key(p, opcode, key, VA + 8);
        p.m.memory.set_word(p.mr_a.addr, 5);
        p.m.memory.set_word(case.at + 8, 3);
        let words = match opcode {
            work::ATOMIC_WRITE => inline_words(wqe, &5u64.to_le_bytes()),
            work::FETCH_ADD => {
                let atomic = AtomicWqe {
                    remote_addr: VA + 8,
                    rkey: key,
                    ..p.atomic(opcode, 0, 2, 0)
                };
                atomic_words(atomic, &[p.mr_a.sge(0, 8)])
            }
            _ => wqe_words(wqe, &[p.mr_a.sge(0, 8)]),
        };
        p.m.post_words(&mut p.a, &words);
        p.m.ring_sq(&p.a);
        p.m.settle();
        let got = outcome(&p.done_a()[0]);
        assert_eq!(got, expected, "{state:?} {named:?} {opcode}");
        let both = [p.m.memory.word(p.mr_a.addr), p.m.memory.word(case.at + 8)];
        let moved = match opcode {
            _ if got != DONE => [5, 3],
            work::READ => [3, 3],
            work::FETCH_ADD => [3, 5],
            _ => [5, 5],
        };
        assert_eq!(both, moved, "{opcode}");
    }
    // There is no right to flush one.
    let mut case = Case::new(state, named);
    let flush = FlushWqe {
        opcode: work::FLUSH,
        flags: send_flags::SIGNALED,
        blocks: 1,
        kinds: flush::GLOBAL,
        remote_addr: VA,
        rkey: case.key,
        ..FlushWqe::default()
    };
    let words = with_sges(&flush.encode(), &[]);
    case.p.m.post_words(&mut case.p.a, &words);
    case.p.m.ring_sq(&case.p.a);
    case.p.m.settle();
    assert_eq!(outcome(&case.p.done_a()[0]), refused(Detail::Key));
}

fn is_used_by_itself(state: State, named: Named) {
    let detail = use_of(state, named);
    let own = |key| Sge {
        addr: VA,
        bytes: 8,
        lkey: key,
    };
    // What it sends, and where an answer goes.
    for opcode in [work::WRITE, work::READ] {
        let mut case = Case::new(state, named);
        let p = &mut case.p;
        let wqe = SendWqe {
            remote_addr: p.mr_a.va,
            rkey: p.mr_a.key.raw(),
            ..wqe(opcode, 1)
        };
        p.m.send(&mut p.b, wqe, &[own(case.key)]);
        let expected = match detail {
            Detail::None => DONE,
            _ => (Status::LocalProtection, detail),
        };
        let got = outcome(&p.done_b()[0]);
        assert_eq!(got, expected, "{state:?} {named:?}");
    }
    // Where a receive goes.
    let mut case = Case::new(state, named);
    let p = &mut case.p;
    p.recv(5, &[own(case.key)]);
    p.send(wqe(work::SEND, 1), &[p.mr_a.sge(0, 8)]);
    let (sent, got) = (outcome(&p.done_a()[0]), outcome(&p.done_b()[0]));
    let expected = match detail {
        Detail::None => (DONE, DONE),
        _ => (
            (Status::RemoteOperation, detail),
            (Status::LocalProtection, detail),
        ),
    };
    assert_eq!((sent, got), expected, "{state:?} {named:?}");
}

/// What may be wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Generation,
    Domain,
    Tag,
    /// The FRMR is free, for a REG_MR registered.
    State,
    Right,
    Range,
}

/// A request that has the key of an FRMR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Use,
    SendInv,
    LocalInv,
    RegMr,
}

impl Request {
    /// What is checked, in this order, with the detail of each.
    fn checks(self) -> Vec<(Wrong, Detail)> {
        let key = (Wrong::Generation, Detail::Key);
        let domain = (Wrong::Domain, Detail::Domain);
        let tag = (Wrong::Tag, Detail::Key);
        let right = (Wrong::Right, Detail::Rights);
        let range = (Wrong::Range, Detail::Range);
        let state = |detail| (Wrong::State, detail);
        match self {
            Self::Use => vec![key, domain, tag, state(Detail::Key), right, range],
            Self::SendInv => vec![key, domain, tag, state(Detail::State), right],
            Self::LocalInv => vec![key, domain, tag],
            Self::RegMr => vec![key, domain, state(Detail::State), range],
        }
    }
}

fn of_two_faults_the_first_counts() {
    for request in [
        Request::Use,
        Request::SendInv,
        Request::LocalInv,
        Request::RegMr,
    ] {
        let checks = request.checks();
        for (at, &(first, detail)) in checks.iter().enumerate() {
            for &(second, _) in &checks[at..] {
                // A free one has neither rights nor a range.
                let free = first == Wrong::State && request != Request::RegMr;
                if !free || second == Wrong::State {
                    let got = outcome_of([first, second], request);
                    assert_eq!(got, detail, "{first:?}, {second:?}, {request:?}");
                }
            }
        }
    }
}

fn outcome_of(wrong: [Wrong; 2], request: Request) -> Detail {
    let is = |one| wrong.contains(&one);
    let mut p = Pair::registering(Machine::new());
    let mut cq = p.m.cq(3);
    let pd = if is(Wrong::Domain) { p.pd_a } else { p.pd_b };
    let (frmr, key) = p.m.frmr(pd);
    let spec = QpSpec {
        flags: qp_flags::REGISTERS,
        ..Machine::spec(pd, &cq)
    };
    let mut qp = p.m.qp(&spec);
    p.m.connect(qp.number, qp.number);
    let at = memory(&p.m);
    let mut wqe = registration(key, VA, block(at, PAGE));
    if is(Wrong::Right) {
        wqe.access = access::LOCAL_WRITE.into();
    }
    p.m.post_words(&mut qp, &wqe.encode());
    let registered = is(Wrong::State) == (request == Request::RegMr);
    if !registered {
        p.m.post(&mut qp, invalidation(key), &[]);
    }
    p.m.ring_sq(&qp);
    p.m.settle();
    assert!(p.m.drain(&mut cq).iter().all(|cqe| cqe.status == 0));
    let frmr = match is(Wrong::Generation) {
        true => frmr.next_of(Number::FRMR_GENERATIONS),
        false => frmr,
    };
    let key = frmr_key(frmr, u8::from(is(Wrong::Tag)));
    match request {
        Request::Use => {
            let va = VA + u64::from(is(Wrong::Range)) * PAGE;
            try_key(&mut p, work::WRITE, key, va).1
        }
        Request::SendInv => p.send_inv(key)[1].1,
        Request::LocalInv => p.invalidate(key).1,
        Request::RegMr => {
            // There are no lists of 3 levels.
            let mut wqe = registration(key, VA, block(at, PAGE));
            wqe.buffer.levels = 3 * u8::from(is(Wrong::Range));
            p.register(wqe).1
        }
    }
}

fn an_frmr_has_its_rights_alone() {
    for (opcode, right) in [
        (work::WRITE, access::REMOTE_WRITE),
        (work::READ, access::REMOTE_READ),
    ] {
        for given in [right, FRMR_RIGHTS & !right, 0] {
            let (mut p, _, key) = pair();
            let wqe = RegWqe {
                access: given.into(),
                ..registration(key, VA, block(memory(&p.m), PAGE))
            };
            assert_eq!(p.register(wqe), DONE);
            let got = try_key(&mut p, opcode, key, VA);
            let expected = match given & right {
                0 => refused(Detail::Rights),
                _ => DONE,
            };
            assert_eq!(got, expected, "{opcode} {given:#x}");
        }
    }
    // A peer invalidates what a peer may use.
    for given in 0..=FRMR_RIGHTS {
        let (mut p, frmr, key) = pair();
        let wqe = RegWqe {
            access: given.into(),
            ..registration(key, VA, block(memory(&p.m), PAGE))
        };
        assert_eq!(p.register(wqe), DONE);
        let got = p.send_inv(key)[1];
        if given & access::REMOTE == 0 {
            assert_eq!(got, (Status::LocalAccess, Detail::Rights), "{given:#x}");
            assert_eq!(p.m.query_frmr(frmr).valid, 1);
        } else {
            assert_eq!(got, DONE, "{given:#x}");
        }
    }
}
