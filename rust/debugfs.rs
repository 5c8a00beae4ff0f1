// SPDX-License-Identifier: GPL-2.0

//! The debugfs files of the driver, in `/sys/kernel/debug/qpair/<PCI name>/`.
//!
//! | file | read | written |
//! |---|---|---|
//! | `eqs` | each EQ: counters of interrupts, polls, events, completions, doorbells, slots, queues | |
//! | `clients` | each open file: its objects; each queue of a kernel ULP: what is posted or taken | |
//! | `live` | the indices of all queues, queried from the device ([`live`]) | |
//! | `device` | health, epoch, admin commands, the device's own counters | |
//! | `events`, `completions`, `budget`, `policy` | tunables of polls | the same; effective at once |
//! | `moderation` | interrupt moderation: `off`, `fixed COUNT USECS`, `adaptive TARGET` | the same |
//! | `loopback` | the report of the last run of [`loopback`](crate::loopback) | starts a run |
//!
//! `eqs` has a line of headings, then a line for each EQ; reading it pauses polls briefly. Objects of
//! the RDMA core are in `rdma resource show -dd`.

mod live;

use crate::{
    abi::counters::Counter,
    hw::command::QueryCounters,
    kernel::debugfs::Root,
    life::device::Device,
    loopback::Loopback,
    policy::moderation::Setting,
    report::written, //
};
use kernel::{
    debugfs::Scope,
    fmt,
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    uaccess::UserSliceReader, //
};

/// The files of a device. The drop removes them, and waits for readers and writers.
pub(crate) type Files = Scope<(Arc<Device>, Arc<Loopback>)>;

/// Makes the files of `device`. Sleeps.
///
/// # Errors
///
/// `ENOMEM`. Missing debugfs is not an error.
pub(crate) fn files(device: Arc<Device>, loopback: Arc<Loopback>) -> Result<Pin<KBox<Files>>> {
    let name = CString::try_from_fmt(fmt!("{}", device.function.device().name()))?;
    let root = Root::dir()?;
    let data = Ok::<_, Error>((device, loopback));
    let files = root.scope(data, &name, |(device, loopback), dir| {
        let device = &**device;
        dir.read_callback_file(c"eqs", device, &show_eqs);
        dir.read_callback_file(c"clients", device, &show_clients);
        dir.read_callback_file(c"live", device, &live::show);
        dir.read_callback_file(c"device", device, &show_device);
        dir.read_write_callback_file(c"events", device, &show_events, &set_events);
        dir.read_write_callback_file(c"completions", device, &show_completions, &set_completions);
        dir.read_write_callback_file(c"budget", device, &show_budget, &set_budget);
        dir.read_write_callback_file(c"policy", device, &show_policy, &set_policy);
        dir.read_write_callback_file(c"moderation", device, &show_moderation, &set_moderation);
        dir.read_write_callback_file(c"loopback", &**loopback, &Loopback::read, &Loopback::write);
    });
    KBox::pin_init(files, GFP_KERNEL)
}

fn show_eqs(device: &Device, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "eq number depth head interrupts lost polls again events completions arms deferred heads \
         unmasks short stale unclaimed cqs qps srqs unbound spare deferred_free pending spurious \
         count usecs"
    )?;
    for eq in device.eqs.polls() {
        let (interrupts, lost) = eq.handler().interrupts();
        let index = eq.handler().index;
        let number = eq.handler().number().raw();
        // Copied while the poll is paused, printed when it runs again.
        let view = eq.paused(|_, state| {
            let live = state.live.as_deref()?;
            Some((live.ring(), *live.counts(), live.slots(), live.table()))
        });
        let Some(((depth, head), counts, slots, ([cqs, qps, srqs], unclaimed))) = view else {
            continue;
        };
        let [unbound, spare, deferred, pending, spurious] = slots;
        let Setting { count, usecs } = eq.handler().moderation();
        writeln!(
            f,
            "{index} {number} {depth} {head} {interrupts} {lost} {} {} {} {} {} {} {} {} {} {} \
             {unclaimed} {cqs} {qps} {srqs} {unbound} {spare} {deferred} {pending} {spurious} \
             {count} {usecs}",
            counts.polls,
            counts.again,
            counts.events,
            counts.completions,
            counts.arms,
            counts.deferred,
            counts.heads,
            counts.unmasks,
            counts.short,
            counts.stale,
        )?;
    }
    Ok(())
}

fn show_clients(device: &Device, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut result = Ok(());
    device.clients.for_each(|client| {
        if result.is_ok() {
            result = client.describe(f);
        }
    });
    result
}

fn show_device(device: &Device, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (commands, refused) = device.admin.counts();
    writeln!(f, "name qpair{}", device.index())?;
    writeln!(f, "health {:?}", device.health())?;
    writeln!(f, "epoch {}", device.epoch())?;
    writeln!(f, "attempts {}", device.attempts())?;
    writeln!(f, "vectors {}", device.vectors())?;
    writeln!(f, "admin-commands {commands}")?;
    writeln!(f, "admin-refused {refused}")?;
    writeln!(f, "dma-held {}", device.function.gate.held())?;
    let Ok(pass) = device.enter(device.epoch()) else {
        return Ok(());
    };
    let Ok(counters) = device.admin.execute(&pass, QueryCounters) else {
        return Ok(());
    };
    for (counter, value) in Counter::ALL.iter().zip(counters) {
        writeln!(f, "{} {value}", counter.name())?;
    }
    Ok(())
}

/// Sets a tunable to a number in `range`.
fn set(
    knob: &Atomic<u32>,
    reader: &mut UserSliceReader,
    range: core::ops::RangeInclusive<u32>,
) -> Result {
    let mut buffer = [0; 64];
    let value = written(reader, &mut buffer)?.trim().parse();
    let value = value.map_err(|_| EINVAL)?;
    if !range.contains(&value) {
        return Err(EINVAL);
    }
    knob.store(value, Relaxed);
    Ok(())
}

macro_rules! knobs {
    ($($knob:ident: $show:ident, $set:ident, $range:expr;)*) => { $(
        fn $show(device: &Device, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            writeln!(f, "{}", device.knobs.$knob.load(Relaxed))
        }
        fn $set(device: &Device, reader: &mut UserSliceReader) -> Result {
            set(&device.knobs.$knob, reader, $range)
        }
    )* };
}
knobs! {
    events: show_events, set_events, 1..=1 << 16;
    completions: show_completions, set_completions, 1..=1 << 16;
    budget: show_budget, set_budget, 1..=1 << 16;
    policy: show_policy, set_policy, 0..=1;
}

fn show_moderation(device: &Device, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "{}", device.mode())
}

fn set_moderation(device: &Device, reader: &mut UserSliceReader) -> Result {
    let mut buffer = [0; 64];
    let mode = written(reader, &mut buffer)?.parse()?;
    let pass = device.enter(device.epoch())?;
    device.moderate(&pass, mode)
}
