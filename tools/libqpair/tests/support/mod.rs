// SPDX-License-Identifier: GPL-2.0
//! A kernel for the library, in one process: the device model, and the least of a driver that makes
//! it go.
//!
//! A process's addresses are DMA addresses here, and only what was "pinned" is there for the
//! device. The driver's part uses the same rules as the module: rings, credits, the event queue
//! behind its interrupt. The device works when it is told to ([`Machine::run`]), so a test decides
//! about every step, and a seed gives the same steps again.

#![allow(dead_code)] // Each test takes what it needs.

pub(crate) mod bench;
pub(crate) mod host;
pub(crate) mod row;
pub(crate) mod schedule;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host::Memory;
use qpair::kernel::{Call, Kernel};
use qpair::memory::Ring;
use qpair::{Context, Pages};
use qpair_abi::command::{
    self, access, cq_flags, kind, verb, BufferList, Command, CqContext, MrContext, QpContext,
};
use qpair_abi::entry::{Cqe, Eqe};
use qpair_abi::status::{AdminError, Event, Status};
use qpair_abi::uapi::*;
use qpair_abi::{doorbell, regs, Number};
use qpair_model::{Config, Function, Run};
use qpair_queue::consumer::{CqConsumer, EqConsumer};
use qpair_queue::credit::RingId;
use qpair_queue::index::{Depth, Index};
use qpair_queue::producer::SqProducer;
use qpair_queue::storage::Storage as _;
use rustix::io::Errno;

/// The process's doorbell page.
const PAGE: u16 = 1;
const LOG_ADMIN: u8 = 4;
const LOG_EQ: u8 = 8;

/// Device and driver.
pub(crate) struct Machine {
    pub(crate) function: Function<Memory>,
    sq: SqProducer<Ring>,
    cq: CqConsumer<Ring>,
    eq: EqConsumer<Ring>,
    context: Ring,
    eventfds: HashMap<u32, OwnedFd>,
    /// What an object has pinned.
    pins: HashMap<(u8, u32), Vec<(u64, u64)>>,
    events: VecDeque<qpair_async_event>,
    /// Whether doorbells make the device work at once.
    pub(crate) eager: bool,
    pub(crate) completion_events: u64,
}

/// The machine as the library's kernel.
pub(crate) struct Fake(Mutex<Machine>);

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

/// A machine with a context on it. The device works at once.
pub(crate) fn machine() -> (Arc<Fake>, Context) {
    machine_of(Config::default())
}

/// The same, with a device of choice.
pub(crate) fn machine_of(config: Config) -> (Arc<Fake>, Context) {
    let fake = Arc::new(Fake(Mutex::new(Machine::new(config))));
    let context = Context::new(fake.clone()).unwrap();
    (fake, context)
}

impl Fake {
    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the device works only when it is told to.
    pub(crate) fn by_hand(&self) {
        self.machine().eager = false;
    }
}

fn refusal(error: AdminError) -> Errno {
    match error {
        AdminError::Number | AdminError::Reference => Errno::NOENT,
        AdminError::Full => Errno::NOSPC,
        AdminError::Busy => Errno::BUSY,
        AdminError::Reserved
        | AdminError::Depth
        | AdminError::Buffer
        | AdminError::Transition
        | AdminError::Attribute => Errno::INVAL,
        _ => Errno::IO,
    }
}

/// A block as it is.
fn block(root: u64, bytes: u64) -> BufferList {
    BufferList {
        root,
        bytes,
        ..Default::default()
    }
}

impl Machine {
    fn new(config: Config) -> Self {
        let depth = Depth::from_log2(LOG_ADMIN).unwrap();
        let eq_depth = Depth::from_log2(LOG_EQ).unwrap();
        let ring = |entries, bytes| Ring::new(entries, bytes, Pages::Normal).unwrap();
        let sq = ring(depth.entries(), 64);
        let cq = ring(depth.entries(), Cqe::BYTES);
        let eq = ring(eq_depth.entries(), Eqe::BYTES);
        let context = ring(1, 4096);
        let mut memory = Memory::default();
        for ring in [&sq, &cq, &eq, &context] {
            memory.pin(ring.address(), ring.bytes());
        }
        let mut function = Function::new(memory, config).unwrap();
        for (low, high, ring) in [
            (regs::offset::EQ0_BASE_LO, regs::offset::EQ0_BASE_HI, &eq),
            (regs::offset::ASQ_BASE_LO, regs::offset::ASQ_BASE_HI, &sq),
            (regs::offset::ACQ_BASE_LO, regs::offset::ACQ_BASE_HI, &cq),
        ] {
            function.reg_write(low, ring.address() as u32);
            function.reg_write(high, (ring.address() >> 32) as u32);
        }
        let depths = u32::from(LOG_ADMIN) << 16 | u32::from(LOG_ADMIN) << 8 | u32::from(LOG_EQ);
        function.reg_write(regs::offset::ADMIN_DEPTH, depths);
        function.reg_write(regs::offset::CTRL, 1);
        assert_eq!(function.reg_read(regs::offset::STATUS) & 1, 1, "ready");

        let id = RingId::new(0, 0);
        let (cq, _) = CqConsumer::new(id, cq, depth, depth.entries()).unwrap();
        let (eq, _) = EqConsumer::new(id, eq, eq_depth, eq_depth.entries()).unwrap();
        Self {
            function,
            sq: SqProducer::new_sq(id, id, sq, depth, depth.entries()).unwrap(),
            cq,
            eq,
            context,
            eventfds: HashMap::new(),
            pins: HashMap::new(),
            events: VecDeque::new(),
            eager: true,
            completion_events: 0,
        }
    }

    /// Lets the device work for so many turns, and the driver take its interrupts. Whether there is
    /// more.
    pub(crate) fn run(&mut self, turns: u32) -> bool {
        if let Some(deadline) = self.function.host().deadline {
            self.function.host_mut().now = deadline;
            self.function.host_mut().woken = true;
        }
        let woken = std::mem::take(&mut self.function.host_mut().woken);
        let more = woken && self.function.run(turns) == Run::More;
        self.function.host_mut().woken |= more;
        self.interrupt();
        self.function.host().woken
    }

    /// Ranges that the device may use.
    pub(crate) fn pinned(&self) -> usize {
        self.function.host().pinned.len()
    }

    /// Lets it work until nothing is left.
    pub(crate) fn settle(&mut self) {
        while self.run(16) {}
    }

    /// The interrupt handler: without an interrupt the EQ is not read.
    fn interrupt(&mut self) {
        while std::mem::take(&mut self.function.host_mut().interrupts) > 0 {
            while let Some(entry) = self.eq.take() {
                let eqe = Eqe::decode(&entry.words);
                self.event(&eqe);
            }
            let function = &mut self.function;
            self.eq.publish(|head| {
                let value = doorbell::value(Number::ADMIN, head.get());
                function.doorbell(doorbell::EQ_HEAD, value, 8);
            });
        }
    }

    fn event(&mut self, eqe: &Eqe) {
        let kind = match Event::from_code(eqe.kind).expect("a known event") {
            Event::Completion => {
                self.completion_events += 1;
                if let Some(fd) = self.eventfds.get(&eqe.number.raw()) {
                    rustix::io::write(fd, &1_u64.to_ne_bytes()).unwrap();
                }
                return;
            }
            Event::CqOverrun => QPAIR_EVENT_CQ_OVERRUN,
            Event::QpFatal => QPAIR_EVENT_QP_FATAL,
            Event::DoorbellViolation => QPAIR_EVENT_DOORBELL_VIOLATION,
            Event::DeviceFatal => QPAIR_EVENT_DEVICE_FATAL,
            other => panic!("{other}"),
        };
        self.events.push_back(qpair_async_event {
            kind,
            handle: eqe.number.raw(),
            code: eqe.code.into(),
            count: eqe.count,
        });
    }

    /// Does an admin command.
    fn command(&mut self, command: Command, context: &[u64]) -> Result<Cqe, Errno> {
        for (at, word) in context.iter().enumerate() {
            self.context.store(at, *word);
        }
        let command = Command {
            blocks: 1,
            wr_id: 7,
            context: if context.is_empty() {
                0
            } else {
                self.context.address()
            },
            context_bytes: context.len() as u32 * 8,
            ..command
        };
        let mut words = [0; 8];
        words[..Command::WORDS].copy_from_slice(&command.encode());
        let mut room = self.sq.room(1, true).expect("room for a command");
        room.write(0, &words);
        room.post();
        let function = &mut self.function;
        self.sq.ring(|tail| {
            let value = doorbell::value(Number::ADMIN, tail.get());
            function.doorbell(doorbell::SQ, value, 8);
        });
        let entry = (0..1_000_000)
            .find_map(|_| {
                self.run(16);
                self.cq.take()
            })
            .expect("a command completes");
        let cqe = Cqe::decode(&entry.words);
        self.sq.complete(Index::new(cqe.index), entry.seen).unwrap();
        let function = &mut self.function;
        let published = self.cq.publish(|head| {
            let value = doorbell::value(Number::ADMIN, head.get());
            function.doorbell(doorbell::CQ_HEAD, value, 8);
        });
        self.sq.reclaim(published);
        if cqe.status == Status::Success.code() {
            return Ok(cqe);
        }
        Err(refusal(
            AdminError::from_code(cqe.vendor).expect("a reason"),
        ))
    }

    /// Makes an object of pinned memory: its number.
    fn create(&mut self, what: u8, context: &[u64], pins: &[(u64, u64)]) -> Result<u32, Errno> {
        for &(addr, bytes) in pins {
            self.function.host_mut().pin(addr, bytes);
        }
        let command = Command {
            opcode: command::opcode(what, verb::CREATE),
            ..Default::default()
        };
        match self.command(command, context) {
            Ok(cqe) => {
                self.pins.insert((what, cqe.bytes), pins.to_vec());
                Ok(cqe.bytes)
            }
            Err(errno) => {
                for &(addr, bytes) in pins {
                    self.function.host_mut().unpin(addr, bytes);
                }
                Err(errno)
            }
        }
    }

    fn destroy(&mut self, what: u8, end: &mut qpair_destroy) -> Result<(), Errno> {
        let cqe = self.command(
            Command {
                opcode: command::opcode(what, verb::DESTROY),
                number: Number::from_raw(end.handle),
                ..Default::default()
            },
            &[],
        )?;
        // No DMA comes any more: from here on it would be refused, and a mapping would be a use
        // after free.
        for (addr, bytes) in self.pins.remove(&(what, end.handle)).expect("it was made") {
            self.function.host_mut().unpin(addr, bytes);
        }
        if what == kind::CQ {
            self.eventfds.remove(&end.handle);
        }
        if what == kind::QP {
            end.send_cq_index = cqe.bytes;
            end.recv_cq_index = cqe.imm;
        }
        Ok(())
    }

    fn call(&mut self, call: Call<'_>) -> Result<(), Errno> {
        match call {
            Call::QueryDevice(device) => self.query_device(device),
            Call::QueryCounters(query) => {
                let counters = self.function.counters();
                let count = counters.len().min(query.count as usize);
                // SAFETY: The caller says that there is room for so many.
                let into =
                    unsafe { std::slice::from_raw_parts_mut(query.counters as *mut u64, count) };
                into.copy_from_slice(&counters[..count]);
                query.count = counters.len() as u32;
                Ok(())
            }
            Call::AllocPd(alloc) => {
                alloc.handle = self.create(kind::PD, &[], &[])?;
                Ok(())
            }
            Call::DeallocPd(end) => self.destroy(kind::PD, end),
            Call::CreateCq(create) => {
                let context = CqContext {
                    page: PAGE,
                    log_depth: create.depth.ilog2() as u8,
                    flags: cq_flags::USER,
                    buffer: block(create.buffer, create.buffer_bytes),
                    ..Default::default()
                };
                let pins = [(create.buffer, create.buffer_bytes)];
                create.handle = self.create(kind::CQ, &context.encode(), &pins)?;
                if create.eventfd != QPAIR_NO_EVENTFD {
                    // SAFETY: It is open as long as the library's call takes.
                    let fd = unsafe { BorrowedFd::borrow_raw(create.eventfd) };
                    self.eventfds
                        .insert(create.handle, fd.try_clone_to_owned().unwrap());
                }
                Ok(())
            }
            Call::DestroyCq(end) => self.destroy(kind::CQ, end),
            Call::CreateQp(create) => {
                let context = QpContext {
                    pd: Number::from_raw(create.pd),
                    page: PAGE,
                    send_cq: Number::from_raw(create.send_cq),
                    recv_cq: Number::from_raw(create.recv_cq),
                    log_sq: create.sq_blocks.ilog2() as u8,
                    log_rq: create.rq_depth.ilog2() as u8,
                    rq_stride: create.rq_stride as u8,
                    sq: block(create.sq_buffer, create.sq_buffer_bytes),
                    rq: block(create.rq_buffer, create.rq_buffer_bytes),
                    ..Default::default()
                };
                let pins = [
                    (create.sq_buffer, create.sq_buffer_bytes),
                    (create.rq_buffer, create.rq_buffer_bytes),
                ];
                create.handle = self.create(kind::QP, &context.encode(), &pins)?;
                Ok(())
            }
            Call::ModifyQp(modify) => {
                let context = QpContext {
                    state: modify.state as u8,
                    peer: Number::from_raw(modify.peer),
                    access: modify.access as u8,
                    retry: modify.retry as u8,
                    rnr_retry: modify.rnr_retry as u8,
                    ..Default::default()
                };
                let command = Command {
                    opcode: command::opcode(kind::QP, verb::MODIFY),
                    number: Number::from_raw(modify.handle),
                    mask: modify.mask,
                    ..Default::default()
                };
                let cqe = self.command(command, &context.encode())?;
                modify.send_cq_index = cqe.bytes;
                modify.recv_cq_index = cqe.imm;
                Ok(())
            }
            Call::QueryQp(query) => {
                let command = Command {
                    opcode: command::opcode(kind::QP, verb::QUERY),
                    number: Number::from_raw(query.handle),
                    ..Default::default()
                };
                self.command(command, &[0; QpContext::WORDS])?;
                let context = QpContext::decode(&self.context.load_all(0));
                query.state = context.state.into();
                query.peer = context.peer.raw();
                query.sq_producer = context.sq_producer;
                query.sq_consumer = context.sq_consumer;
                query.rq_producer = context.rq_producer;
                query.rq_consumer = context.rq_consumer;
                Ok(())
            }
            Call::DestroyQp(end) => self.destroy(kind::QP, end),
            Call::RegMr(reg) => {
                let context = MrContext {
                    pd: Number::from_raw(reg.pd),
                    access: reg.access as u8 & access::ALL,
                    addr: reg.addr,
                    buffer: block(reg.addr, reg.bytes),
                };
                let pins = [(reg.addr, reg.bytes)];
                reg.handle = self.create(kind::MR, &context.encode(), &pins)?;
                (reg.lkey, reg.rkey) = (reg.handle, reg.handle);
                Ok(())
            }
            Call::DeregMr(end) => self.destroy(kind::MR, end),
            Call::QueryCq(_) | Call::QueryMr(_) => Err(Errno::NOTTY),
        }
    }

    fn query_device(&mut self, device: &mut qpair_query_device) -> Result<(), Errno> {
        let config = self.function.config();
        *device = qpair_query_device {
            uapi_version: QPAIR_UAPI_VERSION,
            device_version: regs::MAJOR << 16 | regs::MINOR,
            max_qp: config.qps,
            max_cq: config.cqs,
            max_eq: config.eqs,
            max_mr: config.mrs,
            max_pd: config.pds,
            max_sq_blocks: 1 << config.log_sq,
            max_rq_depth: 1 << config.log_rq,
            max_cq_depth: 1 << config.log_cq,
            max_send_sge: config.send_sges.into(),
            max_recv_sge: config.recv_sges.into(),
            max_inline: config.inline_bytes.into(),
            max_message: config.message_bytes,
            max_mr_bytes: 1 << config.log_region,
            vectors: 1,
            link_up: 1,
            doorbell_page: PAGE.into(),
            ..Default::default()
        };
        Ok(())
    }
}

impl Kernel for Fake {
    fn call(&self, call: Call<'_>) -> Result<(), Errno> {
        self.machine().call(call)
    }

    fn doorbell(&self, offset: u64, value: u64) {
        let mut machine = self.machine();
        let at = u64::from(PAGE) * doorbell::PAGE_BYTES + offset;
        machine.function.doorbell(at, value, 8);
        machine.interrupt();
        if machine.eager {
            machine.settle();
        }
    }

    fn events(&self, into: &mut [qpair_async_event]) -> Result<usize, Errno> {
        let mut machine = self.machine();
        let count = into.len().min(machine.events.len());
        for (into, event) in into.iter_mut().zip(machine.events.drain(..count)) {
            *into = event;
        }
        Ok(count)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
