// SPDX-License-Identifier: GPL-2.0
//! The port: its table of GIDs, its queue pair 1, the memory of the kernel, its network device.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::regs::offset;
use qpair_abi::status::AdminError;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;

checks![
    the_table_of_gids,
    datagrams_between_gids_of_the_table,
    queue_pair_1,
    a_peer_by_the_gid_of_its_port,
    a_region_of_all_memory,
    the_address_of_the_network_device,
];

const FIRST: [u64; 2] = [0x80fe, 0x11];
const SECOND: [u64; 2] = [0, 0x0201_a8c0_ffff_0000];

fn set_gid(m: &mut Machine, index: u32, [gid, gid_high]: [u64; 2]) -> Outcome {
    let context = GidContext { gid, gid_high };
    let index = Number::from_raw(index);
    m.with_context(kind::GID, verb::MODIFY, index, 0, &context.encode())
}

fn the_table_of_gids() {
    let mut m = Machine::new();
    set_gid(&mut m, GIDS - 1, SECOND).unwrap();
    let last = Number::from_raw(GIDS - 1);
    assert_eq!(m.query(kind::GID, last), SECOND);
    assert_eq!(m.query(kind::GID, Number::default()), [0; 2]);
    assert_eq!(set_gid(&mut m, GIDS, FIRST), Err(AdminError::Number));
    let past = Number::from_raw(GIDS);
    let asked = m.with_context(kind::GID, verb::QUERY, past, 0, &[0; 2]);
    assert_eq!(asked, Err(AdminError::Number));
}

/// Two queue pairs of UD without a GID of their own, and a table with two GIDs.
fn by_table() -> Port {
    let mut w = Port::new(0);
    for port_qp in [0, 1] {
        let m = &mut w.m;
        let (pd, cq) = (m.pd(), m.cq(6));
        let spec = QpSpec {
            gid: [0; 2],
            ..ud_spec(pd, &cq)
        };
        let context = QpContext {
            port_qp,
            ..m.qp_context(&spec)
        };
        let qp = m.qp_of(&spec, &context);
        ud_start(m, qp.number, KEY);
        w.mrs.push(m.mr(pd, 1 << 16));
        w.qps.push(qp);
        w.cqs.push(cq);
    }
    set_gid(&mut w.m, 3, FIRST).unwrap();
    set_gid(&mut w.m, 5, SECOND).unwrap();
    w
}

fn to(w: &Port, dest: usize, source: u16, [gid, gid_high]: [u64; 2]) -> UdWqe {
    UdWqe {
        source,
        gid,
        gid_high,
        ..w.to(dest, 7)
    }
}

fn datagrams_between_gids_of_the_table() {
    let mut w = by_table();
    let into = w.mrs[1].sge(0, 100);
    w.recv(1, 5, &[into]);
    let from = [w.mrs[0].sge(0, 8)];
    for wrong in [
        to(&w, 1, 3, [1, 1]),
        to(&w, 1, 3, [0, 0]),
        to(&w, 1, 4, FIRST),
        to(&w, 1, GIDS as u16, FIRST),
        to(&w, 1, u16::MAX, SECOND),
    ] {
        w.is_dropped(0, wrong, &from);
    }
    let right = to(&w, 1, 5, FIRST);
    w.send(0, right, &from);
    assert_eq!(w.done(1)[0].status, 0);
    assert_eq!(w.done(0)[0].status, 0);
    let bytes = w.m.memory.bytes(w.mrs[1].addr + 8, 32);
    let gids = [SECOND, FIRST].concat();
    let gids: Vec<u8> = gids.into_iter().flat_map(u64::to_le_bytes).collect();
    assert_eq!(bytes, gids, "from, to");
    let bytes = w.m.memory.bytes(w.mrs[1].addr, 8);
    assert_eq!(
        bytes,
        [0x60, 0, 0, 0, 0, 8 + 12 + 8 + 8 + 4, 17, 1],
        "over UDP"
    );
    // A GID that was taken away leads nowhere.
    w.recv(1, 6, &[into]);
    set_gid(&mut w.m, 3, [0; 2]).unwrap();
    w.is_dropped(0, right, &from);
    // A queue pair with a GID of its own does not use the table.
    w.add();
    w.recv(1, 6, &[into]);
    let from = [w.mrs[2].sge(0, 8)];
    let by_own = to(&w, 1, 5, SECOND);
    w.is_dropped(2, by_own, &from);
}

fn queue_pair_1() {
    let mut w = by_table();
    let into = w.mrs[1].sge(0, 100);
    w.recv(1, 5, &[into]);
    let from = [w.mrs[0].sge(0, 8)];
    let wqe = UdWqe {
        dest: Number::PORT_QP,
        ..to(&w, 1, 3, FIRST)
    };
    w.send(0, wqe, &from);
    let got = w.done(1);
    assert_eq!((got.len(), got[0].status), (1, 0));
    assert_eq!(got[0].src, w.qps[0].number.raw());
    assert_eq!(got[0].qp, w.qps[1].number);
    w.done(0);

    let into = w.mrs[0].sge(0, 100);
    w.recv(0, 5, &[into]);
    let from = [w.mrs[1].sge(0, 8)];
    let back = to(&w, 0, 3, FIRST);
    w.send(1, back, &from);
    assert_eq!(w.done(0)[0].src, Number::PORT_QP.raw());
    w.done(1);

    let [other, first] = [w.qps[0].number, w.qps[1].number];
    assert_eq!(w.m.query_qp(first).port_qp, 1);
    assert_eq!(w.m.query_qp(other).port_qp, 0);
    // There is one.
    let spec = ud_spec(w.m.pd(), &w.cqs[0]);
    let context = QpContext {
        port_qp: 1,
        ..w.m.qp_context(&spec)
    };
    let again = w.m.create(kind::QP, &context.encode());
    assert_eq!(again, Err(AdminError::Full));
    w.m.destroy(kind::QP, first).unwrap();
    w.is_dropped(0, wqe, &[]);
    let again = w.m.create(kind::QP, &context.encode()).unwrap();
    assert_eq!(w.m.query_qp(again).port_qp, 1);
    // It is one of datagrams.
    for service in [service::RC, service::UC] {
        let wrong = QpContext {
            service,
            gid: 0,
            gid_high: 0,
            ..context
        };
        let made = w.m.create(kind::QP, &wrong.encode());
        assert_eq!(made, Err(AdminError::Attribute));
    }
    let wrong = QpContext {
        port_qp: 2,
        ..context
    };
    let made = w.m.create(kind::QP, &wrong.encode());
    assert_eq!(made, Err(AdminError::Attribute));
}

fn a_peer_by_the_gid_of_its_port() {
    let mut m = Machine::new();
    set_gid(&mut m, 0, FIRST).unwrap();
    let (pd, mut cq) = (m.pd(), m.cq(6));
    let spec = Machine::spec(pd, &cq);
    let mr = m.mr(pd, 4096);
    let (mut a, mut b) = (m.qp(&spec), m.qp(&spec));
    let connect = |m: &mut Machine, qp: &TestQp, peer: Number, [gid, gid_high]: [u64; 2]| {
        m.set_state(qp.number, qp_state::INIT).unwrap();
        let context = QpContext {
            state: qp_state::RTR,
            peer,
            gid,
            gid_high,
            ..QpContext::default()
        };
        let mask = qp_mask::STATE | qp_mask::PEER;
        m.modify(qp.number, mask, &context).unwrap();
        m.set_state(qp.number, qp_state::RTS).unwrap();
    };
    connect(&mut m, &a, b.number, FIRST);
    connect(&mut m, &b, a.number, [0; 2]);
    m.recv(&mut b, 1, &[mr.sge(0, 64)]);
    m.send(&mut a, wqe(work::SEND, 2), &[mr.sge(64, 64)]);
    let done = m.drain(&mut cq);
    assert!(done.len() == 2 && done.iter().all(|cqe| cqe.status == 0));
    // The same number at another port is another peer.
    let (mut c, d) = (m.qp(&spec), m.qp(&spec));
    connect(&mut m, &c, d.number, SECOND);
    connect(&mut m, &d, c.number, FIRST);
    let queried = |m: &mut Machine, qp: Number| {
        let is = m.query_qp(qp);
        (is.peer, [is.gid, is.gid_high])
    };
    assert_eq!(queried(&mut m, c.number), (d.number, SECOND));
    assert_eq!(queried(&mut m, d.number), (c.number, [0; 2]));
    m.send(&mut c, wqe(work::SEND, 3), &[mr.sge(64, 64)]);
    let done = m.drain(&mut cq);
    assert_eq!(outcome(&done[0]), (Status::RetryExceeded, Detail::NoPeer));
    m.set_state(c.number, qp_state::RESET).unwrap();
    assert_eq!(queried(&mut m, c.number), (Number::default(), [0; 2]));
}

fn a_region_of_all_memory() {
    let mut m = Machine::new();
    let (pd, mut cq) = (m.pd(), m.cq(6));
    let spec = Machine::spec(pd, &cq);
    let (mut a, mut b) = m.pair(&spec, &spec);
    let all = MrContext {
        pd,
        access: access::LOCAL_WRITE,
        flags: mr_flags::ALL_MEMORY,
        ..MrContext::default()
    };
    for wrong in [
        MrContext { addr: 8, ..all },
        MrContext {
            buffer: BufferList {
                bytes: 64,
                ..BufferList::default()
            },
            ..all
        },
    ] {
        let made = m.create(kind::MR, &wrong.encode());
        assert_eq!(made, Err(AdminError::Buffer));
    }
    let unknown = MrContext { flags: 2, ..all };
    let made = m.create(kind::MR, &unknown.encode());
    assert_eq!(made, Err(AdminError::Reserved));
    let key = m.create(kind::MR, &all.encode()).unwrap();
    let from = m.memory.alloc(4096, 64, Grant::Read);
    let into = m.memory.alloc(4096, 64, Grant::Write);
    let data = pattern(4096, 3);
    m.memory.set_bytes(from, &data);
    let piece = |addr: u64, bytes: u32| Sge {
        addr,
        bytes,
        lkey: key.raw(),
    };
    for _ in 0..3 {
        m.recv(&mut b, 1, &[piece(into, 4096)]);
        m.send(&mut a, wqe(work::SEND, 2), &[piece(from, 4096)]);
        let done = m.drain(&mut cq);
        assert!(done.len() == 2 && done.iter().all(|cqe| cqe.status == 0));
        assert_eq!(m.memory.bytes(into, 4096), data);
        m.f.unmap_all();
    }
    // What is no memory cannot be read.
    m.memory.set_lenient(true);
    m.recv(&mut b, 1, &[piece(into, 4096)]);
    m.send(&mut a, wqe(work::SEND, 2), &[piece(u64::MAX - 8, 8)]);
    let done = m.drain(&mut cq);
    assert!(
        done.iter().any(|cqe| cqe.vendor == Detail::Dma.code()),
        "{done:?}"
    );
    m.destroy(kind::MR, key).unwrap();
}

fn the_address_of_the_network_device() {
    let mut m = Machine::new();
    let read = |m: &mut Machine| (m.f.reg_read(offset::MAC_LO), m.f.reg_read(offset::MAC_HI));
    assert_eq!((read(&mut m), m.f.mac()), ((0, 0), String::new()));
    m.f.set_mac("52:54:00:12:34:Ab").unwrap();
    assert_eq!(read(&mut m), (0x1200_5452, 0xab34));
    assert_eq!(m.f.mac(), "52:54:00:12:34:ab");
    for wrong in [
        "52:54:00:12:34",
        "52:54:00:12:34:56:78",
        "53:54:00:12:34:56",
        "00:00:00:00:00:00",
        "5:54:00:12:34:56",
        "+2:54:00:12:34:56",
        "525400123456",
        "x",
    ] {
        assert!(m.f.set_mac(wrong).is_err(), "{wrong}");
    }
    m.f.reset();
    assert_eq!(read(&mut m), (0x1200_5452, 0xab34), "through a reset");
    m.f.set_mac("").unwrap();
    assert_eq!(read(&mut m), (0, 0));
}
