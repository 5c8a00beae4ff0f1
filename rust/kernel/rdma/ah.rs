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

/// Where the address handle of a process leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// The port with this GID; sent from the GID with this index; the network device that leads
    /// there, 0 on a port of InfiniBand.
    Global(Gid, u8, [u8; 6]),
    /// The port of the device itself, by its LID.
    Own,
    /// Another port, by its LID.
    Foreign,
}

/// Where the datagrams of a kernel ULP's address handle go.
#[derive(Clone, Copy, Debug)]
pub struct UdAddress {
    /// GID of the destination's port, in words of memory.
    pub gid: [u64; 2],
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
    fn create(context: &T::Context, address: Address, udata: Udata<'_>) -> Result<Self>;

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
    /// Called by the core.
    unsafe extern "C" fn create_user_ah(
        ah: *mut bindings::ib_ah,
        init: *mut bindings::rdma_ah_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: Called by the core, with a handle of this driver's size and its attributes, whose
        // union has the fields of InfiniBand on a port of that. That of RoCE has a GRH.
        from_result(|| unsafe {
            let attr = &*(*init).ah_attr;
            let address = if u32::from(attr.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH != 0 {
                let gid = Gid(attr.grh.dgid.raw);
                Address::Global(gid, attr.grh.sgid_index, mac(attr))
            } else if attr.__bindgen_anon_1.ib.dlid == LID {
                Address::Own
            } else {
                Address::Foreign
            };
            let (context, udata) = Caller::<T>::new((*ah).device, udata)?.process()?;
            let part = T::Ah::create(context, address, udata)?;
            CoreAh::<T>::put(ah, AhPart::Process(part));
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by a kernel ULP. Any context.
    unsafe extern "C" fn create_ah(
        ah: *mut bindings::ib_ah,
        init: *mut bindings::rdma_ah_init_attr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: A handle of this driver's size, and its attributes.
        from_result(|| unsafe {
            let attr = &*(*init).ah_attr;
            if u32::from(attr.ah_flags) & bindings::ib_ah_flags_IB_AH_GRH == 0 {
                return Err(EINVAL);
            }
            let raw: [u8; 16] = attr.grh.dgid.raw;
            let both = u128::from_le_bytes(raw);
            let address = UdAddress {
                // CAST: Its halves.
                gid: [both as u64, (both >> 64) as u64],
                source: attr.grh.sgid_index.into(),
                hop_limit: attr.grh.hop_limit,
                traffic_class: attr.grh.traffic_class,
                flow_label: attr.grh.flow_label,
                mac: mac(attr),
            };
            CoreAh::<T>::put(ah, AhPart::Ulp(address));
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Called by the core.
    unsafe extern "C" fn destroy_ah(ah: *mut bindings::ib_ah, _flags: u32) -> c_int {
        // SAFETY: Called by the core once.
        if let AhPart::Process(part) = unsafe { CoreAh::<T>::take(ah) } {
            part.destroy();
        }
        0
    }
}
