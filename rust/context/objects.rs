// SPDX-License-Identifier: GPL-2.0

//! What a context owns, by handle.
//!
//! A handle is the device's number of the object. It is looked up here first, in the tree of its
//! kind, so a handle of another file or of another kind names nothing.
//!
//! Each object keeps its memory until the device has confirmed that it is destroyed. One whose
//! destroy failed stays where it is, memory and all: the device is then being reset, and
//! [`Objects::unmap`] comes when it is quiet.

use super::events::Watch;
use crate::{
    abi::{
        status::Event,
        uapi::qpair_async_event,
        Number, //
    },
    control::{
        command::{
            self,
            Ended, //
        },
        device::Device, //
    },
    queue::quota::Kind,
    sys::{
        current::cond_resched,
        gate::Pass, //
    },
    verbs::buffer::Buffer,
};
use kernel::{
    fmt,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::Arc, //
};

/// A protection domain.
pub(super) struct Pd {
    /// Queue pairs and regions in it.
    users: u32,
}

/// A completion queue.
pub(super) struct Cq {
    pub(super) vector: u32,
    /// Work queues that complete to it.
    users: u32,
    pub(super) watch: Arc<Watch>,
    pub(super) ring: Buffer,
}

/// A queue pair.
pub(super) struct Qp {
    pub(super) pd: Number,
    pub(super) send_cq: Number,
    pub(super) recv_cq: Number,
    pub(super) watch: Arc<Watch>,
    pub(super) sq: Buffer,
    pub(super) rq: Buffer,
}

/// A memory region.
pub(super) struct Mr {
    pub(super) pd: Number,
    pub(super) memory: Buffer,
}

/// The objects of one kind. A tree of its own nodes: an idle context has no table.
pub(super) struct Table<T> {
    tree: RBTree<u32, T>,
}

impl<T> Table<T> {
    fn new() -> Self {
        Self {
            tree: RBTree::new(),
        }
    }

    /// The object with this handle.
    pub(super) fn get(&self, handle: Number) -> Result<&T> {
        self.tree.get(&handle.raw()).ok_or(ENOENT)
    }

    fn get_mut(&mut self, handle: Number) -> Result<&mut T> {
        self.tree.get_mut(&handle.raw()).ok_or(ENOENT)
    }

    /// Puts an object in. Allocates nothing, so it cannot fail once the device has made the object.
    fn insert(&mut self, place: Place<T>, handle: Number, object: T) {
        let node = place.0.into_node(handle.raw(), object);
        // The device gives no number twice while its object is there; one that does loses the
        // older object, whose memory must then stay where it is.
        if let Some(older) = self.tree.insert(node) {
            core::mem::forget(older);
        }
    }

    fn remove(&mut self, handle: Number) -> Option<T> {
        self.tree.remove(&handle.raw())
    }

    fn first(&self) -> Option<Number> {
        self.tree.keys().next().map(|&raw| Number::from_raw(raw))
    }

    fn iter(&self) -> impl Iterator<Item = (Number, &T)> {
        self.tree
            .iter()
            .map(|(&raw, object)| (Number::from_raw(raw), object))
    }
}

/// A place for an object, allocated before the device makes it.
pub(super) struct Place<T>(RBTreeNodeReservation<u32, T>);

impl<T> Place<T> {
    /// Allocates it. Sleeps.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

/// Everything that a context owns.
pub(super) struct Objects {
    pub(super) pds: Table<Pd>,
    pub(super) cqs: Table<Cq>,
    pub(super) qps: Table<Qp>,
    pub(super) mrs: Table<Mr>,
    /// The doorbell page of the context.
    page: u16,
    unmapped: bool,
}

impl Objects {
    pub(super) fn new(page: u16) -> Self {
        Self {
            page,
            pds: Table::new(),
            cqs: Table::new(),
            qps: Table::new(),
            mrs: Table::new(),
            unmapped: false,
        }
    }

    pub(super) fn add_pd(&mut self, place: Place<Pd>, handle: Number) {
        self.pds.insert(place, handle, Pd { users: 0 });
    }

    pub(super) fn add_cq(
        &mut self,
        place: Place<Cq>,
        handle: Number,
        vector: u32,
        watch: Arc<Watch>,
        ring: Buffer,
    ) {
        let cq = Cq {
            vector,
            users: 0,
            watch,
            ring,
        };
        self.cqs.insert(place, handle, cq);
    }

    pub(super) fn add_qp(&mut self, place: Place<Qp>, handle: Number, qp: Qp) {
        self.use_of(&qp, |users| *users += 1);
        self.qps.insert(place, handle, qp);
    }

    pub(super) fn add_mr(&mut self, place: Place<Mr>, handle: Number, mr: Mr) {
        if let Ok(pd) = self.pds.get_mut(mr.pd) {
            pd.users += 1;
        }
        self.mrs.insert(place, handle, mr);
    }

    fn use_of(&mut self, qp: &Qp, mut change: impl FnMut(&mut u32)) {
        if let Ok(pd) = self.pds.get_mut(qp.pd) {
            change(&mut pd.users);
        }
        for cq in [qp.send_cq, qp.recv_cq] {
            if let Ok(cq) = self.cqs.get_mut(cq) {
                change(&mut cq.users);
            }
        }
    }

    pub(super) fn destroy_pd(&mut self, device: &Device, pass: &Pass<'_>, pd: Number) -> Result {
        if self.pds.get(pd)?.users != 0 {
            return Err(EBUSY);
        }
        device
            .admin()
            .execute(pass, command::Destroy::<command::Pd>::new(pd))?;
        self.pds.remove(pd);
        device.discharge(self.page, Kind::Pd);
        Ok(())
    }

    pub(super) fn destroy_cq(
        &mut self,
        device: &Device,
        pass: &Pass<'_>,
        number: Number,
    ) -> Result {
        let cq = self.cqs.get(number)?;
        if cq.users != 0 {
            return Err(EBUSY);
        }
        device.destroy_process_cq(pass, cq.vector, number)?;
        self.cqs.remove(number);
        device.discharge(self.page, Kind::Cq);
        Ok(())
    }

    pub(super) fn destroy_qp(
        &mut self,
        device: &Device,
        pass: &Pass<'_>,
        number: Number,
    ) -> Result<Ended> {
        self.qps.get(number)?;
        let ended = device.destroy_qp(pass, number)?;
        if let Some(qp) = self.qps.remove(number) {
            self.use_of(&qp, |users| *users -= 1);
        }
        device.discharge(self.page, Kind::Qp);
        Ok(ended)
    }

    pub(super) fn destroy_mr(&mut self, device: &Device, pass: &Pass<'_>, mr: Number) -> Result {
        self.mrs.get(mr)?;
        device
            .admin()
            .execute(pass, command::Destroy::<command::Mr>::new(mr))?;
        if let Some(mr) = self.mrs.remove(mr) {
            if let Ok(pd) = self.pds.get_mut(mr.pd) {
                pd.users -= 1;
            }
        }
        device.discharge(self.page, Kind::Mr);
        Ok(())
    }

    /// Destroys everything, in the order in which things lean on each other. Stops at the first
    /// refusal: what is left waits for [`Self::unmap`].
    pub(super) fn destroy_all(&mut self, device: &Device, pass: &Pass<'_>) -> Result {
        while let Some(qp) = self.qps.first() {
            self.destroy_qp(device, pass, qp)?;
        }
        while let Some(mr) = self.mrs.first() {
            self.destroy_mr(device, pass, mr)?;
        }
        while let Some(cq) = self.cqs.first() {
            self.destroy_cq(device, pass, cq)?;
        }
        while let Some(pd) = self.pds.first() {
            self.destroy_pd(device, pass, pd)?;
        }
        Ok(())
    }

    /// The device is quiet and will not come back to any of this: takes all memory from it.
    pub(super) fn unmap(&mut self) {
        for qp in self.qps.tree.values_mut() {
            qp.sq.unmap_now();
            qp.rq.unmap_now();
            cond_resched();
        }
        for mr in self.mrs.tree.values_mut() {
            mr.memory.unmap_now();
            cond_resched();
        }
        for cq in self.cqs.tree.values_mut() {
            cq.ring.unmap_now();
            cond_resched();
        }
        self.unmapped = true;
    }

    /// Whether the device has nothing of this any more.
    pub(super) fn is_unmapped(&self) -> bool {
        self.unmapped
    }

    /// Gives what happened to the objects and was not read yet to `found`, until it says no.
    pub(super) fn collect(&self, mut found: impl FnMut(qpair_async_event) -> bool) {
        for (number, cq) in self.cqs.iter() {
            if let Some(event) = cq.watch.alarm.collect(Event::CqOverrun, number) {
                if !found(event) {
                    return;
                }
            }
        }
        for (number, qp) in self.qps.iter() {
            if let Some(event) = qp.watch.alarm.collect(Event::QpFatal, number) {
                if !found(event) {
                    return;
                }
            }
        }
    }

    /// Pages that are pinned.
    pub(super) fn pages(&self) -> usize {
        let qps = self.qps.iter().map(|(_, qp)| qp.sq.pages() + qp.rq.pages());
        let mrs = self.mrs.iter().map(|(_, mr)| mr.memory.pages());
        let cqs = self.cqs.iter().map(|(_, cq)| cq.ring.pages());
        qps.sum::<usize>() + mrs.sum::<usize>() + cqs.sum::<usize>()
    }

    pub(super) fn describe_pds(&self, f: &mut fmt::Formatter<'_>, page: u16) -> fmt::Result {
        for (number, pd) in self.pds.iter() {
            writeln!(f, "{number} page {page} users {}", pd.users)?;
        }
        Ok(())
    }

    pub(super) fn describe_cqs(&self, f: &mut fmt::Formatter<'_>, page: u16) -> fmt::Result {
        for (number, cq) in self.cqs.iter() {
            let list = cq.ring.list();
            writeln!(
                f,
                "{number} page {page} vector {} users {} bytes {} levels {} page-shift {}",
                cq.vector, cq.users, list.bytes, list.levels, list.page_shift
            )?;
        }
        Ok(())
    }

    pub(super) fn describe_qps(&self, f: &mut fmt::Formatter<'_>, page: u16) -> fmt::Result {
        for (number, qp) in self.qps.iter() {
            let (sq, rq) = (qp.sq.list(), qp.rq.list());
            writeln!(
                f,
                "{number} page {page} pd {} send-cq {} recv-cq {} sq-bytes {} rq-bytes {}",
                qp.pd, qp.send_cq, qp.recv_cq, sq.bytes, rq.bytes
            )?;
        }
        Ok(())
    }

    pub(super) fn describe_mrs(&self, f: &mut fmt::Formatter<'_>, page: u16) -> fmt::Result {
        for (number, mr) in self.mrs.iter() {
            let list = mr.memory.list();
            writeln!(
                f,
                "{number} page {page} pd {} bytes {} levels {} page-shift {}",
                mr.pd, list.bytes, list.levels, list.page_shift
            )?;
        }
        Ok(())
    }
}
