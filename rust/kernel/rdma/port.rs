// SPDX-License-Identifier: GPL-2.0

//! Operations on the port: of InfiniBand, or of RoCE if it belongs to a network device.

use super::{
    device::{
        CoreDevice,
        DevicePart, //
    },
    event::PortEvent,
    netdev,
    prelude::*, //
};
use kernel::sync::atomic::Full;

/// The LID of a port of InfiniBand.
pub(super) const LID: u16 = 1;

/// What the core does with a port of RoCE: management datagrams, its connections, addresses of
/// Ethernet.
const ROCE: u32 = bindings::RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP
    | bindings::RDMA_CORE_CAP_IB_MAD
    | bindings::RDMA_CORE_CAP_IB_CM
    | bindings::RDMA_CORE_CAP_AF_IB
    | bindings::RDMA_CORE_CAP_ETH_AH;

/// Bytes of a management datagram.
const MAD_BYTES: u32 = 256;

/// The state of a port, as `ib_query_port()` returns it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortAttributes {
    /// Whether the link is up.
    pub active: bool,
    /// The longest message, in bytes.
    pub max_message: u32,
}

/// A global identifier of a port, as in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// That of the port of a device with this EUI-64: a link-local address.
    pub fn of_port(guid: u64) -> Self {
        const LOCAL: u64 = 0xfe80_0000_0000_0000;
        Self((u128::from(LOCAL) << 64 | u128::from(guid)).to_be_bytes())
    }
}

impl<T: Driver> DevicePart<T> {
    /// Entries of the table of GIDs.
    fn gids(&self) -> c_int {
        // CAST: A small constant.
        self.mac.map_or(1, |_| T::GIDS as c_int)
    }
}

impl<T: Driver> Ops<T> {
    pub(super) const PORT: bindings::ib_device_ops = bindings::ib_device_ops {
        query_port: Some(Self::query_port),
        get_port_immutable: Some(Self::get_port_immutable),
        get_link_layer: Some(Self::get_link_layer),
        enable_driver: Some(Self::enable_driver),
        report_port_event: Some(Self::report_port_event),
        query_gid: Some(Self::query_gid),
        add_gid: Some(Self::add_gid),
        del_gid: Some(Self::del_gid),
        query_pkey: Some(Self::query_pkey),
        ..Self::NONE
    };

    /// The most payload of a packet.
    ///
    /// # Safety
    ///
    /// `dev` is live.
    pub(super) unsafe fn mtu(dev: *mut bindings::ib_device) -> bindings::ib_mtu {
        // SAFETY: By the caller's promise.
        match unsafe { CoreDevice::<T>::get(dev).wired } {
            // SAFETY: As above; a port with a network device has a follower.
            true => unsafe { netdev::mtu(dev) },
            false => bindings::ib_mtu_IB_MTU_4096,
        }
    }

    /// # Safety
    ///
    /// `dev` is live, `attr` to fill; the core has the facts of the port.
    unsafe extern "C" fn query_port(
        dev: *mut bindings::ib_device,
        _port: u32,
        attr: *mut bindings::ib_port_attr,
    ) -> c_int {
        // SAFETY: `dev` is live, with the facts of the port, and the caller fills `attr` by this.
        let (part, attr) = unsafe { (CoreDevice::<T>::get(dev), &mut *attr) };
        // SAFETY: As above.
        let (carries, mtu) = unsafe { (netdev::carries(dev), Self::mtu(dev)) };
        let found = T::port(&part.data);
        attr.state = bindings::ib_port_state_IB_PORT_DOWN;
        // CAST: Small constants, here and below.
        attr.phys_state = bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_DISABLED as u8;
        if found.active && carries {
            attr.state = bindings::ib_port_state_IB_PORT_ACTIVE;
            attr.phys_state = bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_LINK_UP as u8;
        }
        attr.active_mtu = mtu;
        attr.max_mtu = mtu;
        attr.gid_tbl_len = part.gids();
        attr.pkey_tbl_len = 1;
        attr.max_msg_sz = found.max_message;
        attr.max_vl_num = 1;
        if part.mac.is_some() {
            attr.set_ip_gids(1);
        } else {
            attr.lid = LID.into();
            attr.sm_lid = LID.into();
        }
        attr.active_speed = bindings::ib_port_speed_IB_SPEED_EDR as u16;
        attr.active_width = bindings::ib_port_width_IB_WIDTH_4X as u8;
        0
    }

    /// The network device of the port has gone up or down, or may have. That is an event of the port
    /// only if the link of the device is up.
    ///
    /// # Safety
    ///
    /// `dev` is live and registered.
    unsafe extern "C" fn report_port_event(
        dev: *mut bindings::ib_device,
        _netdev: *mut kernel::bindings::net_device,
        _event: c_ulong,
    ) {
        // SAFETY: `dev` is registered.
        let (part, carries) = unsafe { (CoreDevice::<T>::get(dev), netdev::carries(dev)) };
        let (state, event) = match carries {
            true => (bindings::ib_port_state_IB_PORT_ACTIVE, PortEvent::Active),
            false => (bindings::ib_port_state_IB_PORT_DOWN, PortEvent::Down),
        };
        if part.netdev.xchg(state, Full) != state && T::port(&part.data).active {
            // SAFETY: As above.
            unsafe { event.dispatch(dev) };
        }
    }

    /// The core enables a device when it is registered, and when it comes into another namespace.
    ///
    /// # Safety
    ///
    /// `dev` is live.
    unsafe extern "C" fn enable_driver(dev: *mut bindings::ib_device) -> c_int {
        // SAFETY: `dev` is live.
        if let Some(mac) = unsafe { CoreDevice::<T>::get(dev).mac } {
            // SAFETY: As above; one with an address has had a follower since before.
            unsafe { netdev::find(dev, &mac) };
        }
        0
    }

    /// # Safety
    ///
    /// `dev` is live.
    unsafe extern "C" fn get_link_layer(
        dev: *mut bindings::ib_device,
        _port: u32,
    ) -> bindings::rdma_link_layer {
        // SAFETY: `dev` is live.
        match unsafe { CoreDevice::<T>::get(dev).mac } {
            Some(_) => bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET,
            None => bindings::rdma_link_layer_IB_LINK_LAYER_INFINIBAND,
        }
    }

    /// # Safety
    ///
    /// `dev` is live, `immutable` to fill.
    unsafe extern "C" fn get_port_immutable(
        dev: *mut bindings::ib_device,
        _port: u32,
        immutable: *mut bindings::ib_port_immutable,
    ) -> c_int {
        // SAFETY: `dev` is live, and the caller fills `immutable` by this.
        let (part, immutable) = unsafe { (CoreDevice::<T>::get(dev), &mut *immutable) };
        immutable.gid_tbl_len = part.gids();
        immutable.pkey_tbl_len = 1;
        if part.mac.is_some() {
            immutable.core_cap_flags = ROCE;
            immutable.max_mad_size = MAD_BYTES;
        } else {
            // Connections by LID or GID; no management datagrams, so neither CM nor SA.
            immutable.core_cap_flags = bindings::RDMA_CORE_CAP_PROT_IB;
        }
        0
    }

    /// The one GID of a port of InfiniBand. The core has the table of a port of RoCE.
    ///
    /// # Safety
    ///
    /// `dev` is live, `gid` to fill.
    unsafe extern "C" fn query_gid(
        dev: *mut bindings::ib_device,
        _port: u32,
        _index: c_int,
        gid: *mut bindings::ib_gid,
    ) -> c_int {
        // SAFETY: `dev` is live.
        let Gid(raw) = Gid::of_port(u64::from_be(unsafe { (*dev).node_guid }));
        // SAFETY: The caller fills `gid` by this.
        unsafe { (*gid).raw = raw };
        0
    }

    /// # Safety
    ///
    /// The device of `attr` is live.
    unsafe fn set_gid(attr: &bindings::ib_gid_attr, gid: Gid) -> Result {
        if attr.port_num != PORT {
            return Err(EINVAL);
        }
        // SAFETY: By the caller's promise.
        let part = unsafe { CoreDevice::<T>::get(attr.device) };
        T::set_gid(&part.data, attr.index, gid)
    }

    /// # Safety
    ///
    /// `attr` is valid, of a live device.
    unsafe extern "C" fn add_gid(
        attr: *const bindings::ib_gid_attr,
        _context: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: `attr` is valid, and its GID bytes.
        let (attr, gid) = unsafe { (&*attr, Gid((*attr).gid.raw)) };
        // SAFETY: The device is live.
        status(|| unsafe { Self::set_gid(attr, gid) })
    }

    /// # Safety
    ///
    /// `attr` is valid, of a live device.
    unsafe extern "C" fn del_gid(
        attr: *const bindings::ib_gid_attr,
        _context: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: `attr` is valid, and its device live.
        let _: Result = unsafe { Self::set_gid(&*attr, Gid([0; 16])) };
        // The core forgets it in any case. A device that is gone has no table.
        0
    }

    /// # Safety
    ///
    /// `pkey` is to fill.
    unsafe extern "C" fn query_pkey(
        _dev: *mut bindings::ib_device,
        _port: u32,
        _index: u16,
        pkey: *mut u16,
    ) -> c_int {
        // SAFETY: The caller fills `pkey` by this.
        unsafe { *pkey = 0xffff };
        0
    }
}
