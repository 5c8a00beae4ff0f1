// SPDX-License-Identifier: GPL-2.0
//! Garbage in what the device writes: in the words that a rule names, as often as it says, and in no
//! others.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::regs::offset;
use qpair_abi::Number;
use qpair_model::host::Trace;
use qpair_model::Faults;

checks![
    bad_places_are_refused,
    each_word_of_a_completion,
    each_word_of_an_event,
    each_word_of_an_answer,
    the_trace_names_the_object,
    a_register,
    the_nth_alone,
    two_words_at_once,
    one_seed_gives_the_same_garbage,
];

const SEEDS: u64 = 20;

fn bad_places_are_refused() {
    for (text, why) in [
        (
            "garble",
            "what the device writes is one of cqe, eqe, answer, register",
        ),
        ("garble=wqe", "what the device writes is one of"),
        ("garble=cqe:", "the word of cqe is a number from 0 to 3"),
        ("garble=cqe:1:2", "a number from 0"),
        (
            "garble=cqe:4",
            "'garble=cqe:4': the word of cqe is a number from 0 to 3",
        ),
        ("garble=eqe:2", "the word of eqe is a number from 0 to 1"),
        ("garble=cqe,qp=3", "qp= does not go with garble="),
        ("garble=cqe,opcode=send", "nor with garble="),
        ("garble=cqe,dir=in", "dir= goes with wire= alone"),
        ("garble=cqe,freeze", "a rule has one action"),
    ] {
        let refused = Faults::parse(text).expect_err(text);
        assert!(refused.contains(why), "{text}: {refused}");
    }
    for (written, words) in [("answer", Counter::COUNT), ("register", offset::ALL.len())] {
        let of = |word: usize| Faults::parse(&format!("garble={written}:{word}"));
        of(words - 1).unwrap();
        let why = format!("the word of {written} is a number from 0 to {}", words - 1);
        assert!(of(words).unwrap_err().contains(&why));
    }
    for text in [
        "garble=register:3,nth=2",
        "garble=answer,chance=0.5,times=1",
    ] {
        Faults::parse(text).unwrap();
    }
}

/// The words of the first completion of a WRITE and of the event of it, under rules.
fn written(rules: &str) -> ([u64; 4], [u64; 2], String) {
    let mut p = Pair::new();
    let eq = p.m.eq0.ring.addr + u64::from(p.m.eq0.ring.head) * 16;
    p.m.arm(&p.cq_a.clone());
    p.m.f.set_faults(rules).unwrap();
    let request = p.remote(opcode::WRITE, 0);
    p.send(request, &[p.mr_a.sge(0, 8)]);
    p.m.settle();
    let cqe = p.m.memory.words(p.cq_a.ring.addr);
    (cqe, p.m.memory.words(eq), p.m.f.faults().report())
}

/// Which words differ.
fn changed<const N: usize>(right: [u64; N], wrong: [u64; N]) -> Vec<usize> {
    (0..N).filter(|&at| right[at] != wrong[at]).collect()
}

fn each_word_of_a_completion() {
    let (cqe, eqe, _) = written("");
    for word in 0..4 {
        for seed in 0..SEEDS {
            let (wrong, event, report) = written(&format!("seed={seed};garble=cqe:{word}"));
            assert_eq!(changed(cqe, wrong), [word], "seed {seed}");
            assert_eq!((event, report.as_str()), (eqe, "garble 1 of 1"));
        }
    }
    let any = (0..SEEDS).flat_map(|seed| {
        let wrong = written(&format!("seed={seed};garble=cqe")).0;
        changed(cqe, wrong)
    });
    let mut any: Vec<usize> = any.collect();
    assert_eq!(any.len() as u64, SEEDS);
    any.sort_unstable();
    any.dedup();
    assert_eq!(any, [0, 1, 2, 3]);
}

fn each_word_of_an_event() {
    let (cqe, eqe, _) = written("");
    for word in 0..2 {
        for seed in 0..SEEDS {
            let (entry, wrong, report) = written(&format!("seed={seed};garble=eqe:{word}"));
            assert_eq!(changed(eqe, wrong), [word], "seed {seed}");
            assert_eq!((entry, report.as_str()), (cqe, "garble 1 of 1"));
        }
    }
}

fn each_word_of_an_answer() {
    let answer = |rules: &str| {
        let mut p = Pair::new();
        p.m.f.set_faults(rules).unwrap();
        let number = p.cq_a.number;
        p.m.query::<8>(kind::CQ, number)
    };
    let right = answer("");
    for word in 0..CqContext::WORDS {
        for seed in 0..SEEDS {
            let wrong = answer(&format!("seed={seed};garble=answer:{word}"));
            assert_eq!(changed(right, wrong), [word], "seed {seed}");
        }
    }
}

fn the_trace_names_the_object() {
    let mut p = Pair::new();
    p.m.f.host_mut().keep_traces = true;
    p.m.arm(&p.cq_a.clone());
    p.m.f
        .set_faults("garble=cqe:1,nth=1;garble=eqe:0;garble=answer:5;garble=register:3")
        .unwrap();
    let request = p.remote(opcode::WRITE, 0);
    p.send(request, &[p.mr_a.sge(0, 8)]);
    p.m.settle();
    let (qp, cq, other) = (p.a.number, p.cq_a.number, p.cq_b.number);
    p.m.query::<8>(kind::CQ, other);
    p.m.f.reg_read(offset::STATUS);
    let traces = p.m.f.host().traces.iter();
    let garbage: Vec<_> = traces
        .filter_map(|trace| match *trace {
            Trace::Garbage { rule, number, word } => Some((rule, number, word)),
            _ => None,
        })
        .collect();
    assert_eq!(garbage[..2], [(1, qp, 1), (2, cq, 0)], "{garbage:?}");
    assert!(garbage.contains(&(3, other, 5)), "{garbage:?}");
    assert_eq!(garbage.last(), Some(&(4, Number::ADMIN, 3)));
}

fn a_register() {
    let mut m = Machine::new();
    let (status, magic) = (m.f.reg_read(offset::STATUS), m.f.reg_read(offset::MAGIC));
    for seed in 0..SEEDS {
        let rules = format!("seed={seed};garble=register:{}", offset::STATUS / 4);
        m.f.set_faults(&rules).unwrap();
        assert_eq!(m.f.reg_read(offset::MAGIC), magic);
        assert_ne!(m.f.reg_read(offset::STATUS), status, "seed {seed}");
        assert_eq!(m.f.faults().report(), "garble 1 of 1");
    }
    m.f.set_faults("garble=register").unwrap();
    assert_ne!(m.f.reg_read(offset::MAGIC), magic);
    // What is gone stays gone.
    m.f.set_vanish(true);
    assert_eq!(m.f.reg_read(offset::MAGIC), u32::MAX);
}

fn the_nth_alone() {
    let mut m = Machine::new();
    let magic = m.f.reg_read(offset::MAGIC);
    m.f.set_faults("garble=register,nth=2").unwrap();
    let wrong: Vec<bool> = (0..4)
        .map(|_| m.f.reg_read(offset::MAGIC) != magic)
        .collect();
    assert_eq!(wrong, [false, true, false, false]);
    assert_eq!(m.f.faults().report(), "garble 1 of 4");
}

fn two_words_at_once() {
    let cqe = written("").0;
    let (wrong, _, report) = written("garble=cqe:0;garble=cqe:2");
    assert_eq!(changed(cqe, wrong), [0, 2]);
    assert_eq!(report, "garble 1 of 1; garble 1 of 1");
    // The same one twice is wrong too.
    for seed in 0..SEEDS {
        let rules = format!("seed={seed};garble=cqe:0;garble=cqe:0");
        assert_eq!(changed(cqe, written(&rules).0), [0], "seed {seed}");
    }
}

fn one_seed_gives_the_same_garbage() {
    let of = |seed: u64| written(&format!("seed={seed};garble=cqe:0")).0[0];
    let words: Vec<u64> = (0..SEEDS).map(of).collect();
    assert_eq!(words, (0..SEEDS).map(of).collect::<Vec<_>>());
    let right = written("").0[0];
    // None, all, one bit, and any.
    assert!(words.contains(&0) || right == 0);
    assert!(words.contains(&u64::MAX));
    assert!(words.iter().any(|word| (word ^ right).is_power_of_two()));
    assert!(words
        .iter()
        .any(|word| (8..56).contains(&(word ^ right).count_ones()) && *word != 0));
}
