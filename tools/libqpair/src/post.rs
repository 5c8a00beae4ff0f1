// SPDX-License-Identifier: GPL-2.0
//! How requests are written to a ring.

use std::borrow::BorrowMut;

use qpair_abi::entry::BLOCK_WORDS;
use qpair_queue::credit::{Kind, Sq};
use qpair_queue::producer::{Batch, Refused, Room};
use qpair_queue::storage::Storage;
use qpair_ring::Words;

use crate::error::PostError;
use crate::wr::{Encode, Limits, Receive};

/// Writes a work request, and posts it.
#[inline(always)]
pub(crate) fn put_send<'a>(
    batch: &mut Batch<'a, Words<'a>, Sq>,
    request: &impl Encode,
    limits: &Limits,
) -> Result<(), NoPost> {
    let blocks = request.blocks(limits).map_err(NoPost::TooLarge)?;
    let mut room = batch.room(blocks, request.wants_signal())?;
    let signalled = room.signalled();
    match request.one_block(signalled) {
        Some(words) => room.write(0, &words),
        None => write(&mut room, &request.encode(blocks, signalled), blocks),
    }
    room.post();
    Ok(())
}

/// Writes a receive of a queue pair's own queue or of an SRQ, and posts it.
#[inline(always)]
pub(crate) fn put_recv<'a, K: Kind>(
    batch: &mut Batch<'a, Words<'a>, K>,
    receive: &Receive<'_>,
    stride: u8,
) -> Result<(), NoPost> {
    receive.check(stride).map_err(NoPost::TooLarge)?;
    let mut room = batch.room(1, true)?;
    match receive.one_block() {
        Some(words) if stride == 0 => room.write(0, &words),
        _ => write(&mut room, &receive.encode(), 1 << stride),
    }
    room.post();
    Ok(())
}

fn write<'a, B, V, K>(room: &mut Room<B, V, K>, words: &[u64], blocks: u32)
where
    B: BorrowMut<Batch<'a, V, K>>,
    V: Storage + 'a,
    K: Kind,
{
    for (block, words) in (0..blocks).zip(words.chunks_exact(BLOCK_WORDS)) {
        let mut whole = [0; BLOCK_WORDS];
        whole.copy_from_slice(words);
        room.write(block, &whole);
    }
}

/// Not posted.
pub(crate) enum NoPost {
    Full,
    TooLarge(&'static str),
}

impl From<Refused> for NoPost {
    #[inline(always)]
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => Self::Full,
            Refused::TooLarge => Self::TooLarge("it takes more blocks than the queue has"),
        }
    }
}

impl NoPost {
    pub(crate) fn after(self, posted: usize) -> PostError {
        match self {
            Self::Full => PostError::Full { posted },
            Self::TooLarge(what) => PostError::TooLarge { posted, what },
        }
    }
}
