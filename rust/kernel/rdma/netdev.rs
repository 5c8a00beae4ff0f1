// SPDX-License-Identifier: GPL-2.0

//! The network device that a port of RoCE belongs to, by its address.
//!
//! A notifier is called for each network device, first for those that are there. The port belongs to
//! the first of the device's own namespace that has the address, as long as it is registered and has
//! it; without one the port is down. When the device comes into another namespace, it looks for one
//! there.

use super::prelude::*;
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings::notifier_block,
    container_of,
    types::Opaque, //
};

/// Whether the port's network device is there, running, and has a carrier. A port of InfiniBand needs
/// none. Any context.
///
/// # Safety
///
/// `dev` is registered, or being so, with the facts about its port set.
pub(super) unsafe fn carries(dev: *mut bindings::ib_device) -> bool {
    // SAFETY: By the caller's promise.
    unsafe { bindings::rdma_port_carries(dev, PORT) }
}

/// The most payload of a packet that a frame of the port's network device holds; 256 bytes without
/// one. Any context.
///
/// # Safety
///
/// `dev` is registered, or being so, and has or had a [`Follower`].
pub(super) unsafe fn mtu(dev: *mut bindings::ib_device) -> bindings::ib_mtu {
    // SAFETY: By the caller's promise; the follower has allocated the data of ports.
    unsafe { bindings::rdma_port_mtu(dev, PORT) }
}

/// Looks for the network device with this address in the namespace that `dev` is in. Takes the lock
/// of network devices. Sleeps.
///
/// # Safety
///
/// `dev` is registered, or being so, and has or had a [`Follower`].
pub(super) unsafe fn find(dev: *mut bindings::ib_device, address: &[u8; 6]) {
    // SAFETY: By the caller's promise; the follower has allocated the data of ports.
    unsafe { bindings::rdma_netdev_find(dev, PORT, address.as_ptr()) };
}

/// Gives a device of the core the network device with an address.
///
/// # Invariants
///
/// `dev` is valid until the notifier is unregistered.
#[pin_data(PinnedDrop)]
pub(super) struct Follower {
    #[pin]
    block: Opaque<notifier_block>,
    dev: NonNull<bindings::ib_device>,
    address: [u8; 6],
}

// SAFETY: The notifier chain has a lock of its own.
unsafe impl Send for Follower {}

// SAFETY: As above.
unsafe impl Sync for Follower {}

impl Follower {
    /// Follows the network device with this address. Takes the lock of network devices. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `dev` has its number of ports, and stays valid until the result is dropped.
    pub(super) unsafe fn new(
        dev: NonNull<bindings::ib_device>,
        address: [u8; 6],
    ) -> Result<Pin<KBox<Self>>> {
        let block = Opaque::new(notifier_block {
            notifier_call: Some(Self::changed),
            next: ptr::null_mut(),
            // Before the core's, which looks the port's network device up.
            priority: 1,
        });
        // The core allocates the data of ports at the first call, without a lock.
        // SAFETY: By the caller's promise; the notifier is not there yet.
        to_result(unsafe { bindings::ib_device_set_netdev(dev.as_ptr(), ptr::null_mut(), PORT) })?;
        // INVARIANT: By the caller's promise.
        let this = KBox::pin_init(
            pin_init!(Self {
                block,
                dev,
                address,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: Pinned until the drop unregisters it. If this fails, the drop is harmless: the
        // block is in no chain.
        to_result(unsafe { bindings::register_netdevice_notifier(this.block.get()) })?;
        Ok(this)
    }

    /// # Safety
    ///
    /// `block` is that of a [`Follower`] which is registered, `info` that of the event, of a network
    /// device; the lock of network devices is held.
    unsafe extern "C" fn changed(
        block: *mut notifier_block,
        event: c_ulong,
        info: *mut c_void,
    ) -> c_int {
        // SAFETY: By the caller's promise; the device of a follower is valid while that is registered.
        unsafe {
            let this = &*container_of!(Opaque::cast_from(block), Self, block);
            let dev = this.dev.as_ptr();
            let netdev = bindings::rdma_netdev_of(info);
            let attached = bindings::rdma_netdev_attached(dev, PORT);
            let matches = bindings::rdma_netdev_matches(dev, netdev, this.address.as_ptr());
            if attached == netdev {
                // By its pointer: its address may be another by now.
                if bindings::rdma_netdev_goes(event) || !matches {
                    bindings::ib_device_set_netdev(dev, ptr::null_mut(), PORT);
                }
            } else if attached.is_null() && matches && bindings::rdma_netdev_comes(event) {
                // If this fails, the port stays down.
                bindings::ib_device_set_netdev(dev, netdev, PORT);
            }
        }
        0
    }
}

#[pinned_drop]
impl PinnedDrop for Follower {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: Registered in `new`, or never; then it is not found.
        unsafe { bindings::unregister_netdevice_notifier(self.block.get()) };
    }
}
