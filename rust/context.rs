// SPDX-License-Identifier: GPL-2.0

//! One open file, and everything that it owns.
//!
//! ```text
//!   open ---> Live ---- lost() --------> Dying ---- unmap() ----> Dead     (unbind, reset)
//!              |                                                   |
//!              '------- release(): destroys, object by object -----'       (close, exit, kill)
//! ```
//!
//! A context is of one reset epoch. When the device is unbound or reset it is lost: its doorbell
//! page is taken away, its sleepers wake, its ioctls fail (`ENODEV`, `EIO`), and when the device is
//! quiet its memory is unmapped. The last close frees what is left.
//!
//! Two ways of ending do not meet: `release` destroys only while it holds a pass, and the device
//! only comes with `unmap` when all passes are back. A file that is released in between leaves
//! everything as it is: the device keeps a reference until it is quiet and has called `unmap`,
//! and then drops its reference to each client that [is done](Client::is_done).
//!
//! # What a process can stretch comes first
//!
//! A user copy, a page fault and pinning take as long as the process likes (userfaultfd, FUSE). So
//! every call is: copy the argument in, pin; then enter the device (a [`Pass`]), take `state`, do
//! it; then let go of both, and copy the result out.
//!
//! # Locks
//!
//! - `reader`: what was collected and not yet read. Held by `read` over its copy to the process,
//!   and taken by nobody else.
//! - a [`Pass`], then `state`: the objects. Held over admin commands, never over anything that a
//!   process can stretch. `unmap` takes it without a pass.
//! - the door has its own, leaves under `mmap_lock`.
//!
//! The poll takes none: see [`events`].

mod args;
mod calls;
mod events;
mod objects;

use self::{
    events::{
        Bell,
        Watch, //
    },
    objects::Objects, //
};
use crate::{
    abi::{
        status::Event,
        uapi::{
            self,
            qpair_async_event, //
        }, //
    },
    control::{
        client::{
            Client,
            Lost,
            Shown, //
        },
        command,
        device::Device, //
    },
    queue::quota::{
        Account,
        Kind, //
    },
    sys::{
        chardev::{
            FileOps,
            Ioctl,
            Ready, //
        },
        current::{
            is_privileged,
            Capability, //
        },
        door::Door,
        gate::Pass, //
    },
};
use core::mem::size_of;
use kernel::{
    fmt,
    fs::File,
    new_mutex,
    prelude::*,
    seq_file::SeqFile,
    seq_print,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        poll::PollTable,
        Arc,
        Mutex, //
    },
    task::Kuid,
    uaccess::UserSliceWriter, //
};
use zerocopy::IntoBytes;

/// How a context is. The order is that of its life.
const LIVE: u32 = 0;
/// The device was reset: open the file anew.
const RESET: u32 = 1;
/// The device is gone.
const GONE: u32 = 2;

/// An open file of `/dev/qpairN`.
#[pin_data]
pub(crate) struct Context {
    device: Arc<Device>,
    /// The device's epoch when the file was opened.
    epoch: u32,
    /// The doorbell page.
    page: u16,
    /// The user that opened it.
    opener: Kuid,
    #[pin]
    door: Door,
    /// `LIVE`, `RESET` or `GONE`; only ever grows.
    health: Atomic<u32>,
    #[pin]
    state: Mutex<KBox<Objects>>,
    /// The doorbell page as the poll sees it.
    doorbells: Arc<Watch>,
    bell: Arc<Bell>,
    /// That the device was reset was said, by an event.
    told: Atomic<bool>,
    /// The file is closed.
    released: Atomic<bool>,
    /// A `read` is going on. Others wait for it in a way that can be ended: it copies to memory
    /// of the process, whose page fault may last for ever.
    reading: Atomic<bool>,
    /// Whether `reader` has some, for those who are not reading.
    collected: Atomic<bool>,
    /// What was collected and not yet read; of whoever is reading.
    #[pin]
    reader: Mutex<KVec<qpair_async_event>>,
}

/// A page of the device that is being given to a context; goes back when that fails.
struct TakenPage<'a> {
    device: &'a Device,
    page: Option<u16>,
}

impl Drop for TakenPage<'_> {
    fn drop(&mut self) {
        if let Some(page) = self.page {
            self.device.give_page(page);
        }
    }
}

/// The turn to `read`; ends with this.
struct Turn<'a>(&'a Context);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.reading.store(false, Release);
        self.0.bell.next_turn();
    }
}

impl Context {
    /// Takes the turn to read; sleeps for it, if that is wanted.
    ///
    /// # Errors
    ///
    /// `EAGAIN`, or `ERESTARTSYS` when a signal came first.
    fn turn(&self, may_block: bool) -> Result<Turn<'_>> {
        let take = || self.reading.cmpxchg(false, true, Full).is_ok();
        if !take() {
            if !may_block {
                return Err(EAGAIN);
            }
            self.bell.wait(take)?;
        }
        Ok(Turn(self))
    }

    /// The error of a context that is no longer live.
    fn alive(&self) -> Result {
        match self.health.load(Acquire) {
            LIVE => Ok(()),
            RESET => Err(EIO),
            _ => Err(ENODEV),
        }
    }

    /// The way to the device. See [`Device::enter`].
    fn enter(&self) -> Result<Pass<'_>> {
        self.device.enter(self.epoch)
    }

    /// Moves what happened into `events`.
    fn collect(&self, events: &mut KVec<qpair_async_event>) -> Result {
        /// Events of one round; others wait for the next `read`.
        const ROUND: usize = 64;

        events.reserve(ROUND, GFP_KERNEL_ACCOUNT)?;
        if let Some(event) = self.violations() {
            events.push(event, GFP_KERNEL_ACCOUNT)?;
        }
        self.state
            .lock()
            .collect(|event| events.push_within_capacity(event).is_ok() && events.len() < ROUND);
        Ok(())
    }

    /// Doorbells of the page that made no sense, if any. Has the next one reported again.
    fn violations(&self) -> Option<qpair_async_event> {
        let (told, code) = self.doorbells.alarm.take()?;
        // The device's count is the true one: between the event and this command there may have
        // been more; and none at all, if the event was one of the page's owner before. A device
        // that cannot be asked is on its way out.
        let count = match self.enter() {
            Ok(pass) => self.take_violations(&pass).unwrap_or(told),
            Err(_) => told,
        };
        (count != 0).then_some(qpair_async_event {
            kind: u32::from(Event::DoorbellViolation.code()),
            handle: u32::from(self.page),
            code,
            count,
        })
    }

    /// The objects of the context, and those destroyed ones that the device keeps indices of.
    fn account(&self) -> Account {
        let known = self.device.account(self.epoch, self.page);
        if known.count(Kind::Qp).held == 0 && known.count(Kind::Cq).held == 0 {
            return known;
        }
        if let Ok(pass) = self.enter() {
            // Without an answer, what was known before is shown.
            let _: Result = self.device.settle(&pass, self.page);
        }
        self.device.account(self.epoch, self.page)
    }

    /// How many doorbells of the page made no sense, since this was asked the last time.
    fn take_violations(&self, pass: &Pass<'_>) -> Result<u32> {
        let admin = self.device.admin();
        admin.execute(pass, command::TakeViolations(self.page))
    }
}

/// What a process is told of a device that is lost.
impl Context {
    /// One event that says that the device was reset; then, or of a device that is gone, `error`.
    fn last_word(&self, events: &mut KVec<qpair_async_event>, error: Error) -> Result {
        if !self.is_untold() {
            return Err(error);
        }
        let event = qpair_async_event {
            kind: u32::from(Event::DeviceFatal.code()),
            count: 1,
            ..Default::default()
        };
        events.push(event, GFP_KERNEL_ACCOUNT)?;
        self.told.store(true, Release);
        Ok(())
    }

    /// Whether the device was reset, and the process has not been told by an event.
    fn is_untold(&self) -> bool {
        self.health.load(Acquire) == RESET && !self.told.load(Acquire)
    }
}

impl FileOps for Context {
    type Device = Device;

    fn open(device: &Arc<Device>) -> Result<Arc<Self>> {
        if !device.function().is_in_place() {
            return Err(EOPNOTSUPP);
        }
        let epoch = device.epoch();
        let opener = Kuid::current_euid();
        let user = (!is_privileged(Capability::SysAdmin)).then_some(opener);
        let mut taken = TakenPage {
            page: Some(device.take_page(epoch, user)?),
            device,
        };
        let page = taken.page.ok_or(ENOSPC)?;
        let frame = device.page_frame(page)?;
        let bell = Bell::new()?;
        let objects = KBox::new(Objects::new(page), GFP_KERNEL_ACCOUNT)?;
        let this = Arc::pin_init(
            try_pin_init!(Self {
                device: device.clone(),
                epoch,
                page,
                opener,
                door <- Door::new(frame),
                health: Atomic::new(LIVE),
                state <- new_mutex!(objects, "Context::state"),
                doorbells: Watch::new(&bell, None)?,
                bell,
                told: Atomic::new(false),
                released: Atomic::new(false),
                reading: Atomic::new(false),
                collected: Atomic::new(false),
                reader <- new_mutex!(KVec::new(), "Context::reader"),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let pass = this.enter()?;
        device.own_page(&pass, page, this.doorbells.clone())?;
        let admitted = device.clients().admit(this.clone());
        // If the device was lost just before, nobody will tell this one.
        if let Err(error) = admitted.and_then(|()| this.enter().map(drop)) {
            device.clients().dismiss(&*this);
            device.disown_page(&pass, page);
            return Err(error);
        }
        drop(pass);
        taken.page = None;
        Ok(this)
    }

    fn release(self: Arc<Self>) {
        self.door.shut();
        if let Ok(pass) = self.enter() {
            let destroyed = self.state.lock().destroy_all(&self.device, &pass);
            if destroyed.is_ok() {
                // So that the next owner of the page is told of the first of its own. A page that
                // no process had has none.
                if self.door.was_entered() {
                    let _: Result<u32> = self.take_violations(&pass);
                }
                self.device.disown_page(&pass, self.page);
                self.device.give_page(self.page);
                drop(pass);
                self.device.clients().dismiss(&*self);
                return;
            }
            // A destroy failed, so the device is about to be reset.
        }
        self.device.abandon_page(self.page);
        // In this order: who unmaps looks at `released` after it has.
        self.released.store(true, Release);
        if self.state.lock().is_unmapped() {
            self.device.clients().dismiss(&*self);
        }
    }

    fn ioctl(&self, call: Ioctl) -> Result<isize> {
        if call.group() != u32::from(uapi::QPAIR_IOCTL) {
            return Err(ENOTTY);
        }
        self.call(call)?;
        Ok(0)
    }

    fn read(&self, out: &mut UserSliceWriter, may_block: bool) -> Result<usize> {
        let room = out.len() / size_of::<qpair_async_event>();
        if room == 0 {
            return Err(EINVAL);
        }
        loop {
            let turn = self.turn(may_block)?;
            let mut events = self.reader.lock();
            if events.is_empty() {
                match self.alive() {
                    Ok(()) => self.collect(&mut events)?,
                    Err(error) => self.last_word(&mut events, error)?,
                }
                self.collected.store(!events.is_empty(), Release);
            }
            if !events.is_empty() {
                let count = room.min(events.len());
                let given = events.get(..count).ok_or(EINVAL)?.as_bytes();
                out.write_slice(given)?;
                let bytes = given.len();
                let mut seen = 0;
                events.retain(|_| {
                    seen += 1;
                    seen > count
                });
                self.collected.store(!events.is_empty(), Release);
                return Ok(bytes);
            }
            drop(events);
            drop(turn);
            if !may_block {
                return Err(EAGAIN);
            }
            self.bell.wait(|| {
                self.bell.is_raised() || self.collected.load(Acquire) || self.alive().is_err()
            })?;
        }
    }

    fn poll(&self, file: &File, table: PollTable<'_>) -> Ready {
        self.bell.listen(file, &table);
        let mut ready = Ready::NOTHING;
        if self.bell.is_raised() || self.collected.load(Acquire) || self.is_untold() {
            ready = ready.or(Ready::READABLE);
        }
        if self.alive().is_err() {
            ready = ready.or(Ready::HUNG_UP);
        }
        ready
    }

    fn fdinfo(&self, out: &SeqFile) {
        let account = self.account();
        let objects = self.state.lock();
        seq_print!(out, "qpair-page:\t{}\n", self.page);
        seq_print!(out, "qpair-epoch:\t{}\n", self.epoch);
        seq_print!(out, "qpair-pds:\t{}\n", account.count(Kind::Pd).live);
        seq_print!(out, "qpair-cqs:\t{}\n", account.count(Kind::Cq).live);
        seq_print!(out, "qpair-qps:\t{}\n", account.count(Kind::Qp).live);
        seq_print!(out, "qpair-mrs:\t{}\n", account.count(Kind::Mr).live);
        seq_print!(out, "qpair-cqs-held:\t{}\n", account.count(Kind::Cq).held);
        seq_print!(out, "qpair-qps-held:\t{}\n", account.count(Kind::Qp).held);
        seq_print!(out, "qpair-pinned-pages:\t{}\n", objects.pages());
    }

    fn may_map(&self) -> Result {
        self.alive()
    }

    fn door(&self) -> &Door {
        &self.door
    }
}

impl Client for Context {
    fn lost(&self, why: Lost) {
        self.door.shut();
        let health = match why {
            Lost::Reset => RESET,
            Lost::Gone => GONE,
        };
        // The watchdog and a shutdown may come at once.
        let mut now = self.health.load(Acquire);
        while now < health {
            match self.health.cmpxchg(now, health, Full) {
                Ok(_) => break,
                Err(seen) => now = seen,
            }
        }
        self.bell.wake();
    }

    fn unmap(&self) {
        self.state.lock().unmap();
    }

    fn is_done(&self) -> bool {
        self.released.load(Acquire) && self.state.lock().is_unmapped()
    }

    fn describe(&self, what: Shown, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = match what {
            Shown::Contexts => self.account(),
            _ => Account::default(),
        };
        let objects = self.state.lock();
        match what {
            Shown::Contexts => writeln!(
                f,
                "page {} epoch {} pds {} cqs {} qps {} mrs {} pinned-pages {} cqs-held {} \
                 qps-held {} uid {}",
                self.page,
                self.epoch,
                account.count(Kind::Pd).live,
                account.count(Kind::Cq).live,
                account.count(Kind::Qp).live,
                account.count(Kind::Mr).live,
                objects.pages(),
                account.count(Kind::Cq).held,
                account.count(Kind::Qp).held,
                self.opener.into_uid_in_current_ns()
            ),
            Shown::Pds => objects.describe_pds(f, self.page),
            Shown::Cqs => objects.describe_cqs(f, self.page),
            Shown::Qps => objects.describe_qps(f, self.page),
            Shown::Mrs => objects.describe_mrs(f, self.page),
        }
    }
}
