// SPDX-License-Identifier: GPL-2.0
//! Arbitrary software: what it does in each step is chosen by numbers, random ones or those of a
//! fuzzer.

use super::*;
use qpair_abi::command::*;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::regs::offset;
use qpair_abi::Number;
use qpair_model::Config;
use qpair_testkit::Rng;

/// A bit of the addresses of memory that the device may not access. No word of the driver has it, so
/// no list names this memory either.
const GUARD: u64 = 1 << 62;

/// The most work of a turn: its bytes are read and written, and there are rings and lists.
const MOST_OF_TURN: u64 = 4 * (64 << 10);

/// Connected queue pairs, and a driver that does anything with them and with the device.
pub struct Anything {
    p: Pair,
    keys: Vec<u32>,
    others: Others,
}

impl Anything {
    pub fn new(rng: &mut Rng) -> Self {
        let unreliable = rng.one_in(4);
        let config = Config {
            inline: rng.one_in(2),
            async_events: 3,
            ..few_objects()
        };
        let mut p = Pair::on(Machine::with(config.clone()), |a, b| {
            if unreliable {
                (a.service, b.service) = (service::UC, service::UC);
            } else {
                (a.retry, a.rnr_retry) = (7, 7);
                (b.retry, b.rnr_retry) = (3, 6);
                (a.flags, b.flags) = (qp_flags::REGISTERS, qp_flags::REGISTERS);
            }
        });
        p.m.memory.set_lenient(true);
        // A core that works in doorbells gives 256 turns there, another one two.
        p.m.most_work = if config.inline { 258 } else { 2 } * MOST_OF_TURN;
        let keys = [&keys(&mut p)[..], &guarded(&mut p)].concat();
        let others = Others::new(&mut p);
        Self { p, keys, others }
    }

    /// Does one thing.
    pub fn step(&mut self, rng: &mut Rng) {
        let p = &mut self.p;
        match rng.below(18) {
            0..4 => {
                let mut words = half_right(rng, p, &self.keys);
                words.iter_mut().for_each(|word| *word &= !GUARD);
                let qp = if rng.one_in(4) { &mut p.b } else { &mut p.a };
                p.m.post_words(qp, &words);
                p.m.ring_sq(qp);
            }
            4..6 => {
                let sges = sges(rng, &p.mr_b, &p.mr_a, &self.keys);
                p.m.post_recv(&mut p.b, 1, &sges);
                p.m.ring(0, doorbell::RQ, p.b.number, p.b.rq_tail);
            }
            6 => {
                let place = rng.below(9) * 8;
                let eq = Number::new(1, 1);
                let number =
                    rng.pick(&[p.a.number, p.cq_a.number, p.cq_b.number, Number::ADMIN, eq]);
                p.m.ring(rng.below(2) as u16, place, number, rng.odd() as u32);
            }
            7 => modify_qp(p, rng),
            8 => {
                let kinds = [kind::QP, kind::CQ, kind::MR, kind::PD, kind::EQ, kind::MW];
                let kind = rng.pick(&kinds);
                if rng.one_in(6) {
                    let number = number(p, kind, rng);
                    post(p, kind, verb::DESTROY, number, 0, &[]);
                }
            }
            9 => _ = p.m.f.run(rng.below(4) as u32),
            10 => p.m.f.host_mut().now += rng.below(1 << 24),
            11 => {
                p.done_a();
                p.done_b();
                p.m.events0();
                p.m.admin_done();
            }
            12 => p.m.arm(&p.cq_a),
            13 => disturb(&mut p.m, rng),
            14 => {
                // Any word of any ring.
                let ring = rng.pick(&[p.a.sq, p.b.rq, p.cq_a.ring.addr, p.m.eq0.ring.addr]);
                p.m.memory
                    .set_word(ring + rng.below(64) * 8, rng.odd() & !GUARD);
            }
            15 => p.m.pass(rng.below(1 << 23)),
            _ => self.others.act(p, rng, &self.keys),
        }
    }

    /// Checks that the device ends what it has, and works after a reset.
    pub fn works(mut self) {
        self.p.m.f.set_stall(false);
        self.p.m.f.set_vanish(false);
        self.p.m.f.set_halted(false);
        self.p.m.pass(1 << 40);
        works_after_reset(&mut self.p.m);
    }
}

/// Changes a queue pair of the pair.
fn modify_qp(p: &mut Pair, rng: &mut Rng) {
    let numbers = [p.a.number, p.b.number, p.cq_a.number, p.cq_b.number];
    let mut context = QpContext {
        state: rng.below(7) as u8,
        peer: rng.pick(&numbers),
        access: rng.below(16) as u8,
        retry: rng.below(9) as u8,
        rnr_retry: rng.below(9) as u8,
        timeout: rng.below(35) as u8,
        min_rnr_timer: rng.below(35) as u8,
        ..QpContext::default()
    };
    if rng.one_in(2) {
        context.peer = numbers[usize::from(context.state & 1)];
    }
    let drains = qp_mask::STATE | qp_mask::NOTIFY;
    let any = rng.below(256) as u32;
    let mask = rng.pick(&[any & 31, qp_mask::TIMERS, drains, any]);
    let qp = number(p, kind::QP, rng);
    post(p, kind::QP, verb::MODIFY, qp, mask, &context.encode());
}

/// What the machine does to a device, beside its driver.
fn disturb(m: &mut Machine, rng: &mut Rng) {
    match rng.below(14) {
        0 => m.f.set_stall(rng.one_in(2)),
        1 => m.f.fail_command(rng.below(4) as u32),
        2 => m.f.drop_interrupts(rng.below(3) as u32),
        3 => m.f.delay_interrupts(rng.below(5000)),
        4 => m.f.set_wqe_ns(rng.below(2) * rng.below(10_000)),
        5 => m.f.set_core_delay(rng.below(2) * rng.below(10_000)),
        6 => _ = m.f.inject_cqe(rng.below(4) as u16, [rng.odd(); 4]),
        7 if rng.one_in(3) => _ = m.f.inject_eqe(0, [rng.odd(); 2]),
        8 => m.f.host_mut().maps = rng.one_in(2),
        9 => m.f.unmap(rng.odd(), rng.odd()),
        10 if rng.one_in(20) => m.f.go_fatal(),
        11 => m.f.set_vanish(rng.one_in(2)),
        12 => m.f.set_halted(rng.one_in(2)),
        _ => m.f.unmap_all(),
    }
}

/// Checks that a device works after a reset, whatever was asked of it before.
pub fn works_after_reset(m: &mut Machine) {
    m.f.set_stall(false);
    m.f.set_vanish(false);
    m.f.set_halted(false);
    m.f.fail_command(0);
    m.f.drop_interrupts(0);
    m.f.delay_interrupts(0);
    m.f.set_core_delay(0);
    m.f.set_wqe_ns(0);
    m.f.reg_write(offset::CTRL, 2);
    assert_eq!(m.memory.live_maps(), 0);
    m.memory.take_work();
    m.f.host_mut().raised.clear();
    m.pass(1 << 40);
    assert_eq!(m.memory.take_work(), 0, "it accesses memory after a reset");
    assert_eq!(m.f.host().raised, []);
    m.memory.set_lenient(false);
    m.first = 0;
    m.bring_up(5, 4, 5);
    let (pd, mut cq) = (m.pd(), m.cq(4));
    let mut qp = m.qp(&Machine::spec(pd, &cq));
    m.connect(qp.number, qp.number);
    m.send(&mut qp, wqe(work::NOP, 5), &[]);
    assert_eq!(m.drain(&mut cq)[0].wr_id, 5);
}

/// The keys of a window of each type, of a registered FRMR of either domain, and of a free one.
pub fn keys(p: &mut Pair) -> [u32; 5] {
    let windows = [(p.pd_a, mw_type::ONE), (p.pd_b, mw_type::TWO)];
    let [one, two] = windows.map(|(pd, kind)| p.m.mw(pd, kind).1);
    let [first, second] = [(p.pd_a, p.mr_a), (p.pd_b, p.mr_b)]
        .map(|(pd, mr)| p.m.registered(pd, mr.va, block(mr.addr, 5000)));
    [one, two, first, second, p.m.frmr(p.pd_a).1]
}

/// The keys of a region of another domain, which nothing may access, and of one that is only read.
/// Memory follows that no region has.
fn guarded(p: &mut Pair) -> [u32; 2] {
    const BYTES: u64 = 8192;
    let other = p.m.pd();
    let regions = [
        (other, access::ALL, None),
        (p.pd_b, access::REMOTE_READ, Some(Grant::Read)),
    ];
    let mut at = GUARD;
    regions.map(|(pd, access, grant)| {
        // Far above all that a region of other memory may have.
        at += 1 << 50;
        p.m.memory.guard(at..at + (1 << 20));
        if let Some(grant) = grant {
            p.m.memory.grant(at, BYTES, grant);
        }
        p.m.mr_over(pd, p.mr_b.va, at, BYTES, access).key.raw()
    })
}

/// A mostly valid WQE, so that many checks pass.
pub fn half_right(rng: &mut Rng, p: &Pair, keys: &[u32]) -> Vec<u64> {
    let mut request = p.remote(rng.below(15) as u8, rng.below(1 << 12));
    request.flags = rng.pick(&[0, 1, 1, 1, 3, 5, 9, 8, 255]);
    if rng.one_in(8) {
        request.remote_addr = rng.odd();
    }
    if rng.one_in(8) {
        let wild = rng.odd() as u32;
        request.rkey = rng.pick(&[p.mr_a.key.raw(), wild]);
    }
    if rng.one_in(4) {
        request.rkey = rng.pick(keys) | rng.below32(3);
        request.imm = request.rkey;
    }
    if rng.one_in(10) {
        request.blocks = rng.below(6) as u8;
    }
    if rng.one_in(10) {
        request.inline_bytes = rng.odd() as u32;
    }
    let sges = sges(rng, &p.mr_a, &p.mr_b, keys);
    let mut words = match request.opcode {
        work::COMPARE_SWAP | work::FETCH_ADD => {
            let atomic = AtomicWqe {
                remote_addr: request.remote_addr & !rng.pick(&[0, 7, 7, 7]),
                rkey: request.rkey,
                inline_bytes: request.inline_bytes,
                ..p.atomic(request.opcode, 0, rng.below(3), rng.odd())
            };
            let sges = sges.get(..rng.pick(&[1, 1, 1, 2])).unwrap_or(&[]);
            atomic_words(atomic, sges)
        }
        work::BIND => bind_words(BindWqe {
            access: rng.below(70) as u32,
            ..Pair::bind(
                rng.pick(keys) | rng.below32(3),
                rng.pick(&[&p.mr_a, &p.mr_b]),
                rng.below(1 << 19),
                rng.below(9000),
            )
        }),
        work::REG_MR => {
            let (key, addr) = (request.rkey, request.remote_addr);
            let mr = rng.pick(&[p.mr_a, p.mr_b]);
            let wqe = RegWqe {
                access: rng.below(18) as u32,
                ..registration(key, addr, block(mr.addr, rng.below(1 << 20)))
            };
            wqe.encode().to_vec()
        }
        _ => wqe_words(request, &sges),
    };
    if rng.one_in(10) {
        let at = rng.below(words.len() as u64) as usize;
        words[at] = rng.odd();
    }
    words
}

pub fn sges(rng: &mut Rng, mr: &TestMr, other: &TestMr, keys: &[u32]) -> Vec<Sge> {
    (0..rng.below(4))
        .map(|_| {
            let mut sge = mr.sge(rng.below(1 << 19), rng.below(5000) as u32);
            match rng.below(24) {
                0 => sge.addr = rng.odd() & !GUARD,
                1 => sge.bytes = rng.odd() as u32,
                2 => sge.lkey = rng.odd() as u32,
                3 => sge.lkey = other.key.raw(),
                4 => sge.bytes = 1 << 18,
                5 => {
                    sge.addr = mr.va + rng.below(5000);
                    sge.lkey = rng.pick(keys) | rng.below32(3);
                }
                _ => {}
            }
            sge
        })
        .collect()
}

/// One of the pair's objects.
fn number(p: &Pair, kind: u8, rng: &mut Rng) -> Number {
    match kind {
        kind::QP => rng.pick(&[p.a.number, p.b.number]),
        kind::CQ => rng.pick(&[p.cq_a.number, p.cq_b.number]),
        kind::MR => rng.pick(&[p.mr_a.key, p.mr_b.key]),
        kind::PD => p.pd_a,
        _ => Number::ADMIN,
    }
}

/// Posts a command, and does not wait.
fn post(p: &mut Pair, kind: u8, verb: u8, number: Number, mask: u32, words: &[u64]) {
    let context = if words.is_empty() { 0 } else { p.m.context };
    p.m.memory.set_words(p.m.context, words);
    let command = Command {
        opcode: opcode(kind, verb),
        blocks: 1,
        number,
        context,
        mask,
        context_bytes: words.len() as u32 * 8,
        ..Command::default()
    };
    p.m.post_command(&Machine::command_words(&command));
}

/// What a pair of RC or UC does not have.
struct Others {
    srq: TestSrq,
    /// Its peer takes the receives of the SRQ.
    sender: TestQp,
    ud: TestQp,
    /// Memory for rings that are resized.
    ring: u64,
}

impl Others {
    fn new(p: &mut Pair) -> Self {
        let (pd, cq) = (p.pd_b, p.cq_b);
        let srq = p.m.srq(pd, 4);
        let first = QpSpec {
            retry: 3,
            rnr_retry: 2,
            ..Machine::spec(pd, &cq)
        };
        let second = QpSpec {
            srq: Some(srq.number),
            ..first
        };
        let (sender, _) = p.m.pair(&first, &second);
        let ud = p.m.qp(&ud_spec(pd, &cq));
        ud_start(&mut p.m, ud.number, KEY);
        Self {
            srq,
            sender,
            ud,
            ring: p.m.memory.alloc(1 << 12, 4096, Grant::Write),
        }
    }

    fn act(&mut self, p: &mut Pair, rng: &mut Rng, keys: &[u32]) {
        let sges = sges(rng, &p.mr_b, &p.mr_a, keys);
        let group = GROUP.map(|word| if rng.one_in(8) { rng.odd() } else { word });
        let log_depth = rng.below(7) as u8;
        match rng.below(8) {
            0 | 1 => {
                p.m.post(&mut self.sender, wqe(work::SEND, 1), &sges);
                p.m.ring_sq(&self.sender);
            }
            2 => {
                p.m.post_shared(&mut self.srq, 1, &sges[..sges.len().min(3)]);
                p.m.ring_srq(&self.srq);
            }
            3 => {
                let datagram = UdWqe {
                    opcode: work::SEND,
                    dest: rng.pick(&[Number::GROUP, self.ud.number, p.a.number]),
                    q_key: KEY,
                    gid: group[0],
                    gid_high: group[1],
                    ..UdWqe::default()
                };
                p.m.post_words(&mut self.ud, &ud_words(datagram, &sges));
                p.m.ring_sq(&self.ud);
            }
            4 => {
                let verb = rng.pick(&[verb::ATTACH, verb::DETACH]);
                let member = rng.pick(&[self.ud.number, self.ud.number, p.a.number]);
                post(p, kind::QP, verb, member, 0, &group);
            }
            5 => {
                let entry = Number::from_raw(rng.below(3) as u32);
                let gid = rng.pick(&[GID, GID, group, [0, 0]]);
                post(p, kind::GID, verb::MODIFY, entry, 0, &gid);
            }
            6 => {
                let context = SrqContext {
                    limit: rng.below(20) as u32,
                    log_depth,
                    buffer: block(self.ring, 1 << 12),
                    ..SrqContext::default()
                };
                let mask = rng.below(u64::from(srq_mask::ALL) + 1) as u32;
                let srq = self.srq.number;
                post(p, kind::SRQ, verb::MODIFY, srq, mask, &context.encode());
            }
            _ => {
                let context = CqContext {
                    log_depth,
                    buffer: block(self.ring, 1 << 12),
                    ..CqContext::default()
                };
                let cq = number(p, kind::CQ, rng);
                post(p, kind::CQ, verb::MODIFY, cq, 0, &context.encode());
            }
        }
    }
}
