// SPDX-License-Identifier: GPL-2.0

//! Objects of users in the kernel.
//!
//! Their rings are in coherent memory of the driver, and answer to its doorbell page. They have no
//! quota. Their queues are clients of the device: when it is lost and quiet, what they hold is flushed
//! before the RDMA device is unregistered, since a user may wait for its requests then. Until it is
//! quiet nothing is flushed and no destroy returns, since then a user takes its memory back.
//!
//! A user in the kernel has a region of all memory, whose addresses are DMA addresses. A process
//! gets none: it could reach all that the device can.

use super::{
    address,
    change,
    handlers::{
        QpHandler,
        UlpHandler, //
    },
    request::{
        depth,
        flags_of,
        rights, //
    },
    Registered, //
};
use crate::{
    abi::{
        command::{
            mr_flags,
            qp_state,
            service,
            CqContext,
            MrContext,
            QpContext, //
        },
        entry::{
            recv_sges,
            AtomicWqe,
            Cqe,
            SendWqe,
            Sge,
            UdWqe,
            BLOCK_BYTES,
            BLOCK_WORDS,
            MAX_BLOCKS,
            MAX_STRIDE_SHIFT, //
        },
        Number, //
    },
    control::{
        client::{
            Client,
            Lost,
            Shown, //
        },
        command,
        device::Device, //
    },
    data::{
        function::Failure,
        ring::Ring,
        table::Room,
        ulp::{
            Armed,
            UlpCq,
            UlpQp,
            UlpQpParts,
            UlpShape, //
        },
    },
    kernel::{
        gate::Pass,
        rdma::{
            Completions,
            CqEvent,
            CqRequest,
            Events,
            Polls,
            Posts,
            QpChange,
            QpEvent,
            QpRequest,
            QpState,
            RecvRequest,
            SendRequest,
            Service, //
        },
    },
    queue::quota::Kind,
};
use kernel::{
    fmt,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// A protection domain.
pub(crate) struct KernelPd {
    device: Arc<Device>,
    epoch: u32,
    number: Number,
}

impl KernelPd {
    pub(super) fn create(registered: &Registered) -> Result<Self> {
        let pass = registered.enter()?;
        let device = registered.device.clone();
        let create = command::Create::<command::Pd>(());
        let number = device.admin().execute(&pass, create)?;
        Ok(Self {
            device,
            epoch: registered.epoch,
            number,
        })
    }

    pub(super) fn destroy(self) {
        // A domain has no memory: the device may keep it until a reset.
        let _: Result = self.device.enter(self.epoch).and_then(|pass| {
            let destroy = command::Destroy::<command::Pd>::new(self.number);
            self.device.admin().execute(&pass, destroy).map(drop)
        });
    }
}

/// Destroys an object by `f`. On return the device accesses no memory through it, whose next use
/// may be any: without the device's word for that, waits until the device is quiet. Sleeps.
fn end(device: &Device, epoch: u32, f: impl FnOnce(&Pass<'_>) -> Result) {
    let ended = device.enter(epoch).and_then(|pass| match f(&pass) {
        // There is no such object.
        Err(ENOENT) => Ok(()),
        Err(EBUSY) => {
            // Nothing else would make it quiet.
            device.function().fail(Failure::Destroy);
            Err(EBUSY)
        }
        ended => ended,
    });
    if ended.is_err() {
        device.wait_until_quiet(epoch);
    }
}

/// A region of all memory.
pub(crate) struct KernelMr {
    device: Arc<Device>,
    epoch: u32,
    number: Number,
}

impl KernelMr {
    /// Returns also its key.
    pub(super) fn create(pd: &KernelPd, access: u32) -> Result<(Self, u32)> {
        let create = command::Create::<command::Mr>(MrContext {
            pd: pd.number,
            access: rights(access)?,
            flags: mr_flags::ALL_MEMORY,
            ..MrContext::default()
        });
        let pass = pd.device.enter(pd.epoch)?;
        let number = pd.device.admin().execute(&pass, create)?;
        let mr = Self {
            device: pd.device.clone(),
            epoch: pd.epoch,
            number,
        };
        Ok((mr, number.raw()))
    }

    pub(super) fn destroy(self) {
        end(&self.device, self.epoch, |pass| {
            let destroy = command::Destroy::<command::Mr>::new(self.number);
            self.device.admin().execute(pass, destroy).map(drop)
        });
    }
}

/// A queue, as a client of the device.
#[pin_data]
struct Queue<Q: Rings> {
    queue: Arc<Q>,
    /// Held while rings are taken from it: a shutdown frees what is kept after it has unmapped. Also
    /// while they are made anew.
    #[pin]
    taking: Mutex<()>,
}

/// A queue with rings.
trait Rings: Send + Sync + 'static {
    type Memory: Send + 'static;
    /// See [`Client::cut`].
    fn cut(&self);
    /// See [`Client::flush`].
    fn flush(&self);
    /// Takes its memory. It is not used any more.
    fn take(&self) -> Option<Self::Memory>;
    /// See [`Client::describe`].
    fn describe(&self, what: Shown, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

impl Rings for UlpCq {
    type Memory = Ring;
    fn cut(&self) {
        Self::cut(self);
    }
    fn flush(&self) {
        Self::flush(self);
    }
    fn take(&self) -> Option<Ring> {
        self.take_ring()
    }
    fn describe(&self, what: Shown, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if what != Shown::Cqs {
            return Ok(());
        }
        let (taken, qps) = self.counts();
        writeln!(f, "{} verbs completions {taken} qps {qps}", self.number())
    }
}

impl Rings for UlpQp {
    type Memory = (Ring, Ring);
    fn cut(&self) {
        Self::cut(self);
    }
    /// Its CQs flush what it has posted.
    fn flush(&self) {}
    fn take(&self) -> Option<(Ring, Ring)> {
        self.take_rings()
    }
    fn describe(&self, what: Shown, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if what != Shown::Qps {
            return Ok(());
        }
        let ([send, recv], (sends, recvs)) = (self.cqs(), self.in_flight());
        writeln!(
            f,
            "{} verbs send-cq {} recv-cq {} sends {sends} recvs {recvs}",
            self.number(),
            send.number(),
            recv.number()
        )
    }
}

impl<Q: Rings> Queue<Q> {
    /// Of a queue that the device has created, inside the pass of that.
    fn admit(device: &Device, queue: Arc<Q>) -> Result<Arc<Self>> {
        let this = Arc::pin_init(
            pin_init!(Self {
                queue,
                taking <- new_mutex!((), "Queue::taking"),
            }),
            GFP_KERNEL,
        )?;
        device.clients().admit(this.clone())?;
        Ok(this)
    }

    /// The device does not use it any more.
    fn end(self: &Arc<Self>, device: &Device) {
        let taking = self.taking.lock();
        drop(self.queue.take());
        drop(taking);
        // Its lease of the device ends as well.
        self.queue.cut();
        device.clients().dismiss(&**self);
    }
}

impl<Q: Rings> Client for Queue<Q> {
    fn cut(&self) {
        self.queue.cut();
    }

    fn flush(&self) {
        self.queue.flush();
    }

    fn lost(&self, _why: Lost) {}

    fn unmap(&self) {
        let _taking = self.taking.lock();
        drop(self.queue.take());
    }

    fn describe(&self, what: Shown, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.queue.describe(what, f)
    }
}

/// A completion queue.
pub(crate) struct KernelCq {
    device: Arc<Device>,
    epoch: u32,
    vector: u32,
    queue: Arc<Queue<UlpCq>>,
}

impl KernelCq {
    pub(super) fn create(
        registered: &Registered,
        request: CqRequest,
        events: Events<CqEvent>,
    ) -> Result<(Self, u32)> {
        let (device, epoch) = (&registered.device, registered.epoch);
        let depth = depth(request.entries, device.limits().log_cq)?;
        let armed = Arc::new(Armed::new(events), GFP_KERNEL)?;
        let handler = Arc::new(UlpHandler(armed.clone()), GFP_KERNEL)?;
        let pass = registered.enter()?;
        let ring = Ring::new(&pass, depth.entries() as usize * Cqe::BYTES)?;
        let context = CqContext {
            log_depth: depth.log2(),
            buffer: ring.list(),
            ..CqContext::default()
        };
        let vector = request.vector;
        let mut charge = device.uncharged(Kind::Cq);
        let made = device.create_process_cq(&pass, vector, context, ring, handler, &mut charge)?;
        charge.keep();
        let (number, ring) = made;
        let (function, lease) = (device.function().clone(), pass.lease());
        let name = (number, epoch);
        let queue = UlpCq::new(function, name, (ring.clone(), depth), armed, lease)
            .and_then(|queue| Queue::admit(device, queue));
        match queue {
            Ok(queue) => {
                let cq = Self {
                    device: device.clone(),
                    epoch,
                    vector,
                    queue,
                };
                Ok((cq, depth.entries()))
            }
            Err(error) => {
                if device.destroy_process_cq(&pass, vector, number).is_err() {
                    device.admin().leak(ring);
                }
                Err(error)
            }
        }
    }

    pub(super) fn destroy(self) {
        let number = self.queue.queue.number();
        end(&self.device, self.epoch, |pass| {
            self.device.destroy_process_cq(pass, self.vector, number)
        });
        self.queue.end(&self.device);
    }
}

impl Polls for KernelCq {
    fn poll(&self, into: &mut Completions<'_>) {
        self.queue.queue.poll(into);
    }

    fn notify(&self, solicited: bool) -> bool {
        self.queue.queue.notify(solicited)
    }
}

/// A queue pair.
pub(crate) struct KernelQp {
    device: Arc<Device>,
    epoch: u32,
    queue: Arc<Queue<UlpQp>>,
}

impl Posts for KernelQp {
    fn post_send<'a>(&self, requests: impl Iterator<Item = Result<SendRequest<'a>>>) -> Result {
        self.queue.queue.post_send(requests)
    }

    fn post_recv<'a>(&self, requests: impl Iterator<Item = Result<RecvRequest<'a>>>) -> Result {
        self.queue.queue.post_recv(requests)
    }
}

/// The rings that hold what is requested.
fn shape(device: &Device, request: &QpRequest) -> Result<UlpShape> {
    let limits = device.limits();
    let datagrams = request.service == Service::Ud;
    let head = if datagrams {
        UdWqe::WORDS
    } else {
        SendWqe::WORDS
    };
    if request.send_sges > limits.send_sges || request.recv_sges > limits.recv_sges {
        return Err(EINVAL);
    }
    // An atomic has a longer head, and one SGE.
    let words = (head + request.send_sges as usize * Sge::WORDS).max(AtomicWqe::WORDS + Sge::WORDS);
    let blocks = words.div_ceil(BLOCK_WORDS);
    let fits = |stride: &u8| recv_sges(*stride) >= request.recv_sges as usize;
    let stride = (0..=MAX_STRIDE_SHIFT).find(fits).ok_or(EINVAL)?;
    if blocks > MAX_BLOCKS {
        return Err(EINVAL);
    }
    // CAST: At most `MAX_BLOCKS`.
    let all = request
        .sends
        .max(1)
        .checked_mul(blocks as u32)
        .ok_or(EINVAL)?;
    Ok(UlpShape {
        sq: depth(all, limits.log_sq)?,
        rq: depth(request.recvs.max(1), limits.log_rq)?,
        stride,
        sends: request.sends.max(1),
        send_sges: request.send_sges,
        recv_sges: request.recv_sges,
        datagrams,
        signal_all: request.signal_all,
    })
}

impl KernelQp {
    pub(super) fn create(
        pd: &KernelPd,
        (send, recv): (&KernelCq, &KernelCq),
        request: QpRequest,
        events: Events<QpEvent>,
    ) -> Result<(Self, u32)> {
        let (device, epoch) = (&pd.device, pd.epoch);
        let shape = shape(device, &request)?;
        let handler = Arc::new(QpHandler(events.clone()), GFP_KERNEL)?;
        let rooms = (Room::new()?, Room::new()?);
        let pass = device.enter(epoch)?;
        let bytes = BLOCK_BYTES << shape.stride;
        let sq = Ring::new(&pass, shape.sq.entries() as usize * BLOCK_BYTES)?;
        let rq = Ring::new(&pass, shape.rq.entries() as usize * bytes)?;
        let (send, recv) = (&send.queue.queue, &recv.queue.queue);
        let (service, (gid, gid_high)) = match request.service {
            Service::Rc => (service::RC, (0, 0)),
            Service::Uc => (service::UC, (0, 0)),
            Service::Ud => (service::UD, address::own(device)),
        };
        let create = command::Create::<command::Qp>(QpContext {
            pd: pd.number,
            service,
            gid,
            gid_high,
            flags: flags_of(&request),
            port_qp: request.is_port_qp.into(),
            state: qp_state::RESET,
            send_cq: send.number(),
            recv_cq: recv.number(),
            log_sq: shape.sq.log2(),
            log_rq: shape.rq.log2(),
            rq_stride: shape.stride,
            sq: sq.list(),
            rq: rq.list(),
            ..QpContext::default()
        });
        let mut charge = device.uncharged(Kind::Qp);
        let made = device.create_reporting(&pass, create, (sq, rq), handler, &mut charge)?;
        charge.keep();
        let (number, rings) = made;
        let queue = UlpQp::new(UlpQpParts {
            function: device.function().clone(),
            number,
            epoch,
            shape,
            events,
            cqs: (send.clone(), recv.clone()),
            rings: rings.clone(),
            lease: pass.lease(),
        });
        match queue.and_then(|queue| Queue::admit(device, queue)) {
            Ok(queue) => {
                let qp = Self {
                    device: device.clone(),
                    epoch,
                    queue,
                };
                drop(pass);
                match qp.join(rooms) {
                    Ok(()) => Ok((qp, number.raw())),
                    Err(error) => {
                        qp.destroy();
                        Err(error)
                    }
                }
            }
            Err(error) => {
                let destroy = Device::destroy_reporting::<command::Qp>;
                if destroy(device, &pass, number).is_err() {
                    device.admin().leak(rings);
                }
                Err(error)
            }
        }
    }

    /// Adds it to its CQs.
    fn join(&self, (first, second): (Room<Arc<UlpQp>>, Room<Arc<UlpQp>>)) -> Result {
        let queue = &self.queue.queue;
        let [send, recv] = queue.cqs();
        send.add(queue.clone(), first)?;
        if !Arc::ptr_eq(send, recv) {
            recv.add(queue.clone(), second)?;
        }
        Ok(())
    }

    /// Runs a command for it, with its number.
    ///
    /// # Errors
    ///
    /// Those of `f`; `EIO` or `ENODEV` without the device.
    pub(super) fn command(&self, f: impl FnOnce(&Device, &Pass<'_>, Number) -> Result) -> Result {
        let pass = self.device.enter(self.epoch)?;
        f(&self.device, &pass, self.queue.queue.number())
    }

    /// Whether the device is lost, and with it the queue pair.
    pub(super) fn is_lost(&self) -> bool {
        self.device.enter(self.epoch).is_err()
    }

    pub(super) fn modify(&self, change: QpChange) -> Result {
        let (mask, context) = change::of(&self.device, &change)?;
        let number = self.queue.queue.number();
        let done = self.device.enter(self.epoch).and_then(|pass| {
            let modify = command::Modify::<command::Qp> {
                number,
                mask,
                context,
            };
            self.device.admin().execute(&pass, modify)
        });
        // What a lost device has posted is flushed in any case.
        let ends = matches!(change.state, Some(QpState::Error | QpState::Reset));
        let ended = match done {
            Ok(ended) => Some((ended.send_cq, ended.recv_cq)),
            Err(_) if ends && self.is_lost() => {
                // Its user takes back what is posted: in ERROR once it is flushed, in RESET now.
                if change.state == Some(QpState::Reset) {
                    self.device.wait_until_quiet(self.epoch);
                }
                None
            }
            Err(error) => return Err(error),
        };
        let queue = &self.queue.queue;
        match change.state {
            None => {}
            Some(QpState::Reset) => {
                queue.permit(false, false);
                let _taking = self.queue.taking.lock();
                queue.renew(self.epoch, ended)?;
            }
            Some(QpState::Init | QpState::Rtr) => queue.permit(true, false),
            Some(_) => queue.permit(true, true),
        }
        Ok(())
    }

    pub(super) fn query(&self) -> Result<(QpState, bool)> {
        let query = command::Query::<command::Qp>::new(self.queue.queue.number());
        let now = self
            .device
            .enter(self.epoch)
            .and_then(|pass| self.device.admin().execute(&pass, query));
        match now {
            Ok(now) => Ok(change::state(&now)),
            Err(_) if self.is_lost() => Ok((QpState::Error, false)),
            Err(error) => Err(error),
        }
    }

    pub(super) fn destroy(self) {
        let number = self.queue.queue.number();
        // Before the command: once it has ended, another queue pair may have the index.
        for cq in self.queue.queue.cqs() {
            cq.remove(number);
        }
        end(&self.device, self.epoch, |pass| {
            let destroy = Device::destroy_reporting::<command::Qp>;
            destroy(&self.device, pass, number).map(drop)
        });
        self.queue.end(&self.device);
    }
}
