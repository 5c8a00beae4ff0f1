// SPDX-License-Identifier: GPL-2.0
//! Faults of frames between machines.

use super::checks;
use super::net::pair;
use super::net::to;
use super::net::End;
use crate::harness::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;

checks![
    each_fault_of_a_frame,
    a_corrupt_frame_has_a_wrong_checksum,
    faults_of_frames_by_chance,
    frames_that_are_held_are_released,
];

/// The numbers of five datagrams in the order in which they are received, with these rules at the
/// machine with this place.
fn received(place: usize, rules: &str) -> Vec<u32> {
    let (mut lan, mut a, mut b) = pair();
    lan.machines[place].f.set_faults(rules).unwrap();
    received_of(&mut lan, &mut a, &mut b, 5)
}

fn received_of(lan: &mut Lan, a: &mut End, b: &mut End, count: u32) -> Vec<u32> {
    for imm in 0..count {
        b.recv(lan, 5);
        b.recv(lan, 5);
        let wqe = UdWqe {
            opcode: work::SEND_IMM,
            imm,
            ..to(b, 1)
        };
        a.post(lan, &ud_words(wqe, &[a.mr.sge(0, 100)]));
    }
    lan.settle();
    a.done(lan);
    b.done(lan).iter().map(|cqe| cqe.imm).collect()
}

fn each_fault_of_a_frame() {
    for (place, way, other) in [(0, "out", "in"), (1, "in", "out")] {
        let with = |rule: &str| received(place, &rule.replace("WAY", way));
        assert_eq!(with("wire=drop,dir=WAY,nth=2"), [0, 2, 3, 4]);
        assert_eq!(with("wire=dup,dir=WAY,nth=2"), [0, 1, 1, 2, 3, 4]);
        assert_eq!(with("wire=reorder,dir=WAY,nth=2"), [0, 2, 1, 3, 4]);
        assert_eq!(with("wire=delay:1ms,dir=WAY,nth=2"), [0, 2, 3, 4, 1]);
        assert_eq!(with("wire=drop,every=2,times=1"), [0, 2, 3, 4], "both ways");
        assert_eq!(
            with("wire=drop,qp=9"),
            [0, 1, 2, 3, 4],
            "another queue pair"
        );
        assert_eq!(with("wire=drop,qp=1"), [], "its index");
        let rule = format!("wire=drop,dir={other}");
        assert_eq!(received(place, &rule), [0, 1, 2, 3, 4]);
        for seed in 0..64 {
            let rule = format!("seed={seed};wire=corrupt,dir=WAY,nth=3");
            assert_eq!(with(&rule), [0, 1, 3, 4], "seed {seed}");
        }
        // Two rules: the first that strikes counts.
        let rules = "wire=reorder,dir=WAY,nth=1;wire=drop,dir=WAY,nth=2";
        assert_eq!(with(rules), [0, 2, 3, 4]);
        let rules = "wire=reorder,dir=WAY,nth=1;wire=reorder,dir=WAY,nth=2";
        assert_eq!(with(rules), [0, 2, 1, 3, 4]);
    }
}

/// Whatever the IP header, and also if QEMU has padded the frame.
fn a_corrupt_frame_has_a_wrong_checksum() {
    let judged = [
        Counter::FramesIn,
        Counter::FramesCorrupt,
        Counter::FramesForeign,
        Counter::FramesMalformed,
    ];
    for ipv6 in [false, true] {
        let mut f = Far::with(Connection {
            ipv6,
            ..Connection::default()
        });
        f.lan.sent = Some(Vec::new());
        f.recv(5, &[]);
        f.send(wqe(work::SEND, 1), &[]);
        let mut frame = f.lan.sent.take().unwrap().swap_remove(0).1;
        frame.resize(frame.len() + 64, 0);
        for seed in 0..64 {
            let rules = format!("seed={seed};wire=corrupt,dir=in");
            f.m(1).f.set_faults(&rules).unwrap();
            let before = judged.map(|counter| f.m(1).f.counter(counter));
            assert!(f.lan.deliver(1, &frame));
            let after = judged.map(|counter| f.m(1).f.counter(counter));
            let counted: Vec<_> = after.iter().zip(before).map(|(a, b)| a - b).collect();
            assert_eq!(counted, [1, 1, 0, 0], "seed {seed}, IPv6: {ipv6}");
        }
    }
}

fn faults_of_frames_by_chance() {
    let run = |rules: &str| {
        let (mut lan, mut a, mut b) = pair();
        lan.machines[0].f.set_faults(rules).unwrap();
        let got = received_of(&mut lan, &mut a, &mut b, 100);
        (got, lan.machines[0].f.faults().report())
    };
    let first = run("seed=7;wire=drop,dir=out,chance=0.1;wire=reorder,chance=0.1");
    assert_eq!(
        run("seed=7;wire=drop,dir=out,chance=0.1;wire=reorder,chance=0.1"),
        first
    );
    assert_ne!(
        run("seed=8;wire=drop,dir=out,chance=0.1;wire=reorder,chance=0.1"),
        first
    );
    assert!((80..100).contains(&first.0.len()), "{first:?}");
    assert!(!first.0.is_sorted(), "in another order");
    assert!(first.1.contains(" of 100"), "{}", first.1);
}

fn frames_that_are_held_are_released() {
    for (rules, place) in [
        ("wire=reorder", 0),
        ("wire=reorder", 1),
        ("wire=delay:1000s", 0),
        ("wire=delay:1000s", 1),
    ] {
        let (mut lan, mut a, mut b) = pair();
        lan.machines[place].f.set_faults(rules).unwrap();
        b.recv(&mut lan, 5);
        a.post(&mut lan, &ud_words(to(&b, 1), &[a.mr.sge(0, 8)]));
        lan.pass(1_000_000);
        assert_eq!(b.done(&mut lan), []);
        lan.machines[place].f.set_faults("").unwrap();
        lan.pass(1_000_000);
        assert_eq!(b.done(&mut lan).len(), 1, "{rules}");
        // A reset ends the rest.
        lan.machines[1].f.set_faults(rules).unwrap();
        b.recv(&mut lan, 5);
        a.post(&mut lan, &ud_words(to(&b, 1), &[a.mr.sge(0, 8)]));
        lan.pass(1_000_000);
        let m = &mut lan.machines[1];
        m.f.reset();
        assert_eq!(m.f.host().wake_at, u64::MAX);
        m.f.set_faults("").unwrap();
        assert_eq!(m.f.counter(Counter::FramesIn), 0);
    }
}
