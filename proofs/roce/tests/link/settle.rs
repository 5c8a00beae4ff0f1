// SPDX-License-Identifier: GPL-2.0
//! What becomes of a world whose link has no faults any more.

use super::action::Action;
use super::action::Way;
use super::plan::Plan;
use super::rules::STUCK;
use super::world::World;

/// More than enough steps for the longest program.
const STEPS: usize = 5000;

impl World {
    /// The next step on a link without faults, in order: frames arrive, ends answer and send,
    /// receives are posted, and a deadline comes only when nothing else happens.
    fn step(&mut self, plan: &Plan) -> bool {
        let action = if !self.back.is_empty() {
            Action::Deliver(Way::Back)
        } else if !self.there.is_empty() {
            Action::Deliver(Way::There)
        } else if self.receiver.has_answers() {
            Action::Answer
        } else if self.act(plan, Action::Send) {
            return true;
        } else {
            let mut rest = Vec::new();
            self.actions(plan, &mut rest);
            match rest.contains(&Action::Supply) {
                true => Action::Supply,
                false if rest.contains(&Action::Deadline) => Action::Deadline,
                false => return false,
            }
        };
        self.act(plan, action)
    }

    /// The rule that a world without faults breaks, if it does: it has to complete everything, or to
    /// fail, and it may fail only if a budget was nearly used up or the peer refuses a request.
    pub fn settled(&self, plan: &Plan) -> Option<&'static str> {
        let mut world = self.clone();
        let may_fail = plan.refused.is_some() || self.failed || !self.has_budget(plan);
        for _ in 0..STEPS {
            if world.is_over(plan) || !world.step(plan) {
                break;
            }
        }
        let done = world.is_over(plan) && (may_fail || !world.failed);
        world.wrong.or((!done).then_some(STUCK))
    }
}
