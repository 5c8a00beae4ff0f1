// SPDX-License-Identifier: GPL-2.0
//! Errors, each with cause and remedy.
//!
//! There are three kinds, as in every queue-pair interface: a call fails ([`Error`],
//! [`PostError`]), a work request fails later ([`CompletionError`]), or an asynchronous event
//! reports an error ([`AsyncEvent`](crate::AsyncEvent)).

use std::path::PathBuf;

use qpair_abi::status::{Detail, Status};
use qpair_abi::Number;
use rustix::io::Errno;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No RDMA device has this driver.
    #[error("no queue pair device: load the driver (modprobe qpair), and see that the machine has the function (lspci -d 1234:5150) and that it works (kernel log)")]
    NoDevice,
    /// The RDMA core has no files for processes.
    #[error("the kernel has no uverbs: load the module (modprobe ib_uverbs)")]
    NoUverbs,
    /// There is no such device.
    #[error("there is no RDMA device {name}: name one that `rdma link` or /sys/class/infiniband shows, as qpair0, or the path of its file, as /dev/infiniband/uverbs0")]
    Unknown {
        /// Its name or path.
        name: String,
    },
    /// The device is not of this driver.
    #[error("the RDMA device {name} belongs to another driver ({driver}): name one of the driver qpair, as qpair0")]
    OtherDriver {
        /// Its name or path.
        name: String,
        /// Name of the driver, as in sysfs.
        driver: String,
    },
    /// The device's file could not be opened.
    #[error("cannot open {}: {errno}: {}", path.display(), open_remedy(*.errno))]
    Open {
        /// The file that could not be opened.
        path: PathBuf,
        /// The errno of the open, or of the commands that follow it.
        errno: Errno,
    },
    /// A call to the kernel failed.
    #[error("cannot {what}: {}: {errno}", cause(*.errno))]
    Kernel {
        /// What the call was to do.
        what: &'static str,
        /// The errno of the call.
        errno: Errno,
    },
    /// The kernel speaks another version of the interface.
    #[error("the driver has version {kernel} of the interface, this program {library}: use those of one release")]
    Version {
        /// Version of the driver.
        kernel: u32,
        /// Version of this library.
        library: u32,
    },
    /// A CQ must have room for all that the queues on it can complete.
    #[error("the completion queue has {free} slots left and the queue pair needs {needed}: make it deeper, or the queues on it shorter")]
    CqTooSmall {
        /// Slots that no queue has reserved.
        free: u32,
        /// Slots that the new queues need.
        needed: u32,
    },
    /// A CQ or SRQ of one context cannot serve a queue pair of another.
    #[error("the completion queue or shared receive queue belongs to another context: make all from one")]
    OtherContext,
    /// A queue pair of UC has receives of its own.
    #[error("a queue pair of UC cannot be on a shared receive queue: give it receives of its own, or use RC or UD")]
    UcOnSrq,
    /// The port has no address that datagrams could go to.
    #[error(
        "the port has no address: give the network device that it belongs to one (ip address add)"
    )]
    NoAddress,
    /// A depth or size that no device has.
    #[error("{what} is {value}, and must be {allowed}")]
    Range {
        /// Which depth or size.
        what: &'static str,
        /// The value that was asked for.
        value: u64,
        /// The values that are allowed, as text.
        allowed: &'static str,
    },
    /// A work request was not posted.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A work request failed.
    #[error(transparent)]
    Completion(#[from] CompletionError),
}

impl Error {
    /// The errno, if the kernel gave one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Open { errno, .. } | Self::Kernel { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// Whether the device is gone or was reset: everything that was made through the context is
    /// dead.
    pub fn is_dead(&self) -> bool {
        matches!(self.errno(), Some(Errno::NODEV | Errno::IO))
    }

    pub(crate) fn kernel(what: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::Kernel { what, errno }
    }
}

fn open_remedy(errno: Errno) -> &'static str {
    match errno {
        Errno::NOENT => "see that /dev has the files of the RDMA core (udev, or devtmpfs), or name another device",
        Errno::ACCESS | Errno::PERM => "run as root, or give yourself access to the file",
        Errno::NODEV | Errno::NXIO | Errno::IO => "the device was removed or is reset; open it anew when it is back",
        Errno::NOTTY | Errno::PROTONOSUPPORT | Errno::INVAL => "use a kernel, a driver and a program of one release",
        Errno::NOSPC => "the device has no doorbell page left: end another process that uses it",
        Errno::DQUOT => "this user has as many files of the device open as it may: close some",
        Errno::OPNOTSUPP => "the platform gives devices copies of memory: use an IOMMU, or boot without swiotlb=force",
        _ => "see the kernel log",
    }
}

/// What an errno of the interface means, and what to do about it.
pub fn cause(errno: Errno) -> &'static str {
    match errno {
        Errno::NOTTY | Errno::PROTONOSUPPORT => "the kernel does not know this call; use a newer one",
        Errno::INVAL => "an argument is out of the device's limits (see `qpair info`), unaligned, not possible in this state, or REMOTE_WRITE is without LOCAL_WRITE",
        Errno::NOENT => "the object does not exist in this context",
        Errno::BUSY => "other objects use it; destroy those first",
        Errno::OVERFLOW => "address and length wrap, or the region is larger than the device allows (see `qpair info`)",
        Errno::FAULT => "the memory is not mapped, not writable, or not ordinary memory",
        Errno::NOMEM => "out of memory, or of memory that may be locked; raise the limit (ulimit -l) or use less",
        Errno::NOSPC => "the device has no more of this kind, or keeps the rest for privileged processes; end others that use it, or give it more (-device qpair,help)",
        Errno::DQUOT => "this process, or its user, has as many of this kind as it may (see `qpair info`); use less",
        Errno::BADF => "the event file descriptor is not an eventfd",
        Errno::AGAIN => "the process has as many RDMA objects as its cgroup may (rdma.max); use less, or raise the limit",
        Errno::INTR => "a signal interrupted the call",
        Errno::OPNOTSUPP => "memory of this kind cannot stay where it is for long (a file on DAX?), so use ordinary memory; or the driver is older than this program, so use those of one release",
        Errno::NOSYS => "the driver is older than this program; use those of one release",
        Errno::PIPE => "a completion queue was overrun and takes no more completions; destroy it and make another",
        Errno::IO => "the device was removed or reset since it was opened; open it anew",
        Errno::NODEV => "the device is gone",
        _ => "unexpected error",
    }
}

/// A work request was not posted; those before it in the same call were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The queue has no free slot.
    #[error(
        "the queue is full after {posted} work requests: poll its completion queue, and post again"
    )]
    Full {
        /// How many of this call were posted.
        posted: usize,
    },
    /// It exceeds a limit of the queue or of the device.
    #[error("work request {posted} is too large: {what}")]
    TooLarge {
        /// How many of this call were posted.
        posted: usize,
        /// What is too large.
        what: &'static str,
    },
}

impl PostError {
    /// How many work requests of the call were posted before the one that was not.
    pub fn posted(self) -> usize {
        match self {
            Self::Full { posted } | Self::TooLarge { posted, .. } => posted,
        }
    }
}

/// A work request failed. Its queue pair is in the error state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work request {id:#x} of queue pair {qp}: {status} ({detail})")]
pub struct CompletionError {
    /// The identifier that the work request was posted with.
    pub id: u64,
    /// The queue pair that it was posted to.
    pub qp: Number,
    /// The status of the completion, which is not success.
    pub status: Status,
    /// The check of the device that failed.
    pub detail: Detail,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The errors of creates and changes that Documentation/verbs.rst lists, and those of an object, a
    /// device or a kernel that is gone or older.
    const LISTED: [Errno; 17] = [
        Errno::INVAL,
        Errno::OPNOTSUPP,
        Errno::OVERFLOW,
        Errno::FAULT,
        Errno::NOMEM,
        Errno::DQUOT,
        Errno::NOSPC,
        Errno::AGAIN,
        Errno::BADF,
        Errno::INTR,
        Errno::PIPE,
        Errno::BUSY,
        Errno::IO,
        Errno::NODEV,
        Errno::NOENT,
        Errno::NOTTY,
        Errno::NOSYS,
    ];

    #[test]
    fn each_errno_has_a_cause_of_its_own() {
        let other = cause(Errno::XDEV);
        let causes: HashSet<_> = LISTED.into_iter().map(cause).chain([other]).collect();
        assert_eq!(causes.len(), LISTED.len() + 1);
    }

    #[test]
    fn a_failed_call_says_what_why_and_the_errno() {
        for errno in LISTED {
            let error = Error::kernel("create a queue pair")(errno);
            let right = format!("cannot create a queue pair: {}: {errno}", cause(errno));
            assert_eq!(error.to_string(), right);
            assert_eq!(error.errno(), Some(errno));
            assert_eq!(error.is_dead(), matches!(errno, Errno::IO | Errno::NODEV));
        }
    }

    #[test]
    fn an_open_that_fails_says_what_to_do() {
        let mut remedies = HashSet::new();
        for errno in [
            Errno::NOENT,
            Errno::ACCESS,
            Errno::NODEV,
            Errno::NOTTY,
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::OPNOTSUPP,
            Errno::XDEV,
        ] {
            let path = PathBuf::from("/dev/infiniband/uverbs0");
            let said = Error::Open { path, errno }.to_string();
            let begin = format!("cannot open /dev/infiniband/uverbs0: {errno}: ");
            let remedy = said.strip_prefix(&begin).expect(&said).to_owned();
            assert!(remedies.insert(remedy), "{said}");
        }
        assert_eq!(open_remedy(Errno::PERM), open_remedy(Errno::ACCESS));
    }

    #[test]
    fn a_post_that_fails_says_how_many_were_posted() {
        let (posted, what) = (3, "inline data");
        for error in [
            PostError::Full { posted },
            PostError::TooLarge { posted, what },
        ] {
            assert_eq!(error.posted(), posted);
            let said = Error::from(error);
            assert!(said.to_string().contains("3"), "{said}");
            assert_eq!((said.errno(), said.is_dead()), (None, false));
        }
    }
}
