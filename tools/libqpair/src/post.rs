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
    let signaled = room.signaled();
    match request.one_block() {
        Some(words) => room.write(0, &words(signaled)),
        None => write(&mut room, &request.encode(blocks, signaled), blocks),
    }
    room.post();
    Ok(())
}

/// Posts what `requests` gives, as long as there is room; returns how many, and the one that has
/// none.
#[inline(always)]
pub(crate) fn put_sends<'a, R: Encode>(
    batch: &mut Batch<'a, Words<'a>, Sq>,
    requests: &mut impl Iterator<Item = R>,
    limits: &Limits,
) -> (usize, Option<R>) {
    let mut posted = 0;
    // Not those that others have a reference to: the compiler would load them for each request.
    let own = *limits;
    loop {
        let mut other = None;
        posted += batch.post_row(|| {
            let request = requests.next()?;
            let words = match request.blocks(&own) {
                Ok(1) => request.one_block(),
                _ => None,
            };
            if words.is_none() {
                other = Some(request);
            }
            Some((request.wants_signal(), words?))
        }) as usize;
        match other.or_else(|| requests.next()) {
            Some(request) if put_other(batch, &request, limits).is_ok() => posted += 1,
            left => return (posted, left),
        }
    }
}

/// Not inlined, so that the rows have all registers.
#[inline(never)]
fn put_other<'a>(
    batch: &mut Batch<'a, Words<'a>, Sq>,
    request: &impl Encode,
    limits: &Limits,
) -> Result<(), NoPost> {
    put_send(batch, request, limits)
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

/// Why a request is not posted: no free slots, or the limit that it exceeds.
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
