// SPDX-License-Identifier: GPL-2.0
//! Checks of a WQE by itself, and of the sender's memory.
//!
//! The operations that move bytes to or from a buffer are checked in line. All others are checked by
//! [`check_other`](DataPath::check_other), which is not.

use crate::atomic::check_atomic;
use crate::datapath::DataPath;
use crate::flush;
use crate::flush::check_atomic_write;
use crate::frmr;
use crate::host::Host;
use crate::message::Kind;
use crate::message::Message;
use crate::message::Sender;
use crate::window;
use qpair_abi::command::service;
use qpair_abi::entry::inline_bytes;
use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::send_sges;
use qpair_abi::entry::ud_inline_bytes;
use qpair_abi::entry::ud_sges;
use qpair_abi::entry::BindWqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::UdWqe;
use qpair_abi::entry::DATAGRAM_BYTES;
use qpair_abi::entry::MAX_FLOW_LABEL;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;

/// Words of the head of a WQE, by service.
pub(crate) const RC: usize = SendWqe::WORDS;
pub(crate) const UD: usize = UdWqe::WORDS;

/// The status and the detail of a WQE that is refused.
type Refused = (Status, Detail);

/// The head of a WQE.
#[inline]
pub(crate) fn decode(words: &[u64]) -> SendWqe {
    words.first_chunk().map(SendWqe::decode).unwrap_or_default()
}

/// The bind of a window.
pub(crate) fn bind(words: &[u64]) -> BindWqe {
    words.first_chunk().map(BindWqe::decode).unwrap_or_default()
}

/// The bits above the flow label of a WQE of UD, which are of others' inline bytes.
const FLOW_RESERVED: u32 = (0xff & !(MAX_FLOW_LABEL >> u16::BITS)) << u8::BITS;

/// Bytes of inline data.
#[inline(always)]
fn inline<const HEAD: usize>(wqe: &SendWqe) -> u32 {
    match HEAD {
        UD => wqe.inline_bytes & u32::from(u8::MAX),
        _ => wqe.inline_bytes,
    }
}

/// Checks that a WQE has no data.
fn no_data(wqe: &SendWqe) -> Result<(), Refused> {
    match (wqe.sges, wqe.inline_bytes) {
        (0, 0) => Ok(()),
        (0, _) => refuse(Detail::Inline),
        _ => refuse(Detail::Sges),
    }
}

fn refuse<T>(detail: Detail) -> Result<T, Refused> {
    Err((Status::LocalQpOperation, detail))
}

impl<H: Host> DataPath<H> {
    /// Checks a WQE by itself, and the sender's memory.
    #[inline(always)]
    pub(crate) fn check<const HEAD: usize>(
        &mut self,
        sender: &Sender,
        message: &mut Message,
        words: &[u64],
    ) -> Result<(), Refused> {
        let opcode = message.wqe.opcode;
        let moves = (opcode::SEND..=sender.last).contains(&opcode);
        let Some(kind) = Kind::of(opcode).filter(|_| moves) else {
            (message.kind, message.bytes) = self.check_other::<HEAD>(sender, *message, words)?;
            return Ok(());
        };
        message.kind = kind;
        self.check_head::<HEAD>(kind, &message.wqe)?;
        self.check_data::<HEAD>(sender, message, words)
    }

    /// Checks the head of a WQE.
    #[inline(always)]
    fn check_head<const HEAD: usize>(&self, kind: &Kind, wqe: &SendWqe) -> Result<(), Refused> {
        let blocks = usize::from(wqe.blocks);
        // Those of UD have fields of the address in place of the key of others, and above the inline
        // bytes.
        let reserved = if HEAD == UD {
            wqe.inline_bytes & FLOW_RESERVED
        } else {
            0
        };
        if wqe.flags & !kind.flags != 0 || reserved != 0 {
            return refuse(Detail::Flags);
        }
        let (most_sges, most_inline) = if wqe.flags & send_flags::INLINE != 0 {
            let most = usize::from(self.core.config.inline_bytes);
            let fit = match HEAD {
                UD => ud_inline_bytes(blocks),
                _ => inline_bytes(blocks),
            };
            (0, fit.min(most))
        } else {
            let most = usize::from(self.core.config.send_sges);
            let fit = match HEAD {
                UD => ud_sges(blocks),
                _ => send_sges(blocks),
            };
            (fit.min(most), 0)
        };
        if usize::from(wqe.sges) > most_sges {
            return refuse(Detail::Sges);
        }
        if inline::<HEAD>(wqe) as usize > most_inline {
            return refuse(Detail::Inline);
        }
        Ok(())
    }

    /// Checks the data of a message, in the sender's memory or in its WQE.
    #[inline(always)]
    fn check_data<const HEAD: usize>(
        &mut self,
        sender: &Sender,
        message: &mut Message,
        words: &[u64],
    ) -> Result<(), Refused> {
        let (bytes, wrong) = if message.is_inline() {
            (u64::from(inline::<HEAD>(&message.wqe)), None)
        } else {
            self.check_local::<HEAD>(sender, message, words)
        };
        let most = if HEAD == UD {
            DATAGRAM_BYTES as u64
        } else {
            u64::from(self.core.config.message_bytes)
        };
        if bytes > most {
            return Err((Status::LocalLength, Detail::Message));
        }
        message.bytes = bytes as u32;
        match wrong {
            None => Ok(()),
            // The peer's answer is to go there: the regions are checked when it has come.
            Some(_) if message.kind.local != 0 => Ok(()),
            Some(detail) => Err((Status::LocalProtection, detail)),
        }
    }

    /// [`check`](Self::check) for all other opcodes: the kind and the bytes. Where they are is not
    /// noted, so the request is performed step by step.
    // By value: a reference would keep the caller's message in memory.
    #[cold]
    #[inline(never)]
    fn check_other<const HEAD: usize>(
        &mut self,
        sender: &Sender,
        mut message: Message,
        words: &[u64],
    ) -> Result<(&'static Kind, u32), Refused> {
        let wqe = message.wqe;
        let has = match wqe.opcode {
            opcode::NOP => true,
            // The WQE names DMA addresses.
            opcode::REG_MR => self.qps.get(sender.qp).is_some_and(|qp| qp.registers()),
            _ => sender.service == service::RC,
        };
        let Some(kind) = Kind::of(wqe.opcode).filter(|_| has) else {
            return refuse(Detail::Opcode);
        };
        message.kind = kind;
        // The limits are for data of any length.
        let head = match wqe.opcode {
            opcode::NOP => SendWqe { sges: 0, ..wqe },
            opcode::SEND_INV | opcode::COMPARE_SWAP | opcode::FETCH_ADD => wqe,
            _ => SendWqe {
                sges: 0,
                inline_bytes: 0,
                ..wqe
            },
        };
        self.check_head::<HEAD>(kind, &head)?;
        let is_valid = match wqe.opcode {
            opcode::BIND => bind(words).access & !u32::from(window::RIGHTS) == 0,
            opcode::FLUSH => flush::is_valid(&wqe, words),
            opcode::REG_MR => frmr::is_valid(words),
            _ => true,
        };
        if !is_valid {
            return refuse(Detail::Flags);
        }
        match wqe.opcode {
            opcode::NOP => (),
            opcode::BIND | opcode::LOCAL_INV | opcode::FLUSH | opcode::REG_MR => no_data(&wqe)?,
            opcode::ATOMIC_WRITE => check_atomic_write(&mut message).or_else(refuse)?,
            opcode::SEND_INV => self.check_data::<RC>(sender, &mut message, words)?,
            _ => check_atomic(&mut message, words)?,
        }
        Ok((kind, message.bytes))
    }
}
