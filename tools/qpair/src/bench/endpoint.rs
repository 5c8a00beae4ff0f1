// SPDX-License-Identifier: GPL-2.0
//! `qpair bench --endpoint`: messages between two endpoints of this process, and beside them the
//! same messages through a Unix socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context as _};
use qpair::{Context, Endpoint, EndpointError, EndpointOptions};
use serde_json::json;

use crate::args::Bench;
use crate::report;
use crate::session::{self, Signals};

/// Bytes that may be in a socket.
const IN_SOCKET: u64 = 32 << 10;

pub(crate) fn run(device: Option<&str>, args: &Bench) -> anyhow::Result<()> {
    ensure!(
        u64::from(args.size) <= IN_SOCKET,
        "a socket has room for messages of {IN_SOCKET} bytes: use --size {IN_SOCKET}"
    );
    let context = session::open(device)?;
    let signals = Signals::catch()?;
    let (mut near, mut far) = connected(&context, args)?;
    let message: Vec<u8> = (0..args.size).map(|i| (i * 7 + i / 251) as u8).collect();
    let mut into = vec![0; far.max_recv()];

    let before = context.counters()?;
    let begin = Instant::now();
    let (mut sent, mut received) = (0, 0);
    while received < args.count {
        let goal = args.count.min(sent + u64::from(args.batch));
        while sent < goal && near.queue(&message)?.is_some() {
            sent += 1;
        }
        near.flush()?;
        while let Some(bytes) = far.try_recv(&mut into)? {
            ensure!(bytes == message.len(), "a message of {bytes} bytes came");
            received += 1;
        }
        near.progress()?;
        if received % 1024 == 0 {
            signals.check()?;
        }
    }
    let time = begin.elapsed();
    let counted = context.counters()?.since(&before);
    ensure!(
        into[..message.len()] == message,
        "what arrived is not what was sent"
    );
    near.close()?;

    let socket = through_a_socket(args, &message)?;
    let (ours, theirs) = (
        report::rate(args.count, time),
        report::rate(args.count, socket),
    );
    if args.json {
        return report::print(&report::json(&json!({
            "op": "endpoint",
            "batch": args.batch,
            "size": args.size,
            "count": args.count,
            "seconds": time.as_secs_f64(),
            "messages_per_second": ours,
            "socket_messages_per_second": theirs,
            "counters": report::counters_json(&counted),
        })));
    }
    report::print(&format!(
        "{} messages of {} bytes in {:.3} s, {} for each doorbell: {ours:.0} a second; \
         {theirs:.0} by a Unix socket\ncounted by the device meanwhile:\n{}",
        args.count,
        args.size,
        time.as_secs_f64(),
        args.batch,
        report::counters(&counted, &[]),
    ))
}

fn connected(context: &Context, args: &Bench) -> anyhow::Result<(Endpoint, Endpoint)> {
    let options = EndpointOptions::new()
        .message(args.size)
        .depth(2 * args.batch)
        .backlog(args.batch)
        .direct(0, 0)
        .timeout(Duration::from_secs(args.wait.stall_limit.into()));
    let (here, there) = UnixStream::pair().context("cannot make a pair of sockets")?;
    thread::scope(|scope| {
        let far = scope.spawn(|| Endpoint::connect(context, &options, there));
        let near = Endpoint::connect(context, &options, here)?;
        let far: Result<Endpoint, EndpointError> = match far.join() {
            Ok(far) => far,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok((near, far?))
    })
}

/// The same messages through a socket of this process: a system call for each end of each.
fn through_a_socket(args: &Bench, message: &[u8]) -> anyhow::Result<Duration> {
    let failed = "cannot send through a Unix socket";
    let (mut near, mut far) = UnixStream::pair().context(failed)?;
    let mut into = vec![0; message.len()];
    let begin = Instant::now();
    let (mut sent, mut received) = (0, 0);
    while received < args.count {
        let goal = args.count.min(sent + u64::from(args.batch));
        while sent < goal {
            // This thread is also the reader, so a write must not wait for room.
            if (sent - received) * message.len() as u64 > IN_SOCKET {
                break;
            }
            near.write_all(message).context(failed)?;
            sent += 1;
        }
        while received < sent {
            far.read_exact(&mut into).context(failed)?;
            received += 1;
        }
    }
    ensure!(
        into == message,
        "what the socket moved is not what was sent"
    );
    Ok(begin.elapsed())
}
