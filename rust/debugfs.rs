// SPDX-License-Identifier: GPL-2.0

//! The debugfs files of the driver, in `/sys/kernel/debug/qpair/<PCI name>/`.
//!
//! | file | read | written |
//! |---|---|---|
//! | `eqs` | each EQ: counters of interrupts, polls, events, completions, doorbells, slots | |
//! | `cqs`, `qps`, `srqs`, `mrs` | each object: the kernel's and those of processes | |
//! | `pds` | each protection domain of the kernel | |
//! | `contexts` | each open file | |
//! | `live` | the indices of all queues, queried from the device ([`live`]) | |
//! | `device` | health, epoch, admin commands, the device's own counters | |
//! | `events`, `completions`, `budget`, `policy` | tunables of polls | the same; effective at once |
//! | `moderation` | interrupt moderation: `off`, `fixed COUNT USECS`, `adaptive TARGET` | the same |
//! | `loopback` | the report of the last run of [`loopback`](crate::loopback) | starts a run |
//!
//! A table has a line of headings, then a line for each object. Reading a table pauses polls
//! briefly.

mod live;

use crate::{
    abi::counters::Counter,
    hw::{
        command::QueryCounters,
        eq::{
            Eq as EventQueue,
            State, //
        }, //
    },
    kernel::{
        debugfs::Root,
        report::written, //
    },
    life::{
        client::Shown,
        device::Device, //
    },
    loopback::Loopback,
    policy::moderation::Setting, //
};
use core::pin::Pin;
use kernel::{
    debugfs::File,
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
#[pin_data]
pub(crate) struct Files {
    #[pin]
    eqs: File<Arc<Device>>,
    #[pin]
    cqs: File<Arc<Device>>,
    #[pin]
    qps: File<Arc<Device>>,
    #[pin]
    srqs: File<Arc<Device>>,
    #[pin]
    mrs: File<Arc<Device>>,
    #[pin]
    pds: File<Arc<Device>>,
    #[pin]
    contexts: File<Arc<Device>>,
    #[pin]
    live: File<Arc<Device>>,
    #[pin]
    device: File<Arc<Device>>,
    #[pin]
    events: File<Arc<Device>>,
    #[pin]
    completions: File<Arc<Device>>,
    #[pin]
    budget: File<Arc<Device>>,
    #[pin]
    policy: File<Arc<Device>>,
    #[pin]
    moderation: File<Arc<Device>>,
    #[pin]
    loopback: File<Arc<Loopback>>,
}

impl Files {
    /// Makes the files of `device`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`. Missing debugfs is not an error.
    pub(crate) fn new(device: &Arc<Device>, loopback: Arc<Loopback>) -> Result<Pin<KBox<Self>>> {
        let name = CString::try_from_fmt(fmt!("{}", device.name()))?;
        let dir = Root::subdir(&name);
        let of = || device.clone();
        KBox::try_pin_init(
            try_pin_init!(Self {
                eqs <- dir.read_callback_file(c"eqs", of(), &show_eqs),
                cqs <- dir.read_callback_file(c"cqs", of(), &show_cqs),
                qps <- dir.read_callback_file(c"qps", of(), &show_qps),
                srqs <- dir.read_callback_file(c"srqs", of(), &show_srqs),
                mrs <- dir.read_callback_file(c"mrs", of(), &show_mrs),
                pds <- dir.read_callback_file(c"pds", of(), &show_pds),
                contexts <- dir.read_callback_file(c"contexts", of(), &show_contexts),
                live <- dir.read_callback_file(c"live", of(), &live::show),
                device <- dir.read_callback_file(c"device", of(), &show_device),
                events <- dir.read_write_callback_file(
                    c"events", of(), &show_events, &set_events),
                completions <- dir.read_write_callback_file(
                    c"completions", of(), &show_completions, &set_completions),
                budget <- dir.read_write_callback_file(
                    c"budget", of(), &show_budget, &set_budget),
                policy <- dir.read_write_callback_file(
                    c"policy", of(), &show_policy, &set_policy),
                moderation <- dir.read_write_callback_file(
                    c"moderation", of(), &show_moderation, &set_moderation),
                loopback <- dir.read_write_callback_file(
                    c"loopback", loopback, &show_loopback, &set_loopback),
            }? Error),
            GFP_KERNEL,
        )
    }
}

fn show_eqs(device: &Arc<Device>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "eq number depth head interrupts lost polls again events completions arms deferred heads \
         unmasks short stale unclaimed cqs unbound spare deferred_free pending spurious count usecs"
    )?;
    for eq in device.eqs() {
        let (interrupts, lost) = eq.handler().interrupts();
        let index = eq.handler().index();
        let number = eq.handler().number().raw();
        // Copied while the poll is paused, printed when it runs again.
        let view = eq.paused(|_, state| {
            let live = state.look()?;
            Some((live.ring(), *live.counts(), live.slots(), live.table()))
        });
        let Some(((depth, head), counts, slots, (cqs, unclaimed))) = view else {
            continue;
        };
        let [unbound, spare, deferred, pending, spurious] = slots;
        let Setting { count, usecs } = eq.handler().moderation();
        writeln!(
            f,
            "{index} {number} {depth} {head} {interrupts} {lost} {} {} {} {} {} {} {} {} {} {} \
             {unclaimed} {cqs} {unbound} {spare} {deferred} {pending} {spurious} {count} {usecs}",
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

/// Calls `each` with the poll paused, once for each line, and `show` with the poll running.
fn kernel_cqs<T: Copy>(
    device: &Device,
    mut each: impl FnMut(&EventQueue, &State, usize) -> Option<T>,
    mut show: impl FnMut(&T) -> fmt::Result,
) -> fmt::Result {
    for eq in device.eqs() {
        let mut at = 0;
        while let Some(line) = eq.paused(|eq, state| each(eq, state, at)) {
            show(&line)?;
            at += 1;
        }
    }
    Ok(())
}

fn show_cqs(device: &Arc<Device>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "# kernel: number kernel eq depth head completions stale qps armed"
    )?;
    kernel_cqs(
        device,
        |eq, state, at| {
            let (node, cq) = state.look()?.kernel_cqs().nth(at)?;
            let qps = cq.pairs().len();
            Some((eq.index(), cq.number().raw(), cq.counts(), qps, node.held()))
        },
        |(eq, number, (depth, completions, head, stale), qps, armed)| {
            writeln!(
                f,
                "{number} kernel {eq} {depth} {head} {completions} {stale} {qps} {armed}"
            )
        },
    )?;
    show_clients(device, Shown::Cqs, f)
}

fn show_qps(device: &Arc<Device>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "# kernel: number kernel cq sq-blocks rq-depth sq-in-flight rq-in-flight stale"
    )?;
    kernel_cqs(
        device,
        |_, state, at| {
            let mut queues = state.look()?.kernel_cqs().flat_map(|(_, cq)| {
                let number = cq.number().raw();
                cq.pairs().iter().map(move |queue| (number, queue))
            });
            let (cq, queue) = queues.nth(at)?;
            let (depths, flight) = (queue.depths(), queue.in_flight());
            Some((queue.number().raw(), cq, depths, flight, queue.stale()))
        },
        |(number, cq, (sq, rq), (sq_flight, rq_flight), stale)| {
            writeln!(
                f,
                "{number} kernel {cq} {sq} {rq} {sq_flight} {rq_flight} {stale}"
            )
        },
    )?;
    show_clients(device, Shown::Qps, f)
}

fn show_clients(device: &Device, what: Shown, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut result = Ok(());
    device.clients().for_each(|client| {
        if result.is_ok() {
            result = client.describe(what, f);
        }
    });
    result
}

fn show_srqs(device: &Arc<Device>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "# shared receive queues")?;
    show_clients(device, Shown::Srqs, f)
}

fn show_mrs(device: &Arc<Device>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "# memory regions")?;
    show_clients(device, Shown::Mrs, f)
}

fn show_pds(device: &Arc<Device>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "# protection domains")?;
    show_clients(device, Shown::Pds, f)
}

fn show_contexts(device: &Arc<Device>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "# open files")?;
    show_clients(device, Shown::Contexts, f)
}

fn show_device(device: &Arc<Device>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (commands, refused) = device.admin().counts();
    writeln!(f, "name qpair{}", device.index())?;
    writeln!(f, "health {:?}", device.function().health())?;
    writeln!(f, "epoch {}", device.epoch())?;
    writeln!(f, "attempts {}", device.function().life().attempts())?;
    writeln!(f, "vectors {}", device.vectors())?;
    writeln!(f, "admin-commands {commands}")?;
    writeln!(f, "admin-refused {refused}")?;
    writeln!(f, "dma-held {}", device.function().gate().held())?;
    let Ok(pass) = device.enter(device.epoch()) else {
        return Ok(());
    };
    let Ok(counters) = device.admin().execute(&pass, QueryCounters) else {
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
        fn $show(device: &Arc<Device>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            writeln!(f, "{}", device.knobs().$knob.load(Relaxed))
        }
        fn $set(device: &Arc<Device>, reader: &mut UserSliceReader) -> Result {
            set(&device.knobs().$knob, reader, $range)
        }
    )* };
}
knobs! {
    events: show_events, set_events, 1..=1 << 16;
    completions: show_completions, set_completions, 1..=1 << 16;
    budget: show_budget, set_budget, 1..=1 << 16;
    policy: show_policy, set_policy, 0..=1;
}

fn show_moderation(device: &Arc<Device>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "{}", device.mode())
}

fn set_moderation(device: &Arc<Device>, reader: &mut UserSliceReader) -> Result {
    let mut buffer = [0; 64];
    let mode = written(reader, &mut buffer)?.parse()?;
    let pass = device.enter(device.epoch())?;
    device.moderate(&pass, mode)
}

fn show_loopback(loopback: &Arc<Loopback>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    loopback.read(f)
}

fn set_loopback(loopback: &Arc<Loopback>, reader: &mut UserSliceReader) -> Result {
    loopback.write(reader)
}
