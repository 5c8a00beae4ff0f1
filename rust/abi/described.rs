// SPDX-License-Identifier: GPL-2.0
//! What a layout has, for the device, which rejects reserved bits, and for the generator of the header.

macro_rules! described {
    (
        $name:ident: $words:literal {
            $( $field:ident: $type:ty = $word:literal @ $shift:literal, )*
            $( ..; $( $nested:ident: $ntype:ty = $nword:literal, )* )?
        }
    ) => {
        impl $name {
            /// Name, word, first bit and width of each field; the width of a nested struct is 0.
            pub const FIELDS: &'static [(&'static str, usize, u32, u32)] = &[
                $( (
                    stringify!($field),
                    $word,
                    $shift,
                    <$type as super::layout::Field>::BITS,
                ), )*
                $( $( (stringify!($nested), $nword, 0, 0), )* )?
            ];
            /// The bits that no field covers.
            pub const RESERVED: [u64; $words] = Self::reserved();

            const fn reserved() -> [u64; $words] {
                let mut free = [u64::MAX; $words];
                $(
                    let width = <$type as super::layout::Field>::BITS;
                    let mask = (u64::MAX >> (64 - width)) << $shift;
                    assert!($shift + width <= 64);
                    assert!(free[$word] & mask == mask, "fields overlap");
                    free[$word] &= !mask;
                )*
                $( $(
                    let mut word = 0;
                    while word < <$ntype>::WORDS {
                        assert!(free[$nword + word] == u64::MAX, "fields overlap");
                        free[$nword + word] = <$ntype>::RESERVED[word];
                        word += 1;
                    }
                )* )?
                free
            }
        }
    };
}
