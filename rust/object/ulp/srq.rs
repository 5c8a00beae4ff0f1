// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues of kernel ULPs.

use super::{
    super::registered::Registered,
    held::{
        Held,
        Inner, //
    },
    pending::{
        refused,
        sge,
        Recv, //
    }, //
};
use crate::{
    abi::{
        doorbell,
        entry::Cqe,
        Number, //
    },
    hw::{
        function::Function,
        qp::post_recv,
        ring::Ring, //
    },
    kernel::{
        gate::Pass,
        rdma::RecvRequest, //
    },
    life::client::Client,
    queue::{
        credit::RingId,
        index::{
            Depth,
            Index, //
        },
        producer::SrqProducer,
        receives::{
            Place,
            Receives, //
        }, //
    }, //
};
use kernel::{
    fmt,
    prelude::*,
    static_lock_class,
    sync::Arc,
    warn_on, //
};

/// What is posted, by place.
type Recvs = Receives<KVVec<Place<Recv>>>;

/// A shared receive queue that a kernel ULP posts to.
#[pin_data]
pub(crate) struct UlpSrq {
    function: Arc<Function>,
    number: Number,
    /// A receive takes `64 << stride` bytes of the ring.
    stride: u8,
    /// SGEs of a receive.
    max_sge: u32,
    #[pin]
    held: Held<SrqProducer<Ring>, Recvs>,
}

impl UlpSrq {
    /// The driver's side of SRQ `number`, created in `ring`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        registered: &Registered,
        pass: &Pass<'_>,
        number: Number,
        ring: Ring,
        (depth, stride, max_sge): (Depth, u8, u32),
    ) -> Result<Arc<Self>> {
        let (id, entries) = (RingId::new(number.raw(), registered.epoch), depth.entries());
        let ring = SrqProducer::new_srq(id, ring, depth, stride, entries).map_err(|_| EINVAL)?;
        let mut places = KVVec::new();
        places.resize(entries as usize, Place::Free(0), GFP_KERNEL)?;
        let function = registered.device.function.clone();
        let (lease, lock) = (pass.lease(), (c"UlpSrq::held", static_lock_class!()));
        Arc::pin_init(
            pin_init!(Self {
                function,
                number,
                stride,
                max_sge,
                held <- Held::new(ring, Some(lease), Receives::new(places), lock),
            }),
            GFP_KERNEL,
        )
    }

    /// Writes a receive into the ring. One that is posted to a lost device stays its ULP's.
    fn put(
        &self,
        inner: &mut Inner<SrqProducer<Ring>, Recvs>,
        request: &RecvRequest<'_>,
    ) -> Result {
        if request.sges.len() > self.max_sge as usize {
            return Err(EINVAL);
        }
        let Some((ring, _, recvs)) = inner.live() else {
            return Ok(());
        };
        let place = recvs.next().ok_or(ENOMEM)?;
        let posted = post_recv(
            ring,
            (self.number, self.stride),
            place.into(),
            request.sges.iter().map(sge),
            request.id,
        );
        recvs.push(posted.map_err(refused)?, Recv::new(request));
        Ok(())
    }

    /// Posts receives, until one is refused or an error. Any context.
    ///
    /// # Errors
    ///
    /// Of the first that is not posted: `EINVAL`, `ENOMEM` if the queue is full.
    pub(crate) fn post_recv<'a>(
        &self,
        mut requests: impl Iterator<Item = Result<RecvRequest<'a>>>,
    ) -> Result {
        let mut inner = self.held.lock();
        let posted = requests.try_for_each(|request| self.put(&mut inner, &request?));
        if let Some((ring, lease, _)) = inner.live() {
            let doorbells = self.function.doorbells(lease.dev());
            ring.ring(|tail| doorbells.ring(doorbell::SRQ, self.number, tail.get()));
        }
        posted
    }

    /// Takes the receive of a completion. Under the locks of the CQ and the queue pair.
    pub(super) fn take(&self, cqe: &Cqe) -> Option<Recv> {
        let mut inner = self.held.lock();
        let Inner { memory, state, .. } = &mut *inner;
        state.take(memory.as_mut()?, cqe.wr_id, Index::new(cqe.index))
    }
}

impl Client for UlpSrq {
    fn cut(&self) {
        self.held.cut();
    }

    fn unmap(&self) {
        self.held
            .take(|ring| warn_on!(ring.is_some_and(|ring| ring.audit().is_err())));
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recvs = {
            let inner = self.held.lock();
            inner.memory.as_ref().map_or(0, SrqProducer::in_flight)
        };
        writeln!(f, "srq {} recvs {recvs}", self.number)
    }
}
