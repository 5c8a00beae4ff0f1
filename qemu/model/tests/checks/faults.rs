// SPDX-License-Identifier: GPL-2.0
//! Fault points: what each action does, which requests a rule meets, and that one seed gives one
//! trace.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::entry::Eqe;
use qpair_abi::status::Detail;
use qpair_abi::status::EnableError;
use qpair_abi::status::Event;
use qpair_abi::status::Status;
use qpair_model::host::Trace;
use qpair_model::Config;
use qpair_model::Faults;

checks![
    bad_rules_are_refused,
    good_rules_are_kept,
    each_status_can_be_had,
    a_rule_meets_its_queue_pair_and_opcode,
    the_nth_and_each_nth,
    one_seed_gives_one_trace,
    a_chance_is_about_right,
    a_request_is_met_once,
    a_delay_is_kept,
    a_delay_ends_with_its_queue_pair,
    a_lost_acknowledgement,
    a_lost_acknowledgement_of_a_long_message,
    a_lost_acknowledgement_and_a_fault_of_the_peer,
    no_receive_by_request,
    a_receive_fails_by_request,
    a_cq_overruns_by_request,
    each_event_by_request,
    a_frozen_queue_pair,
    new_rules_end_what_the_old_ones_held,
    datagrams_have_faults,
    rules_outlive_a_reset,
];

const RETRY_NS: u64 = 4_000_000;
const MS: u64 = 1_000_000;

/// Two queue pairs under rules.
fn under(rules: &str) -> Pair {
    let mut p = Pair::new();
    p.m.f.set_faults(rules).unwrap();
    p
}

/// Posts a WRITE.
fn write(p: &mut Pair, wr_id: u64) {
    let request = p.remote(opcode::WRITE, 0);
    let request = qpair_abi::entry::SendWqe { wr_id, ..request };
    p.send(request, &[p.mr_a.sge(0, 8)]);
}

/// Status and detail of the completion that is there alone.
fn only(p: &mut Pair) -> (Status, Detail) {
    let cqes = p.done_a();
    assert_eq!(cqes.len(), 1, "{cqes:?}");
    outcome(&cqes[0])
}

fn report(p: &Pair) -> String {
    p.m.f.faults().report()
}

fn bad_rules_are_refused() {
    let bad = [
        ("fail", "a status is one of loc-len"),
        ("fail=success", "rem-access, rem-op"),
        ("fail=rem-acess,qp=3", "rule 1, 'fail=rem-acess'"),
        ("seed=1;freeze;fail=x", "rule 2, 'fail=x'"),
        ("delay=5", "a number with ns, us, ms or s"),
        ("delay=0ms", "a number with ns"),
        ("delay=2000s", "at most 1099511627776ns"),
        ("delay=+1ms", "a number with ns"),
        ("delay=99999999999999999999s", "a number with ns"),
        ("rnr", "a number from 1 to 255"),
        ("rnr=256", "a number from 1 to 255"),
        (
            "event=completion",
            "an event is one of cq-overrun, qp-fatal",
        ),
        ("overrun=1", "a part is one of fail=, delay="),
        ("drop-ack=", "a part is one of"),
        ("drop_ack", "a part is one of"),
        ("", "'': a part is one of"),
        ("freeze;", "rule 2, '': a part is one of"),
        ("freeze,", "'': a part is one of"),
        ("freeze,qp=0", "'qp=0': a number from 1 to 16777215"),
        ("freeze,qp=0x1000000", "a number from 1"),
        ("freeze,qp=-1", "a number from 1"),
        ("freeze,opcode=writes", "an opcode is one of nop, send"),
        ("freeze,nth=0", "a number from 1"),
        ("freeze,every=0", "a number from 1"),
        ("freeze,every=1,nth=1", "one of nth=, every= and chance="),
        ("freeze,drop-ack", "a rule has one action"),
        ("freeze,qp=1,qp=2", "each other part once"),
        ("freeze,chance=0", "a fraction above 0 and up to 1"),
        ("freeze,chance=1.1", "a fraction"),
        ("freeze,chance=0.0000000001", "a fraction"),
        ("freeze,chance=.5", "a fraction"),
        ("freeze,chance=0.-5", "a fraction"),
        ("freeze,times=0", "a number from 1"),
        ("qp=3,nth=2", "'qp=3,nth=2': no action"),
        ("wire=lost", "a fault of frames is one of drop, dup"),
        ("wire=delay:1", "a number with ns"),
        ("wire=drop,dir=up", "a direction is one of in, out"),
        ("wire=drop,freeze", "a rule has one action"),
        ("wire=drop,opcode=send", "dir= goes with wire= alone"),
        ("freeze,dir=in", "dir= goes with wire= alone"),
        (
            "freeze,opcode=recv",
            "opcode=recv goes with fail= and overrun alone",
        ),
        ("seed=x", "'seed=' has a number, once"),
        ("seed=1;seed=2;freeze", "'seed=' has a number, once"),
    ];
    for (text, why) in bad {
        // An empty text is no rule, but an empty clause is a bad one.
        let text = if text.is_empty() { ";freeze" } else { text };
        let refused = Faults::parse(text).expect_err(text);
        assert!(refused.contains(why), "{text}: {refused}");
        assert!(refused.len() < 200, "{refused}");
    }
    let long = format!("freeze,qp=1{}", "0".repeat(1000));
    assert!(Faults::parse(&long).unwrap_err().contains("at most 1000"));
    let long = format!("fail={}", "é".repeat(400));
    assert!(Faults::parse(&long).unwrap_err().len() < 250);
    let many = vec!["freeze"; 17].join(";");
    assert!(Faults::parse(&many).unwrap_err().contains("16 rules"));
    // Rules that are refused change nothing.
    let mut p = under("fail=rem-op,opcode=write");
    p.m.f.set_faults("fail=nonsense").unwrap_err();
    assert_eq!(p.m.f.faults().text(), "fail=rem-op,opcode=write");
    write(&mut p, 1);
    assert_eq!(only(&mut p).0, Status::RemoteOperation);
}

fn good_rules_are_kept() {
    for text in [
        "",
        "seed=7",
        "seed=0x7;fail=rem-access,qp=3,opcode=write,every=5",
        "delay=1ns;delay=2us,chance=1;delay=3ms,chance=0.000000001;delay=1s,times=4",
        "drop-ack,opcode=send,nth=18446744073709551615",
        "overrun,opcode=recv;fail=loc-prot,opcode=recv,qp=0x010003",
        "fail=general,chance=1.000000000",
    ] {
        let faults = Faults::parse(text).unwrap();
        assert_eq!(faults.text(), text);
    }
    let mut p = under("seed=7;drop-ack;rnr=2,qp=77");
    assert_eq!(report(&p), "drop-ack 0 of 0; rnr 0 of 0");
    p.m.f.set_faults("").unwrap();
    assert_eq!((report(&p).as_str(), p.m.f.faults().text()), ("", ""));
}

fn each_status_can_be_had() {
    let names = [
        "loc-len",
        "loc-qp-op",
        "loc-prot",
        "wr-flush",
        "mw-bind",
        "loc-access",
        "rem-inv-req",
        "rem-access",
        "rem-op",
        "retry-exc",
        "rnr-retry-exc",
        "fatal",
        "general",
    ];
    assert_eq!(names.len() + 1, Status::ALL.len(), "all but success");
    for (name, status) in names.iter().zip(&Status::ALL[1..]) {
        let mut p = under(&format!("fail={name}"));
        p.m.memory.set_bytes(p.mr_a.addr, &[9; 8]);
        write(&mut p, 1);
        assert_eq!(only(&mut p), (*status, Detail::Injected), "{name}");
        assert_eq!(
            p.m.memory.word(p.mr_b.addr),
            0,
            "a failed request moves nothing"
        );
        assert_eq!(p.state(p.a.number), qp_state::ERROR);
        assert_eq!(p.state(p.b.number), qp_state::RTS);
        assert_eq!(p.m.events0(), [], "the completion reports it");
    }
}

fn a_rule_meets_its_queue_pair_and_opcode() {
    let mut p = Pair::new();
    p.m.f.host_mut().keep_traces = true;
    let (a, b) = (p.a.number, p.b.number);
    // By index, and by number.
    for rules in [
        format!("fail=rem-op,qp={}", b.index()),
        format!("fail=rem-op,qp={:#x}", b.raw()),
        format!("fail=rem-op,qp={:#x}", a.next().raw()),
        "fail=rem-op,opcode=send".into(),
    ] {
        p.m.f.set_faults(&rules).unwrap();
        write(&mut p, 1);
        assert_eq!(only(&mut p).0, Status::Success, "{rules}");
        assert!(report(&p).ends_with("0 of 0"), "{}", report(&p));
    }
    assert!(p
        .m
        .f
        .host()
        .traces
        .iter()
        .all(|trace| !matches!(trace, Trace::Fault { .. })));
    p.m.f
        .set_faults(&format!(
            "overrun,opcode=send;fail=rem-op,opcode=write,qp={:#x}",
            a.raw()
        ))
        .unwrap();
    write(&mut p, 1);
    assert_eq!(only(&mut p).0, Status::RemoteOperation);
    assert_eq!(report(&p), "overrun 0 of 0; fail 1 of 1");
    let fault = Trace::Fault {
        rule: 2,
        qp: a,
        opcode: opcode::WRITE,
        past: 5,
    };
    assert!(p.m.f.host().traces.contains(&fault));
}

/// The places of requests whose delay the rules have chosen, of `count`.
fn delayed(rules: &str, count: u64) -> Vec<u64> {
    let mut p = under(rules);
    let mut found = Vec::new();
    for i in 1..=count {
        write(&mut p, i);
        if p.done_a().is_empty() {
            found.push(i);
            p.m.pass(MS);
            assert_eq!(only(&mut p).0, Status::Success);
        }
    }
    assert!(report(&p).starts_with(&format!("delay {} of {count}", found.len())));
    found
}

fn the_nth_and_each_nth() {
    assert_eq!(delayed("delay=1ms,nth=4", 9), [4]);
    assert_eq!(delayed("delay=1ms,every=4", 9), [4, 8]);
    assert_eq!(delayed("delay=1ms", 3), [1, 2, 3]);
    assert_eq!(delayed("delay=1ms,times=2", 9), [1, 2]);
    assert_eq!(delayed("delay=1ms,every=3,times=2", 12), [3, 6]);
    assert_eq!(delayed("delay=1ms,chance=1", 3), [1, 2, 3]);
    // Of two rules that strike at once the first one's action is taken.
    let mut p = under("delay=1ms,nth=2;fail=rem-op,every=2");
    for i in 1..=4 {
        write(&mut p, i);
        p.m.pass(MS);
    }
    let statuses: Vec<_> = p.done_a().iter().map(|cqe| outcome(cqe).0).collect();
    let (success, failed) = (Status::Success, Status::RemoteOperation);
    assert_eq!(statuses, [success, success, success, failed]);
    assert_eq!(report(&p), "delay 1 of 4; fail 1 of 4");
}

fn one_seed_gives_one_trace() {
    let trace = |seed: u64| {
        let mut p = under(&format!(
            "seed={seed};delay=1ms,chance=0.2;delay=1ms,chance=0.2"
        ));
        p.m.f.host_mut().keep_traces = true;
        for i in 0..100 {
            write(&mut p, i);
            p.m.pass(MS);
            p.done_a();
        }
        let traces = p.m.f.host().traces.iter();
        let faults = traces.filter(|trace| matches!(trace, Trace::Fault { .. }));
        faults.copied().collect::<Vec<_>>()
    };
    let first = trace(7);
    assert!(first.len() > 15, "{}", first.len());
    assert_eq!(first, trace(7));
    assert_ne!(first, trace(8));
    // Two rules with one chance are not one.
    let of = |rule: u32| {
        first
            .iter()
            .filter(|trace| matches!(trace, Trace::Fault { rule: found, .. } if *found == rule))
            .count()
    };
    assert!(of(1) > 5 && of(2) > 5);
    // Setting the rules begins anew.
    let mut p = under("seed=3;delay=1ms,chance=0.5");
    let run = |p: &mut Pair| {
        p.m.f.set_faults("seed=3;delay=1ms,chance=0.5").unwrap();
        let mut found = Vec::new();
        for i in 0..40 {
            write(p, i);
            found.push(p.done_a().len());
            p.m.pass(MS);
            p.done_a();
        }
        found
    };
    assert_eq!(run(&mut p), run(&mut p));
}

fn a_chance_is_about_right() {
    for (chance, least, most) in [("0.01", 1, 25), ("0.5", 450, 550), ("0.99", 970, 999)] {
        let found = delayed(&format!("seed=5;delay=1ns,chance={chance}"), 1000);
        let count = found.len();
        assert!((least..=most).contains(&count), "{chance}: {count} of 1000");
    }
}

fn a_request_is_met_once() {
    // The request waits for a receive, and tries again whenever one may be there.
    let mut p = Pair::with(|a, _| a.rnr_retry = 6);
    p.m.f.set_faults("delay=1ms,nth=2").unwrap();
    p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 8)]);
    p.m.pass(3 * RETRY_NS);
    assert_eq!((p.done_a(), report(&p).as_str()), (vec![], "delay 0 of 1"));
    p.recv(1, &[p.mr_b.sge(0, 8)]);
    assert_eq!(only(&mut p).0, Status::Success);
    p.recv(2, &[p.mr_b.sge(0, 8)]);
    p.send(wqe(opcode::SEND, 2), &[p.mr_a.sge(0, 8)]);
    assert_eq!((p.done_a(), report(&p).as_str()), (vec![], "delay 1 of 2"));
    p.m.pass(MS);
    assert_eq!(only(&mut p).0, Status::Success);
}

fn a_delay_is_kept() {
    let mut p = under("delay=5ms,nth=1");
    for i in 1..=3 {
        let request = p.remote(opcode::WRITE, 0);
        p.m.post(&mut p.a, request, &[p.mr_a.sge(0, 8)]);
        p.m.ring_sq(&p.a);
        // What the peer does is of no account.
        p.recv(i, &[p.mr_b.sge(0, 8)]);
    }
    p.m.pass(5 * MS - 1);
    assert_eq!(p.done_a(), []);
    p.m.pass(1);
    assert_eq!(p.done_a().len(), 3, "and what is behind it is in order");
    assert_eq!(
        p.m.f.host().wake_at,
        u64::MAX,
        "nothing is left to wait for"
    );
}

fn a_delay_ends_with_its_queue_pair() {
    // In the error state it is flushed.
    let mut p = under("delay=1s,times=1");
    write(&mut p, 1);
    p.m.set_state(p.a.number, qp_state::ERROR).unwrap();
    p.m.settle();
    assert_eq!(only(&mut p), (Status::Flush, Detail::None));
    // After a reset the first request does not wait, though it has the same index.
    let mut p = under("delay=1s,times=1");
    write(&mut p, 1);
    p.m.set_state(p.a.number, qp_state::RESET).unwrap();
    p.a.sq_tail = 0;
    p.m.connect(p.a.number, p.b.number);
    write(&mut p, 2);
    assert_eq!(only(&mut p).0, Status::Success);
    assert_eq!(report(&p), "delay 1 of 2");
    // A queue pair that is destroyed is not waited for.
    let mut p = under("delay=1s");
    write(&mut p, 1);
    p.m.destroy(kind::QP, p.a.number).unwrap();
    p.m.memory.revoke(p.a.sq);
    p.m.pass(2_000 * MS);
    assert_eq!(p.done_a(), []);
}

fn a_lost_acknowledgement() {
    for retry in [0, 3] {
        let mut p = Pair::with(|a, _| a.retry = retry);
        p.m.f.set_faults("drop-ack,nth=2").unwrap();
        p.recv(7, &[p.mr_b.sge(0, 8)]);
        write(&mut p, 1);
        assert_eq!(only(&mut p).0, Status::Success);
        p.m.memory.set_bytes(p.mr_a.addr, &[9]);
        p.send(wqe(opcode::SEND, 2), &[p.mr_a.sge(0, 8)]);
        // The peer has the message, once.
        let received = p.done_b();
        assert_eq!((received.len(), received[0].wr_id), (1, 7));
        assert_eq!(p.m.memory.bytes(p.mr_b.addr, 1), [9]);
        let waits = u64::from(retry) * RETRY_NS;
        if waits != 0 {
            p.m.pass(waits - 1);
            assert_eq!(p.done_a(), []);
            p.m.pass(1);
        }
        let cqes = p.done_a();
        assert_eq!((cqes[0].wr_id, cqes[0].index), (2, p.a.sq_tail));
        assert_eq!(outcome(&cqes[0]), (Status::RetryExceeded, Detail::Injected));
        assert_eq!(p.state(p.a.number), qp_state::ERROR);
        assert_eq!(p.state(p.b.number), qp_state::RTS);
        assert_eq!((p.done_a(), p.done_b()), (vec![], vec![]));
    }
    // A NOP has no acknowledgement.
    let mut p = under("drop-ack");
    p.send(wqe(opcode::NOP, 1), &[]);
    assert_eq!(
        (only(&mut p).0, report(&p).as_str()),
        (Status::Success, "drop-ack 0 of 0")
    );
}

fn a_lost_acknowledgement_of_a_long_message() {
    let mut p = under("drop-ack");
    let bytes = pattern(1 << 20, 1);
    p.m.memory.set_bytes(p.mr_a.addr, &bytes);
    p.send(p.remote(opcode::WRITE, 0), &[p.mr_a.sge(0, 1 << 20)]);
    assert_eq!(only(&mut p).0, Status::RetryExceeded);
    assert_eq!(p.m.memory.bytes(p.mr_b.addr, 1 << 20), bytes);
    assert_eq!(p.m.f.counter(Counter::WriteBytes), 1 << 20, "once");
}

fn a_lost_acknowledgement_and_a_fault_of_the_peer() {
    let mut p = Pair::with(|a, _| a.retry = 7);
    p.m.f.set_faults("drop-ack").unwrap();
    let mut request = p.remote(opcode::WRITE, 0);
    request.rkey ^= 1 << 20;
    p.send(request, &[p.mr_a.sge(0, 8)]);
    let cqes = p.done_a();
    assert_eq!(cqes[0].index, p.a.sq_tail);
    assert_eq!(outcome(&cqes[0]).0, Status::RemoteAccess);
    p.m.pass(100 * RETRY_NS);
    assert_eq!(p.done_a(), [], "and it is not flushed besides");
}

fn no_receive_by_request() {
    // As often as the sender has patience, and once more.
    for (patience, count, fails) in [(6, 6, false), (6, 7, true), (0, 1, true), (7, 255, false)] {
        let mut p = Pair::with(|a, _| a.rnr_retry = patience);
        p.m.f.set_faults(&format!("rnr={count},times=1")).unwrap();
        p.recv(1, &[p.mr_b.sge(0, 8)]);
        p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 8)]);
        let tries = if patience == 7 {
            count
        } else {
            count.min(u64::from(patience))
        };
        if tries != 0 {
            p.m.pass(tries * RETRY_NS - 1);
            assert_eq!((p.done_a(), p.done_b()), (vec![], vec![]));
            p.m.pass(1);
        }
        let expected = match fails {
            true => (Status::RnrRetryExceeded, Detail::Injected),
            false => (Status::Success, Detail::None),
        };
        assert_eq!(only(&mut p), expected, "{patience} {count}");
        assert_eq!(p.done_b().len(), usize::from(!fails));
    }
    // Tries of the peer's own count as well.
    let mut p = Pair::with(|a, _| a.rnr_retry = 3);
    p.m.f.set_faults("rnr=2").unwrap();
    p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 8)]);
    p.m.pass(3 * RETRY_NS - 1);
    assert_eq!(p.done_a(), []);
    p.m.pass(1);
    assert_eq!(only(&mut p), (Status::RnrRetryExceeded, Detail::None));
    // A WRITE takes no receive.
    let mut p = under("rnr=1");
    write(&mut p, 1);
    assert_eq!(only(&mut p).0, Status::Success);
}

fn a_receive_fails_by_request() {
    for posted_first in [true, false] {
        let mut p = Pair::with(|a, _| a.rnr_retry = 7);
        let rules = format!("fail=loc-prot,opcode=recv,qp={}", p.b.number.index());
        p.m.f.set_faults(&rules).unwrap();
        write(&mut p, 1);
        assert_eq!(only(&mut p).0, Status::Success, "a WRITE takes no receive");
        if posted_first {
            p.recv(7, &[p.mr_b.sge(0, 8)]);
        }
        p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 8)]);
        if !posted_first {
            p.recv(7, &[p.mr_b.sge(0, 8)]);
        }
        assert_eq!(only(&mut p), (Status::RemoteOperation, Detail::Injected));
        let cqes = p.done_b();
        assert_eq!((cqes.len(), cqes[0].wr_id), (1, 7));
        assert_eq!(
            outcome(&cqes[0]),
            (Status::LocalProtection, Detail::Injected)
        );
        assert_eq!(p.state(p.b.number), qp_state::ERROR);
        assert_eq!(report(&p), "fail 1 of 1");
    }
}

fn a_cq_overruns_by_request() {
    for receives in [false, true] {
        let mut p = under(if receives {
            "overrun,opcode=recv"
        } else {
            "overrun,opcode=send"
        });
        p.recv(7, &[p.mr_b.sge(0, 8)]);
        p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 8)]);
        let (cq, stopped) = match receives {
            true => (p.cq_b.number, p.b.number),
            false => (p.cq_a.number, p.a.number),
        };
        let kinds: Vec<_> =
            p.m.events0()
                .iter()
                .map(|event| (event.kind, event.number))
                .collect();
        assert_eq!(kinds[0], (Event::CqOverrun.code(), cq));
        assert_eq!(kinds[1], (Event::QpFatal.code(), stopped));
        assert_eq!(p.m.f.counter(Counter::CqOverruns), 1);
        assert_ne!(p.m.query_cq(cq).flags & cq_flags::OVERRUN, 0);
        if receives {
            // The peer is in the error state: the request has no answer.
            assert_eq!(only(&mut p), (Status::RetryExceeded, Detail::NotReady));
        }
        assert_eq!((p.done_a(), p.done_b()), (vec![], vec![]));
    }
}

fn each_event_by_request() {
    let raised = |name: &str| {
        let mut p = under(&format!("event={name},nth=1"));
        write(&mut p, 1);
        let events = p.m.events0();
        assert_eq!(events.len(), 1, "{name}: {events:?}");
        assert_eq!(report(&p), "event 1 of 1");
        (p, events[0])
    };
    let of = |event: Eqe, kind: Event| event.kind == kind.code();
    let (mut p, event) = raised("cq-overrun");
    assert!(of(event, Event::CqOverrun) && event.number == p.cq_a.number);
    write(&mut p, 2);
    assert_eq!(p.done_a().len(), 2, "and the CQ goes on");
    let (mut p, event) = raised("qp-fatal");
    assert!(of(event, Event::QpFatal) && event.number == p.a.number);
    write(&mut p, 2);
    assert_eq!(p.done_a().len(), 2, "and the queue pair goes on");
    for (name, kind) in [
        ("qp-access", Event::QpAccess),
        ("qp-request", Event::QpRequest),
    ] {
        let (p, event) = raised(name);
        assert!(of(event, kind) && event.number == p.a.number);
    }
    let (mut p, event) = raised("doorbell-violation");
    assert!(of(event, Event::DoorbellViolation) && event.number.index() == 0);
    assert_eq!(only(&mut p).0, Status::Success);
    for (name, kind, down) in [
        ("link-down", Event::LinkDown, true),
        ("link-up", Event::LinkUp, false),
    ] {
        let (mut p, event) = raised(name);
        assert!(of(event, kind));
        assert_eq!(p.m.f.knobs().link_down, down);
        assert_eq!(only(&mut p).0, Status::Success);
    }
    let mut p = under("event=device-fatal");
    write(&mut p, 1);
    let event = p.m.event(&mut p.m.eq0.clone()).unwrap();
    assert!(of(event, Event::DeviceFatal));
    assert_eq!(event.code, EnableError::Injected.code());
    assert_eq!(p.m.f.status() & 3, 2, "fatal, and not ready");
    // An event is besides another fault.
    let mut p = under("event=link-down;fail=rem-op");
    write(&mut p, 1);
    assert_eq!(only(&mut p).0, Status::RemoteOperation);
    assert_eq!(report(&p), "event 1 of 1; fail 1 of 1");
}

fn a_frozen_queue_pair() {
    let mut p = Pair::with(|_, b| (b.retry, b.flags) = (2, qp_flags::REGISTERS));
    let rules = format!("freeze,qp={}", p.a.number.index());
    p.m.f.set_faults(&rules).unwrap();
    p.recv(1, &[p.mr_b.sge(0, 8)]);
    p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 8)]);
    p.m.pass(1_000_000 * MS);
    assert_eq!((p.done_a(), p.done_b()), (vec![], vec![]));
    assert_eq!(p.m.f.host().wake_at, u64::MAX, "and nothing is waited for");
    // It does not answer: the peer times out, but not with what needs no answer.
    let frmr = p.m.frmr(p.pd_b).1;
    let window = p.m.mw(p.pd_b, mw_type::TWO).1;
    let at = p.m.memory.alloc(64, 64, Grant::Write);
    assert_eq!(p.register(registration(frmr, 0, block(at, 64))), DONE);
    assert_eq!(p.invalidate(frmr), DONE);
    p.bind_at_b(Pair::bind(window, &p.mr_b, 0, 64)).unwrap();
    p.m.send(&mut p.b, wqe(opcode::NOP, 2), &[]);
    assert_eq!(outcome(&p.done_b()[0]), DONE);
    p.write_back(3);
    p.m.pass(2 * RETRY_NS - 1);
    assert_eq!(p.done_b(), []);
    p.m.pass(1);
    let done = p.done_b();
    assert_eq!(outcome(&done[0]), (Status::RetryExceeded, Detail::Injected));
    // Commands work, and in the error state it is flushed.
    p.m.set_state(p.a.number, qp_state::ERROR).unwrap();
    p.m.settle();
    assert_eq!(only(&mut p).0, Status::Flush);
}

fn new_rules_end_what_the_old_ones_held() {
    for (rules, inline) in [
        ("freeze", false),
        ("freeze", true),
        ("delay=100s", false),
        ("delay=100s", true),
        ("rnr=9", false),
    ] {
        // On a deterministic machine no call from outside helps.
        let config = Config {
            inline,
            ..Config::default()
        };
        let mut p = Pair::on(Machine::with(config), |a, _| a.rnr_retry = 7);
        p.m.f.set_faults(rules).unwrap();
        p.recv(1, &[p.mr_b.sge(0, 8)]);
        p.send(wqe(opcode::SEND, 1), &[p.mr_a.sge(0, 8)]);
        assert_eq!(p.done_a(), [], "{rules}");
        p.m.f.set_faults("").unwrap();
        p.m.pass(MS);
        assert_eq!(only(&mut p).0, Status::Success, "{rules}");
        assert_eq!(p.done_b().len(), 1);
        p.m.pass(200_000 * MS);
        assert_eq!(p.done_a(), []);
    }
    let mut p = Pair::with(|a, _| a.retry = 7);
    p.m.f.set_faults("drop-ack,nth=1").unwrap();
    write(&mut p, 1);
    write(&mut p, 2);
    assert_eq!(p.done_a(), []);
    p.m.f.set_faults("").unwrap();
    p.m.settle();
    let done = p.done_a();
    assert_eq!((done.len(), done[0].index, done[1].wr_id), (2, 1, 2));
    assert_eq!(outcome(&done[0]), (Status::RetryExceeded, Detail::Injected));
    assert_eq!(outcome(&done[1]).0, Status::Flush);
    assert_eq!(p.m.f.counter(Counter::WriteBytes), 8, "not performed again");
}

fn datagrams_have_faults() {
    let mut p = Port::new(2);
    p.recv(1, 7, &[p.mrs[1].sge(0, 100)]);
    // There is no acknowledgement that could be dropped, and no answer without a receive.
    p.m.f
        .set_faults("drop-ack;rnr=1;delay=1ms,nth=1;fail=rem-op,nth=2")
        .unwrap();
    p.send(0, p.to(1, 1), &[p.mrs[0].sge(0, 8)]);
    assert_eq!((p.done(0), p.done(1)), (vec![], vec![]));
    p.m.pass(MS);
    assert_eq!((p.done(0).len(), p.done(1).len()), (1, 1));
    p.send(0, p.to(1, 2), &[p.mrs[0].sge(0, 8)]);
    let expected = (Status::RemoteOperation, Detail::Injected);
    assert_eq!(outcome(&p.done(0)[0]), expected);
    let report = p.m.f.faults().report();
    assert_eq!(
        report,
        "drop-ack 0 of 0; rnr 0 of 0; delay 1 of 2; fail 1 of 2"
    );
}

fn rules_outlive_a_reset() {
    let mut p = under("delay=1s,nth=1;fail=rem-op,nth=2");
    write(&mut p, 1);
    assert_eq!(p.done_a(), []);
    p.m.f.reset();
    p.m.settle();
    assert_eq!(
        p.m.f.host().wake_at,
        u64::MAX,
        "the delay ends with the queue pair"
    );
    assert_eq!(report(&p), "delay 1 of 1; fail 0 of 1");
    assert_eq!(p.m.f.faults().text(), "delay=1s,nth=1;fail=rem-op,nth=2");
}
