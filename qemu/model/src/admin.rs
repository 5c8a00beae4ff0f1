// SPDX-License-Identifier: GPL-2.0
//! The admin queue pair: commands, and queries.
//!
//! A command is fetched and completed as any work request. It is done whole or not
//! at all: everything that it names is checked before anything is changed.

use crate::bus::to_bytes;
use crate::create::check_unset;
use crate::eq::Subject;
use crate::host::Host;
use crate::host::Trace;
use crate::mutant::mutant;
use crate::table::Deferred;
use crate::Function;
use crate::State;
use qpair_abi::command::cq_flags;
use qpair_abi::command::kind;
use qpair_abi::command::opcode;
use qpair_abi::command::qp_state;
use qpair_abi::command::verb;
use qpair_abi::command::Command;
use qpair_abi::command::CqContext;
use qpair_abi::command::EqContext;
use qpair_abi::command::MrContext;
use qpair_abi::command::QpContext;
use qpair_abi::command::MAX_CONTEXT_BYTES;
use qpair_abi::counters;
use qpair_abi::counters::Counter;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::status::AdminError;
use qpair_abi::status::EnableError;
use qpair_abi::status::Status;
use qpair_abi::Number;

/// What a command gives back.
#[derive(Clone, Copy, Default)]
pub(crate) struct Results {
    pub(crate) first: u32,
    pub(crate) second: u32,
    pub(crate) third: u32,
}

/// What contexts are aligned to.
const CONTEXT_ALIGN: u64 = 64;
const MODIFY_QP: u8 = opcode(kind::QP, verb::MODIFY);
const QUERY_DEVICE: u8 = opcode(kind::DEVICE, verb::QUERY);

impl<H: Host> Function<H> {
    /// A turn of the admin queue pair.
    pub(crate) fn commands(&mut self, most: u32) {
        let mut blocks = core::mem::take(&mut self.blocks);
        match self.fetch(Number::ADMIN, most, &mut blocks) {
            Some(count) => {
                let words = count as usize * BLOCK_WORDS;
                let fetched = blocks.get(..words).unwrap_or(&[]);
                for block in fetched.chunks_exact(BLOCK_WORDS) {
                    if self.state == State::Ready {
                        self.command(block);
                    }
                }
            }
            None => self.fatal(EnableError::Dma),
        }
        self.blocks = blocks;
        self.has_work(Number::ADMIN);
    }

    fn command(&mut self, block: &[u64]) {
        let Some((head, rest)) = block.split_first_chunk() else {
            return;
        };
        let command = Command::decode(head);
        self.bus.count(Counter::Commands);
        let outcome = if self.is_injected() {
            Err(AdminError::Injected)
        } else if !is_well_formed(head, &command, rest) {
            Err(AdminError::Command)
        } else {
            self.perform_command(&command)
        };
        let (results, error) = match outcome {
            Ok(results) => (results, None),
            Err(error) => (Results::default(), Some(error)),
        };
        self.bus.host.trace(Trace::Command {
            opcode: command.opcode,
            number: command.number,
            error: error.map_or(0, AdminError::code),
        });
        let Some(admin) = self.qps.get_mut(Number::ADMIN) else {
            return;
        };
        let past = admin.sq.window.head().plus(1);
        let _ = admin.sq.window.advance_head(past);
        let cqe = Cqe {
            wr_id: command.wr_id,
            qp: Number::ADMIN,
            bytes: results.first,
            imm: results.second,
            index: past.get(),
            src: results.third,
            opcode: command.opcode,
            status: match error {
                None => Status::Success.code(),
                Some(_) => Status::General.code(),
            },
            vendor: error.map_or(0, AdminError::code),
            flags: 0,
        };
        self.complete(Number::ADMIN, &cqe, false);
    }

    /// Whether a test wants this command to fail.
    fn is_injected(&mut self) -> bool {
        match self.knobs.fail_command {
            0 => false,
            left => {
                self.knobs.fail_command = left - 1;
                left == 1
            }
        }
    }

    fn perform_command(&mut self, command: &Command) -> Result<Results, AdminError> {
        const CREATE_EQ: u8 = opcode(kind::EQ, verb::CREATE);
        const MODIFY_EQ: u8 = opcode(kind::EQ, verb::MODIFY);
        const QUERY_EQ: u8 = opcode(kind::EQ, verb::QUERY);
        const DESTROY_EQ: u8 = opcode(kind::EQ, verb::DESTROY);
        const CREATE_CQ: u8 = opcode(kind::CQ, verb::CREATE);
        const QUERY_CQ: u8 = opcode(kind::CQ, verb::QUERY);
        const DESTROY_CQ: u8 = opcode(kind::CQ, verb::DESTROY);
        const CREATE_QP: u8 = opcode(kind::QP, verb::CREATE);
        const QUERY_QP: u8 = opcode(kind::QP, verb::QUERY);
        const DESTROY_QP: u8 = opcode(kind::QP, verb::DESTROY);
        const CREATE_MR: u8 = opcode(kind::MR, verb::CREATE);
        const QUERY_MR: u8 = opcode(kind::MR, verb::QUERY);
        const DESTROY_MR: u8 = opcode(kind::MR, verb::DESTROY);
        const CREATE_PD: u8 = opcode(kind::PD, verb::CREATE);
        const DESTROY_PD: u8 = opcode(kind::PD, verb::DESTROY);
        const MODIFY_PAGE: u8 = opcode(kind::PAGE, verb::MODIFY);
        const QUERY_PAGE: u8 = opcode(kind::PAGE, verb::QUERY);
        let number = command.number;
        match command.opcode {
            CREATE_EQ => self.create_eq(command),
            MODIFY_EQ => self.modify_eq(command),
            QUERY_EQ => self.query_eq(command),
            DESTROY_EQ => without_context(command).and_then(|()| self.destroy_eq(number)),
            CREATE_CQ => self.create_cq(command),
            QUERY_CQ => self.query_cq(command),
            DESTROY_CQ => without_context(command).and_then(|()| self.destroy_cq(number)),
            CREATE_QP => self.create_qp(command),
            MODIFY_QP => self.modify_qp(command),
            QUERY_QP => self.query_qp(command),
            DESTROY_QP => without_context(command).and_then(|()| self.destroy_qp(number)),
            CREATE_MR => self.create_mr(command),
            QUERY_MR => self.query_mr(command),
            DESTROY_MR => without_context(command).and_then(|()| self.destroy_mr(number)),
            CREATE_PD => without_context(command).and_then(|()| self.create_pd()),
            DESTROY_PD => without_context(command).and_then(|()| self.destroy_pd(number)),
            MODIFY_PAGE => without_context(command).and_then(|()| self.modify_page(number)),
            QUERY_PAGE => without_context(command).and_then(|()| self.query_page(number)),
            QUERY_DEVICE => self.query_device(command),
            _ => Err(AdminError::Command),
        }
    }

    /// Reads a command's context. What a shorter one lacks is zero; what a longer one has beyond
    /// the known words must be.
    pub(crate) fn context<const N: usize>(
        &mut self,
        command: &Command,
    ) -> Result<[u64; N], AdminError> {
        let count = context_words(command)?;
        let mut words = vec![0; count.max(N)];
        let given = words.get_mut(..count).ok_or(AdminError::Context)?;
        let loaded = self.bus.load(command.context, given);
        loaded.map_err(|_| AdminError::Context)?;
        let (known, rest) = words.split_first_chunk().ok_or(AdminError::Context)?;
        check_unset(rest.iter().copied())?;
        Ok(*known)
    }

    /// Writes a command's context: as much of it as was asked for, and zeros beyond its end.
    fn answer<const N: usize>(
        &mut self,
        command: &Command,
        words: &[u64; N],
    ) -> Result<Results, AdminError> {
        let mut bytes = vec![0; context_words(command)? * 8];
        to_bytes(words, &mut bytes);
        let written = self.bus.write(command.context, &bytes);
        written.map_err(|_| AdminError::Context)?;
        Ok(Results::default())
    }

    fn query_eq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let eq = self.eqs.get(command.number).ok_or(AdminError::Number)?;
        let context = EqContext {
            vector: eq.vector,
            log_depth: eq.log_depth,
            moderation_count: eq.moderation_count,
            moderation_usecs: eq.moderation_usecs,
            producer: eq.queue.window().tail().get(),
            consumer: eq.queue.window().head().get(),
            buffer: *eq.ring.described(),
        };
        self.answer(command, &context.encode())
    }

    fn query_cq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let cq = self.cqs.get(command.number).ok_or(AdminError::Number)?;
        let context = CqContext {
            eq: cq.eq,
            page: cq.page,
            log_depth: cq.log_depth,
            flags: if cq.user { cq_flags::USER } else { 0 }
                | if cq.overrun { cq_flags::OVERRUN } else { 0 },
            producer: cq.channel.window().tail().get(),
            consumer: cq.channel.window().head().get(),
            buffer: *cq.ring.described(),
        };
        self.answer(command, &context.encode())
    }

    fn query_qp(&mut self, command: &Command) -> Result<Results, AdminError> {
        let qp = self.qps.get(command.number).ok_or(AdminError::Number)?;
        let a = &qp.attributes;
        let context = QpContext {
            pd: a.pd,
            page: a.page,
            service: qpair_abi::command::service::RC,
            state: a.state,
            send_cq: a.send_cq,
            recv_cq: a.recv_cq,
            srq: Number::default(),
            log_sq: qp.sq.log_depth,
            log_rq: qp.rq.log_depth,
            rq_stride: qp.rq.stride,
            peer: a.peer,
            peer_function: 0,
            q_key: a.q_key,
            access: a.access,
            retry: a.retry,
            rnr_retry: a.rnr_retry,
            draining: u8::from(a.state == qp_state::SQD && qp.sending.is_some()),
            sq_producer: qp.sq.window.tail().get(),
            sq_consumer: qp.sq.window.head().get(),
            rq_producer: qp.rq.window.tail().get(),
            rq_consumer: qp.rq.window.head().get(),
            sq: *qp.sq.ring.described(),
            rq: *qp.rq.ring.described(),
        };
        self.answer(command, &context.encode())
    }

    fn query_mr(&mut self, command: &Command) -> Result<Results, AdminError> {
        let mr = self.regions.get(command.number).ok_or(AdminError::Number)?;
        let context = MrContext {
            pd: mr.pd,
            access: mr.access,
            addr: mr.addr,
            buffer: mr.described,
        };
        self.answer(command, &context.encode())
    }

    fn query_device(&mut self, command: &Command) -> Result<Results, AdminError> {
        const { assert!(counters::BYTES == Counter::COUNT * 8) };
        let counts = *self.counters();
        self.answer(command, &counts)
    }

    /// Destroyed objects of a page whose indices are not free.
    fn query_page(&mut self, number: Number) -> Result<Results, AdminError> {
        let index = u16::try_from(number.raw()).map_err(|_| AdminError::Number)?;
        if usize::from(index) >= self.pages.len() {
            return Err(AdminError::Number);
        }
        let kept = |deferred: &[Deferred]| {
            let of_page = deferred.iter().filter(|free| free.page == index);
            let kept = of_page.filter(|free| !self.is_over(free) && !mutant!(KeptNotCounted));
            u32::try_from(kept.count()).unwrap_or(u32::MAX)
        };
        Ok(Results {
            first: kept(self.qps.deferred()),
            second: kept(self.cqs.deferred()),
            third: 0,
        })
    }

    fn modify_page(&mut self, number: Number) -> Result<Results, AdminError> {
        let index = u16::try_from(number.raw()).map_err(|_| AdminError::Number)?;
        let page = self.pages.get_mut(usize::from(index));
        let page = page.ok_or(AdminError::Number)?;
        page.reported = false;
        let first = core::mem::replace(&mut page.violations, 0);
        // Whoever has the count need not be told of it; the page may be another's by then.
        self.forget(Subject::Page(index));
        Ok(Results {
            first,
            ..Results::default()
        })
    }
}

/// Whether a command has nothing in it that it does not use.
fn is_well_formed(head: &[u64; Command::WORDS], command: &Command, rest: &[u64]) -> bool {
    if mutant!(CommandNotChecked) {
        return true;
    }
    let names_nothing = command.opcode & 0xf == verb::CREATE || command.opcode == QUERY_DEVICE;
    let mut reserved = head.iter().zip(Command::RESERVED);
    reserved.all(|(word, reserved)| word & reserved == 0)
        && rest.iter().all(|word| *word == 0)
        && command.blocks == 1
        && command.flags & !send_flags::SIGNALED == 0
        && (command.number == Number::ADMIN || !names_nothing)
        && (command.mask == 0 || command.opcode == MODIFY_QP)
}

/// Words of a command's context, which need not be those of its type.
fn context_words(command: &Command) -> Result<usize, AdminError> {
    let bytes = command.context_bytes;
    let fits = bytes != 0 && bytes % 8 == 0 && bytes <= MAX_CONTEXT_BYTES;
    if !fits || command.context % CONTEXT_ALIGN != 0 {
        return Err(AdminError::Context);
    }
    Ok(bytes as usize / 8)
}

fn without_context(command: &Command) -> Result<(), AdminError> {
    if command.context_bytes != 0 || command.context != 0 {
        return Err(AdminError::Context);
    }
    Ok(())
}
