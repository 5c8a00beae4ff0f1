// SPDX-License-Identifier: GPL-2.0
//! Devices, and contexts on them.

use std::fmt;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qpair_abi::counters::Counter;
use qpair_abi::status::Status;
use qpair_abi::uapi::{
    qpair_async_event, qpair_query_counters, qpair_query_device, QPAIR_EVENT_CQ_OVERRUN,
    QPAIR_EVENT_DEVICE_FATAL, QPAIR_EVENT_DOORBELL_VIOLATION, QPAIR_EVENT_QP_FATAL,
    QPAIR_UAPI_VERSION,
};
use qpair_abi::Number;

use crate::error::Error;
use crate::kernel::{Call, File, Kernel};

/// What the device is and allows, and what this context may have.
pub use qpair_abi::uapi::qpair_query_device as Attributes;

/// A device that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    path: PathBuf,
}

impl Device {
    /// All devices, by number.
    pub fn list() -> Result<Vec<Self>, Error> {
        let mut found: Vec<(u32, PathBuf)> = fs::read_dir("/dev")
            .map_err(|_| Error::NoDevice)?
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name();
                let number = name.to_str()?.strip_prefix("qpair")?.parse().ok()?;
                Some((number, entry.path()))
            })
            .collect();
        found.sort();
        Ok(found.into_iter().map(|(_, path)| Self { path }).collect())
    }

    /// The first device.
    pub fn first() -> Result<Self, Error> {
        Self::list()?.into_iter().next().ok_or(Error::NoDevice)
    }

    /// The device with this file.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it: a context of its own.
    pub fn open(&self) -> Result<Context, Error> {
        let file = File::open(&self.path).map_err(|errno| Error::Open {
            path: self.path.clone(),
            errno,
        })?;
        Context::new(Arc::new(file))
    }
}

#[derive(Debug)]
pub(crate) struct ContextInner {
    kernel: Arc<dyn Kernel>,
    pub(crate) attributes: Attributes,
}

impl ContextInner {
    pub(crate) fn call(&self, call: Call<'_>) -> Result<(), Error> {
        let what = call.what();
        self.kernel.call(call).map_err(Error::kernel(what))
    }

    #[inline]
    pub(crate) fn doorbell(&self, offset: u64, value: u64) {
        self.kernel.doorbell(offset, value);
    }
}

/// An open device: a doorbell page, and the objects created through it.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

impl Context {
    /// A context on a kernel, or on a model of it.
    pub fn new(kernel: Arc<dyn Kernel>) -> Result<Self, Error> {
        let mut attributes = qpair_query_device::default();
        let call = Call::QueryDevice(&mut attributes);
        let what = call.what();
        kernel.call(call).map_err(Error::kernel(what))?;
        if attributes.uapi_version != QPAIR_UAPI_VERSION {
            return Err(Error::Version {
                kernel: attributes.uapi_version,
                library: QPAIR_UAPI_VERSION,
            });
        }
        let inner = ContextInner { kernel, attributes };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// What the device allows, as queried when it was opened.
    pub fn attributes(&self) -> &Attributes {
        &self.inner.attributes
    }

    /// The same, queried again: the link may have changed.
    pub fn query(&self) -> Result<Attributes, Error> {
        let mut attributes = qpair_query_device::default();
        self.inner.call(Call::QueryDevice(&mut attributes))?;
        Ok(attributes)
    }

    /// The device's counters.
    pub fn counters(&self) -> Result<Counters, Error> {
        let mut values = [0; Counter::COUNT];
        let mut query = qpair_query_counters {
            counters: values.as_mut_ptr() as u64,
            count: values.len() as u32,
            ..Default::default()
        };
        self.inner.call(Call::QueryCounters(&mut query))?;
        Ok(Counters(values))
    }

    /// Takes the next asynchronous event, without waiting.
    pub fn async_event(&self) -> Result<Option<AsyncEvent>, Error> {
        let mut event = [qpair_async_event::default()];
        let taken = self.inner.kernel.events(&mut event);
        match taken.map_err(Error::kernel("read asynchronous events"))? {
            0 => Ok(None),
            _ => Ok(Some(AsyncEvent::from(event[0]))),
        }
    }

    /// What to wait on (poll, epoll) for asynchronous events.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.kernel.fd()
    }
}

/// What the device has counted since power-on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters([u64; Counter::COUNT]);

impl Counters {
    /// One of them.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.iter().copied().zip(self.0)
    }

    /// What was counted since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for (value, earlier) in difference.0.iter_mut().zip(earlier.0) {
            *value = value.wrapping_sub(earlier);
        }
        difference
    }
}

/// An asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue had no room; its queue pairs are in the error state.
    CqOverrun(Number),
    /// A queue pair went to the error state.
    QpFatal(Number, Status),
    /// This context wrote this many invalid doorbells.
    DoorbellViolation(u32),
    /// The device stopped and was reset: this context is dead, open the device anew.
    DeviceFatal,
    /// One that this version does not know.
    Other(qpair_async_event),
}

impl From<qpair_async_event> for AsyncEvent {
    fn from(event: qpair_async_event) -> Self {
        let object = Number::from_raw(event.handle);
        match event.kind {
            QPAIR_EVENT_CQ_OVERRUN => Self::CqOverrun(object),
            QPAIR_EVENT_QP_FATAL => {
                let status = u8::try_from(event.code).ok().and_then(Status::from_code);
                Self::QpFatal(object, status.unwrap_or(Status::General))
            }
            QPAIR_EVENT_DOORBELL_VIOLATION => Self::DoorbellViolation(event.count),
            QPAIR_EVENT_DEVICE_FATAL => Self::DeviceFatal,
            _ => Self::Other(event),
        }
    }
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CqOverrun(cq) => write!(f, "completion queue {cq} had no room"),
            Self::QpFatal(qp, status) => write!(f, "queue pair {qp} is in error: {status}"),
            Self::DoorbellViolation(count) => write!(f, "{count} invalid doorbells"),
            Self::DeviceFatal => f.write_str("the device stopped and was reset: open it anew"),
            Self::Other(event) => write!(f, "event {} of {}", event.kind, event.handle),
        }
    }
}
