// SPDX-License-Identifier: GPL-2.0
//! Two connected queue pairs, and what a test needs beside them.

use std::os::unix::net::UnixStream;
use std::thread;

use qpair::{
    Access, Completion, Context, Cq, CqOptions, Endpoint, EndpointError, EndpointOptions, Init,
    Memory, Mr, Pd, Qp, QpOptions, Rts,
};

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

/// Two endpoints that are connected.
pub(crate) fn pair(
    context: &Context,
    a: &EndpointOptions,
    b: &EndpointOptions,
) -> (Endpoint, Endpoint) {
    let (here, there) = UnixStream::pair().unwrap();
    both(
        || Endpoint::connect(context, a, here),
        || Endpoint::connect(context, b, there),
    )
}

/// Two endpoints, each of which waits for the other one to connect.
pub(crate) fn both(
    near: impl FnOnce() -> Result<Endpoint, EndpointError>,
    far: impl FnOnce() -> Result<Endpoint, EndpointError> + Send,
) -> (Endpoint, Endpoint) {
    thread::scope(|scope| {
        let far = scope.spawn(far);
        (near().unwrap(), far.join().unwrap().unwrap())
    })
}

/// Each endpoint sends 30 messages, which the other one receives.
pub(crate) fn exchange(near: &mut Endpoint, far: &mut Endpoint) {
    let mut into = [0; 64];
    for n in 0..30_u32 {
        near.send(&n.to_le_bytes()).unwrap();
        far.send(&n.to_le_bytes()).unwrap();
        near.recv(&mut into).unwrap();
        far.recv(&mut into).unwrap();
    }
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
