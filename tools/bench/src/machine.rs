// SPDX-License-Identifier: GPL-2.0
//! A machine that is a piece of memory and a driver of a few lines: no QEMU, no kernel.

use std::cell::Cell;
use std::rc::Rc;

use anyhow::ensure;
use anyhow::Context as _;
use qpair_abi::command::access;
use qpair_abi::command::kind;
use qpair_abi::command::opcode as command_opcode;
use qpair_abi::command::verb;
use qpair_abi::command::BufferList;
use qpair_abi::command::Command;
use qpair_abi::command::CqContext;
use qpair_abi::command::MrContext;
use qpair_abi::command::QpContext;
use qpair_abi::doorbell;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::regs::offset;
use qpair_abi::Number;
use qpair_model::Config;
use qpair_model::DmaFault;
use qpair_model::Function;
use qpair_model::Host;
use qpair_model::Mapping;
use qpair_model::Run;

/// The address at which memory begins.
pub(crate) const BASE: u64 = 0x10_0000;
/// Entries of the rings, as a base-two logarithm.
pub(crate) const LOG: u8 = 4;

/// The machine: memory, and whether the core has to run.
pub(crate) struct Board {
    words: Rc<[Cell<u64>]>,
    woken: bool,
    /// Frames that were sent, in buffers that are used again.
    pub(crate) frames: Vec<Vec<u8>>,
    pub(crate) sent: usize,
}

/// A mapping: its first word.
pub(crate) struct Window(Rc<[Cell<u64>]>, usize);

impl Window {
    /// The words of a range of whole words.
    #[inline]
    fn cells(&self, at: usize, words: usize) -> &[Cell<u64>] {
        &self.0[self.1 + at / 8..][..words]
    }
}

// Payload is whole blocks of 64 bytes here, without overlaps.
impl Mapping for Window {
    #[inline]
    fn load(&self, at: usize, words: &mut [u64]) {
        let cells = self.cells(at, words.len());
        for (word, cell) in words.iter_mut().zip(cells) {
            *word = cell.get();
        }
    }

    #[inline]
    fn store(&self, at: usize, words: &[u64]) {
        for (word, cell) in words.iter().zip(self.cells(at, words.len())) {
            cell.set(*word);
        }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        let cells = self.cells(at, bytes.len() / 8);
        // In blocks, as memcpy() does it.
        for (to, from) in bytes.chunks_exact_mut(64).zip(cells.chunks_exact(8)) {
            if let Some(from) = from.first_chunk::<8>() {
                let words = from.each_ref().map(|cell| cell.get().to_le_bytes());
                to.copy_from_slice(words.as_flattened());
            }
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let cells = self.cells(at, bytes.len() / 8);
        for (from, to) in bytes.chunks_exact(64).zip(cells.chunks_exact(8)) {
            for (word, cell) in from.chunks_exact(8).zip(to) {
                cell.set(word.first_chunk().copied().map_or(0, u64::from_le_bytes));
            }
        }
    }

    #[inline]
    fn copy(&self, at: usize, from: &Self, from_at: usize, bytes: usize) {
        let (to, from) = (self.cells(at, bytes / 8), from.cells(from_at, bytes / 8));
        // In blocks, as memcpy() does it.
        for (to, from) in to.chunks_exact(8).zip(from.chunks_exact(8)) {
            if let (Some(to), Some(from)) = (to.first_chunk::<8>(), from.first_chunk::<8>()) {
                let words = from.each_ref().map(Cell::get);
                for (to, word) in to.iter().zip(words) {
                    to.set(word);
                }
            }
        }
    }
}

impl Board {
    /// The words of a range of whole words.
    fn range(&self, addr: u64, bytes: usize) -> Result<&[Cell<u64>], DmaFault> {
        let first = addr.checked_sub(BASE).ok_or(DmaFault)? as usize / 8;
        let last = first.checked_add(bytes.div_ceil(8)).ok_or(DmaFault)?;
        self.words.get(first..last).ok_or(DmaFault)
    }

    pub(crate) fn set(&self, addr: u64, words: &[u64]) -> anyhow::Result<()> {
        let cells = self
            .range(addr, words.len() * 8)
            .ok()
            .context("no such memory")?;
        for (cell, word) in cells.iter().zip(words) {
            cell.set(*word);
        }
        Ok(())
    }

    pub(crate) fn get<const N: usize>(&self, addr: u64) -> anyhow::Result<[u64; N]> {
        let cells = self.range(addr, N * 8).ok().context("no such memory")?;
        Ok(std::array::from_fn(|i| cells[i].get()))
    }
}

impl Host for Board {
    type Map = Window;

    fn read(&mut self, addr: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        let cells = self.range(addr, bytes.len())?;
        for (part, cell) in bytes.chunks_mut(8).zip(cells) {
            part.copy_from_slice(&cell.get().to_le_bytes()[..part.len()]);
        }
        Ok(())
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let cells = self.range(addr, bytes.len())?;
        for (part, cell) in bytes.chunks(8).zip(cells) {
            let mut word = cell.get().to_le_bytes();
            word[..part.len()].copy_from_slice(part);
            cell.set(u64::from_le_bytes(word));
        }
        Ok(())
    }

    fn map(&mut self, addr: u64, bytes: u64, _writable: bool) -> Option<Window> {
        self.range(addr, usize::try_from(bytes).ok()?).ok()?;
        Some(Window(self.words.clone(), (addr - BASE) as usize / 8))
    }

    fn raise(&mut self, _vector: u16) {}

    fn now(&self) -> u64 {
        0
    }

    fn random(&mut self) -> u64 {
        1
    }

    fn wake(&mut self) {
        self.woken = true;
    }

    fn wake_at(&mut self, _nanos: u64) {}

    fn room(&mut self) -> usize {
        1024
    }

    fn transmit(&mut self, frame: &[u8]) {
        if self.sent == self.frames.len() {
            self.frames.push(Vec::new());
        }
        if let Some(buffer) = self.frames.get_mut(self.sent) {
            buffer.clear();
            buffer.extend_from_slice(frame);
            self.sent += 1;
        }
    }
}

/// The device, and a minimal driver.
pub(crate) struct Machine {
    pub(crate) device: Function<Board>,
    next: u64,
    sq: u64,
    cq: u64,
    context: u64,
    /// Receives of no bytes, of all queue pairs.
    pub(crate) rq: u64,
    /// Commands so far.
    pub(crate) commands: u32,
}

/// The words of a block, which begins with these.
pub(crate) fn block(words: &[u64]) -> [u64; BLOCK_BYTES / 8] {
    let mut block = [0; BLOCK_BYTES / 8];
    block[..words.len()].copy_from_slice(words);
    block
}

pub(crate) fn whole(root: u64, bytes: u64) -> BufferList {
    BufferList {
        root,
        bytes,
        ..BufferList::default()
    }
}

impl Machine {
    /// A device for so many queue pairs, and memory for them and for so many bytes.
    pub(crate) fn new(qps: u32, bytes: usize, config: Config) -> anyhow::Result<Self> {
        let each = (BLOCK_BYTES + Cqe::BYTES) << LOG;
        let bytes = (qps as usize + 2) * (each + 256) + 8192 + bytes;
        let words = vec![Cell::new(0); bytes / 8].into();
        let config = Config {
            qps: qps + 1,
            cqs: qps + 1,
            ..config
        };
        let device = Function::new(
            Board {
                words,
                woken: false,
                frames: Vec::new(),
                sent: 0,
            },
            config,
        )
        .ok()
        .context("no such device")?;
        let mut machine = Self {
            device,
            next: BASE,
            sq: 0,
            cq: 0,
            context: 0,
            rq: 0,
            commands: 0,
        };
        let eq = machine.alloc(16 << LOG);
        machine.sq = machine.alloc(64 << LOG);
        machine.cq = machine.alloc(32 << LOG);
        machine.context = machine.alloc(256);
        machine.rq = machine.alloc(64 << LOG);
        let (sq, cq) = (machine.sq, machine.cq);
        for (register, addr) in [
            (offset::EQ0_BASE_LO, eq),
            (offset::ASQ_BASE_LO, sq),
            (offset::ACQ_BASE_LO, cq),
        ] {
            machine.device.reg_write(register, addr as u32);
            machine.device.reg_write(register + 4, (addr >> 32) as u32);
        }
        machine
            .device
            .reg_write(offset::ADMIN_DEPTH, u32::from(LOG) * 0x1_0101);
        machine.device.reg_write(offset::CTRL, 1);
        ensure!(
            machine.device.reg_read(offset::STATUS) & 1 == 1,
            "the device does not come up"
        );
        Ok(machine)
    }

    pub(crate) fn alloc(&mut self, bytes: u64) -> u64 {
        let addr = self.next;
        self.next += bytes.next_multiple_of(64);
        addr
    }

    /// A queue pair of RC in RESET, with a CQ of its own, and the address of its SQ.
    pub(crate) fn queue_pair(
        &mut self,
        pd: Number,
        flags: u8,
    ) -> anyhow::Result<(Number, Number, u64)> {
        let none = Number::default();
        let (ring, sq) = (self.alloc(32 << LOG), self.alloc(64 << LOG));
        let cq = CqContext {
            log_depth: LOG,
            buffer: whole(ring, 32 << LOG),
            ..CqContext::default()
        };
        let cq = self.command(kind::CQ, verb::CREATE, none, 0, &cq.encode())?;
        let context = QpContext {
            pd,
            send_cq: cq,
            recv_cq: cq,
            log_sq: LOG,
            log_rq: LOG,
            access: access::REMOTE_WRITE,
            flags,
            sq: whole(sq, 64 << LOG),
            rq: whole(self.rq, 64 << LOG),
            ..QpContext::default()
        };
        let qp = self.command(kind::QP, verb::CREATE, none, 0, &context.encode())?;
        Ok((qp, cq, sq))
    }

    #[inline]
    pub(crate) fn ring(&mut self, place: u64, number: Number, index: u32) {
        self.device
            .doorbell(place, doorbell::value(number, index), 8);
    }

    /// Runs the core until it is idle.
    #[inline]
    pub(crate) fn settle(&mut self) {
        while std::mem::take(&mut self.device.host_mut().woken) {
            while self.device.run(8) == Run::More {}
        }
    }

    pub(crate) fn command(
        &mut self,
        kind: u8,
        verb: u8,
        number: Number,
        mask: u32,
        context: &[u64],
    ) -> anyhow::Result<Number> {
        let command = Command {
            opcode: command_opcode(kind, verb),
            flags: send_flags::SIGNALED,
            blocks: 1,
            number,
            mask,
            context: if context.is_empty() { 0 } else { self.context },
            context_bytes: context.len() as u32 * 8,
            ..Command::default()
        };
        let position = u64::from(self.commands & ((1 << LOG) - 1));
        let host = self.device.host();
        host.set(self.context, context)?;
        host.set(
            self.sq + position * BLOCK_BYTES as u64,
            &block(&command.encode()),
        )?;
        self.commands += 1;
        self.ring(doorbell::SQ, Number::ADMIN, self.commands);
        self.settle();
        let cqe = Cqe::decode(
            &self
                .device
                .host()
                .get(self.cq + position * Cqe::BYTES as u64)?,
        );
        self.ring(doorbell::CQ_HEAD, Number::ADMIN, self.commands);
        ensure!(cqe.status == 0, "command {kind}.{verb} failed: {cqe:?}");
        Ok(Number::from_raw(cqe.bytes))
    }

    /// A region at address 0 of memory of its own.
    pub(crate) fn region(
        &mut self,
        pd: Number,
        access: u8,
        bytes: u64,
    ) -> anyhow::Result<(Number, u64)> {
        let at = self.alloc(bytes);
        let context = MrContext {
            pd,
            access,
            addr: 0,
            buffer: whole(at, bytes),
            ..MrContext::default()
        };
        let none = Number::default();
        Ok((
            self.command(kind::MR, verb::CREATE, none, 0, &context.encode())?,
            at,
        ))
    }
}
