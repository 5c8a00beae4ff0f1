// SPDX-License-Identifier: GPL-2.0
//! `model-frames`: the cost of a frame in the device model.
//!
//! Two devices in one process, and a connection between them. The SQ of the first is filled once. A
//! round is a doorbell, and frames go back and forth until there is none. So the work of both ends
//! is measured, with the memory and the network of the machines, which copy bytes.

mod machine;

use anyhow::ensure;
use anyhow::Context as _;
use clap::Parser;
use machine::block;
use machine::Board;
use machine::Machine;
use machine::Window;
use machine::BASE;
use machine::LOG;
use qpair_abi::command::access;
use qpair_abi::command::kind;
use qpair_abi::command::qp_mask;
use qpair_abi::command::qp_state;
use qpair_abi::command::verb;
use qpair_abi::command::GidContext;
use qpair_abi::command::QpContext;
use qpair_abi::counters::Counter;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode;
use qpair_abi::entry::send_flags;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::RecvWqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::Sge;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::Number;
use qpair_model::Config;
use qpair_model::Host as _;
use qpair_model::Mapping as _;
use std::hint::black_box;
use std::time::Duration;
use std::time::Instant;

/// Measures frames between two models of the device
#[derive(Parser)]
struct Args {
    /// Bytes of each message, which is one packet; a multiple of 64
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(64..=4096))]
    bytes: u32,
    /// Total messages, in rounds of 8
    #[arg(long, default_value_t = 1 << 14)]
    count: u64,
    /// SENDs in place of WRITEs
    #[arg(long)]
    send: bool,
    /// What the machines do for such WRITEs, without the devices
    #[arg(long, conflicts_with = "send")]
    machines: bool,
}

/// Messages of a round.
const BATCH: u32 = 8;
/// Bytes of a frame of a WRITE besides its payload.
const HEADERS: usize = 14 + 20 + 8 + 12 + 16 + 4;
/// The entry of the table of GIDs.
const SOURCE: u16 = 0;

/// The GID of a machine: 10.0.0.1 or 10.0.0.2.
fn gid(place: usize) -> [u64; 2] {
    [0, 0x0000_000a_ffff_0000 | (place as u64 + 1) << 56]
}

/// One end of the connection.
struct End {
    machine: Machine,
    qp: Number,
    cq: Number,
    key: Number,
    sq: u64,
    rq: u64,
}

impl End {
    fn new(place: usize, bytes: u32) -> anyhow::Result<Self> {
        let config = Config {
            wired: true,
            ..Config::default()
        };
        let mut machine = Machine::new(1, 4 * bytes as usize, config)?;
        let mac = format!("52:54:00:00:00:0{}", place + 1);
        machine.device.set_mac(&mac).map_err(anyhow::Error::msg)?;
        let none = Number::default();
        let [low, high] = gid(place);
        let entry = GidContext {
            gid: low,
            gid_high: high,
        };
        let source = Number::from_raw(SOURCE.into());
        machine.command(kind::GID, verb::MODIFY, source, 0, &entry.encode())?;
        let pd = machine.command(kind::PD, verb::CREATE, none, 0, &[])?;
        let rights = access::LOCAL_WRITE | access::REMOTE_WRITE;
        let (key, _) = machine.region(pd, rights, 2 * u64::from(bytes))?;
        let (qp, cq, sq) = machine.queue_pair(pd, 0)?;
        let rq = machine.rq;
        Ok(Self {
            machine,
            qp,
            cq,
            key,
            sq,
            rq,
        })
    }

    /// Connects it with the queue pair of the machine with this place.
    fn connect(&mut self, place: usize, peer: Number) -> anyhow::Result<()> {
        let [low, high] = gid(place);
        let context = QpContext {
            peer,
            gid: low,
            gid_high: high,
            mac_low: u32::from_le_bytes([0x52, 0x54, 0, 0]),
            mac_high: u16::from_le_bytes([0, place as u8 + 1]),
            log_mtu: 12,
            source: SOURCE,
            hop_limit: 64,
            timeout: 14,
            retry: 7,
            rnr_retry: 7,
            ..QpContext::default()
        };
        let retries = qp_mask::RETRY | qp_mask::TIMERS;
        for (state, mask) in [
            (qp_state::INIT, 0),
            (qp_state::RTR, qp_mask::PEER | qp_mask::PATH),
            (qp_state::RTS, qp_mask::SQ_PSN | retries),
        ] {
            let context = QpContext { state, ..context }.encode();
            let mask = qp_mask::STATE | mask;
            self.machine
                .command(kind::QP, verb::MODIFY, self.qp, mask, &context)?;
        }
        Ok(())
    }

    /// Fills a ring with the same WQE.
    fn fill(&self, ring: u64, wqe: &[u64]) -> anyhow::Result<()> {
        for position in 0..1u64 << LOG {
            let at = ring + position * BLOCK_BYTES as u64;
            self.machine.device.host().set(at, &block(wqe))?;
        }
        Ok(())
    }
}

/// Gives the frames that a machine has sent to the other: how many.
fn pass(from: &mut Machine, to: &mut Machine) -> u64 {
    let host = from.device.host_mut();
    let sent = std::mem::take(&mut host.sent);
    for frame in host.frames.iter().take(sent) {
        to.device.frame(frame);
    }
    to.settle();
    sent as u64
}

/// What the machines do for a round of WRITEs: the WQE, the payload and the frame of each at one end,
/// the payload at the other, the frame that acknowledges them, and the CQEs.
fn without_devices(host: &mut Board, memory: &Window, packet: &mut [u8]) {
    for _ in 0..BATCH {
        memory.load(0, black_box(&mut [0; BLOCK_BYTES / 8]));
        memory.read(0, black_box(packet.get_mut(HEADERS..).unwrap_or_default()));
        host.transmit(black_box(packet));
    }
    for frame in host.frames.iter().take(std::mem::take(&mut host.sent)) {
        memory.write(0, black_box(frame.get(HEADERS..).unwrap_or_default()));
    }
    host.transmit(black_box(packet.get(..HEADERS).unwrap_or_default()));
    host.sent = 0;
    for _ in 0..BATCH {
        memory.store(0, black_box(&[0; Cqe::WORDS]));
    }
}

/// Prints how many messages and frames there were in this time.
fn report(count: u64, frames: u64, took: Duration) {
    println!(
        "{}",
        serde_json::json!({ "count": count, "frames": frames, "seconds": took.as_secs_f64() })
    );
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    ensure!(args.bytes % 64 == 0, "--bytes is no multiple of 64");
    let rounds = args.count.div_ceil(u64::from(BATCH));
    if args.machines {
        let mut machine = Machine::new(1, args.bytes as usize, Config::default())?;
        let host = machine.device.host_mut();
        let memory = host.map(BASE, args.bytes.into(), true).context("memory")?;
        let mut packet = vec![0; HEADERS + args.bytes as usize];
        let begin = Instant::now();
        for _ in 0..rounds {
            without_devices(host, &memory, &mut packet);
        }
        let count = rounds * u64::from(BATCH);
        report(count, count + rounds, begin.elapsed());
        return Ok(());
    }
    let (mut a, mut b) = (End::new(0, args.bytes)?, End::new(1, args.bytes)?);
    a.connect(1, b.qp)?;
    b.connect(0, a.qp)?;
    let request = SendWqe {
        opcode: if args.send {
            opcode::SEND
        } else {
            opcode::WRITE
        },
        flags: send_flags::SIGNALED,
        blocks: 1,
        sges: 1,
        rkey: b.key.raw(),
        ..SendWqe::default()
    };
    let sge = |key: Number| Sge {
        addr: 0,
        bytes: args.bytes,
        lkey: key.raw(),
    };
    a.fill(
        a.sq,
        &[&request.encode()[..], &sge(a.key).encode()].concat(),
    )?;
    let receive = RecvWqe { sges: 1, wr_id: 0 };
    b.fill(b.rq, &[receive.encode(), sge(b.key).encode()].concat())?;

    let (mut index, mut frames) = (0u32, 0);
    let begin = Instant::now();
    for _ in 0..rounds {
        index = index.wrapping_add(BATCH);
        if args.send {
            b.machine.ring(doorbell::RQ, b.qp, index);
        }
        a.machine.ring(doorbell::SQ, a.qp, index);
        a.machine.settle();
        loop {
            let sent = pass(&mut a.machine, &mut b.machine) + pass(&mut b.machine, &mut a.machine);
            if sent == 0 {
                break;
            }
            frames += sent;
        }
        a.machine.ring(doorbell::CQ_HEAD, a.cq, index);
        if args.send {
            b.machine.ring(doorbell::CQ_HEAD, b.cq, index);
        }
    }
    let took = begin.elapsed();

    let count = rounds * u64::from(BATCH);
    let done = a.machine.device.counter(Counter::Cqes) - u64::from(a.machine.commands);
    let errors = a.machine.device.counter(Counter::Errors);
    ensure!(
        done == count && errors == 0,
        "{done} completions for {count} messages, {errors} of them with an error"
    );
    report(count, frames, took);
    Ok(())
}
