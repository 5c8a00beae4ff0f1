// SPDX-License-Identifier: GPL-2.0
//! Two queue pairs on two machines of a network.

use super::driver::*;
use super::lan::*;
use super::objects::*;
use super::ud::KEY;
use qpair_abi::command::*;
use qpair_abi::entry::*;
use qpair_abi::Number;
use qpair_testkit::Rng;

/// How they are connected.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    pub service: u8,
    /// By GIDs of IPv6.
    pub ipv6: bool,
    pub log_mtu: u8,
    /// The first PSN of each.
    pub psns: [u32; 2],
    pub reads: u8,
    pub timeout: u8,
    pub min_rnr_timer: u8,
    pub retry: u8,
    pub rnr_retry: u8,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            service: service::RC,
            ipv6: false,
            log_mtu: 10,
            // The numbers wrap.
            psns: [0xff_fffd, 7],
            reads: 4,
            timeout: 10,
            min_rnr_timer: 12,
            retry: 7,
            rnr_retry: 7,
        }
    }
}

/// Where the table has the GID of IPv6.
const SOURCE6: u16 = SOURCE + 1;

pub fn gid6_at(place: usize) -> [u64; 2] {
    [0x80fe, (place as u64 + 1) << 56]
}

/// Two queue pairs that are connected, each with a CQ, a PD and a region of 1 MiB of its own.
pub struct Far {
    pub lan: Lan,
    pub connection: Connection,
    pub qps: Vec<TestQp>,
    pub cqs: Vec<TestCq>,
    pub pds: Vec<Number>,
    pub mrs: Vec<TestMr>,
}

impl Far {
    pub fn new() -> Self {
        Self::with(Connection::default())
    }

    pub fn with(connection: Connection) -> Self {
        Self::on(Lan::new(2), connection)
    }

    pub fn on_line(line: Line, seed: u64, connection: Connection) -> Self {
        Self::on(Lan::with(2, Rng::new(seed), line), connection)
    }

    pub fn on(lan: Lan, connection: Connection) -> Self {
        let mut far = Self {
            lan,
            connection,
            qps: Vec::new(),
            cqs: Vec::new(),
            pds: Vec::new(),
            mrs: Vec::new(),
        };
        for (place, m) in far.lan.machines.iter_mut().enumerate() {
            m.set_gid(SOURCE6.into(), gid6_at(place)).unwrap();
            let (pd, cq) = (m.pd(), m.cq(9));
            let spec = QpSpec {
                service: connection.service,
                log_sq: 8,
                log_rq: 8,
                stride: 1,
                access: match connection.service {
                    service::UD => 0,
                    _ => Machine::spec(pd, &cq).access,
                },
                ..Machine::spec(pd, &cq)
            };
            far.qps.push(m.qp(&spec));
            far.mrs.push(m.mr(pd, 1 << 20));
            far.pds.push(pd);
            far.cqs.push(cq);
        }
        for place in [0, 1] {
            far.connect(place);
        }
        far
    }

    /// The context of PATH of one of them.
    pub fn path(&self, place: usize) -> QpContext {
        let peer = 1 - place;
        let ([gid, gid_high], source) = match self.connection.ipv6 {
            true => (gid6_at(peer), SOURCE6),
            false => (gid_at(peer), SOURCE),
        };
        let (mac_low, mac_high) = mac_at(peer);
        QpContext {
            state: qp_state::RTR,
            peer: self.qps[peer].number,
            gid,
            gid_high,
            mac_low,
            mac_high,
            log_mtu: self.connection.log_mtu,
            source,
            hop_limit: 64,
            rq_psn: self.connection.psns[peer],
            peer_reads: self.connection.reads,
            ..QpContext::default()
        }
    }

    /// From RESET to RTS.
    pub fn connect(&mut self, place: usize) {
        self.bring_to(place, qp_state::RTS);
    }

    /// From RESET to this state.
    pub fn bring_to(&mut self, place: usize, state: u8) {
        use qp_mask::*;
        use qp_state::*;
        let (c, qp) = (self.connection, self.qps[place].number);
        let to_rts = QpContext {
            sq_psn: c.psns[place],
            reads: c.reads,
            timeout: c.timeout,
            min_rnr_timer: c.min_rnr_timer,
            retry: c.retry,
            rnr_retry: c.rnr_retry,
            ..QpContext::default()
        };
        let to_init = QpContext {
            q_key: KEY,
            ..QpContext::default()
        };
        let (init, rtr, rts) = match c.service {
            service::RC => (0, PEER | PATH, SQ_PSN | RETRY | TIMERS),
            service::UC => (0, PEER | PATH, SQ_PSN),
            _ => (Q_KEY, 0, 0),
        };
        let steps = [
            (INIT, init, to_init),
            (RTR, rtr, self.path(place)),
            (RTS, rts, to_rts),
            (SQD, 0, QpContext::default()),
            (ERROR, 0, QpContext::default()),
        ];
        for (to, mask, context) in steps {
            let passes = to < state && to <= RTS;
            if passes || to == state {
                let context = QpContext {
                    state: to,
                    ..context
                };
                self.m(place).modify(qp, STATE | mask, &context).unwrap();
            }
        }
    }

    /// A queue pair begins anew.
    pub fn reset(&mut self, place: usize) {
        let m = &mut self.lan.machines[place];
        m.set_state(self.qps[place].number, qp_state::RESET)
            .unwrap();
        (self.qps[place].sq_tail, self.qps[place].rq_tail) = (0, 0);
    }

    pub fn m(&mut self, place: usize) -> &mut Machine {
        &mut self.lan.machines[place]
    }

    pub fn state(&mut self, place: usize) -> u8 {
        let qp = self.qps[place].number;
        self.m(place).query_qp(qp).state
    }

    /// A request of the first to the region of the second.
    pub fn remote(&self, opcode: u8, at: u64) -> SendWqe {
        SendWqe {
            remote_addr: self.mrs[1].va + at,
            rkey: self.mrs[1].key.raw(),
            ..super::wqe(opcode, 1)
        }
    }

    pub fn atomic(&self, opcode: u8, at: u64, compare_add: u64, swap: u64) -> AtomicWqe {
        AtomicWqe {
            opcode,
            flags: send_flags::SIGNALED,
            wr_id: 1,
            remote_addr: self.mrs[1].va + at,
            rkey: self.mrs[1].key.raw(),
            compare_add,
            swap,
            ..AtomicWqe::default()
        }
    }

    /// Posts blocks of the first, without a pause.
    pub fn post_words(&mut self, words: &[u64]) {
        let (m, qp) = (&mut self.lan.machines[0], &mut self.qps[0]);
        m.post_words(qp, words);
        m.ring_sq(qp);
    }

    pub fn post(&mut self, wqe: SendWqe, sges: &[Sge]) {
        self.post_words(&super::wqe_words(wqe, sges));
    }

    /// Posts a request of the first, and goes on until all is quiet.
    pub fn send(&mut self, wqe: SendWqe, sges: &[Sge]) {
        self.post(wqe, sges);
        self.lan.settle();
    }

    /// Posts a receive of the second.
    pub fn recv(&mut self, wr_id: u64, sges: &[Sge]) {
        let (m, qp) = (&mut self.lan.machines[1], &mut self.qps[1]);
        m.recv(qp, wr_id, sges);
    }

    pub fn done(&mut self, place: usize) -> Vec<Cqe> {
        let (m, cq) = (&mut self.lan.machines[place], &mut self.cqs[place]);
        m.drain(cq)
    }

    pub fn set_bytes(&mut self, place: usize, at: u64, bytes: &[u8]) {
        let addr = self.mrs[place].addr + at;
        self.m(place).memory.set_bytes(addr, bytes);
    }

    pub fn bytes(&mut self, place: usize, at: u64, count: usize) -> Vec<u8> {
        let addr = self.mrs[place].addr + at;
        self.m(place).memory.bytes(addr, count)
    }
}
