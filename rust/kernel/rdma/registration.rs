// SPDX-License-Identifier: GPL-2.0

//! The life of a device of the core: registered and unregistered by a worker.
//!
//! The core calls its users in the kernel meanwhile. They take back the memory that they have
//! posted, which they must not before the device is quiet, and so may wait for that without end. The
//! task that registers or unregisters the device holds the device lock: it waits for the worker, but
//! not without end.

use super::{
    bindings,
    events::{
        Events,
        PortEvent, //
    },
    mmap::Mappings,
    netdev::Follower,
    object::Object,
    ops::Ops,
    Config,
    Driver, //
};
use crate::kernel::sync::completion::Completion;
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings::{
        alloc_workqueue_noprof,
        destroy_workqueue,
        init_work_with_key,
        queue_work_on,
        work_struct,
        workqueue_struct, //
    },
    container_of,
    device::Bound,
    devres::Devres,
    error::to_result,
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc,
        Mutex, //
    },
    time::Msecs,
    types::Opaque, //
};

/// How long a drop waits for the calls of processes: a page fault of a process may last for ever.
/// Also how long a registration waits before it looks whether the device is lost.
const PATIENCE: Msecs = 5000;

/// The only port.
pub(super) const PORT: u32 = 1;

/// The driver's part of a device.
pub(super) struct Part<T: Driver> {
    pub(super) data: T::Data,
    pub(super) mappings: Arc<Mappings>,
    /// The address of the network device that the port belongs to.
    pub(super) mac: Option<[u8; 6]>,
    /// The state of that when it last was an event, `enum ib_port_state`; `IB_PORT_NOP` before the
    /// first.
    pub(super) netdev: Atomic<u32>,
    /// The names of the counters.
    pub(super) counters: KVec<bindings::rdma_stat_desc>,
}

// SAFETY: The names are constants.
unsafe impl<T: Driver> Send for Part<T> {}

// SAFETY: As above; the rest is `Sync`.
unsafe impl<T: Driver> Sync for Part<T> {}

pub(super) type Device<T> = Object<bindings::ib_device, Part<T>>;

static QUEUE: Atomic<*mut workqueue_struct> = Atomic::new(ptr::null_mut());

/// Where devices are registered and unregistered; owned by the module, and dropped after its driver.
/// Without it no device can be registered.
pub struct Registrar(NonNull<workqueue_struct>);

// SAFETY: A workqueue has no ties to a thread.
unsafe impl Send for Registrar {}

// SAFETY: It has locks of its own.
unsafe impl Sync for Registrar {}

impl Registrar {
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EBUSY` the second time.
    pub fn new() -> Result<Self> {
        let flags = kernel::bindings::wq_flags_WQ_UNBOUND;
        // SAFETY: A name without format directives.
        let queue = unsafe { alloc_workqueue_noprof(c"qpair_rdma".as_char_ptr(), flags, 0) };
        // The drop destroys it if it is the second.
        let this = Self(NonNull::new(queue).ok_or(ENOMEM)?);
        QUEUE
            .cmpxchg(ptr::null_mut(), queue, Full)
            .map_err(|_| EBUSY)?;
        Ok(this)
    }
}

impl Drop for Registrar {
    /// Waits until all devices are unregistered. Sleeps.
    fn drop(&mut self) {
        let _: Result<_, _> = QUEUE.cmpxchg(self.0.as_ptr(), ptr::null_mut(), Full);
        // SAFETY: Made in `new`. The drivers are gone, so nothing is queued any more.
        unsafe { destroy_workqueue(self.0.as_ptr()) };
    }
}

/// A device that is being registered, is registered, or is being unregistered.
///
/// # Invariants
///
/// `dev` is the first field of a `Device<T>`, which is registered if `attempt` is `None`, until
/// `work` unregisters it. `work` is initialised to run `run`.
#[pin_data]
struct Registered<T: Driver> {
    #[pin]
    work: Opaque<work_struct>,
    dev: NonNull<bindings::ib_device>,
    parent: ARef<kernel::device::Device>,
    /// Where the result of the registration goes.
    attempt: Option<Arc<Attempt<T>>>,
    done: Arc<Completion>,
    mappings: Arc<Mappings>,
    events: Events<PortEvent>,
    follower: Option<Pin<KBox<Follower>>>,
    _data: core::marker::PhantomData<T::Data>,
}

impl<T: Driver> Registered<T> {
    /// Gives it to the worker, which calls [`Registration::run`]. Any context.
    fn queue(this: Pin<KBox<Self>>) {
        // SAFETY: Not moved: `run` makes a pinned box of it again.
        let raw = KBox::into_raw(unsafe { Pin::into_inner_unchecked(this) });
        // SAFETY: Initialised, not queued, and freed by `run`. The queue is there for as long as the
        // driver is.
        unsafe {
            queue_work_on(
                kernel::bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
                QUEUE.load(Acquire),
                (*raw).work.get(),
            )
        };
    }

    /// Takes doorbell pages away at once. No event is reported any more. Sleeps.
    fn cut(&self) {
        self.mappings.zap();
        self.events.cut();
    }
}

/// How far a registration is.
enum Progress<T: Driver> {
    Begun,
    Ended(Result<Owned<T>>),
    /// The task that began it does not wait any more.
    Abandoned,
}

/// A registration, shared by the task that waits for it and the worker.
#[pin_data]
struct Attempt<T: Driver> {
    #[pin]
    ended: Completion,
    #[pin]
    progress: Mutex<Progress<T>>,
}

impl<T: Driver> Attempt<T> {
    fn new() -> Result<Arc<Self>> {
        let this = pin_init!(Self {
            ended <- Completion::new(),
            progress <- new_mutex!(Progress::Begun, "Attempt::progress"),
        });
        Arc::pin_init(this, GFP_KERNEL)
    }

    /// Waits for the result. Sleeps.
    ///
    /// # Errors
    ///
    /// That of the registration; `EIO` if it has not ended and `is_lost` is true.
    fn wait(&self, is_lost: impl Fn() -> bool) -> Result<Owned<T>> {
        while !self.ended.wait_timeout(PATIENCE) && !is_lost() {}
        let abandoned = Progress::Abandoned;
        match core::mem::replace(&mut *self.progress.lock(), abandoned) {
            Progress::Ended(result) => result,
            Progress::Begun | Progress::Abandoned => Err(EIO),
        }
    }

    /// Gives the result to the task that waits; back to the caller if there is none.
    fn end(&self, result: Result<Owned<T>>) -> Result<(), Result<Owned<T>>> {
        let mut progress = self.progress.lock();
        if matches!(*progress, Progress::Abandoned) {
            return Err(result);
        }
        *progress = Progress::Ended(result);
        drop(progress);
        self.ended.complete();
        Ok(())
    }
}

/// A registered device; owned by the device core. The drop unregisters it.
struct Owned<T: Driver>(Option<Pin<KBox<Registered<T>>>>);

// SAFETY: Any task may unregister the device, and its data may be dropped by any.
unsafe impl<T: Driver> Send for Owned<T> where T::Data: Send {}

// SAFETY: Nothing is accessed through a reference.
unsafe impl<T: Driver> Sync for Owned<T> {}

/// A registered RDMA device. If forgotten, it is unregistered when its parent unbinds.
pub struct Registration<T: Driver> {
    events: Events<PortEvent>,
    _owned: Devres<Owned<T>>,
}

impl<T: Driver> Registration<T> {
    /// Registers a device on `parent`, which does its DMA. Sleeps; if `is_lost` becomes true, not
    /// much longer.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; those of `ib_register_device()`. `EIO` if it lasts and `is_lost` is true: the device
    /// is unregistered when the core's users let it.
    pub fn new(
        parent: &kernel::device::Device<Bound>,
        config: Config,
        data: T::Data,
        is_lost: impl Fn() -> bool,
    ) -> Result<Self> {
        if QUEUE.load(Acquire).is_null() {
            return Err(ENODEV);
        }
        let mappings = Mappings::new()?;
        let mut counters = KVec::with_capacity(T::COUNTERS.len(), GFP_KERNEL)?;
        for name in T::COUNTERS {
            let named = bindings::rdma_stat_desc {
                name: name.as_char_ptr(),
                ..Default::default()
            };
            counters.push(named, GFP_KERNEL)?;
        }
        let done = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let attempt = Attempt::new()?;
        let part = Part {
            data,
            mappings: mappings.clone(),
            mac: config.mac,
            netdev: Atomic::new(bindings::ib_port_state_IB_PORT_NOP),
            counters,
        };
        // SAFETY: The size is that of a structure that begins with an `ib_device`.
        let raw = unsafe {
            bindings::_ib_alloc_device(Device::<T>::SIZE, &raw mut kernel::bindings::init_net)
        };
        let dev = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: Just allocated, and not registered. The core copies the table.
        unsafe {
            Device::<T>::put(raw, part);
            (*raw).__bindgen_anon_1.dev.as_mut().parent = crate::kernel::raw_device(parent);
            // CAST: A small constant.
            (*raw).node_type = bindings::RDMA_NODE_IB_CA as u8;
            (*raw).phys_port_cnt = PORT;
            (*raw).num_comp_vectors = config.vectors as c_int;
            (*raw).node_guid = config.guid.to_be();
            bindings::ib_set_device_ops(raw, &Ops::<T>::TABLE);
        }
        // SAFETY: It is cut off before the device is freed, or there is no clone of it.
        let events = match unsafe { Events::new(raw) } {
            Ok(events) => events,
            Err(error) => {
                // SAFETY: Not registered, so no operation runs.
                unsafe { Self::dealloc(dev) };
                return Err(error);
            }
        };
        let follower = match config.mac {
            // SAFETY: It is dropped before the device is freed.
            Some(mac) => match unsafe { Follower::new(dev, mac) } {
                Ok(follower) => Some(follower),
                Err(error) => {
                    // SAFETY: Not registered, so no operation runs.
                    unsafe { Self::dealloc(dev) };
                    return Err(error);
                }
            },
            None => None,
        };
        let work = Opaque::ffi_init(|slot| {
            // SAFETY: The slot can be written and is pinned.
            unsafe {
                init_work_with_key(
                    slot,
                    Some(Self::run),
                    false,
                    c"Registered::work".as_char_ptr(),
                    kernel::static_lock_class!().as_ptr(),
                )
            }
        });
        let (port_events, shared) = (events.clone(), attempt.clone());
        let registered = KBox::pin_init(
            pin_init!(Registered {
                work <- work,
                dev,
                parent: (&**parent).into(),
                attempt: Some(shared),
                done,
                mappings,
                events: port_events,
                follower,
                _data: core::marker::PhantomData,
            }),
            GFP_KERNEL,
        );
        match registered {
            Ok(registered) => Registered::queue(registered),
            Err(error) => {
                // SAFETY: Not registered, so no operation runs.
                unsafe { Self::dealloc(dev) };
                return Err(error);
            }
        }
        let owned = attempt.wait(is_lost)?;
        // If this fails, it drops what is registered by now.
        let owned = Devres::new::<Error>(parent, Ok(owned))?;
        Ok(Self {
            events,
            _owned: owned,
        })
    }

    /// The events of its port.
    pub fn port_events(&self) -> Events<PortEvent> {
        self.events.clone()
    }

    /// # Safety
    ///
    /// `dev` is the first field of a `Device<T>`, and no operation on it runs, nor will one.
    unsafe fn dealloc(dev: NonNull<bindings::ib_device>) {
        // SAFETY: By the caller's promise.
        unsafe {
            let part = Device::<T>::take(dev.as_ptr());
            bindings::ib_dealloc_device(dev.as_ptr());
            drop(part);
        }
    }

    /// # Safety
    ///
    /// Called by the workqueue, for a device that [`Registered::queue`] has given to it.
    unsafe extern "C" fn run(work: *mut work_struct) {
        // SAFETY: `queue` has given it away.
        let mut this = unsafe {
            let this = container_of!(Opaque::cast_from(work), Registered<T>, work);
            Pin::new_unchecked(KBox::from_raw(this.cast_mut()))
        };
        match this.as_mut().project().attempt.take() {
            Some(attempt) => Self::register(this, &attempt),
            None => Self::unregister(this),
        }
    }

    fn register(this: Pin<KBox<Registered<T>>>, attempt: &Attempt<T>) {
        let dev = this.dev;
        // SAFETY: `new` has initialised it. The core copies the name.
        let result = to_result(unsafe {
            bindings::ib_register_device(
                dev.as_ptr(),
                T::NAME.as_char_ptr(),
                crate::kernel::raw_device(&this.parent),
            )
        });
        let result = match result {
            // INVARIANT: Registered, and `run` has taken `attempt`.
            Ok(()) => Ok(Owned(Some(this))),
            Err(error) => {
                this.events.cut();
                drop(this);
                // SAFETY: Not registered, so no operation runs.
                unsafe { Self::dealloc(dev) };
                Err(error)
            }
        };
        // Not by the drop, which would wait for this very worker.
        let abandoned = attempt.end(result).err().and_then(Result::ok);
        if let Some(this) = abandoned.and_then(|mut owned| owned.0.take()) {
            this.cut();
            Self::unregister(this);
        }
    }

    fn unregister(mut this: Pin<KBox<Registered<T>>>) {
        // No network device is set any more: the core lets go of the one that it has.
        drop(this.as_mut().project().follower.take());
        // SAFETY: Registered, by the type invariant; then no longer.
        unsafe {
            bindings::ib_unregister_device(this.dev.as_ptr());
            Self::dealloc(this.dev);
        }
        this.done.complete();
    }
}

impl<T: Driver> Drop for Owned<T> {
    /// Takes doorbell pages away at once. Destroys all objects of all processes, and waits for
    /// that, but not long for a process: a call that lasts keeps the objects of all. Sleeps.
    fn drop(&mut self) {
        let Some(registered) = self.0.take() else {
            return;
        };
        registered.cut();
        let done = registered.done.clone();
        Registered::queue(registered);
        let _in_time = done.wait_timeout(PATIENCE);
    }
}
