// SPDX-License-Identifier: GPL-2.0

//! Address handles.
//!
//! That of a kernel ULP may be created in any context, so the driver is not asked: the handle has the
//! address itself, which its driver gets with each datagram.

use super::{
    context::Caller,
    port::{
        Gid,
        LID, //
    },
    prelude::*, //
};

/// Where the datagrams of an address handle go.
#[derive(Clone, Copy, Debug)]
pub struct UdAddress {
    /// GID of the destination's port; 0 for one that this port cannot reach, so that messages to it are
    /// dropped.
    pub gid: Gid,
    /// The index of the GID that they are sent from.
    pub source: u16,
    /// Hop limit of their header.
    pub hop_limit: u8,
    /// Traffic class of their header.
    pub traffic_class: u8,
    /// Flow label of their header, 20 bits.
    pub flow_label: u32,
    /// Address of the network device that leads there; 0 on a port of InfiniBand.
    pub mac: [u8; 6],
}

impl UdAddress {
    /// # Safety
    ///
    /// `attr` are the attributes of a handle of `dev`, which is registered.
    unsafe fn new(dev: *mut bindings::ib_device, attr: &bindings::rdma_ah_attr) -> Self {
        // SAFETY: By the caller's promise. The union has the fields of InfiniBand on a port of that; on
        // one of RoCE there is a GRH, and the LID is plain bytes.
        let (own, lid) = unsafe { ((*dev).node_guid, attr.__bindgen_anon_1.ib.dlid) };
        let (gid, source) = match gid(attr) {
            Some(gid) => (gid, attr.grh.sgid_index),
            None if lid == LID => (Gid::of_port(u64::from_be(own)), 0),
            None => (Gid([0; 16]), 0),
        };
        Self {
            gid,
            source: source.into(),
            hop_limit: attr.grh.hop_limit,
            traffic_class: attr.grh.traffic_class,
            flow_label: attr.grh.flow_label,
            mac: mac(attr),
        }
    }
}

/// The GID of the destination, if there is one.
pub(super) fn gid(attr: &bindings::rdma_ah_attr) -> Option<Gid> {
    let has_grh = u32::from(attr.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH != 0;
    // SAFETY: Plain bytes.
    let raw = unsafe { attr.grh.dgid.raw };
    has_grh.then_some(Gid(raw))
}

/// The network device that leads to a destination; 0 on a port of InfiniBand. The core has resolved
/// it.
pub(super) fn mac(attr: &bindings::rdma_ah_attr) -> [u8; 6] {
    match attr.type_ {
        // SAFETY: The type names the field of the union.
        bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE => unsafe {
            attr.__bindgen_anon_1.roce.dmac
        },
        _ => [0; 6],
    }
}

/// An address handle of a process.
pub trait Operations<T: Driver>: Sized + Send + Sync {
    /// Creates the handle. The answer to the process has what its work requests need.
    ///
    /// # Errors
    ///
    /// Those of [all operations](super#errors).
    fn create(context: &T::Context, address: UdAddress, udata: Udata<'_>) -> Result<Self>;

    /// Destroys the handle. Work requests have the address itself.
    fn destroy(self);
}

/// What is behind the core's structure.
pub(super) enum AhPart<A> {
    Process(A),
    Ulp(UdAddress),
}

pub(super) type CoreAh<T> = CoreObject<bindings::ib_ah, AhPart<<T as Driver>::Ah>>;

impl<A> AhPart<A> {
    /// The address in the handle of a kernel ULP.
    pub(super) fn address(&self) -> Result<UdAddress> {
        match self {
            Self::Ulp(address) => Ok(*address),
            Self::Process(_) => Err(EOPNOTSUPP),
        }
    }
}

impl<T: Driver> Ops<T> {
    pub(super) const AH: bindings::ib_device_ops = bindings::ib_device_ops {
        create_ah: Some(Self::create_ah),
        create_user_ah: Some(Self::create_user_ah),
        destroy_ah: Some(Self::destroy_ah),
        size_ib_ah: CoreAh::<T>::SIZE,
        ..Self::NONE
    };

    /// # Safety
    ///
    /// `ah` is new, `init` valid with valid attributes, `udata` its command.
    unsafe extern "C" fn create_user_ah(
        ah: *mut bindings::ib_ah,
        init: *mut bindings::rdma_ah_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The device of `ah` is live, and its attributes are valid.
            let address = unsafe { UdAddress::new((*ah).device, &*(*init).ah_attr) };
            // SAFETY: As above, and `udata` is a command.
            let caller = unsafe { Caller::<T>::new((*ah).device, udata) }?;
            let (context, udata) = caller.process()?;
            let part = T::Ah::create(context, address, udata)?;
            // SAFETY: `ah` is new.
            unsafe { CoreAh::<T>::put(ah, AhPart::Process(part)) };
            Ok(())
        })
    }

    /// Of a kernel ULP. Any context.
    ///
    /// # Safety
    ///
    /// `ah` is new, `init` valid with valid attributes.
    unsafe extern "C" fn create_ah(
        ah: *mut bindings::ib_ah,
        init: *mut bindings::rdma_ah_init_attr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Both are valid.
        let attr = unsafe { &*(*init).ah_attr };
        if gid(attr).is_none() {
            return EINVAL.to_errno();
        }
        // SAFETY: `ah` is new, and its device live.
        unsafe {
            let address = UdAddress::new((*ah).device, attr);
            CoreAh::<T>::put(ah, AhPart::Ulp(address));
        }
        0
    }

    /// # Safety
    ///
    /// `ah` is ending.
    unsafe extern "C" fn destroy_ah(ah: *mut bindings::ib_ah, _flags: u32) -> c_int {
        // SAFETY: `ah` is ending.
        if let AhPart::Process(part) = unsafe { CoreAh::<T>::take(ah) } {
            part.destroy();
        }
        0
    }
}
