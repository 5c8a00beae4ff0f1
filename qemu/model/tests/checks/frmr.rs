// SPDX-License-Identifier: GPL-2.0
//! Fast registration memory regions: who registers, states and keys, what an invalidation ends.

use super::buffers::Pages;
use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::AdminError;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_model::Config;
use qpair_testkit::with_seeds;

checks![
    only_queue_pairs_that_register_do,
    every_request_in_every_state,
    of_two_faults_the_first_counts,
    an_frmr_has_its_rights_alone,
    registrations_that_are_malformed,
    registrations_that_have_no_memory,
    registrations_of_any_memory,
    tables_are_read_at_the_first_use,
    other_pages_in_the_same_table,
    old_keys_are_refused,
    nothing_moves_after_an_invalidation,
    a_mapping_ends_with_its_registration,
    frmrs_keep_so_many_mappings,
    a_request_finds_what_the_one_before_has_done,
    a_send_invalidates_after_its_bytes,
    queue_pairs_end_no_registration,
    a_fault_registers_nothing,
    keys_of_frmrs,
    frmrs_are_objects,
    frmrs_and_regions_have_limits_of_their_own,
    any_requests_in_any_order,
];

const PAGE: u64 = 4096;
const VA: u64 = 0x1234_5678_7000_0000;

fn bind_error(detail: Detail) -> (Status, Detail) {
    (Status::WindowBind, detail)
}

/// A pair that registers, and an FRMR of the second one's: its number and key.
fn pair() -> (Pair, Number, u32) {
    let mut p = Pair::registering(Machine::new());
    let (frmr, key) = p.m.frmr(p.pd_b);
    (p, frmr, key)
}

/// The same with a registered block of 4 KiB: its number, its key, and where it is.
fn block_pair(tag: u8) -> (Pair, Number, u32, u64) {
    let (mut p, frmr, key) = pair();
    let (key, at) = (key | u32::from(tag), memory(&p.m));
    let wqe = registration(key, VA, block(at, PAGE));
    assert_eq!(p.register(wqe), DONE);
    (p, frmr, key, at)
}

fn memory(m: &Machine) -> u64 {
    m.memory.alloc(PAGE, PAGE, Grant::Write)
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
    let got = case.p.register(wqe);
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
fn ended(before: &FrmrContext) -> FrmrContext {
    FrmrContext {
        pd: before.pd,
        tag: before.tag,
        ..FrmrContext::default()
    }
}

fn invalidates(state: State, named: Named) {
    let mut case = Case::new(state, named);
    let before = case.p.m.query_frmr(case.frmr);
    let got = case.p.invalidate(case.key);
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
    let [sent, got] = case.p.send_inv(case.key);
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

/// What may be wrong with a key, in the order in which it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Generation,
    Domain,
    Tag,
    State,
    Right,
    Range,
}

fn of_two_faults_the_first_counts() {
    use Wrong::*;
    let all = [Generation, Domain, Tag, State, Right, Range];
    for (at, &first) in all.iter().enumerate() {
        for &second in &all[at..] {
            // A free one has neither.
            if first == State && second != State {
                continue;
            }
            // A message that invalidates names no range.
            for invalidates in [false, true] {
                if invalidates && second == Range {
                    continue;
                }
                let got = outcome_of([first, second], invalidates);
                let detail = match first {
                    Generation | Tag => Detail::Key,
                    Domain => Detail::Domain,
                    State if invalidates => Detail::State,
                    State => Detail::Key,
                    Right => Detail::Rights,
                    Range => Detail::Range,
                };
                assert_eq!(got, detail, "{first:?}, {second:?}, {invalidates}");
            }
        }
    }
}

fn outcome_of(wrong: [Wrong; 2], invalidates: bool) -> Detail {
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
    if is(Wrong::State) {
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
    if invalidates {
        return p.send_inv(key)[1].1;
    }
    let va = VA + u64::from(is(Wrong::Range)) * PAGE;
    try_key(&mut p, work::WRITE, key, va).1
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

fn registrations_that_are_malformed() {
    let (mut p, frmr, key) = pair();
    let good = registration(key, VA, block(memory(&p.m), PAGE));
    let free = p.m.query_frmr(frmr);
    let mut fails = |words: [u64; RegWqe::WORDS], detail, what: u32| {
        p.m.post_words(&mut p.b, &words);
        p.m.ring_sq(&p.b);
        p.m.settle();
        let expected = (Status::LocalQpOperation, detail);
        assert_eq!(outcome(&p.done_b()[0]), expected, "{what}");
        assert_eq!(p.m.query_frmr(frmr), free);
        again(&mut p);
    };
    for (word, reserved) in RegWqe::RESERVED.into_iter().enumerate() {
        for bit in (0..64).filter(|bit| reserved >> bit & 1 != 0) {
            let mut words = good.encode();
            words[word] |= 1 << bit;
            fails(words, Detail::Flags, bit);
        }
    }
    for bit in (0..32).filter(|bit| u32::from(FRMR_RIGHTS) >> bit & 1 == 0) {
        let access = good.access | 1 << bit;
        fails(RegWqe { access, ..good }.encode(), Detail::Flags, bit);
    }
    for bit in [1, 3, 4, 5, 6, 7] {
        let flags = good.flags | 1 << bit;
        fails(RegWqe { flags, ..good }.encode(), Detail::Flags, bit);
    }
    let (sges, inline_bytes) = (1, 1);
    fails(RegWqe { sges, ..good }.encode(), Detail::Sges, 1);
    fails(
        RegWqe {
            inline_bytes,
            ..good
        }
        .encode(),
        Detail::Inline,
        1,
    );
    // A fence is a flag of each opcode.
    let flags = good.flags | send_flags::FENCE;
    assert_eq!(p.register(RegWqe { flags, ..good }), DONE);
}

fn registrations_that_have_no_memory() {
    let config = Config {
        log_region: 20,
        ..Config::default()
    };
    let mut p = Pair::registering(Machine::with(config));
    let (frmr, key) = p.m.frmr(p.pd_b);
    let pages = Pages::new(&p.m, 3 * PAGE, 1, 12, 100);
    let good = registration(key | 3, VA, pages.list);
    let list = |change: fn(&mut BufferList)| {
        let mut buffer = good.buffer;
        change(&mut buffer);
        RegWqe { buffer, ..good }
    };
    let free = p.m.query_frmr(frmr);
    for (case, wqe) in [
        list(|list| list.levels = 3),
        list(|list| list.levels = 0),
        list(|list| list.page_shift = 11),
        list(|list| list.page_shift = 31),
        list(|list| list.offset = 4096),
        list(|list| list.bytes = 0),
        list(|list| list.bytes = (1 << 20) + 1),
        list(|list| list.root += 4),
        list(|list| list.root = u64::MAX - 7),
        RegWqe {
            addr: u64::MAX - 3 * PAGE + 2,
            ..good
        },
        RegWqe {
            buffer: block(u64::MAX - 62, 64),
            ..good
        },
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(p.register(wqe), bind_error(Detail::Range), "{case}");
        assert_eq!(p.m.query_frmr(frmr), free, "a tag of its own included");
        again(&mut p);
    }
    assert_eq!(p.register(good), DONE);
}

/// Writes and reads at the ends of a registration of `bytes` bytes, whose byte `n` is at `at(n)`.
fn ends(p: &mut Pair, key: u32, va: u64, bytes: u64, at: impl Fn(u64) -> u64) {
    for from in [0, bytes - 8] {
        let word = 0x0123_4567_89ab_cdef ^ va.wrapping_add(from);
        p.m.memory.set_word(p.mr_a.addr, word);
        let got = try_key(p, work::WRITE, key, va.wrapping_add(from));
        assert_eq!(got, DONE);
        for (nth, byte) in word.to_le_bytes().into_iter().enumerate() {
            let there = p.m.memory.bytes(at(from + nth as u64), 1);
            assert_eq!(there, [byte]);
        }
        p.m.memory.set_word(p.mr_a.addr, 0);
        let got = try_key(p, work::READ, key, va.wrapping_add(from));
        assert_eq!(got, DONE);
        assert_eq!(p.m.memory.word(p.mr_a.addr), word);
    }
    for addr in [va.wrapping_sub(1), va.wrapping_add(bytes - 7)] {
        let got = try_key(p, work::WRITE, key, addr);
        assert_eq!(got, refused(Detail::Range));
        again(p);
    }
}

fn registrations_of_any_memory() {
    let (mut p, _, key) = pair();
    for (levels, shift, offset, bytes) in [
        (1, 12, 0, PAGE),
        (1, 12, 100, 3 * PAGE),
        (1, 14, 9000, 40_000),
        (2, 12, 4095, 600 * PAGE),
    ] {
        // The lower bits of an address need not be those of the memory.
        for va in [0, VA + 77, u64::MAX - bytes + 1] {
            let pages = Pages::new(&p.m, bytes, levels, shift, offset);
            let wqe = registration(key, va, pages.list);
            assert_eq!(p.register(wqe), DONE);
            ends(&mut p, key, va, bytes, |byte| pages.at(byte));
            assert_eq!(p.invalidate(key), DONE);
        }
    }
    // A block, which needs no alignment.
    let at = p.m.memory.alloc(PAGE, PAGE, Grant::Write) + 3;
    assert_eq!(p.register(registration(key, 1, block(at, 99))), DONE);
    ends(&mut p, key, 1, 99, |byte| at + byte);
    assert_eq!(p.invalidate(key), DONE);
    // One without a byte has none.
    let none = registration(key, VA, BufferList::default());
    assert_eq!(p.register(none), DONE);
    let got = try_key(&mut p, work::WRITE, key, VA);
    assert_eq!(got, refused(Detail::Range));
}

fn tables_are_read_at_the_first_use() {
    let (mut p, frmr, key) = pair();
    let root = p.m.memory.alloc(64, 64, Grant::Read);
    p.m.memory.set_words(root, &[memory(&p.m) + 8]);
    for root in [0x7000, root] {
        let list = BufferList {
            root,
            bytes: PAGE,
            offset: 0,
            page_shift: 12,
            levels: 1,
        };
        // An access to the first one fails the test here.
        p.m.memory.set_lenient(false);
        assert_eq!(p.register(registration(key, 0, list)), DONE);
        p.m.memory.set_lenient(true);
        let got = try_key(&mut p, work::WRITE, key, 0);
        assert_eq!(got, (Status::RemoteOperation, Detail::Dma));
        again(&mut p);
        assert_eq!(p.m.query_frmr(frmr).valid, 1);
        assert_eq!(p.invalidate(key), DONE);
    }
}

fn other_pages_in_the_same_table() {
    let (mut p, _, key) = pair();
    let first = Pages::new(&p.m, 4 * PAGE, 1, 12, 0);
    let root = first.list.root;
    let mut old: Vec<(u64, u64)> = Vec::new();
    for round in 1..20_u32 {
        let pages = Pages::new(&p.m, 4 * PAGE, 1, 12, 0);
        let entries: [u64; 4] = p.m.memory.words(pages.list.root);
        p.m.memory.set_words(root, &entries);
        let key = key | round;
        assert_eq!(p.register(registration(key, 0, first.list)), DONE);
        for page in [0, 3, 3, 3, 1, 0, 0] {
            p.m.memory.set_word(p.mr_a.addr, round.into());
            let got = try_key(&mut p, work::WRITE, key, page * PAGE);
            assert_eq!(got, DONE);
            assert_eq!(p.m.memory.word(pages.at(page * PAGE)), round.into());
        }
        // The old pages are software's: they were revoked.
        assert!(old
            .iter()
            .all(|(page, word)| p.m.memory.word(*page) == *word));
        assert_eq!(p.invalidate(key), DONE);
        for entry in entries {
            p.m.memory.revoke(entry);
            old.push((entry, p.m.memory.word(entry)));
        }
    }
}

fn old_keys_are_refused() {
    let (mut p, _, key) = pair();
    let at = memory(&p.m);
    for tag in 0..=u8::MAX {
        let wqe = registration(key | u32::from(tag), VA, block(at, PAGE));
        assert_eq!(p.register(wqe), DONE);
        assert_eq!(p.invalidate(wqe.key), DONE);
    }
    let last = registration(key | 0x55, VA, block(at, PAGE));
    assert_eq!(p.register(last), DONE);
    for tag in 0..=u8::MAX {
        let named = key | u32::from(tag);
        let got = try_key(&mut p, work::WRITE, named, VA);
        if named == last.key {
            assert_eq!(got, DONE);
        } else {
            assert_eq!(got, refused(Detail::Key), "{tag}");
            again(&mut p);
        }
    }
}

/// Which part a message has in an FRMR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Written,
    Read,
    Sent,
    Received,
}

/// What takes it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Invalidated,
    ByPeer,
    Destroyed,
    RegisteredAnew,
}

const LONG: u32 = 1 << 16;

fn nothing_moves_after_an_invalidation() {
    use Part::*;
    for part in [Written, Read, Sent, Received] {
        for way in [
            Way::Invalidated,
            Way::ByPeer,
            Way::Destroyed,
            Way::RegisteredAnew,
        ] {
            for paged in [false, true] {
                for turns in [1, 2, 7, 14] {
                    taken_away(part, way, paged, turns);
                }
            }
        }
    }
}

fn taken_away(part: Part, way: Way, paged: bool, turns: u32) {
    let what = format!("{part:?} {way:?} {paged} {turns}");
    let config = Config {
        turn_bytes: 4096,
        ..Config::default()
    };
    let mut p = Pair::registering(Machine::with(config));
    let (frmr, key) = p.m.frmr(p.pd_b);
    let key = key | 9;
    // A second pair of the same domains, on a page whose turns alternate with the first one's.
    let (mut cq_c, mut cq_d) = (
        p.m.cq_of(Number::ADMIN, 4, 1, 0),
        p.m.cq_of(Number::ADMIN, 4, 1, 0),
    );
    let of_page = |spec: QpSpec| QpSpec {
        page: 1,
        flags: qp_flags::REGISTERS,
        ..spec
    };
    let spec_c = of_page(Machine::spec(p.pd_a, &cq_c));
    let spec_d = of_page(Machine::spec(p.pd_b, &cq_d));
    let (mut c, mut d) = p.m.pair(&spec_c, &spec_d);
    let pages = Pages::new(&p.m, LONG.into(), 1, 12, 0);
    let at = p.m.memory.alloc(LONG.into(), 4096, Grant::Write);
    let list = if paged {
        pages.list
    } else {
        block(at, LONG.into())
    };
    assert_eq!(p.register(registration(key, VA, list)), DONE);
    let own = Sge {
        addr: VA,
        bytes: LONG,
        lkey: key,
    };
    let far = by_key(&p, work::WRITE, key, VA);
    let to_a = SendWqe {
        remote_addr: p.mr_a.va,
        rkey: p.mr_a.key.raw(),
        ..wqe(work::WRITE, 1)
    };
    let all = p.mr_a.sge(0, LONG);
    let request = |opcode| SendWqe { opcode, ..far };
    match part {
        Part::Written => p.m.post(&mut p.a, far, &[all]),
        Part::Read => p.m.post(&mut p.a, request(work::READ), &[all]),
        Part::Sent => p.m.post(&mut p.b, to_a, &[own]),
        Part::Received => {
            p.recv(5, &[own]);
            p.m.post(&mut p.a, request(work::SEND), &[all]);
        }
    }
    let sender = if part == Part::Sent { p.b } else { p.a };
    p.m.ring_sq(&sender);
    for _ in 0..turns {
        p.m.f.run(1);
    }
    let moved = p.m.query_moved();
    assert!(moved > 0 && moved < LONG.into(), "{what}: {moved}");
    let other = memory(&p.m);
    match way {
        Way::Destroyed => p.m.destroy_now(kind::FRMR, frmr),
        Way::ByPeer => {
            p.m.post_recv(&mut d, 6, &[]);
            p.m.ring(1, qpair_abi::doorbell::RQ, d.number, d.rq_tail);
            let wqe = SendWqe {
                imm: key,
                ..wqe(work::SEND_INV, 1)
            };
            p.m.post(&mut c, wqe, &[]);
            p.m.ring_sq(&c);
        }
        _ => {
            p.m.post(&mut d, invalidation(key), &[]);
            if way == Way::RegisteredAnew {
                let anew = registration(key + 1, VA, block(other, PAGE));
                p.m.post_words(&mut d, &anew.encode());
            }
            p.m.ring_sq(&d);
        }
    }
    let expected = match way {
        Way::Destroyed => 0,
        Way::RegisteredAnew => 2,
        _ => 1,
    };
    let mut done = Vec::new();
    for _ in 0..8 {
        if done.len() == expected {
            break;
        }
        p.m.f.run(1);
        done.extend(p.m.drain(&mut cq_d));
    }
    assert_eq!(
        done.len(),
        expected,
        "{what}: it waits for a turn of the other page"
    );
    assert!(done.iter().all(|cqe| cqe.status == 0), "{what}");
    // The memory is software's from here on: the machine fails the test if it is accessed.
    let moved = p.m.query_moved();
    assert!(moved < LONG.into(), "{what}: {moved}");
    if paged {
        for page in 0..u64::from(LONG) / PAGE {
            p.m.memory.revoke(pages.at(page * PAGE));
        }
        p.m.memory.revoke(pages.list.root);
    } else {
        p.m.memory.revoke(at);
    }
    p.m.settle();
    assert_eq!(p.m.query_moved(), moved, "{what}");
    let (near, far) = (p.done_a(), p.done_b());
    let protection = (Status::LocalProtection, Detail::Key);
    match part {
        Part::Written | Part::Read => assert_eq!(outcome(&near[0]), refused(Detail::Key)),
        Part::Sent => assert_eq!(outcome(&far[0]), protection),
        Part::Received => {
            assert_eq!(outcome(&near[0]), (Status::RemoteOperation, Detail::Key));
            assert_eq!(outcome(&far[0]), protection);
        }
    }
    p.m.drain(&mut cq_c);
    assert!((0..PAGE / 8).all(|word| p.m.memory.word(other + 8 * word) == 0));
}

fn a_mapping_ends_with_its_registration() {
    for way in 0..5 {
        let (mut p, frmr, key) = pair();
        let at = memory(&p.m);
        let wqe = registration(key, VA, block(at, PAGE));
        // All else is mapped, and stays so.
        for _ in 0..3 {
            p.recv(5, &[p.mr_b.sge(0, 8)]);
            p.send(wqe_of(work::SEND), &[p.mr_a.sge(0, 8)]);
            assert_eq!((p.done_a().len(), p.done_b().len()), (1, 1));
        }
        assert_eq!(p.register(wqe), DONE);
        let others = p.m.memory.live_maps();
        for mapped in [0, 1, 1] {
            assert_eq!(try_key(&mut p, work::WRITE, key, VA), DONE);
            assert_eq!(p.m.memory.live_maps(), others + mapped);
        }
        match way {
            0 => assert_eq!(p.invalidate(key), DONE),
            1 => assert_eq!(p.send_inv(key), [DONE; 2]),
            2 => _ = p.m.destroy(kind::FRMR, frmr).unwrap(),
            3 => p.m.f.unmap(at + 64, 1),
            _ => {
                p.m.f.reset();
                assert_eq!(p.m.memory.live_maps(), 0);
                continue;
            }
        }
        assert_eq!(p.m.memory.live_maps(), others, "{way}");
        if way == 3 {
            // The system took the addresses away, and gave them back.
            assert_eq!(try_key(&mut p, work::WRITE, key, VA), DONE);
            assert_eq!(p.m.memory.live_maps(), others + 1);
        }
    }
}

fn frmrs_keep_so_many_mappings() {
    let mut p = Pair::registering(Machine::new());
    let pd = p.pd_b;
    let keys: Vec<u32> = (0..300).map(|_| p.m.frmr(pd).1).collect();
    let rings = p.m.memory.live_maps();
    let mut blocks = Vec::new();
    // A later registration of an FRMR takes no more room than the first.
    for round in 0..3 {
        for key in &keys {
            let at = memory(&p.m);
            let wqe = registration(key | round, VA, block(at, PAGE));
            assert_eq!(p.register(wqe), DONE);
            for _ in 0..2 {
                assert_eq!(try_key(&mut p, work::WRITE, wqe.key, VA), DONE);
            }
            blocks.push((wqe.key, at));
        }
        // The rings, and the region of the sender.
        let maps = p.m.memory.live_maps();
        assert!(maps <= rings + 8 + 256, "{maps}");
        for (key, at) in blocks.drain(..) {
            assert_eq!(p.invalidate(key), DONE);
            p.m.memory.revoke(at);
        }
        assert!(p.m.memory.live_maps() <= rings + 8);
    }
}

fn a_request_finds_what_the_one_before_has_done() {
    for turn_wqes in [16, 1] {
        let config = Config {
            turn_wqes,
            ..Config::default()
        };
        let mut p = Pair::registering(Machine::with(config));
        let key = p.m.frmr(p.pd_b).1;
        // One doorbell: each registration is of other memory, and the WRITE after it reads there.
        let mut expected = Vec::new();
        for round in 0..4_u32 {
            let at = memory(&p.m);
            p.m.memory.set_word(at, u64::from(round) + 70);
            let key = key | round;
            // Without a completion of their own.
            let wqe = RegWqe {
                flags: 0,
                ..registration(key, VA, block(at, PAGE))
            };
            p.m.post_words(&mut p.b, &wqe.encode());
            let write = SendWqe {
                remote_addr: p.mr_a.va + 8 * u64::from(round),
                rkey: p.mr_a.key.raw(),
                flags: 0,
                ..wqe_of(work::WRITE)
            };
            let own = Sge {
                addr: VA,
                bytes: 8,
                lkey: key,
            };
            p.m.post(&mut p.b, write, &[own]);
            let inval = SendWqe {
                flags: send_flags::SIGNALED,
                ..invalidation(key)
            };
            p.m.post(&mut p.b, inval, &[]);
            expected.push(u64::from(round) + 70);
        }
        p.m.ring_sq(&p.b);
        p.m.settle();
        assert!(p.done_b().iter().all(|cqe| cqe.status == 0));
        let got: [u64; 4] = p.m.memory.words(p.mr_a.addr);
        assert_eq!(got, *expected);
        // A registration, and the message that names its key: the peer may use it at once.
        let at = memory(&p.m);
        let wqe = RegWqe {
            flags: 0,
            ..registration(key | 9, VA, block(at, PAGE))
        };
        p.m.post_words(&mut p.b, &wqe.encode());
        p.m.recv(&mut p.a, 7, &[]);
        p.m.send(&mut p.b, wqe_of(work::SEND), &[]);
        assert_eq!(outcome(&p.done_b()[0]), DONE);
        assert_eq!(p.done_a()[0].wr_id, 7);
        assert_eq!(try_key(&mut p, work::WRITE, key | 9, VA), DONE);
    }
}

fn wqe_of(opcode: u8) -> SendWqe {
    wqe(opcode, 1)
}

fn a_send_invalidates_after_its_bytes() {
    // The receive is in the FRMR that the message invalidates.
    let (mut p, frmr, key, at) = block_pair(3);
    let own = Sge {
        addr: VA,
        bytes: 64,
        lkey: key,
    };
    p.recv(5, &[own]);
    p.m.memory.set_word(p.mr_a.addr, 77);
    let wqe = SendWqe {
        imm: key,
        flags: send_flags::SIGNALED | send_flags::SOLICITED,
        ..wqe_of(work::SEND_INV)
    };
    p.send(wqe, &[p.mr_a.sge(0, 8)]);
    assert_eq!(outcome(&p.done_a()[0]), DONE);
    let got = Cqe {
        wr_id: 5,
        qp: p.b.number,
        bytes: 8,
        imm: key,
        index: 1,
        opcode: work::RECV,
        flags: cqe_flags::RECV | cqe_flags::INV | cqe_flags::SOLICITED,
        ..Cqe::default()
    };
    assert_eq!(p.done_b(), [got]);
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

fn frmrs_are_objects() {
    let config = Config {
        frmrs: 3,
        ..Config::default()
    };
    let mut m = Machine::with(config);
    let pd = m.pd();
    let objects = m.f.objects();
    let frmrs = [(); 3].map(|()| m.frmr(pd).0);
    assert_eq!(m.f.objects(), objects + 3);
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
    // A function without FRMRs.
    let mut m = Machine::with(Config {
        frmrs: 0,
        ..Config::default()
    });
    let pd = m.pd();
    let full = m.create(kind::FRMR, &FrmrContext { pd, ..good }.encode());
    assert_eq!(full, Err(AdminError::Full));
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
    with_seeds("frmr::any_requests_in_any_order", 40, |rng| {
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
