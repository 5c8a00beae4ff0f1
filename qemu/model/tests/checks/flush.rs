// SPDX-License-Identifier: GPL-2.0
//! FLUSH and atomic WRITE: what they do, and what refuses them.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_model::Config;

checks![
    a_write_of_8_bytes_at_once,
    a_flush_completes_after_what_is_before_it,
    a_flush_of_the_whole_region,
    rights_of_a_flush,
    an_address_that_is_not_aligned,
    what_is_none,
    limits_of_data_are_not_for_them,
    only_rc_has_them,
    memory_that_is_only_flushed,
];

const BOTH: u8 = flush::GLOBAL | flush::PERSISTENT;

impl Pair {
    /// A FLUSH of 8 bytes of the peer's region.
    fn flush(&self, kinds: u8) -> FlushWqe {
        FlushWqe {
            opcode: work::FLUSH,
            flags: send_flags::SIGNALED,
            blocks: 1,
            kinds,
            wr_id: 1,
            remote_addr: self.mr_b.va,
            rkey: self.mr_b.key.raw(),
            bytes: 8,
            ..FlushWqe::default()
        }
    }

    fn send_flush(&mut self, wqe: FlushWqe) -> Vec<(Status, Detail)> {
        self.m
            .post_words(&mut self.a, &with_sges(&wqe.encode(), &[]));
        self.m.ring_sq(&self.a);
        self.m.settle();
        self.done_a().iter().map(outcome).collect()
    }

    /// An atomic WRITE to the peer's region.
    fn atomic_write(&mut self, wqe: SendWqe, value: u64) -> Vec<(Status, Detail)> {
        let words = inline_words(wqe, &value.to_le_bytes());
        self.m.post_words(&mut self.a, &words);
        self.m.ring_sq(&self.a);
        self.m.settle();
        self.done_a().iter().map(outcome).collect()
    }
}

const DONE: (Status, Detail) = (Status::Success, Detail::None);

fn a_write_of_8_bytes_at_once() {
    let mut p = Pair::new();
    let at = p.mr_b.addr + 64;
    p.m.memory.set_words(at - 8, &[1, 2, 3]);
    let wqe = p.remote(work::ATOMIC_WRITE, 64);
    assert_eq!(p.atomic_write(wqe, 0x1122_3344_5566_7788), [DONE]);
    assert_eq!(p.m.memory.words(at - 8), [1, 0x1122_3344_5566_7788, 3]);
    assert_eq!(p.m.f.counter(Counter::WriteBytes), 8);
    assert_eq!(p.done_b(), [], "the peer is not affected");
    // It is in the order of the queue.
    for value in [5, 6] {
        let mut wqe = p.remote(work::ATOMIC_WRITE, 64);
        wqe.flags |= send_flags::FENCE;
        assert_eq!(p.atomic_write(wqe, value), [DONE]);
    }
    assert_eq!(p.m.memory.word(at), 6);
}

fn a_flush_completes_after_what_is_before_it() {
    let mut p = Pair::new();
    p.m.memory.set_word(p.mr_a.addr, 77);
    let write = p.remote(work::WRITE, 0);
    let sge = p.mr_a.sge(0, 8);
    p.m.post(&mut p.a, write, &[sge]);
    for kinds in [flush::GLOBAL, flush::PERSISTENT, BOTH] {
        let wqe = p.flush(kinds);
        let done = p.send_flush(wqe);
        assert!(done.iter().all(|one| *one == DONE), "{done:?}");
        assert_eq!(p.m.memory.word(p.mr_b.addr), 77);
    }
    // Unsignaled, and of no bytes.
    let none = FlushWqe {
        flags: send_flags::FENCE,
        bytes: 0,
        ..p.flush(BOTH)
    };
    assert_eq!(p.send_flush(none), []);
    let wqe = p.flush(BOTH);
    p.m.post_words(&mut p.a, &with_sges(&wqe.encode(), &[]));
    p.m.ring_sq(&p.a);
    p.m.settle();
    let done = p.done_a();
    let seen: Vec<_> = done.iter().map(|cqe| (cqe.opcode, cqe.bytes)).collect();
    assert_eq!(seen, [(work::FLUSH, 0)]);
    assert_eq!(p.done_b(), []);
}

fn a_flush_of_the_whole_region() {
    let mut p = Pair::new();
    let long = FlushWqe {
        bytes: u64::MAX,
        ..p.flush(BOTH)
    };
    let whole = FlushWqe {
        whole: 1,
        remote_addr: 0,
        ..long
    };
    assert_eq!(p.send_flush(whole), [DONE], "the range is ignored");
    let outside = (Status::RemoteAccess, Detail::Range);
    assert_eq!(p.send_flush(long), [outside]);
    let mut p = Pair::new();
    let empty = FlushWqe {
        bytes: 0,
        rkey: 0x1234_5678,
        ..p.flush(BOTH)
    };
    let key = (Status::RemoteAccess, Detail::Key);
    assert_eq!(p.send_flush(empty), [key], "also of no bytes");
}

fn rights_of_a_flush() {
    for (kinds, lacks) in [
        (flush::GLOBAL, access::FLUSH_GLOBAL),
        (flush::PERSISTENT, access::FLUSH_PERSISTENT),
        (BOTH, access::FLUSH_GLOBAL),
        (BOTH, access::FLUSH_PERSISTENT),
    ] {
        // Those of the region.
        let mut p = Pair::new();
        let mr = p.m.mr_at(p.pd_b, 0x5000, 64, access::ALL & !lacks);
        let wqe = FlushWqe {
            remote_addr: mr.va,
            rkey: mr.key.raw(),
            ..p.flush(kinds)
        };
        let refused = (Status::RemoteAccess, Detail::Rights);
        assert_eq!(p.send_flush(wqe), [refused]);
        assert_eq!(p.state(p.b.number), qp_state::ERROR);
        // Those of the queue pair.
        let mut p = Pair::with(|_, b| b.access &= !lacks);
        let wqe = p.flush(kinds);
        let refused = (Status::RemoteInvalidRequest, Detail::Rights);
        assert_eq!(p.send_flush(wqe), [refused]);
        // One kind does not need the right of the other.
        if kinds != BOTH {
            let mut p = Pair::with(|_, b| b.access = lacks);
            let wqe = p.flush(kinds);
            assert_eq!(p.send_flush(wqe), [DONE]);
        }
    }
    // A WRITE's right is that of an atomic WRITE.
    let mut p = Pair::with(|_, b| b.access &= !access::REMOTE_WRITE);
    let write = p.remote(work::ATOMIC_WRITE, 0);
    let refused = (Status::RemoteInvalidRequest, Detail::Rights);
    assert_eq!(p.atomic_write(write, 1), [refused]);
    let mut p = Pair::new();
    let mr = p.m.mr_at(p.pd_b, 0x5000, 64, access::REMOTE_READ);
    let write = SendWqe {
        remote_addr: mr.va,
        rkey: mr.key.raw(),
        ..wqe(work::ATOMIC_WRITE, 1)
    };
    let refused = (Status::RemoteAccess, Detail::Rights);
    assert_eq!(p.atomic_write(write, 1), [refused]);
}

fn an_address_that_is_not_aligned() {
    for at in [1, 4, 7] {
        let mut p = Pair::new();
        let wqe = p.remote(work::ATOMIC_WRITE, at);
        let refused = (Status::RemoteInvalidRequest, Detail::Alignment);
        assert_eq!(p.atomic_write(wqe, u64::MAX), [refused]);
        assert_eq!(p.m.memory.words(p.mr_b.addr), [0, 0]);
        assert_eq!(p.state(p.b.number), qp_state::ERROR);
    }
}

/// Checks that a block fails by itself.
fn fails(words: &[u64], detail: Detail) {
    let mut p = Pair::new();
    p.m.post_words(&mut p.a, words);
    p.m.ring_sq(&p.a);
    p.m.settle();
    let done: Vec<_> = p.done_a().iter().map(outcome).collect();
    assert_eq!(done, [(Status::LocalQpOperation, detail)]);
    assert_eq!(p.state(p.b.number), qp_state::RTS);
}

fn what_is_none() {
    let p = Pair::new();
    let good = p.flush(BOTH);
    let flushes = [
        (FlushWqe { kinds: 0, ..good }, Detail::Flags),
        (FlushWqe { kinds: 4, ..good }, Detail::Flags),
        (FlushWqe { whole: 2, ..good }, Detail::Flags),
        (
            FlushWqe {
                flags: send_flags::SOLICITED,
                ..good
            },
            Detail::Flags,
        ),
        (FlushWqe { sges: 1, ..good }, Detail::Sges),
        (
            FlushWqe {
                inline_bytes: 8,
                ..good
            },
            Detail::Inline,
        ),
        (
            FlushWqe {
                kinds: 0,
                sges: 1,
                ..good
            },
            Detail::Flags,
        ),
    ];
    for (wqe, detail) in flushes {
        fails(&with_sges(&wqe.encode(), &[]), detail);
    }
    for reserved in [1 << 48, 1 << 63] {
        let mut words = with_sges(&good.encode(), &[]);
        words[0] |= reserved;
        fails(&words, Detail::Flags);
    }
    let good = p.remote(work::ATOMIC_WRITE, 0);
    for bytes in [0, 7, 9, 16] {
        fails(&inline_words(good, &vec![1; bytes]), Detail::Inline);
    }
    fails(&wqe_words(good, &[]), Detail::Inline);
    fails(&wqe_words(good, &[p.mr_a.sge(0, 8)]), Detail::Sges);
    let solicited = SendWqe {
        flags: send_flags::SOLICITED,
        ..good
    };
    fails(&inline_words(solicited, &[0; 8]), Detail::Flags);
}

fn limits_of_data_are_not_for_them() {
    let config = Config {
        inline_bytes: 0,
        ..Config::default()
    };
    let mut p = Pair::on(Machine::with(config), |_, _| {});
    let wqe = p.remote(work::ATOMIC_WRITE, 0);
    assert_eq!(p.atomic_write(wqe, 7), [DONE]);
    assert_eq!(p.m.memory.words(p.mr_b.addr), [7]);
}

fn only_rc_has_them() {
    for opcode in [work::FLUSH, work::ATOMIC_WRITE] {
        let mut p = Pair::with(|a, b| (a.service, b.service) = (service::UC, service::UC));
        let wqe = p.remote(opcode, 0);
        let refused = (Status::LocalQpOperation, Detail::Opcode);
        assert_eq!(p.atomic_write(wqe, 1), [refused]);
    }
}

/// A region without a right to write is mapped to be read.
fn memory_that_is_only_flushed() {
    let mut p = Pair::new();
    let rights = access::FLUSH_GLOBAL | access::REMOTE_READ;
    let addr = p.m.memory.alloc(64, 64, Grant::Read);
    let context = MrContext {
        pd: p.pd_b,
        access: rights,
        addr: 0x5000,
        buffer: block(addr, 64),
        ..Default::default()
    };
    let key = p.m.create(kind::MR, &context.encode()).unwrap();
    let read = SendWqe {
        remote_addr: 0x5000,
        rkey: key.raw(),
        ..wqe(work::READ, 2)
    };
    let sge = p.mr_a.sge(0, 8);
    p.send(read, &[sge]);
    let done: Vec<_> = p.done_a().iter().map(outcome).collect();
    assert_eq!(done, [DONE]);
    let wqe = FlushWqe {
        remote_addr: 0x5000,
        rkey: key.raw(),
        ..p.flush(flush::GLOBAL)
    };
    assert_eq!(p.send_flush(wqe), [DONE]);
}
