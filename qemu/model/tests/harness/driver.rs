// SPDX-License-Identifier: GPL-2.0
//! A driver in a few lines: it keeps to the manual unless a test wants otherwise.

use super::Grant;
use super::Memory;
use super::TestHost;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::*;
use qpair_abi::regs::offset;
use qpair_abi::status::AdminError;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_model::Config;
use qpair_model::Function;
use qpair_model::Run;

/// A ring that hardware writes.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    pub addr: u64,
    pub log: u8,
    pub head: u32,
}

impl Reader {
    fn at(&self, entry: usize) -> u64 {
        let position = self.head & ((1 << self.log) - 1);
        self.addr + u64::from(position) * entry as u64
    }

    fn valid(&self, last: u64) -> bool {
        (last & OWNER != 0) != (self.head >> self.log & 1 != 0)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct TestCq {
    pub number: Number,
    pub page: u16,
    pub ring: Reader,
}

#[derive(Clone, Copy, Debug)]
pub struct TestEq {
    pub number: Number,
    pub vector: u16,
    pub ring: Reader,
}

#[derive(Clone, Copy, Debug)]
pub struct TestQp {
    pub number: Number,
    pub page: u16,
    pub sq: u64,
    pub log_sq: u8,
    pub sq_tail: u32,
    pub rq: u64,
    pub log_rq: u8,
    pub stride: u8,
    pub rq_tail: u32,
    pub send_cq: Number,
    pub recv_cq: Number,
}

/// What a QP is made with.
#[derive(Clone, Copy, Debug)]
pub struct QpSpec {
    pub pd: Number,
    pub send_cq: Number,
    pub recv_cq: Number,
    pub page: u16,
    pub log_sq: u8,
    pub log_rq: u8,
    pub stride: u8,
    pub access: u8,
    pub retry: u8,
    pub rnr_retry: u8,
}

/// A region of contiguous memory, of which the address space begins at `va`.
#[derive(Clone, Copy, Debug)]
pub struct TestMr {
    pub key: Number,
    pub va: u64,
    pub addr: u64,
    pub bytes: u64,
}

impl TestMr {
    pub fn sge(&self, from: u64, bytes: u32) -> Sge {
        Sge {
            addr: self.va + from,
            bytes,
            lkey: self.key.raw(),
        }
    }
}

/// What came back of a command.
pub type Outcome = Result<Cqe, AdminError>;

pub struct Machine {
    pub memory: Memory,
    pub f: Function<TestHost>,
    pub eq0: TestEq,
    pub cq0: TestCq,
    asq: u64,
    log_asq: u8,
    pub asq_tail: u32,
    pub context: u64,
    next_id: u64,
    /// Where new rings begin.
    pub first: u32,
}

/// Makes a level-0 list.
pub fn block(root: u64, bytes: u64) -> BufferList {
    BufferList {
        root,
        bytes,
        ..BufferList::default()
    }
}

impl Machine {
    /// A device that is up.
    pub fn new() -> Self {
        Self::with(Config::default())
    }

    pub fn with(config: Config) -> Self {
        let mut machine = Self::off(config);
        machine.bring_up(6, 4, 5);
        machine
    }

    /// A device that is up, and whose indices are about to wrap.
    pub fn starting_at(first: u32) -> Self {
        let mut machine = Self::off(Config::default());
        machine.first = first;
        machine.bring_up(6, 4, 5);
        machine
    }

    /// A device that is powered on.
    pub fn off(config: Config) -> Self {
        let memory = Memory::new();
        let host = TestHost::new(memory.clone());
        let none = Reader {
            addr: 0,
            log: 0,
            head: 0,
        };
        let context = memory.alloc(256, 64, Grant::Write);
        Self {
            f: Function::new(host, config).unwrap(),
            memory,
            eq0: TestEq {
                number: Number::ADMIN,
                vector: 0,
                ring: none,
            },
            cq0: TestCq {
                number: Number::ADMIN,
                page: 0,
                ring: none,
            },
            asq: 0,
            log_asq: 0,
            asq_tail: 0,
            context,
            next_id: 1,
            first: 0,
        }
    }

    pub fn reg_write64(&mut self, lo: u64, value: u64) {
        self.f.reg_write(lo, value as u32);
        self.f.reg_write(lo + 4, (value >> 32) as u32);
    }

    pub fn bring_up(&mut self, log_eq: u8, log_sq: u8, log_cq: u8) {
        let eq = self.memory.alloc(16 << log_eq, 64, Grant::Write);
        let sq = self.memory.alloc(64 << log_sq, 64, Grant::Read);
        let cq = self.memory.alloc(32 << log_cq, 64, Grant::Write);
        let first = self.first;
        self.f.set_first_index(first);
        let reader = |addr, log| Reader {
            addr,
            log,
            head: first,
        };
        self.eq0.ring = reader(eq, log_eq);
        self.cq0.ring = reader(cq, log_cq);
        (self.asq, self.log_asq, self.asq_tail) = (sq, log_sq, first);
        self.reg_write64(offset::EQ0_BASE_LO, eq);
        self.reg_write64(offset::ASQ_BASE_LO, sq);
        self.reg_write64(offset::ACQ_BASE_LO, cq);
        let depth = u32::from(log_cq) << 16 | u32::from(log_sq) << 8 | u32::from(log_eq);
        self.f.reg_write(offset::ADMIN_DEPTH, depth);
        self.f.reg_write(offset::CTRL, 1);
        assert_eq!(self.f.reg_read(offset::STATUS) & 0xff03, 1);
    }

    /// Lets the device work until it has nothing to do at this time.
    pub fn settle(&mut self) {
        for _ in 0..1_000_000 {
            let host = self.f.host_mut();
            let due = host.wake_at <= host.now;
            if !std::mem::take(&mut host.woken) && !due {
                return;
            }
            if due {
                host.wake_at = u64::MAX;
            }
            if self.f.run(8) == Run::More {
                self.f.host_mut().woken = true;
            }
        }
        panic!("the device never comes to rest");
    }

    /// Lets time pass, and the device work when it asked to.
    pub fn pass(&mut self, nanos: u64) {
        let until = self.f.host().now + nanos;
        loop {
            self.settle();
            let host = self.f.host_mut();
            if host.wake_at > until {
                host.now = until;
                break;
            }
            host.now = host.wake_at.max(host.now);
        }
        self.settle();
    }

    pub fn ring(&mut self, page: u16, place: u64, number: Number, index: u32) {
        let at = u64::from(page) * doorbell::PAGE_BYTES + place;
        self.f.doorbell(at, doorbell::value(number, index), 8);
    }

    // Completions and events.

    /// Reads the next CQE, without giving it back.
    pub fn poll(&mut self, cq: &mut TestCq) -> Option<Cqe> {
        let words = self.memory.words::<4>(cq.ring.at(Cqe::BYTES));
        if !cq.ring.valid(words[3]) {
            return None;
        }
        cq.ring.head = cq.ring.head.wrapping_add(1);
        let mut cqe = Cqe::decode(&words);
        cqe.flags &= !(1 << 7);
        Some(cqe)
    }

    /// All CQEs that are there, given back.
    pub fn drain(&mut self, cq: &mut TestCq) -> Vec<Cqe> {
        let cqes: Vec<_> = std::iter::from_fn(|| self.poll(cq)).collect();
        self.ring(cq.page, doorbell::CQ_HEAD, cq.number, cq.ring.head);
        cqes
    }

    pub fn arm(&mut self, cq: &TestCq) {
        self.ring(cq.page, doorbell::CQ_ARM_NEXT, cq.number, cq.ring.head);
    }

    pub fn arm_solicited(&mut self, cq: &TestCq) {
        self.ring(cq.page, doorbell::CQ_ARM_SOLICITED, cq.number, cq.ring.head);
    }

    pub fn event(&mut self, eq: &mut TestEq) -> Option<Eqe> {
        let words = self.memory.words::<2>(eq.ring.at(Eqe::BYTES));
        if !eq.ring.valid(words[1]) {
            return None;
        }
        eq.ring.head = eq.ring.head.wrapping_add(1);
        Some(Eqe::decode(&words))
    }

    /// All events that are there, the head published with unmasking.
    pub fn events(&mut self, eq: &mut TestEq) -> Vec<Eqe> {
        let events: Vec<_> = std::iter::from_fn(|| self.event(eq)).collect();
        self.ring(0, doorbell::EQ_HEAD, eq.number, eq.ring.head);
        events
    }

    /// All events of EQ 0.
    pub fn events0(&mut self) -> Vec<Eqe> {
        let mut eq = self.eq0;
        let events = self.events(&mut eq);
        self.eq0 = eq;
        events
    }

    /// How often interrupts were raised since the last time.
    pub fn raised(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.f.host_mut().raised)
    }

    // Commands.

    pub fn command_words(command: &Command) -> [u64; 8] {
        let mut words = [0; 8];
        words[..4].copy_from_slice(&command.encode());
        words
    }

    /// Posts a command, as it is.
    pub fn post_command(&mut self, words: &[u64; 8]) {
        let position = self.asq_tail & ((1 << self.log_asq) - 1);
        let at = self.asq + u64::from(position) * 64;
        self.memory.set_words(at, words);
        self.asq_tail = self.asq_tail.wrapping_add(1);
        self.ring(0, doorbell::SQ, Number::ADMIN, self.asq_tail);
    }

    pub fn admin_done(&mut self) -> Option<Cqe> {
        let mut cq = self.cq0;
        let cqe = self.poll(&mut cq);
        self.ring(0, doorbell::CQ_HEAD, Number::ADMIN, cq.ring.head);
        self.cq0 = cq;
        cqe
    }

    pub fn command(&mut self, mut command: Command) -> Outcome {
        command.blocks = 1;
        command.flags = send_flags::SIGNALED;
        command.wr_id = self.next_id;
        self.next_id += 1;
        self.post_command(&Self::command_words(&command));
        self.settle();
        let mut cqe = self.admin_done();
        while cqe.is_none() && self.f.host().wake_at != u64::MAX {
            let host = self.f.host();
            self.pass(host.wake_at.saturating_sub(host.now));
            cqe = self.admin_done();
        }
        let cqe = cqe.expect("a command completes");
        assert_eq!(cqe.wr_id, command.wr_id);
        assert_eq!((cqe.qp, cqe.opcode), (Number::ADMIN, command.opcode));
        assert_eq!(cqe.index, self.asq_tail);
        if cqe.status == Status::Success.code() {
            assert_eq!(cqe.vendor, 0);
            return Ok(cqe);
        }
        assert_eq!(cqe.status, Status::General.code());
        Err(AdminError::from_code(cqe.vendor).expect("an admin error"))
    }

    pub fn simple(&mut self, kind: u8, verb: u8, number: Number) -> Outcome {
        self.command(Command {
            opcode: opcode(kind, verb),
            number,
            ..Command::default()
        })
    }

    pub fn with_context(
        &mut self,
        kind: u8,
        verb: u8,
        number: Number,
        mask: u32,
        words: &[u64],
    ) -> Outcome {
        self.memory.set_words(self.context, words);
        self.command(Command {
            opcode: opcode(kind, verb),
            number,
            mask,
            context: self.context,
            context_bytes: words.len() as u32 * 8,
            ..Command::default()
        })
    }

    pub fn create(&mut self, kind: u8, words: &[u64]) -> Result<Number, AdminError> {
        let cqe = self.with_context(kind, verb::CREATE, Number::default(), 0, words)?;
        Ok(Number::from_raw(cqe.bytes))
    }

    pub fn destroy(&mut self, kind: u8, number: Number) -> Outcome {
        self.simple(kind, verb::DESTROY, number)
    }

    pub fn query<const N: usize>(&mut self, kind: u8, number: Number) -> [u64; N] {
        self.with_context(kind, verb::QUERY, number, 0, &[0; N])
            .expect("a query");
        self.memory.words(self.context)
    }

    pub fn query_qp(&mut self, number: Number) -> QpContext {
        QpContext::decode(&self.query(kind::QP, number))
    }

    pub fn query_cq(&mut self, number: Number) -> CqContext {
        CqContext::decode(&self.query(kind::CQ, number))
    }

    /// Payload bytes moved so far.
    pub fn query_moved(&self) -> u64 {
        let counters = [Counter::SendBytes, Counter::WriteBytes, Counter::ReadBytes];
        counters
            .iter()
            .map(|counter| self.f.counter(*counter))
            .sum()
    }

    /// Has a command done before any queue pair has another turn.
    fn command_now(&mut self, command: Command, words: &[u64]) {
        let command = Command {
            blocks: 1,
            context: if words.is_empty() { 0 } else { self.context },
            context_bytes: words.len() as u32 * 8,
            ..command
        };
        self.memory.set_words(self.context, words);
        self.f.set_stall(true);
        self.post_command(&Self::command_words(&command));
        // The queue pairs in line before it have to wait.
        self.f.set_stall(false);
        for _ in 0..100 {
            let before = self.query_moved();
            self.f.run(1);
            if let Some(cqe) = self.admin_done() {
                assert_eq!(cqe.status, Status::Success.code());
                return;
            }
            assert!(self.query_moved() - before <= 1 << 16, "a turn is bounded");
        }
        panic!("the admin queue pair is starved");
    }

    pub fn destroy_now(&mut self, kind: u8, number: Number) {
        let command = Command {
            opcode: opcode(kind, verb::DESTROY),
            number,
            ..Command::default()
        };
        self.command_now(command, &[]);
    }

    pub fn set_state_now(&mut self, qp: Number, state: u8) {
        let command = Command {
            opcode: opcode(kind::QP, verb::MODIFY),
            number: qp,
            mask: qp_mask::STATE,
            ..Command::default()
        };
        let context = QpContext {
            state,
            ..QpContext::default()
        };
        self.command_now(command, &context.encode());
    }

    // Objects.

    pub fn pd(&mut self) -> Number {
        let cqe = self.simple(kind::PD, verb::CREATE, Number::default());
        Number::from_raw(cqe.expect("a PD").bytes)
    }

    pub fn eq(&mut self, log: u8, vector: u16, count: u16, usecs: u16) -> TestEq {
        let addr = self.memory.alloc(16 << log, 64, Grant::Write);
        let context = EqContext {
            vector,
            log_depth: log,
            moderation_count: count,
            moderation_usecs: usecs,
            buffer: block(addr, 16 << log),
            ..EqContext::default()
        };
        let number = self.create(kind::EQ, &context.encode()).expect("an EQ");
        TestEq {
            number,
            vector,
            ring: Reader {
                addr,
                log,
                head: self.first,
            },
        }
    }

    pub fn cq_of(&mut self, eq: Number, log: u8, page: u16, flags: u8) -> TestCq {
        let addr = self.memory.alloc(32 << log, 64, Grant::Write);
        let context = CqContext {
            eq,
            page,
            log_depth: log,
            flags,
            buffer: block(addr, 32 << log),
            ..CqContext::default()
        };
        let number = self.create(kind::CQ, &context.encode()).expect("a CQ");
        TestCq {
            number,
            page,
            ring: Reader {
                addr,
                log,
                head: self.first,
            },
        }
    }

    pub fn cq(&mut self, log: u8) -> TestCq {
        self.cq_of(Number::ADMIN, log, 0, 0)
    }

    pub fn spec(pd: Number, cq: &TestCq) -> QpSpec {
        QpSpec {
            pd,
            send_cq: cq.number,
            recv_cq: cq.number,
            page: 0,
            log_sq: 4,
            log_rq: 4,
            stride: 0,
            access: access::REMOTE_WRITE | access::REMOTE_READ,
            retry: 0,
            rnr_retry: 0,
        }
    }

    pub fn qp_context(&mut self, spec: &QpSpec) -> QpContext {
        let sq_bytes = 64 << spec.log_sq;
        let rq_bytes = (64 << spec.stride) << spec.log_rq;
        QpContext {
            pd: spec.pd,
            page: spec.page,
            send_cq: spec.send_cq,
            recv_cq: spec.recv_cq,
            log_sq: spec.log_sq,
            log_rq: spec.log_rq,
            rq_stride: spec.stride,
            access: spec.access,
            retry: spec.retry,
            rnr_retry: spec.rnr_retry,
            sq: block(self.memory.alloc(sq_bytes, 64, Grant::Read), sq_bytes),
            rq: block(self.memory.alloc(rq_bytes, 64, Grant::Read), rq_bytes),
            ..QpContext::default()
        }
    }

    pub fn qp(&mut self, spec: &QpSpec) -> TestQp {
        let context = self.qp_context(spec);
        let number = self.create(kind::QP, &context.encode()).expect("a QP");
        TestQp {
            number,
            page: spec.page,
            sq: context.sq.root,
            log_sq: spec.log_sq,
            sq_tail: self.first,
            rq: context.rq.root,
            log_rq: spec.log_rq,
            stride: spec.stride,
            rq_tail: self.first,
            send_cq: spec.send_cq,
            recv_cq: spec.recv_cq,
        }
    }

    pub fn modify(&mut self, qp: Number, mask: u32, context: &QpContext) -> Outcome {
        self.with_context(kind::QP, verb::MODIFY, qp, mask, &context.encode())
    }

    pub fn set_state(&mut self, qp: Number, state: u8) -> Outcome {
        let context = QpContext {
            state,
            ..QpContext::default()
        };
        self.modify(qp, qp_mask::STATE, &context)
    }

    /// From RESET to RTR, with this peer.
    pub fn set_rtr(&mut self, qp: Number, peer: Number) {
        self.set_state(qp, qp_state::INIT).unwrap();
        let context = QpContext {
            state: qp_state::RTR,
            peer,
            ..QpContext::default()
        };
        self.modify(qp, qp_mask::STATE | qp_mask::PEER, &context)
            .unwrap();
    }

    pub fn connect(&mut self, qp: Number, peer: Number) {
        self.set_rtr(qp, peer);
        self.set_state(qp, qp_state::RTS).unwrap();
    }

    /// Two queue pairs that name each other.
    pub fn pair(&mut self, first: &QpSpec, second: &QpSpec) -> (TestQp, TestQp) {
        let (a, b) = (self.qp(first), self.qp(second));
        self.connect(a.number, b.number);
        self.connect(b.number, a.number);
        (a, b)
    }

    pub fn mr_at(&mut self, pd: Number, va: u64, bytes: u64, access: u8) -> TestMr {
        let addr = self.memory.alloc(bytes, 64, Grant::Write);
        let context = MrContext {
            pd,
            access,
            addr: va,
            buffer: block(addr, bytes),
        };
        let key = self.create(kind::MR, &context.encode()).expect("an MR");
        TestMr {
            key,
            va,
            addr,
            bytes,
        }
    }

    pub fn mr(&mut self, pd: Number, bytes: u64) -> TestMr {
        let all = access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ;
        self.mr_at(pd, 0x7000_0000_0000, bytes, all)
    }

    // Posting.

    /// Writes blocks into an SQ, without a doorbell.
    pub fn post_words(&mut self, qp: &mut TestQp, words: &[u64]) {
        for block in words.chunks(8) {
            let position = qp.sq_tail & ((1 << qp.log_sq) - 1);
            self.memory
                .set_words(qp.sq + u64::from(position) * 64, block);
            qp.sq_tail = qp.sq_tail.wrapping_add(1);
        }
    }

    pub fn post(&mut self, qp: &mut TestQp, wqe: SendWqe, sges: &[Sge]) {
        self.post_words(qp, &wqe_words(wqe, sges));
    }

    pub fn ring_sq(&mut self, qp: &TestQp) {
        self.ring(qp.page, doorbell::SQ, qp.number, qp.sq_tail);
    }

    pub fn send(&mut self, qp: &mut TestQp, wqe: SendWqe, sges: &[Sge]) {
        self.post(qp, wqe, sges);
        self.ring_sq(qp);
        self.settle();
    }

    pub fn post_recv(&mut self, qp: &mut TestQp, wr_id: u64, sges: &[Sge]) {
        let wqe = RecvWqe {
            sges: sges.len() as u8,
            wr_id,
        };
        let mut words = wqe.encode().to_vec();
        words.extend(sges.iter().flat_map(|sge| sge.encode()));
        let position = qp.rq_tail & ((1 << qp.log_rq) - 1);
        let at = qp.rq + ((u64::from(position) * 64) << qp.stride);
        self.memory.set_words(at, &words);
        qp.rq_tail = qp.rq_tail.wrapping_add(1);
    }

    pub fn recv(&mut self, qp: &mut TestQp, wr_id: u64, sges: &[Sge]) {
        self.post_recv(qp, wr_id, sges);
        self.ring(qp.page, doorbell::RQ, qp.number, qp.rq_tail);
        self.settle();
    }
}

/// A signalled work request.
pub fn wqe(opcode: u8, wr_id: u64) -> SendWqe {
    SendWqe {
        opcode,
        flags: send_flags::SIGNALED,
        wr_id,
        ..SendWqe::default()
    }
}

/// A WQE with its SGEs and as many blocks as it takes, unless it says how many.
pub fn wqe_words(mut wqe: SendWqe, sges: &[Sge]) -> Vec<u64> {
    let words = SendWqe::WORDS + Sge::WORDS * sges.len();
    if wqe.blocks == 0 {
        wqe.blocks = words.div_ceil(BLOCK_WORDS) as u8;
    }
    wqe.sges = sges.len() as u8;
    let mut all = wqe.encode().to_vec();
    all.extend(sges.iter().flat_map(|sge| sge.encode()));
    all.resize(all.len().next_multiple_of(BLOCK_WORDS), 0);
    all
}

/// A WQE with inline data.
pub fn inline_words(mut wqe: SendWqe, bytes: &[u8]) -> Vec<u64> {
    wqe.flags |= send_flags::INLINE;
    wqe.inline_bytes = bytes.len() as u32;
    wqe.blocks = (SendWqe::BYTES + bytes.len()).div_ceil(BLOCK_BYTES) as u8;
    let mut all = wqe.encode().to_vec();
    for chunk in bytes.chunks(8) {
        let mut le = [0; 8];
        le[..chunk.len()].copy_from_slice(chunk);
        all.push(u64::from_le_bytes(le));
    }
    all.resize(usize::from(wqe.blocks) * BLOCK_WORDS, 0);
    all
}

/// Bytes that are different everywhere.
pub fn pattern(count: usize, seed: u64) -> Vec<u8> {
    let mut rng = super::Rng::new(seed);
    (0..count).map(|_| rng.next() as u8).collect()
}

/// Two connected queue pairs, each with a CQ, a PD and a region of 1 MiB of its own.
pub struct Pair {
    pub m: Machine,
    pub a: TestQp,
    pub b: TestQp,
    pub cq_a: TestCq,
    pub cq_b: TestCq,
    pub pd_a: Number,
    pub pd_b: Number,
    pub mr_a: TestMr,
    pub mr_b: TestMr,
}

impl Pair {
    pub fn new() -> Self {
        Self::on(Machine::new(), |_, _| {})
    }

    /// With specifications that the test has changed.
    pub fn with(change: impl FnOnce(&mut QpSpec, &mut QpSpec)) -> Self {
        Self::on(Machine::new(), change)
    }

    pub fn on(mut m: Machine, change: impl FnOnce(&mut QpSpec, &mut QpSpec)) -> Self {
        let (pd_a, pd_b) = (m.pd(), m.pd());
        let (cq_a, cq_b) = (m.cq(6), m.cq(6));
        let mut spec_a = Machine::spec(pd_a, &cq_a);
        let mut spec_b = QpSpec {
            stride: 1,
            ..Machine::spec(pd_b, &cq_b)
        };
        change(&mut spec_a, &mut spec_b);
        let (a, b) = m.pair(&spec_a, &spec_b);
        let mr_a = m.mr(pd_a, 1 << 20);
        let mr_b = m.mr(pd_b, 1 << 20);
        Self {
            m,
            a,
            b,
            cq_a,
            cq_b,
            pd_a,
            pd_b,
            mr_a,
            mr_b,
        }
    }

    /// A request to the peer's region.
    pub fn remote(&self, opcode: u8, at: u64) -> SendWqe {
        SendWqe {
            remote_addr: self.mr_b.va + at,
            rkey: self.mr_b.key.raw(),
            ..wqe(opcode, 1)
        }
    }

    pub fn send(&mut self, wqe: SendWqe, sges: &[Sge]) {
        self.m.send(&mut self.a, wqe, sges);
    }

    pub fn recv(&mut self, wr_id: u64, sges: &[Sge]) {
        self.m.recv(&mut self.b, wr_id, sges);
    }

    /// Completions of the first queue pair.
    pub fn done_a(&mut self) -> Vec<Cqe> {
        let mut cq = self.cq_a;
        let cqes = self.m.drain(&mut cq);
        self.cq_a = cq;
        cqes
    }

    /// Completions of the second one.
    pub fn done_b(&mut self) -> Vec<Cqe> {
        let mut cq = self.cq_b;
        let cqes = self.m.drain(&mut cq);
        self.cq_b = cq;
        cqes
    }

    pub fn state(&mut self, qp: Number) -> u8 {
        self.m.query_qp(qp).state
    }
}

/// Status and detail of a completion.
pub fn outcome(cqe: &Cqe) -> (Status, Detail) {
    (
        Status::from_code(cqe.status).unwrap(),
        Detail::from_code(cqe.vendor).unwrap(),
    )
}
