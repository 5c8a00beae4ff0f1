// SPDX-License-Identifier: GPL-2.0
//! The doorbell page, and where BARs are.
//!
//! A doorbell is one aligned 64-bit write: the queue's number in the low half, a
//! 32-bit index in the high half. Its place in the page is its meaning.
//! Any other width or alignment is ignored and counted. A page reads as zero.

use super::Number;

/// BAR of the [registers](super::regs).
pub const BAR_REGS: u32 = 0;
/// BAR of the doorbell pages: page `i` is at `i * PAGE_BYTES`.
pub const BAR_DOORBELLS: u32 = 2;
/// BAR of the MSI-X table and its pending bits.
pub const BAR_MSIX: u32 = 4;

/// Bytes of a doorbell page.
pub const PAGE_BYTES: u64 = 4096;

/// SQ, producer index in blocks: hands the blocks before it to the device.
pub const SQ: u64 = 0x00;
/// RQ, producer index in WQEs.
pub const RQ: u64 = 0x08;
/// SRQ, producer index in WQEs.
pub const SRQ: u64 = 0x10;
/// CQ, consumer index: frees the slots before it.
pub const CQ_HEAD: u64 = 0x18;
/// CQ, consumer index: as [`CQ_HEAD`], and asks for an event at the next completion past it.
pub const CQ_ARM_NEXT: u64 = 0x20;
/// CQ, consumer index: as [`CQ_HEAD`], and asks for an event at the next solicited or failed
/// completion past it.
pub const CQ_ARM_SOLICITED: u64 = 0x28;
/// EQ, consumer index: frees the slots before it **and unmasks the EQ's interrupt**. Page 0 only.
pub const EQ_HEAD: u64 = 0x30;
/// EQ, consumer index: frees the slots before it, and leaves the interrupt as it is. Page 0 only.
pub const EQ_HEAD_MASKED: u64 = 0x38;
/// CQ, index 0: asks for an event at the next completion that is written after this doorbell.
/// Frees no slots.
pub const CQ_NOTIFY: u64 = 0x40;
/// CQ, index 0: as [`CQ_NOTIFY`], at the next solicited or failed completion.
pub const CQ_NOTIFY_SOLICITED: u64 = 0x48;

/// What is written to a doorbell.
#[inline(always)]
pub const fn value(number: Number, index: u32) -> u64 {
    (index as u64) << 32 | number.raw() as u64
}

/// What was written to a doorbell.
#[inline(always)]
pub const fn parts(value: u64) -> (Number, u32) {
    (Number::from_raw(value as u32), (value >> 32) as u32)
}
