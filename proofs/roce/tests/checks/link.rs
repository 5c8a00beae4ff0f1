// SPDX-License-Identifier: GPL-2.0
//! Long programs on random links: the rules of `link/world.rs` hold at each step, and all of it is
//! completed when the link has no faults any more.

use super::checks;
use crate::link::action::Action;
use crate::link::plan::Plan;
use crate::link::plan::Wanted;
use crate::link::plan::What;
use crate::link::world::World;
use qpair_roce::tries::Limits;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;

checks![random_programs_on_random_links, short_programs_on_bad_links];

const KINDS: [What; 6] = [
    What::Send,
    What::Write,
    What::Read,
    What::Atomic,
    What::Flush,
    What::Local,
];

fn program(rng: &mut Rng, most: u32) -> Vec<Wanted> {
    let count = 1 + rng.below32(most);
    let wanted = (0..count).map(|_| {
        let what = rng.pick(&KINDS);
        let packets = match what {
            What::Send | What::Write | What::Read => 1 + rng.below32(4),
            _ => 1,
        };
        Wanted {
            what,
            packets,
            fence: rng.one_in(6),
        }
    });
    wanted.collect()
}

/// Runs a program; one of `odds` steps is a fault or a deadline.
fn run(rng: &mut Rng, most: u32, odds: u32) {
    let program: &'static [Wanted] = program(rng, most).leak();
    let rnr_retry = rng.pick(&[None, None, Some(1), Some(6)]);
    let plan = Plan {
        program,
        limits: Limits {
            timeout: Some(1),
            retry: rng.pick(&[1, 3, 7]),
            rnr_retry,
            reads: rng.pick(&[1, 2]),
            window: rng.pick(&[1, 2, 3, 8, 128]),
        },
        depth: rng.pick(&[1, 3, 10]),
        faults: None,
        receives: rng.below32(8),
        refused: rng.one_in(8).then(|| rng.below32(program.len() as u32)),
    };
    let mut world = World::new(&plan);
    let mut actions = Vec::new();
    for _ in 0..20_000 {
        actions.clear();
        world.actions(&plan, &mut actions);
        let Some(_) = actions.first() else {
            break;
        };
        if rng.one_in(50) {
            assert_eq!(world.settled(&plan), None, "{plan:?}");
        }
        let is_bad = |action: &Action| match action {
            Action::Lose(_) | Action::Duplicate(_) | Action::Swap(..) | Action::Deadline => true,
            Action::Send | Action::Answer | Action::Deliver(_) | Action::Supply => false,
        };
        let bad = rng.one_in(odds);
        let chosen: Vec<_> = actions.iter().filter(|it| is_bad(it) == bad).collect();
        // If nothing else can happen, a deadline comes.
        let action = match chosen.is_empty() {
            true => rng.pick(&actions),
            false => *rng.pick(&chosen),
        };
        if !world.act(&plan, action) && actions.len() <= 2 {
            let deadline = actions.contains(&Action::Deadline);
            deadline.then(|| world.act(&plan, Action::Deadline));
        }
        assert_eq!(world.wrong, None, "{plan:?}");
    }
    assert_eq!(world.settled(&plan), None, "{plan:?}");
}

fn random_programs_on_random_links() {
    with_seeds("random_programs_on_random_links", 150, |rng| {
        run(rng, 40, 20)
    });
}

fn short_programs_on_bad_links() {
    with_seeds("short_programs_on_bad_links", 1000, |rng| run(rng, 4, 3));
}
