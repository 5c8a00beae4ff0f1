// SPDX-License-Identifier: GPL-2.0
//! The way of frames to a peer: PATH and SQ_PSN.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::status::AdminError;
use qpair_abi::Number;
use qpair_model::Config;

checks![
    a_path_is_kept,
    a_path_belongs_to_a_peer,
    a_path_has_limits,
    numbers_belong_to_a_step,
    nothing_of_it_without_a_wire,
    datagrams_have_no_path,
];

/// The own GID of IPv4, and one of IPv6.
const OWN: [u64; 2] = [0, 0x0100_000a_ffff_0000];
const OWN6: [u64; 2] = [0x80fe, 0x11];
const PEER: [u64; 2] = [0, 0x0200_000a_ffff_0000];
const WITH_PATH: u32 = qp_mask::STATE | qp_mask::PEER | qp_mask::PATH;

/// A function that is wired, and a queue pair in INIT.
fn wired(service: u8) -> (Machine, Number) {
    let mut m = Machine::with(Config {
        wired: true,
        ..Config::default()
    });
    for (entry, [gid, gid_high]) in [(3, OWN), (4, OWN6)] {
        let context = GidContext { gid, gid_high };
        let entry = Number::from_raw(entry);
        m.with_context(kind::GID, verb::MODIFY, entry, 0, &context.encode())
            .unwrap();
    }
    let (pd, cq) = (m.pd(), m.cq(4));
    let spec = QpSpec {
        service,
        access: if service == service::UD {
            0
        } else {
            access::GRANTS
        },
        ..Machine::spec(pd, &cq)
    };
    let qp = m.qp(&spec).number;
    m.set_state(qp, qp_state::INIT).unwrap();
    (m, qp)
}

fn path() -> QpContext {
    QpContext {
        state: qp_state::RTR,
        peer: Number::from_raw(0x12_3456),
        gid: PEER[0],
        gid_high: PEER[1],
        log_mtu: 10,
        source: 3,
        peer_reads: READS,
        mac_low: 0x0302_0152,
        mac_high: 0x0504,
        traffic_class: 7,
        hop_limit: 64,
        flow_label: 0xf_ffff,
        rq_psn: 0xff_ffff,
        ..QpContext::default()
    }
}

fn a_path_is_kept() {
    for service in [service::RC, service::UC] {
        let (mut m, qp) = wired(service);
        m.modify(qp, WITH_PATH, &path()).unwrap();
        let to_rts = QpContext {
            state: qp_state::RTS,
            sq_psn: 0xff_fffe,
            reads: 5,
            ..QpContext::default()
        };
        m.modify(qp, qp_mask::STATE | qp_mask::SQ_PSN, &to_rts)
            .unwrap();
        let is = m.query_qp(qp);
        let kept = QpContext {
            state: qp_state::RTS,
            sq_psn: 0xff_fffe,
            reads: 5,
            ..path()
        };
        let fields = |it: &QpContext| {
            let ends = (it.state, it.peer, it.gid, it.gid_high);
            let way = (it.log_mtu, it.source, it.mac_low, it.mac_high);
            let header = (it.traffic_class, it.hop_limit, it.flow_label);
            (
                ends,
                way,
                header,
                (it.sq_psn, it.rq_psn, it.reads, it.peer_reads),
            )
        };
        assert_eq!(fields(&is), fields(&kept));
        // A queue pair that begins anew has none.
        m.set_state(qp, qp_state::RESET).unwrap();
        let is = m.query_qp(qp);
        assert_eq!((is.log_mtu, is.mac_low, is.sq_psn, is.rq_psn), (0, 0, 0, 0));
    }
}

fn a_path_belongs_to_a_peer() {
    let (mut m, qp) = wired(service::RC);
    let alone = m.modify(qp, qp_mask::PATH, &path());
    assert_eq!(alone, Err(AdminError::Attribute));
    // Another peer has another path, or none.
    let in_init = QpContext {
        state: qp_state::INIT,
        ..path()
    };
    m.modify(qp, qp_mask::PEER | qp_mask::PATH, &in_init)
        .unwrap();
    assert_eq!(m.query_qp(qp).log_mtu, 10);
    m.modify(qp, qp_mask::PEER, &in_init).unwrap();
    assert_eq!(m.query_qp(qp).log_mtu, 0);
    m.modify(qp, WITH_PATH, &path()).unwrap();
    let late = m.modify(qp, qp_mask::PEER | qp_mask::PATH, &path());
    assert_eq!(late, Err(AdminError::Transition));
}

fn a_path_has_limits() {
    let (mut m, qp) = wired(service::RC);
    let changes: [fn(&mut QpContext); 9] = [
        |path| path.log_mtu = 7,
        |path| path.log_mtu = 13,
        |path| path.log_mtu = 0,
        |path| path.source = 5,
        |path| path.source = GIDS as u16,
        // Of IPv6, and the peer of IPv4.
        |path| path.source = 4,
        |path| path.peer_reads = READS + 1,
        |path| path.flow_label = 1 << 20,
        |path| path.rq_psn = 1 << 24,
    ];
    for change in changes {
        let mut bad = path();
        change(&mut bad);
        let done = m.modify(qp, WITH_PATH, &bad);
        assert_eq!(done, Err(AdminError::Attribute), "{bad:?}");
    }
    assert_eq!(m.query_qp(qp).state, qp_state::INIT);
    m.modify(qp, WITH_PATH, &path()).unwrap();
    for (sq_psn, reads) in [(1 << 24, 1), (0, READS + 1)] {
        let bad = QpContext {
            state: qp_state::RTS,
            sq_psn,
            reads,
            ..QpContext::default()
        };
        let done = m.modify(qp, qp_mask::STATE | qp_mask::SQ_PSN, &bad);
        assert_eq!(done, Err(AdminError::Attribute));
    }
    assert_eq!(m.query_qp(qp).state, qp_state::RTR);
}

fn numbers_belong_to_a_step() {
    let (mut m, qp) = wired(service::RC);
    let done = m.modify(qp, WITH_PATH | qp_mask::SQ_PSN, &path());
    assert_eq!(done, Err(AdminError::Transition));
    m.modify(qp, WITH_PATH, &path()).unwrap();
    let done = m.modify(qp, qp_mask::SQ_PSN, &path());
    assert_eq!(done, Err(AdminError::Transition));
}

fn nothing_of_it_without_a_wire() {
    let mut m = Machine::new();
    let (pd, cq) = (m.pd(), m.cq(4));
    let qp = m.qp(&Machine::spec(pd, &cq)).number;
    m.set_state(qp, qp_state::INIT).unwrap();
    let done = m.modify(qp, WITH_PATH, &path());
    assert_eq!(done, Err(AdminError::Attribute));
    m.set_state(qp, qp_state::RTR).unwrap();
    let to_rts = QpContext {
        state: qp_state::RTS,
        ..QpContext::default()
    };
    let done = m.modify(qp, qp_mask::STATE | qp_mask::SQ_PSN, &to_rts);
    assert_eq!(done, Err(AdminError::Attribute));
}

fn datagrams_have_no_path() {
    let (mut m, qp) = wired(service::UD);
    let done = m.modify(qp, WITH_PATH, &path());
    assert_eq!(done, Err(AdminError::Attribute));
}
