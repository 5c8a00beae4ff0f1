// SPDX-License-Identifier: GPL-2.0
//! The facts agree with each other.

use qpair_abi::{
    command::{self, BufferList, Command, CqContext, GidContext, QpContext},
    doorbell,
    entry::{self, Cqe, Eqe, RecvWqe, SendWqe, Sge},
    regs,
    status::{AdminError, Detail, EnableError, Event, Status},
    stream::{
        self,
        chain::{self, ChainDescriptor},
        headtail::{self, RingDescriptor},
        Cause, Kind, Side,
    },
    Number,
};

#[test]
fn a_number_is_an_index_and_a_generation() {
    let number = Number::new(0x1234, 0x5678);
    assert_eq!(
        (number.index(), number.generation(), number.raw()),
        (0x1234, 0x5678, 0x5678_1234)
    );
    assert_eq!(number.next(), Number::new(0x1234, 0x5679));
    assert_eq!(
        Number::new(7, 0xffff).next(),
        Number::new(7, 1),
        "0 would name nothing"
    );
}

/// The number of a queue pair is a QPN of verbs, which is not one of the special ones.
#[test]
fn the_number_of_a_queue_pair_has_24_bits() {
    let (first, last) = (
        Number::new(0, 1),
        Number::new(0xffff, Number::QP_GENERATIONS),
    );
    assert_eq!((first.raw(), last.raw()), (1 << 16, 0xfe_ffff));
    let next = |number: Number| number.next_of(Number::QP_GENERATIONS);
    assert_eq!(next(Number::new(7, 0)), Number::new(7, 1));
    assert_eq!(next(Number::new(7, 0xfd)), Number::new(7, 0xfe));
    assert_eq!(next(last), Number::new(0xffff, 1));
    assert!(last.raw() < Number::GROUP.raw(), "no QP is all of a group");
}

/// As `rdma_is_multicast_addr()` of the kernel has it.
#[test]
fn which_gids_are_groups() {
    let is_group = |text: &str| {
        let address: core::net::Ipv6Addr = text.parse().unwrap();
        GidContext::from_bytes(address.octets()).is_group()
    };
    for group in [
        "ff00::",
        "ff12:601b::1",
        "ffff::1",
        "::ffff:224.0.0.0",
        "::ffff:239.255.1.2",
    ] {
        assert!(is_group(group), "{group}");
    }
    for other in [
        "::",
        "fe80::1",
        "00ff::1",
        "::ffff:223.255.0.1",
        "::ffff:240.0.0.1",
    ] {
        assert!(!is_group(other), "{other}");
    }
    for other in ["::224.0.0.1", "1::ffff:224.0.0.1", "::1:ffff:224.0.0.1"] {
        assert!(!is_group(other), "{other}");
    }
}

/// Verbs count the lowest byte of the key up.
#[test]
fn the_key_of_a_window_is_its_number_and_a_tag() {
    let number = Number::new(0xabc, 0x7ff);
    let key = entry::window_key(number, 0x12);
    assert_eq!(key, 0xfffa_bc12);
    assert_eq!(entry::window_of(key), Some((number, 0x12)));
    assert_eq!(entry::window_of(key + 1), Some((number, 0x13)));
    let first = entry::window_key(Number::new(0, 1), 0);
    assert_eq!(first, 0x8010_0000);
    let region = Number::new(0xffff, Number::MR_GENERATIONS);
    assert_eq!(entry::window_of(region.raw()), None, "the key of a region");
}

/// A key is of one kind alone.
#[test]
fn the_key_of_an_frmr_is_its_number_and_a_tag() {
    let number = Number::new(0xabcd, 0x3f);
    let key = entry::frmr_key(number, 0x12);
    assert_eq!(key, 0x7fab_cd12);
    assert_eq!(entry::frmr_of(key), Some((number, 0x12)));
    assert_eq!(entry::frmr_of(key + 1), Some((number, 0x13)));
    let first = entry::frmr_key(Number::new(0, 1), 0);
    assert_eq!(first, 0x4100_0000);
    for key in [first, key] {
        assert_eq!(entry::window_of(key), None);
    }
    let region = Number::new(0xffff, Number::MR_GENERATIONS).raw();
    let window = entry::window_key(Number::new(0xfff, Number::MW_GENERATIONS), 0xff);
    for other in [region, window] {
        assert_eq!(entry::frmr_of(other), None, "{other:#x}");
    }
}

#[test]
fn a_doorbell_is_taken_apart_as_it_was_put_together() {
    let number = Number::new(9, 3);
    assert_eq!(
        doorbell::parts(doorbell::value(number, 0xdead_beef)),
        (number, 0xdead_beef)
    );
    assert_eq!(doorbell::value(number, 1), 0x0000_0001_0003_0009);
}

/// Each field where the manual says, by hand for one entry of each kind.
#[test]
fn entries_lie_as_documented() {
    let cqe = Cqe {
        wr_id: 0x1111_1111_1111_1111,
        qp: Number::from_raw(0x2222_2222),
        bytes: 0x3333_3333,
        imm: 0x4444_4444,
        index: 0x5555_5555,
        src: 0x6666_6666,
        opcode: 0x77,
        status: 0x08,
        vendor: 0x09,
        flags: 0x02,
    };
    let words = [
        0x1111_1111_1111_1111,
        0x3333_3333_2222_2222,
        0x5555_5555_4444_4444,
        0x0209_0877_6666_6666,
    ];
    assert_eq!(cqe.encode(), words);
    assert_eq!(Cqe::decode(&words), cqe);
    let told = Cqe {
        status: u8::MAX,
        flags: entry::cqe_flags::RECV,
        ..Cqe::default()
    };
    assert_eq!(told.encode(), [0, 0, 0, Cqe::NOT_SENT]);

    let eqe = Eqe {
        number: Number::from_raw(0x0102_0304),
        count: 5,
        kind: 6,
        code: 7,
    };
    assert_eq!(eqe.encode(), [0x0000_0005_0102_0304, 0x0706]);

    let wqe = SendWqe {
        opcode: 3,
        flags: 1,
        blocks: 2,
        sges: 4,
        imm: 5,
        wr_id: 6,
        remote_addr: 7,
        rkey: 8,
        inline_bytes: 9,
    };
    assert_eq!(
        wqe.encode(),
        [0x0000_0005_0402_0103, 6, 7, 0x0000_0009_0000_0008]
    );
    assert_eq!(RecvWqe { sges: 3, wr_id: 4 }.encode(), [3, 4]);
    assert_eq!(
        Sge {
            addr: 1,
            bytes: 2,
            lkey: 3
        }
        .encode(),
        [1, 0x0000_0003_0000_0002]
    );
}

/// Opcode, flags, number of blocks and tag have the same place in a command and in a send WQE.
#[test]
fn a_command_lies_as_a_send() {
    let command = Command {
        opcode: command::opcode(command::kind::QP, command::verb::CREATE),
        flags: entry::send_flags::SIGNALED,
        blocks: 1,
        number: Number::from_raw(0xabcd),
        wr_id: 77,
        context: 0x1000,
        mask: 3,
        context_bytes: 128,
    };
    let send = SendWqe::decode(&command.encode());
    assert_eq!(
        (send.opcode, send.flags, send.blocks, send.sges),
        (0x31, 1, 1, 0)
    );
    assert_eq!(
        (send.imm, send.wr_id, send.remote_addr),
        (0xabcd, 77, 0x1000)
    );
}

#[test]
fn nested_lists_lie_where_the_context_says() {
    let list = BufferList {
        root: 0x1000,
        bytes: 0x2000,
        offset: 0x30,
        page_shift: 12,
        levels: 2,
    };
    let context = QpContext {
        sq: list,
        rq: BufferList { root: 9, ..list },
        ..Default::default()
    };
    let words = context.encode();
    assert_eq!(words[8..11], list.encode());
    assert_eq!(words[11], 9);
    assert_eq!(QpContext::decode(&words), context);
    assert_eq!(CqContext::RESERVED[5..8], [u64::MAX; 3]);
    assert_eq!(CqContext::RESERVED[4], !0xffff_ffff_ffff);
}

#[test]
fn capacities_follow_from_the_layout() {
    assert_eq!([1, 2, 3, 4].map(entry::send_sges), [2, 6, 10, 14]);
    assert_eq!([1, 2, 3, 4].map(entry::inline_bytes), [32, 96, 160, 224]);
    assert_eq!([0, 1, 2].map(entry::recv_sges), [3, 7, 15]);
    let shift = entry::recv_stride;
    assert_eq!([0, 3, 4, 7, 8, 15].map(shift), [0, 0, 1, 1, 2, 2].map(Some));
    assert_eq!([16, usize::MAX].map(shift), [None, None]);
}

#[test]
fn every_code_finds_its_way_back() {
    macro_rules! check {
        ($($t:ty),*) => { $(
            assert!(<$t>::ALL.iter().all(|&v| <$t>::from_code(v.code()) == Some(v) && !v.text().is_empty()));
            assert_eq!((0..=255).filter(|&c| <$t>::from_code(c).is_some()).count(), <$t>::ALL.len());
        )* };
    }
    check!(Status, Detail, AdminError, Event, EnableError, Cause, Kind);
}

#[test]
fn registers_do_not_overlap() {
    let offsets: Vec<u64> = regs::offset::ALL
        .iter()
        .map(|(_, offset)| *offset)
        .collect();
    assert!(
        offsets.windows(2).all(|pair| pair[0] + 4 <= pair[1]),
        "{offsets:x?}"
    );
    assert!(offsets
        .iter()
        .all(|offset| offset % 4 == 0 && *offset < regs::BYTES as u64));
}

/// Each field where the manual says, by hand.
#[test]
fn descriptors_lie_as_documented() {
    let chained = ChainDescriptor {
        next: 0x1000,
        addr: 0x2000,
        control: chain::control::SOF | chain::control::EOF | 60,
        status: chain::status::COMPLETE | 60,
        app0: 1,
        app1: 2,
        app2: 3,
        app3: 4,
        app4: 5,
    };
    let words = [
        0x1000,
        0x2000,
        0,
        0x8000_003c_0c00_003c,
        0x2_0000_0001,
        0x4_0000_0003,
        5,
        0,
    ];
    assert_eq!(chained.encode(), words);
    assert_eq!(ChainDescriptor::decode(&words), chained);

    let ring = RingDescriptor {
        addr: 0x3000,
        length: 1500,
        cmd: headtail::cmd::EOP | headtail::cmd::RS,
        sta: headtail::sta::DD,
    };
    assert_eq!(ring.encode(), [0x3000, 0x0000_0001_0900_05dc]);
    assert_eq!(RingDescriptor::decode(&ring.encode()), ring);
}

/// Registers of a channel stay in its block, and blocks in the BAR. `KIND` and what precedes it
/// are common to both kinds.
#[test]
fn blocks_of_channels_do_not_overlap() {
    for all in [chain::offset::ALL, headtail::offset::ALL] {
        assert!(all.windows(2).all(|pair| pair[0].1 + 4 <= pair[1].1));
        let past = |(_, offset): &(&str, u64)| offset % 4 != 0 || *offset >= stream::BLOCK_BYTES;
        assert!(!all.iter().any(past));
    }
    let common = |all: &[(&'static str, u64)]| all[all.len() - 3..].to_vec();
    assert_eq!(common(chain::offset::ALL), common(headtail::offset::ALL));

    assert_eq!(stream::block(0, Side::Transmit), 0x1000);
    assert_eq!(stream::block(0, Side::Receive), 0x1040);
    assert_eq!(stream::block(3, Side::Receive), 0x11c0);
    assert_eq!(stream::vector(3, Side::Receive), 7);
    let last = stream::block(stream::MAX_PAIRS - 1, Side::Receive) + stream::BLOCK_BYTES;
    assert!(last <= stream::regs::BYTES as u64);
    let global = stream::regs::offset::ALL;
    assert!(global.iter().all(|(_, offset)| *offset < stream::BLOCKS));
}
