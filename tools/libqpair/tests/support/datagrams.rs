// SPDX-License-Identifier: GPL-2.0
//! Datagrams: what arrives with which header, what is dropped, what is refused.

use qpair::{
    Address, Ah, Completion, Context, Counter, Cq, CqOptions, Datagram, Destination, Done, Error,
    Memory, Mr, Number, Pd, PostError, Qp, QpOptions, QpState, Receive, Rts, Sge, Ud, GRH_BYTES,
    OWN_Q_KEY,
};

use super::bench::{poll, ALL};
use super::{machine, Fake, GID};

const Q_KEY: u32 = 0x1111;

/// Two queue pairs of UD with one CQ, and memory: first the sender's, then the receiver's.
struct Post {
    pd: Pd,
    cq: Cq,
    mr: Mr,
    ah: Ah,
    near: Qp<Rts, Ud>,
    far: Qp<Rts, Ud>,
}

fn start(pd: &Pd, cq: &Cq, q_key: u32) -> Qp<Rts, Ud> {
    let options = QpOptions::ud(cq, cq).max_recv_sge(7);
    let qp = Qp::new(pd, &options).unwrap();
    qp.init(q_key).unwrap().rtr().unwrap().rts().unwrap()
}

/// Where the receiver's memory begins.
const THERE: usize = 1 << 15;

impl Post {
    fn new(context: &Context) -> Self {
        let pd = Pd::new(context).unwrap();
        let cq = Cq::new(context, &CqOptions::new(64)).unwrap();
        Self {
            mr: Mr::new(&pd, Memory::new(1 << 16).unwrap(), ALL).unwrap(),
            ah: Ah::own(&pd).unwrap(),
            near: start(&pd, &cq, Q_KEY),
            far: start(&pd, &cq, Q_KEY),
            pd,
            cq,
        }
    }

    fn to_far(&self) -> Destination {
        self.ah.to(self.far.number(), Q_KEY)
    }

    /// Posts a receive for so many bytes of payload.
    fn receive(&self, id: u64, payload: usize) {
        let piece = [self.mr.sge(THERE, GRH_BYTES + payload)];
        self.far.post_recv(&[Receive::new(id, &piece)]).unwrap();
    }

    fn there(&self, at: usize, bytes: usize) -> Vec<u8> {
        let mut found = vec![0; bytes];
        self.mr.read(THERE + at, &mut found);
        found
    }

    /// The completion of the receive 1, which the datagram 2 of these bytes has filled.
    fn arrived(&self, payload: &[u8]) -> Completion {
        let came = poll(&self.cq);
        let [receive, send] = came[..] else {
            panic!("{came:?}");
        };
        assert_eq!((receive.id(), send.id()), (1, 2), "{came:?}");
        assert_eq!((receive.done(), send.done()), (Done::Receive, Done::Send));
        assert!(receive.check().is_ok() && send.check().is_ok());
        assert_eq!(receive.bytes() as usize, GRH_BYTES + payload.len());
        assert_eq!(receive.src(), Some(self.near.number()));
        assert_eq!(send.src(), None);
        let grh = self.there(0, GRH_BYTES);
        assert_eq!(grh[..4], [0x60, 0, 0, 0], "a header");
        assert_eq!((&grh[8..24], &grh[24..]), (&GID[..], &GID[..]));
        assert_eq!(self.there(GRH_BYTES, payload.len()), payload);
        receive
    }
}

/// What a destination says of the header is there.
pub(crate) fn headers_say_what_is_asked() {
    let (_fake, context) = machine();
    let b = Post::new(&context);
    let to = b.to_far();
    let marked = to.traffic_class(0xb8).flow_label(0xa_5c31).hop_limit(64);
    let cases = [
        (to, [0x60, 0, 0, 0], 1),
        (marked, [0x6b, 0x8a, 0x5c, 0x31], 64),
        (marked.flow_label(u32::MAX), [0x6b, 0x8f, 0xff, 0xff], 64),
        (marked.hop_limit(0), [0x6b, 0x8a, 0x5c, 0x31], 1),
    ];
    for (to, first, hops) in cases {
        for inline in [false, true] {
            b.receive(1, 3);
            let piece = [b.mr.sge(0, 3)];
            let datagram = match inline {
                false => Datagram::send(2, to, &piece),
                true => Datagram::send_inline(2, to, b"abc"),
            };
            b.near.post_send(&[datagram.signaled()]).unwrap();
            assert_eq!(poll(&b.cq).len(), 2);
            let grh = b.there(0, GRH_BYTES);
            assert_eq!((&grh[..4], grh[7]), (&first[..], hops));
        }
    }
}

pub(crate) fn every_form_arrives() {
    let (_fake, context) = machine();
    let b = Post::new(&context);
    let data: Vec<u8> = (0..4096).map(|i| (i * 31 + i / 256) as u8).collect();
    b.mr.write(0, &data);
    let to = b.to_far();
    // One piece, and none.
    for bytes in [0, 1, 64, 4096] {
        let piece = [b.mr.sge(0, bytes)];
        b.receive(1, bytes);
        let datagram = Datagram::send(2, to, &piece).signaled();
        b.near.post_send(&[datagram]).unwrap();
        assert_eq!(b.arrived(&data[..bytes]).imm(), None);
        b.receive(1, bytes);
        b.near.post_sends([datagram.imm(bytes as u32)]).unwrap();
        assert_eq!(b.arrived(&data[..bytes]).imm(), Some(bytes as u32));
    }
    b.receive(1, 0);
    b.near
        .post_send(&[Datagram::send(2, to, &[]).signaled()])
        .unwrap();
    b.arrived(&[]);
    // Pieces of one block to four.
    let pieces: Vec<Sge> = (0..12).map(|i| b.mr.sge(i * 100, 100)).collect();
    for count in 1..=pieces.len() {
        b.receive(1, 1200);
        let datagram = Datagram::send(2, to, &pieces[..count]).signaled();
        b.near.queue_send(&datagram).unwrap();
        b.near.ring();
        b.arrived(&data[..count * 100]);
    }
    // Inline data of every length, which must not be needed after the post.
    for len in 0..=192 {
        let mut inline = data[..len].to_vec();
        b.receive(1, len);
        let datagram = Datagram::send_inline(2, to, &inline).signaled();
        b.near.queue_send(&datagram).unwrap();
        inline.fill(0xee);
        b.near.ring();
        b.arrived(&data[..len]);
    }
    assert_eq!(b.cq.stale(), 0);
    // The answer goes to the sender's number; it is the same queue pair of another domain.
    let pd = Pd::new(&context).unwrap();
    let cq = Cq::new(&context, &CqOptions::new(64)).unwrap();
    let other = start(&pd, &cq, Q_KEY);
    other
        .post_send(&[Datagram::send_inline(3, b.to_far(), b"hello")])
        .unwrap();
    assert!(poll(&b.cq).is_empty(), "no receive");
    b.receive(1, 5);
    other
        .post_send(&[Datagram::send_inline(3, b.to_far(), b"hello").solicited()])
        .unwrap();
    let came = poll(&b.cq);
    assert_eq!(came[0].src(), Some(other.number()));
    assert!(poll(&cq).is_empty(), "neither send is signaled");
    // Unsignaled ones leave the queue never without a completion.
    for _ in 0..100 {
        let datagram = Datagram::send_inline(4, to, b"x");
        if other.post_send(&[datagram]).is_err() {
            assert!(!poll(&cq).is_empty(), "full, and nothing comes");
            other.post_send(&[datagram]).unwrap();
        }
    }
    // Only those that ask for a completion have one, if so many ask that the queue needs no other.
    let hello = |id| Datagram::send_inline(id, to, b"x");
    other.post_send(&[hello(5).signaled()]).unwrap();
    assert!(!poll(&cq).is_empty());
    for id in 0..48 {
        let signaled = id % 3 == 2;
        let datagram = if signaled {
            hello(id).signaled()
        } else {
            hello(id)
        };
        other.post_send(&[datagram]).unwrap();
        assert_eq!(poll(&cq).len(), usize::from(signaled), "{id}");
    }
}

fn dropped(fake: &Fake) -> u64 {
    fake.machine().function.counter(Counter::Dropped)
}

pub(crate) fn what_is_not_for_it_is_dropped() {
    let (fake, context) = machine();
    let b = Post::new(&context);
    let number = b.far.number();
    let other = Ah::new(&b.pd, Address::Lid(7)).unwrap();
    assert_eq!(other.gid(), [0; 16]);
    let mut gid = GID;
    gid[15] ^= 1;
    let strange = Ah::new(&b.pd, Address::Gid { gid, source: 0 }).unwrap();
    b.receive(1, 5);
    let cases = [
        ("another Q_Key", b.ah.to(number, Q_KEY + 1)),
        ("no queue pair", b.ah.to(Number::from_raw(0x12_3456), Q_KEY)),
        ("another LID", other.to(number, Q_KEY)),
        ("another GID", strange.to(number, Q_KEY)),
    ];
    for (what, to) in cases {
        let before = dropped(&fake);
        let datagram = Datagram::send_inline(2, to, b"hello").signaled();
        b.near.post_send(&[datagram]).unwrap();
        let came = poll(&b.cq);
        assert_eq!(came.len(), 1, "{what}: {came:?}");
        assert!(!came[0].is_receive() && came[0].check().is_ok(), "{what}");
        assert_eq!(dropped(&fake), before + 1, "{what}");
    }
    // Too long for the receive, which the next one gets.
    let datagram = Datagram::send_inline(2, b.to_far(), b"six me").signaled();
    b.near.post_send(&[datagram]).unwrap();
    assert_eq!(poll(&b.cq).len(), 1);
    // By the sender's own Q_Key.
    let to = b.ah.to(number, OWN_Q_KEY);
    let datagram = Datagram::send_inline(2, to, b"hello").signaled();
    b.near.post_send(&[datagram]).unwrap();
    b.arrived(b"hello");
    // The destination stays when the handle is gone.
    let to = b.to_far();
    let Post { near, far, ah, .. } = &b;
    assert_eq!(near.query().unwrap().q_key, Q_KEY);
    assert_eq!(far.query().unwrap().state, QpState::Rts);
    let before = fake.machine().handles;
    drop((other, strange));
    assert_eq!(fake.machine().handles, before - 2);
    assert_eq!(ah.to(far.number(), Q_KEY), to);
}

pub(crate) fn lengths_have_limits() {
    let (_fake, context) = machine();
    let b = Post::new(&context);
    let to = b.to_far();
    let pieces = [b.mr.sge(0, 1); 13];
    let long = [b.mr.sge(0, 4096), b.mr.sge(0, 1)];
    let inline = [0; 193];
    for datagram in [
        Datagram::send(1, to, &pieces),
        Datagram::send(1, to, &long),
        Datagram::send_inline(1, to, &inline),
    ] {
        let posted = b.near.post_send(&[datagram]);
        let refused = matches!(posted, Err(PostError::TooLarge { posted: 0, .. }));
        assert!(refused, "{datagram:?}: {posted:?}");
    }
    assert_eq!(b.near.send_room(), 16, "and none of them took a slot");
    // A full queue, and a reset, as of others.
    let full = b.near.post_send(&[Datagram::send(1, to, &pieces[..12]); 5]);
    assert_eq!(full, Err(PostError::Full { posted: 4 }));
    assert!(!poll(&b.cq).is_empty(), "the queue is never silent");
    let one = Datagram::send(1, to, &pieces[..12]).signaled();
    b.near.post_send(&[one]).unwrap();
    let near = b.near.reset().unwrap();
    assert!(poll(&b.cq).is_empty(), "entries from before the reset");
    let near = near.init(9).unwrap();
    assert_eq!(near.query().unwrap().q_key, 9);
}

pub(crate) fn addresses() {
    let (fake, context) = machine();
    assert_eq!(context.gid(0).unwrap(), GID);
    let pd = Pd::new(&context).unwrap();
    let by_gid = Address::Gid {
        gid: GID,
        source: 0,
    };
    for address in [Address::Lid(context.attributes().lid), by_gid] {
        assert_eq!(Ah::new(&pd, address).unwrap().gid(), GID);
    }
    // A port of RoCE has GIDs only, or none.
    fake.machine().roce = true;
    let context = Context::new(fake.clone()).unwrap();
    let pd = Pd::new(&context).unwrap();
    let [ah, other] = [Ah::own(&pd).unwrap(), Ah::own(&pd).unwrap()];
    assert_eq!((ah.gid(), context.gid(0).unwrap()), (GID, [0; 16]));
    let to = |ah: &Ah| ah.to(Number::from_raw(5), 1);
    assert_eq!(to(&ah), to(&other));
    let source = Address::Gid {
        gid: GID,
        source: 1,
    };
    let other = Ah::new(&pd, source).unwrap();
    assert_ne!(to(&ah), to(&other), "what is sent from is in the address");
    fake.machine().gids = 0;
    let none = Ah::own(&pd);
    assert!(matches!(none, Err(Error::NoAddress)), "{none:?}");
}
