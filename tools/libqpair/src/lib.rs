// SPDX-License-Identifier: GPL-2.0
//! Queue pairs for processes, with the names of verbs.
//!
//! A process makes its queues in memory of its own, hands them to the kernel once, and from then on
//! talks to the device past the kernel: **posting and polling do no system call and
//! allocate nothing**.
//!
//! ```text
//!   Device --open--> Context --+-- Pd --+-- Mr    memory that the device may use
//!                              |        +-- Qp    Reset -> Init -> Rtr -> Rts
//!                              +-- Cq             completions, polled or by event
//!                              +-- async events
//!
//!   post:  work request -> SQ or RQ (memory) ... one doorbell for a batch
//!   poll:  CQ (memory) -> Completion         ... one head doorbell for many
//! ```
//!
//! The files, in order: a file imports only files above it.
//!
//! | file | has |
//! |---|---|
//! | `mutant` | the wrong variants of promises |
//! | `lock` | mutexes |
//! | [`error`] | errors, each with cause and remedy |
//! | [`kernel`] | what is asked of the kernel, so that a test can put a model in its place |
//! | [`channel`] | [`Channel`]: events, and waiting for them |
//! | [`memory`] | page-aligned memory, and rings in it |
//! | [`wr`] | [`WorkRequest`], [`Receive`], [`Completion`] |
//! | [`device`] | finding devices, [`Context`], limits, counters, asynchronous events |
//! | [`mr`] | [`Pd`] and [`Mr`] |
//! | [`cq`] | [`Cq`]: poll, arm |
//! | `queues` | [`QpOptions`]; how a request gets into a ring |
//! | [`qp`] | [`Qp`] and its states; posting |
//!
//! # The rules
//!
//! The library keeps to the rules of `queue` by its types, as the driver does: a slot of
//! a queue is a value that a post takes and that only the completion that covers it gives back, after the
//! CQ's head has been published. So no queue can be overwritten and no CQ overrun, whatever the program does.
//! A full queue is [`PostError::Full`]; poll, and post again.
//!
//! # Lifetimes
//!
//! Objects hold what they need: a queue pair its domain and completion queues, all of them their context.
//! Drop them in any order; the kernel sees QP before CQ before PD before context.
//!
//! # Fork, and the end of the device
//!
//! A child has the open file, but neither the doorbell page nor the memory of rings and regions; its copies of
//! these objects are good for nothing, and dropping one would end the parent's. So a child calls `exec` or `_exit`.
//!
//! When the device is unplugged or reset, every call says so ([`Error::is_dead`]), nothing completes any more, and a
//! doorbell raises SIGBUS. Who sleeps on a [`Channel`] waits for [`Context::fd`] as well, or asks now and then.
//!
//! # Example
//!
//! ```no_run
//! use qpair::{
//!     Access, Completion, Cq, CqOptions, Device, Memory, Mr, Pd, Qp, QpOptions, Receive, WorkRequest,
//! };
//!
//! # fn main() -> Result<(), qpair::Error> {
//! let context = Device::first()?.open()?;
//! let pd = Pd::new(&context)?;
//! let mr = Mr::new(&pd, Memory::new(4096)?, Access::LOCAL_WRITE)?;
//! let cq = Cq::new(&context, &CqOptions::new(64))?;
//!
//! let a = Qp::new(&pd, &QpOptions::new(&cq, &cq))?;
//! let b = Qp::new(&pd, &QpOptions::new(&cq, &cq))?;
//! let (to_a, to_b) = (a.number(), b.number());
//! let a = a.init(Access::NONE)?.rtr(to_b)?.rts()?;
//! let b = b.init(Access::NONE)?.rtr(to_a)?.rts()?;
//!
//! mr.write(0, b"hello");
//! b.post_recv(&[Receive::new(1, &[mr.sge(2048, 1024)])])?;
//! a.post_send(&[WorkRequest::send(2, &[mr.sge(0, 5)]).signaled()])?;
//!
//! let mut done = 0;
//! let mut completions = [Completion::default(); 16];
//! while done < 2 {
//!     for completion in cq.poll(&mut completions) {
//!         completion.check()?;
//!         done += 1;
//!     }
//! }
//! let mut hello = [0; 5];
//! mr.read(2048, &mut hello);
//! assert_eq!(&hello, b"hello");
//! # Ok(())
//! # }
//! ```

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the order of doorbells after ring entries is worked out for x86-64 alone");

pub mod channel;
pub mod cq;
pub mod device;
pub mod error;
pub mod kernel;
mod lock;
pub mod memory;
pub mod mr;
#[cfg_attr(feature = "mutants", doc(hidden))]
pub mod mutant;
pub mod qp;
mod queues;
pub mod wr;

pub use channel::Channel;
pub use cq::{Cq, CqOptions, Wants};
pub use device::{AsyncEvent, Attributes, Context, Counters, Device};
pub use error::{CompletionError, Error, PostError};
pub use memory::{Memory, Pages};
pub use mr::{Access, Mr, Pd};
pub use qp::{Init, Qp, QpOptions, Reset, Rtr, Rts};
pub use qpair_abi::counters::Counter;
pub use qpair_abi::status::{Detail, Status};
pub use qpair_abi::Number;
pub use wr::{Completion, Done, Receive, Remote, Sge, WorkRequest};
