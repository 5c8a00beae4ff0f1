// SPDX-License-Identifier: GPL-2.0

//! The registrations of a function with the RDMA core, for whose end unbind waits.

use crate::kernel::sync::Completion;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    }, //
};

/// The registrations that have not ended. The core may still end the last one while the function,
/// after a reset, has a new one.
#[pin_data]
pub(super) struct Registrations {
    count: Atomic<usize>,
    #[pin]
    ended: Completion,
}

impl Registrations {
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Arc<Self>> {
        let this = pin_init!(Self {
            count: Atomic::new(0),
            ended <- Completion::new(),
        });
        Arc::pin_init(this, GFP_KERNEL)
    }

    /// Waits until there is none, for `seconds` at most. Ignores signals. Sleeps.
    pub(super) fn wait_for_none(&self, mut seconds: u32) {
        while self.count.load(Acquire) != 0 && seconds != 0 {
            // It completes at once for each that has ended before.
            if !self.ended.wait_timeout(1000) {
                seconds -= 1;
            }
        }
    }
}

/// One of them, until the drop: the core has freed the RDMA device, and ULPs all objects on it.
pub(super) struct Ongoing(Arc<Registrations>);

impl Ongoing {
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(all: &Arc<Registrations>) -> Result<Arc<Self>> {
        all.count.fetch_add(1, Full);
        Ok(Arc::new(Self(all.clone()), GFP_KERNEL)?)
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Full);
        self.0.ended.complete();
    }
}

#[kernel::macros::kunit_tests(qpair_registrations)]
mod tests {
    use super::*;
    use kernel::time::{
        Instant,
        Monotonic, //
    };

    #[test]
    fn the_wait_for_one_that_does_not_end_ends() -> Result {
        let all = Registrations::new()?;
        let ongoing = Ongoing::new(&all)?;
        let began = Instant::<Monotonic>::now();
        all.wait_for_none(1);
        // A timeout may end up to a jiffy early.
        assert!(began.elapsed().as_millis() > 900);
        drop(ongoing);
        assert_eq!(all.count.load(Acquire), 0);
        all.wait_for_none(1);
        Ok(())
    }
}
