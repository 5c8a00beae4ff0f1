// SPDX-License-Identifier: GPL-2.0

//! Memory regions.
//!
//! A window is bound by work requests, of which the driver knows nothing. So only the device knows
//! whether a region has bound windows, and it refuses to destroy or to change one that has. A
//! register that is undone cannot fail for that: such a region is *abandoned*. It counts, and the
//! device keeps it, until its domain is destroyed. Then it has no windows any more, since all windows
//! of a region are of its domain.

use super::{
    pd::Pd,
    prelude::*,
    request::{
        self,
        rights, //
    },
    ulp::{
        self,
        Frmr, //
    }, //
};
use crate::{
    abi::{
        command::{
            access,
            mr_flags,
            mr_mask,
            FrmrContext,
            MrContext, //
        },
        entry::frmr_key, //
    },
    hw::ring::Ring,
    kernel::{
        rdma::{
            mr,
            Details,
            MrChange,
            MrRequest,
            Scatterlist, //
        },
        umem::{
            Access,
            Pinned, //
        }, //
    },
    queue::pages::PageList, //
};

/// Most pages of a fast registration memory region: two pages of addresses.
pub(super) const FRMR_PAGES: u32 = 512;

/// A memory region: of a process; of a kernel ULP all memory, or what its work requests register. Both
/// of a ULP have DMA addresses. A process gets none of these: it could reach all that the device can.
pub(crate) struct Mr {
    owner: Owner<MemoryId, Option<Arc<Frmr>>>,
    number: Number,
}

/// How the memory of a region with these rights is accessed.
fn accessed(rights: u8) -> Access {
    match access::writes(rights) {
        false => Access::Read,
        true => Access::Write,
    }
}

impl Mr {
    /// What work requests register.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it is another region.
    pub(super) fn frmr(&self) -> Result<&Arc<Frmr>> {
        let (_, frmr) = self.owner.ulp()?;
        frmr.as_ref().ok_or(EINVAL)
    }

    /// What a work request with `key` registers.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it is another region, or has another key.
    pub(super) fn registered_by(&self, key: u32) -> Result<&Arc<Frmr>> {
        // CAST: The tag is the low byte, which is the ULP's.
        match key == frmr_key(self.number, key as u8) {
            true => self.frmr(),
            false => Err(EINVAL),
        }
    }
}

impl mr::Operations<Verbs> for Mr {
    fn register(
        pd: &Pd,
        request: MrRequest,
        process: &Arc<Process>,
        udata: Udata<'_>,
    ) -> Result<(Self, u32)> {
        let reply = udata.without_request()?;
        let device = &process.device;
        process.fits(request.bytes)?;
        let rights = rights(request.access)?;
        let memory = Pinned::new(request.start, request.bytes, accessed(rights))?;
        let (number, id) = process.create(
            Kind::Mr,
            |pass| UserBuffer::new(pass, memory, device.limits()),
            |pass, memory| {
                let create = command::Create::<command::Mr>(MrContext {
                    pd: pd.number,
                    access: rights,
                    addr: request.iova,
                    buffer: memory.list,
                    ..MrContext::default()
                });
                device.admin.create(pass, create, memory)
            },
            |number, memory| ObjectMemory::Mr {
                number,
                pd: pd.number,
                rights,
                memory,
            },
        )?;
        let owner = Owner::Process(process.clone(), id);
        // If its process has guessed the key and bound windows to it, it is abandoned.
        let undo = |mr: Self| drop(mr::Operations::deregister(mr));
        let mr = answered(Self { owner, number }, reply.write(&()), undo)?;
        Ok((mr, number.raw()))
    }

    fn all_memory(pd: &Pd, access: u32) -> Result<(Self, u32)> {
        let (registered, ()) = pd.owner.ulp()?;
        let owner = Owner::Ulp(registered.clone(), None);
        let number = owner.execute(command::Create::<command::Mr>(MrContext {
            pd: pd.number,
            access: rights(access)?,
            flags: mr_flags::ALL_MEMORY,
            ..MrContext::default()
        }))?;
        Ok((Self { owner, number }, number.raw()))
    }

    fn fast(pd: &Pd, pages: u32) -> Result<(Self, u32)> {
        let (registered, ()) = pd.owner.ulp()?;
        let device = &registered.device;
        let limits = device.limits();
        if limits.frmr == 0 {
            return Err(EOPNOTSUPP);
        }
        if !(1..=FRMR_PAGES).contains(&pages) {
            return Err(EINVAL);
        }
        let pass = registered.enter()?;
        let table = Ring::new(&pass, PageList::table_bytes(pages))?;
        let shifts = (limits.min_page_shift, limits.max_page_shift);
        let frmr = device.clients.admit(Frmr::new(pages, shifts, table)?)?;
        let create = command::Create::<command::Frmr>(FrmrContext {
            pd: pd.number,
            ..FrmrContext::default()
        });
        let number = device.admin.execute(&pass, create);
        let number = number.inspect_err(|_| ulp::leave(device, &*frmr))?;
        let owner = Owner::Ulp(registered.clone(), Some(frmr));
        Ok((Self { owner, number }, frmr_key(number, 0)))
    }

    fn map(&self, list: Scatterlist<'_, Verbs>) -> Result<u32> {
        self.frmr()?.map(list)
    }

    // In one step of the device; if it fails the region is what it was.
    fn rereg(&self, change: MrChange, pd: Option<&Pd>, udata: Udata<'_>) -> Result {
        let (process, id) = self.owner.process()?;
        let (device, id) = (&process.device, *id);
        let pd = pd.map(|pd| pd.number);
        // The answer is empty. After the change it could not fail any more.
        udata.without_request()?.write(&())?;
        let wanted = change.access.map(rights).transpose()?;
        let (now, pinned) = process.region(id).ok_or(EIO)?;
        let needed = accessed(wanted.unwrap_or(now));
        let memory = match change.memory {
            Some((start, bytes, _)) => {
                process.fits(bytes)?;
                Some(Pinned::new(start, bytes, needed)?)
            }
            None if needed == Access::Write && pinned == Access::Read => return Err(EACCES),
            None => None,
        };
        let pass = process.enter()?;
        let memory = match memory {
            Some(memory) => Some(UserBuffer::new(&pass, memory, device.limits())?),
            None => None,
        };
        let when = |is: bool, bit: u32| if is { bit } else { 0 };
        let modify = command::Modify::<command::Mr> {
            number: self.number,
            mask: when(memory.is_some(), mr_mask::MEMORY)
                | when(pd.is_some(), mr_mask::PD)
                | when(wanted.is_some(), mr_mask::ACCESS),
            context: MrContext {
                pd: pd.unwrap_or_default(),
                access: wanted.unwrap_or_default(),
                addr: change.memory.map_or(0, |(_, _, iova)| iova),
                buffer: memory
                    .as_ref()
                    .map(|memory| memory.list)
                    .unwrap_or_default(),
                ..MrContext::default()
            },
        };
        let ((), memory) = device.admin.create(&pass, modify, memory)?;
        let before = process.change_region(&pass, id, (pd, wanted), memory);
        // The device has ended its last access to it.
        drop(before);
        Ok(())
    }

    fn deregister(self) -> Result<(), (Self, Error)> {
        let admin = &self.owner.device().admin;
        match &self.owner {
            Owner::Process(process, id) => {
                let ended = process.destroy_region(self.number);
                if ended == Err(EBUSY) {
                    return Err((self, EBUSY));
                }
                process.ended(Some(*id), ended);
            }
            Owner::Ulp(registered, None) => ulp::end(registered, |pass| {
                admin.destroy::<command::Mr>(pass, self.number)
            }),
            Owner::Ulp(registered, Some(frmr)) => {
                ulp::end(registered, |pass| {
                    admin.destroy::<command::Frmr>(pass, self.number)
                });
                ulp::leave(&registered.device, &**frmr);
            }
        }
        Ok(())
    }

    fn details(&self, details: &mut Details<'_>) -> Result {
        self.owner
            .details::<command::Mr>(self.number, |now| request::buffer(details, &now.buffer))
    }
}
