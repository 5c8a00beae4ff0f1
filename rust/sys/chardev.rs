// SPDX-License-Identifier: GPL-2.0

//! A character device whose open files may outlive it.
//!
//! C header: [`include/linux/miscdevice.h`](srctree/include/linux/miscdevice.h)
//!
//! [`kernel::miscdevice`] lacks `poll`, mappings that can be taken away, names that are made at
//! run time, and on the older of the supported kernels the module reference that keeps the code of
//! an open file.
//!
//! # Who lives how long
//!
//! A [`CharDevice`] lives while its device is bound; dropping it removes the node and waits for
//! calls of [`FileOps::open`]. A file lives from `open` to `release`, and longer where somebody
//! else has a reference to its `Arc`. The file operations are a constant of the module, which open
//! files keep from being unloaded.

use super::{
    compat::OWNER,
    door::Door, //
};
use core::{
    marker::PhantomData,
    pin::Pin, //
};
use kernel::{
    bindings,
    container_of,
    device::{
        Bound,
        Device, //
    },
    error::{
        from_result,
        to_result, //
    },
    fmt,
    fs::{
        file::flags,
        File,
        LocalFile, //
    },
    ioctl,
    page::PAGE_SIZE,
    prelude::*,
    seq_file::SeqFile,
    str::CString,
    sync::{
        poll::PollTable,
        Arc, //
    },
    types::Opaque,
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceWriter, //
    }, //
};

#[allow(improper_ctypes)]
unsafe extern "C" {
    fn qpair_vma_make_doorbell(vma: *mut bindings::vm_area_struct);
}

/// One call of `ioctl`.
#[derive(Clone, Copy)]
pub struct Ioctl {
    command: u32,
    argument: usize,
}

impl Ioctl {
    /// Which group of commands it is of.
    pub fn group(&self) -> u32 {
        ioctl::_IOC_TYPE(self.command)
    }

    /// Its number in the group.
    pub fn number(&self) -> u32 {
        ioctl::_IOC_NR(self.command)
    }

    /// Which way the argument goes: `_IOC_READ`, `_IOC_WRITE`, both or neither.
    pub fn direction(&self) -> u32 {
        ioctl::_IOC_DIR(self.command)
    }

    /// How large the caller believes the argument to be.
    pub fn size(&self) -> usize {
        ioctl::_IOC_SIZE(self.command)
    }

    /// The argument as the address of [`Self::size`] bytes.
    pub fn memory(&self) -> UserSlice {
        UserSlice::new(UserPtr::from_addr(self.argument), self.size())
    }
}

/// What `poll` finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready(u32);

impl Ready {
    /// Nothing yet.
    pub const NOTHING: Self = Self(0);
    /// `read` would not wait.
    pub const READABLE: Self = Self(bindings::POLLIN | bindings::POLLRDNORM);
    /// The file is of no more use.
    pub const HUNG_UP: Self = Self(bindings::POLLERR | bindings::POLLHUP);

    /// Both.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What an open file does. All are in process context and may sleep.
pub trait FileOps: Send + Sync + Sized + 'static {
    /// What the files of a device share.
    type Device: Send + Sync + 'static;

    /// A process opens the device. Runs under a mutex of the whole system: must not wait.
    fn open(dev: &Arc<Self::Device>) -> Result<Arc<Self>>;

    /// The last descriptor and the last mapping of the file have gone.
    fn release(self: Arc<Self>);

    /// An ioctl; the result is what the call returns.
    fn ioctl(&self, call: Ioctl) -> Result<isize>;

    /// `read`: writes into `out`, returns how many bytes. Without `may_block` it gives `EAGAIN`
    /// where it would wait.
    fn read(&self, out: &mut UserSliceWriter, may_block: bool) -> Result<usize>;

    /// What holds; waits for changes with [`PollTable::register_wait`], before it looks.
    fn poll(&self, file: &File, table: PollTable<'_>) -> Ready;

    /// The lines of `/proc/PID/fdinfo/FD`.
    fn fdinfo(&self, out: &SeqFile);

    /// Whether a process may map the first page of the file, or why not. Called with `mmap_lock`
    /// held: takes no lock.
    fn may_map(&self) -> Result;

    /// What a process gets that maps the first page of the file. Called with `mmap_lock` held: it
    /// only says where the door is.
    fn door(&self) -> &Door;
}

/// A registered character device.
///
/// # Invariants
///
/// `misc` is registered, and its name and operations are those of `Self`.
#[pin_data(PinnedDrop)]
pub struct CharDevice<F: FileOps> {
    #[pin]
    misc: Opaque<bindings::miscdevice>,
    /// Pointed to by `misc`.
    name: CString,
    device: Arc<F::Device>,
    _files: PhantomData<fn() -> F>,
}

// SAFETY: May be unregistered by any thread, the rest is `Send`.
unsafe impl<F: FileOps> Send for CharDevice<F> {}

// SAFETY: Nothing changes through a shared reference but under the C side's own locks.
unsafe impl<F: FileOps> Sync for CharDevice<F> {}

impl<F: FileOps> CharDevice<F> {
    /// Registers `/dev/<name>` with the given access `mode`, below `parent` in sysfs. It may be
    /// opened before this returns. Sleeps.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the name is taken, `EBUSY` if there are no more minor numbers, `ENOMEM`.
    pub fn new<'a>(
        parent: &'a Device<Bound>,
        name: fmt::Arguments<'_>,
        mode: u16,
        device: Arc<F::Device>,
    ) -> impl PinInit<Self, Error> + use<'a, F> {
        let name = CString::try_from_fmt(name);
        pin_init::pin_init_scope(move || {
            let name = name?;
            let name_pointer = name.as_char_ptr();
            Ok(try_pin_init!(Self {
                name,
                device,
                _files: PhantomData,
                // INVARIANT: Registered here, or not made at all. After the fields that `open`
                // uses.
                misc <- Opaque::try_ffi_init(move |slot: *mut bindings::miscdevice| {
                    let mut misc: bindings::miscdevice = pin_init::zeroed();
                    misc.minor = bindings::MISC_DYNAMIC_MINOR as c_int;
                    misc.name = name_pointer;
                    misc.fops = &Self::OPERATIONS;
                    misc.mode = mode;
                    misc.parent = super::raw_device(parent);
                    // SAFETY: The slot can be written.
                    unsafe { slot.write(misc) };
                    // SAFETY: Just written, and pinned until the drop unregisters it. The name's
                    // buffer does not move with the `CString`.
                    to_result(unsafe { bindings::misc_register(slot) })
                }),
            }))
        })
    }

    const OPERATIONS: bindings::file_operations = bindings::file_operations {
        owner: OWNER,
        open: Some(Self::open),
        release: Some(Self::release),
        unlocked_ioctl: Some(Self::ioctl),
        #[cfg(CONFIG_COMPAT)]
        compat_ioctl: bindings::compat_ptr_ioctl,
        read: Some(Self::read),
        poll: Some(Self::poll),
        mmap: Some(Self::mmap),
        show_fdinfo: Some(Self::show_fdinfo),
        ..pin_init::zeroed()
    };

    const MAPPING_OPERATIONS: bindings::vm_operations_struct = bindings::vm_operations_struct {
        fault: Some(Self::fault),
        ..pin_init::zeroed()
    };

    /// The Rust side of an open file.
    ///
    /// # Safety
    ///
    /// `file` has been opened by [`Self::open`] and is not released during `'a`.
    unsafe fn file<'a>(file: *mut bindings::file) -> &'a F {
        // SAFETY: `open` has stored it, and `release` has not yet taken it.
        unsafe { &*(*file).private_data.cast::<F>() }
    }

    /// # Safety
    ///
    /// Called by the VFS, for a file of a device of ours.
    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        from_result(|| {
            // No position: reads do not exclude each other while they wait.
            //
            // SAFETY: Both are valid during the call.
            to_result(unsafe { bindings::stream_open(inode, file) })?;
            // SAFETY: `misc_open` has stored the `miscdevice` there, and holds a mutex that
            // `misc_deregister` takes. So ours is still registered during this call.
            let misc = unsafe { (*file).private_data }.cast::<bindings::miscdevice>();
            // SAFETY: Embedded in a `Self`, whose drop waits as said.
            let this = unsafe { &*container_of!(Opaque::cast_from(misc), Self, misc) };
            let opened = F::open(&this.device)?;
            // SAFETY: The open file's; `release` detaches it.
            unsafe { opened.door().attach((*file).f_mapping) };
            // SAFETY: The field is ours from now on.
            unsafe { (*file).private_data = Arc::into_raw(opened).cast_mut().cast() };
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the VFS, for an open file of ours, once.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: Stored by `open`, and taken only here.
        let this = unsafe { Arc::from_raw((*file).private_data.cast::<F>()) };
        this.door().detach();
        this.release();
        0
    }

    /// # Safety
    ///
    /// Called by the VFS, for an open file of ours.
    unsafe extern "C" fn ioctl(file: *mut bindings::file, cmd: c_uint, arg: c_ulong) -> c_long {
        // SAFETY: Open during the call.
        let this = unsafe { Self::file(file) };
        let call = Ioctl {
            command: cmd,
            argument: arg,
        };
        match this.ioctl(call) {
            Ok(value) => value as c_long,
            Err(error) => error.to_errno() as c_long,
        }
    }

    /// # Safety
    ///
    /// Called by the VFS, for an open file of ours.
    unsafe extern "C" fn read(
        file: *mut bindings::file,
        buffer: *mut c_char,
        count: usize,
        _position: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: Open during the call.
        let this = unsafe { Self::file(file) };
        // SAFETY: As above.
        let flags = unsafe { LocalFile::from_raw_file(file) }.flags();
        let mut out = UserSlice::new(UserPtr::from_ptr(buffer.cast()), count).writer();
        match this.read(&mut out, flags & flags::O_NONBLOCK == 0) {
            Ok(bytes) => bytes as isize,
            Err(error) => error.to_errno() as isize,
        }
    }

    /// # Safety
    ///
    /// Called by the VFS, for an open file of ours.
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        table: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: Open during the call.
        let this = unsafe { Self::file(file) };
        // SAFETY: Both are valid during the call; `open` has switched file positions off.
        unsafe { this.poll(File::from_raw_file(file), PollTable::from_raw(table)) }.0
    }

    /// # Safety
    ///
    /// Called by the VFS, for an open file of ours.
    unsafe extern "C" fn show_fdinfo(out: *mut bindings::seq_file, file: *mut bindings::file) {
        // SAFETY: Open during the call.
        let this = unsafe { Self::file(file) };
        // SAFETY: Valid during the call, and ours alone.
        this.fdinfo(unsafe { SeqFile::from_raw(out) });
    }

    /// # Safety
    ///
    /// Called by the memory manager, for an open file of ours and an area that is being made.
    unsafe extern "C" fn mmap(
        file: *mut bindings::file,
        vma: *mut bindings::vm_area_struct,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The area is valid and not yet shown to anybody; only plain data are read.
            let (bytes, first, flags) = unsafe {
                let range = &raw const (*vma).__bindgen_anon_1.__bindgen_anon_1;
                (
                    (*range).vm_end.wrapping_sub((*range).vm_start),
                    (*vma).vm_pgoff,
                    (*vma).__bindgen_anon_2.vm_flags,
                )
            };
            // SAFETY: Open during the call.
            unsafe { Self::file(file) }.may_map()?;
            if bytes != PAGE_SIZE || first != 0 {
                return Err(EINVAL);
            }
            // A private page would be a copy, and nobody runs code from registers.
            if flags & bindings::VM_SHARED as c_ulong == 0 {
                return Err(EINVAL);
            }
            if flags & bindings::VM_EXEC as c_ulong != 0 {
                return Err(EPERM);
            }
            // SAFETY: As above, so it may be written.
            unsafe {
                (*vma).vm_ops = &Self::MAPPING_OPERATIONS;
                qpair_vma_make_doorbell(vma);
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the memory manager, for an area that [`Self::mmap`] has made.
    unsafe extern "C" fn fault(fault: *mut bindings::vm_fault) -> bindings::vm_fault_t {
        // SAFETY: The fault, its area and the area's file are valid during the call.
        unsafe {
            let vma = (*fault).__bindgen_anon_1.vma;
            let address = (*fault).__bindgen_anon_1.address;
            Self::file((*vma).vm_file).door().fault(vma, address)
        }
    }
}

#[pinned_drop]
impl<F: FileOps> PinnedDrop for CharDevice<F> {
    /// Sleeps. Open files stay.
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered, by the type invariant.
        unsafe { bindings::misc_deregister(self.misc.get()) };
    }
}
