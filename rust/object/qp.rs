// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.
//!
//! That of a process is in its memory, and answers to its doorbell page: the process posts. That of a
//! kernel ULP is in memory of the driver, which posts for the ULP ([`ulp`](super::ulp)).
//!
//! The device ends the memberships in groups of a queue pair that goes to RESET, which the core does
//! not expect: the driver attaches it again before it leaves RESET.

use super::{
    ah,
    prelude::*,
    request::{
        depth,
        max_sge,
        peer_rights,
        ring,
        timer, //
    },
    srq::Srq,
    ulp::{
        self,
        UlpQp,
        UlpShape, //
    }, //
};
use crate::{
    abi::{
        command::{
            qp_flags,
            qp_mask,
            qp_state,
            service,
            verb,
            QpContext,
            READS, //
        },
        entry::{
            inline_bytes,
            mac_parts,
            recv_stride,
            ud_inline_bytes,
            AtomicWqe,
            SendWqe,
            Sge,
            UdWqe,
            BLOCK_BYTES,
            BLOCK_WORDS,
            MAX_BLOCKS,
            MAX_STRIDE_SHIFT, //
        },
        uverbs::{
            qpair_ureq_create_qp,
            qpair_uresp_create_qp,
            qpair_uresp_modify_qp, //
        }, //
    },
    hw::{
        command::{
            Ended,
            Member, //
        },
        function::Limits,
        qp::{
            QpRings,
            Sizes, //
        },
        table::Reservation, //
    },
    kernel::{
        gate::Pass,
        rdma::{
            qp,
            Details,
            Gid,
            QpChange,
            QpPath,
            QpRequest,
            QpState,
            RecvRequest,
            SendRequest,
            Service, //
        },
        umem::{
            Access,
            Pinned, //
        }, //
    },
    life::device::Device,
    queue::index::Depth, //
};

/// A queue pair: in the memory of a process, or rings that a kernel ULP posts to.
pub(crate) struct Qp {
    owner: Owner<MemoryId, Arc<UlpQp>>,
    number: Number,
}

/// The states that the device has, and its codes of them.
const STATES: [(QpState, u8); 6] = [
    (QpState::Reset, qp_state::RESET),
    (QpState::Init, qp_state::INIT),
    (QpState::Rtr, qp_state::RTR),
    (QpState::Rts, qp_state::RTS),
    (QpState::Sqd, qp_state::SQD),
    (QpState::Error, qp_state::ERROR),
];

/// The context of a queue pair in RESET, without rings.
fn context(device: &Device, request: &QpRequest<'_, Verbs>) -> QpContext {
    let (service, (gid, gid_high)) = match request.service {
        Service::Rc => (service::RC, (0, 0)),
        Service::Uc => (service::UC, (0, 0)),
        Service::Ud => (service::UD, ah::own(device)),
    };
    QpContext {
        pd: request.pd.number,
        service,
        gid,
        gid_high,
        flags: match request.no_own_copy {
            true => qp_flags::NO_OWN_COPY,
            false => 0,
        },
        port_qp: request.is_gsi.into(),
        state: qp_state::RESET,
        send_cq: request.send_cq.number,
        recv_cq: request.recv_cq.number,
        srq: request.srq.map_or(Number::default(), |srq| srq.number),
        ..QpContext::default()
    }
}

/// A ring of a process's queue pair.
type PinnedRing = (Pinned, Depth);

/// Pins the rings of a process's queue pair: the SQ, and without an SRQ the RQ. May sleep for as long
/// as the process likes.
///
/// # Errors
///
/// `EINVAL`: the memory does not hold what is requested, or that is beyond the limits.
fn pins(
    limits: &Limits,
    request: &QpRequest<'_, Verbs>,
    asked: &qpair_ureq_create_qp,
) -> Result<(PinnedRing, Option<PinnedRing>)> {
    let (cap, has_srq) = (request.cap, request.srq.is_some());
    if asked.reserved != 0 || asked.rq_stride > u32::from(MAX_STRIDE_SHIFT) {
        return Err(EINVAL);
    }
    let max_inline_data = match request.service {
        Service::Rc | Service::Uc => inline_bytes(MAX_BLOCKS),
        Service::Ud => ud_inline_bytes(MAX_BLOCKS),
    };
    if has_srq && request.service == Service::Uc {
        return Err(EOPNOTSUPP);
    }
    let of_rq = asked.rq_buffer | asked.rq_buffer_bytes | u64::from(asked.rq_depth);
    if has_srq && (of_rq | u64::from(asked.rq_stride)) != 0 {
        return Err(EINVAL);
    }
    let fits = cap.max_send_wr <= asked.sq_blocks
        && (has_srq || cap.max_recv_wr <= asked.rq_depth)
        && cap.max_send_sge <= max_sge(limits)
        && (has_srq || cap.max_recv_sge <= max_sge(limits))
        && cap.max_inline_data as usize <= max_inline_data
        && cap.max_inline_data <= limits.inline_bytes;
    if !fits {
        return Err(EINVAL);
    }
    // Both depths before either is pinned. The device only reads what the process posts.
    let sq = depth(asked.sq_blocks, limits.log_sq)?;
    let rq = match has_srq {
        false => Some(depth(asked.rq_depth, limits.log_rq)?),
        true => None,
    };
    let pin = |start, bytes, depth, each| ring(start, bytes, depth, each, Access::Read);
    let (block, stride) = (BLOCK_BYTES as u64, (BLOCK_BYTES as u64) << asked.rq_stride);
    let sq = (pin(asked.sq_buffer, asked.sq_buffer_bytes, sq, block)?, sq);
    let rq = match rq {
        Some(rq) => Some((pin(asked.rq_buffer, asked.rq_buffer_bytes, rq, stride)?, rq)),
        None => None,
    };
    Ok((sq, rq))
}

// An atomic has a longer head than a send, and one SGE.
const _: () = assert!(AtomicWqe::WORDS + Sge::WORDS <= BLOCK_WORDS);

/// The blocks of a kernel ULP's longest send; `None` if no send has so many SGEs.
fn send_blocks(datagrams: bool, sges: u32) -> Option<u32> {
    let head = if datagrams {
        UdWqe::WORDS
    } else {
        SendWqe::WORDS
    };
    let blocks = (head + sges as usize * Sge::WORDS).div_ceil(BLOCK_WORDS);
    // CAST: At most `MAX_BLOCKS`.
    (blocks <= MAX_BLOCKS).then_some(blocks as u32)
}

/// The rings of a kernel ULP that hold what is requested; with an SRQ none for receives.
///
/// # Errors
///
/// `EINVAL`: beyond the limits. `EOPNOTSUPP`: one of UC on an SRQ.
fn shape(limits: &Limits, request: &QpRequest<'_, Verbs>) -> Result<UlpShape> {
    let (cap, srq) = (request.cap, request.srq);
    let rq = match srq {
        Some(_) if request.service == Service::Uc => return Err(EOPNOTSUPP),
        Some(_) => None,
        None if cap.max_recv_sge > limits.recv_sges => return Err(EINVAL),
        None => {
            let stride = recv_stride(cap.max_recv_sge as usize).ok_or(EINVAL)?;
            Some((depth(cap.max_recv_wr.max(1), limits.log_rq)?, stride))
        }
    };
    if cap.max_send_sge > limits.send_sges {
        return Err(EINVAL);
    }
    let datagrams = request.service == Service::Ud;
    let blocks = send_blocks(datagrams, cap.max_send_sge).ok_or(EINVAL)?;
    let max_send_wr = cap.max_send_wr.max(1);
    let all = max_send_wr.checked_mul(blocks).ok_or(EINVAL)?;
    Ok(UlpShape {
        sizes: Sizes {
            sq: depth(all, limits.log_sq)?,
            rq,
        },
        max_send_wr,
        max_send_sge: cap.max_send_sge,
        srq: srq.map(Srq::ulp).transpose()?.cloned(),
        max_recv_sge: cap.max_recv_sge,
        datagrams,
        signal_all: request.signal_all,
        // Never that of a process, which writes its SQ itself.
        registers: request.service == Service::Rc && limits.frmr != 0,
    })
}

/// `context` with the way of frames to the peer.
fn with_path(context: QpContext, path: &QpPath) -> QpContext {
    let (mac_low, mac_high) = mac_parts(path.mac);
    QpContext {
        mac_low,
        mac_high,
        source: path.source.into(),
        log_mtu: path.log_mtu,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        flow_label: path.flow_label,
        rq_psn: path.psn,
        peer_reads: path.reads,
        ..context
    }
}

/// What MODIFY changes, and the new values.
///
/// # Errors
///
/// `EINVAL`: to SQE, or a timer that verbs do not have.
fn changes(device: &Device, change: &QpChange) -> Result<(u32, QpContext)> {
    let mut mask = 0;
    let mut context = QpContext::default();
    if let Some(state) = change.state {
        mask |= qp_mask::STATE;
        let known = STATES.iter().find(|(known, _)| *known == state);
        context.state = known.ok_or(EINVAL)?.1;
    }
    if let Some(rights) = change.access {
        mask |= qp_mask::ACCESS;
        context.access = peer_rights(rights);
    }
    if let Some(peer) = change.peer {
        mask |= qp_mask::PEER;
        context.peer = Number::from_raw(peer);
    }
    if let Some((retry, rnr_retry)) = change.retries {
        mask |= qp_mask::RETRY;
        context.retry = retry;
        context.rnr_retry = rnr_retry;
    }
    if let Some((timeout, min_rnr_timer)) = change.timers {
        mask |= qp_mask::TIMERS;
        context.timeout = timer(timeout)?;
        context.min_rnr_timer = timer(min_rnr_timer)?;
    }
    if change.drained {
        mask |= qp_mask::NOTIFY;
    }
    if let Some(q_key) = change.q_key {
        mask |= qp_mask::Q_KEY;
        context.q_key = q_key;
    }
    if device.limits().wired {
        if let Some(path) = &change.path {
            mask |= qp_mask::PATH;
            context = with_path(context, path);
        }
        if let Some((psn, reads)) = change.sends {
            mask |= qp_mask::SQ_PSN;
            context.sq_psn = psn;
            // The peer may take more.
            context.reads = reads.min(READS);
        }
    }
    // The GID of a port of InfiniBand is in no table. 0 is its own.
    let other = change
        .gid
        .map(ah::words)
        .filter(|gid| *gid != ah::own(device));
    if let Some(gid) = other {
        (context.gid, context.gid_high) = gid;
    }
    Ok((mask, context))
}

/// The state of a queue pair, from its context, and whether its SQ drains.
fn state(context: &QpContext) -> (QpState, bool) {
    let known = STATES.iter().find(|(_, known)| *known == context.state);
    let state = known.map_or(QpState::Error, |(state, _)| *state);
    (state, context.draining != 0)
}

impl Qp {
    fn of_process(
        process: &Arc<Process>,
        request: QpRequest<'_, Verbs>,
        udata: Udata<'_>,
    ) -> Result<(Self, u32)> {
        let (asked, reply) = udata.read::<qpair_ureq_create_qp>(qpair_ureq_create_qp::LEAST)?;
        let device = &process.device;
        let (sq, rq) = pins(device.limits(), &request, &asked)?;
        let ((sq, sq_depth), (rq, rq_depth)) = (sq, rq.unzip());
        let (number, id) = process.create(
            Kind::Qp,
            |pass| {
                let map = |pinned| UserBuffer::new(pass, pinned, device.limits());
                Ok((map(sq)?, rq.map(map).transpose()?))
            },
            |pass, (sq, rq)| {
                let create = command::Create::<command::Qp>(QpContext {
                    page: process.page(),
                    log_sq: sq_depth.log2(),
                    log_rq: rq_depth.map_or(0, Depth::log2),
                    // CAST: Checked above.
                    rq_stride: asked.rq_stride as u8,
                    sq: sq.list,
                    rq: rq.as_ref().map(|rq| rq.list).unwrap_or_default(),
                    ..context(device, &request)
                });
                device.create_reporting(pass, create, (sq, rq), request.events)
            },
            |_, (sq, rq)| ObjectMemory::Qp(sq, rq),
        )?;
        let owner = Owner::Process(process.clone(), id);
        let answer = qpair_uresp_create_qp {
            number: number.raw(),
            sq_blocks: sq_depth.entries(),
            rq_depth: rq_depth.map_or(0, Depth::entries),
            reserved: 0,
        };
        let destroy = qp::Operations::destroy;
        let qp = answered(Self { owner, number }, reply.write(&answer), destroy)?;
        Ok((qp, number.raw()))
    }

    fn of_ulp(registered: &Registered, request: QpRequest<'_, Verbs>) -> Result<(Self, u32)> {
        let device = &registered.device;
        let shape = shape(device.limits(), &request)?;
        let cqs = (
            request.send_cq.ulp()?.clone(),
            request.recv_cq.ulp()?.clone(),
        );
        let rooms = (Reservation::new()?, Reservation::new()?);
        let pass = registered.enter()?;
        let rings = QpRings::new(&pass, shape.sizes)?;
        let mut context = rings.context(context(device, &request));
        if shape.registers {
            context.flags |= qp_flags::REGISTERS;
        }
        let create = command::Create::<command::Qp>(context);
        let events = request.events;
        let (number, rings) = device.create_reporting(&pass, create, rings, events.clone())?;
        let queue = UlpQp::new(registered, &pass, number, &rings, shape, cqs, events);
        let destroy = || device.destroy_reporting::<command::Qp>(&pass, number, || ());
        let queue = ulp::admit(device, queue, rings, destroy)?;
        let joined = queue.join(rooms);
        let owner = Owner::Ulp(registered.clone(), queue);
        drop(pass);
        let qp = answered(Self { owner, number }, joined, qp::Operations::destroy)?;
        Ok((qp, number.raw()))
    }

    /// Executes a command of a membership in a group, which has the error `already` if there is nothing
    /// to do: that is none.
    fn member<const VERB: u8>(&self, pass: &Pass<'_>, group: Gid, already: Error) -> Result {
        let member = Member::<VERB> {
            number: self.number,
            gid: ah::context(group),
        };
        match self.owner.device().admin.execute(pass, member) {
            Err(error) if error == already => Ok(()),
            done => done,
        }
    }

    /// Makes it a member of a group. It may already be one: an earlier detach was refused, or a change
    /// to INIT was.
    fn join(&self, pass: &Pass<'_>, group: Gid) -> Result {
        self.member::<{ verb::ATTACH }>(pass, group, EBUSY)
    }

    /// Ends a membership. It may have ended.
    fn part(&self, pass: &Pass<'_>, group: Gid) -> Result {
        self.member::<{ verb::DETACH }>(pass, group, ENOENT)
    }

    /// The device has changed one of a kernel ULP to this state, or is lost: then `done` is an error.
    /// What a lost device has posted is flushed in any case.
    fn follow(
        registered: &Registered,
        queue: &UlpQp,
        state: Option<QpState>,
        done: Result<Ended>,
    ) -> Result {
        let ends = matches!(state, Some(QpState::Error | QpState::Reset));
        let ended = match done {
            Ok(ended) => Some((ended.send_cq, ended.recv_cq)),
            Err(_) if ends && registered.enter().is_err() => {
                // Its ULP takes back what is posted: in ERROR once it is flushed, in RESET now.
                if state == Some(QpState::Reset) {
                    registered.device.wait_until_quiet(registered.epoch);
                }
                None
            }
            Err(error) => return Err(error),
        };
        match state {
            None => {}
            Some(QpState::Reset) => {
                queue.permit(false, false);
                queue.renew(registered.epoch, ended)?;
            }
            Some(QpState::Init | QpState::Rtr) => queue.permit(true, false),
            Some(_) => queue.permit(true, true),
        }
        Ok(())
    }
}

impl qp::Operations<Verbs> for Qp {
    type Modified = qpair_uresp_modify_qp;

    fn create(request: QpRequest<'_, Verbs>, caller: Caller<'_, Verbs>) -> Result<(Self, u32)> {
        match caller {
            Caller::Process(process, udata) => Self::of_process(process, request, udata),
            Caller::Ulp(registered) => Self::of_ulp(registered, request),
        }
    }

    fn modify(&self, change: QpChange) -> Result<qpair_uresp_modify_qp> {
        let (mask, context) = changes(self.owner.device(), &change)?;
        let mut answer = qpair_uresp_modify_qp::default();
        if mask == 0 {
            return Ok(answer);
        }
        let done = self.owner.execute(command::Modify::<command::Qp> {
            number: self.number,
            mask,
            context,
        });
        match &self.owner {
            Owner::Process(..) => {
                let ended = done?;
                answer.send_cq_index = ended.send_cq.get();
                answer.recv_cq_index = ended.recv_cq.get();
            }
            Owner::Ulp(registered, queue) => {
                Self::follow(registered, queue, change.state, done)?;
            }
        }
        Ok(answer)
    }

    fn query(&self) -> Result<(QpState, bool)> {
        let now = self.owner.query::<command::Qp>(self.number);
        match (now, &self.owner) {
            (Ok(now), _) => Ok(state(&now)),
            // It is flushed.
            (Err(_), Owner::Ulp(registered, _)) if registered.enter().is_err() => {
                Ok((QpState::Error, false))
            }
            (Err(error), _) => Err(error),
        }
    }

    fn destroy(self) {
        let device = self.owner.device();
        let leave = || {
            if let Ok((_, queue)) = self.owner.ulp() {
                queue.leave();
            }
        };
        ulp::destroy(&self.owner, Kind::Qp, |pass| {
            device.destroy_reporting::<command::Qp>(pass, self.number, leave)
        });
        // Without the device's word: no other queue pair has its index.
        leave();
    }

    #[inline]
    fn post_send<'a>(
        &self,
        requests: impl Iterator<Item = Result<SendRequest<'a, Verbs>>>,
    ) -> Result {
        self.owner.ulp()?.1.post_send(requests)
    }

    #[inline]
    fn post_recv<'a>(&self, requests: impl Iterator<Item = Result<RecvRequest<'a>>>) -> Result {
        self.owner.ulp()?.1.post_recv(requests)
    }

    // A process is charged for each membership until it is detached.
    fn attach(&self, group: Gid) -> Result {
        match &self.owner {
            Owner::Process(process, _) => {
                process.charged(Kind::Member, |pass| self.join(pass, group))
            }
            Owner::Ulp(registered, _) => self.join(&registered.enter()?, group),
        }
    }

    // It is charged already. A lost device has no memberships, and its queue pairs go to RESET.
    fn attach_again(&self, group: Gid) -> Result {
        let joined = self.owner.enter().and_then(|pass| self.join(&pass, group));
        match &self.owner {
            Owner::Ulp(registered, _) if joined.is_err() && registered.enter().is_err() => Ok(()),
            _ => joined,
        }
    }

    // If the device refuses, the membership ends with the queue pair; the charge stays for the life of
    // the process's file.
    fn detach(&self, group: Gid) {
        let _: Result = match &self.owner {
            Owner::Process(process, _) => {
                process.attempt(Kind::Member, |pass| self.part(pass, group))
            }
            Owner::Ulp(registered, _) => {
                registered.enter().and_then(|pass| self.part(&pass, group))
            }
        };
    }

    fn details(&self, details: &mut Details<'_>) -> Result {
        self.owner.details::<command::Qp>(self.number, |now| {
            details.number(c"number", self.number.raw())?;
            details.number(c"sq_producer", now.sq_producer)?;
            details.number(c"sq_consumer", now.sq_consumer)?;
            details.number(c"rq_producer", now.rq_producer)?;
            details.number(c"rq_consumer", now.rq_consumer)?;
            details.number(c"sq_psn", now.sq_psn)?;
            details.number(c"rq_psn", now.rq_psn)?;
            details.number(c"acked_psn", now.acked_psn)?;
            details.number(c"in_flight", now.in_flight.into())?;
            details.number(c"room", now.room.into())?;
            details.number(c"repeats", now.repeats.into())?;
            details.number(c"waits_for", now.waits_for.into())
        })
    }
}

#[kernel::macros::kunit_tests(qpair_object_qp)]
mod tests {
    use super::*;

    #[test]
    fn a_send_has_room_for_its_sges() {
        let (block, sge, max_blocks) = (BLOCK_WORDS as u32, Sge::WORDS as u32, MAX_BLOCKS as u32);
        for (datagrams, head) in [(false, SendWqe::WORDS), (true, UdWqe::WORDS)] {
            for blocks in 1..=max_blocks {
                let most = (block * blocks - head as u32) / sge;
                assert_eq!(send_blocks(datagrams, most), Some(blocks));
                let more = (blocks < max_blocks).then_some(blocks + 1);
                assert_eq!(send_blocks(datagrams, most + 1), more);
            }
        }
    }

    #[test]
    fn a_path_is_in_the_context() {
        let path = QpPath {
            mac: [1, 2, 3, 4, 5, 6],
            source: 7,
            log_mtu: 10,
            traffic_class: 8,
            hop_limit: 64,
            flow_label: 0xabcde,
            psn: 0xff_fffe,
            reads: 16,
        };
        let words = with_path(QpContext::default(), &path).encode();
        assert_eq!(words[7], 0x1000_0007_0a00_0000);
        assert_eq!(words[16], 0x4008_0605_0403_0201);
        assert_eq!(words[17], 0x00ff_fffe << 32);
        assert_eq!(words[18], 0xabcde);
    }
}
