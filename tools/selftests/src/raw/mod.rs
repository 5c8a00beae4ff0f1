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

pub use self::ah::address;
pub use self::ah::group;
pub use self::args::change;
pub use self::args::change_uc;
pub use self::args::change_ud;
pub use self::args::CqArg;
pub use self::args::Kind;
pub use self::args::QpArg;
pub use self::args::SrqArg;
pub use self::context::Context;
pub use self::context::Event;
pub use self::context::Info;
pub use self::context::Page;
pub use self::cq::Cq;
pub use self::fault::Endless;
pub use self::memory::page_size;
pub use self::memory::Buffer;
pub use self::mr::region;
pub use self::mr::Mr;
pub use self::mr::Mw;
pub use self::mr::BINDABLE;
pub use self::mr::EVERY_RIGHT;
pub use self::mr::REMOTE_RIGHTS;
pub use self::pd::Pd;
pub use self::qp::Qp;
pub use self::qp::QpShape;
pub use self::qp::MULTICAST_LID;
pub use self::shown::CqNow;
pub use self::shown::MrNow;
pub use self::shown::QueuesNow;
pub use self::srq::Srq;
pub use self::wqe::bound;
pub use self::wqe::Wqe;
