// SPDX-License-Identifier: GPL-2.0
//! The end of a run of the core.

use super::buffers::Pages;
use super::checks;
use super::schedule::in_doorbells;
use super::schedule::loops;
use super::schedule::WQES;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_model::Config;
use qpair_model::Run;

checks![a_run_ends_when_its_time_is_up, lists_are_part_of_a_turn,];

fn a_run_ends_when_its_time_is_up() {
    let mut m = Machine::new();
    let (mut cq, mut qps, _) = loops(&mut m, 1, 10);
    for i in 0..20 * WQES {
        m.post(&mut qps[0], wqe(work::NOP, i), &[]);
    }
    m.ring_sq(&qps[0]);
    m.f.host_mut().time_is_up = true;
    for turns in [8, 16] {
        assert_eq!(m.f.run(1000), Run::More);
        assert_eq!(m.drain(&mut cq).len() as u64, 8 * WQES, "{turns}");
    }
    m.f.host_mut().time_is_up = false;
    assert_eq!(m.f.run(1000), Run::Idle);
    // Where the clock of the machine decides, the time of a thread changes nothing.
    for config in [
        in_doorbells(),
        Config {
            wqe_ns: 1,
            ..Config::default()
        },
    ] {
        let paced = config.wqe_ns != 0;
        let mut m = Machine::with(config);
        let (mut cq, mut qps, _) = loops(&mut m, 1, 10);
        m.f.host_mut().time_is_up = true;
        m.f.set_stall(true);
        for i in 0..20 * WQES {
            m.post(&mut qps[0], wqe(work::NOP, i), &[]);
        }
        m.ring_sq(&qps[0]);
        m.f.set_stall(false);
        m.f.host_mut().now += 1000;
        assert_eq!(m.f.run(1000), Run::Idle);
        let done = m.drain(&mut cq).len() as u64;
        assert_eq!(done, if paced { 1 } else { 20 * WQES });
    }
}

/// Commands whose lists are long end the turn of the admin queue pair, and the run, as messages do.
fn lists_are_part_of_a_turn() {
    let mut m = Machine::with(Config {
        turn_bytes: 16 << 10,
        ..Config::default()
    });
    let (mut cq, mut qps, _) = loops(&mut m, 1, 8);
    // 1024 pages, of which each list has 8 KiB.
    let pages = Pages::new(&m, 32 << 17, 1, 12, 0);
    let context = CqContext {
        log_depth: 17,
        buffer: pages.list,
        ..CqContext::default()
    };
    m.memory.set_words(m.context, &context.encode());
    let create = Command {
        opcode: opcode(kind::CQ, verb::CREATE),
        blocks: 1,
        context: m.context,
        context_bytes: CqContext::BYTES as u32,
        ..Command::default()
    };
    let before = m.f.counter(Counter::Commands);
    m.f.set_stall(true);
    for _ in 0..7 {
        m.post_command(&Machine::command_words(&create));
    }
    m.post(&mut qps[0], wqe(work::NOP, 1), &[]);
    m.ring_sq(&qps[0]);
    m.f.set_stall(false);
    let done = |m: &Machine| m.f.counter(Counter::Commands) - before;
    for (run, commands) in [
        (Run::More, 2),
        (Run::More, 4),
        (Run::More, 6),
        (Run::Idle, 7),
    ] {
        assert_eq!(m.f.run(64), run);
        assert_eq!(done(&m), commands);
        assert_eq!(m.drain(&mut cq).len(), usize::from(commands == 2));
    }
}
