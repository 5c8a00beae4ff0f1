// SPDX-License-Identifier: GPL-2.0
//! Tables of registers, for code without an abstraction of registers.

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
