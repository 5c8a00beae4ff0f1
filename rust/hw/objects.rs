// SPDX-License-Identifier: GPL-2.0

//! Creates and destroys objects, in the device by command and in the tables of the EQs.
//!
//! The device may reuse the number of a destroyed object at once. So `objects` is held from a
//! create to the insertion into the table, and from a destroy to the removal. [`Tables`] exists
//! only inside that lock, and every function that creates, destroys or changes a table takes it.

use super::{
    command::{
        Command,
        Cq,
        Create,
        Object,
        Qp,
        Srq, //
    },
    cq::{
        Body,
        CqClient,
        CqRing,
        Entry,
        PolledCq, //
    },
    device::{
        Hardware,
        Tables, //
    },
    eq::{
        Bind,
        EqPoller, //
    },
    handlers::{
        AsyncEvent,
        CompletionHandler, //
    },
    prelude::*,
    table::Reservation, //
};
use crate::{
    abi::command::{
        cq_flags,
        CqContext, //
    },
    kernel::rdma::{
        CqEvent,
        Events,
        PortEvent,
        QpEvent,
        SrqEvent, //
    },
    queue::poll::Poller, //
};

/// A kind of object whose asynchronous events have a handler.
pub(crate) trait Reports: Object {
    /// The events of such an object.
    type Event: AsyncEvent;
}

impl Reports for Qp {
    type Event = QpEvent;
}

impl Reports for Srq {
    type Event = SrqEvent;
}

/// Objects whose queues the poll does not read.
impl Hardware {
    /// Raises the link's events at `events`, until the next shutdown. Sleeps.
    ///
    /// # Errors
    ///
    /// `EIO` if the device is down.
    pub(crate) fn watch_link(&self, events: Events<PortEvent>) -> Result {
        let before = self.eqs.of(0)?.paused(|_, state| state.watch_link(events));
        before.map(drop).map_err(|_| EIO)
    }

    /// Creates a CQ of a doorbell page on `vector`, in `memory`, which is returned. `handler` gets its
    /// completion events, `events` the asynchronous ones. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such vector, `ENOSPC` if it is full, `ENOMEM`; those of the command.
    /// The memory is then kept for as long as the device may access it.
    pub(crate) fn create_cq<M: Send + 'static>(
        &self,
        pass: &Pass<'_>,
        vector: u32,
        context: CqContext,
        memory: M,
        events: Events<CqEvent>,
        handler: Arc<dyn CompletionHandler>,
    ) -> Result<(Number, M)> {
        let eq = self.eqs.of(vector)?;
        let (room, events_room) = (Reservation::new()?, Reservation::new()?);
        let mut tables = self.objects.lock();
        let context = CqContext {
            flags: context.flags | cq_flags::USER,
            ..context
        };
        // Page 0 is the driver's, for kernel ULPs.
        let bind = match context.page {
            0 => Poller::bind_ulp,
            _ => Poller::bind_process,
        };
        let made = self.attach(
            &mut tables,
            pass,
            (eq, bind),
            context,
            (Body::Handled(handler), room),
            memory,
        );
        let (number, memory) = made?;
        if let Err(error) = self.add_handler(&mut tables, number, events, events_room) {
            self.keep_unless(self.end_cq(&mut tables, pass, eq, number), memory);
            return Err(error);
        }
        Ok((number, memory))
    }

    /// Makes a queue of a process go on in `memory`, by `command`. `replace` keeps that, and returns
    /// what the device had before; it runs in the order of the commands. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the command: `EINVAL` if the ring has fewer entries than the device needs. The new
    /// memory is then kept for as long as the device may access it, and the old one stays.
    pub(crate) fn resize<C: Command, M: Send + 'static, B>(
        &self,
        pass: &Pass<'_>,
        command: C,
        memory: M,
        replace: impl FnOnce(M) -> B,
    ) -> Result<(C::Reply, B)> {
        let tables = self.objects.lock();
        let (reply, memory) = self.admin.create(pass, command, memory)?;
        let before = replace(memory);
        drop(tables);
        Ok((reply, before))
    }

    /// Destroys a CQ of [`Self::create_cq`]. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the command: `EBUSY` if queue pairs use it; else its memory must stay until
    /// the device is quiet.
    pub(crate) fn destroy_cq(&self, pass: &Pass<'_>, vector: u32, number: Number) -> Result {
        let eq = self.eqs.of(vector)?;
        let mut tables = self.objects.lock();
        self.end_cq(&mut tables, pass, eq, number)?;
        self.remove_handler::<CqEvent>(&mut tables, number);
        Ok(())
    }

    /// Creates a queue pair or SRQ in `memory`, which is returned. `events` gets its asynchronous
    /// events. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the command, `ENOMEM`. The memory is then kept for as long as the device may access
    /// it.
    pub(crate) fn create_reporting<O: Reports, M: Send + 'static>(
        &self,
        pass: &Pass<'_>,
        create: Create<O>,
        memory: M,
        events: Events<O::Event>,
    ) -> Result<(Number, M)> {
        let room = Reservation::new()?;
        let mut tables = self.objects.lock();
        let (number, memory) = self.create(&mut tables, pass, create, memory)?;
        if let Err(error) = self.add_handler(&mut tables, number, events, room) {
            let ended = self.destroy::<O>(&mut tables, pass, number);
            self.keep_unless(ended, memory);
            return Err(error);
        }
        Ok((number, memory))
    }

    /// Destroys a queue pair or SRQ. `then` runs once that is done, before another object can have
    /// its index. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the command; its memory must stay until the device is quiet.
    pub(crate) fn destroy_reporting<O: Reports>(
        &self,
        pass: &Pass<'_>,
        number: Number,
        then: impl FnOnce(),
    ) -> Result {
        let mut tables = self.objects.lock();
        self.destroy::<O>(&mut tables, pass, number)?;
        self.remove_handler::<O::Event>(&mut tables, number);
        then();
        Ok(())
    }
}

/// Objects of the kernel.
impl Hardware {
    /// Creates a CQ of the kernel on `vector`, for `client`. The caller owns it until
    /// [`Self::give_polled_cq`]. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such vector, `ENOSPC` if it has no room for it, `ENOMEM`; those of the
    /// command.
    pub(crate) fn create_polled_cq(
        &self,
        pass: &Pass<'_>,
        vector: u32,
        depth: Depth,
        client: KBox<dyn CqClient>,
    ) -> Result<KBox<PolledCq>> {
        let eq = self.eqs.of(vector)?;
        let ring = CqRing::new(pass, depth)?;
        let boxed = KBox::<PolledCq>::new_uninit(GFP_KERNEL)?;
        let (context, body) = (ring.context(), (Body::Away, Reservation::new()?));
        let mut tables = self.objects.lock();
        let (number, ring) = self.attach(
            &mut tables,
            pass,
            (eq, Poller::bind_kernel),
            context,
            body,
            ring,
        )?;
        // Cannot fail: the ring was allocated for its depth.
        let cq = PolledCq::new(number, self.function.supervisor.epoch(), ring, client)?;
        Ok(boxed.write(cq))
    }

    /// Gives a CQ of the kernel to the poll of its `vector`. Sleeps.
    ///
    /// # Errors
    ///
    /// `EIO` if the device is down; with the CQ, which still exists.
    pub(crate) fn give_polled_cq(
        &self,
        vector: u32,
        cq: KBox<PolledCq>,
    ) -> Result<(), (Error, KBox<PolledCq>)> {
        match self.eqs.of(vector) {
            Ok(eq) => eq.paused(|_, state| state.give_polled(cq)),
            Err(error) => Err((error, cq)),
        }
    }

    /// Takes CQ `number` of the kernel back from the poll of `vector`; `None` if it is no longer
    /// there. Sleeps.
    pub(crate) fn take_polled_cq(&self, vector: u32, number: Number) -> Option<KBox<PolledCq>> {
        let eq = self.eqs.of(vector).ok()?;
        eq.paused(|_, state| state.take_polled(number))
    }

    /// Destroys a CQ of the kernel and the queue pairs on it. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the commands. The device is then fatal, and the memory stays until a reset.
    pub(crate) fn end_polled_cq(
        &self,
        pass: &Pass<'_>,
        vector: u32,
        mut cq: KBox<PolledCq>,
    ) -> Result {
        match self.try_end_polled_cq(pass, vector, &mut cq) {
            Ok(()) => {
                KBox::into_inner(cq).retire();
                Ok(())
            }
            Err(error) => {
                self.admin.leak(cq);
                Err(error)
            }
        }
    }

    fn try_end_polled_cq(&self, pass: &Pass<'_>, vector: u32, cq: &mut PolledCq) -> Result {
        while let Some(number) = cq.queues.pairs().last().map(|pair| pair.number) {
            let ended = self.admin.destroy::<Qp>(pass, number)?;
            cq.remove_last(match ended.send_cq.reaches(ended.recv_cq) {
                true => ended.send_cq,
                false => ended.recv_cq,
            });
        }
        cq.drain(&self.function.doorbells(pass.dev()))
            .inspect_err(|_| self.function.supervisor.fail(Failure::Destroy))?;
        let eq = self.eqs.of(vector)?;
        let mut tables = self.objects.lock();
        self.end_cq(&mut tables, pass, eq, cq.number)
    }
}

/// Commands and tables, with `objects` held.
impl Hardware {
    /// Executes the command that creates an object in `memory`, which is returned.
    fn create<O: Object, M: Send + 'static>(
        &self,
        _tables: &mut Tables,
        pass: &Pass<'_>,
        create: Create<O>,
        memory: M,
    ) -> Result<(Number, M)> {
        self.admin.create(pass, create, memory)
    }

    /// Executes the command that destroys an object.
    fn destroy<O: Object>(
        &self,
        _tables: &mut Tables,
        pass: &Pass<'_>,
        number: Number,
    ) -> Result<O::Ended> {
        self.admin.destroy::<O>(pass, number)
    }

    /// Creates a CQ in `memory`, which is returned, and inserts it into the table of its EQ, whose
    /// slots `bind` takes. The room is made before the tables are locked: a process at its limit of
    /// memory must not hold them.
    fn attach<M: Send + 'static>(
        &self,
        tables: &mut Tables,
        pass: &Pass<'_>,
        (eq, bind): (&EqPoller, Bind),
        context: CqContext,
        (body, room): (Body, Reservation<Entry>),
        memory: M,
    ) -> Result<(Number, M)> {
        let node = eq.paused(|_, state| state.bind(bind))?;
        let context = CqContext {
            eq: eq.handler().number(),
            ..context
        };
        let (number, memory) = match self.create(tables, pass, Create::<Cq>(context), memory) {
            Ok(made) => made,
            Err(error) => {
                eq.paused(|_, state| state.unbind_node(node, None));
                return Err(error);
            }
        };
        let entry = Entry { node, body };
        let attached = eq.paused(|_, state| state.attach(number, entry, room));
        let Err((error, Entry { node, body })) = attached else {
            return Ok((number, memory));
        };
        drop(body);
        let ended = self.destroy::<Cq>(tables, pass, number);
        // A failed destroy makes the device fatal: the slot is not used again before a reset.
        let until = ended.as_ref().ok().copied();
        eq.paused(|_, state| state.unbind_node(node, until));
        self.keep_unless(ended, memory);
        Err(error)
    }

    /// Frees `memory` if its object was destroyed, else keeps it until the device is quiet.
    pub(crate) fn keep_unless<R, M: Send + 'static>(&self, ended: Result<R>, memory: M) {
        match ended {
            Ok(_) => drop(memory),
            Err(_) => self.admin.leak(memory),
        }
    }

    /// Destroys a CQ and removes it from the table of its EQ.
    fn end_cq(
        &self,
        tables: &mut Tables,
        pass: &Pass<'_>,
        eq: &EqPoller,
        number: Number,
    ) -> Result {
        let until = self.destroy::<Cq>(tables, pass, number)?;
        let body = eq.paused(|_, state| state.detach(number, until));
        drop(body);
        Ok(())
    }

    /// Raises the asynchronous events of an object at `events` from now on.
    fn add_handler<E: AsyncEvent>(
        &self,
        _tables: &mut Tables,
        number: Number,
        events: Events<E>,
        room: Reservation<Events<E>>,
    ) -> Result {
        let eq0 = self.eqs.eq0()?;
        let added = eq0.paused(|_, state| state.add_handler(number, events, room));
        // On error `events` is dropped here, with the poll no longer paused.
        added.map_err(|(error, _events)| error)
    }

    fn remove_handler<E: AsyncEvent>(&self, _tables: &mut Tables, number: Number) {
        if let Ok(eq0) = self.eqs.eq0() {
            let events = eq0.paused(|_, state| state.remove_handler::<E>(number));
            drop(events);
        }
    }
}
