// SPDX-License-Identifier: GPL-2.0
//! `model-scale`: the cost of a work request in the device model, by number of queue pairs.
//!
//! The model runs alone, on a machine that is a piece of memory: no QEMU, no driver. Each queue
//! pair is its own peer and has its own CQ. Its SQ is filled once, with 64-byte WRITEs, or with
//! pairs of a REG_MR and a SEND_INV. Then a round is a doorbell for each queue pair, running the core
//! until it is idle, and a head for each CQ. So only the model's own work is measured.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use clap::Parser;
use qpair_abi::command::access;
use qpair_abi::command::kind;
use qpair_abi::command::opcode as command_opcode;
use qpair_abi::command::qp_flags;
use qpair_abi::command::qp_mask;
use qpair_abi::command::qp_state;
use qpair_abi::command::verb;
use qpair_abi::command::BufferList;
use qpair_abi::command::Command;
use qpair_abi::command::CqContext;
use qpair_abi::command::FrmrContext;
use qpair_abi::command::MrContext;
use qpair_abi::command::QpContext;
use qpair_abi::doorbell;
use qpair_abi::entry::frmr_key;
use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::RegWqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::Sge;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::regs::offset;
use qpair_abi::Number;
use qpair_model::Config;
use qpair_model::DmaFault;
use qpair_model::Function;
use qpair_model::Host;
use qpair_model::Mapping;
use qpair_model::Run;

/// Measures the device's model
#[derive(Parser)]
struct Args {
    /// Queue pairs, each with a completion queue
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    qps: u32,
    /// Total work requests, in rounds of 8 for each queue pair
    #[arg(long, default_value_t = 1 << 16)]
    count: u64,
    /// Register and invalidate, by a SEND to itself, instead of writing
    #[arg(long)]
    register: bool,
}

/// The address at which memory begins.
const BASE: u64 = 0x10_0000;
/// Entries of the rings, as a base-two logarithm.
const LOG: u8 = 4;
/// Work requests of a queue pair in a round, and completions.
const BATCH: u32 = 8;
/// Bytes of each.
const SIZE: u32 = 64;

/// The machine: memory, and whether the core has to run.
struct Board {
    words: Rc<[Cell<u64>]>,
    woken: bool,
}

/// A mapping: its first word.
struct Window(Rc<[Cell<u64>]>, usize);

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
        for (word, cell) in bytes.chunks_exact_mut(8).zip(cells) {
            word.copy_from_slice(&cell.get().to_le_bytes());
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let cells = self.cells(at, bytes.len() / 8);
        for (word, cell) in bytes.chunks_exact(8).zip(cells) {
            let mut le = [0; 8];
            le.copy_from_slice(word);
            cell.set(u64::from_le_bytes(le));
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

    fn set(&self, addr: u64, words: &[u64]) -> anyhow::Result<()> {
        let cells = self
            .range(addr, words.len() * 8)
            .ok()
            .context("no such memory")?;
        for (cell, word) in cells.iter().zip(words) {
            cell.set(*word);
        }
        Ok(())
    }

    fn get<const N: usize>(&self, addr: u64) -> anyhow::Result<[u64; N]> {
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
}

/// The device, and a minimal driver.
struct Machine {
    device: Function<Board>,
    next: u64,
    sq: u64,
    cq: u64,
    context: u64,
    /// Receives of no bytes, of all queue pairs.
    rq: u64,
    /// Commands so far.
    commands: u32,
}

/// A queue pair and its CQ: their numbers.
struct Pair {
    qp: Number,
    cq: Number,
}

/// The words of a block, which begins with these.
fn block(words: &[u64]) -> [u64; BLOCK_BYTES / 8] {
    let mut block = [0; BLOCK_BYTES / 8];
    block[..words.len()].copy_from_slice(words);
    block
}

fn whole(root: u64, bytes: u64) -> BufferList {
    BufferList {
        root,
        bytes,
        ..BufferList::default()
    }
}

impl Machine {
    fn new(qps: u32) -> anyhow::Result<Self> {
        let each = (BLOCK_BYTES + Cqe::BYTES) << LOG;
        let bytes = (qps as usize + 2) * (each + 256) + 8192;
        let words = vec![Cell::new(0); bytes / 8].into();
        let config = Config {
            qps: qps + 1,
            cqs: qps + 1,
            ..Config::default()
        };
        let device = Function::new(
            Board {
                words,
                woken: false,
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

    fn alloc(&mut self, bytes: u64) -> u64 {
        let addr = self.next;
        self.next += bytes.next_multiple_of(64);
        addr
    }

    #[inline]
    fn ring(&mut self, place: u64, number: Number, index: u32) {
        self.device
            .doorbell(place, doorbell::value(number, index), 8);
    }

    /// Runs the core until it is idle.
    #[inline]
    fn settle(&mut self) {
        while std::mem::take(&mut self.device.host_mut().woken) {
            while self.device.run(8) == Run::More {}
        }
    }

    fn command(
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

    /// A registration of an FRMR of its own, and a SEND that ends it.
    fn registration(&mut self, pd: Number) -> anyhow::Result<[[u64; BLOCK_BYTES / 8]; 2]> {
        let context = FrmrContext {
            pd,
            ..FrmrContext::default()
        };
        let none = Number::default();
        let frmr = self.command(kind::FRMR, verb::CREATE, none, 0, &context.encode())?;
        let key = frmr_key(frmr, 1);
        let register = RegWqe {
            opcode: opcode::REG_MR,
            blocks: 1,
            access: access::REMOTE_WRITE.into(),
            key,
            buffer: whole(BASE, 4096),
            ..RegWqe::default()
        };
        let invalidate = SendWqe {
            opcode: opcode::SEND_INV,
            flags: send_flags::SIGNALED,
            blocks: 1,
            imm: key,
            ..SendWqe::default()
        };
        Ok([register.encode(), block(&invalidate.encode())])
    }

    fn pair(&mut self, pd: Number, lkey: Number, register: bool) -> anyhow::Result<Pair> {
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
            flags: qp_flags::REGISTERS,
            sq: whole(sq, 64 << LOG),
            rq: whole(self.rq, 64 << LOG),
            ..QpContext::default()
        };
        let qp = self.command(kind::QP, verb::CREATE, none, 0, &context.encode())?;
        for (state, mask) in [
            (qp_state::INIT, qp_mask::STATE),
            (qp_state::RTR, qp_mask::STATE | qp_mask::PEER),
            (qp_state::RTS, qp_mask::STATE),
        ] {
            let peer = if state == qp_state::RTR { qp } else { none };
            let context = QpContext {
                state,
                peer,
                ..QpContext::default()
            };
            self.command(kind::QP, verb::MODIFY, qp, mask, &context.encode())?;
        }
        let request = SendWqe {
            opcode: opcode::WRITE,
            flags: send_flags::SIGNALED,
            blocks: 1,
            sges: 1,
            remote_addr: u64::from(SIZE),
            rkey: lkey.raw(),
            ..SendWqe::default()
        };
        let sge = Sge {
            addr: 0,
            bytes: SIZE,
            lkey: lkey.raw(),
        };
        let mut write = block(&request.encode());
        write[SendWqe::WORDS..][..Sge::WORDS].copy_from_slice(&sge.encode());
        let blocks = match register {
            true => self.registration(pd)?,
            false => [write; 2],
        };
        for position in (0..1u64 << LOG).step_by(blocks.len()) {
            let at = sq + position * BLOCK_BYTES as u64;
            self.device.host().set(at, blocks.as_flattened())?;
        }
        Ok(Pair { qp, cq })
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut machine = Machine::new(args.qps)?;
    let none = Number::default();
    let pd = machine.command(kind::PD, verb::CREATE, none, 0, &[])?;
    let bytes = 2 * u64::from(SIZE);
    let region = MrContext {
        pd,
        access: access::LOCAL_WRITE | access::REMOTE_WRITE,
        addr: 0,
        buffer: whole(machine.alloc(bytes), bytes),
        ..MrContext::default()
    };
    let lkey = machine.command(kind::MR, verb::CREATE, none, 0, &region.encode())?;
    let pairs = (0..args.qps)
        .map(|_| machine.pair(pd, lkey, args.register))
        .collect::<anyhow::Result<Vec<_>>>()?;

    let rounds = args.count.div_ceil(u64::from(args.qps * BATCH));
    let mut index = 0u32;
    let begin = Instant::now();
    for _ in 0..rounds {
        index = index.wrapping_add(BATCH);
        for pair in &pairs {
            if args.register {
                // One for each second request.
                machine.ring(doorbell::RQ, pair.qp, index / 2);
            }
            machine.ring(doorbell::SQ, pair.qp, index);
        }
        machine.settle();
        for pair in &pairs {
            machine.ring(doorbell::CQ_HEAD, pair.cq, index);
        }
    }
    let took = begin.elapsed();

    let count = rounds * u64::from(args.qps * BATCH);
    let done =
        machine.device.counter(qpair_abi::counters::Counter::Cqes) - u64::from(machine.commands);
    ensure!(
        done == count,
        "{done} completions for {count} work requests"
    );
    println!(
        "{}",
        serde_json::json!({ "qps": args.qps, "count": count, "seconds": took.as_secs_f64() })
    );
    Ok(())
}
