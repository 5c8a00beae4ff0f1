// SPDX-License-Identifier: GPL-2.0

//! The queue pairs of kernel ULPs: what is posted in them, and the work requests as the device has
//! them.

use super::{
    super::{
        ah::words,
        registered::{
            Registered,
            Verbs, //
        },
        request::rights, //
    },
    cq::{
        Completes,
        UlpCq, //
    },
    held::{
        Held,
        Inner, //
    },
    pending::{
        none,
        refused,
        sge,
        Pending,
        Posted,
        Recv,
        Request, //
    },
    srq::UlpSrq, //
};
use crate::{
    abi::{
        command::BufferList,
        entry::{
            cqe_flags,
            mac_parts,
            opcode,
            send_flags,
            AtomicWqe,
            Cqe,
            RegWqe,
            SendWqe,
            UdWqe, //
        },
        Number, //
    },
    hw::{
        function::{
            Doorbells,
            Function, //
        },
        qp::{
            QpRings,
            QueuePair,
            Sizes, //
        },
        table::Reservation, //
    },
    kernel::{
        gate::Pass,
        rdma::{
            Destination,
            Events,
            Operation,
            QpEvent,
            RecvRequest,
            SendRequest, //
        }, //
    },
    life::client::Client,
    queue::{
        consumer::{
            Published,
            Seen, //
        },
        credit::{
            Cq,
            RingId, //
        },
        index::Index,
        receives::Completer, //
    }, //
};
use core::mem::replace;
use kernel::{
    fmt,
    prelude::*,
    static_lock_class,
    sync::Arc, //
};

/// The sizes and the queues of a queue pair, which do not change.
pub(crate) struct UlpShape {
    /// The sizes of its queues.
    pub(crate) sizes: Sizes,
    /// Sends that may be outstanding.
    pub(crate) max_send_wr: u32,
    /// SGEs of a send.
    pub(crate) max_send_sge: u32,
    /// The SRQ whose receives it completes, in place of an RQ.
    pub(crate) srq: Option<Arc<UlpSrq>>,
    /// SGEs of a receive of its RQ.
    pub(crate) max_recv_sge: u32,
    /// Whether it is one of UD.
    pub(crate) datagrams: bool,
    /// Whether all sends complete.
    pub(crate) signal_all: bool,
    /// Whether the device registers memory for it, and ends registrations.
    pub(crate) registers: bool,
}

impl UlpShape {
    /// Whether it has such sends, of so many SGEs, with an address or without.
    fn admits(&self, operation: Operation, sges: usize, has_address: bool) -> bool {
        let is_of_memory = matches!(operation, Operation::Register | Operation::Invalidate);
        sges <= self.max_send_sge as usize
            && has_address == self.datagrams
            && (self.registers || !is_of_memory)
    }
}

struct QpState {
    sends: Pending,
    /// Those of its RQ.
    recvs: Pending,
    /// Of an SRQ.
    completer: Completer,
    /// It has reported its last receive for a device that is lost.
    has_ended: bool,
    /// It is in a state in which sends may be posted.
    is_ready: bool,
    /// It is in a state in which receives may be posted to its RQ.
    takes_recvs: bool,
}

type QpInner = Inner<QueuePair, QpState>;

/// A queue pair that a kernel ULP posts to.
#[pin_data]
pub(crate) struct UlpQp {
    function: Arc<Function>,
    number: Number,
    shape: UlpShape,
    /// By which the core's queue pair is named in completions.
    events: Events<QpEvent>,
    send_cq: Arc<UlpCq<Self>>,
    recv_cq: Arc<UlpCq<Self>>,
    #[pin]
    held: Held<QueuePair, QpState>,
}

impl UlpQp {
    /// The driver's side of queue pair `number`, created in `rings`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        registered: &Registered,
        pass: &Pass<'_>,
        number: Number,
        rings: &QpRings,
        shape: UlpShape,
        (send_cq, recv_cq): (Arc<UlpCq<Self>>, Arc<UlpCq<Self>>),
        events: Events<QpEvent>,
    ) -> Result<Arc<Self>> {
        let ids = (send_cq.ring, recv_cq.ring);
        let pair = QueuePair::new(number, registered.epoch, ids, rings)?;
        let state = QpState {
            sends: none(shape.max_send_wr)?,
            recvs: none(shape.sizes.entries().1)?,
            completer: Completer::new(recv_cq.ring),
            has_ended: false,
            is_ready: false,
            takes_recvs: false,
        };
        let function = registered.device.function.clone();
        let (lease, lock) = (pass.lease(), (c"UlpQp::held", static_lock_class!()));
        Arc::pin_init(
            pin_init!(Self {
                function,
                number,
                shape,
                events,
                send_cq,
                recv_cq,
                held <- Held::new(pair, Some(lease), state, lock),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds it to its CQs.
    ///
    /// # Errors
    ///
    /// Those of [`UlpCq::add`].
    pub(crate) fn join(
        self: &Arc<Self>,
        (first, second): (Reservation<Arc<Self>>, Reservation<Arc<Self>>),
    ) -> Result {
        self.send_cq.add(self.number, self.clone(), first)?;
        if !Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            self.recv_cq.add(self.number, self.clone(), second)?;
        }
        Ok(())
    }

    /// The device has destroyed it: removes it from its CQs. None of its completions is taken from
    /// now on. Those that are there free the places of their receives in an SRQ. A second call does
    /// nothing.
    pub(crate) fn leave(&self) {
        if let Some(srq) = &self.shape.srq {
            self.recv_cq.each_recv(self.number, |cqe| {
                let _gone = srq.take(cqe);
            });
        }
        self.send_cq.remove(self.number);
        self.recv_cq.remove(self.number);
    }

    /// What may be posted in its state from now on.
    pub(crate) fn permit(&self, takes_recvs: bool, is_ready: bool) {
        let state = &mut self.held.lock().state;
        state.takes_recvs = takes_recvs && self.shape.srq.is_none();
        state.is_ready = is_ready;
    }

    /// It was reset: drops all that is posted. Its completions that are in the CQs before these
    /// indices are old. Nothing may be posted meanwhile. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL`: its rings cannot be made anew.
    pub(crate) fn renew(&self, epoch: u32, old: Option<(Index, Index)>) -> Result {
        let old_sends = old.and_then(|(past, _)| self.send_cq.taken_at(past));
        let old_recvs = old.and_then(|(_, past)| self.recv_cq.taken_at(past));
        {
            let state = &mut self.held.lock().state;
            state.sends.reset(old_sends);
            state.recvs.reset(old_recvs);
            state.completer.reset(old_recvs);
        }
        // With the lock released, which keeps interrupts off: the rings may be large.
        self.held.take(|pair| {
            if let Some(rings) = pair.map(QueuePair::retire) {
                rings.clear();
                let ids = (self.send_cq.ring, self.recv_cq.ring);
                let pair = QueuePair::new(self.number, epoch, ids, &rings)?;
                self.held.lock().memory = Some(pair);
            }
            Ok(())
        })
    }

    /// Writes a send into its ring.
    fn put_send(&self, inner: &mut QpInner, request: &SendRequest<'_, Verbs>) -> Result {
        let (sges, has_address) = (request.sges.len(), request.to.is_some());
        if !inner.state.is_ready || !self.shape.admits(request.operation, sges, has_address) {
            return Err(EINVAL);
        }
        if inner.state.sends.is_full() {
            return Err(ENOMEM);
        }
        let (id, what) = (request.id, Posted::Send(request.operation));
        let (past, signal) = match inner.live() {
            Some((pair, ..)) => {
                let signal = request.signaled || self.shape.signal_all;
                let mut post = |buffer| {
                    let (words, used) = head(request, buffer)?;
                    let head = words.get(..used).ok_or(EINVAL)?;
                    let posted = pair.post_send(head, request.sges.iter().map(sge), signal, id);
                    posted.map_err(refused)
                };
                let past = match &request.registration {
                    Some(register) => {
                        let region = register.region.registered_by(register.key)?;
                        region.give((register.addr, register.bytes), post)?
                    }
                    None => post(BufferList::default())?,
                };
                (past, signal)
            }
            None => (Index::ZERO, true),
        };
        inner.state.sends.push(past, Request { id, what, signal });
        Ok(())
    }

    /// Writes a receive into its ring.
    fn put_recv(&self, inner: &mut QpInner, asked: &RecvRequest<'_>) -> Result {
        if !inner.state.takes_recvs || asked.sges.len() > self.shape.max_recv_sge as usize {
            return Err(EINVAL);
        }
        if inner.state.recvs.is_full() {
            return Err(ENOMEM);
        }
        let request = Request::receive(Recv::new(asked), self.shape.datagrams);
        let past = match inner.live() {
            Some((pair, ..)) => {
                let posted = pair.post_recv(0, asked.sges.iter().map(sge), request.id);
                posted.map_err(refused)?
            }
            None => Index::ZERO,
        };
        inner.state.recvs.push(past, request);
        Ok(())
    }

    /// Posts all of a list by `put`, then rings. The CQ of the queue has an event if the device is lost;
    /// soon, since the ULP may hold a lock that its handler takes.
    fn post<R>(
        &self,
        mut requests: impl Iterator<Item = Result<R>>,
        cq: &UlpCq<Self>,
        mut put: impl FnMut(&mut QpInner, &R) -> Result,
        ring: impl FnOnce(&mut QueuePair, &Doorbells<'_>),
    ) -> Result {
        let mut inner = self.held.lock();
        let posted = requests.try_for_each(|request| put(&mut inner, &request?));
        match inner.live() {
            Some((pair, lease, _)) => ring(pair, &self.function.doorbells(lease.dev())),
            None => {
                drop(inner);
                cq.armed.defer();
            }
        }
        posted
    }

    /// Posts sends, until one is refused or an error. Any context.
    ///
    /// # Errors
    ///
    /// Of the first that is not posted: `EINVAL`, `EOPNOTSUPP` for a right that does not exist,
    /// `ENOMEM` if the queue is full.
    pub(crate) fn post_send<'a>(
        &self,
        requests: impl Iterator<Item = Result<SendRequest<'a, Verbs>>>,
    ) -> Result {
        self.post(
            requests,
            &self.send_cq,
            |inner, request| self.put_send(inner, request),
            QueuePair::ring_send,
        )
    }

    /// Posts receives, as [`Self::post_send`].
    ///
    /// # Errors
    ///
    /// As of [`Self::post_send`].
    pub(crate) fn post_recv<'a>(
        &self,
        requests: impl Iterator<Item = Result<RecvRequest<'a>>>,
    ) -> Result {
        self.post(
            requests,
            &self.recv_cq,
            |inner, request| self.put_recv(inner, request),
            QueuePair::ring_recv,
        )
    }
}

impl Completes for UlpQp {
    fn complete(&self, cqe: &Cqe, seen: Seen<Cq>, taken: u64) -> Option<Request> {
        let index = Index::new(cqe.index);
        let is_recv = cqe.flags & cqe_flags::RECV != 0;
        let mut inner = self.held.lock();
        let Inner { memory, state, .. } = &mut *inner;
        if let (true, Some(srq)) = (is_recv, &self.shape.srq) {
            let recv = state.completer.complete(seen, taken, || srq.take(cqe))?;
            return Some(Request::receive(recv, self.shape.datagrams));
        }
        let pair = memory.as_mut()?;
        if is_recv {
            state.recvs.complete(pair.rq.as_mut()?, index, seen, taken)
        } else {
            state.sends.complete(&mut pair.sq, index, seen, taken)
        }
    }

    fn reclaim(&self, published: Published<Cq>) {
        if let Some(pair) = &mut self.held.lock().memory {
            pair.reclaim(published);
        }
    }

    fn has_pending(&self, cq: RingId) -> bool {
        let state = &self.held.lock().state;
        (self.recv_cq.ring == cq && state.recvs.count() != 0)
            || (self.send_cq.ring == cq && state.sends.count() != 0)
    }

    fn pop(&self, cq: RingId) -> Option<Request> {
        let state = &mut self.held.lock().state;
        if self.recv_cq.ring == cq {
            if let Some(request) = state.recvs.pop() {
                return Some(request);
            }
        }
        match self.send_cq.ring == cq {
            true => state.sends.pop(),
            false => None,
        }
    }

    fn events(&self) -> &Events<QpEvent> {
        &self.events
    }
}

/// Its CQs flush what it has posted.
impl Client for UlpQp {
    fn cut(&self) {
        self.held.cut();
    }

    /// One on an SRQ takes no receive any more, which `ib_drain_qp()` waits for.
    fn flush(&self) {
        let had_ended = replace(&mut self.held.lock().state.has_ended, true);
        if self.shape.srq.is_some() && !had_ended {
            self.events.raise(QpEvent::LastReceive);
        }
    }

    fn unmap(&self) {
        self.held.take(|pair| drop(pair.map(QueuePair::retire)));
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sends, recvs) = {
            let state = &self.held.lock().state;
            (state.sends.count(), state.recvs.count())
        };
        writeln!(f, "qp {} sends {sends} recvs {recvs}", self.number)
    }
}

/// Words of the longest head: that of a registration.
const WORDS: usize = RegWqe::WORDS;

/// A head in the words of the longest, and the number of its own.
fn widened<const N: usize>(head: [u64; N]) -> ([u64; WORDS], usize) {
    const { assert!(N <= WORDS) };
    let mut words = [0; WORDS];
    for (word, value) in words.iter_mut().zip(head) {
        *word = value;
    }
    (words, N)
}

/// The address in the head of a datagram.
fn addressed(to: &Destination) -> UdWqe {
    let (gid, gid_high) = words(to.address.gid);
    let (mac_low, mac_high) = mac_parts(to.address.mac);
    let mut head = UdWqe {
        dest: Number::from_raw(to.qpn),
        q_key: to.q_key,
        source: to.address.source,
        hop_limit: to.address.hop_limit,
        traffic_class: to.address.traffic_class,
        gid,
        gid_high,
        mac_low,
        mac_high,
        ..UdWqe::default()
    };
    head.set_flow_label(to.address.flow_label);
    head
}

/// The words of a send before its SGEs, and their number; without blocks, SGEs and signaling. A
/// registration is of `buffer`.
///
/// # Errors
///
/// `EOPNOTSUPP`: a right that does not exist.
fn head(request: &SendRequest<'_, Verbs>, buffer: BufferList) -> Result<([u64; WORDS], usize)> {
    let opcode = match (request.operation, request.imm) {
        (Operation::Send, None) if request.invalidate.is_some() => opcode::SEND_INV,
        (Operation::Send, None) => opcode::SEND,
        (Operation::Send, Some(_)) => opcode::SEND_IMM,
        (Operation::Write, None) => opcode::WRITE,
        (Operation::Write, Some(_)) => opcode::WRITE_IMM,
        (Operation::Read, _) => opcode::READ,
        (Operation::CompareSwap, _) => opcode::COMPARE_SWAP,
        (Operation::FetchAdd, _) => opcode::FETCH_ADD,
        (Operation::Register, _) => opcode::REG_MR,
        (Operation::Invalidate, _) => opcode::LOCAL_INV,
    };
    let receives = request.operation == Operation::Send || request.imm.is_some();
    let mut flags = 0;
    if request.fence {
        flags |= send_flags::FENCE;
    }
    if request.solicited && receives {
        flags |= send_flags::SOLICITED;
    }
    let (remote_addr, rkey) = request.remote;
    // That of the peer takes the place of immediate data, an own one that of the peer's key.
    let (imm, rkey) = match (request.operation, request.invalidate) {
        (Operation::Invalidate, Some(own)) => (0, own),
        (_, invalidate) => (request.imm.or(invalidate).unwrap_or(0), rkey),
    };
    Ok(if let Some(register) = &request.registration {
        let head = RegWqe {
            opcode,
            flags,
            access: rights(register.access)?.into(),
            addr: register.addr,
            key: register.key,
            buffer,
            ..RegWqe::default()
        };
        widened(head.encode())
    } else if let Some(to) = &request.to {
        let head = UdWqe {
            opcode,
            flags,
            imm,
            ..addressed(to)
        };
        widened(head.encode())
    } else if matches!(
        request.operation,
        Operation::CompareSwap | Operation::FetchAdd
    ) {
        let (compare_add, swap) = request.operands;
        let head = AtomicWqe {
            opcode,
            flags,
            remote_addr,
            rkey,
            compare_add,
            swap: if opcode == opcode::FETCH_ADD { 0 } else { swap },
            ..AtomicWqe::default()
        };
        widened(head.encode())
    } else {
        let head = SendWqe {
            opcode,
            flags,
            imm,
            remote_addr,
            rkey,
            ..SendWqe::default()
        };
        widened(head.encode())
    })
}

#[kernel::macros::kunit_tests(qpair_ulp_qp)]
mod tests {
    use super::*;
    use crate::{
        kernel::rdma::{
            Gid,
            UdAddress, //
        },
        queue::index::Depth, //
    };

    #[test]
    fn a_datagram_has_its_address() {
        let to = Destination {
            address: UdAddress {
                gid: Gid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
                source: 0x1718,
                hop_limit: 0x19,
                traffic_class: 0x1a,
                flow_label: 0xb_1c1d,
                mac: [0x21, 0x22, 0x23, 0x24, 0x25, 0x26],
            },
            qpn: 0x27,
            q_key: 0x2829_2a2b,
        };
        let head = addressed(&to).encode();
        let expected = [
            0,
            0,
            0x2829_2a2b_0000_0027,
            0x1c1d_0b00_1a19_1718,
            0x0807_0605_0403_0201,
            0x100f_0e0d_0c0b_0a09,
            0x0000_2625_2423_2221,
            0,
        ];
        assert_eq!(head, expected);
    }

    fn shape(datagrams: bool, registers: bool) -> UlpShape {
        UlpShape {
            sizes: Sizes {
                sq: Depth::new(8).unwrap(),
                rq: None,
            },
            max_send_wr: 8,
            max_send_sge: 2,
            srq: None,
            max_recv_sge: 0,
            datagrams,
            signal_all: false,
            registers,
        }
    }

    #[test]
    fn a_send_that_its_queue_pair_does_not_have_is_refused() {
        let (rc, uc, ud) = (shape(false, true), shape(false, false), shape(true, false));
        for operation in [Operation::Register, Operation::Invalidate] {
            assert!(rc.admits(operation, 0, false));
            assert!(!uc.admits(operation, 0, false));
            assert!(!ud.admits(operation, 0, true));
        }
        assert!(uc.admits(Operation::Write, 2, false));
        assert!(!uc.admits(Operation::Write, 3, false));
        assert!(ud.admits(Operation::Send, 2, true));
        assert!(!ud.admits(Operation::Send, 2, false));
        assert!(!rc.admits(Operation::Send, 2, true));
    }
}
