// SPDX-License-Identifier: GPL-2.0
//! Every operation moves its bytes and no others.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use qpair_abi::entry::cqe_flags;
use qpair_abi::entry::inline_bytes;
use qpair_abi::entry::opcode;
use qpair_abi::entry::MAX_BLOCKS;

use crate::ktap::Setup;
use crate::pair::Pair;
use crate::pair::Peer;
use crate::raw::Buffer;
use crate::raw::Context;
use crate::raw::QpShape;
use crate::raw::Wqe;

fn random(rng: &mut fastrand::Rng, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    rng.fill(&mut data);
    data
}

/// The peer's memory has `data` at `at`, and is unchanged elsewhere.
fn only(peer: &Peer, before: &[u8], at: usize, data: &[u8]) -> Result<()> {
    let now = peer.memory.read(0, before.len());
    ensure!(
        now[at..at + data.len()] == *data,
        "{} bytes at {at} differ",
        data.len()
    );
    ensure!(
        now[..at] == before[..at],
        "something before {at} was written"
    );
    let end = at + data.len();
    ensure!(
        now[end..] == before[end..],
        "something after {end} was written"
    );
    Ok(())
}

pub(super) fn nop(_: &Setup) -> Result<()> {
    let mut pair = Pair::open(0)?;
    pair.a.qp.post(&Wqe::new(opcode::NOP, 7));
    let cqe = pair.a.done(7)?;
    ensure!(
        cqe.opcode == opcode::NOP && cqe.bytes == 0 && cqe.index == 1,
        "{cqe:?}"
    );
    pair.b.idle()
}

pub(super) fn send_and_receive(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let Pair { mut a, mut b } = Pair::open(0)?;
    let before = random(&mut rng, b.memory.bytes());
    b.memory.write(0, &before);
    let data = random(&mut rng, 5000);
    a.memory.write(17, &data);
    // The receive is longer than the message: the rest is unchanged.
    b.receive(2, 333, 10000);
    a.qp.post(&a.with(Wqe::send(1), 17, data.len()));
    let (sent, received) = (a.done(1)?, b.done(2)?);
    ensure!(received.bytes as usize == data.len(), "{received:?}");
    ensure!(
        received.opcode == opcode::RECV && sent.opcode == opcode::SEND,
        "{sent:?}, {received:?}"
    );
    ensure!(
        received.flags == cqe_flags::RECV && sent.flags == 0,
        "{sent:?}, {received:?}"
    );
    ensure!(
        received.index == 1 && sent.index == a.qp.sq_tail,
        "{sent:?}, {received:?}"
    );
    only(&b, &before, 333, &data)?;
    // In order, each into its receive.
    for number in 0..10u8 {
        b.receive(100 + u64::from(number), 1000 * usize::from(number), 1000);
    }
    for number in 0..10u8 {
        a.memory
            .write(1000 * usize::from(number), &[number + 1; 1000]);
        a.qp.put(&a.with(
            Wqe::send(200 + u64::from(number)),
            1000 * usize::from(number),
            1000,
        ));
    }
    a.qp.ring_sq();
    for number in 0..10u8 {
        b.done(100 + u64::from(number))?;
        a.done(200 + u64::from(number))?;
        ensure!(
            b.memory.read(1000 * usize::from(number), 1000) == [number + 1; 1000],
            "message {number}"
        );
    }
    Ok(())
}

pub(super) fn immediate_data(_: &Setup) -> Result<()> {
    let Pair { mut a, mut b } = Pair::open(0)?;
    a.memory.write(0, b"with immediate data");
    b.receive(1, 0, 64);
    a.qp.post(&a.with(Wqe::send(2).imm(0xdead_beef), 0, 19));
    a.done(2)?;
    let cqe = b.done(1)?;
    ensure!(
        cqe.flags & cqe_flags::IMM != 0 && cqe.imm == 0xdead_beef && cqe.bytes == 19,
        "{cqe:?}"
    );
    ensure!(
        cqe.opcode == opcode::RECV && b.memory.read(0, 19) == b"with immediate data",
        "{cqe:?}"
    );
    // A WRITE with immediate consumes a receive, but does not write its memory.
    b.receive(3, 0, 64);
    let to = b.memory.addr() + 4096;
    a.qp.post(&a.with(Wqe::write(4, to, b.mr.keys.rkey).imm(0x1234_5678), 5, 9));
    a.done(4)?;
    let cqe = b.done(3)?;
    ensure!(
        cqe.flags & cqe_flags::IMM != 0 && cqe.imm == 0x1234_5678 && cqe.bytes == 9,
        "{cqe:?}"
    );
    ensure!(cqe.opcode == opcode::RECV_WRITE_IMM, "{cqe:?}");
    ensure!(
        b.memory.read(0, 19) == b"with immediate data",
        "the receive's memory was written"
    );
    ensure!(
        b.memory.read(4096, 10) == b"immediate\0",
        "{:?}",
        b.memory.read(4096, 10)
    );
    // Without immediate data the flag is clear.
    b.receive(5, 0, 64);
    a.qp.post(&a.with(Wqe::send(6), 0, 1));
    a.done(6)?;
    let cqe = b.done(5)?;
    ensure!(cqe.flags & cqe_flags::IMM == 0, "{cqe:?}");
    Ok(())
}

pub(super) fn write_and_read(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let Pair { mut a, mut b } = Pair::open(0)?;
    for round in 0..20 {
        let before = random(&mut rng, b.memory.bytes());
        b.memory.write(0, &before);
        let data_bytes = rng.usize(1..20000);
        let data = random(&mut rng, data_bytes);
        let (from, to) = (rng.usize(0..40000), rng.usize(0..40000));
        a.memory.write(from, &data);
        let remote = b.memory.addr() + to as u64;
        a.qp.post(&a.with(Wqe::write(round, remote, b.mr.keys.rkey), from, data.len()));
        let cqe = a.done(round)?;
        ensure!(cqe.opcode == opcode::WRITE, "{cqe:?}");
        only(&b, &before, to, &data).context("WRITE")?;

        let before = random(&mut rng, a.memory.bytes());
        a.memory.write(0, &before);
        a.qp.post(&a.with(Wqe::read(round, remote, b.mr.keys.rkey), from, data.len()));
        let cqe = a.done(round)?;
        ensure!(
            cqe.opcode == opcode::READ && cqe.bytes as usize == data.len(),
            "{cqe:?}"
        );
        only(&a, &before, from, &data).context("READ")?;
    }
    b.idle().context("the peer has no part in it")
}

pub(super) fn inline_data(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let Pair { mut a, mut b } = Pair::open(0)?;
    let most = (a.ctx.info.limits.max_inline as usize).min(inline_bytes(MAX_BLOCKS));
    for bytes in [0, 1, 7, 8, 31, 32, 33, 95, 96, 97, most] {
        let data = random(&mut rng, bytes);
        b.memory.clear();
        b.receive(1, 0, 4096);
        a.qp.post(&Wqe::send(2).inline(&data));
        ensure!(
            b.done(1)?.bytes as usize == bytes,
            "an inline SEND of {bytes}"
        );
        a.done(2)?;
        ensure!(
            b.memory.read(0, bytes) == data && b.memory.read(bytes, 1) == [0],
            "SEND of {bytes}"
        );
        let remote = b.memory.addr() + 8192;
        a.qp.post(&Wqe::write(3, remote, b.mr.keys.rkey).inline(&data));
        a.done(3)
            .with_context(|| format!("an inline WRITE of {bytes}"))?;
        ensure!(b.memory.read(8192, bytes) == data, "WRITE of {bytes}");
        ensure!(
            b.memory.read(8192 + bytes, 1) == [0],
            "WRITE of {bytes} wrote more"
        );
    }
    Ok(())
}

/// Lists of any SGEs, in any order, including empty ones, on both sides.
pub(super) fn lists(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let ctx = Context::open(0)?;
    let shape = QpShape {
        rq_stride: 2,
        ..Default::default()
    };
    let a = Peer::shaped(&ctx, Buffer::new(256 << 10)?, shape)?;
    let b = Peer::shaped(&ctx, Buffer::new(256 << 10)?, shape)?;
    let Pair { mut a, mut b } = Pair::of(a, b)?;
    let (most_send, most_recv) = (
        ctx.info.limits.max_send_sge as usize,
        ctx.info.limits.max_recv_sge as usize,
    );
    for round in 0..100u64 {
        let count = if round == 0 {
            most_send
        } else {
            rng.usize(1..=most_send)
        };
        let mut wqe = match round % 2 {
            0 => Wqe::send(round),
            _ => Wqe::write(round, b.memory.addr() + 1, b.mr.keys.rkey),
        };
        let mut data = Vec::new();
        for _ in 0..count {
            let piece_bytes = if rng.bool() {
                rng.usize(0..9000)
            } else {
                rng.usize(0..3)
            };
            let piece = random(&mut rng, piece_bytes);
            let at = rng.usize(0..a.memory.bytes() - piece.len());
            a.memory.write(at, &piece);
            // A later piece may overlap an earlier one: the last write counts.
            wqe = a.with(wqe, at, piece.len());
            data.push((at, piece.len()));
        }
        let data: Vec<u8> = data
            .into_iter()
            .flat_map(|(at, bytes)| a.memory.read(at, bytes))
            .collect();
        b.memory.clear();
        if round % 2 == 1 {
            a.qp.post(&wqe);
            a.done(round)?;
            ensure!(
                b.memory.read(1, data.len()) == data,
                "WRITE of {count} pieces, {} bytes",
                data.len()
            );
            continue;
        }
        // Cut anywhere, into at most as many pieces as permitted, with gaps between them.
        let pieces = rng.usize(1..=most_recv);
        let mut cuts: Vec<usize> = (1..pieces).map(|_| rng.usize(0..=data.len())).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        let places: Vec<(usize, usize)> = cuts
            .windows(2)
            .enumerate()
            .map(|(i, cut)| (cut[0] + i * 100, cut[1] - cut[0]))
            .collect();
        let sges: Vec<_> = places
            .iter()
            .map(|(at, bytes)| b.sge(*at, *bytes))
            .collect();
        b.qp.post_recv(round, &sges);
        a.qp.post(&wqe);
        let cqe = b.done(round)?;
        a.done(round)?;
        ensure!(
            cqe.bytes as usize == data.len(),
            "{cqe:?} for {} bytes",
            data.len()
        );
        let got: Vec<u8> = places
            .into_iter()
            .flat_map(|(at, bytes)| b.memory.read(at, bytes))
            .collect();
        ensure!(
            got == data,
            "SEND of {count} pieces into {pieces}, {} bytes",
            data.len()
        );
    }
    // READ scatters as well.
    let data = random(&mut rng, 3000);
    b.memory.write(0, &data);
    let mut wqe = Wqe::read(1, b.memory.addr(), b.mr.keys.rkey);
    for piece in 0..3 {
        wqe = a.with(wqe, (2 - piece) * 8192, 1000);
    }
    a.qp.post(&wqe);
    a.done(1)?;
    for piece in 0..3 {
        let at = (2 - piece) * 8192;
        ensure!(
            a.memory.read(at, 1000) == data[piece * 1000..][..1000],
            "piece {piece} of a READ"
        );
    }
    Ok(())
}

/// Sizes around every power of two, starting with 0.
pub(super) fn sizes(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let ctx = Context::open(0)?;
    let memory = || Buffer::new(600 << 10);
    let a = Peer::shaped(&ctx, memory()?, QpShape::default())?;
    let b = Peer::shaped(&ctx, memory()?, QpShape::default())?;
    let Pair { mut a, mut b } = Pair::of(a, b)?;
    let mut sizes = vec![0, 1];
    for shift in 1..=19 {
        sizes.extend([(1 << shift) - 1, 1 << shift, (1 << shift) + 1]);
    }
    for bytes in sizes {
        let data = random(&mut rng, bytes);
        let at = rng.usize(0..4096);
        a.memory.write(at, &data);
        b.memory.write(0, &vec![0; bytes + 8192]);
        b.receive(1, 1, bytes);
        a.qp.post(&a.with(Wqe::send(2), at, bytes));
        b.done(1)?;
        a.done(2)?;
        ensure!(b.memory.read(1, bytes) == data, "SEND of {bytes} bytes");
        let remote = b.memory.addr() + 4095;
        a.qp.post(&a.with(Wqe::write(3, remote, b.mr.keys.rkey), at, bytes));
        a.done(3)?;
        ensure!(b.memory.read(4095, bytes) == data, "WRITE of {bytes} bytes");
        a.memory.write(at, &vec![0; bytes]);
        a.qp.post(&a.with(Wqe::read(4, remote, b.mr.keys.rkey), at, bytes));
        a.done(4)?;
        ensure!(a.memory.read(at, bytes) == data, "READ of {bytes} bytes");
    }
    Ok(())
}

/// One message that takes many turns of the core, while another pair gets its turns.
pub(super) fn a_large_message(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let ctx = Context::open(0)?;
    let bytes = (48 << 20).min(ctx.info.port.max_msg_sz as usize);
    let a = Peer::shaped(&ctx, Buffer::new(bytes)?, QpShape::default())?;
    let b = Peer::shaped(&ctx, Buffer::new(bytes)?, QpShape::default())?;
    let Pair { mut a, mut b } = Pair::of(a, b)?;
    let mut other = Pair::new(&ctx)?;
    for at in (0..bytes).step_by(4096) {
        a.memory.store(at, rng.u64(..));
    }
    b.receive(1, 0, bytes);
    a.qp.post(&a.with(Wqe::send(2), 0, bytes));
    other
        .exchange(&mut rng)
        .context("another pair beside a large message")?;
    ensure!(b.done(1)?.bytes as usize == bytes);
    a.done(2)?;
    for at in (0..bytes).step_by(4096) {
        ensure!(a.memory.load(at) == b.memory.load(at), "differs at {at:#x}");
    }
    Ok(())
}

pub(super) fn a_queue_pair_with_itself(_: &Setup) -> Result<()> {
    let mut peer = Peer::new(&Context::open(0)?, 8192)?;
    peer.qp.connect(peer.qp.number)?;
    peer.memory.write(0, b"to myself");
    peer.receive(1, 4096, 64);
    peer.qp.post(&peer.with(Wqe::send(2), 0, 9));
    let both = [peer.cq.take()?, peer.cq.take()?];
    ensure!(both.iter().all(|cqe| cqe.status == 0), "{both:?}");
    ensure!(
        both.iter().map(|cqe| cqe.wr_id).sum::<u64>() == 3,
        "{both:?}"
    );
    ensure!(peer.memory.read(4096, 9) == b"to myself");
    Ok(())
}

/// Peers may belong to two processes: they are connected because each names the other.
pub(super) fn two_contexts(setup: &Setup) -> Result<()> {
    let a = Peer::new(&Context::open(0)?, 64 << 10)?;
    let b = Peer::new(&Context::open(0)?, 64 << 10)?;
    let mut pair = Pair::of(a, b)?;
    for _ in 0..10 {
        pair.exchange(&mut setup.rng())?;
    }
    Ok(())
}
