// SPDX-License-Identifier: GPL-2.0
//! Queue pairs that share receives, against the device model, in one process.

mod support;

use fastrand::Rng;
use qpair::{
    Ah, Cq, CqOptions, Datagram, Error, Memory, Mr, Pd, Qp, QpOptions, Receive, Service, Srq,
    SrqOptions, GRH_BYTES,
};
use rustix::io::Errno;
use support::bench::{poll, ALL, PEER};
use support::machine;
use support::receives::{
    a_full_queue_gets_room_by_polls, a_receive_of_a_cq_without_queue_pairs_comes_back,
    a_stale_send_frees_no_receive, each_cq_reserves_room_once, limits_and_last_receives,
    receives_of_an_ended_queue_pair_come_back, shared_schedule,
};

#[test]
fn a_polled_receive_makes_room() {
    a_full_queue_gets_room_by_polls();
}

#[test]
fn receives_come_back() {
    receives_of_an_ended_queue_pair_come_back();
}

#[test]
fn receives_of_a_cq_without_queue_pairs() {
    a_receive_of_a_cq_without_queue_pairs_comes_back();
}

#[test]
fn stale_sends() {
    a_stale_send_frees_no_receive();
}

#[test]
fn room_in_completion_queues() {
    each_cq_reserves_room_once();
}

#[test]
fn events_of_shared_receives() {
    limits_and_last_receives();
}

/// A CQ has places for 65536 SRQs at most. The last queue pair of one there frees its place.
#[test]
fn an_end_frees_the_place_on_a_completion_queue() {
    let (_fake, context) = machine();
    let pd = Pd::new(&context).unwrap();
    let cq = Cq::new(&context, &CqOptions::new(64)).unwrap();
    for _ in 0..(1 << 16) + 1 {
        let srq = Srq::new(&pd, &SrqOptions::new(1)).unwrap();
        Qp::new(&pd, &QpOptions::new(&cq, &cq).sq_blocks(1).srq(&srq)).unwrap();
    }
}

#[test]
fn random_schedules() {
    let first = Rng::new().u64(..1 << 32);
    for seed in first..first + 40 {
        if std::panic::catch_unwind(|| shared_schedule(seed, || ())).is_err() {
            panic!("this schedule fails: {seed}");
        }
    }
}

/// Queue pairs of UD share receives with one of RC.
#[test]
fn datagrams_and_messages_take_the_same_receives() {
    let (_fake, context) = machine();
    let pd = Pd::new(&context).unwrap();
    let cq = Cq::new(&context, &CqOptions::new(64)).unwrap();
    let srq = Srq::new(&pd, &SrqOptions::new(8).max_sge(2)).unwrap();
    let mr = Mr::new(&pd, Memory::new(4096).unwrap(), ALL).unwrap();
    let ud = Qp::new(&pd, &QpOptions::ud(&cq, &cq).srq(&srq)).unwrap();
    let ud = ud.init(5).unwrap().rtr().unwrap().rts().unwrap();
    let rc = Qp::new(&pd, &QpOptions::new(&cq, &cq).srq(&srq)).unwrap();
    let number = rc.number();
    let rc = rc.init(PEER).unwrap().rtr(number).unwrap().rts().unwrap();
    // The header of a datagram goes into a piece of its own.
    let pieces = [mr.sge(0, GRH_BYTES), mr.sge(64, 64)];
    srq.post_recv(&[Receive::new(1, &pieces), Receive::new(2, &pieces[1..])])
        .unwrap();
    let to = Ah::own(&pd).unwrap().to(ud.number(), 5);
    ud.queue_send(&Datagram::send_inline(3, to, b"datagram").signaled())
        .unwrap();
    ud.ring();
    let came = poll(&cq);
    assert_eq!((came[0].id(), came[0].src()), (1, Some(ud.number())));
    let mut found = [0; 8];
    mr.read(64, &mut found);
    assert_eq!(&found, b"datagram");
    rc.post_send(&[qpair::WorkRequest::send_inline(4, b"messages").signaled()])
        .unwrap();
    assert_eq!(poll(&cq)[0].id(), 2);
    mr.read(64, &mut found);
    assert_eq!(&found, b"messages");
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    let (_fake, context) = machine();
    let (_other_fake, other) = machine();
    let pd = Pd::new(&context).unwrap();
    let srq = Srq::new(&pd, &SrqOptions::new(16)).unwrap();
    let cq = Cq::new(&context, &CqOptions::new(32)).unwrap();
    let options = QpOptions::new(&cq, &cq).srq(&srq);
    let made = Qp::new(&pd, &options.service(Service::Uc));
    assert!(matches!(made, Err(Error::UcOnSrq)), "{made:?}");
    let other_pd = Pd::new(&other).unwrap();
    let foreign = Srq::new(&other_pd, &SrqOptions::new(16)).unwrap();
    let made = Qp::new(&pd, &QpOptions::new(&cq, &cq).srq(&foreign));
    assert!(matches!(made, Err(Error::OtherContext)), "{made:?}");
    assert_eq!(cq.unreserved(), 32);
    for options in [SrqOptions::new(0), SrqOptions::new(1).max_sge(16)] {
        let made = Srq::new(&pd, &options);
        assert!(matches!(made, Err(Error::Range { .. })), "{made:?}");
    }
    let deep = Srq::new(&pd, &SrqOptions::new(1 << 20));
    assert_eq!(deep.unwrap_err().errno(), Some(Errno::INVAL));
}
