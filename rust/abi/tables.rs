// SPDX-License-Identifier: GPL-2.0
//! Tables of codes.

/// A table of codes: an enum, and its conversion from an untrusted byte.
macro_rules! codes {
    (
        $(#[$attr:meta])*
        pub enum $name:ident {
            $( $(#[$vattr:meta])* $variant:ident = $value:literal, $text:literal; )*
        }
    ) => {
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $( $(#[$vattr])* #[doc = concat!("(", $text, ")")] $variant = $value, )* }

        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$( Self::$variant ),*];

            /// The one with this code.
            #[inline]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $( $value => Some(Self::$variant), )*
                    _ => None,
                }
            }

            /// The number that entries have of it.
            #[inline]
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// A few words for people.
            pub const fn text(self) -> &'static str {
                match self {
                    $( Self::$variant => $text, )*
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.text())
            }
        }
    };
}
