// SPDX-License-Identifier: GPL-2.0
//! The library's data path against the device model, in one process.

mod support;

use std::time::Duration;

use qpair::{
    Access, AsyncEvent, Channel, Completion, Context, Cq, CqOptions, Done, Error, Init, Memory, Mr,
    Pd, PostError, Qp, QpOptions, Receive, Remote, Rts, Sge, Status, Wants, WorkRequest,
};
use qpair_abi::entry::{cqe_flags, opcode, Cqe};
use rustix::io::Errno;
use support::{machine, Fake};

const ALL: Access = Access::all();
const PEER: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ);

fn connect(pd: &Pd, near: &QpOptions<'_>, far: &QpOptions<'_>) -> (Qp<Rts>, Qp<Rts>) {
    let (near, far) = (pd.create_qp(near).unwrap(), pd.create_qp(far).unwrap());
    let (to_near, to_far) = (near.number(), far.number());
    let ready = |qp: Qp<Init>, peer| qp.rtr(peer).unwrap().rts().unwrap();
    let near = ready(near.init(PEER).unwrap(), to_far);
    (near, ready(far.init(PEER).unwrap(), to_near))
}

/// A domain, a CQ, a region and two connected queue pairs.
struct Bench {
    context: Context,
    pd: Pd,
    cq: Cq,
    mr: Mr,
    near: Qp<Rts>,
    far: Qp<Rts>,
}

fn bench(context: Context) -> Bench {
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(&CqOptions::new(64)).unwrap();
    let mr = pd.register(Memory::new(1 << 16).unwrap(), ALL).unwrap();
    let options = QpOptions::new(&cq, &cq).recv_sges(7);
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

fn poll(cq: &Cq) -> Vec<Completion> {
    let mut into = [Completion::default(); 128];
    cq.poll(&mut into).to_vec()
}

/// Bytes that tell where they come from.
fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 256) as u8 ^ seed).collect()
}

fn read(mr: &Mr, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    mr.read(offset, &mut bytes);
    bytes
}

#[test]
fn every_operation_moves_its_bytes() {
    let (_fake, context) = machine();
    let b = bench(context);
    let (from, to) = (0, 1 << 15);
    let data = pattern(1, 9000);
    b.mr.write(from, &data);
    let here = [b.mr.sge(from, 9000)];
    let there = [b.mr.sge(to, 9000)];

    let check = |what: &str, len: usize| {
        assert_eq!(read(&b.mr, to, len), data[..len], "{what}");
        b.mr.write(to, &vec![0; 9000]);
    };
    let expect = |done: &[(u64, Done, bool, Option<u32>)]| {
        let mut came: Vec<_> = poll(&b.cq)
            .iter()
            .map(|c| (c.check().unwrap().id, c.done, c.is_receive, c.imm))
            .collect();
        came.sort_by_key(|c| c.0);
        assert_eq!(came, done);
    };

    b.far.post_recv(&[Receive::new(1, &there)]).unwrap();
    let send = WorkRequest::send(2, &here).signaled();
    b.near.post_send(&[send]).unwrap();
    expect(&[(1, Done::Receive, true, None), (2, Done::Send, false, None)]);
    check("send", 9000);

    b.far.post_recv(&[Receive::new(3, &there)]).unwrap();
    b.near.post_send(&[send.imm(0xabcd)]).unwrap();
    expect(&[
        (2, Done::Send, false, None),
        (3, Done::Receive, true, Some(0xabcd)),
    ]);
    check("send with immediate", 9000);

    let write = WorkRequest::write(4, &here, b.mr.remote(to)).signaled();
    b.near.post_send(&[write]).unwrap();
    expect(&[(4, Done::Write, false, None)]);
    check("write", 9000);

    b.far.post_recv(&[Receive::new(5, &[])]).unwrap();
    b.near.post_send(&[write.imm(7)]).unwrap();
    expect(&[
        (4, Done::Write, false, None),
        (5, Done::ReceiveWrite, true, Some(7)),
    ]);
    check("write with immediate", 9000);

    let fetch = WorkRequest::read(6, &there, b.mr.remote(from)).signaled();
    b.near.post_send(&[fetch]).unwrap();
    expect(&[(6, Done::Read, false, None)]);
    check("read", 9000);

    // Inline data of every length that fits, which must not be needed after the post.
    for len in 0..=b.context.attributes().max_inline as usize {
        let mut inline = data[..len].to_vec();
        b.far.post_recv(&[Receive::new(7, &there)]).unwrap();
        b.near
            .queue_send(&WorkRequest::send_inline(8, &inline).signaled())
            .unwrap();
        inline.fill(0xee);
        b.near.ring();
        let came = poll(&b.cq);
        assert_eq!(came.len(), 2, "{len} inline bytes");
        assert!(came.iter().all(|c| c.check().is_ok()));
        assert_eq!(
            came.iter().find(|c| c.is_receive).unwrap().bytes,
            len as u32
        );
        check("inline", len);
    }

    // Pieces of all sizes, gathered into other pieces.
    let sges = |at: usize, sizes: &[usize]| -> Vec<Sge> {
        let mut at = at;
        let mut sge = |&len: &usize| {
            at += len;
            b.mr.sge(at - len, len)
        };
        sizes.iter().map(&mut sge).collect()
    };
    let out = sges(from, &[1, 0, 700, 63, 64, 4097, 5]);
    let into = sges(to, &[3000, 1, 0, 1929, 0, 0, 0]);
    b.far.post_recv(&[Receive::new(9, &into)]).unwrap();
    b.near
        .post_send(&[WorkRequest::send(10, &out).signaled()])
        .unwrap();
    expect(&[
        (9, Done::Receive, true, None),
        (10, Done::Send, false, None),
    ]);
    check("pieces", 4930);

    b.near
        .post_send(&[WorkRequest::nop(11).signaled()])
        .unwrap();
    expect(&[(11, Done::Nop, false, None)]);
    assert_eq!(b.cq.stale(), 0);
}

#[test]
fn a_full_queue_refuses_and_nothing_is_overwritten() {
    let (fake, context) = machine();
    let b = bench(context);
    fake.by_hand();
    // Two-block requests: five pieces.
    let piece = [b.mr.sge(0, 1); 5];
    let request = |id| WorkRequest::write(id, &piece, b.mr.remote(100)).signaled();
    let mut next = 0;
    let mut expected = 0;
    for round in 0..200 {
        let refused = loop {
            match b.near.queue_send(&request(next)) {
                Ok(()) => next += 1,
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused, PostError::Full { posted: 0 }, "round {round}");
        assert_eq!(next - expected, 8, "16 blocks hold 8 requests of 2");
        b.near.ring();
        fake.machine().settle();
        for completion in poll(&b.cq) {
            assert_eq!(completion.check().unwrap().id, expected);
            expected += 1;
        }
        assert_eq!(expected, next, "each is done once, in order");
    }
    // Of several the error says how many went.
    let many: Vec<_> = (0..20).map(|_| request(0)).collect();
    assert_eq!(b.near.post_send(&many), Err(PostError::Full { posted: 8 }));
    // The receive queue in the same way.
    let receives = [Receive::new(0, &piece); 20];
    assert_eq!(
        b.far.post_recv(&receives),
        Err(PostError::Full { posted: 16 })
    );
    assert_eq!(
        fake.machine().function.counter(qpair::Counter::Violations),
        0
    );
}

#[test]
fn unsignalled_requests_never_wedge_the_queue() {
    let (_fake, context) = machine();
    let b = bench(context);
    let sge = [b.mr.sge(0, 8)];
    let mut completions = 0;
    for id in 0..10_000 {
        let request = WorkRequest::write(id, &sge, b.mr.remote(64));
        if let Err(PostError::Full { .. }) = b.near.post_send(&[request]) {
            let came = poll(&b.cq);
            assert!(!came.is_empty(), "request {id}: full, and nothing comes");
            completions += came.len();
            b.near.post_send(&[request]).unwrap();
        }
    }
    assert!(
        completions < 10_000 / 8,
        "{completions} completions that nobody asked for"
    );
}

#[test]
fn the_head_is_published_in_batches() {
    let (fake, context) = machine();
    let b = bench(context);
    let heads = || {
        fake.machine()
            .function
            .counter(qpair::Counter::CqHeadDoorbells)
    };
    let before = heads();
    for id in 0..640 {
        b.near
            .post_send(&[WorkRequest::nop(id).signaled()])
            .unwrap();
        assert_eq!(poll(&b.cq).len(), 1);
    }
    // A quarter of 64 entries, which is also the length of the SQ.
    assert_eq!(heads() - before, 40);
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    let (_fake, context) = machine();
    let (_other_fake, other) = machine();
    let b = bench(context.clone());
    let free = b.cq.unreserved();
    assert_eq!(free, 0, "two queue pairs of 16 and 16 fill 64");
    let made = b.pd.create_qp(&QpOptions::new(&b.cq, &b.cq));
    assert!(
        matches!(
            made,
            Err(Error::CqTooSmall {
                free: 0,
                needed: 16
            })
        ),
        "{made:?}"
    );

    let foreign = other.create_cq(&CqOptions::new(64)).unwrap();
    let made = b.pd.create_qp(&QpOptions::new(&foreign, &foreign));
    assert!(matches!(made, Err(Error::OtherContext)), "{made:?}");

    for (what, made) in [
        ("no depth", context.create_cq(&CqOptions::new(0)).map(drop)),
        ("no memory", Memory::new(0).map(drop)),
        ("all memory", Memory::new(usize::MAX).map(drop)),
    ] {
        assert!(matches!(made, Err(Error::Range { .. })), "{what}: {made:?}");
    }
    let deep = context.create_cq(&CqOptions::new(1 << 20));
    assert_eq!(deep.unwrap_err().errno(), Some(Errno::INVAL));

    let cq = context.create_cq(&CqOptions::new(256)).unwrap();
    let pieces = QpOptions::new(&cq, &cq).recv_sges(16);
    assert!(matches!(
        b.pd.create_qp(&pieces),
        Err(Error::Range { value: 16, .. })
    ));
    let deep = QpOptions::new(&cq, &cq).sq_blocks(512);
    assert!(matches!(
        b.pd.create_qp(&deep),
        Err(Error::CqTooSmall {
            free: 256,
            needed: 512
        })
    ));
    assert_eq!(
        cq.unreserved(),
        256,
        "a queue pair that was not made takes nothing"
    );

    let sges = [b.mr.sge(0, 1); 32];
    let limit = b.context.attributes().max_send_sge as usize;
    let too_many = WorkRequest::send(1, &sges[..limit + 1]);
    assert!(matches!(
        b.near.post_send(&[too_many]),
        Err(PostError::TooLarge { .. })
    ));
    let too_many = Receive::new(1, &sges[..8]);
    assert!(matches!(
        b.near.post_recv(&[too_many]),
        Err(PostError::TooLarge { .. })
    ));
    let inline = vec![0; b.context.attributes().max_inline as usize + 1];
    let too_long = WorkRequest::send_inline(1, &inline);
    assert!(matches!(
        b.near.post_send(&[too_long]),
        Err(PostError::TooLarge { .. })
    ));
    assert_eq!(b.near.send_room(), 16, "and none of them took a slot");
}

#[test]
fn a_failed_request_says_why_and_the_rest_is_flushed() {
    let (fake, context) = machine();
    let b = bench(context);
    fake.by_hand();
    let good = [b.mr.sge(0, 8)];
    let bad = [Sge {
        lkey: b.mr.lkey() ^ 0x10000,
        ..good[0]
    }];
    let to = b.mr.remote(64);
    b.near
        .post_send(&[
            WorkRequest::write(1, &good, to),
            WorkRequest::write(2, &bad, to),
            WorkRequest::write(3, &good, to),
            WorkRequest::write(4, &good, to).signaled(),
        ])
        .unwrap();
    fake.machine().settle();
    let came = poll(&b.cq);
    let statuses: Vec<_> = came.iter().map(|c| (c.id, c.status)).collect();
    let error = came[0].check().unwrap_err();
    assert_eq!(
        (error.id, error.status),
        (2, Status::LocalProtection),
        "{error}"
    );
    assert!(
        statuses[1..].iter().all(|s| s.1 == Status::Flush),
        "{statuses:?}"
    );
    assert_eq!(statuses.last().unwrap().0, 4);
    let event = b.context.async_event().unwrap();
    assert_eq!(
        event,
        Some(AsyncEvent::QpFatal(
            b.near.number(),
            Status::LocalProtection
        ))
    );
    assert_eq!(b.near.query().unwrap().state, 5);

    // The peer did nothing wrong, but finds nobody any more; a reset makes the pair whole again.
    let Bench {
        near, far, cq, mr, ..
    } = b;
    let peer = (near.number(), far.number());
    let near = near.reset().unwrap().init(PEER).unwrap();
    let far = far.reset().unwrap().init(PEER).unwrap();
    let near = near.rtr(peer.1).unwrap().rts().unwrap();
    let far = far.rtr(peer.0).unwrap().rts().unwrap();
    far.post_recv(&[Receive::new(5, &[mr.sge(64, 8)])]).unwrap();
    near.post_send(&[WorkRequest::send(6, &good).signaled()])
        .unwrap();
    fake.machine().settle();
    let came = poll(&cq);
    assert_eq!(came.len(), 2);
    assert!(came.iter().all(|c| c.check().is_ok()), "{came:?}");
}

#[test]
fn a_reset_forgets_what_was_under_way() {
    let (_fake, context) = machine();
    let mut b = bench(context);
    for life in 0..50 {
        let sge = [b.mr.sge(0, 8)];
        // Completions that nobody polls before the reset, and receives that nothing fills.
        for id in 0..life % 9 {
            b.near
                .post_send(&[WorkRequest::nop(id).signaled()])
                .unwrap();
            b.far.post_recv(&[Receive::new(id, &sge)]).unwrap();
        }
        let peer = (b.near.number(), b.far.number());
        let near = b.near.reset().unwrap();
        let far = b.far.reset().unwrap();
        // The slots of the life before come back with the head; `init` publishes it if need be.
        assert!(
            poll(&b.cq).is_empty(),
            "what is of the life before is nobody's"
        );
        let near = near.init(PEER).unwrap().rtr(peer.1).unwrap();
        let far = far.init(PEER).unwrap().rtr(peer.0).unwrap();
        (b.near, b.far) = (near.rts().unwrap(), far.rts().unwrap());
        b.far.post_recv(&[Receive::new(100, &sge)]).unwrap();
        b.near
            .post_send(&[WorkRequest::send_inline(200, b"new life").signaled()])
            .unwrap();
        let mut ids: Vec<_> = poll(&b.cq).iter().map(|c| c.check().unwrap().id).collect();
        ids.sort_unstable();
        assert_eq!(ids, [100, 200], "life {life}");
    }
}

#[test]
fn a_destroyed_queue_pair_leaves_its_entries_to_nobody() {
    let (_fake, context) = machine();
    let b = bench(context);
    let Bench {
        pd,
        cq,
        near,
        far,
        mr,
        ..
    } = b;
    let mut numbers = vec![near.number()];
    let mut pair = Some((near, far));
    for life in 0..100 {
        let (near, far) = pair.take().unwrap();
        for id in 0..life % 16 {
            near.post_send(&[WorkRequest::nop(id).signaled()]).unwrap();
        }
        drop((near, far));
        // Their slots are free when the head has passed their entries, and a new queue pair makes it.
        assert!(poll(&cq).is_empty(), "life {life}");
        let options = QpOptions::new(&cq, &cq);
        let (near, far) = connect(&pd, &options, &options);
        assert!(
            !numbers.contains(&near.number()),
            "a number is not used again"
        );
        numbers.push(near.number());
        far.post_recv(&[Receive::new(1, &[mr.sge(0, 8)])]).unwrap();
        near.post_send(&[WorkRequest::send_inline(2, b"12345678").signaled()])
            .unwrap();
        assert_eq!(poll(&cq).len(), 2, "life {life}");
        pair = Some((near, far));
    }
    assert!(cq.stale() > 0);
}

#[test]
fn an_arm_gives_one_event_and_nothing_is_missed() {
    let (fake, context) = machine();
    let channel = Channel::new().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context
        .create_cq(&CqOptions::new(64).channel(&channel))
        .unwrap();
    let options = QpOptions::new(&cq, &cq);
    let (near, far) = connect(&pd, &options, &options);
    let events = || channel.wait(Some(Duration::ZERO)).unwrap();
    let nop = |id| near.post_send(&[WorkRequest::nop(id).signaled()]).unwrap();

    nop(1);
    assert_eq!(events(), 0, "nobody armed");
    cq.arm(Wants::Next);
    assert_eq!(events(), 1, "armed with one unread: at once");
    assert_eq!(poll(&cq).len(), 1);
    nop(2);
    assert_eq!(events(), 0, "one event for each arm");
    assert_eq!(poll(&cq).len(), 1);
    cq.arm(Wants::Next);
    assert_eq!(events(), 0, "nothing past the arm yet");
    nop(3);
    nop(4);
    assert_eq!(events(), 1);
    assert_eq!(poll(&cq).len(), 2);

    cq.arm(Wants::Solicited);
    nop(5);
    assert_eq!(events(), 0, "not a solicited one");
    far.post_recv(&[Receive::new(6, &[])]).unwrap();
    near.post_send(&[WorkRequest::send(7, &[]).solicited()])
        .unwrap();
    assert_eq!(events(), 1);
    assert_eq!(poll(&cq).len(), 2, "the nop and the receive");
    assert_eq!(fake.machine().completion_events, 3);
}

#[test]
fn garbage_completions_give_nothing() {
    let (fake, context) = machine();
    let b = bench(context);
    fake.by_hand();
    let good = Cqe {
        wr_id: 99,
        qp: b.near.number(),
        index: 1,
        opcode: opcode::NOP,
        ..Default::default()
    };
    let inject = |cqe: Cqe| {
        let index = b.cq.number().index() as u16;
        assert!(fake.machine().function.inject_cqe(index, cqe.encode()));
    };
    // Nothing is posted, so nothing can be done.
    inject(good);
    // Of somebody who never was.
    inject(Cqe {
        qp: qpair::Number::from_raw(!0),
        ..good
    });
    inject(Cqe {
        qp: b.near.number().next(),
        ..good
    });
    assert!(poll(&b.cq).is_empty());
    assert_eq!(b.cq.stale(), 3);

    // Four are posted and done; what covers more, or again, or another queue gives nothing.
    for id in 0..4 {
        b.near.queue_send(&WorkRequest::nop(id).signaled()).unwrap();
    }
    b.near.ring();
    for index in [0, 5, 17, u32::MAX] {
        inject(Cqe { index, ..good });
    }
    inject(Cqe {
        flags: cqe_flags::RECV,
        index: 4,
        ..good
    });
    assert!(poll(&b.cq).is_empty());
    assert_eq!((b.cq.stale(), b.near.send_room()), (8, 12));
    fake.machine().settle();
    assert_eq!(poll(&b.cq).len(), 4);
    inject(Cqe { index: 4, ..good });
    inject(Cqe { index: 2, ..good });
    assert!(poll(&b.cq).is_empty());
    assert_eq!((b.cq.stale(), b.near.send_room()), (10, 16));
}

#[test]
fn objects_end_in_any_order() {
    let (fake, context) = machine();
    let b = bench(context);
    let Bench {
        context,
        pd,
        cq,
        mr,
        near,
        far,
    } = b;
    let commands = || fake.machine().function.counter(qpair::Counter::Commands);
    drop(pd);
    drop(cq);
    drop(context);
    let before = commands();
    drop(mr);
    assert_eq!(
        commands() - before,
        1,
        "the region ends, the others are in use"
    );
    drop(near);
    assert_eq!(commands() - before, 2);
    drop(far);
    assert_eq!(
        commands() - before,
        5,
        "the last queue pair, then its CQ and domain"
    );
    let (_, context) = (fake.clone(), Context::new(fake.clone()).unwrap());
    assert!(context.alloc_pd().is_ok());
}

#[test]
fn a_peer_that_was_not_named_is_not_heard() {
    let (_fake, context) = machine();
    let b = bench(context);
    let options = QpOptions::new(&b.cq, &b.cq);
    assert!(b.pd.create_qp(&options).is_err(), "the CQ is full");
    let cq = b.context.create_cq(&CqOptions::new(128)).unwrap();
    let options = QpOptions::new(&cq, &cq);
    let stranger = b.pd.create_qp(&options).unwrap();
    let stranger = stranger.init(PEER).unwrap();
    let stranger = stranger.rtr(b.far.number()).unwrap().rts().unwrap();
    b.far
        .post_recv(&[Receive::new(1, &[b.mr.sge(0, 64)])])
        .unwrap();
    stranger.set_retry(0, 0).unwrap();
    stranger
        .post_send(&[WorkRequest::send_inline(2, b"let me in")])
        .unwrap();
    let came = poll(&cq);
    assert_eq!(came.len(), 1);
    assert_eq!(came[0].status, Status::RetryExceeded);
    assert!(poll(&b.cq).is_empty());
    // And its memory is not for those who guess.
    let (near, far) = connect(&b.pd, &options, &options);
    let guess = Remote {
        addr: b.mr.addr(),
        rkey: b.mr.rkey() ^ 1,
    };
    near.post_send(&[WorkRequest::write_inline(3, b"hello", guess)])
        .unwrap();
    assert_eq!(poll(&cq)[0].status, Status::RemoteAccess);
    drop(far);
}

/// The fake kernel is one itself: it takes back what it was lent.
#[test]
fn nothing_stays_pinned() {
    let (fake, context) = machine();
    for _ in 0..20 {
        drop(bench(context.clone()));
    }
    drop(context);
    let left: Fake = std::sync::Arc::into_inner(fake).expect("nobody has it any more");
    let machine = left.machine();
    assert_eq!(machine.pinned(), 4, "the driver's own rings");
}
