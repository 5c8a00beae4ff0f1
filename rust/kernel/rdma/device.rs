// SPDX-License-Identifier: GPL-2.0

//! A device of the core: its facts and counters; registered and unregistered by a worker.
//!
//! The core calls its kernel ULPs meanwhile. They take back the memory that they have posted, which
//! they must not before the device is quiet, and so may wait for that without end. The task that
//! registers or unregisters the device holds the device lock: it waits for the worker, but not
//! without end.

use super::{
    super::sync::Completion,
    event::{
        Events,
        PortEvent, //
    },
    missing::Mappings,
    netdev::Follower,
    prelude::*,
    DeviceAttributes, //
};
use core::{
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    bindings::{
        alloc_workqueue_noprof,
        destroy_workqueue,
        workqueue_struct, //
    },
    device::Bound,
    devres::Devres,
    module::this_module,
    static_lock_class,
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
    workqueue::{
        impl_has_work,
        new_work,
        Queue,
        Work,
        WorkItem, //
    }, //
};

/// How long a drop waits for the calls of processes: a page fault of a process may last for ever.
/// Also how long a registration waits before it looks whether the device is lost.
const PATIENCE: Msecs = 5000;

/// So often a task waits for a registration for [`PATIENCE`]. The core may hold it up for another
/// device, whose ULPs wait: it adds clients to a device with `devices_rwsem` held.
const PERIODS: u32 = 12;

/// How long values of counters are good, in milliseconds. A read may take as many calls as there
/// are counters.
const LIFESPAN: c_ulong = 10;

/// A device at its registration.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Completion vectors: CQs choose one.
    pub vectors: u32,
    /// The EUI-64 of the device, of which the port's GID is made.
    pub guid: u64,
    /// The address of the network device that the port belongs to. Without one it is a port of
    /// InfiniBand.
    pub mac: Option<[u8; 6]>,
    /// Whether the port sends and receives frames on the network of that device.
    pub wired: bool,
}

/// The driver's part of a device.
pub(super) struct DevicePart<T: Driver> {
    pub(super) data: T::Data,
    pub(super) mappings: Arc<Mappings>,
    /// The address of the network device that the port belongs to.
    pub(super) mac: Option<[u8; 6]>,
    /// Whether its network carries frames.
    pub(super) wired: bool,
    /// The state of that when it last was an event, `enum ib_port_state`; `IB_PORT_NOP` before the
    /// first.
    pub(super) netdev: Atomic<u32>,
    /// The names of the counters.
    pub(super) counters: KVec<bindings::rdma_stat_desc>,
}

// SAFETY: The names are constants.
unsafe impl<T: Driver> Send for DevicePart<T> {}

// SAFETY: As above; the rest is `Sync`.
unsafe impl<T: Driver> Sync for DevicePart<T> {}

pub(super) type CoreDevice<T> = CoreObject<bindings::ib_device, DevicePart<T>>;

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
        let queue = unsafe { alloc_workqueue_noprof(c"rust_rdma".as_char_ptr(), flags, 0) };
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

/// A device of the core. The drop frees it.
///
/// # Invariants
///
/// `raw` is the first field of a `CoreDevice<T>` whose part is written. It is not registered when this
/// is dropped, so no operation on it runs, nor will one: [`DeviceWork::register`] drops it only if the
/// core has refused it, and [`DeviceWork::unregister`] after the core has let go of it.
struct Allocated<T: Driver> {
    raw: NonNull<bindings::ib_device>,
    follower: Option<Pin<KBox<Follower>>>,
    _part: PhantomData<DevicePart<T>>,
}

// SAFETY: Any task may free the device and drop its data.
unsafe impl<T: Driver> Send for Allocated<T> {}

impl<T: Driver> Drop for Allocated<T> {
    fn drop(&mut self) {
        self.follower = None;
        // SAFETY: By the type invariant.
        unsafe {
            let part = CoreDevice::<T>::take(self.raw.as_ptr());
            bindings::ib_dealloc_device(self.raw.as_ptr());
            drop(part);
        }
    }
}

/// A device that is being registered, is registered, or is being unregistered.
///
/// # Invariants
///
/// `dev` is registered if this is in an [`Owned`], until `work` unregisters it.
#[pin_data]
struct DeviceWork<T: Driver> {
    #[pin]
    work: Work<Self>,
    dev: Allocated<T>,
    parent: ARef<kernel::device::Device>,
    /// Where the result of the registration goes.
    attempt: Option<Arc<Attempt<T>>>,
    done: Arc<Completion>,
    mappings: Arc<Mappings>,
    events: Events<PortEvent>,
}

impl<T: Driver> DeviceWork<T> {
    /// Gives it to the worker. Any context.
    fn queue(this: Pin<KBox<Self>>) {
        // SAFETY: The queue is there for as long as the driver is.
        unsafe { Queue::from_raw(QUEUE.load(Acquire)) }.enqueue(this);
    }

    fn register(this: Pin<KBox<Self>>, attempt: &Attempt<T>) {
        let result = if attempt.is_abandoned() {
            Err(ENODEV)
        } else {
            // SAFETY: `new` has initialised it. The core copies the name.
            to_result(unsafe {
                bindings::ib_register_device(
                    this.dev.raw.as_ptr(),
                    T::NAME.as_char_ptr(),
                    crate::kernel::raw_device(&this.parent),
                )
            })
        };
        let result = match result {
            // INVARIANT: Registered.
            Ok(()) => Ok(Owned(Some(this))),
            Err(error) => {
                this.events.cut();
                drop(this);
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

    fn unregister(mut this: Pin<KBox<Self>>) {
        // No network device is set any more: the core lets go of the one that it has.
        this.as_mut().project().dev.follower = None;
        // SAFETY: Registered, by the type invariant of `Owned`; then no longer.
        unsafe { bindings::ib_unregister_device(this.dev.raw.as_ptr()) };
        let done = this.done.clone();
        drop(this);
        done.complete();
    }

    /// Takes doorbell pages away at once. No event is reported any more. Sleeps.
    fn cut(&self) {
        self.mappings.zap();
        self.events.cut();
    }
}

impl_has_work! {
    impl{T: Driver} HasWork<Self> for DeviceWork<T> { self.work }
}

impl<T: Driver> WorkItem for DeviceWork<T> {
    type Pointer = Pin<KBox<Self>>;

    fn run(mut this: Self::Pointer) {
        match this.as_mut().project().attempt.take() {
            Some(attempt) => Self::register(this, &attempt),
            None => Self::unregister(this),
        }
    }
}

/// The stage of a registration.
enum Stage<T: Driver> {
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
    progress: Mutex<Stage<T>>,
}

impl<T: Driver> Attempt<T> {
    fn new() -> Result<Arc<Self>> {
        // A literal here would be another one in each crate, and a class of locks has one name.
        static NAME: &CStr = c"Attempt::progress";
        let this = pin_init!(Self {
            ended <- Completion::new(),
            progress <- Mutex::new(Stage::Begun, NAME, static_lock_class!()),
        });
        Arc::pin_init(this, GFP_KERNEL)
    }

    /// Waits for the result. Sleeps.
    ///
    /// # Errors
    ///
    /// That of the registration; `EIO` if it has not ended and `is_lost` is true, or after
    /// `PERIODS`.
    fn wait(&self, is_lost: impl Fn() -> bool) -> Result<Owned<T>> {
        let _ended = (0..PERIODS).any(|_| self.ended.wait_timeout(PATIENCE) || is_lost());
        let abandoned = Stage::Abandoned;
        match core::mem::replace(&mut *self.progress.lock(), abandoned) {
            Stage::Ended(result) => result,
            Stage::Begun | Stage::Abandoned => Err(EIO),
        }
    }

    fn is_abandoned(&self) -> bool {
        matches!(*self.progress.lock(), Stage::Abandoned)
    }

    /// Gives the result to the task that waits; back to the caller if there is none.
    fn end(&self, result: Result<Owned<T>>) -> Result<(), Result<Owned<T>>> {
        let mut progress = self.progress.lock();
        if matches!(*progress, Stage::Abandoned) {
            return Err(result);
        }
        *progress = Stage::Ended(result);
        drop(progress);
        self.ended.complete();
        Ok(())
    }
}

/// A registered device; owned by the device core. The drop unregisters it.
struct Owned<T: Driver>(Option<Pin<KBox<DeviceWork<T>>>>);

// SAFETY: Nothing is accessed through a reference.
unsafe impl<T: Driver> Sync for Owned<T> {}

/// A registered RDMA device. If forgotten, it is unregistered when its parent unbinds.
pub struct Registration<T: Driver> {
    events: Events<PortEvent>,
    _owned: Devres<Owned<T>>,
}

impl<T: Driver> Registration<T> {
    /// Registers a device on `parent`, which does its DMA. Sleeps; if `is_lost` becomes true, not
    /// much longer, and a minute at most.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; those of `ib_register_device()`. `EIO` if it lasts too long: the device is
    /// unregistered when the core's users let it.
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
        let part = DevicePart {
            data,
            mappings: mappings.clone(),
            mac: config.mac,
            wired: config.wired,
            netdev: Atomic::new(bindings::ib_port_state_IB_PORT_NOP),
            counters,
        };
        // SAFETY: The size is that of a structure that begins with an `ib_device`.
        let raw = unsafe {
            bindings::_ib_alloc_device(CoreDevice::<T>::SIZE, &raw mut kernel::bindings::init_net)
        };
        let allocated = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: Just allocated, and not registered. The core copies the operations.
        unsafe {
            CoreDevice::<T>::put(raw, part);
            (*(&raw mut (*raw).__bindgen_anon_1).cast::<kernel::bindings::device>()).parent =
                crate::kernel::raw_device(parent);
            // CAST: A small constant.
            (*raw).node_type = bindings::RDMA_NODE_IB_CA as u8;
            (*raw).phys_port_cnt = PORT;
            (*raw).num_comp_vectors = config.vectors as c_int;
            (*raw).node_guid = config.guid.to_be();
            for ops in Ops::<T>::ALL {
                bindings::ib_set_device_ops(raw, ops);
            }
        }
        // INVARIANT: `put` has written the part. Not registered; the worker registers and unregisters
        // it.
        let mut dev = Allocated::<T> {
            raw: allocated,
            follower: None,
            _part: PhantomData,
        };
        // SAFETY: It is cut off before the device is freed, or there is no clone of it.
        let events = unsafe { Events::new(raw) }?;
        if let Some(mac) = config.mac {
            // SAFETY: It is dropped before the device is freed.
            dev.follower = Some(unsafe { Follower::new(allocated, mac) }?);
        }
        let (port_events, shared) = (events.clone(), attempt.clone());
        let registered = KBox::pin_init(
            pin_init!(DeviceWork {
                work <- new_work!("DeviceWork::work"),
                dev,
                parent: (&**parent).into(),
                attempt: Some(shared),
                done,
                mappings,
                events: port_events,
            }),
            GFP_KERNEL,
        )?;
        DeviceWork::queue(registered);
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
        DeviceWork::queue(registered);
        let _in_time = done.wait_timeout(PATIENCE);
    }
}

/// The capabilities that a driver can have.
fn capabilities(found: &DeviceAttributes) -> u64 {
    use bindings::{
        ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as FAST,
        ib_device_cap_flags_IB_DEVICE_MEM_WINDOW as WINDOW,
        ib_device_cap_flags_IB_DEVICE_MEM_WINDOW_TYPE_2B as TYPE_2B,
        ib_device_cap_flags_IB_DEVICE_SRQ_RESIZE as SRQ_RESIZE,
        ib_uverbs_device_cap_flags_IB_UVERBS_DEVICE_ATOMIC_WRITE as ATOMIC_WRITE,
        ib_uverbs_device_cap_flags_IB_UVERBS_DEVICE_FLUSH_GLOBAL as GLOBAL,
        ib_uverbs_device_cap_flags_IB_UVERBS_DEVICE_FLUSH_PERSISTENT as PERSISTENT, //
    };
    let where_any = |most: u32, flags: c_ulong| if most != 0 { flags } else { 0 };
    let kernel = where_any(found.max_mw, WINDOW | TYPE_2B)
        | where_any(found.max_fast_reg_page_list_len, FAST)
        | where_any(found.max_srq, SRQ_RESIZE);
    // CAST: Sets of bits, which are a `usize` for the kernel crate.
    (GLOBAL | PERSISTENT | ATOMIC_WRITE) as u64 | kernel as u64
}

impl<T: Driver> Ops<T> {
    pub(super) const DEVICE: bindings::ib_device_ops = bindings::ib_device_ops {
        owner: this_module::<T::OwnerModule>().as_ptr(),
        driver_id: bindings::rdma_driver_id_RDMA_DRIVER_UNKNOWN,
        uverbs_abi_ver: T::ABI,
        query_device: Some(Self::query_device),
        alloc_hw_port_stats: Some(Self::alloc_hw_port_stats),
        get_hw_stats: Some(Self::get_hw_stats),
        ..Self::NONE
    };

    /// # Safety
    ///
    /// `dev` is live, `attr` to fill, `udata` a command.
    unsafe extern "C" fn query_device(
        dev: *mut bindings::ib_device,
        attr: *mut bindings::ib_device_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `dev` is live, the caller fills `attr` by this, and `udata` is a command.
        let (part, attr, guid, udata) = unsafe {
            let part = CoreDevice::<T>::get(dev);
            (part, &mut *attr, (*dev).node_guid, Udata::of(udata))
        };
        let found = T::device(&part.data);
        *attr = DeviceAttributes {
            sys_image_guid: guid,
            max_sge_rd: found.max_send_sge,
            max_total_mcast_qp_attach: found.max_mcast_grp,
            max_qp_init_rd_atom: found.max_qp_rd_atom,
            max_res_rd_atom: found.max_qp_rd_atom.saturating_mul(found.max_qp),
            atomic_cap: bindings::ib_atomic_cap_IB_ATOMIC_HCA,
            // The default one.
            max_pkeys: 1,
            device_cap_flags: capabilities(&found),
            ..found
        };
        status(|| udata.map_or(Ok(()), |udata| udata.without_request()?.write(&())))
    }

    /// # Safety
    ///
    /// `dev` is live.
    unsafe extern "C" fn alloc_hw_port_stats(
        dev: *mut bindings::ib_device,
        _port: u32,
    ) -> *mut bindings::rdma_hw_stats {
        // SAFETY: `dev` is live.
        let names = unsafe { &CoreDevice::<T>::get(dev).counters };
        // CAST: As many as there are names in the code.
        let count = names.len() as c_int;
        // SAFETY: So many names, which the device has for as long as it is registered.
        unsafe { bindings::rdma_alloc_hw_stats_struct(names.as_ptr(), count, LIFESPAN) }
    }

    /// # Safety
    ///
    /// `dev` is live; `stats` is of [`Self::alloc_hw_port_stats`], and locked.
    unsafe extern "C" fn get_hw_stats(
        dev: *mut bindings::ib_device,
        stats: *mut bindings::rdma_hw_stats,
        port: u32,
        _index: c_int,
    ) -> c_int {
        if port != PORT {
            return EOPNOTSUPP.to_errno();
        }
        // SAFETY: `dev` is live.
        let part = unsafe { CoreDevice::<T>::get(dev) };
        // SAFETY: `stats` is locked, and was made for a value of each counter.
        let values = unsafe { (*stats).value.as_mut_slice(T::COUNTERS.len()) };
        // CAST: As above.
        let count = values.len() as c_int;
        from_result(|| T::counters(&part.data, values).map(|()| count))
    }
}
