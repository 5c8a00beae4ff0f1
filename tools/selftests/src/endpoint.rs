// SPDX-License-Identifier: GPL-2.0
//! Endpoints of two processes: messages, files, killed peers, and peers with a wrong handshake.
//!
//! An endpoint never retries a SEND that meets no receive. So such a SEND is a failed work request,
//! and the device's count of errors must not move.

use std::fs;
use std::fs::File;
use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child as Process;
use std::process::Output;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use fastrand::Rng;
use nix::sys::signal::kill;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use qpair::Device;
use qpair::Endpoint;
use qpair::EndpointError;
use qpair::EndpointOptions;
use qpair_abi::counters::Counter;

use crate::children::Child;
use crate::children::End;
use crate::ktap::cases;
use crate::ktap::say;
use crate::ktap::Group;
use crate::ktap::Setup;
use crate::pair::works;
use crate::raw::Context;
use crate::tool::command;
use crate::wait;
use crate::world;

pub(crate) const GROUP: Group = Group {
    name: "endpoint",
    cases: cases![
        endpoint::messages_both_ways * 4,
        endpoint::files_both_ways,
        endpoint::many_peers_at_once * 4,
        endpoint::a_killed_end * 20,
        endpoint::wrong_handshakes,
        endpoint::a_reset_under_sleeping_ends,
    ],
};

// `cases!` names a file and a function.
use super::endpoint;

const SOCKET: &str = "/tmp/endpoint";
const SERVED: &str = "/tmp/served";
const FETCHED: &str = "/tmp/fetched";
const FILE: &str = "/tmp/file";

/// Counters that a SEND without a receive, or a lost slot, would change.
struct Counters {
    ctx: Arc<Context>,
    before: Vec<u64>,
}

impl Counters {
    fn take() -> Result<Self> {
        let ctx = Context::open(0)?;
        let before = ctx.counters()?;
        Ok(Self { ctx, before })
    }

    fn unchanged(&self) -> Result<()> {
        let errors = self.more()?(Counter::Errors);
        ensure!(errors == 0, "{errors} failed work requests");
        Ok(())
    }

    /// By how much each counter has grown. Only work requests may have failed.
    fn more(&self) -> Result<impl Fn(Counter) -> u64 + '_> {
        let now = self.ctx.counters()?;
        let more = move |which: Counter| now[which as usize] - self.before[which as usize];
        for which in [Counter::Violations, Counter::CqOverruns, Counter::DmaFaults] {
            ensure!(more(which) == 0, "{} {}", more(which), which.text());
        }
        Ok(more)
    }
}

/// The bytes of a message: its number, and a pattern.
fn fill(bytes: &mut Vec<u8>, rng: &mut Rng, number: u64, most: usize) {
    let len = rng.usize(8..=most);
    bytes.clear();
    bytes.extend((0..len).map(|i| (i as u64 * 7 + number) as u8));
    bytes[..8].copy_from_slice(&number.to_le_bytes());
}

/// Pages of this process.
fn pages() -> Result<u64> {
    let text = world::text("/proc/self/statm")?;
    let resident = text.split_whitespace().nth(1).context("statm")?;
    Ok(resident.parse()?)
}

/// Sends and receives `count` messages, with stalls, in any order.
fn talk(stream: UnixStream, seeds: [u64; 2], count: u64) -> Result<()> {
    const BYTES: u32 = 256;
    let mut how = Rng::with_seed(seeds[0] ^ seeds[1].rotate_left(7));
    let options = EndpointOptions::new()
        .message(BYTES)
        .depth(how.u32(1..=32))
        .backlog(how.u32(0..=32))
        .timeout(wait::patience());
    let context = Device::first()?.open()?;
    let mut end = Endpoint::connect(&context, &options, stream)?;
    let (mut ours, mut theirs) = (Rng::with_seed(seeds[0]), Rng::with_seed(seeds[1]));
    let (mut sent, mut received) = (0, 0);
    let (mut message, mut expected) = (Vec::with_capacity(256), Vec::with_capacity(256));
    let mut into = vec![0; end.max_recv()];
    let mut settled = None;
    fill(&mut message, &mut ours, sent, end.max_send());
    while sent < count || received < count {
        let before = (sent, received);
        for _ in 0..how.u32(0..40) {
            if sent == count || end.queue(&message)?.is_none() {
                break;
            }
            sent += 1;
            fill(&mut message, &mut ours, sent, BYTES as usize);
        }
        end.flush()?;
        for _ in 0..how.u32(0..40) {
            // The peer may have closed once its last message is here.
            if received == count {
                break;
            }
            let Some(bytes) = end.try_recv(&mut into)? else {
                break;
            };
            fill(&mut expected, &mut theirs, received, BYTES as usize);
            ensure!(into[..bytes] == expected, "message {received} is another");
            received += 1;
        }
        if how.u32(..1000) == 0 {
            std::thread::sleep(Duration::from_micros(how.u64(..3000)));
        }
        if (sent, received) == before {
            end.pause(Duration::from_millis(100))?;
        }
        if received > count / 4 {
            settled = settled.or(Some(pages()?));
        }
    }
    let grown = pages()?.saturating_sub(settled.unwrap_or_default());
    // An allocator's heap grows by some pages late. A leak of 32 bytes for each message exceeds this.
    ensure!(grown <= 256, "{grown} pages more than after a quarter");
    // One of the two closes first.
    Ok(end.close()?)
}

fn messages_both_ways(setup: &Setup) -> Result<()> {
    let counters = Counters::take()?;
    let count = 50_000;
    let seeds = [setup.seed, !setup.seed];
    let (here, there) = UnixStream::pair()?;
    let child = {
        let here = here.try_clone()?;
        Child::start(move |_| {
            drop(here);
            talk(there, [seeds[1], seeds[0]], count)
        })
    };
    let mut child = child?;
    let talked = talk(here, seeds, count);
    let end = child.end(wait::patience())?;
    talked?;
    ensure!(end == End::Exit(0), "the peer ended with {end}");
    // The last acknowledgement may cross the close, and finds no queue pair then. Its own queue
    // pair is flushed.
    let more = counters.more()?;
    let errors = more(Counter::Errors).saturating_sub(more(Counter::Flushes));
    ensure!(errors <= 1, "{errors} failed work requests");
    Ok(())
}

/// `qpair serve`, killed when it is dropped.
struct Server(Process);

impl Server {
    fn start(timeout: &str) -> Result<Self> {
        fs::create_dir_all(SERVED)?;
        let words = ["serve", "--unix", SOCKET, SERVED, "--timeout", timeout];
        let log = File::options()
            .create(true)
            .append(true)
            .open("/tmp/serve.log")?;
        let started = command(&words)?
            .stderr(log)
            .spawn()
            .context("qpair serve")?;
        let server = Self(started);
        wait::until("qpair serve", || Ok(UnixStream::connect(SOCKET).is_ok()))?;
        Ok(server)
    }

    fn kill(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = fs::remove_file(SOCKET);
        let _ = fs::remove_dir_all(SERVED);
    }
}

fn start(words: &[&str]) -> Result<Process> {
    let mut command = command(words)?;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().context("the tool")
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

/// Runs the tool to its end; what it said.
fn run(words: &[&str]) -> Result<String> {
    let output = start(words)?.wait_with_output()?;
    let said = said(&output);
    ensure!(output.status.success(), "{words:?}: {said}");
    Ok(said)
}

/// Runs the tool, which must fail and say so.
fn fails(words: &[&str], cause: &str) -> Result<()> {
    let output = start(words)?.wait_with_output()?;
    let said = said(&output);
    let is_good = output.status.code() == Some(1) && said.contains(cause);
    ensure!(is_good, "{words:?}: {}, {said}, not {cause}", output.status);
    Ok(())
}

fn random(rng: &mut Rng, path: &str, bytes: usize) -> Result<Vec<u8>> {
    let mut data = vec![0; bytes];
    rng.fill(&mut data);
    fs::write(path, &data).context(path.to_string())?;
    Ok(data)
}

fn is(path: impl AsRef<Path>, data: &[u8]) -> Result<()> {
    let path = path.as_ref();
    let found = fs::read(path).with_context(|| path.display().to_string())?;
    ensure!(found == data, "{} differs", path.display());
    Ok(())
}

fn files_both_ways(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let counters = Counters::take()?;
    let peer = format!("unix:{SOCKET}");
    fails(&["put", "/bin/qpair", &peer], "start `qpair serve`")?;
    let _server = Server::start("20")?;
    fs::create_dir_all(FETCHED)?;
    for bytes in [0, 1, 16383, 16384, 16385, 1_000_003] {
        let data = random(&mut rng, FILE, bytes)?;
        run(&["put", FILE, &peer]).with_context(|| format!("{bytes} bytes"))?;
        is(format!("{SERVED}/file"), &data)?;
        run(&["get", "file", &peer, "--to", FETCHED, "--block", "5k"])?;
        is(format!("{FETCHED}/file"), &data)?;
    }
    // It goes on where another transfer ended; and begins again where the bytes differ.
    let data = random(&mut rng, FILE, 500_000)?;
    let part = format!("{SERVED}/.file.part");
    fs::write(&part, &data[..200_000])?;
    let text = run(&["put", FILE, &peer])?;
    ensure!(text.contains("200000 of them before"), "{text}");
    is(format!("{SERVED}/file"), &data)?;
    fs::write(&part, vec![7; 200_000])?;
    let text = run(&["put", FILE, &peer])?;
    ensure!(!text.contains("before"), "{text}");
    is(format!("{SERVED}/file"), &data)?;
    ensure!(!Path::new(&part).exists(), "a part was left");

    fails(&["get", "none", &peer], "cannot open none")?;
    // The tool's own check. That of the server is tested by its unit tests.
    fails(&["get", "../file", &peer], "no name of a file")?;
    symlink(FILE, format!("{SERVED}/link"))?;
    fails(&["get", "link", &peer], "cannot open link")?;
    fails(&["put", "/nonexistent", &peer], "cannot open")?;
    fails(&["put", SERVED, &peer], "is no file")?;
    counters.unchanged()?;
    fs::remove_dir_all(FETCHED)?;
    Ok(fs::remove_file(FILE)?)
}

fn many_peers_at_once(setup: &Setup) -> Result<()> {
    const PEERS: usize = 64;
    let mut rng = setup.rng();
    let counters = Counters::take()?;
    let _server = Server::start("60")?;
    let peer = format!("unix:{SOCKET}");
    let (mut files, mut puts) = (Vec::new(), Vec::new());
    for at in 0..PEERS {
        let path = format!("/tmp/many-{at}");
        let bytes = rng.usize(..300_000);
        files.push((random(&mut rng, &path, bytes)?, path));
    }
    for (_, path) in &files {
        puts.push(start(&["put", path, &peer, "--timeout", "60"])?);
    }
    for put in puts {
        let output = put.wait_with_output()?;
        ensure!(output.status.success(), "{}", said(&output));
    }
    for (at, (data, path)) in files.iter().enumerate() {
        is(format!("{SERVED}/many-{at}"), data)?;
        fs::remove_file(path)?;
    }
    counters.unchanged()
}

/// Either end is killed while a file is under way, again and again. The other ends with an error, or
/// serves on; then the transfer goes on where it was.
fn a_killed_end(setup: &Setup) -> Result<()> {
    const BYTES: usize = 2 << 20;
    let rounds = if world::is_brief() { 12 } else { 200 };
    let mut rng = setup.rng();
    let peer = format!("unix:{SOCKET}");
    let part = format!("{SERVED}/.file.part");
    let data = random(&mut rng, FILE, BYTES)?;
    let mut server = Server::start("20")?;
    let (mut went_on, mut killed) = (0, [0, 0]);
    for round in 0..rounds {
        let mut put = start(&["put", FILE, &peer])?;
        let held = fs::metadata(&part).map_or(0, |about| about.len());
        let goal = held + rng.u64(..BYTES as u64 / 3);
        let is_over = wait::for_some("some of the file", || {
            if put.try_wait()?.is_some() {
                return Ok(Some(true));
            }
            let there = fs::metadata(&part).map_or(0, |about| about.len());
            Ok((there >= goal).then_some(false))
        })?;
        let of_server = rng.bool();
        if !is_over && !of_server {
            kill(Pid::from_raw(put.id() as i32), Signal::SIGKILL)?;
        } else if !is_over {
            server.kill()?;
        }
        let output = put.wait_with_output()?;
        let text = said(&output);
        went_on += u32::from(text.contains("of them before"));
        if of_server && !is_over && !output.status.success() {
            let has_cause = text.contains("the peer is gone") && text.contains("goes on where");
            ensure!(has_cause, "round {round}: {text}");
            killed[0] += 1;
        } else if is_over || of_server {
            ensure!(output.status.success(), "round {round}: {text}");
        } else {
            killed[1] += 1;
        }
        if of_server && !is_over {
            server = Server::start_again(server)?;
        }
        if output.status.success() {
            is(format!("{SERVED}/file"), &data)?;
        }
    }
    // The server may still be learning that its last peer is gone.
    wait::until("the last part", || {
        Ok(start(&["put", FILE, &peer])?
            .wait_with_output()?
            .status
            .success())
    })?;
    is(format!("{SERVED}/file"), &data)?;
    ensure!(killed[0] > 0 && killed[1] > 0, "killed: {killed:?}");
    say(&format!(
        "killed: {} servers, {} senders; {went_on} went on",
        killed[0], killed[1]
    ));
    Ok(fs::remove_file(FILE)?)
}

impl Server {
    /// Starts it again in the same folder, after it was killed.
    fn start_again(mut old: Self) -> Result<Self> {
        old.0.wait()?;
        std::mem::forget(old);
        Self::start("20")
    }
}

/// What a server says to these bytes, until it closes.
fn answer(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut stream = UnixStream::connect(SOCKET)?;
    stream.write_all(bytes)?;
    stream.set_read_timeout(Some(wait::patience()))?;
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error.into()),
        _ => Ok(said),
    }
}

/// Garbage, another version, silence, and a hello without an end: each is disconnected, and a
/// transfer beside them is not disturbed.
fn wrong_handshakes(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    let counters = Counters::take()?;
    let _server = Server::start("3")?;
    let peer = format!("unix:{SOCKET}");
    let data = random(&mut rng, FILE, 1 << 20)?;
    let put = start(&["put", FILE, &peer])?;
    let mut hello = b"qpair-ep".to_vec();
    for word in [1_u32, 0x0001_0001, 64, 4, 2, 0] {
        hello.extend(word.to_le_bytes());
    }
    let mut version = hello.clone();
    version[8] = 99;
    let mut sizes = hello.clone();
    sizes[20] = 0;
    let mut garbage = vec![0; 300];
    rng.fill(&mut garbage);
    // After the server's hello: a fault, nothing, or the byte of a server whose receives are posted.
    for (what, bytes, after) in [
        ("garbage", &garbage[..], &[0x10][..]),
        ("another version", &version, &[0x11]),
        ("no receives", &sizes, &[0x12]),
        ("silence", &[], &[]),
        ("half a hello", &hello[..20], &[]),
        ("a hello without an end", &hello, &[1]),
    ] {
        let said = answer(bytes)?;
        ensure!(said.len() >= 32, "{what}: {} bytes", said.len());
        ensure!(said[32..] == *after, "{what}: {:?}", &said[32..]);
    }
    let output = put.wait_with_output()?;
    ensure!(output.status.success(), "{}", said(&output));
    is(format!("{SERVED}/file"), &data)?;
    run(&["put", FILE, &peer])?;
    counters.unchanged()?;
    Ok(fs::remove_file(FILE)?)
}

/// An end that waits for a message, in a process of its own: it must end because of the device.
fn sleeper(stream: UnixStream) -> Result<Child> {
    Child::start(move |link| {
        let context = Device::first()?.open()?;
        let mut end = Endpoint::connect(&context, &EndpointOptions::new(), stream)?;
        link.tell(1)?;
        let mut into = vec![0; end.max_recv()];
        match end.recv(&mut into) {
            Err(EndpointError::Device(_) | EndpointError::Gone) => Ok(()),
            other => bail!("the end of a device that was reset: {other:?}"),
        }
    })
}

/// Two ends that sleep when the device is reset say so; new ones work.
fn a_reset_under_sleeping_ends(setup: &Setup) -> Result<()> {
    let (here, there) = UnixStream::pair()?;
    let there = sleeper(there)?;
    let here = sleeper(here)?;
    let mut ends = [here, there];
    for end in &ends {
        end.link().hear()?;
        let stat = format!("/proc/{}/stat", end.pid());
        wait::until("an end that sleeps", || {
            Ok(world::text(&stat)?.contains(") S "))
        })?;
    }
    let reset = format!("/sys/bus/pci/devices/{}/reset", world::function(0)?);
    world::put(reset, "1")?;
    for end in &mut ends {
        end.done()?;
    }
    works(0, &mut setup.rng())
}
