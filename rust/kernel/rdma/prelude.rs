// SPDX-License-Identifier: GPL-2.0

//! What the files of most objects use.

pub(super) use super::{
    bindings,
    object::{
        status,
        CoreObject,
        Ops,
        PORT, //
    },
    udata::Udata,
    Driver, //
};
pub(super) use kernel::{
    error::{
        from_result,
        to_result, //
    },
    prelude::*, //
};
