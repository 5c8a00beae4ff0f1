// SPDX-License-Identifier: GPL-2.0
//! A device for one queue pair, in the memory of the test: it executes what doorbells submit,
//! when the test says so, and checks what the process may write.

use std::alloc::{alloc_zeroed, Layout};
use std::collections::VecDeque;
use std::sync::Arc;

use qpair_abi::entry::{
    cqe_flags, opcode, send_flags, Cqe, RecvWqe, SendWqe, Sge, BLOCK_BYTES, BLOCK_WORDS, OWNER,
};
use qpair_abi::status::Status;
use qpair_abi::{doorbell, Number};
use qpair_queue::index::{Depth, Index};
use qpair_queue::resize::Switch;
use qpair_verbs::cq::{Completion, Cq, CqParts, NextRing};
use qpair_verbs::list::{SendParts, Sends};
use qpair_verbs::qp::{Qp, QpParts};
use qpair_verbs::request::{Limits, Payload, Refusal, Request};
use qpair_verbs::ring::{mapped, Doorbells, Ring};
use qpair_verbs::shape::{self, Shape};
use qpair_verbs::template::Templates;

/// The deepest rings.
pub(crate) const MOST: u32 = 1 << 12;
pub(crate) const NUMBER: Number = Number::new(3, 1);
pub(crate) const CQ: Number = Number::new(5, 1);
pub(crate) const QPN: u32 = 0x010003;

/// Zeroed pages, never freed.
#[derive(Clone, Copy)]
pub(crate) struct Pages(*mut u64);

// SAFETY: Never freed, and accessed by whole words.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.next_multiple_of(4096), 4096).unwrap();
        // SAFETY: Not of size 0.
        Self(unsafe { alloc_zeroed(layout) }.cast())
    }

    fn word(self, at: usize) -> u64 {
        // SAFETY: Callers are inside.
        unsafe { self.0.add(at).read_volatile() }
    }

    fn set(self, at: usize, word: u64) {
        // SAFETY: Callers are inside.
        unsafe { self.0.add(at).write_volatile(word) }
    }
}

/// What a program asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) cqe: u32,
    pub(crate) sends: u32,
    pub(crate) recvs: u32,
    pub(crate) sges: u32,
    pub(crate) inline: u32,
    pub(crate) sq_sig_all: bool,
    pub(crate) is_ud: bool,
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            cqe: 8,
            sends: 4,
            recvs: 4,
            sges: 1,
            inline: 0,
            sq_sig_all: false,
            is_ud: false,
        }
    }
}

/// A request as the device read it.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) head: SendWqe,
    pub(crate) body: Vec<u64>,
}

/// The device, and the objects of a program on it.
pub(crate) struct Bench {
    pub(crate) cq: Arc<Cq>,
    pub(crate) qp: Qp,
    pub(crate) parts: QpParts,
    page: Pages,
    ring: Pages,
    sq: Pages,
    rq: Pages,
    cq_shape: Shape,
    sq_shape: Shape,
    rq_shape: Shape,
    /// Indices of the device.
    pub(crate) produced: u32,
    /// The first index of the CQ's ring.
    began: u32,
    sq_done: u32,
    rq_done: u32,
    /// Requests that were read, in order.
    pub(crate) sent: VecDeque<Sent>,
}

impl Bench {
    /// A queue pair that may send and receive, with one CQ.
    pub(crate) fn new(asked: Asked) -> Self {
        let cq_shape = shape::cq(asked.cqe, MOST).unwrap();
        let sq = match asked.is_ud {
            true => shape::ud_sq,
            false => shape::sq,
        };
        let sq_shape = sq(asked.sends, asked.sges, asked.inline, MOST).unwrap();
        let rq_shape = shape::rq(asked.recvs, asked.sges, MOST).unwrap();
        let (page, ring) = (Pages::new(4096), Pages::new(cq_shape.bytes));
        let (sq, rq) = (Pages::new(sq_shape.bytes), Pages::new(rq_shape.bytes));
        let of = |pages: Pages, entries, bytes| {
            // SAFETY: Zeroed pages of this size, which are never freed.
            unsafe { mapped(pages.0.cast(), entries, bytes) }.unwrap()
        };
        // SAFETY: A page, which is never freed.
        let doorbells = unsafe { Doorbells::new(page.0.cast()) }.unwrap();
        let cq = Arc::new(
            Cq::new(CqParts {
                number: CQ,
                ring: of(ring, cq_shape.entries, Cqe::BYTES),
                depth: cq_shape.entries,
                usable: cq_shape.usable,
                doorbells,
            })
            .unwrap(),
        );
        let parts = QpParts {
            number: NUMBER,
            qpn: QPN,
            sq: of(sq, sq_shape.entries, BLOCK_BYTES),
            sq_blocks: sq_shape.entries,
            sq_usable: sq_shape.usable,
            sends: SendParts {
                limits: Limits {
                    max_send_sge: asked.sges,
                    max_inline_data: asked.inline,
                },
                sq_sig_all: asked.sq_sig_all,
                templates: Templates::NONE,
                is_ud: asked.is_ud,
            },
            rq: of(rq, rq_shape.entries, BLOCK_BYTES << rq_shape.stride),
            rq_depth: rq_shape.entries,
            rq_usable: rq_shape.usable,
            rq_stride: rq_shape.stride as u8,
            max_recv_sge: asked.sges,
            doorbells,
        };
        let qp = Qp::new(parts, cq.clone(), cq.clone()).unwrap();
        qp.permit(true, true);
        Self {
            cq,
            qp,
            parts,
            page,
            ring,
            sq,
            rq,
            cq_shape,
            sq_shape,
            rq_shape,
            produced: 0,
            began: 0,
            sq_done: 0,
            rq_done: 0,
            sent: VecDeque::new(),
        }
    }

    /// The memory of another ring.
    // Only some tests have more rings.
    #[allow(dead_code)]
    pub(crate) fn memory(&self, entries: u32, bytes: usize) -> Ring {
        let pages = Pages::new(entries as usize * bytes);
        // SAFETY: Zeroed pages of this size, which are never freed.
        unsafe { mapped(pages.0.cast(), entries, bytes) }.unwrap()
    }

    /// The object and the index that were last written to a doorbell.
    pub(crate) fn rung(&self, place: u64) -> (Number, u32) {
        doorbell::parts(self.page.word(place as usize / 8))
    }

    /// The index that was last written to a doorbell.
    pub(crate) fn doorbell(&self, place: u64) -> u32 {
        self.rung(place).1
    }

    /// Entries that a CQ of the program can take until it is overrun, as the device knows it.
    pub(crate) fn room(&self) -> u32 {
        let head = Index::new(self.doorbell(doorbell::CQ_HEAD));
        let began = Index::new(self.began);
        let from = if head.reaches(began) { head } else { began };
        self.cq_shape.entries - Index::new(self.produced).since(from)
    }

    /// Makes the CQ go on in another ring, of at least so many entries. Returns how many were unread
    /// and how many rings before it have unread ones.
    // Only some tests resize.
    #[allow(dead_code)]
    pub(crate) fn resize(&mut self, cqe: u32) -> (u32, usize) {
        let shape = shape::cq(cqe, MOST).unwrap();
        let depth = Depth::new(shape.entries).unwrap();
        let end = Index::new(self.produced);
        let begin = depth.begin(end);
        let pages = Pages::new(shape.bytes);
        let unread = self.cq.hold();
        // SAFETY: Zeroed pages of this size, which are never freed; the queue is held.
        let before = unsafe {
            let next = NextRing {
                switch: Switch { end, begin },
                ring: mapped(pages.0.cast(), shape.entries, Cqe::BYTES).unwrap(),
                depth: shape.entries,
                usable: shape.usable,
            };
            let before = self.cq.resized(next).unwrap();
            self.cq.release();
            before
        };
        (self.ring, self.cq_shape) = (pages, shape);
        (self.produced, self.began) = (begin.get(), begin.get());
        (unread, before)
    }

    /// Writes a completion.
    pub(crate) fn write(&mut self, cqe: Cqe) {
        assert!(self.room() > 0, "the CQ is overrun");
        let depth = self.cq_shape.entries;
        let at = (self.produced % depth) as usize * Cqe::WORDS;
        let mut words = cqe.encode();
        words[Cqe::WORDS - 1] &= !OWNER;
        if self.produced / depth % 2 == 0 {
            words[Cqe::WORDS - 1] |= OWNER;
        }
        for (i, word) in words.into_iter().enumerate() {
            self.ring.set(at + i, word);
        }
        self.produced = self.produced.wrapping_add(1);
    }

    /// Executes up to `count` sends; returns how many.
    pub(crate) fn execute(&mut self, count: u32) -> u32 {
        let mut executed = 0;
        while executed < count && self.sq_done != self.doorbell(doorbell::SQ) {
            let word = |block: u32, i: usize| {
                let at = (self.sq_done.wrapping_add(block) % self.sq_shape.entries) as usize;
                self.sq.word(at * BLOCK_WORDS + i)
            };
            let head = SendWqe::decode(&std::array::from_fn(|i| word(0, i)));
            let words = u32::from(head.blocks) as usize * BLOCK_WORDS;
            let body = (SendWqe::WORDS..words)
                .map(|i| word((i / BLOCK_WORDS) as u32, i % BLOCK_WORDS))
                .collect();
            assert!((1..=4).contains(&head.blocks) && head.flags & !send_flags::ALL == 0);
            self.sq_done = self.sq_done.wrapping_add(head.blocks.into());
            if head.flags & send_flags::SIGNALED != 0 {
                self.write(Cqe {
                    wr_id: head.wr_id,
                    qp: NUMBER,
                    index: self.sq_done,
                    opcode: head.opcode,
                    ..Cqe::default()
                });
            }
            self.sent.push_back(Sent { head, body });
            executed += 1;
        }
        executed
    }

    /// Fills up to `count` receives; returns how many.
    pub(crate) fn receive(&mut self, count: u32) -> u32 {
        let mut filled = 0;
        while filled < count && self.rq_done != self.doorbell(doorbell::RQ) {
            let stride = BLOCK_WORDS << self.rq_shape.stride;
            let at = (self.rq_done % self.rq_shape.entries) as usize * stride;
            let head = RecvWqe::decode(&[self.rq.word(at), self.rq.word(at + 1)]);
            self.rq_done = self.rq_done.wrapping_add(1);
            self.write(Cqe {
                wr_id: head.wr_id,
                qp: NUMBER,
                bytes: 7,
                imm: 0x1234,
                index: self.rq_done,
                opcode: opcode::RECV,
                flags: cqe_flags::RECV | cqe_flags::IMM,
                ..Cqe::default()
            });
            filled += 1;
        }
        filled
    }

    /// Writes completions with an error for all that is posted.
    pub(crate) fn flush(&mut self) {
        while self.sq_done != self.doorbell(doorbell::SQ) {
            self.sq_done = self.doorbell(doorbell::SQ);
            self.write(Cqe {
                qp: NUMBER,
                index: self.sq_done,
                status: Status::Flush.code(),
                ..Cqe::default()
            });
        }
    }

    /// The queue pair is reset.
    pub(crate) fn reset(&mut self) {
        (self.sq_done, self.rq_done) = (0, 0);
        for place in [doorbell::SQ, doorbell::RQ] {
            self.page.set(place as usize / 8, 0);
        }
        self.qp.reset(self.produced, self.produced);
        self.qp.permit(true, true);
    }

    /// Destroys the queue pair; one with another number takes its place.
    // Only some tests do.
    #[allow(dead_code)]
    pub(crate) fn destroy(&mut self) {
        let parts = QpParts {
            number: Number::new(7, 1),
            ..self.parts
        };
        self.qp = Qp::new(parts, self.cq.clone(), self.cq.clone()).unwrap();
    }

    /// Posts a list of sends of any forms.
    pub(crate) fn post_sends(
        &self,
        posts: impl FnOnce(&mut Sends<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.qp.post_send(|list| posts(&mut list.sends()))
    }

    /// Posts sends without data.
    pub(crate) fn post(&self, requests: &[(u64, bool)]) -> Result<(), Refusal> {
        self.post_with(requests, &[])
    }

    /// Posts sends of the same SGEs.
    pub(crate) fn post_with(&self, requests: &[(u64, bool)], sges: &[Sge]) -> Result<(), Refusal> {
        self.post_sends(|sends| {
            requests.iter().try_for_each(|&(id, signaled)| {
                // SAFETY: No inline data.
                unsafe { sends.put(send(id, signaled), Payload::Gather(sges)) }
            })
        })
    }

    /// Posts one send. Inline data can be read.
    pub(crate) fn put(&self, payload: Payload<'_>, request: Request) -> Result<(), Refusal> {
        // SAFETY: Tests give their own memory.
        self.post_sends(|sends| unsafe { sends.put(request, payload) })
    }

    /// Posts one receive without room.
    pub(crate) fn post_recv(&self, id: u64) -> Result<(), Refusal> {
        self.qp.post_recv(|receives| receives.put(id, &[]))
    }

    /// Polls up to `count` completions.
    pub(crate) fn poll(&self, count: usize) -> Vec<Completion> {
        let mut found = vec![Completion::default(); count];
        let mut last = None;
        let taken = self.cq.poll(&mut found, |place, taken, is_alike| {
            let of = |it: Completion| (it.qpn, it.cqe.opcode, it.cqe.status, it.cqe.vendor);
            assert!(
                !is_alike || last == Some(of(*taken)),
                "{last:?}, then {taken:?}"
            );
            last = Some(of(*taken));
            *place = *taken;
        });
        found.truncate(taken);
        found
    }
}

/// A SEND.
pub(crate) fn send(wr_id: u64, signaled: bool) -> Request {
    Request {
        wr_id,
        opcode: opcode::SEND,
        flags: if signaled { send_flags::SIGNALED } else { 0 },
        ..Request::default()
    }
}

/// Entries of a CQ that a program may count on.
pub(crate) fn usable(cqe: u32) -> u32 {
    shape::cq(cqe, MOST).unwrap().usable
}
