// SPDX-License-Identifier: GPL-2.0
//! Tables of codes and of registers.

/// A table of codes: an enum, and its conversion from an untrusted byte.
macro_rules! codes {
    (
        $(#[$attr:meta])*
        pub enum $name:ident { $( $(#[$vattr:meta])* $variant:ident = $value:literal, $text:literal; )* }
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

/// The offset of each register of a table.
macro_rules! offsets {
    ($(
        $(#[$attr:meta])*
        pub $name:ident($t:ty) @ $offset:literal { $($fields:tt)* }
    )*) => {
        $( $(#[$attr])* pub const $name: u64 = $offset; )*
        /// Name and offset of each register, in order.
        pub const ALL: &[(&str, u64)] = &[$( (stringify!($name), $offset) ),*];
    };
}

/// The fields of each register of a table.
macro_rules! fields {
    ($(
        $(#[$attr:meta])*
        pub $name:ident($t:ty) @ $offset:literal {
            $( $(#[$fattr:meta])* $hi:literal:$lo:literal $field:ident; )*
        }
    )*) => {
        /// Register, name, highest and lowest bit of each field, in order.
        pub const FIELDS: &[(&str, &str, u32, u32)] =
            &[$( $( (stringify!($name), stringify!($field), $hi, $lo), )* )*];
    };
}
