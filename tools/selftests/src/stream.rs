// SPDX-License-Identifier: GPL-2.0
//! Cases: the function of channels, `qpair-stream`, and its driver on each rung.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::kmod::DeleteModuleFlags;
use nix::kmod::ModuleInitFlags;
use serde_json::json;

use crate::children::Child;
use crate::host::Host;
use crate::ktap::cases;
use crate::ktap::skip;
use crate::ktap::Group;
use crate::ktap::Setup;
use crate::life::sleep::Sleep;
use crate::wait;
use crate::world;

/// The driver of the function.
const DRIVER: &str = "/sys/bus/pci/drivers/qpair-stream";
const MODULE: &str = "/qpair/qpair-stream.ko";
/// The driver's files, in a folder of each function.
const DEBUGFS: &str = "/sys/kernel/debug/qpair-stream";
/// The function in QEMU.
const OBJECT: &str = "/machine/peripheral/stream0";
const RUNGS: [&str; 3] = ["polled", "chain", "headtail"];
/// More frames than are moved before a case ends the run.
const ENDLESS: &str = "count=1000000000";

pub(crate) const GROUP: Group = Group {
    name: "stream",
    cases: cases![
        this::frames_of_every_size * 4,
        this::one_polled_descriptor_needs_no_interrupt,
        this::a_chain_is_owned_at_both_ends,
        this::a_status_goes_back_and_forth,
        this::a_ring_keeps_a_slot_free,
        this::a_write_back_where_it_is_asked_for,
        this::a_threshold_or_a_delay,
        this::an_interval_between_messages,
        this::a_halt_is_reported * 2,
        this::lost_interrupts * 2,
        this::a_stalled_function * 2,
        this::a_function_that_vanishes * 2,
        this::killed_in_the_midst * 4,
        this::unbound_in_the_midst * 2,
        this::reset_in_the_midst * 2,
        this::removed_and_loaded,
        this::unplugged_in_the_midst * 4,
    ],
};

/// Its suspend, which needs a guest that may sleep.
pub(crate) const SLEEP: Group = Group {
    name: "stream-sleep",
    cases: cases![this::suspended_in_the_midst * 4],
};

/// For [`cases`], which wants a module.
mod this {
    pub(super) use super::*;
}

/// The PCI address of the function; a case that needs it is skipped if there is none.
fn address() -> Result<String> {
    for entry in std::fs::read_dir(DRIVER).context(DRIVER)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.contains(':') {
            return Ok(name);
        }
    }
    Err(skip("needs a function of channels: scripts/guest --stream"))
}

fn folder() -> Result<PathBuf> {
    Ok(Path::new(DEBUGFS).join(address()?))
}

/// The report of a run.
struct Report {
    text: String,
    error: Option<ErrorKind>,
}

impl Report {
    fn words(&self) -> BTreeMap<&str, &str> {
        let words = self.text.split_whitespace();
        words.filter_map(|word| word.split_once('=')).collect()
    }

    fn number(&self, key: &str) -> Result<u64> {
        let words = self.words();
        let value = words
            .get(key)
            .with_context(|| format!("no {key}: {}", self.text))?;
        value.parse().with_context(|| self.text.clone())
    }

    fn whole(self) -> Result<Self> {
        ensure!(
            self.error.is_none() && self.words().get("result") == Some(&"ok"),
            "{:?}: {}",
            self.error,
            self.text
        );
        Ok(self)
    }

    fn is_refused(&self, reason: &str) -> Result<()> {
        ensure!(
            self.error == Some(ErrorKind::InvalidInput) && self.text.contains(reason),
            "{:?}: {}",
            self.error,
            self.text
        );
        Ok(())
    }
}

fn run(plan: &str) -> Result<Report> {
    let file = folder()?.join("loopback");
    // One write: `fs::write` would begin another run after a signal.
    let mut open = File::options().write(true).open(&file)?;
    let error = open.write(plan.as_bytes()).err().map(|it| it.kind());
    Ok(Report {
        text: world::text(file)?,
        error,
    })
}

/// Each rung moves frames.
fn works() -> Result<()> {
    for rung in RUNGS {
        run(&format!("kind={rung} size=100 count=50"))?.whole()?;
    }
    Ok(())
}

/// Interrupts and frames of all pairs, as the driver counts them.
fn seen() -> Result<(u64, u64)> {
    let text = world::text(folder()?.join("pairs"))?;
    let mut sums = (0, 0);
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| -> Result<u64> {
            let word = words.get(at).with_context(|| text.clone())?;
            word.parse().with_context(|| text.clone())
        };
        sums = (sums.0 + number(2)?, sums.1 + number(4)?);
    }
    Ok(sums)
}

/// A counter of the function.
fn counter(host: &mut Host, name: &str) -> Result<u64> {
    let arguments = json!({ "path": OBJECT, "property": name });
    let value = host.qmp("qom-get", arguments)?;
    value.as_u64().with_context(|| format!("{name} is {value}"))
}

/// Sets a property of the function.
fn set(host: &mut Host, name: &str, value: serde_json::Value) -> Result<()> {
    let arguments = json!({ "path": OBJECT, "property": name, "value": value });
    host.qmp("qom-set", arguments).map(drop)
}

/// A process whose run does not end by itself. Ends well if the run ends with an error.
fn endless(rung: &'static str) -> Result<Child> {
    Child::start(move |_| {
        let report = run(&format!("kind={rung} size=1500 {ENDLESS}"));
        // The files may be gone with the function.
        if let Ok(report) = report {
            ensure!(report.error.is_some(), "it ended: {}", report.text);
        }
        Ok(())
    })
}

/// Waits until an endless run of a function that does nothing waits for it, in `write`.
fn stuck(child: &Child) -> Result<()> {
    const WRITE: &str = "1 ";
    let call = format!("/proc/{}/syscall", child.pid());
    wait::until("a run that waits", || {
        Ok(world::text(&call)?.starts_with(WRITE))
    })
}

/// An endless run whose frames move.
fn under_way(rung: &'static str) -> Result<Child> {
    let (_, before) = seen()?;
    let child = endless(rung)?;
    if rung == "polled" {
        // Not counted by pairs: a delay, not a wait.
        std::thread::sleep(Duration::from_millis(20));
    } else {
        wait::until("frames of an endless run", || Ok(seen()?.1 > before + 10))?;
    }
    Ok(child)
}

/// Every rung, sizes around the words of a buffer and its largest, single frames and batches.
fn frames_of_every_size(_: &Setup) -> Result<()> {
    for rung in RUNGS {
        for size in [1, 7, 8, 63, 64, 1023, 1024, 1025, 1500, 4097, 16384] {
            for batch in [1, 2, 32] {
                if rung == "polled" && batch != 1 {
                    continue;
                }
                let plan = format!("kind={rung} size={size} batch={batch} count=70 depth=64");
                let report = run(&plan)?.whole()?;
                ensure!(report.number("bytes")? == 70 * size, "{}", report.text);
            }
        }
    }
    let reason = "size is 1 to the largest";
    run("kind=chain size=16385")?.is_refused(reason)
}

/// Rung 1: the status in memory is enough.
fn one_polled_descriptor_needs_no_interrupt(_: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let (driver, function) = (seen()?.0, counter(&mut host, "interrupts")?);
    run("kind=polled count=300")?.whole()?;
    ensure!(seen()?.0 == driver, "the driver has seen an interrupt");
    let now = counter(&mut host, "interrupts")?;
    ensure!(now == function, "{} interrupts were sent", now - function);
    run("kind=polled batch=2")?.is_refused("polled has one descriptor")
}

/// Rung 2: as many descriptors as the ring has are in flight at once, so the one at the tail too.
fn a_chain_is_owned_at_both_ends(_: &Setup) -> Result<()> {
    run("kind=chain depth=8 batch=8 count=800")?.whole()?;
    run("kind=chain depth=1 batch=1 count=100")?.whole()?;
    run("kind=chain depth=8 batch=9")?.is_refused("batch is at most depth")
}

/// Rung 2: each of two descriptors is used 500 times, and none halts the channel as complete.
fn a_status_goes_back_and_forth(_: &Setup) -> Result<()> {
    run("kind=chain depth=2 batch=2 count=1000")?.whole()?;
    run("kind=polled count=1000")?.whole().map(drop)
}

/// Rung 3: all but one descriptor are in flight at once; with one more, head and tail would be
/// equal, which is an empty ring.
fn a_ring_keeps_a_slot_free(_: &Setup) -> Result<()> {
    run("kind=headtail depth=8 batch=7 count=700")?.whole()?;
    run("kind=headtail depth=8 batch=8")?.is_refused("one descriptor is never handed over")
}

/// A chain has each status written, of both sides; a ring those of the receive side, and one for
/// each batch that was transmitted.
fn a_write_back_where_it_is_asked_for(_: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    let mut writes = |plan: &str| -> Result<u64> {
        let before = counter(&mut host, "dma-writes")?;
        run(plan)?.whole()?;
        Ok(counter(&mut host, "dma-writes")? - before)
    };
    let ring = writes("kind=headtail batch=32 count=64")?;
    ensure!(ring == 64 * 2 + 2, "{ring} writes for 64 frames of a ring");
    let single = writes("kind=headtail batch=1 count=64")?;
    ensure!(single == 64 * 3, "{single} writes for 64 single frames");
    // The data, two statuses, and the user words.
    let chain = writes("kind=chain batch=32 count=64")?;
    ensure!(chain == 64 * 4, "{chain} writes for 64 frames of a chain");
    Ok(())
}

/// Rung 2: an interrupt for a number of descriptors, or for those that are old.
fn a_threshold_or_a_delay(_: &Setup) -> Result<()> {
    let single = run("kind=chain batch=32 threshold=1 count=640")?.whole()?;
    let batched = run("kind=chain batch=32 threshold=32 delay=255 count=640")?.whole()?;
    ensure!(
        batched.number("interrupts")? * 4 <= 640 && single.number("interrupts")? >= 20,
        "{}{}",
        single.text,
        batched.text
    );
    // Never 255 descriptors: each batch waits for the delay.
    let delayed = run("kind=chain batch=4 threshold=255 delay=125 count=80")?.whole()?;
    ensure!(
        delayed.number("interrupts")? >= 18 && delayed.number("usecs")? >= 18_000,
        "{}",
        delayed.text
    );
    Ok(())
}

/// Rung 3: at most one message in each interval.
fn an_interval_between_messages(_: &Setup) -> Result<()> {
    let report = run("kind=headtail interval=2000 count=100")?.whole()?;
    let (interrupts, usecs) = (report.number("interrupts")?, report.number("usecs")?);
    ensure!(
        interrupts <= usecs / 2000 + 2 && usecs >= 98 * 2000,
        "{}",
        report.text
    );
    Ok(())
}

/// What the device halts on is reported with its cause, and the channel works again.
fn a_halt_is_reported(_: &Setup) -> Result<()> {
    let faults = [
        ("length", "bad length (cause 8)"),
        ("address", "data cannot be accessed (cause 6)"),
        ("start", "frame without start (cause 10)"),
    ];
    // It reports an access to no memory itself, which is a failure of the guest.
    let iommu = format!("/sys/bus/pci/devices/{}/iommu_group", address()?);
    let iommu = Path::new(&iommu).exists();
    for rung in RUNGS {
        for (fault, cause) in faults {
            if fault == "address" && iommu {
                continue;
            }
            let report = run(&format!("kind={rung} count=100 fault={fault}"))?;
            if (rung, fault) == ("headtail", "start") {
                report.is_refused("a ring has no start")?;
                continue;
            }
            ensure!(
                report.error.is_some() && report.text.contains(cause),
                "{:?}: {}",
                report.error,
                report.text
            );
            ensure!(report.number("frames")? == 50, "{}", report.text);
            run(&format!("kind={rung} count=100"))?.whole()?;
        }
    }
    Ok(())
}

/// The watchdog finds what an interrupt that was lost would have said.
fn lost_interrupts(_: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    for rung in ["chain", "headtail"] {
        set(&mut host, "drop-interrupts", json!(3))?;
        run(&format!("kind={rung} count=50"))?.whole()?;
        let left = counter(&mut host, "drop-interrupts")?;
        ensure!(left == 0, "{left} interrupts are still to be lost");
    }
    Ok(())
}

/// A function that does nothing blocks neither a kill nor an unbind, and works afterwards.
fn a_stalled_function(_: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    set(&mut host, "stall", json!(true))?;
    let report = run("kind=polled count=1")?;
    ensure!(report.text.contains("does nothing"), "{}", report.text);
    for rung in ["chain", "headtail"] {
        let mut child = endless(rung)?;
        stuck(&child)?;
        child.kill().context(rung)?;
    }
    let mut child = endless("chain")?;
    stuck(&child)?;
    rebind()?;
    child.done()?;
    set(&mut host, "stall", json!(false))?;
    works()
}

/// All registers read as ones: the run fails, and the function works when it is back and reset.
fn a_function_that_vanishes(_: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    for rung in ["chain", "headtail"] {
        let mut child = under_way(rung)?;
        set(&mut host, "vanish", json!(true))?;
        child.done().context(rung)?;
        set(&mut host, "vanish", json!(false))?;
        reset()?;
        works().context(rung)?;
    }
    Ok(())
}

fn killed_in_the_midst(setup: &Setup) -> Result<()> {
    let mut rng = setup.rng();
    for round in 0..world::rounds(12, 6) {
        let rung = RUNGS[rng.usize(0..3)];
        let mut child = endless(rung)?;
        // A random delay, not a wait.
        std::thread::sleep(Duration::from_micros(rng.u64(0..30_000)));
        child.kill().with_context(|| format!("round {round}"))?;
    }
    works()
}

/// Unbinds the driver, binds it again, and waits for the files.
fn rebind() -> Result<()> {
    let address = address()?;
    world::put(format!("{DRIVER}/unbind"), &address)?;
    world::put(format!("{DRIVER}/bind"), &address)?;
    appeared()
}

fn appeared() -> Result<()> {
    wait::until("files of the function", || {
        Ok(address().is_ok() && folder()?.join("pairs").exists())
    })
}

fn reset() -> Result<()> {
    let address = address()?;
    world::put(format!("/sys/bus/pci/devices/{address}/reset"), "1")
}

fn unbound_in_the_midst(_: &Setup) -> Result<()> {
    for rung in RUNGS {
        let mut child = under_way(rung)?;
        rebind()?;
        child.done().context(rung)?;
        works().context(rung)?;
    }
    Ok(())
}

fn reset_in_the_midst(_: &Setup) -> Result<()> {
    for rung in RUNGS {
        let mut child = under_way(rung)?;
        reset()?;
        child.done().context(rung)?;
        works().context(rung)?;
    }
    Ok(())
}

/// The module goes, with its files, while that of queue pairs stays, and is loaded again.
fn removed_and_loaded(_: &Setup) -> Result<()> {
    works()?;
    nix::kmod::delete_module(c"qpair_stream", DeleteModuleFlags::O_NONBLOCK)?;
    ensure!(!Path::new(DRIVER).exists() && !Path::new(DEBUGFS).exists());
    ensure!(Path::new(world::DRIVER).exists());
    let file = File::open(MODULE).context(MODULE)?;
    nix::kmod::finit_module(&file, c"", ModuleInitFlags::empty()).context("loading the module")?;
    appeared()?;
    works()
}

fn unplugged_in_the_midst(_: &Setup) -> Result<()> {
    let mut host = Host::call()?;
    for rung in RUNGS {
        let mut child = under_way(rung)?;
        host.forget_events();
        host.qmp("device_del", json!({ "id": "stream0" }))?;
        host.event("DEVICE_DELETED", "stream0")?;
        child.done().context(rung)?;
        let device = json!({ "driver": "qpair-stream", "id": "stream0", "bus": "stream-port" });
        host.qmp("device_add", device)?;
        appeared()?;
        works().context(rung)?;
    }
    Ok(())
}

/// A suspend ends the run, and the function works afterwards.
fn suspended_in_the_midst(_: &Setup) -> Result<()> {
    for how in [Sleep::Devices(0), Sleep::Frozen, Sleep::Ram] {
        for rung in RUNGS {
            let mut child = under_way(rung)?;
            how.sleep().with_context(|| format!("{how:?}"))?;
            // The signal that freezes a task ends its run too.
            child.done().with_context(|| format!("{how:?}, {rung}"))?;
            works().with_context(|| format!("{how:?}, {rung}"))?;
        }
    }
    Ok(())
}
