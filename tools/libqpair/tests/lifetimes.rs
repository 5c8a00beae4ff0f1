// SPDX-License-Identifier: GPL-2.0
//! What fails, what is garbage, and what is left when something ends; against the device model, in
//! one process.

mod support;

use qpair::kernel::Kernel as _;
use qpair::{
    Context, Counter, Cq, CqOptions, EndpointError, EndpointOptions, Pd, Qp, QpOptions, QpState,
    Receive, Remote, Sge, Status, WorkRequest,
};
use qpair_abi::doorbell;
use qpair_abi::entry::{cqe_flags, opcode, Cqe};
use support::bench::{bench, connect, exchange, pair, poll, Bench, PEER};
use support::row::garbage_in_a_row;
use support::{machine, Fake};

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
    let statuses: Vec<_> = came.iter().map(|c| (c.id(), c.status())).collect();
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
    assert_eq!(event, None, "the completion says it");
    assert_eq!(b.near.query().unwrap().state, QpState::Error);

    // The peer did nothing wrong, but its peer is gone; a reset makes the pair whole again.
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
        // Completions that are not polled before the reset, and receives that nothing fills.
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
            "entries from before the reset are stale"
        );
        let near = near.init(PEER).unwrap().rtr(peer.1).unwrap();
        let far = far.init(PEER).unwrap().rtr(peer.0).unwrap();
        (b.near, b.far) = (near.rts().unwrap(), far.rts().unwrap());
        b.far.post_recv(&[Receive::new(100, &sge)]).unwrap();
        b.near
            .post_send(&[WorkRequest::send_inline(200, b"new life").signaled()])
            .unwrap();
        let mut ids: Vec<_> = poll(&b.cq)
            .iter()
            .map(|c| c.check().unwrap().id())
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, [100, 200], "life {life}");
    }
}

/// A doorbell past what was posted finds no work request from before a reset.
#[test]
fn a_reset_clears_the_rings() {
    let (fake, context) = machine();
    let b = bench(context);
    b.near.post_send(&[WorkRequest::nop(1)]).unwrap();
    let near = b.near.reset().unwrap();
    let peer = b.far.number();
    let near = near.init(PEER).unwrap().rtr(peer).unwrap().rts().unwrap();
    fake.doorbell(doorbell::SQ, doorbell::value(near.number(), 1));
    // A block of zeroes is no work request.
    assert_eq!(fake.machine().function.counter(Counter::Errors), 1);
}

/// After the peer has closed, a message that is in flight may still complete.
#[test]
fn a_peer_closes_while_a_message_is_in_flight() {
    let (fake, context) = machine();
    let options = EndpointOptions::new().message(64).depth(4);
    let (mut near, mut far) = pair(&context, &options, &options);
    exchange(&mut near, &mut far);
    fake.by_hand();
    let ticket = far.send(b"last").unwrap();
    near.close().unwrap();
    let end = far.recv(&mut [0; 64]).unwrap_err();
    assert!(matches!(end, EndpointError::Closed), "{end}");
    let done = far.is_done(ticket);
    assert!(matches!(done, Ok(false)), "{done:?}");
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
        // Their slots are free when the head has passed their entries, and a new queue pair makes
        // it.
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
fn garbage_completions_give_nothing() {
    let (fake, context) = machine();
    let b = bench(context);
    let [sends, recvs] = [64; 2].map(|depth| Cq::new(&b.context, &CqOptions::new(depth)).unwrap());
    let options = QpOptions::new(&sends, &recvs);
    let (other, _far) = connect(&b.pd, &options, &options);
    fake.by_hand();
    let good = Cqe {
        wr_id: 99,
        qp: b.near.number(),
        index: 1,
        opcode: opcode::NOP,
        ..Default::default()
    };
    let inject_into = |cq: &Cq, cqe: Cqe| {
        let index = cq.number().index() as u16;
        assert!(fake.machine().function.inject_cqe(index, cqe.encode()));
    };
    let inject = |cqe| inject_into(&b.cq, cqe);
    // Nothing is posted, so nothing can be done.
    inject(good);
    // Of a queue pair that never existed.
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
    // Of a send, in the CQ of the receives.
    other.post_recv(&[Receive::new(1, &[])]).unwrap();
    let cqe = Cqe {
        qp: other.number(),
        ..good
    };
    inject_into(&recvs, cqe);
    assert!(poll(&recvs).is_empty());
    assert_eq!((recvs.stale(), other.recv_room()), (1, 15));
}

#[test]
fn garbage_in_a_row_gives_nothing() {
    garbage_in_a_row();
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
    assert_eq!(commands() - before, 3, "it is reset, then destroyed");
    drop(far);
    assert_eq!(
        commands() - before,
        7,
        "the last queue pair, then its CQ and domain"
    );
    let (_, context) = (fake.clone(), Context::new(fake.clone()).unwrap());
    assert!(Pd::new(&context).is_ok());
}

#[test]
fn a_peer_that_was_not_named_is_not_heard() {
    let (_fake, context) = machine();
    let b = bench(context);
    let options = QpOptions::new(&b.cq, &b.cq);
    assert!(Qp::new(&b.pd, &options).is_err(), "the CQ is full");
    let cq = Cq::new(&b.context, &CqOptions::new(128)).unwrap();
    let options = QpOptions::new(&cq, &cq);
    let stranger = Qp::new(&b.pd, &options).unwrap();
    let stranger = stranger.init(PEER).unwrap();
    let stranger = stranger.rtr(b.far.number()).unwrap().rts().unwrap();
    b.far
        .post_recv(&[Receive::new(1, &[b.mr.sge(0, 64)])])
        .unwrap();
    stranger
        .post_send(&[WorkRequest::send_inline(2, b"let me in")])
        .unwrap();
    let came = poll(&cq);
    assert_eq!(came.len(), 1);
    assert_eq!(came[0].status(), Status::RetryExceeded);
    assert!(poll(&b.cq).is_empty());
    // And guessing its key gives no access to its memory.
    let (near, far) = connect(&b.pd, &options, &options);
    let guess = Remote {
        addr: b.mr.addr(),
        rkey: b.mr.rkey() ^ 1,
    };
    near.post_send(&[WorkRequest::write_inline(3, b"hello", guess)])
        .unwrap();
    assert_eq!(poll(&cq)[0].status(), Status::RemoteAccess);
    drop(far);
}

#[test]
fn nothing_stays_pinned() {
    let (fake, context) = machine();
    for _ in 0..20 {
        drop(bench(context.clone()));
    }
    drop(context);
    let left: Fake = std::sync::Arc::into_inner(fake).expect("the last reference");
    let machine = left.machine();
    assert_eq!(machine.pinned(), 4, "the driver's own rings");
}
