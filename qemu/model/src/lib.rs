// SPDX-License-Identifier: GPL-2.0
//! The qpair device: all of its behaviour, and nothing of QEMU.
//!
//! A [`Function`] is given a [`Host`] (guest memory, interrupt messages, a clock). Its methods
//! are what software does to it: register accesses, doorbells. It reads and writes memory and raises
//! interrupts, at once or in [`Function::run`], for which it asks. It has no thread and no clock of
//! its own, so the same calls give the same results.
//!
//! ```text
//!   registers ---> bring-up, reset
//!   doorbells ---> CQ and EQ heads, arms          rules: qpair_queue
//!        |                                              |
//!        v                                              v
//!   run queue --turn--> WQEs --> bytes --> CQE --> EQE --> interrupt
//! ```
//!
//! **The model trusts no input.** Registers, doorbells and memory have any value that a driver or a
//! process writes. Memory is read once into a snapshot, which is checked and then used. Numbers are
//! looked up with their generation. Nothing here panics: there is no unchecked index and no
//! unchecked sum of untrusted numbers. A turn of a queue pair has a bounded number of WQEs and
//! bytes, a long message takes many turns, and all doorbell pages have an equal share of the core.
//!
//! **A work request allocates nothing and searches nothing.** Tables are indexed, queues are
//! linked, rings are mapped once.
//!
//! The files, in order: a file imports only files above it, and calls no method of a file below it.
//!
//! | file | has |
//! |---|---|
//! | [`rules`] | the rules of queues, of the device's side |
//! | `config` | the properties of the function |
//! | `knobs` | the faults and times that a test sets |
//! | `timer` | how long a sender waits before a retry |
//! | `faults` | the rules of fault points |
//! | `host` | the interface to the machine |
//! | `bus` | guest memory, counters |
//! | `segment` | contiguous pieces of memory, which stay mapped |
//! | `list` | buffer lists |
//! | `ring` | the memory of rings |
//! | `fifo` | linked queues of indices |
//! | `run_queue` | the order in which queue pairs run |
//! | `table` | objects by number, deferred frees |
//! | `producers` | the producer indices of CQs, for the writers of doorbells |
//! | `region` | a memory region |
//! | `frmr` | fast registration memory regions |
//! | `mr` | memory regions and domains |
//! | `window` | memory windows |
//! | `registers` | the registers that software writes |
//! | `path` | where the peer of a queue pair is |
//! | `port` | the GIDs of the port, and its queue pair 1 |
//! | `group` | groups of multicast, and their members |
//! | `frames` | frames that wait for their turn, and senders that wait for the network |
//! | `schedule` | the core: state, run queue, timers, interrupts |
//! | `garble` | where the rules meet what is written for software |
//! | `subject` | what events are about |
//! | `answer` | what a responder answers, and why a request fails |
//! | `eq` | event queues |
//! | `event` | completion events, asynchronous events, the last event |
//! | `cq` | completion queues |
//! | `tries` | how often, and until when, a sender waits |
//! | `attributes` | the attributes of queue pairs |
//! | `message` | the message of a work request |
//! | `work_queue` | work queues, and the receives in them |
//! | `link` | connections by frames |
//! | `qp` | queue pairs |
//! | `srq` | shared receive queues |
//! | `datapath` | the objects that work requests use, and completions |
//! | `shared` | receives of queue pairs on an SRQ |
//! | `frame_fault` | where the rules meet a frame |
//! | `net` | sends frames |
//! | `responder` | serves requests for one queue pair |
//! | `transfer` | the sender's end of a message |
//! | `atomic` | performs atomics |
//! | `flush` | performs FLUSHes and atomic WRITEs |
//! | `check` | checks WQEs, and the sender's memory |
//! | `outcome` | what becomes of work requests |
//! | `local` | performs requests that need no peer |
//! | `flying` | requests in flight to a peer at another port |
//! | `inbound` | packets that come from there |
//! | `reliable` | the requester of a reliable connection, and its answers |
//! | `unreliable` | the sender of an unreliable connection |
//! | `outbound` | the turn of a queue pair whose peer is at another port |
//! | `connect` | connections by frames begin |
//! | `datagram` | delivers the messages of UD |
//! | `fault_point` | where the rules meet a work request |
//! | `loopback` | carries messages to the queue pairs of the function |
//! | `requester` | performs the work requests of an SQ |
//! | `function` | the function: power-on, reset, queries of the machine |
//! | `arrival` | frames that are received |
//! | `context` | contexts of admin commands |
//! | `create` | CREATE |
//! | `change` | MODIFY, DESTROY |
//! | `admin` | the admin queue pair, QUERY |
//! | `turn` | turns of the core |
//! | `doorbell` | doorbells |
//! | `mmio` | register accesses, bring-up |
//! | `inject` | sets the knobs and the rules of faults |
//! | [`stream`] | another function, of channels, with the same interface to the machine |

#![forbid(unsafe_code)]

pub mod config;
pub mod host;
pub mod rules;

mod admin;
mod answer;
mod arrival;
mod atomic;
mod attributes;
mod bus;
mod change;
mod check;
mod connect;
mod context;
mod cq;
mod create;
mod datagram;
mod datapath;
mod doorbell;
mod eq;
mod event;
mod fault_point;
mod faults;
mod fifo;
mod flush;
mod flying;
mod frame_fault;
mod frames;
mod frmr;
mod function;
mod garble;
mod group;
mod inbound;
mod inject;
mod knobs;
mod link;
mod list;
mod local;
mod loopback;
mod message;
mod mmio;
mod mr;
mod net;
mod outbound;
mod outcome;
mod path;
mod port;
mod producers;
mod qp;
mod region;
mod registers;
mod reliable;
mod requester;
mod responder;
mod ring;
mod run_queue;
mod schedule;
mod segment;
mod shared;
mod srq;
pub mod stream;
mod subject;
mod table;
mod timer;
mod transfer;
mod tries;
mod turn;
mod unreliable;
mod window;
mod work_queue;

pub use crate::arrival::is_of_roce;
pub use crate::config::BadConfig;
pub use crate::config::Config;
pub use crate::faults::Faults;
pub use crate::function::Function;
pub use crate::host::DmaFault;
pub use crate::host::Host;
pub use crate::host::Mapping;
pub use crate::host::Trace;
pub use crate::knobs::Knobs;
pub use crate::producers::Doorbell;
pub use crate::producers::Producers;
pub use crate::run_queue::Budget;
pub use crate::turn::Run;
