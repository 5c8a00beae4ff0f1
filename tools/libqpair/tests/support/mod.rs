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
pub(crate) mod datagrams;
pub(crate) mod host;
pub(crate) mod receives;
pub(crate) mod row;
pub(crate) mod schedule;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use host::Memory;
use qpair::kernel::{
    Address, AsyncEvent, Attributes, Change, CounterValues, Gid, Kernel, Keys, NewCq, NewMr, NewQp,
    NewSrq, Object, QpAttributes, QpState, QpType, ResetAt, Resolved, Retries, Service,
};
use qpair::memory::Ring;
use qpair::{Context, Pages};
use qpair_abi::command::{
    self, access, cq_flags, kind, qp_mask, qp_state, service, srq_mask, verb, BufferList, Command,
    CqContext, MrContext, QpContext, SrqContext,
};
use qpair_abi::entry::{Cqe, Eqe};
use qpair_abi::status::{AdminError, Event, Status};
use qpair_abi::{doorbell, regs, Number};
use qpair_model::{Config, Function, Run};
use qpair_queue::consumer::{CqConsumer, EqConsumer};
use qpair_queue::credit::RingId;
use qpair_queue::index::{Depth, Index};
use qpair_queue::producer::Rows as _;
use qpair_queue::producer::SqProducer;
use qpair_queue::storage::Storage as _;
use rustix::io::Errno;

/// The process's doorbell page.
const PAGE: u16 = 1;
/// LID and GID of the port.
const LID: u16 = 1;
pub(crate) const GID: Gid = *b"\xfe\x80 of this port!";
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
    events: VecDeque<AsyncEvent>,
    /// Whether doorbells make the device work at once.
    pub(crate) eager: bool,
    pub(crate) completion_events: u64,
    /// Address handles.
    pub(crate) handles: u32,
    /// Whether the port is one of RoCE: it has no LID, and its GID is the third of its table.
    pub(crate) roce: bool,
    /// GIDs of the port.
    pub(crate) gids: u32,
    /// What a query of a queue pair says instead of its state.
    pub(crate) says: Option<Result<QpState, Errno>>,
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
            handles: 0,
            roce: false,
            gids: 1,
            says: None,
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

    /// Receives of an SRQ that no queue pair has.
    pub(crate) fn left(&mut self, srq: Number) -> u32 {
        let object = object(srq.raw());
        self.of(kind::SRQ, verb::QUERY, object, &[0; SrqContext::WORDS])
            .expect("it exists");
        SrqContext::decode(&self.context.load_all(0)).left
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
        let event = match Event::from_code(eqe.kind).expect("a known event") {
            Event::Completion => {
                self.completion_events += 1;
                if let Some(fd) = self.eventfds.get(&eqe.number.raw()) {
                    rustix::io::write(fd, &1_u64.to_ne_bytes()).unwrap();
                }
                return;
            }
            Event::CqOverrun => AsyncEvent::CqOverrun(eqe.number),
            Event::QpFatal => AsyncEvent::QpFatal(eqe.number),
            Event::QpAccess => AsyncEvent::QpAccess(eqe.number),
            Event::QpRequest => AsyncEvent::QpRequest(eqe.number),
            // A process learns of it by the counter only.
            Event::DoorbellViolation => return,
            Event::DeviceFatal => AsyncEvent::DeviceFatal,
            Event::SrqLimit => AsyncEvent::SrqLimit(eqe.number),
            Event::SrqFatal => AsyncEvent::SrqFatal(eqe.number),
            Event::LastReceive => AsyncEvent::LastReceive(eqe.number),
            other => panic!("{other}"),
        };
        self.events.push_back(event);
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

    /// Does a command of an object.
    fn of(&mut self, what: u8, verb: u8, object: Object, context: &[u64]) -> Result<Cqe, Errno> {
        let command = Command {
            opcode: command::opcode(what, verb),
            number: object.number,
            ..Default::default()
        };
        self.command(command, context)
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

    fn destroy(&mut self, what: u8, number: u32) -> Result<(), Errno> {
        self.command(
            Command {
                opcode: command::opcode(what, verb::DESTROY),
                number: Number::from_raw(number),
                ..Default::default()
            },
            &[],
        )?;
        // No DMA comes any more: from here on it would be refused, and a mapping would be a use
        // after free.
        for (addr, bytes) in self.pins.remove(&(what, number)).expect("it was made") {
            self.function.host_mut().unpin(addr, bytes);
        }
        if what == kind::CQ {
            self.eventfds.remove(&number);
        }
        Ok(())
    }
}

/// A handle of this kernel is the device's number.
fn object(number: u32) -> Object {
    Object {
        handle: number,
        number: Number::from_raw(number),
    }
}

impl Kernel for Fake {
    fn query(&self) -> Result<Attributes, Errno> {
        let machine = self.machine();
        let config = machine.function.config();
        Ok(Attributes {
            model: regs::MAJOR << 16 | regs::MINOR,
            max_qp: config.qps,
            max_cq: config.cqs,
            max_srq: config.srqs,
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
            link_up: true,
            lid: if machine.roce { 0 } else { LID },
            doorbell_page: PAGE.into(),
            epoch: 0,
        })
    }

    fn counters(&self) -> Result<CounterValues, Errno> {
        let machine = self.machine();
        Ok(CounterValues::try_from(&machine.function.counters()[..]).expect("all of them"))
    }

    fn alloc_pd(&self) -> Result<u32, Errno> {
        self.machine().create(kind::PD, &[], &[])
    }

    fn dealloc_pd(&self, pd: u32) -> Result<(), Errno> {
        self.machine().destroy(kind::PD, pd)
    }

    fn create_cq(&self, cq: &NewCq<'_>) -> Result<(Object, u32), Errno> {
        let mut machine = self.machine();
        let context = CqContext {
            page: PAGE,
            log_depth: cq.depth.ilog2() as u8,
            flags: cq_flags::USER,
            buffer: block(cq.buffer, cq.buffer_bytes),
            ..Default::default()
        };
        let pins = [(cq.buffer, cq.buffer_bytes)];
        let number = machine.create(kind::CQ, &context.encode(), &pins)?;
        if let Some(fd) = cq.eventfd {
            let fd = fd.try_clone_to_owned().unwrap();
            machine.eventfds.insert(number, fd);
        }
        Ok((object(number), cq.depth))
    }

    fn destroy_cq(&self, cq: Object) -> Result<(), Errno> {
        self.machine().destroy(kind::CQ, cq.handle)
    }

    fn create_srq(&self, srq: &NewSrq) -> Result<Object, Errno> {
        let context = SrqContext {
            pd: Number::from_raw(srq.pd),
            page: PAGE,
            log_depth: srq.depth.ilog2() as u8,
            stride: srq.stride,
            buffer: block(srq.buffer, srq.buffer_bytes),
            ..Default::default()
        };
        let pins = [(srq.buffer, srq.buffer_bytes)];
        let number = self.machine().create(kind::SRQ, &context.encode(), &pins)?;
        Ok(object(number))
    }

    fn arm_srq(&self, srq: Object, limit: u32) -> Result<(), Errno> {
        let context = SrqContext {
            limit,
            ..Default::default()
        };
        let mut machine = self.machine();
        let command = Command {
            opcode: command::opcode(kind::SRQ, verb::MODIFY),
            number: srq.number,
            mask: srq_mask::LIMIT,
            ..Default::default()
        };
        machine.command(command, &context.encode())?;
        machine.settle();
        Ok(())
    }

    fn query_srq(&self, srq: Object) -> Result<u32, Errno> {
        let mut machine = self.machine();
        machine.of(kind::SRQ, verb::QUERY, srq, &[0; SrqContext::WORDS])?;
        Ok(SrqContext::decode(&machine.context.load_all(0)).limit)
    }

    fn destroy_srq(&self, srq: Object) -> Result<(), Errno> {
        self.machine().destroy(kind::SRQ, srq.handle)
    }

    fn create_qp(&self, qp: &NewQp) -> Result<Object, Errno> {
        let gid = match qp.qp_type {
            QpType::Connected(_) => (0, 0),
            QpType::Ud => {
                let own = command::GidContext::from_bytes(GID);
                (own.gid, own.gid_high)
            }
        };
        let context = QpContext {
            pd: Number::from_raw(qp.pd),
            page: PAGE,
            send_cq: qp.send_cq.number,
            recv_cq: qp.recv_cq.number,
            log_sq: qp.sq_blocks.ilog2() as u8,
            srq: qp.srq.map_or(Number::default(), |srq| srq.number),
            log_rq: qp.rq_depth.checked_ilog2().unwrap_or(0) as u8,
            rq_stride: qp.rq_stride,
            service: match qp.qp_type {
                QpType::Connected(Service::Rc) => service::RC,
                QpType::Connected(Service::Uc) => service::UC,
                QpType::Ud => service::UD,
            },
            gid: gid.0,
            gid_high: gid.1,
            sq: block(qp.sq_buffer, qp.sq_buffer_bytes),
            rq: match qp.srq {
                None => block(qp.rq_buffer, qp.rq_buffer_bytes),
                Some(_) => BufferList::default(),
            },
            ..Default::default()
        };
        let pins = [
            (qp.sq_buffer, qp.sq_buffer_bytes),
            (qp.rq_buffer, qp.rq_buffer_bytes),
        ];
        let pins = if qp.srq.is_some() { &pins[..1] } else { &pins };
        let number = self.machine().create(kind::QP, &context.encode(), pins)?;
        Ok(object(number))
    }

    fn modify_qp(&self, qp: Object, change: Change) -> Result<ResetAt, Errno> {
        let mut context = QpContext::default();
        let (state, mask) = match change {
            Change::Reset => (qp_state::RESET, 0),
            Change::Init { access } => {
                context.access = access as u8;
                (qp_state::INIT, qp_mask::ACCESS)
            }
            Change::Rtr { peer, at, .. } => {
                // A port of RoCE needs a GID.
                if self.machine().roce != matches!(at, Address::Gid { .. }) {
                    return Err(Errno::INVAL);
                }
                context.peer = peer;
                (qp_state::RTR, qp_mask::PEER)
            }
            Change::Rts {
                service: Service::Uc,
                ..
            } => (qp_state::RTS, 0),
            Change::Rts { retries, .. } => {
                (context.retry, context.rnr_retry) = (retries.answer, retries.receive);
                (qp_state::RTS, qp_mask::RETRY)
            }
            Change::InitUd { q_key } => {
                context.q_key = q_key;
                (qp_state::INIT, qp_mask::Q_KEY)
            }
            Change::RtrUd => (qp_state::RTR, 0),
            Change::RtsUd => (qp_state::RTS, 0),
            Change::Error => (qp_state::ERROR, 0),
        };
        context.state = state;
        let command = Command {
            opcode: command::opcode(kind::QP, verb::MODIFY),
            number: qp.number,
            mask: qp_mask::STATE | mask,
            ..Default::default()
        };
        let cqe = self.machine().command(command, &context.encode())?;
        Ok(ResetAt {
            send_cq: cqe.bytes,
            recv_cq: cqe.imm,
        })
    }

    fn query_qp(&self, qp: Object) -> Result<QpAttributes, Errno> {
        let mut machine = self.machine();
        machine.of(kind::QP, verb::QUERY, qp, &[0; QpContext::WORDS])?;
        let context = QpContext::decode(&machine.context.load_all(0));
        let says = machine.says.transpose()?;
        Ok(QpAttributes {
            state: says.unwrap_or(match context.state {
                qp_state::RESET => QpState::Reset,
                qp_state::INIT => QpState::Init,
                qp_state::RTR => QpState::Rtr,
                qp_state::RTS => QpState::Rts,
                qp_state::SQD => QpState::Sqd,
                qp_state::ERROR => QpState::Error,
                other => panic!("state {other}"),
            }),
            peer: context.peer,
            access: context.access.into(),
            retries: Retries {
                answer: context.retry,
                receive: context.rnr_retry,
            },
            q_key: context.q_key,
        })
    }

    fn destroy_qp(&self, qp: Object) -> Result<(), Errno> {
        self.machine().destroy(kind::QP, qp.handle)
    }

    fn gid(&self, index: u8) -> Result<Gid, Errno> {
        let machine = self.machine();
        let has_it = machine.gids != 0 && index == if machine.roce { 2 } else { 0 };
        Ok(if has_it { GID } else { Gid::default() })
    }

    fn create_ah(&self, _pd: u32, address: Address) -> Result<Resolved, Errno> {
        self.machine().handles += 1;
        let (gid, source) = match address {
            Address::Lid(LID) => (GID, 0),
            Address::Lid(_) => (Gid::default(), 0),
            Address::Gid { gid, source } => (gid, source.into()),
        };
        Ok(Resolved {
            handle: 5,
            gid,
            source,
            mac: [0; 6],
        })
    }

    fn destroy_ah(&self, handle: u32) -> Result<(), Errno> {
        assert_eq!(handle, 5);
        self.machine().handles -= 1;
        Ok(())
    }

    fn reg_mr(&self, mr: &NewMr) -> Result<Keys, Errno> {
        let context = MrContext {
            pd: Number::from_raw(mr.pd),
            access: mr.access as u8 & access::ALL,
            addr: mr.addr,
            buffer: block(mr.addr, mr.bytes),
            ..MrContext::default()
        };
        let pins = [(mr.addr, mr.bytes)];
        let handle = self.machine().create(kind::MR, &context.encode(), &pins)?;
        Ok(Keys {
            handle,
            lkey: handle,
            rkey: handle,
        })
    }

    fn dereg_mr(&self, mr: u32) -> Result<(), Errno> {
        self.machine().destroy(kind::MR, mr)
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

    fn async_event(&self) -> Result<Option<AsyncEvent>, Errno> {
        Ok(self.machine().events.pop_front())
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
