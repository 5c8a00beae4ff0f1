// SPDX-License-Identifier: GPL-2.0
//! Random numbers with a seed that is printed.

/// xorshift64*.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Less than `most`.
    pub fn below(&mut self, most: u64) -> u64 {
        (self.next() >> 8) % most.max(1)
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
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

/// Runs a body for a number of seeds; a failing one is named. `QPAIR_SEED` runs one alone.
pub fn seeds(count: u64, body: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let only = std::env::var("QPAIR_SEED").ok();
    let seeds = match only.and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 1..count + 1,
    };
    for seed in seeds {
        if let Err(panic) = std::panic::catch_unwind(|| body(seed)) {
            eprintln!("failed with QPAIR_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
