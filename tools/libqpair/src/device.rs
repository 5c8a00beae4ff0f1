// SPDX-License-Identifier: GPL-2.0
//! Devices, and contexts on them.
//!
//! The RDMA core gives a device a name and a file, `/dev/infiniband/uverbsN`. Both are in sysfs,
//! with the driver and the version of its interface:
//!
//! ```text
//!   /sys/class/infiniband_verbs/uverbs0/ibdev           qpair0
//!                                      /abi_version     1
//!                                      /device/driver   -> .../qpair
//! ```

use std::fs;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use qpair_abi::command::GIDS;
use qpair_abi::counters::Counter;
use qpair_abi::uverbs::QPAIR_UVERBS_ABI_VERSION;

use crate::error::Error;
use crate::kernel::{Address, CounterValues, Gid, Kernel};
use crate::uverbs::File;

pub use crate::kernel::{AsyncEvent, Attributes};

/// The driver in sysfs.
const DRIVER: &str = "qpair";
const SYSFS: &str = "/sys";
const CLASS: &str = "class/infiniband_verbs";
const FILES: &str = "/dev/infiniband";

/// A device that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    name: String,
    path: PathBuf,
    /// Its folder in sysfs.
    sysfs: PathBuf,
}

impl Device {
    /// All devices, by name.
    pub fn list() -> Result<Vec<Self>, Error> {
        ours(Path::new(SYSFS))
    }

    /// The first device of [`list`](Self::list).
    pub fn first() -> Result<Self, Error> {
        Self::list()?.into_iter().next().ok_or(Error::NoDevice)
    }

    /// The device of this name, or with the file of this path.
    pub fn at(name: impl AsRef<Path>) -> Result<Self, Error> {
        named(Path::new(SYSFS), name.as_ref())
    }

    /// The name of the RDMA device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that [`open`](Self::open) opens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of its function in sysfs.
    pub fn function(&self) -> PathBuf {
        self.sysfs.join("device")
    }

    /// The version of the driver's interface; `None` if the device is gone.
    pub fn interface(&self) -> Option<u32> {
        line(&self.sysfs.join("abi_version"))?.parse().ok()
    }

    fn driver(&self) -> Option<String> {
        let link = fs::read_link(self.function().join("driver")).ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    }

    fn is_ours(&self) -> bool {
        self.driver().is_some_and(|driver| driver == DRIVER)
    }

    /// That of a folder of the class; `None` if that is no device, or goes.
    fn of(sysfs: PathBuf) -> Option<Self> {
        Some(Self {
            name: line(&sysfs.join("ibdev"))?,
            path: Path::new(FILES).join(sysfs.file_name()?),
            sysfs,
        })
    }

    /// Opens it: a context of its own.
    pub fn open(&self) -> Result<Context, Error> {
        match self.interface() {
            Some(QPAIR_UVERBS_ABI_VERSION) => {}
            Some(kernel) => {
                return Err(Error::Version {
                    kernel,
                    library: QPAIR_UVERBS_ABI_VERSION,
                })
            }
            None => return Err(Error::NoDevice),
        }
        let file = File::open(&self.path, &self.name).map_err(|errno| Error::Open {
            path: self.path.clone(),
            errno,
        })?;
        Context::new(Arc::new(file))
    }
}

/// The devices of this driver, by name.
fn ours(sysfs: &Path) -> Result<Vec<Device>, Error> {
    let mut found = all(sysfs)?;
    found.retain(Device::is_ours);
    found.sort_by_cached_key(|device| (device.name.len(), device.name.clone()));
    Ok(found)
}

/// The RDMA devices of any driver.
fn all(sysfs: &Path) -> Result<Vec<Device>, Error> {
    let class = fs::read_dir(sysfs.join(CLASS)).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::NoUverbs,
        _ => Error::NoDevice,
    })?;
    Ok(class
        .flatten()
        .filter_map(|entry| Device::of(entry.path()))
        .collect())
}

fn named(sysfs: &Path, name: &Path) -> Result<Device, Error> {
    let wanted = || name.display().to_string();
    let device = if name.components().count() > 1 {
        let about = fs::metadata(name).map_err(|error| Error::Open {
            path: name.to_owned(),
            errno: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO),
        })?;
        let (major, minor) = (
            rustix::fs::major(about.rdev()),
            rustix::fs::minor(about.rdev()),
        );
        let node = fs::canonicalize(sysfs.join(format!("dev/char/{major}:{minor}"))).ok();
        node.and_then(Device::of).map(|device| Device {
            path: name.to_owned(),
            ..device
        })
    } else {
        let mut found = all(sysfs)?.into_iter();
        found.find(|device| Path::new(&device.name) == name || device.path.ends_with(name))
    };
    let device = device.ok_or_else(|| Error::Unknown { name: wanted() })?;
    match device.driver() {
        Some(driver) if driver == DRIVER => Ok(device),
        driver => Err(Error::OtherDriver {
            name: wanted(),
            driver: driver.unwrap_or_else(|| "no hardware".into()),
        }),
    }
}

/// A file of one line.
fn line(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[derive(Debug)]
pub(crate) struct ContextInner {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) attributes: Attributes,
}

impl ContextInner {
    #[inline]
    pub(crate) fn doorbell(&self, offset: u64, value: u64) {
        self.kernel.doorbell(offset, value);
    }

    /// The address of the port itself.
    pub(crate) fn address(&self) -> Result<Address, Error> {
        match self.attributes.lid {
            0 => {}
            lid => return Ok(Address::Lid(lid)),
        }
        for source in 0..GIDS as u8 {
            let gid = self.kernel.gid(source);
            let gid = gid.map_err(Error::kernel("read the port's addresses"))?;
            if gid != Gid::default() {
                return Ok(Address::Gid { gid, source });
            }
        }
        Err(Error::NoAddress)
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
        let attributes = kernel.query().map_err(Error::kernel(QUERY))?;
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
        self.inner.kernel.query().map_err(Error::kernel(QUERY))
    }

    /// An entry of the port's table of GIDs; 0 if it is empty. The table of a port of RoCE has the
    /// addresses of its network device.
    pub fn gid(&self, index: u8) -> Result<Gid, Error> {
        let found = self.inner.kernel.gid(index);
        found.map_err(Error::kernel("read a GID of the port"))
    }

    /// The device's counters. Waits for as long as the kernel keeps older values, some
    /// milliseconds.
    pub fn counters(&self) -> Result<Counters, Error> {
        let values = self.inner.kernel.counters();
        let refused = Error::kernel("read the device's counters");
        values.map(Counters).map_err(refused)
    }

    /// Takes the next asynchronous event, without waiting.
    pub fn async_event(&self) -> Result<Option<AsyncEvent>, Error> {
        let event = self.inner.kernel.async_event();
        event.map_err(Error::kernel("read asynchronous events"))
    }

    /// The descriptor to wait on (poll, epoll) for asynchronous events.
    pub fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.kernel.async_fd()
    }
}

const QUERY: &str = "query the device";

/// What the device has counted since power-on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters(CounterValues);

impl Counters {
    /// What one counter has counted.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Each counter with what it has counted.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A sysfs with these devices: file, name, driver.
    fn sysfs(devices: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(CLASS)).unwrap();
        for (file, name, driver) in devices {
            let folder = root.path().join(CLASS).join(file);
            fs::create_dir_all(folder.join("device")).unwrap();
            fs::write(folder.join("ibdev"), format!("{name}\n")).unwrap();
            fs::write(folder.join("abi_version"), "7\n").unwrap();
            symlink(format!("../drivers/{driver}"), folder.join("device/driver")).unwrap();
        }
        root
    }

    #[test]
    fn a_device_has_the_name_of_the_core_and_our_driver() {
        let root = sysfs(&[
            ("uverbs0", "rxe0", "rdma_rxe"),
            ("uverbs1", "qpair0", "qpair"),
        ]);
        fs::write(root.path().join(CLASS).join("abi_version"), "6\n").unwrap();
        for name in ["qpair0", "uverbs1"] {
            let device = named(root.path(), Path::new(name)).unwrap();
            assert_eq!(device.name(), "qpair0");
            assert_eq!(device.path(), Path::new("/dev/infiniband/uverbs1"));
            assert_eq!(device.interface(), Some(7));
            let refused = device.open().unwrap_err();
            assert!(matches!(
                refused,
                Error::Version {
                    kernel: 7,
                    library: QPAIR_UVERBS_ABI_VERSION
                }
            ));
        }
        let refused = named(root.path(), Path::new("rxe0")).unwrap_err();
        assert!(matches!(&refused, Error::OtherDriver { driver, .. } if driver == "rdma_rxe"));
        let refused = named(root.path(), Path::new("qpair1")).unwrap_err();
        assert!(matches!(&refused, Error::Unknown { name } if name == "qpair1"));
        let refused = named(root.path(), Path::new("/dev/null")).unwrap_err();
        assert!(matches!(refused, Error::Unknown { .. }));
        let node = root.path().join("dev/char/1:3");
        fs::create_dir_all(node.parent().unwrap()).unwrap();
        symlink(root.path().join(CLASS).join("uverbs1"), node).unwrap();
        let device = named(root.path(), Path::new("/dev/null")).unwrap();
        assert_eq!(
            (device.name(), device.path()),
            ("qpair0", Path::new("/dev/null"))
        );
        let refused = named(root.path(), &root.path().join("none")).unwrap_err();
        assert_eq!(refused.errno(), Some(rustix::io::Errno::NOENT));
    }

    #[test]
    fn devices_of_the_driver_are_in_the_order_of_their_numbers() {
        let root = sysfs(&[
            ("uverbs0", "qpair10", "qpair"),
            ("uverbs1", "rxe0", "rdma_rxe"),
            ("uverbs2", "qpair2", "qpair"),
            ("uverbs3", "qpair1", "qpair"),
        ]);
        let found = ours(root.path()).unwrap();
        let names: Vec<_> = found.iter().map(Device::name).collect();
        assert_eq!(names, ["qpair1", "qpair2", "qpair10"]);
    }

    #[test]
    fn devices_are_those_of_the_system() {
        let [found, expected] = [Device::list(), ours(Path::new(SYSFS))]
            .map(|found| found.map_err(|error| error.to_string()));
        assert_eq!(found, expected);
    }

    #[test]
    fn without_its_module_the_core_has_no_class() {
        let root = tempfile::tempdir().unwrap();
        let refused = named(root.path(), Path::new("qpair0")).unwrap_err();
        assert!(matches!(refused, Error::NoUverbs));
    }
}
