// SPDX-License-Identifier: GPL-2.0

//! The kernel's own client: queue pairs that move data between each other, and check it.
//!
//! The counterpart of dmatest for queue pairs. A run creates connected queue pairs. Each is a
//! [`Lane`] that executes `count` operations to its peer, with as many in flight as its SQ holds.
//! The queue pairs are spread over all vectors, a group of them on each CQ. Peers are in one group;
//! a queue pair alone on its CQ is its own peer.
//!
//! ```text
//!   write to debugfs: parse -> build (a pass) -> wait -> end (a pass) -> report
//!   poll of an EQ:    completion -> verify data -> fill and post the next -> ... -> wake
//! ```
//!
//! During a run the poll of its EQ owns a group, so the lanes take no lock. Each operation has a
//! slot in its lane's memory. The slot is filled with a pattern of the operation's number, which
//! the receiving end verifies:
//!
//! | op | the lane fills | the device moves | verified |
//! |---|---|---|---|
//! | send | its own source | SEND -> the peer's receive | when the peer's receive completes |
//! | write | its own source | WRITE -> the peer's target | when it completes |
//! | read | the peer's source | READ -> its own target | when it completes |
//!
//! A SEND needs a receive of the peer: posting it takes a slot of an
//! [`Account`](crate::queue::account::Account) of them, which the peer repays when it posts a receive
//! again. So no SEND finds its peer without a receive.
//!
//! # Locks
//!
//! `run`, inside a pass: the objects of the run; the end of the run destroys them, or
//! [`Client::unmap`] drops them when the device is lost. `report`: the text of the last run.

mod lane;
mod objects;
mod plan;

use self::{
    lane::{
        Lane,
        Lanes, //
    },
    objects::{
        Pair,
        Region, //
    },
    plan::Plan, //
};
use crate::{
    abi::Number,
    hw::{
        command,
        cq::PolledCq, //
    },
    kernel::{
        gate::Pass,
        sync::Completion, //
    },
    life::{
        client::{
            Client,
            Lost, //
        },
        device::Device, //
    },
    queue::index::Depth,
    report::Report, //
};
use core::ops::Range;
use kernel::{
    fmt,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    time::{
        Instant,
        Monotonic, //
    },
    uaccess::UserSliceReader, //
};

/// Shared by the polls and the waiting task.
#[pin_data]
pub(crate) struct Progress {
    /// Groups that are not done.
    left: Atomic<u32>,
    /// The device was lost, or a signal is pending: nothing more is posted.
    cancelled: Atomic<bool>,
    sends: Atomic<u64>,
    receives: Atomic<u64>,
    errors: Atomic<u64>,
    mismatches: Atomic<u64>,
    /// Status and detail of the first completion with an error.
    first: Atomic<u32>,
    /// No group is left, or the run is cancelled.
    #[pin]
    over: Completion,
}

impl Progress {
    fn new(groups: u32) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                left: Atomic::new(groups),
                cancelled: Atomic::new(false),
                sends: Atomic::new(0),
                receives: Atomic::new(0),
                errors: Atomic::new(0),
                mismatches: Atomic::new(0),
                first: Atomic::new(0),
                over <- Completion::new(),
            }),
            GFP_KERNEL,
        )
    }

    fn cancel(&self) {
        self.cancelled.store(true, Release);
        self.over.complete();
    }
}

/// The objects of a run.
struct Run {
    pd: Number,
    regions: KVec<Region>,
    /// CQs owned by polls, and their vectors.
    groups: KVec<(u32, Number)>,
    progress: Arc<Progress>,
}

/// The client, one for each device.
#[pin_data]
pub(crate) struct Loopback {
    device: Arc<Device>,
    /// Held over a run.
    #[pin]
    busy: Mutex<()>,
    #[pin]
    run: Mutex<Option<Run>>,
    #[pin]
    report: Report,
}

impl Loopback {
    /// Makes the client of `device` and registers it there.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        let this = Arc::pin_init(
            pin_init!(Self {
                device: device.clone(),
                busy <- new_mutex!((), "Loopback::busy"),
                run <- new_mutex!(None, "Loopback::run"),
                report <- Report::new(),
            }),
            GFP_KERNEL,
        )?;
        device.clients.admit(this)
    }

    /// A write to the debugfs file: executes a run, and returns when it is over.
    ///
    /// # Errors
    ///
    /// `EINVAL` for invalid text, `EBUSY` while another run is going on, `EIO` if the run failed
    /// (the report has the details), `EINTR` on a signal; those of creating objects.
    pub(crate) fn write(&self, reader: &mut UserSliceReader) -> Result {
        let plan = Plan::read(reader, self.device.limits())?;
        let _busy = self.busy.try_lock().ok_or(EBUSY)?;
        self.run(&plan)
    }

    /// A read of the debugfs file: the report of the last run.
    pub(crate) fn read(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.show(f)
    }

    /// Creates all objects and starts the run. Returns its progress and the start time.
    fn begin(&self, epoch: u32, plan: &Plan) -> Result<(Arc<Progress>, Instant<Monotonic>)> {
        let pass = self.device.enter(epoch)?;
        let mut run = self.run.lock();
        if run.is_some() {
            return Err(EBUSY);
        }
        let (made, began) = self.build(&pass, epoch, plan)?;
        let progress = made.progress.clone();
        *run = Some(made);
        Ok((progress, began))
    }

    fn run(&self, plan: &Plan) -> Result {
        let epoch = self.device.epoch();
        let (progress, began) = self.begin(epoch, plan).inspect_err(|error| {
            let errno = -error.to_errno();
            self.report
                .set(fmt!("result=failed {plan} errno={errno}\n"));
        })?;
        let waited = progress.over.wait_interruptible();
        let took = began.elapsed();
        if waited.is_err() {
            progress.cancel();
        }
        // If the device is lost, `unmap` takes it.
        if let Ok(pass) = self.device.enter(epoch) {
            let made = self.run.lock().take();
            if let Some(made) = made {
                self.end(&pass, made);
            }
        }

        let failed = progress.errors.load(Relaxed) + progress.mismatches.load(Relaxed) != 0;
        let cancelled = progress.cancelled.load(Relaxed);
        let sends = progress.sends.load(Relaxed);
        let first = progress.first.load(Relaxed);
        let result = match (failed, cancelled) {
            (true, _) => "failed",
            (false, true) => "cancelled",
            (false, false) => "ok",
        };
        let receives = progress.receives.load(Relaxed);
        let bytes = sends.saturating_mul(u64::from(plan.size));
        let usecs = took.as_micros_ceil();
        let errors = progress.errors.load(Relaxed);
        let mismatches = progress.mismatches.load(Relaxed);
        let (status, detail) = (first & 0xff, first >> 8);
        self.report.set(fmt!(
            "result={result} {plan} sends={sends} receives={receives} bytes={bytes} \
             usecs={usecs} errors={errors} mismatches={mismatches} status={status} \
             detail={detail}\n"
        ));
        if waited.is_err() {
            return Err(EINTR);
        }
        if failed {
            return Err(EIO);
        }
        if cancelled {
            return Err(self.device.error());
        }
        Ok(())
    }

    /// Creates all objects, then starts the run. Returns the start time.
    fn build(&self, pass: &Pass<'_>, epoch: u32, plan: &Plan) -> Result<(Run, Instant<Monotonic>)> {
        let lanes = plan.qps as usize;
        let groups = plan.qps.div_ceil(plan.group);
        let admin = &self.device.admin;
        let mut ready = KVec::with_capacity(groups as usize, GFP_KERNEL)?;
        let progress = Progress::new(groups)?;
        // The last step whose failure needs no cleanup.
        let mut run = Run {
            pd: admin.execute(pass, command::Create::<command::Pd>(()))?,
            regions: KVec::new(),
            groups: KVec::new(),
            progress,
        };
        let built = (0..groups as usize).try_for_each(|group| {
            let first = group * plan.group as usize;
            let count = lanes.saturating_sub(first).min(plan.group as usize);
            let made =
                self.build_group(pass, epoch, plan, &mut run, group, first..first + count)?;
            ready.push_within_capacity(made).map_err(|_| ENOMEM)
        });
        let began = Instant::<Monotonic>::now();
        match built.and_then(|()| self.start(pass, &mut run, &mut ready)) {
            Ok(()) => Ok((run, began)),
            Err(error) => {
                run.progress.cancel();
                for (vector, cq) in ready {
                    // Objects that cannot be destroyed are kept until the device is reset.
                    let _: Result = self.device.end_polled_cq(pass, vector, cq);
                }
                self.end(pass, run);
                Err(error)
            }
        }
    }

    /// Fills the queues of each CQ's lanes, and gives the CQ to its poll.
    fn start(
        &self,
        pass: &Pass<'_>,
        run: &mut Run,
        ready: &mut KVec<(u32, KBox<PolledCq>)>,
    ) -> Result {
        let device = &*self.device;
        run.groups.reserve(ready.len(), GFP_KERNEL)?;
        while let Some((vector, mut cq)) = ready.pop() {
            let number = cq.number;
            cq.begin(&device.function.doorbells(pass.dev()));
            match device.give_polled_cq(vector, cq) {
                Ok(()) => run
                    .groups
                    .push_within_capacity((vector, number))
                    .map_err(|_| ENOMEM)?,
                Err((error, cq)) => {
                    device.end_polled_cq(pass, vector, cq)?;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Creates a CQ and its queue pairs. Returns its vector too.
    fn build_group(
        &self,
        pass: &Pass<'_>,
        epoch: u32,
        plan: &Plan,
        run: &mut Run,
        group: usize,
        places: Range<usize>,
    ) -> Result<(u32, KBox<PolledCq>)> {
        let count = places.len();
        let device = &*self.device;
        let mut lanes = KVec::with_capacity(count, GFP_KERNEL)?;
        for lane in places {
            run.regions.reserve(1, GFP_KERNEL)?;
            let region = Region::new(&device.admin, pass, run.pd, plan.lane_bytes())?;
            lanes.push(
                Lane::new(region.key, region.memory.clone(), lane),
                GFP_KERNEL,
            )?;
            run.regions
                .push_within_capacity(region)
                .map_err(|_| ENOMEM)?;
        }

        let sizes = plan.sizes();
        let entries = sizes.completions().saturating_mul(count as u32);
        let depth = Depth::at_least(entries).ok_or(EINVAL)?;
        // CAST: There are at most as many as queue pairs.
        let vector = group as u32 % device.vectors().max(1);
        let client = Lanes::new(*plan, lanes, run.progress.clone())?;
        let client = KBox::new(client, GFP_KERNEL)?;
        let mut cq = device.create_polled_cq(pass, vector, depth, client)?;
        match self.make_pairs(pass, epoch, plan, run.pd, count, &mut cq) {
            Ok(()) => Ok((vector, cq)),
            Err(error) => {
                device.end_polled_cq(pass, vector, cq)?;
                Err(error)
            }
        }
    }

    /// Creates the queue pairs of a group, connects them as planned, and adds them to their CQ.
    fn make_pairs(
        &self,
        pass: &Pass<'_>,
        epoch: u32,
        plan: &Plan,
        pd: Number,
        count: usize,
        cq: &mut PolledCq,
    ) -> Result {
        let admin = &self.device.admin;
        let mut made = KVec::with_capacity(count, GFP_KERNEL)?;
        let mut result = (0..count).try_for_each(|_| {
            let pair = Pair::new(admin, pass, pd, cq.number, plan.sizes())?;
            // There is room.
            Ok(made.push_within_capacity(pair)?)
        });
        for (place, pair) in made.iter().enumerate() {
            result = result.and_then(|()| {
                let peer = made.get(plan.peer(place)).ok_or(EINVAL)?;
                pair.connect(admin, pass, peer.number)
            });
        }
        for pair in made {
            // Those on the CQ are destroyed with it.
            result = result.and_then(|()| cq.add(pair.number, epoch, &pair.rings));
            if result.is_err() {
                pair.destroy(admin, pass);
            }
        }
        result
    }

    /// Destroys all objects of a run.
    fn end(&self, pass: &Pass<'_>, run: Run) {
        let device = &*self.device;
        let (admin, mut clean) = (&device.admin, true);
        for (vector, number) in run.groups {
            if let Some(cq) = device.take_polled_cq(vector, number) {
                clean &= device.end_polled_cq(pass, vector, cq).is_ok();
            }
        }
        for region in run.regions {
            clean = clean && admin.destroy::<command::Mr>(pass, region.key).is_ok();
            if !clean {
                admin.leak(region);
            }
        }
        if clean {
            // The PD is empty: if this fails, no host memory is lost.
            let _: Result = admin.destroy::<command::Pd>(pass, run.pd);
        }
    }
}

impl Client for Loopback {
    fn lost(&self, _why: Lost) {
        if let Some(run) = self.run.lock().as_ref() {
            run.progress.cancel();
        }
    }

    fn unmap(&self) {
        let run = self.run.lock().take();
        drop(run);
    }
}
