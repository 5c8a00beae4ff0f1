// SPDX-License-Identifier: GPL-2.0
//! The admin queue pair, and QUERY commands.
//!
//! A command is fetched and completed as any work request. It is done whole or not at all:
//! everything that it names is checked before anything is changed.

use crate::context::answer;
use crate::context::without_context;
use crate::context::Results;
use crate::cq::CompletionQueue;
use crate::eq::EventQueue;
use crate::frmr::Frmr;
use crate::function::Function;
use crate::host::Host;
use crate::host::Trace;
use crate::qp::QueuePair;
use crate::region::Region;
use crate::run_queue::Budget;
use crate::srq::SharedReceives;
use crate::subject::Subject;
use crate::table::Deferred;
use crate::window::Window;
use qpair_abi::command::kind;
use qpair_abi::command::opcode;
use qpair_abi::command::verb;
use qpair_abi::command::Command;
use qpair_abi::command::GidContext;
use qpair_abi::command::QpContext;
use qpair_abi::counters;
use qpair_abi::counters::Counter;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::status::AdminError;
use qpair_abi::status::EnableError;
use qpair_abi::status::Status;
use qpair_abi::Number;

const MODIFY_QP: u8 = opcode(kind::QP, verb::MODIFY);
const MODIFY_MR: u8 = opcode(kind::MR, verb::MODIFY);
const MODIFY_SRQ: u8 = opcode(kind::SRQ, verb::MODIFY);
const QUERY_DEVICE: u8 = opcode(kind::DEVICE, verb::QUERY);
/// Bytes of an entry of a buffer list.
const ENTRY_BYTES: u64 = 8;

impl<H: Host> Function<H> {
    /// A turn of the admin queue pair. Its bytes are the entries of buffer lists that commands read.
    pub(crate) fn commands(&mut self, budget: &mut Budget) {
        let mut blocks = core::mem::take(&mut self.data.blocks);
        let data = &mut self.data;
        let admin = data.qps.get_mut(Number::ADMIN);
        let fetched = admin.and_then(|admin| {
            let bus = &mut data.core.bus;
            admin.fetch(bus, budget.wqes, &mut blocks)
        });
        match fetched {
            Some(count) => {
                let words = count as usize * BLOCK_WORDS;
                let fetched = blocks.get(..words).unwrap_or(&[]);
                for block in fetched.chunks_exact(BLOCK_WORDS) {
                    let spent = budget.bytes == 0;
                    if spent || !self.data.core.is_ready() {
                        break;
                    }
                    self.command(block);
                    let read = self.data.core.ring_pages.take_read();
                    let read = read.saturating_mul(ENTRY_BYTES);
                    budget.bytes = budget.bytes.saturating_sub(read);
                }
            }
            None => data.events.fatal(&mut data.core, EnableError::Dma),
        }
        self.data.blocks = blocks;
        self.data.qps.enqueue(&mut self.data.core, Number::ADMIN);
    }

    fn command(&mut self, block: &[u64]) {
        let Some((head, rest)) = block.split_first_chunk() else {
            return;
        };
        let command = Command::decode(head);
        self.data.core.bus.count(Counter::Commands);
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
        self.data.core.bus.host.trace(Trace::Command {
            opcode: command.opcode,
            number: command.number,
            error: error.map_or(0, AdminError::code),
        });
        let Some(admin) = self.data.qps.get_mut(Number::ADMIN) else {
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
        self.data.complete(Number::ADMIN, &cqe, false);
    }

    /// Whether a test makes this command fail.
    fn is_injected(&mut self) -> bool {
        match self.data.core.knobs.fail_command {
            0 => false,
            left => {
                self.data.core.knobs.fail_command = left - 1;
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
        const MODIFY_CQ: u8 = opcode(kind::CQ, verb::MODIFY);
        const QUERY_CQ: u8 = opcode(kind::CQ, verb::QUERY);
        const DESTROY_CQ: u8 = opcode(kind::CQ, verb::DESTROY);
        const CREATE_QP: u8 = opcode(kind::QP, verb::CREATE);
        const QUERY_QP: u8 = opcode(kind::QP, verb::QUERY);
        const DESTROY_QP: u8 = opcode(kind::QP, verb::DESTROY);
        const ATTACH_QP: u8 = opcode(kind::QP, verb::ATTACH);
        const DETACH_QP: u8 = opcode(kind::QP, verb::DETACH);
        const CREATE_MR: u8 = opcode(kind::MR, verb::CREATE);
        const QUERY_MR: u8 = opcode(kind::MR, verb::QUERY);
        const DESTROY_MR: u8 = opcode(kind::MR, verb::DESTROY);
        const CREATE_MW: u8 = opcode(kind::MW, verb::CREATE);
        const QUERY_MW: u8 = opcode(kind::MW, verb::QUERY);
        const DESTROY_MW: u8 = opcode(kind::MW, verb::DESTROY);
        const CREATE_FRMR: u8 = opcode(kind::FRMR, verb::CREATE);
        const QUERY_FRMR: u8 = opcode(kind::FRMR, verb::QUERY);
        const DESTROY_FRMR: u8 = opcode(kind::FRMR, verb::DESTROY);
        const CREATE_PD: u8 = opcode(kind::PD, verb::CREATE);
        const DESTROY_PD: u8 = opcode(kind::PD, verb::DESTROY);
        const CREATE_SRQ: u8 = opcode(kind::SRQ, verb::CREATE);
        const MODIFY_SRQ: u8 = opcode(kind::SRQ, verb::MODIFY);
        const QUERY_SRQ: u8 = opcode(kind::SRQ, verb::QUERY);
        const DESTROY_SRQ: u8 = opcode(kind::SRQ, verb::DESTROY);
        const MODIFY_GID: u8 = opcode(kind::GID, verb::MODIFY);
        const QUERY_GID: u8 = opcode(kind::GID, verb::QUERY);
        const MODIFY_PAGE: u8 = opcode(kind::PAGE, verb::MODIFY);
        const QUERY_PAGE: u8 = opcode(kind::PAGE, verb::QUERY);
        let number = command.number;
        match command.opcode {
            CREATE_EQ => self.create_eq(command),
            MODIFY_EQ => self.modify_eq(command),
            QUERY_EQ => self.query_eq(command),
            DESTROY_EQ => without_context(command).and_then(|()| self.destroy_eq(number)),
            CREATE_CQ => self.create_cq(command),
            MODIFY_CQ => self.modify_cq(command),
            QUERY_CQ => self.query_cq(command),
            DESTROY_CQ => without_context(command).and_then(|()| self.destroy_cq(number)),
            CREATE_QP => self.create_qp(command),
            MODIFY_QP => self.modify_qp(command),
            QUERY_QP => self.query_qp(command),
            DESTROY_QP => without_context(command).and_then(|()| self.destroy_qp(number)),
            ATTACH_QP => self.attach_qp(command),
            DETACH_QP => self.detach_qp(command),
            CREATE_MR => self.create_mr(command),
            MODIFY_MR => self.modify_mr(command),
            QUERY_MR => self.query_mr(command),
            DESTROY_MR => without_context(command).and_then(|()| self.destroy_mr(number)),
            CREATE_MW => self.create_mw(command),
            QUERY_MW => self.query_mw(command),
            DESTROY_MW => without_context(command).and_then(|()| self.destroy_mw(number)),
            CREATE_FRMR => self.create_frmr(command),
            QUERY_FRMR => self.query_frmr(command),
            DESTROY_FRMR => without_context(command).and_then(|()| self.destroy_frmr(number)),
            CREATE_PD => without_context(command).and_then(|()| self.create_pd()),
            DESTROY_PD => without_context(command).and_then(|()| self.destroy_pd(number)),
            CREATE_SRQ => self.create_srq(command),
            MODIFY_SRQ => self.modify_srq(command),
            QUERY_SRQ => self.query_srq(command),
            DESTROY_SRQ => without_context(command).and_then(|()| self.destroy_srq(number)),
            MODIFY_GID => self.modify_gid(command),
            QUERY_GID => self.query_gid(command),
            MODIFY_PAGE => without_context(command).and_then(|()| self.modify_page(number)),
            QUERY_PAGE => without_context(command).and_then(|()| self.query_page(number)),
            QUERY_DEVICE => self.query_device(command),
            _ => Err(AdminError::Command),
        }
    }

    fn query_eq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let found = self.data.events.eqs.get(command.number);
        let context = found.map(EventQueue::context).ok_or(AdminError::Number)?;
        answer(&mut self.data.core, command, context.encode())
    }

    fn query_cq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let found = self.data.cqs.get(command.number);
        let context = found.map(CompletionQueue::context);
        let context = context.ok_or(AdminError::Number)?;
        answer(&mut self.data.core, command, context.encode())
    }

    fn query_qp(&mut self, command: &Command) -> Result<Results, AdminError> {
        let found = self.data.qps.get(command.number);
        let context = found.map(QueuePair::context).ok_or(AdminError::Number)?;
        let context = QpContext {
            port_qp: u8::from(self.data.port.qp == Some(command.number)),
            ..context
        };
        answer(&mut self.data.core, command, context.encode())
    }

    fn query_mr(&mut self, command: &Command) -> Result<Results, AdminError> {
        let found = self.data.regions.get(command.number);
        let context = found.map(Region::context).ok_or(AdminError::Number)?;
        answer(&mut self.data.core, command, context.encode())
    }

    fn query_mw(&mut self, command: &Command) -> Result<Results, AdminError> {
        let found = self.data.windows.get(command.number);
        let context = found.map(Window::context).ok_or(AdminError::Number)?;
        answer(&mut self.data.core, command, context.encode())
    }

    fn query_frmr(&mut self, command: &Command) -> Result<Results, AdminError> {
        let found = self.data.regions.frmrs.get(command.number);
        let context = found.map(Frmr::context).ok_or(AdminError::Number)?;
        answer(&mut self.data.core, command, context.encode())
    }

    fn query_gid(&mut self, command: &Command) -> Result<Results, AdminError> {
        let entry = self.data.port.gids.get(command.number.raw() as usize);
        let [gid, gid_high] = *entry.ok_or(AdminError::Number)?;
        let context = GidContext { gid, gid_high };
        answer(&mut self.data.core, command, context.encode())
    }

    fn query_srq(&mut self, command: &Command) -> Result<Results, AdminError> {
        let found = self.data.srqs.get(command.number);
        let context = found.map(SharedReceives::context);
        let context = context.ok_or(AdminError::Number)?;
        answer(&mut self.data.core, command, context.encode())
    }

    fn query_device(&mut self, command: &Command) -> Result<Results, AdminError> {
        const { assert!(counters::BYTES == Counter::COUNT * 8) };
        let counts = *self.counters();
        answer(&mut self.data.core, command, counts)
    }

    /// Counts the destroyed objects of a page whose indices are not free.
    fn query_page(&mut self, number: Number) -> Result<Results, AdminError> {
        let index = u16::try_from(number.raw()).map_err(|_| AdminError::Number)?;
        if usize::from(index) >= self.pages.len() {
            return Err(AdminError::Number);
        }
        let kept = |deferred: &[Deferred]| {
            let of_page = deferred.iter().filter(|free| free.page == index);
            let kept = of_page.filter(|free| !self.data.is_over(free));
            u32::try_from(kept.count()).unwrap_or(u32::MAX)
        };
        Ok(Results {
            first: kept(self.data.qps.deferred()),
            second: kept(self.data.cqs.deferred()),
            third: kept(self.data.srqs.deferred()),
        })
    }

    fn modify_page(&mut self, number: Number) -> Result<Results, AdminError> {
        let index = u16::try_from(number.raw()).map_err(|_| AdminError::Number)?;
        let page = self.pages.get_mut(usize::from(index));
        let page = page.ok_or(AdminError::Number)?;
        page.reported = false;
        let first = core::mem::replace(&mut page.violations, 0);
        // The caller has the count, and the page may have another user by the next event.
        self.data.events.cancel(Subject::Page(index));
        Ok(Results {
            first,
            ..Results::default()
        })
    }
}

/// Whether the fields that a command does not use are zero.
fn is_well_formed(head: &[u64; Command::WORDS], command: &Command, rest: &[u64]) -> bool {
    let names_nothing = command.opcode & 0xf == verb::CREATE || command.opcode == QUERY_DEVICE;
    let mut reserved = head.iter().zip(Command::RESERVED);
    reserved.all(|(word, reserved)| word & reserved == 0)
        && rest.iter().all(|word| *word == 0)
        && command.blocks == 1
        && command.flags & !send_flags::SIGNALED == 0
        && (command.number == Number::ADMIN || !names_nothing)
        && (command.mask == 0 || matches!(command.opcode, MODIFY_QP | MODIFY_MR | MODIFY_SRQ))
}
