// SPDX-License-Identifier: GPL-2.0
//! Quotas, with a device that keeps indices of destroyed objects for as long as processes choose.

use super::checks;
use qpair_queue::policy::quota::share;
use qpair_queue::policy::quota::together;
use qpair_queue::policy::quota::Account;
use qpair_queue::policy::quota::Kind;
use qpair_queue::policy::quota::Mark;
use qpair_queue::policy::quota::PerKind;
use qpair_queue::policy::quota::Scope;
use qpair_queue::policy::quota::Sums;
use qpair_testkit::with_seeds;
use qpair_testkit::Rng;

checks![
    no_context_gets_more_than_a_share,
    an_index_that_is_free_is_given_out,
    one_after_the_other,
];

const LIMIT: u32 = 32;
const USERS: usize = 3;

/// A context, and the device's count for it.
struct Context {
    /// `None` of a privileged one.
    user: Option<usize>,
    account: Account,
    live: u32,
    kept: u32,
    /// The device was queried: the mark, and its answer.
    asked: Option<(Mark, u32)>,
}

#[derive(Default)]
struct World {
    contexts: Vec<Context>,
    users: [PerKind<u32>; USERS],
    all: PerKind<u32>,
}

impl World {
    fn open(&mut self, user: Option<usize>) -> usize {
        self.contexts.push(Context {
            user,
            account: Account::default(),
            live: 0,
            kept: 0,
            asked: None,
        });
        self.contexts.len() - 1
    }

    fn at(&mut self, at: usize) -> (&mut Context, Option<Sums<'_>>) {
        let context = &mut self.contexts[at];
        let sums = context.user.map(|user| Sums {
            user: &mut self.users[user],
            all: &mut self.all,
        });
        (context, sums)
    }

    fn create(&mut self, at: usize) -> Result<(), Scope> {
        let (context, sums) = self.at(at);
        context.account.take(Kind::Qp, LIMIT, sums)?;
        context.live += 1;
        Ok(())
    }

    fn destroy(&mut self, at: usize) {
        let context = &mut self.contexts[at];
        if context.live != 0 {
            context.live -= 1;
            context.kept += 1;
            context.account.hold(Kind::Qp);
        }
    }

    fn ask(&mut self, at: usize) {
        let context = &mut self.contexts[at];
        context.asked = Some((context.account.mark(), context.kept));
    }

    fn settle(&mut self, at: usize) {
        let (context, sums) = self.at(at);
        if let Some((mark, kept)) = context.asked.take() {
            context.account.settle(Kind::Qp, &mark, kept, sums);
        }
    }

    fn close(&mut self, at: usize) {
        let context = self.contexts.swap_remove(at);
        let sums = context.user.map(|user| Sums {
            user: &mut self.users[user],
            all: &mut self.all,
        });
        context.account.close(sums);
    }

    /// Indices of the device that these contexts hold.
    fn indices(&self, whose: impl Fn(Option<usize>) -> bool) -> u32 {
        let contexts = self.contexts.iter().filter(|context| whose(context.user));
        contexts.map(|context| context.live + context.kept).sum()
    }

    fn check(&self) {
        let mut counted = [0; USERS];
        for context in &self.contexts {
            let count = context.account.count(Kind::Qp);
            let has = context.live + context.kept;
            assert_eq!(count.live, context.live, "live");
            assert!(count.held >= context.kept, "fewer are held than are kept");
            assert!(has <= share(LIMIT), "a context has {has}");
            if let Some(user) = context.user {
                counted[user] += count.live + count.held;
            }
        }
        for (user, counted) in counted.iter().enumerate() {
            assert_eq!(self.users[user].qp, *counted, "the sum of user {user}");
            let has = self.indices(|other| other == Some(user));
            assert!(has <= LIMIT / 2, "user {user} has {has} of {LIMIT}");
        }
        assert_eq!(self.all.qp, counted.iter().sum::<u32>(), "the sum of all");
        let has = self.indices(|user| user.is_some());
        assert!(has < LIMIT - LIMIT / 8, "users have {has} of {LIMIT}");
    }

    fn step(&mut self, rng: &mut Rng) {
        let count = self.contexts.len() as u32;
        let open = count < 8 && rng.one_in(16);
        if count == 0 || open {
            let user = rng.below32(USERS as u32 + 1) as usize;
            self.open((user < USERS).then_some(user));
            return;
        }
        let at = rng.below32(count) as usize;
        match rng.below32(64) {
            0..32 => drop(self.create(at)),
            32..48 => self.destroy(at),
            48..54 => self.ask(at),
            54..60 => self.settle(at),
            60..63 => self.contexts[at].kept = rng.below32(self.contexts[at].kept + 1),
            _ => self.close(at),
        }
    }
}

/// Whatever processes do, and however late the device is queried.
fn no_context_gets_more_than_a_share() {
    with_seeds("no_context_gets_more_than_a_share", 200, |rng| {
        let mut world = World::default();
        for _ in 0..400 {
            world.step(rng);
            world.check();
        }
        for at in (0..world.contexts.len()).rev() {
            world.close(at);
        }
        assert_eq!((world.users, world.all), Default::default());
    });
}

/// An index that the device no longer keeps can be used after a query.
fn an_index_that_is_free_is_given_out() {
    with_seeds("an_index_that_is_free_is_given_out", 200, |rng| {
        let mut world = World::default();
        for _ in 0..rng.below32(400) {
            world.step(rng);
        }
        for at in 0..world.contexts.len() {
            world.ask(at);
            world.settle(at);
        }
        for at in 0..world.contexts.len() {
            let user = world.contexts[at].user;
            let own = world.contexts[at].live + world.contexts[at].kept;
            let refused = if own >= share(LIMIT) {
                Err(Scope::Context)
            } else if user.is_some() && world.indices(|other| other == user) >= share(LIMIT) {
                Err(Scope::User)
            } else if user.is_some() && world.indices(|user| user.is_some()) >= together(LIMIT) {
                Err(Scope::Users)
            } else {
                Ok(())
            };
            assert_eq!(world.create(at), refused);
        }
    });
}

/// One object after the other, which the device frees at once: one query per share of them.
fn one_after_the_other() {
    let mut world = World::default();
    let at = world.open(Some(0));
    let mut asked = 0;
    for _ in 0..10 * share(LIMIT) {
        if world.create(at) == Err(Scope::Context) {
            asked += 1;
            world.ask(at);
            world.settle(at);
            world.create(at).expect("all are free");
        }
        world.destroy(at);
        world.contexts[at].kept = 0;
        world.check();
    }
    assert_eq!(asked, 9);
}
