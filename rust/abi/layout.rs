// SPDX-License-Identifier: GPL-2.0
//! The layout of structs in 64-bit words.
//!
//! `layout!` takes the table of a struct's fields, `name: type = word @ bit`, and makes the struct,
//! its `encode` and its `decode`. Fields that overlap or leave their word do not compile. Bits that
//! no field covers are reserved: written as zero, and ignored by `decode`. The crate also describes
//! each struct (`described.rs`).

#[cfg(MODULE)]
macro_rules! described {
    ($($layout:tt)*) => {};
}

/// What a field may be: at most 64 bits, no padding, every pattern valid.
pub trait Field: Copy {
    /// The width of the field in bits.
    const BITS: u32;
    /// Takes the value from the low bits.
    fn from_bits(bits: u64) -> Self;
    /// Gives the value in the low bits; the others are zero.
    fn to_bits(self) -> u64;
}

macro_rules! integer_fields {
    ($($t:ty),*) => { $(
        impl Field for $t {
            const BITS: u32 = <$t>::BITS;
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $t
            }
            #[inline(always)]
            fn to_bits(self) -> u64 {
                u64::from(self)
            }
        }
    )* };
}
integer_fields!(u8, u16, u32, u64);

macro_rules! layout {
    (
        $(#[$attr:meta])*
        pub struct $name:ident: $words:literal {
            $( $(#[$fattr:meta])* $field:ident: $type:ty = $word:literal @ $shift:literal, )*
            $( ..; $( $(#[$nattr:meta])* $nested:ident: $ntype:ty = $nword:literal, )* )?
        }
    ) => {
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$fattr])* pub $field: $type, )*
            $( $( $(#[$nattr])* pub $nested: $ntype, )* )?
        }

        described! {
            $name: $words {
                $( $field: $type = $word @ $shift, )*
                $( ..; $( $nested: $ntype = $nword, )* )?
            }
        }

        impl $name {
            /// Words that it takes in memory.
            pub const WORDS: usize = $words;
            /// Bytes that it takes in memory.
            pub const BYTES: usize = $words * 8;

            /// Reads every field out of a snapshot. Total: checks nothing.
            #[inline(always)]
            pub fn decode(words: &[u64; $words]) -> Self {
                Self {
                    $( $field: {
                        <$type as super::layout::Field>::from_bits(words[$word] >> $shift)
                    }, )*
                    $( $( $nested: {
                        let mut part = [0; <$ntype>::WORDS];
                        part.copy_from_slice(&words[$nword..$nword + <$ntype>::WORDS]);
                        <$ntype>::decode(&part)
                    }, )* )?
                }
            }

            /// Lays every field into words; reserved bits are zero.
            #[inline(always)]
            pub fn encode(&self) -> [u64; $words] {
                let mut words = [0; $words];
                $(
                    let bits = <$type as super::layout::Field>::to_bits(self.$field);
                    words[$word] |= bits << $shift;
                )*
                $( $(
                    let part = &mut words[$nword..$nword + <$ntype>::WORDS];
                    part.copy_from_slice(&self.$nested.encode());
                )* )?
                words
            }
        }
    };
}
