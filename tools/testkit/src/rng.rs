// SPDX-License-Identifier: GPL-2.0
//! Random numbers from a seed that is printed when a check fails, or from the bytes of a fuzzer.

use std::time::Instant;

/// A source of numbers.
#[derive(Clone, Debug)]
pub struct Rng(Source);

#[derive(Clone, Debug)]
enum Source {
    /// SplitMix64.
    Seed(u64),
    /// Bytes in reverse, which are used up from the end.
    Bytes(Vec<u8>),
}

impl Rng {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(Source::Seed(seed))
    }

    /// Numbers from bytes, and zeros after them.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Source::Bytes(bytes.iter().rev().copied().collect()))
    }

    /// Whether the bytes are used up. There is no end of the numbers of a seed.
    pub fn is_spent(&self) -> bool {
        matches!(&self.0, Source::Bytes(bytes) if bytes.is_empty())
    }

    /// A number from as many bytes as one less than `bound` has.
    fn take(&mut self, bound: u64) -> u64 {
        match &mut self.0 {
            Source::Seed(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = *state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ (z >> 31)
            }
            Source::Bytes(bytes) => {
                let count = (u64::BITS - (bound - 1).leading_zeros()).div_ceil(8);
                (0..count).fold(0, |number, _| {
                    number << 8 | u64::from(bytes.pop().unwrap_or(0))
                })
            }
        }
    }

    /// The next number, of all 64-bit ones.
    #[allow(clippy::should_implement_trait)] // It never ends.
    pub fn next(&mut self) -> u64 {
        self.take(u64::MAX)
    }

    /// A number less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.take(bound) % bound
    }

    /// As [`below`](Self::below), of 32 bits.
    pub fn below32(&mut self, bound: u32) -> u32 {
        self.below(bound.into()) as u32
    }

    /// One time in `n`.
    pub fn one_in(&mut self, n: u32) -> bool {
        self.below32(n) == 0
    }

    /// An element of a slice that is not empty.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Numbers that are often handled wrongly: small, near powers of two, or random.
    pub fn odd(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(8),
            1 => (1u64 << self.below(64)).wrapping_sub(self.below(3)),
            2 => self.next() & 0xffff,
            _ => self.next(),
        }
    }
}

struct Printed(&'static str, u64);

impl Drop for Printed {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("QPAIR_QUIET").is_none() {
            eprintln!("{}: again with QPAIR_SEED={}", self.0, self.1);
        }
    }
}

/// The number in an environment variable, if it is set.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text:?} is not a whole number")))
}

/// Runs `body` with the seeds below `seeds`, or with `QPAIR_SEED` alone. Returns whether it ran all of
/// them.
///
/// With `QPAIR_SECONDS` it begins with `QPAIR_SEED`, or with 0, and runs one seed after the other until the
/// time is over. It prints how many, also every minute.
///
/// # Panics
///
/// A value of these variables is not a number.
pub fn with_seeds(name: &'static str, seeds: u64, body: impl Fn(&mut Rng)) -> bool {
    let (only, seconds) = (number("QPAIR_SEED"), number("QPAIR_SECONDS"));
    let first = only.unwrap_or(0);
    let (began, mut minutes) = (Instant::now(), 0);
    let mut seed = first;
    loop {
        let printed = Printed(name, seed);
        body(&mut Rng::new(seed));
        drop(printed);
        seed += 1;
        let (ran, passed) = (seed - first, began.elapsed().as_secs());
        let goes_on = match (seconds, only) {
            (Some(seconds), _) => passed < seconds,
            (None, Some(_)) => false,
            (None, None) => ran < seeds,
        };
        if seconds.is_some() && (!goes_on || passed / 60 > minutes) {
            minutes = passed / 60;
            eprintln!("{name}: {ran} seeds from {first} on");
        }
        if !goes_on {
            return only.is_none() && ran >= seeds;
        }
    }
}
