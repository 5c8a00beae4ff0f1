// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: created, changed, posted to, attached to groups, destroyed.

mod attributes;
mod post;

pub use self::post::{
    Destination,
    SendRequest, //
};

use self::attributes::Kept;
use super::{
    context::Caller,
    cq::CoreCq,
    details::Details,
    event::{
        Events,
        QpEvent, //
    },
    pd::CorePd,
    port::Gid,
    prelude::*,
    recv::RecvRequest,
    srq::CoreSrq, //
};
use zerocopy::Immutable;

/// The number of the GSI, whatever the device calls it.
const GSI: u32 = 1;

/// The service of a queue pair, which never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connected: `IB_QPT_RC`, in order and acknowledged.
    Rc,
    /// Unreliable connected: `IB_QPT_UC`, without acknowledgements.
    Uc,
    /// Unreliable datagram: `IB_QPT_UD`, each send with an address.
    Ud,
}

/// The attributes of a queue pair that is created.
pub struct QpRequest<'a, T: Driver> {
    /// Its domain.
    pub pd: &'a T::Pd,
    /// The completion queue of its sends.
    pub send_cq: &'a T::Cq,
    /// That of its receives.
    pub recv_cq: &'a T::Cq,
    /// Its receives are on this one, if there is one.
    pub srq: Option<&'a T::Srq>,
    /// Its events; they name it in completions.
    pub events: Events<QpEvent>,
    /// Fixed for the life of the queue pair.
    pub service: Service,
    /// Requests that may be outstanding, their SGEs and inline bytes.
    pub cap: &'a bindings::ib_qp_cap,
    /// Whether it has no copies of what it sends to groups that it is a member of, of UD.
    pub no_own_copy: bool,
    /// Whether it is the GSI, queue pair 1 of the port, of a kernel ULP.
    pub is_gsi: bool,
    /// Whether all sends are signaled, of a kernel ULP.
    pub signal_all: bool,
}

/// States of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum QpState {
    /// As created: it does no work.
    Reset = bindings::ib_qp_state_IB_QPS_RESET,
    /// Receives may be posted.
    Init = bindings::ib_qp_state_IB_QPS_INIT,
    /// Ready to receive: messages are taken.
    Rtr = bindings::ib_qp_state_IB_QPS_RTR,
    /// Ready to send: requests are executed.
    Rts = bindings::ib_qp_state_IB_QPS_RTS,
    /// The send queue drains.
    Sqd = bindings::ib_qp_state_IB_QPS_SQD,
    /// The send queue is in error. RC queue pairs are never in this state; others may be.
    Sqe = bindings::ib_qp_state_IB_QPS_SQE,
    /// All work is flushed.
    Error = bindings::ib_qp_state_IB_QPS_ERR,
}

/// A change of a queue pair, of what the device knows. The core's checks have passed, and the other
/// attributes are kept for `ibv_query_qp()`.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpChange {
    /// The state to go to. `None` for INIT to INIT and RTS to RTS as well.
    pub state: Option<QpState>,
    /// Rights of the peer: `IB_ACCESS_*`.
    pub access: Option<u32>,
    /// The number of the peer's queue pair.
    pub peer: Option<u32>,
    /// Retries of a request without an answer, and of one without a receive; 7 is without end.
    pub retries: Option<(u8, u8)>,
    /// The time of an answer, and that which its peer waits for a receive: codes of
    /// `struct ib_qp_attr`, `timeout` and `min_rnr_timer`.
    pub timers: Option<(u8, u8)>,
    /// The Q_Key that datagrams to it must have.
    pub q_key: Option<u32>,
    /// Whether [`QpEvent::Drained`] is asked for; with the step to [`QpState::Sqd`].
    pub drained: bool,
    /// The GID of the peer's port.
    pub gid: Option<Gid>,
    /// The way of frames to it, with `peer`, on a port of RoCE.
    pub path: Option<QpPath>,
    /// The PSN of its first packet, and the READs and atomics of its own that may be in flight, of RC
    /// and UC; with the step from [`QpState::Rtr`] to [`QpState::Rts`].
    pub sends: Option<(u32, u8)>,
}

/// The way of frames to the peer of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpPath {
    /// The address of the network device that leads there.
    pub mac: [u8; 6],
    /// The index of the GID that they are sent from.
    pub source: u8,
    /// log2 of the most payload of a packet.
    pub log_mtu: u8,
    /// Traffic class of the packets.
    pub traffic_class: u8,
    /// Hop limit of the packets.
    pub hop_limit: u8,
    /// Flow label of the packets, 20 bits.
    pub flow_label: u32,
    /// The PSN of the first packet from there.
    pub psn: u32,
    /// READs and atomics of the peer that may be in flight.
    pub reads: u8,
}

/// A queue pair.
///
/// Operations run in process context and may sleep, but those of kernel ULPs: [`Self::post_send`] and
/// [`Self::post_recv`].
pub trait Operations<T: Driver>: Sized + Send + Sync {
    /// The driver's part of the answer to a change.
    type Modified: IntoBytes + Immutable;

    /// Creates it, in [`QpState::Reset`]; with an SRQ, it has no receives of its own. Also returns its
    /// number.
    ///
    /// # Errors
    ///
    /// `EINVAL`: beyond the limits, or the memory of the process does not hold so many. `EOPNOTSUPP`: one of
    /// UC on an SRQ, or the CQs or the SRQ are not of the same user.
    fn create(request: QpRequest<'_, T>, caller: Caller<'_, T>) -> Result<(Self, u32)>;

    /// Changes it. Not called concurrently for one queue pair.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the device has not that state, or does not go to it from the present one, or not such timers.
    fn modify(&self, change: QpChange) -> Result<Self::Modified>;

    /// The state that it is in now; of [`QpState::Sqd`] whether its send queue still drains.
    ///
    /// # Errors
    ///
    /// Those of [all operations](super#errors).
    fn query(&self) -> Result<(QpState, bool)>;

    /// Destroys it. On return the device no longer accesses its memory, or the driver keeps that; no
    /// completion of it is taken from now on.
    fn destroy(self);

    /// Posts requests of a kernel ULP, until one is refused or an error. Any context.
    ///
    /// # Errors
    ///
    /// Of the first that is not posted: `EINVAL`, `ENOMEM` if the queue is full. `EOPNOTSUPP`: it is one
    /// of a process, which posts itself.
    fn post_send<'a>(&self, requests: impl Iterator<Item = Result<SendRequest<'a, T>>>) -> Result;

    /// The same of receives.
    ///
    /// # Errors
    ///
    /// As of [`Self::post_send`].
    fn post_recv<'a>(&self, requests: impl Iterator<Item = Result<RecvRequest<'a>>>) -> Result;

    /// Makes it, of UD, a member of the multicast group with this GID. No call of this and the two
    /// below is concurrent with another of the same queue pair, or with [`Self::modify`].
    ///
    /// # Errors
    ///
    /// `ENOSPC`, `EDQUOT`: there are too many members, of the group or of the process.
    fn attach(&self, group: Gid) -> Result;

    /// Attaches a queue pair again that was in [`QpState::Reset`] as a member of this group.
    ///
    /// # Errors
    ///
    /// `ENOSPC`, as of [`Self::attach`].
    fn attach_again(&self, group: Gid) -> Result;

    /// Detaches the queue pair from the group. The device may have done so already.
    fn detach(&self, group: Gid);

    /// Adds the driver's details for `rdma resource`. Not concurrently with a destroy.
    ///
    /// # Errors
    ///
    /// Those of [`Details::number`].
    fn details(&self, details: &mut Details<'_>) -> Result;
}

type CoreQp<T> = CoreObject<bindings::ib_qp, (Events<QpEvent>, Pin<KBox<Kept>>, <T as Driver>::Qp)>;

impl<T: Driver> Ops<T> {
    pub(super) const QP: bindings::ib_device_ops = bindings::ib_device_ops {
        create_qp: Some(Self::create_qp),
        modify_qp: Some(Self::modify_qp),
        query_qp: Some(Self::query_qp),
        destroy_qp: Some(Self::destroy_qp),
        post_send: Some(Self::post_send),
        post_recv: Some(Self::post_recv),
        attach_mcast: Some(Self::attach_mcast),
        detach_mcast: Some(Self::detach_mcast),
        fill_res_qp_entry: Some(Self::fill_res_qp_entry),
        size_ib_qp: CoreQp::<T>::SIZE,
        ..Self::NONE
    };

    /// The request for a queue pair, checked.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: another service than RC, UC and UD, or flags. `EINVAL`: no CQs.
    ///
    /// # Safety
    ///
    /// `qp` is new; the CQs and the SRQ of `attr` are null, or live as long as it is.
    unsafe fn request<'a>(
        qp: *mut bindings::ib_qp,
        attr: &'a bindings::ib_qp_init_attr,
        events: Events<QpEvent>,
    ) -> Result<QpRequest<'a, T>> {
        use bindings::ib_qp_create_flags_IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK as NO_OWN_COPY;

        let service = match attr.qp_type {
            bindings::ib_qp_type_IB_QPT_RC => Service::Rc,
            bindings::ib_qp_type_IB_QPT_UC => Service::Uc,
            bindings::ib_qp_type_IB_QPT_UD | bindings::ib_qp_type_IB_QPT_GSI => Service::Ud,
            _ => return Err(EOPNOTSUPP),
        };
        // CAST: A set of bits.
        let (flags, no_own_copy) = (attr.create_flags, NO_OWN_COPY as u32);
        if flags != 0 && (service, flags) != (Service::Ud, no_own_copy) {
            return Err(EOPNOTSUPP);
        }
        if attr.send_cq.is_null() || attr.recv_cq.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: The domain of a new queue pair is live.
        let pd = unsafe { CorePd::<T>::get((*qp).pd) };
        // SAFETY: By the caller's promise.
        let (send, recv) = unsafe {
            (
                CoreCq::<T>::get(attr.send_cq),
                CoreCq::<T>::get(attr.recv_cq),
            )
        };
        // SAFETY: As above.
        let srq = (!attr.srq.is_null()).then(|| unsafe { &CoreSrq::<T>::get(attr.srq).1 });
        for (events, _) in [send, recv] {
            events.finish();
        }
        Ok(QpRequest {
            pd,
            send_cq: &send.1,
            recv_cq: &recv.1,
            srq,
            events,
            service,
            cap: &attr.cap,
            no_own_copy: flags != 0,
            is_gsi: attr.qp_type == bindings::ib_qp_type_IB_QPT_GSI,
            signal_all: attr.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
        })
    }

    /// # Safety
    ///
    /// `qp` is new and `attr` to fill, with CQs and an SRQ that are null, or live as long as `qp` is;
    /// `udata` is its command.
    unsafe extern "C" fn create_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The caller fills `attr` by this. The events are cut off by the destroy, and below if
            // there is none, or have no clone.
            let (attr, events) = unsafe { (&mut *attr, Events::new(qp)?) };
            // SAFETY: The device of `qp` is live, and `udata` a command.
            let caller = unsafe { Caller::new((*qp).device, udata) }?;
            // The memory of inline data would be an address of the kernel's.
            if let Caller::Ulp(_) = caller {
                attr.cap.max_inline_data = 0;
            }
            // SAFETY: By the caller's promise.
            let request = unsafe { Self::request(qp, attr, events.clone()) }?;
            let is_gsi = request.is_gsi;
            if is_gsi && matches!(caller, Caller::Process(..)) {
                return Err(EOPNOTSUPP);
            }
            let kept = Kept::new(attr)?;
            let (part, number) = T::Qp::create(request, caller).inspect_err(|_| events.cut())?;
            // SAFETY: `qp` is new.
            unsafe {
                (*qp).qp_num = if is_gsi { GSI } else { number };
                CoreQp::<T>::put(qp, (events, kept, part));
            }
            Ok(())
        })
    }

    /// Kernel ULPs have no command. The core has none either when it modifies queue pairs of processes
    /// that may not use their partition any more.
    ///
    /// # Safety
    ///
    /// `qp` is live, `attr` valid, `udata` a command.
    unsafe extern "C" fn modify_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `qp` is live, `attr` valid, and `udata` a command.
        let ((_, kept, part), attr, udata) =
            unsafe { (CoreQp::<T>::get(qp), &*attr, Udata::of(udata)) };
        status(|| {
            // Copies from and to the process may last as long as it likes: before the change, and
            // after it.
            let reply = udata.map(Udata::without_request).transpose()?;
            // SAFETY: The device of `qp` is live.
            let mtu = unsafe { Self::mtu((*qp).device) };
            // CAST: A set of bits.
            let changed = kept.modify::<T>(part, attr, mask as u32, mtu)?;
            reply.map_or(Ok(()), |reply| reply.write(&changed))
        })
    }

    /// # Safety
    ///
    /// `qp` is live, `attr` and `init` to fill.
    unsafe extern "C" fn query_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        _mask: c_int,
        init: *mut bindings::ib_qp_init_attr,
    ) -> c_int {
        // SAFETY: `qp` is live, and the caller fills both by this.
        let ((_, kept, part), attr, init) =
            unsafe { (CoreQp::<T>::get(qp), &mut *attr, &mut *init) };
        status(|| kept.query(attr, init, || part.query()))
    }

    /// # Safety
    ///
    /// `qp` is ending.
    unsafe extern "C" fn destroy_qp(
        qp: *mut bindings::ib_qp,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: `qp` is ending.
        let (events, _, part) = unsafe { CoreQp::<T>::take(qp) };
        events.cut();
        part.destroy();
        0
    }

    /// The core checks that the queue pair is of UD, and the GID one of multicast.
    ///
    /// # Safety
    ///
    /// `qp` is live, `gid` valid.
    unsafe extern "C" fn attach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        _lid: u16,
    ) -> c_int {
        // SAFETY: `qp` is live, and `gid` valid: it is bytes.
        let ((_, kept, part), group) = unsafe { (CoreQp::<T>::get(qp), Gid((*gid).raw)) };
        status(|| kept.attach(group, |group| part.attach(group)))
    }

    /// # Safety
    ///
    /// As of [`Self::attach_mcast`].
    unsafe extern "C" fn detach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        _lid: u16,
    ) -> c_int {
        // SAFETY: As above.
        let ((_, kept, part), group) = unsafe { (CoreQp::<T>::get(qp), Gid((*gid).raw)) };
        status(|| kept.detach(group, |group| part.detach(group)))
    }

    /// # Safety
    ///
    /// `qp` is live, `message` to fill.
    unsafe extern "C" fn fill_res_qp_entry(
        message: *mut kernel::bindings::sk_buff,
        qp: *mut bindings::ib_qp,
    ) -> c_int {
        // SAFETY: `qp` is live.
        let (_, _, part) = unsafe { CoreQp::<T>::get(qp) };
        let write = |details: &mut Details<'_>| part.details(details);
        // SAFETY: The caller fills `message` by this.
        unsafe { Details::write(message, write) }
    }
}
