// SPDX-License-Identifier: GPL-2.0
//! Regions that are changed.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::entry::opcode as work;
use qpair_abi::status::AdminError;
use qpair_abi::status::Detail;
use qpair_abi::Number;

checks![
    a_changed_region_keeps_its_key,
    a_change_is_whole_or_nothing,
    a_region_is_changed_during_a_message,
    a_region_of_no_bytes_has_none,
];

fn a_region_of_no_bytes_has_none() {
    let mut p = Pair::new();
    let before = MrContext::decode(&p.m.query(kind::MR, p.mr_b.key));
    for addr in [0, 1 << 30, u64::MAX] {
        let empty = MrContext {
            addr,
            buffer: BufferList::default(),
            ..before
        };
        p.m.modify_mr(p.mr_b.key, mr_mask::MEMORY, &empty).unwrap();
        let key = p.m.create(kind::MR, &empty.encode()).unwrap();
        for key in [key, p.mr_b.key] {
            assert_eq!(MrContext::decode(&p.m.query(kind::MR, key)), empty);
            let tried = try_key(&mut p, work::WRITE, key.raw(), addr);
            assert_eq!(tried, refused(Detail::Range));
            again(&mut p);
        }
        p.m.destroy(kind::MR, key).unwrap();
    }
    // A list of pages has some.
    let paged = BufferList {
        levels: 1,
        page_shift: 12,
        ..BufferList::default()
    };
    let paged = MrContext {
        buffer: paged,
        ..before
    };
    let made = p.m.create(kind::MR, &paged.encode());
    assert_eq!(made, Err(AdminError::Buffer));
}

fn a_changed_region_keeps_its_key() {
    let mut p = Pair::new();
    let key = p.mr_b.key;
    let of = |p: &mut Pair| MrContext::decode(&p.m.query(kind::MR, key));
    let before = of(&mut p);
    let (mem, pd) = (p.m.memory.alloc(8192, 64, Grant::Write), p.m.pd());
    let all = MrContext {
        pd,
        access: access::LOCAL_WRITE,
        addr: 1 << 30,
        buffer: block(mem, 8192),
        ..Default::default()
    };
    let (va, raw) = (p.mr_b.va, key.raw());
    // Memory alone: other fields of the context are ignored.
    let ignored = MrContext {
        pd: Number::new(7, 7),
        ..all
    };
    p.m.modify_mr(key, mr_mask::MEMORY, &ignored).unwrap();
    let expected = MrContext {
        addr: all.addr,
        buffer: all.buffer,
        ..before
    };
    assert_eq!(of(&mut p), expected);
    p.m.memory.set_word(p.mr_a.addr, 9);
    assert_eq!(try_key(&mut p, work::WRITE, raw, (1 << 30) + 8184), DONE);
    assert_eq!(p.m.memory.word(mem + 8184), 9);
    assert_eq!(
        try_key(&mut p, work::WRITE, raw, va),
        refused(Detail::Range)
    );
    again(&mut p);
    // Rights alone.
    p.m.modify_mr(key, mr_mask::ACCESS, &all).unwrap();
    assert_eq!(
        try_key(&mut p, work::WRITE, raw, 1 << 30),
        refused(Detail::Rights)
    );
    again(&mut p);
    // The domain, with the rights back: the old domain can go.
    let back = MrContext {
        access: access::ALL,
        ..all
    };
    let spare = p.m.pd();
    let moved = MrContext { pd: spare, ..back };
    p.m.modify_mr(key, mr_mask::PD | mr_mask::ACCESS, &moved)
        .unwrap();
    assert_eq!(
        try_key(&mut p, work::WRITE, raw, 1 << 30),
        refused(Detail::Domain)
    );
    assert_eq!(p.m.destroy(kind::PD, spare), Err(AdminError::Busy));
    p.m.modify_mr(key, mr_mask::PD, &back).unwrap();
    p.m.destroy(kind::PD, spare).unwrap();
    assert_eq!(p.m.destroy(kind::PD, pd), Err(AdminError::Busy));
    assert_eq!(of(&mut p), back);
    p.m.destroy(kind::MR, key).unwrap();
    p.m.destroy(kind::PD, pd).unwrap();
}

fn a_change_is_whole_or_nothing() {
    let mut p = Pair::new();
    let key = p.mr_b.key;
    let before: [u64; 8] = p.m.query(kind::MR, key);
    let good = MrContext::decode(&before);
    let bad_list = BufferList {
        levels: 3,
        ..good.buffer
    };
    let wrap = MrContext {
        addr: u64::MAX - 9,
        ..good
    };
    let none = Number::new(9, 9);
    for (mask, context, error) in [
        (
            mr_mask::ALL,
            MrContext { pd: none, ..good },
            AdminError::Reference,
        ),
        (
            mr_mask::ALL,
            MrContext {
                access: access::ZERO_BASED,
                ..good
            },
            AdminError::Reserved,
        ),
        (
            mr_mask::ALL,
            MrContext {
                buffer: bad_list,
                ..good
            },
            AdminError::Buffer,
        ),
        (mr_mask::ALL, wrap, AdminError::Buffer),
        (mr_mask::ALL << 1, good, AdminError::Reserved),
    ] {
        let new = MrContext {
            access: context.access & !access::REMOTE_READ,
            ..context
        };
        assert_eq!(p.m.modify_mr(key, mask, &new), Err(error));
        assert_eq!(p.m.query::<8>(kind::MR, key), before);
    }
    let gone = p.m.modify_mr(none, mr_mask::ACCESS, &good);
    assert_eq!(gone, Err(AdminError::Number));
    p.m.modify_mr(key, 0, &wrap).unwrap();
    assert_eq!(p.m.query::<8>(kind::MR, key), before);
}

fn a_region_is_changed_during_a_message() {
    let (mut p, _) = long_write(|p| p.mr_b.key.raw());
    let key = p.mr_b.key;
    let mem = p.m.memory.alloc(1 << 20, 4096, Grant::Write);
    let context = MrContext {
        addr: p.mr_b.va,
        buffer: block(mem, 1 << 20),
        ..MrContext::default()
    };
    p.m.memory
        .set_bytes(p.mr_a.addr + (1 << 16) - 4, &[1, 2, 3, 4]);
    p.m.modify_mr(key, mr_mask::MEMORY, &context).unwrap();
    // The old memory is software's again.
    p.m.memory.revoke(p.mr_b.addr);
    p.m.settle();
    assert_eq!(outcome(&p.done_a()[0]), DONE);
    assert_eq!(p.m.memory.bytes(mem + (1 << 16) - 4, 4), [1, 2, 3, 4]);
}
