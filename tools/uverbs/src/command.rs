// SPDX-License-Identifier: GPL-2.0
//! A command, as `RDMA_VERBS_IOCTL` takes it.

use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use qpair_abi::uverbs::{
    qpair_ureq_create_cq, qpair_ureq_create_qp, qpair_ureq_create_srq, qpair_ureq_modify_srq,
    qpair_uresp_alloc_ucontext, qpair_uresp_create_ah, qpair_uresp_create_cq,
    qpair_uresp_create_qp, qpair_uresp_create_srq, qpair_uresp_modify_qp,
};
use rustix::io::Errno;
use rustix::ioctl::{ioctl, Opcode, Updater};

use crate::abi::{
    ib_uverbs_attr, ib_uverbs_ioctl_hdr, Plain, RDMA_VERBS_IOCTL,
    UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CORE_OUT,
    UVERBS_ATTR_F_MANDATORY, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, UVERBS_ATTR_UHW_IN,
    UVERBS_ATTR_UHW_OUT, UVERBS_ATTR_WRITE_CMD, UVERBS_METHOD_ASYNC_EVENT_ALLOC,
    UVERBS_METHOD_GET_CONTEXT, UVERBS_METHOD_INVOKE_WRITE, UVERBS_OBJECT_ASYNC_EVENT,
    UVERBS_OBJECT_DEVICE,
};

macro_rules! plain {
    ($($name:ident),* $(,)?) => { $(
        // SAFETY: Integers only, and laid out without padding; `tests/layout.rs` checks that.
        unsafe impl Plain for $name {}
    )* };
}

// SAFETY: An integer.
unsafe impl Plain for u32 {}

plain!(
    qpair_uresp_alloc_ucontext,
    qpair_ureq_create_cq,
    qpair_uresp_create_cq,
    qpair_ureq_create_qp,
    qpair_uresp_create_qp,
    qpair_ureq_create_srq,
    qpair_uresp_create_srq,
    qpair_ureq_modify_srq,
    qpair_uresp_create_ah,
    qpair_uresp_modify_qp,
);

/// Parts of a command besides its number.
const PARTS: usize = 4;
/// Bytes of a part that are passed by value.
const BY_VALUE: usize = size_of::<u64>();

#[repr(C)]
struct Request {
    header: ib_uverbs_ioctl_hdr,
    attrs: [ib_uverbs_attr; PARTS + 1],
}

/// A command, for a driver with the ID `RDMA_DRIVER_UNKNOWN`.
pub struct Command<'a> {
    request: Request,
    parts: PhantomData<&'a mut ()>,
}

impl<'a> Command<'a> {
    /// The command of `write()` with this number, `IB_USER_VERBS_CMD_*`. That is not possible for
    /// `GET_CONTEXT`: some kernels take the number for another part of it.
    pub fn new(number: u32) -> Self {
        let command = Self::method(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
        command.part(UVERBS_ATTR_WRITE_CMD, BY_VALUE as u16, number.into())
    }

    /// A command that creates an object, of which the driver has its part: the requests, and the
    /// places for the answers, of the core and of the driver.
    pub fn create(
        number: u32,
        (core, driver): (&'a impl Plain, &'a impl Plain),
        (answer, made): (&'a mut impl Plain, &'a mut impl Plain),
    ) -> Self {
        Self::new(number)
            .request(core)
            .answer(answer)
            .driver_request(driver)
            .driver_answer(made)
    }

    /// The command that makes an open file a context, with the place for the number of completion
    /// vectors.
    pub fn get_context(vectors: &'a mut u32) -> Self {
        Self::method(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT)
            .output(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, vectors)
    }

    fn method(object_id: u16, method_id: u16) -> Self {
        Self {
            request: Request {
                header: ib_uverbs_ioctl_hdr {
                    object_id,
                    method_id,
                    ..Default::default()
                },
                attrs: [ib_uverbs_attr::default(); PARTS + 1],
            },
            parts: PhantomData,
        }
    }

    /// Sets the ID of the driver, `enum rdma_driver_id`; without it the ID is 0.
    pub fn driver(mut self, id: u32) -> Self {
        self.request.header.driver_id = id;
        self
    }

    /// The request to the core.
    pub fn request<T: Plain>(self, request: &'a T) -> Self {
        self.input(UVERBS_ATTR_CORE_IN, request)
    }

    /// The place for the core's answer.
    pub fn answer<T: Plain>(self, answer: &'a mut T) -> Self {
        self.output(UVERBS_ATTR_CORE_OUT, answer)
    }

    /// The request to the driver.
    pub fn driver_request<T: Plain>(self, request: &'a T) -> Self {
        self.input(UVERBS_ATTR_UHW_IN, request)
    }

    /// The place for the driver's answer.
    pub fn driver_answer<T: Plain>(self, answer: &'a mut T) -> Self {
        self.output(UVERBS_ATTR_UHW_OUT, answer)
    }

    fn input<T: Plain>(self, id: u16, from: &'a T) -> Self {
        let bytes = const { size_of::<T>() };
        let data = if bytes <= BY_VALUE {
            let mut value = [0; BY_VALUE];
            value[..bytes].copy_from_slice(bytes_of(from));
            u64::from_ne_bytes(value)
        } else {
            &raw const *from as u64
        };
        self.part(id, bytes as u16, data)
    }

    fn output<T: Plain>(self, id: u16, into: &'a mut T) -> Self {
        self.part(id, const { size_of::<T>() } as u16, &raw mut *into as u64)
    }

    /// Adds a part as it is: an address, or a value of a request of at most 8 bytes.
    ///
    /// # Panics
    ///
    /// If there are more than a command has.
    pub fn part(mut self, id: u16, bytes: u16, data: u64) -> Self {
        let header = &mut self.request.header;
        self.request.attrs[usize::from(header.num_attrs)] = ib_uverbs_attr {
            attr_id: id,
            len: bytes,
            flags: UVERBS_ATTR_F_MANDATORY,
            attr_data: 0,
            data,
        };
        header.num_attrs += 1;
        self
    }

    /// Shows each part to `kernel`, in a test that takes the kernel's place: the attribute and the bytes,
    /// which it changes in place of an answer.
    ///
    /// # Safety
    ///
    /// No part was added by [`part`](Self::part).
    pub unsafe fn play(self, mut kernel: impl FnMut(u16, &mut [u8])) {
        let count = usize::from(self.request.header.num_attrs);
        for attr in &self.request.attrs[..count] {
            let bytes = usize::from(attr.len);
            match attr.attr_id {
                UVERBS_ATTR_CORE_IN | UVERBS_ATTR_UHW_IN | UVERBS_ATTR_WRITE_CMD => {
                    let mut copy = attr.data.to_ne_bytes().to_vec();
                    if bytes > BY_VALUE {
                        // SAFETY: `input` has borrowed a value of that length, without padding.
                        copy = unsafe { std::slice::from_raw_parts(attr.data as *const u8, bytes) }
                            .to_vec();
                    }
                    kernel(attr.attr_id, &mut copy[..bytes]);
                }
                // SAFETY: `output` has borrowed a value of that length, of which any bytes are one.
                output => kernel(output, unsafe {
                    std::slice::from_raw_parts_mut(attr.data as *mut u8, bytes)
                }),
            }
        }
    }

    /// Runs it on an open uverbs file.
    ///
    /// # Errors
    ///
    /// Those of the core and of the driver. `ENOTTY`: not a uverbs file.
    ///
    /// # Safety
    ///
    /// What the request names is the caller's: the kernel writes to answers while this runs, and
    /// the device to rings and regions until their objects are destroyed.
    pub unsafe fn run(mut self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        // SAFETY: By the caller's promise.
        unsafe { self.call(fd) }
    }

    /// # Safety
    ///
    /// As for [`Self::run`].
    unsafe fn call(&mut self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        const OPCODE: Opcode = RDMA_VERBS_IOCTL as Opcode;
        let header = &mut self.request.header;
        header.length = (size_of::<ib_uverbs_ioctl_hdr>()
            + usize::from(header.num_attrs) * size_of::<ib_uverbs_attr>())
            as u16;
        // SAFETY: The header has the length of the request. What it names is by the caller's
        // promise, and lives for `'a`.
        unsafe { ioctl(fd, Updater::<OPCODE, Request>::new(&mut self.request)) }
    }
}

/// The bytes of a value.
pub fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: `T` is that long, and has no padding.
    unsafe { std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }
}

/// Opens the asynchronous events of a context.
///
/// # Errors
///
/// Those of the core.
pub fn open_events(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let command = Command::method(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
    let mut command = command.part(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0, 0);
    // SAFETY: It names no memory besides itself.
    unsafe { command.call(fd)? };
    // SAFETY: The kernel has just opened it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(command.request.attrs[0].data as RawFd) })
}
