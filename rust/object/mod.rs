// SPDX-License-Identifier: GPL-2.0

//! The objects of the RDMA device, of processes and of kernel ULPs.
//!
//! | file | is |
//! |---|---|
//! | [`device`] | the RDMA device: registered while the function is up; limits, port, counters |
//! | [`file`] | an open file: a doorbell page, an account, the memory of its objects |
//! | [`registered`] | the function, as it was registered |
//! | [`registrations`] | the registrations that have not ended, for which unbind waits |
//! | [`owner`] | the process or the kernel ULP that has an object |
//! | [`quota`] | takes doorbell pages for files, and charges objects to files and users |
//! | [`shares`] | the pages and objects that files and users have |
//! | [`pd`], [`cq`], [`qp`], [`srq`], [`mr`], [`mw`] | all of an object: created, changed, its events, destroyed |
//! | [`ah`] | address handles, GIDs; the device has no such object |
//! | [`ulp`] | what kernel ULPs post and poll, in any context |
//! | [`memory`] | the memory of a file's objects, which a shutdown takes from the device |
//! | [`buffer`] | memory of a process as a buffer list |
//! | [`request`] | what the commands of processes have in common |
//! | [`prelude`] | what the files of most objects use |
//!
//! The core has the objects, by handle of a file, and destroys them in the order of their uses. An
//! object is the device's number, and its [`Owner`](owner::Owner).
//!
//! # Page faults first
//!
//! A copy from or to a process and pinning last as long as the process likes. So each operation
//! copies its request in and pins; then it enters the device, with a
//! [`Pass`](crate::kernel::gate::Pass), and creates the object; it leaves the device, and copies the
//! answer out. [`Process::create`](file::Process::create) has the steps in the device.
//!
//! # Removal
//!
//! A shutdown first makes the device quiet, then unregisters the RDMA device. So a destroy may find
//! the device closed; it succeeds all the same, as the core expects. A call that lasts, in a page
//! fault of its process, delays the unregistration but not the shutdown: what the device could
//! access was taken from it by [`Process::unmap`](crate::life::client::Client::unmap), and the
//! poll names no object, since its [`Events`](crate::kernel::rdma::Events) are cut off first.
//!
//! # Locks
//!
//! `Process::objects` is taken inside a pass or without one, and held for no command.

mod ah;
mod buffer;
mod cq;
pub(crate) mod device;
mod file;
mod memory;
mod mr;
mod mw;
mod owner;
mod pd;
mod prelude;
mod qp;
mod quota;
mod registered;
mod registrations;
mod request;
mod shares;
mod srq;
mod ulp;
