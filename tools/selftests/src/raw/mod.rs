// SPDX-License-Identifier: GPL-2.0
//! The driver without a library: commands, the doorbell page and rings by hand.
//!
//! A test that uses the library would not find a driver bug that the library works around, so this
//! code shares only the layouts and the form of commands with it. Nothing is hidden either: indices, handles
//! and blocks are public, so that a test can use wrong ones.
//!
//! The only place with `unsafe`, besides `children` (fork).

mod ah;
mod args;
mod context;
mod cq;
mod fault;
mod memory;
mod mr;
mod pd;
mod qp;
mod resource;
mod shown;
mod srq;
mod wqe;

pub(crate) use self::ah::address;
pub(crate) use self::ah::group;
pub(crate) use self::args::change;
pub(crate) use self::args::change_uc;
pub(crate) use self::args::change_ud;
pub(crate) use self::args::CqArg;
pub(crate) use self::args::Kind;
pub(crate) use self::args::QpArg;
pub(crate) use self::args::SrqArg;
pub(crate) use self::context::Context;
pub(crate) use self::context::Page;
pub(crate) use self::cq::Cq;
pub(crate) use self::fault::Endless;
pub(crate) use self::memory::page_size;
pub(crate) use self::memory::Buffer;
pub(crate) use self::mr::region;
pub(crate) use self::mr::Mr;
pub(crate) use self::mr::Mw;
pub(crate) use self::mr::BINDABLE;
pub(crate) use self::mr::EVERY_RIGHT;
pub(crate) use self::mr::REMOTE_RIGHTS;
pub(crate) use self::pd::Pd;
pub(crate) use self::qp::Qp;
pub(crate) use self::qp::QpShape;
pub(crate) use self::qp::MULTICAST_LID;
pub(crate) use self::shown::agree;
pub(crate) use self::shown::vector_of_cq;
pub(crate) use self::srq::Srq;
pub(crate) use self::wqe::bound;
pub(crate) use self::wqe::Wqe;
