// SPDX-License-Identifier: GPL-2.0
//! The poll's share of a CPU, beside a process that never sleeps, with a fair scheduler.

use super::checks;
use super::prop::holds;
use proptest::collection::vec;
use qpair_queue::policy::share::Share;
use qpair_queue::policy::share::Time;
use qpair_queue::policy::share::LOAN;
use qpair_queue::policy::share::MOST;
use qpair_queue::policy::share::ROW;
use std::cell::Cell;

checks![
    a_process_keeps_its_share,
    a_light_load_never_asks,
    idle_time_is_free,
    a_debt_is_forgotten,
    a_turn_that_was_given_ends,
    an_even_end_makes_no_difference,
];

/// How long a thread runs before another gets its turn.
const SLICE: u64 = 3_000_000;

/// A CPU with a process that computes, and polls.
struct Cpu {
    now: u64,
    share: Share,
    process: u64,
    /// CPU time of the poll's thread.
    thread: u64,
}

impl Cpu {
    fn new() -> Self {
        Self {
            now: 0,
            share: Share::default(),
            process: 0,
            thread: 0,
        }
    }

    fn compute(&mut self, time: u64) {
        self.now += time;
        self.process += time;
    }

    /// Polls on an idle CPU, one after the other.
    fn idle(&mut self, polls: u32) {
        for poll in 0..polls {
            let may = self.share.begin(self.now, Time::Idle);
            assert!(may, "poll {poll} of an idle CPU has to ask");
            self.now += LOAN;
            self.share.end(self.now, true, false);
        }
    }

    /// An interrupt, and polls until there is no more work; returns whether a poll had to wait for
    /// the scheduler.
    fn event(&mut self, polls: impl IntoIterator<Item = u64>) -> bool {
        let mut polls = polls.into_iter().peekable();
        let (mut given, mut asked) = (false, false);
        while let Some(&took) = polls.peek() {
            let time = if given { Time::Given } else { Time::Taken };
            if !self.share.begin(self.now, time) {
                assert!(!given, "asked for time in time that was given");
                asked = true;
                // The process runs until both have had the same time.
                self.compute(self.thread.saturating_sub(self.process));
                self.thread = self.thread.max(self.process.saturating_sub(SLICE));
                given = true;
                continue;
            }
            polls.next();
            self.now += took;
            if given || asked {
                self.thread += took;
            }
            given = false;
            self.share.end(self.now, polls.peek().is_some(), true);
        }
        asked
    }
}

fn a_process_keeps_its_share() {
    // Interrupts shortly after the last poll, each for several polls.
    let load = (1_000u64..20_000, vec(1_000u64..400_000, 1..20));
    holds(200, load, |(pause, polls)| {
        let mut cpu = Cpu::new();
        // The process begins here.
        cpu.idle(3);
        let begin = cpu.now;
        while cpu.now < begin + 2_000_000_000 {
            cpu.event(polls.iter().copied());
            cpu.compute(pause);
        }
        let percent = 100 * cpu.process / (cpu.now - begin);
        assert!(percent >= 44, "the process has had {percent} % of its CPU");
    });
}

fn a_light_load_never_asks() {
    // A ninth of the CPU.
    holds(100, 1_000u64..200_000, |poll| {
        let mut cpu = Cpu::new();
        for _ in 0..2_000 {
            assert!(!cpu.event([poll]), "had to ask");
            cpu.compute(8 * poll);
        }
    });
}

fn idle_time_is_free() {
    let mut cpu = Cpu::new();
    cpu.idle(100);
    assert!(!cpu.event([LOAN]), "owes for idle time");
    // A task is woken in each poll, and waits for its end.
    let mut polls = 0;
    while cpu.share.begin(cpu.now, Time::Idle) && polls < 5 {
        cpu.now += LOAN;
        cpu.share.end(cpu.now, true, true);
        polls += 1;
    }
    assert!(
        cpu.event([LOAN]),
        "owes nothing for time that a task waited"
    );
    // A poll that ends without work left only wakes a task.
    cpu.compute(MOST);
    for _ in 0..5 {
        assert!(cpu.share.begin(cpu.now, Time::Idle));
        cpu.now += LOAN;
        cpu.share.end(cpu.now, false, true);
    }
    assert!(!cpu.event([LOAN]), "owes for polls that were done");
    // A poll with debt may use idle time.
    assert!(cpu.event([LOAN; 5]), "did not have to ask");
    cpu.idle(100);
}

fn a_debt_is_forgotten() {
    let mut cpu = Cpu::new();
    assert!(cpu.event([LOAN; 5]), "did not have to ask");
    cpu.compute(40 * LOAN);
    assert!(!cpu.event([LOAN / 2]), "has to ask for what was long ago");
    // As long as if the host had stopped the whole machine.
    cpu.event([1_000 * LOAN]);
    cpu.compute(MOST);
    assert!(!cpu.event([LOAN / 2]), "owes for what it did not have");
}

fn a_turn_that_was_given_ends() {
    let mut share = Share::default();
    assert!(share.begin(0, Time::Taken));
    share.end(100 * LOAN, true, true);
    let now = 100 * LOAN;
    assert!(!share.begin(now, Time::Taken), "a loan without end");
    for poll in 0..ROW {
        let time = if poll == 0 { Time::Given } else { Time::Taken };
        assert!(share.begin(now, time), "poll {poll} of its turn");
        share.end(now, true, true);
    }
    assert!(!share.begin(now, Time::Taken), "a turn without end");
    assert!(share.begin(now, Time::Given));
    share.end(now, false, true);
    assert!(
        !share.begin(now, Time::Taken),
        "a turn goes on after its end"
    );
}

/// Two accounts of the same polls. One omits the ends for which `is_even` returns true.
fn an_even_end_makes_no_difference() {
    let times = [Time::Idle, Time::Taken, Time::Given];
    let poll = (0..6usize, 0..LOAN, 0..2 * LOAN, 0..4u8);
    let left_out = Cell::new(0u32);
    holds(200, vec(poll, 1..60), |polls| {
        let (mut whole, mut lean) = (Share::default(), Share::default());
        let mut now = MOST;
        for (time, took, pause, how) in polls {
            // Most find the CPU idle.
            let time = *times.get(time).unwrap_or(&Time::Idle);
            let (more, wanted) = (how == 0, how <= 1);
            let may = whole.begin(now, time);
            assert_eq!(lean.begin(now, time), may, "has to ask, or not");
            if may {
                now += took;
                whole.end(now, more, wanted);
                if lean.is_even(more) {
                    left_out.set(left_out.get() + 1);
                } else {
                    lean.end(now, more, wanted);
                }
            }
            now += pause;
        }
    });
    assert_ne!(left_out.get(), 0, "no end was left out");
}
