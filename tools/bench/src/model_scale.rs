// SPDX-License-Identifier: GPL-2.0
//! `model-scale`: the cost of a work request in the device model, by number of queue pairs.
//!
//! The model runs alone, on a machine that is a piece of memory: no QEMU, no driver. Each queue
//! pair is its own peer and has its own CQ. Its SQ is filled once, with 64-byte WRITEs, or with
//! pairs of a REG_MR and a SEND_INV. Then a round is a doorbell for each queue pair, running the core
//! until it is idle, and a head for each CQ. So only the model's own work is measured.

mod machine;

use std::time::Instant;

use anyhow::ensure;
use clap::Parser;
use machine::block;
use machine::whole;
use machine::Machine;
use machine::BASE;
use machine::LOG;
use qpair_abi::command::access;
use qpair_abi::command::kind;
use qpair_abi::command::qp_flags;
use qpair_abi::command::qp_mask;
use qpair_abi::command::qp_state;
use qpair_abi::command::verb;
use qpair_abi::command::FrmrContext;
use qpair_abi::command::QpContext;
use qpair_abi::doorbell;
use qpair_abi::entry::frmr_key;
use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::RegWqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::Sge;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::Number;
use qpair_model::Config;

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

/// Work requests of a queue pair in a round, and completions.
const BATCH: u32 = 8;
/// Bytes of each.
const SIZE: u32 = 64;

/// A queue pair and its CQ: their numbers.
struct Pair {
    qp: Number,
    cq: Number,
}

impl Machine {
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
        let (qp, cq, sq) = self.queue_pair(pd, qp_flags::REGISTERS)?;
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
    let mut machine = Machine::new(args.qps, 0, Config::default())?;
    let none = Number::default();
    let pd = machine.command(kind::PD, verb::CREATE, none, 0, &[])?;
    let bytes = 2 * u64::from(SIZE);
    let rights = access::LOCAL_WRITE | access::REMOTE_WRITE;
    let (lkey, _) = machine.region(pd, rights, bytes)?;
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
