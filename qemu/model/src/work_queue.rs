// SPDX-License-Identifier: GPL-2.0
//! Work queues, and the receives that are taken from them.

use crate::host::DmaFault;
use crate::host::Host;
use crate::host::Mapping;
use crate::host::Trace;
use crate::message::total;
use crate::message::Cursor;
use crate::message::WqeWords;
use crate::ring::Ring;
use crate::rules::window::Window;
use crate::schedule::Core;
use qpair_abi::counters::Counter;
use qpair_abi::entry::recv_sges;
use qpair_abi::entry::RecvWqe;
use qpair_abi::entry::BLOCK_BYTES;
use qpair_abi::entry::BLOCK_WORDS;
use qpair_abi::entry::MAX_BLOCKS;
use qpair_abi::status::Detail;
use qpair_abi::Number;
use qpair_queue::index::Depth;
use qpair_queue::index::Index;

/// An SQ or RQ.
pub(crate) struct WorkQueue<M> {
    pub(crate) ring: Ring<M>,
    pub(crate) window: Window,
    pub(crate) log_depth: u8,
    /// A slot has `64 << stride` bytes.
    pub(crate) stride: u8,
}

impl<M: Mapping> WorkQueue<M> {
    pub(crate) fn new(
        ring: Ring<M>,
        depth: Depth,
        log_depth: u8,
        stride: u8,
        first: Index,
    ) -> Self {
        Self {
            ring,
            window: Window::new(depth, first),
            log_depth,
            stride,
        }
    }

    /// Where a slot lies in the ring.
    #[inline]
    pub(crate) fn at(&self, index: Index) -> u64 {
        let position = u64::from(self.window.depth().position(index));
        position * BLOCK_BYTES as u64 * (1 << (self.stride & 3))
    }

    /// Empties it.
    pub(crate) fn clear(&mut self, first: Index) {
        self.window = Window::new(self.window.depth(), first);
    }

    /// Takes all that is posted.
    pub(crate) fn skip_posted(&mut self) {
        let tail = self.window.tail();
        let _ = self.window.advance_head(tail);
    }
}

/// A receive that a message is filling.
pub(crate) struct Receive {
    pub(crate) wr_id: u64,
    /// The domain of its regions.
    pub(crate) pd: Number,
    /// The index past it.
    pub(crate) past: Index,
    pub(crate) words: WqeWords,
    pub(crate) cursor: Cursor,
}

impl Receive {
    /// The bytes that fit into it.
    pub(crate) fn room(&self) -> u64 {
        let [head, second, ..] = self.words;
        let sges = RecvWqe::decode(&[head, second]).sges;
        total(&self.words, RecvWqe::WORDS, sges)
    }
}

/// Why there is no receive.
pub(crate) enum NoReceive {
    /// None is posted.
    Empty,
    /// The memory of the RQ or SRQ cannot be read.
    Dma,
    /// The WQE is invalid. It has been taken.
    Bad(Detail),
    /// That of an SRQ has less room than the message needs. It stays the next.
    Short,
}

/// The place of a receive WQE in a ring.
pub(crate) struct ReceiveAt {
    pub(crate) index: Index,
    /// Its first byte.
    pub(crate) at: u64,
    /// The slot has `64 << stride` bytes.
    pub(crate) stride: u8,
}

/// Reads the receive WQE at `place` whole, for a queue pair. Also the detail if it is invalid.
// In line, a receive is not copied.
#[inline(always)]
pub(crate) fn fetch_receive<H: Host>(
    core: &mut Core<H>,
    ring: &mut Ring<H::Map>,
    place: &ReceiveAt,
    qp: Number,
    pd: Number,
) -> Result<(Receive, Option<Detail>), DmaFault> {
    let mut words = [0; MAX_BLOCKS * BLOCK_WORDS];
    let stride = place.stride & 3;
    let used = words.get_mut(..BLOCK_WORDS << stride).unwrap_or(&mut []);
    ring.load(&mut core.bus, place.at, used)?;
    core.bus.count(Counter::RecvWqes);
    core.bus.host.trace(Trace::FetchReceive {
        qp,
        index: place.index.get(),
    });
    let [first, second, ..] = words;
    let wqe = RecvWqe::decode(&[first, second]);
    let receive = Receive {
        wr_id: wqe.wr_id,
        pd,
        past: place.index.plus(1),
        words,
        cursor: Cursor::default(),
    };
    let [reserved, _] = RecvWqe::RESERVED;
    let most = usize::from(core.config.recv_sges).min(recv_sges(stride));
    let wrong = if first & reserved != 0 {
        Some(Detail::Flags)
    } else {
        (usize::from(wqe.sges) > most).then_some(Detail::Sges)
    };
    Ok((receive, wrong))
}
