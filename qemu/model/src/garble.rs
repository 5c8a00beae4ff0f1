// SPDX-License-Identifier: GPL-2.0
//! The point at which the rules of [`Faults`](crate::Faults) meet what the device writes for software:
//! an entry of a ring, the context of a QUERY, or a register that is read.

use crate::faults::Written;
use crate::host::Host;
use crate::host::Trace;
use crate::schedule::Core;
use qpair_abi::Number;

/// Bits of a word in memory, and of a register.
const WORD_BITS: u32 = 64;
const REGISTER_BITS: u32 = 32;

impl<H: Host> Core<H> {
    /// Makes a word of an entry or of a context wrong, if a rule says so. `number` is the object that
    /// it is about, for the trace.
    #[inline(always)]
    pub(crate) fn garble(&mut self, written: Written, number: Number, words: &mut [u64]) {
        if self.faults.are_set() {
            self.meet_words(written, number, 0, WORD_BITS, words);
        }
    }

    /// The value of a register at this offset, wrong if a rule says so.
    pub(crate) fn garbled(&mut self, offset: u64, value: u32) -> u32 {
        let mut words = [value.into()];
        if self.faults.are_set() {
            let first = offset as usize / size_of::<u32>();
            let number = Number::ADMIN;
            self.meet_words(Written::Register, number, first, REGISTER_BITS, &mut words);
        }
        let [word] = words;
        word as u32
    }

    #[cold]
    fn meet_words(
        &mut self,
        written: Written,
        number: Number,
        first: usize,
        bits: u32,
        words: &mut [u64],
    ) {
        for place in 0..self.faults.count() {
            if let Some(word) = self.faults.garbles(place, written, first, bits, words) {
                self.bus.host.trace(Trace::Garbage {
                    rule: place as u32 + 1,
                    number,
                    word: word as u32,
                });
            }
        }
    }
}
