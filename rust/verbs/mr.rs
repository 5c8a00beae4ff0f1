// SPDX-License-Identifier: GPL-2.0

//! Memory regions and memory windows.
//!
//! A window is bound by work requests, of which the driver knows nothing. So only the device knows
//! whether a region has bound windows, and it refuses to destroy or to change one that has. A
//! register that is undone cannot fail for that: such a region is *abandoned*. It counts, and the
//! device keeps it, until its domain is destroyed. Then it has no windows any more, since all windows
//! of a region are of its domain.

use super::{
    buffer::Buffer,
    memory::{
        Object,
        Place,
        Room, //
    },
    process::Process,
    request::{
        answered,
        rights, //
    }, //
};
use crate::{
    abi::{
        command::{
            access,
            mr_mask,
            mw_type,
            MrContext,
            MwContext, //
        },
        entry::window_key,
        Number, //
    },
    control::command,
    kernel::{
        rdma::{
            Details,
            MrChange,
            MrRequest,
            MwType,
            Udata, //
        },
        umem::{
            Access,
            Pinned, //
        }, //
    },
    queue::quota::Kind,
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A memory region.
pub(crate) struct Mr {
    process: Arc<Process>,
    number: Number,
    place: Place,
}

/// A memory window.
pub(crate) struct Mw {
    process: Arc<Process>,
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
    /// Registers memory of the process.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW`: longer than the device allows. `EOPNOTSUPP`: a right that does not exist. Those
    /// of [`Pinned::new`], of [`Buffer::new`] and of the command.
    pub(super) fn register(
        process: &Arc<Process>,
        pd: Number,
        request: MrRequest,
        udata: Udata<'_>,
    ) -> Result<(Self, u32, u32)> {
        let reply = udata.without_request()?;
        let device = &process.device;
        let limits = device.limits();
        process.fits(request.bytes)?;
        let rights = rights(request.access)?;
        let memory = Pinned::new(request.start, request.bytes, accessed(rights))?;
        let room = Room::new()?;
        let mr = {
            let pass = process.enter()?;
            let charge = device.charge(&pass, process.page(), Kind::Mr)?;
            let memory = Buffer::new(&pass, memory, limits)?;
            let context = MrContext {
                pd,
                access: rights,
                addr: request.iova,
                buffer: memory.list(),
                ..MrContext::default()
            };
            let create = command::Create::<command::Mr>(context);
            let (number, memory) = device.admin().create(&pass, create, memory)?;
            charge.keep();
            let object = Object::Mr {
                number,
                pd,
                rights,
                memory,
            };
            Self {
                process: process.clone(),
                number,
                place: process.keep(&pass, room, object),
            }
        };
        let mr = answered(mr, reply.write(&()), Self::undo)?;
        let key = mr.number.raw();
        Ok((mr, key, key))
    }

    /// Changes the region, in one step of the device; if it fails the region is what it was.
    ///
    /// # Errors
    ///
    /// `EBUSY`: windows are bound to it. `EACCES`: a right to write, of memory that the device could
    /// only read. Those of [`Self::register`].
    pub(super) fn change(&self, change: MrChange, pd: Option<Number>, udata: Udata<'_>) -> Result {
        let (process, device) = (&self.process, &self.process.device);
        // The answer is empty. After the change it could not fail any more.
        udata.without_request()?.write(&())?;
        let wanted = change.access.map(rights).transpose()?;
        let (now, pinned) = process.region(self.place).ok_or(EIO)?;
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
            Some(memory) => Some(Buffer::new(&pass, memory, device.limits())?),
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
                buffer: memory.as_ref().map(Buffer::list).unwrap_or_default(),
                ..MrContext::default()
            },
        };
        let (_, memory) = device.admin().create(&pass, modify, memory)?;
        let before = process.change_region(&pass, self.place, (pd, wanted), memory);
        // The device has ended its last access to it.
        drop(before);
        Ok(())
    }

    /// Adds the details of its buffer list.
    ///
    /// # Errors
    ///
    /// Those of the command; `EMSGSIZE`.
    pub(super) fn details(&self, details: &mut Details<'_>) -> Result {
        let pass = self.process.enter()?;
        let query = command::Query::<command::Mr>::new(self.number);
        let now = self.process.device.admin().execute(&pass, query)?;
        super::request::buffer(details, &now.buffer)
    }

    /// Deregisters it, unless windows are bound to it.
    ///
    /// # Errors
    ///
    /// `EBUSY`, with the region.
    pub(super) fn deregister(self) -> Result<(), (Self, Error)> {
        let ended = destroy(&self.process, self.number);
        if ended == Err(EBUSY) {
            return Err((self, EBUSY));
        }
        self.process.ended(Some(self.place), ended);
        Ok(())
    }

    /// Destroys it after a create whose answer was not written. If its process has guessed the key and
    /// bound windows to it, it is abandoned.
    fn undo(self) {
        drop(self.deregister());
    }
}

fn destroy(process: &Process, number: Number) -> Result {
    process.attempt(Kind::Mr, |pass| {
        let destroy = command::Destroy::<command::Mr>::new(number);
        process.device.admin().execute(pass, destroy).map(drop)
    })
}

/// Destroys the regions of a domain that are abandoned: all that are left, when the domain is about to
/// be destroyed.
pub(super) fn end_abandoned(process: &Process, pd: Number) {
    while let Some((place, number)) = process.region_in(pd) {
        process.ended(Some(place), destroy(process, number));
    }
}

impl Mw {
    /// Creates a window. Returns also its key.
    ///
    /// # Errors
    ///
    /// `EDQUOT`, `ENOSPC`: there are too many. Those of the command.
    pub(super) fn create(
        process: &Arc<Process>,
        pd: Number,
        kind: MwType,
        udata: Udata<'_>,
    ) -> Result<(Self, u32)> {
        let reply = udata.without_request()?;
        let device = &process.device;
        let context = MwContext {
            pd,
            kind: match kind {
                MwType::One => mw_type::ONE,
                MwType::Two => mw_type::TWO,
            },
            ..MwContext::default()
        };
        let number = {
            let pass = process.enter()?;
            let charge = device.charge(&pass, process.page(), Kind::Mw)?;
            let create = command::Create::<command::Mw>(context);
            let number = device.admin().execute(&pass, create)?;
            charge.keep();
            number
        };
        let mw = Self {
            process: process.clone(),
            number,
        };
        let mw = answered(mw, reply.write(&()), Self::destroy)?;
        Ok((mw, window_key(number, 0)))
    }

    /// Destroys it, bound or not.
    pub(super) fn destroy(self) {
        let (process, number) = (self.process, self.number);
        process.end(Kind::Mw, None, |pass| {
            let destroy = command::Destroy::<command::Mw>::new(number);
            process.device.admin().execute(pass, destroy).map(drop)
        });
    }
}
