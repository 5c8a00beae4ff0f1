// SPDX-License-Identifier: GPL-2.0
//! Endpoints against the device model, in one process.
//!
//! A SEND that meets no receive fails at once, so the device's count of errors has to stay 0.
//! A failure prints its seed; `QPAIR_SEED=N` runs that one alone. `QPAIR_MESSAGES=N` sends more.

mod rogue;
#[path = "../support/mod.rs"]
mod support;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use qpair::kernel::QpState;
use qpair::{
    Access, Context, Counter, Duplex, Endpoint, EndpointError, EndpointOptions, Memory, Mr, Pd,
    Ticket,
};
use qpair_model::Config;
use qpair_testkit::number;
use rustix::io::Errno;
use support::bench::{both, exchange, pair};
use support::{machine, machine_of, Fake};

fn quiet(fake: &Fake) {
    let machine = fake.machine();
    for counter in [
        Counter::Errors,
        Counter::Flushes,
        Counter::Violations,
        Counter::CqOverruns,
        Counter::Stale,
        Counter::DmaFaults,
    ] {
        assert_eq!(machine.function.counter(counter), 0, "{}", counter.text());
    }
}

/// Takes a message, which is `number`.
fn takes(end: &mut Endpoint, number: u32) {
    let mut into = vec![0; end.max_recv()];
    assert_eq!(end.recv(&mut into).unwrap(), 4);
    assert_eq!(into[..4], number.to_le_bytes());
}

/// The bytes of a message: its number, and a pattern.
fn message(rng: &mut Rng, number: u64, most: usize) -> Vec<u8> {
    let len = rng.usize(8..=most);
    let mut bytes: Vec<u8> = (0..len).map(|i| (i as u64 * 7 + number) as u8).collect();
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// One end, with what it sends and what must come.
struct Side {
    end: Endpoint,
    rng: Rng,
    sent: u64,
    /// That of the peer's random numbers, to know what comes.
    theirs: Rng,
    received: u64,
    tickets: VecDeque<Ticket>,
    /// Turns for which it does nothing.
    stalled: u32,
    buffer: Vec<u8>,
}

impl Side {
    fn new(end: Endpoint, own: u64, theirs: u64) -> Self {
        Self {
            buffer: vec![0; end.max_recv()],
            end,
            rng: Rng::with_seed(own),
            sent: 0,
            theirs: Rng::with_seed(theirs),
            received: 0,
            tickets: VecDeque::new(),
            stalled: 0,
        }
    }

    /// Sends some of `count`, until the backlog is full.
    fn send(&mut self, count: u64, batch: u64) {
        let goal = count.min(self.sent + batch);
        while self.sent < goal {
            let before = self.rng.clone();
            let bytes = message(&mut self.rng, self.sent, self.end.max_send());
            let Some(ticket) = self.end.queue(&bytes).unwrap() else {
                self.rng = before;
                break;
            };
            self.sent += 1;
            self.tickets.push_back(ticket);
        }
        self.end.flush().unwrap();
        while let Some(&ticket) = self.tickets.front() {
            if !self.end.is_done(ticket).unwrap() {
                break;
            }
            self.tickets.pop_front();
        }
        assert!(self.tickets.len() < 1000, "the backlog has a bound");
    }

    fn receive(&mut self, batch: u64) {
        for _ in 0..batch {
            let Some(bytes) = self.end.try_recv(&mut self.buffer).unwrap() else {
                break;
            };
            let most = self.end.max_recv();
            let expected = message(&mut self.theirs, self.received, most);
            assert!(
                self.buffer[..bytes] == expected,
                "message {} has {bytes} bytes",
                self.received
            );
            self.received += 1;
        }
    }
}

/// Random sizes, depths and stalls of both sides and of the device.
fn talk(seed: u64, count: u64) {
    let mut rng = Rng::with_seed(seed);
    let (fake, context) = machine();
    let bytes = rng.u32(8..=300);
    let mut options = || {
        EndpointOptions::new()
            .message(bytes)
            .depth(rng.u32(1..=40))
            .backlog(rng.u32(0..=20))
    };
    let (a, b) = (options(), options());
    let (near, far) = pair(&context, &a, &b);
    let by_hand = rng.bool();
    if by_hand {
        fake.by_hand();
    }
    let pinned = fake.machine().pinned();
    let mut sides = [Side::new(near, 1, 2), Side::new(far, 2, 1)];
    while sides
        .iter()
        .any(|s| s.received < count || !s.tickets.is_empty())
    {
        let side = &mut sides[rng.usize(..2)];
        if side.stalled > 0 {
            side.stalled -= 1;
        } else {
            match rng.u32(..20) {
                0 => side.stalled = rng.u32(..200),
                1..=9 => side.send(count, rng.u64(1..=64)),
                _ => side.receive(rng.u64(1..=64)),
            }
        }
        if by_hand {
            fake.machine().run(rng.u32(..8));
        }
    }
    fake.machine().settle();
    // Acknowledgements end: after the last ones, no side rings any more.
    let doorbells = || fake.machine().function.counter(Counter::SqDoorbells);
    let mut turn = |times| {
        for _ in 0..times {
            for side in &mut sides {
                assert_eq!(side.end.try_recv(&mut side.buffer).unwrap(), None);
                fake.machine().settle();
            }
        }
    };
    turn(4);
    let before = doorbells();
    turn(20);
    assert_eq!(doorbells(), before);
    assert_eq!(fake.machine().pinned(), pinned, "memory is constant");
    quiet(&fake);
    fake.machine().eager = true;
    let [near, far] = sides;
    near.end.close().unwrap();
    far.end.close().unwrap();
}

#[test]
fn a_port_of_roce_is_reached_by_its_gid() {
    let (fake, plain) = (machine().0, EndpointOptions::new());
    fake.machine().roce = true;
    drop(pair(&Context::new(fake.clone()).unwrap(), &plain, &plain));
    quiet(&fake);
}

#[test]
fn messages_come_once_in_order_and_always_find_a_receive() {
    let count = number("QPAIR_MESSAGES").unwrap_or(1_000_000);
    if let Some(seed) = number("QPAIR_SEED") {
        return talk(seed, count / 2);
    }
    let first = Rng::new().u64(..1 << 32);
    println!("seeds from {first}");
    const TALKS: u64 = 20;
    for seed in first..first + TALKS {
        let is_right = std::panic::catch_unwind(|| talk(seed, count / TALKS / 2)).is_ok();
        let messages = count / TALKS;
        assert!(
            is_right,
            "QPAIR_SEED={seed} QPAIR_MESSAGES={messages} fails"
        );
    }
}

/// Both ends block, in threads of their own.
#[test]
fn blocking_calls_wake_each_other() {
    const COUNT: u32 = 2000;
    let (fake, context) = machine();
    let options = EndpointOptions::new().message(64).depth(4).backlog(2);
    let (mut near, mut far) = pair(&context, &options.clone().max_send(16), &options);
    assert_eq!((near.max_send(), far.max_send()), (16, 64));
    let long = near.send(&[0; 17]).unwrap_err();
    assert!(matches!(long, EndpointError::Size { .. }), "{long}");
    let short = near.try_recv(&mut [0; 63]).unwrap_err();
    assert!(matches!(short, EndpointError::Size { .. }), "{short}");
    assert_eq!(near.try_recv(&mut [0; 65]).unwrap(), None);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut into = [0; 64];
            for n in 0..COUNT {
                let bytes = far.recv(&mut into).unwrap();
                assert_eq!(into[..bytes], n.to_le_bytes());
                let ticket = far.send(&into[..bytes]).unwrap();
                if n % 7 == 0 {
                    far.wait(ticket).unwrap();
                }
            }
            far.close().unwrap();
        });
        let mut into = [0; 64];
        for n in 0..COUNT {
            near.send(&n.to_le_bytes()).unwrap();
            takes(&mut near, n);
        }
        let end = near.recv(&mut into).unwrap_err();
        assert!(matches!(end, EndpointError::Closed), "{end}");
    });
    quiet(&fake);
}

#[test]
fn a_peer_that_does_not_receive_is_back_pressure() {
    let (fake, context) = machine();
    let options = EndpointOptions::new()
        .message(64)
        .depth(4)
        .backlog(3)
        .timeout(Duration::from_millis(50));
    let (mut near, mut far) = pair(&context, &options, &options);
    let mut count = 0;
    while near.try_send(b"x").unwrap().is_some() {
        count += 1;
        assert!(count < 100);
    }
    // Four in the receives, whose sends have completed; then as many as there are buffers.
    assert_eq!(count, 4 + 7);
    let late = near.send(b"x").unwrap_err();
    assert!(matches!(late, EndpointError::Late { .. }), "{late}");
    let mut into = [0; 64];
    for _ in 0..count {
        near.progress().unwrap();
        assert_eq!(far.recv(&mut into).unwrap(), 1);
    }
    assert_eq!(far.try_recv(&mut into).unwrap(), None);
    near.send(b"y").unwrap();
    quiet(&fake);
}

#[test]
fn the_largest_options_are_no_panic() {
    let (_fake, context) = machine();
    let options = EndpointOptions::new()
        .message(64)
        .depth(1)
        .timeout(Duration::MAX);
    let large = options.clone().backlog(u32::MAX);
    let (mut near, mut far) = pair(&context, &large, &options.backlog(0));
    let mut into = [0; 64];
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            // Each waits for a receive.
            for _ in 0..3 {
                let ticket = far.send(b"x").unwrap();
                far.wait(ticket).unwrap();
            }
        });
        let got = near.recv_for(&mut into, Duration::MAX).unwrap();
        assert_eq!(got, Some(1));
        thread::sleep(Duration::from_millis(20));
        for _ in 0..2 {
            near.recv(&mut into).unwrap();
        }
    });
    near.send(b"y").unwrap();
    // More than the device has is an error, and no overflow.
    let direct = large.direct(u32::MAX, u32::MAX);
    let (_, there) = UnixStream::pair().unwrap();
    let error = Endpoint::connect(&context, &direct, there).unwrap_err();
    assert!(matches!(error, EndpointError::Device(_)), "{error}");
}

/// 16 messages, 4 acknowledgements, 4 READs and 8 WRITEs need an SQ of 32 blocks, which is the
/// device's largest one.
#[test]
fn the_queues_have_a_slot_for_each_work_request_and_no_more() {
    let (fake, context) = machine_of(Config {
        log_sq: 5,
        log_rq: 5,
        log_cq: 7,
        ..Config::default()
    });
    let options = EndpointOptions::new().message(64).direct(4, 8);
    let (mut near, mut far) = pair(&context, &options, &options);
    exchange(&mut near, &mut far);
    quiet(&fake);
    let (here, _there) = UnixStream::pair().unwrap();
    let error = Endpoint::connect(&context, &options.direct(5, 8), here).unwrap_err();
    let is_too_large = matches!(
        &error,
        EndpointError::Device(error) if error.errno() == Some(Errno::INVAL)
    );
    assert!(is_too_large, "{error}");
}

#[test]
fn read_and_write_have_slots_of_their_own() {
    let (fake, context) = machine();
    let pd = Pd::new(&context).unwrap();
    let all = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let options = EndpointOptions::new().access(all).direct(2, 1);
    let (here, there) = UnixStream::pair().unwrap();
    let (mut near, mut far) = both(
        || Endpoint::connect_in(&pd, &context, &options, here),
        || Endpoint::connect_in(&pd, &context, &options, there),
    );
    let mr = Mr::new(&pd, Memory::new(8192).unwrap(), Access::all()).unwrap();
    mr.write(0, b"one");
    near.write(mr.sge(0, 3), mr.remote(4096)).unwrap();
    near.read(mr.sge(100, 3), mr.remote(4096)).unwrap();
    let mut got = [0; 3];
    mr.read(100, &mut got);
    assert_eq!(&got, b"one");
    // A full credit of messages does not stop them, nor they the messages.
    fake.by_hand();
    while near.try_send(b"x").unwrap().is_some() {}
    let (from, to) = (mr.sge(0, 1), mr.remote(0));
    let mut read = || near.try_read(from, to).unwrap().is_some();
    assert_eq!([read(), read(), read()], [true, true, false]);
    let mut write = || near.try_write(from, to).unwrap().is_some();
    assert_eq!([write(), write()], [true, false]);
    fake.machine().settle();
    fake.machine().eager = true;
    let mut into = [0; 4096];
    assert_eq!(far.recv(&mut into).unwrap(), 1);
    quiet(&fake);
    // What the region does not grant.
    let bad = qpair::Remote { addr: 1, rkey: 77 };
    let refused = near.read(mr.sge(0, 1), bad).unwrap_err();
    assert!(matches!(refused, EndpointError::Completion(_)), "{refused}");
}

/// A doorbell submits 32 sends at most.
#[test]
fn a_flush_sends_all_that_was_queued() {
    const COUNT: u32 = 70;
    let (fake, context) = machine();
    let options = EndpointOptions::new().message(64).depth(COUNT);
    let (mut near, mut far) = pair(&context, &options, &options);
    for n in 0..COUNT {
        near.queue(&n.to_le_bytes()).unwrap().expect("a buffer");
    }
    let doorbells = || fake.machine().function.counter(Counter::SqDoorbells);
    let before = doorbells();
    near.flush().unwrap();
    assert_eq!(doorbells() - before, 3);
    for n in 0..COUNT {
        takes(&mut far, n);
    }
    quiet(&fake);
}

#[test]
fn many_at_once_do_not_disturb_each_other() {
    let (fake, context) = machine();
    let options = EndpointOptions::new().message(64).depth(3).backlog(1);
    let mut pairs: Vec<_> = (0..64)
        .map(|_| pair(&context, &options, &options))
        .collect();
    let mut rng = Rng::with_seed(7);
    let mut into = [0; 64];
    let mut counts = [(0_u64, 0_u64); 64];
    // One never receives.
    while counts[1..].iter().any(|&(_, received)| received < 500) {
        let at = rng.usize(..64);
        let (near, far) = &mut pairs[at];
        let (sent, received) = &mut counts[at];
        if near.try_send(&sent.to_le_bytes()).unwrap().is_some() {
            *sent += 1;
        }
        if at > 0 && far.try_recv(&mut into).unwrap().is_some() {
            assert_eq!(into[..8], received.to_le_bytes());
            *received += 1;
        }
    }
    assert_eq!(counts[0].0, 3 + 4);
    quiet(&fake);
}

#[test]
fn what_arrived_before_the_end_can_be_received() {
    for closes in [false, true] {
        let (fake, context) = machine();
        let before = fake.machine().pinned();
        let options = EndpointOptions::new().message(64);
        let (mut near, mut far) = pair(&context, &options, &options);
        for n in 0..10_u32 {
            near.send(&n.to_le_bytes()).unwrap();
        }
        if closes {
            near.close().unwrap();
        } else {
            drop(near);
        }
        let mut into = [0; 64];
        for n in 0..10_u32 {
            takes(&mut far, n);
            if n < 9 {
                far.woken().unwrap();
                far.flush().expect("messages are left");
            }
        }
        let end = far.flush().unwrap_err();
        assert_eq!(end.is_gone(), !closes, "{end}");
        let end = far.recv(&mut into).unwrap_err();
        assert_eq!(end.is_gone(), !closes, "{end}");
        assert_eq!(matches!(end, EndpointError::Closed), closes, "{end}");
        let again = far.send(b"x").unwrap_err();
        assert_eq!(again.is_gone(), !closes, "{again}");
        drop(far);
        assert_eq!(fake.machine().pinned(), before, "nothing is left");
    }
}

/// Both close, one after the other, and neither has an error.
#[test]
fn either_side_may_close_first() {
    let (fake, context) = machine();
    let options = EndpointOptions::new().message(64).depth(4);
    let (mut near, mut far) = pair(&context, &options, &options);
    exchange(&mut near, &mut far);
    near.close().unwrap();
    far.close().unwrap();
    drop(fake);
}

/// An acknowledgement that crosses the peer's close finds no queue pair; nothing is lost by that.
#[test]
fn an_acknowledgement_may_cross_a_close() {
    let (fake, context) = machine();
    let options = EndpointOptions::new().message(64).depth(8);
    let (mut near, mut far) = pair(&context, &options, &options);
    let mut into = [0; 64];
    for n in 0..8_u32 {
        near.send(&n.to_le_bytes()).unwrap();
    }
    far.send(b"last").unwrap();
    near.recv(&mut into).unwrap();
    near.close().unwrap();
    for n in 0..8_u32 {
        takes(&mut far, n);
    }
    far.close().unwrap();
    let machine = fake.machine();
    let [errors, flushed] =
        [Counter::Errors, Counter::Flushes].map(|which| machine.function.counter(which));
    assert_eq!(errors - flushed, 1, "that of the acknowledgement");
}

/// A device that is reset, or has failed the queue pair, may complete nothing: a wait finds it out.
#[test]
fn a_wait_finds_the_end_by_a_query() {
    let says = [Err(Errno::IO), Ok(QpState::Error)];
    let errors = says.map(|said| {
        let (fake, context) = machine();
        let options = EndpointOptions::new();
        let (mut near, _far) = pair(&context, &options, &options);
        fake.machine().says = Some(said);
        near.recv(&mut [0; 4096]).unwrap_err()
    });
    assert!(
        matches!(&errors[0], EndpointError::Device(error) if error.is_dead()),
        "{}",
        errors[0]
    );
    assert!(errors[1].is_gone(), "{}", errors[1]);
}

#[test]
fn an_endpoint_has_one_descriptor() {
    let (_fake, context) = machine();
    let options = EndpointOptions::new();
    let (near, _far) = pair(&context, &options, &options);
    assert_eq!(near.as_raw_fd(), near.as_fd().as_raw_fd());
}

/// A wait that a completion ends does not query the queue pair.
#[test]
fn a_wait_that_a_message_ends_makes_no_query() {
    let (fake, context) = machine();
    let options = EndpointOptions::new();
    let (mut near, mut far) = pair(&context, &options, &options);
    far.send(b"x").unwrap();
    fake.machine().says = Some(Ok(QpState::Error));
    near.pause(Duration::from_secs(60)).unwrap();
    near.send(b"y").unwrap();
}

#[test]
fn what_is_in_flight_at_a_sudden_end_has_failed() {
    let (fake, context) = machine();
    let options = EndpointOptions::new();
    let (here, there) = UnixStream::pair().unwrap();
    let end = there.try_clone().unwrap();
    let (mut near, _far) = both(
        || Endpoint::connect(&context, &options, here),
        || Endpoint::connect(&context, &options, there),
    );
    fake.by_hand();
    let ticket = near.send(b"x").unwrap();
    end.shutdown(Shutdown::Both).unwrap();
    near.woken().unwrap();
    let error = near.is_done(ticket).unwrap_err();
    assert!(error.is_gone(), "{error}");
}

/// A program that never sleeps learns of the end too.
#[test]
fn a_poll_finds_the_end() {
    let (_fake, context) = machine();
    let options = EndpointOptions::new();
    let (near, mut far) = pair(&context, &options, &options);
    drop(near);
    let mut into = vec![0; 4096];
    let error = (0..1000).find_map(|_| far.try_recv(&mut into).err());
    assert!(error.expect("an end").is_gone());
}

/// A stream whose next read fails with an error of choice.
#[derive(Debug)]
struct Failing(UnixStream, Arc<Mutex<Option<ErrorKind>>>);

impl AsFd for Failing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for Failing {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.1.lock().unwrap().take() {
            Some(kind) => Err(kind.into()),
            None => self.0.read(into),
        }
    }
}

#[test]
fn a_stream_may_be_interrupted_fail_or_be_reset() {
    let (_fake, context) = machine();
    let options = EndpointOptions::new();
    let (here, there) = UnixStream::pair().unwrap();
    let fault = Arc::new(Mutex::new(Some(ErrorKind::Interrupted)));
    let here = Duplex {
        writer: here.try_clone().unwrap(),
        reader: Failing(here, fault.clone()),
    };
    let (mut near, far) = both(
        || Endpoint::connect(&context, &options, here),
        || Endpoint::connect(&context, &options, there),
    );
    // The stream is readable, since its other end is closed.
    drop(far);
    let mut woken = |kind| {
        *fault.lock().unwrap() = Some(kind);
        near.woken()
    };
    woken(ErrorKind::Interrupted).unwrap();
    let error = woken(ErrorKind::PermissionDenied).unwrap_err();
    assert!(matches!(error, EndpointError::Stream(_)), "{error}");
    woken(ErrorKind::ConnectionReset).unwrap();
    assert!(near.send(b"x").unwrap_err().is_gone());
}

#[test]
fn pipes_do_as_well() {
    let (_fake, context) = machine();
    let pipe = || {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        (File::from(reader), File::from(writer))
    };
    let ((from_a, to_b), (from_b, to_a)) = (pipe(), pipe());
    let a = Duplex {
        reader: from_b,
        writer: to_b,
    };
    let b = Duplex {
        reader: from_a,
        writer: to_a,
    };
    let options = EndpointOptions::new();
    let (mut near, mut far) = both(
        || Endpoint::connect(&context, &options, a),
        || Endpoint::connect(&context, &options, b),
    );
    near.send(b"by pipes").unwrap();
    let mut into = vec![0; 4096];
    assert_eq!(far.recv(&mut into).unwrap(), 8);
    near.close().unwrap();
    let end = far.recv(&mut into).unwrap_err();
    assert!(matches!(end, EndpointError::Closed), "{end}");
}
