// SPDX-License-Identifier: GPL-2.0
//! Queue pairs for processes, with the names of verbs.
//!
//! A process creates its queues in its own memory and registers them with the kernel once. From
//! then on it talks to the device directly: **posting and polling do no system call and allocate
//! nothing**.
//!
//! ```text
//!   Device --open--> Context --+-- Pd --+-- Mr    memory that the device may use
//!                              |        +-- Ah    where datagrams go
//!                              |        +-- Srq   receives for many queue pairs
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
//! | `lock` | mutexes |
//! | [`error`] | errors, each with cause and remedy |
//! | [`kernel`] | the calls to the kernel, as a trait that a test can implement with a model |
//! | [`uverbs`] | these calls by `/dev/infiniband/uverbsN` |
//! | [`channel`] | [`Channel`]: events, and waiting for them |
//! | [`memory`] | page-aligned memory, and rings in it |
//! | [`wr`] | [`WorkRequest`], [`Receive`], [`Completion`] |
//! | [`device`] | finding devices, [`Context`], limits, counters, asynchronous events |
//! | [`mr`] | [`Pd`] and [`Mr`] |
//! | [`datagram`] | [`Ah`], [`Destination`], [`Datagram`] |
//! | `shared` | receives of SRQs, as a CQ completes them |
//! | [`cq`] | [`Cq`]: poll, arm |
//! | `post` | how requests are written to a ring |
//! | [`srq`] | [`Srq`]: receives for any number of queue pairs |
//! | `options` | [`QpOptions`] and its types |
//! | `queues` | the queues of a queue pair: how requests are written to a ring, and how slots are freed |
//! | [`qp`] | [`Qp`] and its states; posting |
//! | [`stream`] | the byte stream beside the queue pairs of two endpoints |
//! | [`flow`] | flow control between two senders |
//! | [`hello`] | the handshake of two endpoints |
//! | `ended` | [`EndpointError`]: why an endpoint fails, or ends |
//! | [`endpoint`] | [`Endpoint`]: messages that never meet an empty receive queue |
//! | `asynchronous` | [`AsyncEndpoint`]: the same for tasks of tokio (feature `tokio`) |
//!
//! # The rules
//!
//! As in the driver, the types of `queue` enforce its rules: a slot of a queue is a value that a
//! post takes, and it is free again only after its completion was read and the CQ's head was
//! published. So no program can overwrite a queue or overrun a CQ. A full queue is
//! [`PostError::Full`]; poll, and post again.
//!
//! # Endpoints
//!
//! Queue pairs do not know of the peer's receives. An [`Endpoint`] does: it is a queue pair with flow
//! control, whose messages always find a receive, over a connection that a handshake on any byte
//! stream has made. `Documentation/endpoint.rst` has the model.
//!
//! ```no_run
//! use std::os::unix::net::UnixStream;
//!
//! use qpair::{Device, Endpoint, EndpointOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Device::first()?.open()?;
//! let options = EndpointOptions::new().message(4096).depth(16);
//! let mut peer = Endpoint::connect(&context, &options, UnixStream::connect("/run/q")?)?;
//! peer.send(b"question")?;
//! let mut answer = vec![0; peer.max_recv()];
//! let bytes = peer.recv(&mut answer)?;
//! # let _ = bytes;
//! peer.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Lifetimes
//!
//! Objects hold references to what they need: a queue pair to its domain and completion queues, all
//! of them to their context. Drop them in any order; the kernel destroys QP before CQ before PD
//! before context.
//!
//! # Fork, and the end of the device
//!
//! A child inherits the open file, but neither the doorbell page nor the memory of rings and
//! regions. It must not use its copies of these objects, and dropping one destroys the parent's. So
//! a child calls `exec` or `_exit`.
//!
//! When the device is removed or reset, every call fails ([`Error::is_dead`]), nothing completes any
//! more, and a doorbell does nothing. The context has the event [`AsyncEvent::DeviceFatal`]. A
//! thread that sleeps on a [`Channel`] also waits for [`Context::async_fd`], or makes a call now and then;
//! a thread that polls does the latter.
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
compile_error!("the order of doorbells after ring entries is known for x86-64 only");

#[cfg(feature = "tokio")]
mod asynchronous;
pub mod channel;
pub mod cq;
pub mod datagram;
pub mod device;
mod ended;
pub mod endpoint;
pub mod error;
pub mod flow;
pub mod hello;
pub mod kernel;
mod lock;
pub mod memory;
pub mod mr;
mod options;
mod post;
pub mod qp;
mod queues;
mod shared;
pub mod srq;
pub mod stream;
pub mod uverbs;
pub mod wr;

#[cfg(feature = "tokio")]
pub use asynchronous::AsyncEndpoint;
pub use channel::Channel;
pub use cq::{Cq, CqOptions, Wants};
pub use datagram::{Address, Ah, Datagram, Destination, DATAGRAM_BYTES, GRH_BYTES, OWN_Q_KEY};
pub use device::{AsyncEvent, Attributes, Context, Counters, Device};
pub use ended::EndpointError;
pub use endpoint::{Endpoint, EndpointOptions, Ticket};
pub use error::{CompletionError, Error, PostError};
pub use hello::Fault;
pub use memory::{Memory, Pages};
pub use mr::{Access, Mr, Pd};
pub use qp::{
    Connected, Init, OwnReceives, Qp, QpOptions, QpState, Reset, Rtr, Rts, Service, SharedReceives,
    Ud,
};
pub use qpair_abi::counters::Counter;
pub use qpair_abi::status::{Detail, Status};
pub use qpair_abi::Number;
pub use srq::{Srq, SrqOptions};
pub use stream::{Duplex, Stream};
pub use wr::{Completion, Done, Receive, Remote, Sge, WorkRequest};
