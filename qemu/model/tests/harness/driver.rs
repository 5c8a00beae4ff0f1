// SPDX-License-Identifier: GPL-2.0
//! A short driver: it follows the manual unless a test deviates from it.

use super::Grant;
use super::Memory;
use super::TestHost;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::*;
use qpair_abi::regs::offset;
use qpair_abi::status::AdminError;
use qpair_abi::status::Status;
use qpair_abi::Number;
use qpair_model::Budget;
use qpair_model::Config;
use qpair_model::Doorbell;
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

/// The result of a command.
pub type Outcome = Result<Cqe, AdminError>;

/// A device with room for few objects. A fuzzer makes one for each input, and the tables of the default
/// device take much of its time.
pub fn few_objects() -> Config {
    Config {
        qps: 64,
        cqs: 64,
        eqs: 8,
        mrs: 64,
        pds: 64,
        srqs: 64,
        mws: 64,
        frmrs: 64,
        groups: 16,
        pages: 64,
        ..Config::default()
    }
}

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
    /// The first index of new rings.
    pub first: u32,
    /// The most accesses and bytes of one call of the device.
    pub most_work: u64,
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

    /// A device that is up, with rings that begin at `first`.
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
            most_work: u64::MAX,
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

    /// Runs the device until it is idle at the present time.
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
            self.memory.take_work();
            if self.f.run(8) == Run::More {
                self.f.host_mut().woken = true;
            }
            self.is_bounded();
        }
        panic!("the device never becomes idle");
    }

    /// Advances the time, and runs the device at the times that it requests.
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
        self.memory.take_work();
        self.f.doorbell(at, doorbell::value(number, index), 8);
        self.is_bounded();
    }

    /// Checks that a call of the device has done no more work than it may.
    fn is_bounded(&self) {
        let work = self.memory.take_work();
        assert!(work <= self.most_work, "work of {work} in one call");
    }

    /// Executes a doorbell in a thread that does none of its work.
    pub fn execute(&mut self, written: Doorbell) {
        self.f.execute(written, &mut Budget::none());
    }

    // Completions and events.

    /// Reads the next CQE, without freeing its slot.
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

    /// Reads all CQEs, and frees their slots.
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

    pub fn notify(&mut self, cq: &TestCq) {
        self.ring(cq.page, doorbell::CQ_NOTIFY, cq.number, 0);
    }

    /// A notify that is written now, and executed later.
    pub fn written(&self, place: u64, cq: &TestCq) -> Doorbell {
        let at = u64::from(cq.page) * doorbell::PAGE_BYTES + place;
        let value = doorbell::value(cq.number, 0);
        self.f.producers().doorbell(at, value, 8)
    }

    pub fn event(&mut self, eq: &mut TestEq) -> Option<Eqe> {
        let words = self.memory.words::<2>(eq.ring.at(Eqe::BYTES));
        if !eq.ring.valid(words[1]) {
            return None;
        }
        eq.ring.head = eq.ring.head.wrapping_add(1);
        Some(Eqe::decode(&words))
    }

    /// Reads all events, and publishes the head with unmasking.
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

    /// The interrupts raised since the last call.
    pub fn raised(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.f.host_mut().raised)
    }

    // Commands.

    pub fn command_words(command: &Command) -> [u64; 8] {
        let mut words = [0; 8];
        words[..4].copy_from_slice(&command.encode());
        words
    }

    /// Posts a command without changes.
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

    /// Runs a command before any queue pair has another turn.
    pub(super) fn command_now(&mut self, command: Command, words: &[u64]) {
        let command = Command {
            blocks: 1,
            context: if words.is_empty() { 0 } else { self.context },
            context_bytes: words.len() as u32 * 8,
            ..command
        };
        self.memory.set_words(self.context, words);
        self.f.set_stall(true);
        self.post_command(&Self::command_words(&command));
        // The queue pairs queued before it must wait.
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

    /// Empties an entry of the table of GIDs.
    pub fn empty_gid_now(&mut self, entry: u32) {
        let command = Command {
            opcode: opcode(kind::GID, verb::MODIFY),
            number: Number::from_raw(entry),
            ..Command::default()
        };
        self.command_now(command, &[0; 2]);
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
}
