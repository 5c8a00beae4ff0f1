// SPDX-License-Identifier: GPL-2.0
//! What a test can break, from outside and while the function runs.

use crate::host::Host;
use crate::Function;
use crate::State;
use qpair_abi::entry::Cqe;
use qpair_abi::entry::Eqe;
use qpair_abi::status::EnableError;

/// What is broken now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// The how manieth admin command from now fails; 0 is none.
    pub fail_command: u32,
    /// So many interrupts are lost.
    pub drop_interrupts: u32,
    /// Interrupts come so much later.
    pub delay_interrupts: u64,
    /// The core does nothing.
    pub stalled: bool,
    /// The function is gone: all reads are ones.
    pub vanished: bool,
    /// How long after a doorbell an idle core begins.
    pub core_delay_ns: u64,
    /// How long the core takes for a WQE.
    pub wqe_ns: u64,
    /// What keys follow from after the next reset; 0 is a random number.
    pub key_seed: u64,
    /// Where the indices of new rings begin. Software begins at 0, so this is for tests of the wrap alone.
    pub first_index: u32,
}

impl<H: Host> Function<H> {
    /// What is broken now.
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// Makes the `nth` admin command from now fail, 1 being the next; 0 makes none fail.
    pub fn fail_command(&mut self, nth: u32) {
        self.knobs.fail_command = nth;
    }

    /// Loses the next interrupts.
    pub fn drop_interrupts(&mut self, count: u32) {
        self.knobs.drop_interrupts = count;
    }

    /// Delays interrupts.
    pub fn delay_interrupts(&mut self, nanos: u64) {
        self.knobs.delay_interrupts = nanos;
    }

    /// Stops the core, or lets it go on. Doorbells are still taken.
    pub fn set_stall(&mut self, stalled: bool) {
        self.knobs.stalled = stalled;
        if !stalled && !self.run_queue.is_empty() {
            self.bus.host.wake();
        }
    }

    /// Whether the core is stopped.
    pub fn is_stalled(&self) -> bool {
        self.knobs.stalled
    }

    /// Takes the function away, as if it had been pulled out, or brings it back as it was.
    pub fn set_vanish(&mut self, vanished: bool) {
        self.knobs.vanished = vanished;
        if !vanished && !self.run_queue.is_empty() {
            self.bus.host.wake();
        }
    }

    /// Whether it is taken away.
    pub fn is_vanished(&self) -> bool {
        self.knobs.vanished
    }

    /// Sets how long after a doorbell an idle core begins.
    pub fn set_core_delay(&mut self, nanos: u64) {
        self.knobs.core_delay_ns = nanos;
        self.paced_anew();
    }

    /// Sets how long the core takes for a WQE.
    pub fn set_wqe_ns(&mut self, nanos: u64) {
        self.knobs.wqe_ns = nanos;
        self.paced_anew();
    }

    /// Who waits in line for the clock has to be seen to without it.
    fn paced_anew(&mut self) {
        self.set_timer();
        if !self.run_queue.is_empty() {
            self.bus.host.wake();
        }
    }

    /// Sets what the keys of memory regions follow from after the next reset.
    pub fn set_key_seed(&mut self, seed: u64) {
        self.knobs.key_seed = seed;
    }

    /// Lets the indices of rings that are made from now on begin elsewhere than at 0.
    pub fn set_first_index(&mut self, index: u32) {
        self.knobs.first_index = index;
    }

    /// Makes the function stop by itself.
    pub fn go_fatal(&mut self) {
        self.fatal(EnableError::Injected);
    }

    /// Writes a CQE with this content, its owner bit made valid, into the CQ at `index`. Whether there is one.
    pub fn inject_cqe(&mut self, index: u16, words: [u64; Cqe::WORDS]) -> bool {
        let cq = self.cqs.at(usize::from(index));
        if self.state != State::Ready || self.knobs.vanished {
            return false;
        }
        if let Some(cq) = cq {
            self.put_completion(cq, words, true);
        }
        cq.is_some()
    }

    /// Writes an EQE with this content, its owner bit made valid, into the EQ at `index`. Whether there is one.
    pub fn inject_eqe(&mut self, index: u16, words: [u64; Eqe::WORDS]) -> bool {
        let eq = self.eqs.at(usize::from(index));
        if self.state != State::Ready || self.knobs.vanished {
            return false;
        }
        if let Some(eq) = eq {
            self.put_foreign_event(eq, words);
        }
        eq.is_some()
    }
}
