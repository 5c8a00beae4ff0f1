// SPDX-License-Identifier: GPL-2.0
//! Two connected queue pairs, and what a test needs beside them.

use qpair::{Access, Completion, Context, Cq, CqOptions, Init, Memory, Mr, Pd, Qp, QpOptions, Rts};

pub(crate) const ALL: Access = Access::all();
pub(crate) const PEER: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

pub(crate) fn connect(pd: &Pd, near: &QpOptions<'_>, far: &QpOptions<'_>) -> (Qp<Rts>, Qp<Rts>) {
    let (near, far) = (Qp::new(pd, near).unwrap(), Qp::new(pd, far).unwrap());
    let (to_near, to_far) = (near.number(), far.number());
    let ready = |qp: Qp<Init>, peer| qp.rtr(peer).unwrap().rts().unwrap();
    let near = ready(near.init(PEER).unwrap(), to_far);
    (near, ready(far.init(PEER).unwrap(), to_near))
}

/// A domain, a CQ, a region and two connected queue pairs.
pub(crate) struct Bench {
    pub(crate) context: Context,
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
    pub(crate) mr: Mr,
    pub(crate) near: Qp<Rts>,
    pub(crate) far: Qp<Rts>,
}

pub(crate) fn bench(context: Context) -> Bench {
    let pd = Pd::new(&context).unwrap();
    let cq = Cq::new(&context, &CqOptions::new(64)).unwrap();
    let mr = Mr::new(&pd, Memory::new(1 << 16).unwrap(), ALL).unwrap();
    let options = QpOptions::new(&cq, &cq).max_recv_sge(7);
    let (near, far) = connect(&pd, &options, &options);
    Bench {
        context,
        pd,
        cq,
        mr,
        near,
        far,
    }
}

pub(crate) fn poll(cq: &Cq) -> Vec<Completion> {
    let mut into = [Completion::default(); 128];
    cq.poll(&mut into).to_vec()
}
