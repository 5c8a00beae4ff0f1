// SPDX-License-Identifier: GPL-2.0
//! What a process does: calls, decoded from an input.
//!
//! An input is a sequence of records of [`RECORD`] bytes, of which each is a call. So a call can be
//! left out, repeated or moved, and the others stay the same. Zeros follow a record that is too
//! short.

use arbitrary::{Arbitrary, Unstructured};

/// Bytes of a record.
pub(crate) const RECORD: usize = 40;
/// Most records of an input.
pub(crate) const RECORDS: usize = 40;

/// An object by its place among those of its kind, or a wrong handle.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Pick(pub(crate) u8);

/// A number, mostly a power of two.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Size(u8);

impl Size {
    /// 64.
    pub(crate) const USUAL: Self = Self(6);

    pub(crate) fn get(self) -> u32 {
        match self.0 {
            at @ 0..=199 => 1 << (at % 10),
            at @ 200..=231 => u32::from(at - 200) * 3,
            at @ 232..=247 => 1 << (2 * (at - 232)),
            248 => 0,
            249 => u32::MAX,
            250 => i32::MAX as u32,
            251 => 0xffff,
            252 => 4097,
            253 => 65537,
            254 => 1 << 24 | 1,
            255 => 31,
        }
    }
}

/// An address: [`Memory::at`](crate::memory::Memory::at).
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct At(pub(crate) u8);

/// How a command differs from one that is well-formed: [`Process::invoke`](crate::process::Process).
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Twist {
    pub(crate) how: u8,
    pub(crate) at: u8,
    pub(crate) with: u8,
}

impl Twist {
    pub(crate) const NONE: Self = Self {
        how: 0,
        at: 0,
        with: 0,
    };
}

/// A work request.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    pub(crate) blocks: u8,
    pub(crate) sges: u8,
    pub(crate) local: Pick,
    pub(crate) remote: Pick,
    pub(crate) dest: Pick,
    pub(crate) bytes: u16,
    pub(crate) imm: u8,
    /// 0 to 15: that word of it is replaced.
    pub(crate) odd: u8,
    pub(crate) word: u64,
}

/// A part of an ioctl's request.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) id: u8,
    pub(crate) bytes: u8,
    pub(crate) kind: u8,
    pub(crate) value: u8,
}

/// What a child does after its calls.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum End {
    /// It closes what it has.
    Close,
    Exit,
    Kill,
    /// It waits until all end.
    Stay,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
#[rustfmt::skip]
pub(crate) enum Call {
    Open { legacy: bool, events: bool },
    AllocPd { twist: Twist },
    DeallocPd { pd: Pick, twist: Twist },
    RegMr { pd: Pick, at: At, bytes: Size, less: u8, access: u8, other: bool, twist: Twist },
    ReregMr { mr: Pick, flags: u8, pd: Pick, at: At, bytes: Size, access: u8, twist: Twist },
    DeregMr { mr: Pick, twist: Twist },
    AllocMw { pd: Pick, kind: u8, twist: Twist },
    DeallocMw { mw: Pick, twist: Twist },
    CreateCq { at: At, depth: Size, short: u8, vector: u8, channel: u8, eventfd: u8, twist: Twist },
    ResizeCq { cq: Pick, at: At, depth: Size, twist: Twist },
    DestroyCq { cq: Pick, twist: Twist },
    CreateSrq { pd: Pick, at: At, depth: Size, stride: u8, limit: u8, twist: Twist },
    ModifySrq { srq: Pick, mask: u8, depth: Size, limit: u8, at: At, twist: Twist },
    QuerySrq { srq: Pick, twist: Twist },
    DestroySrq { srq: Pick, twist: Twist },
    CreateQp { pd: Pick, send: Pick, recv: Pick, srq: u8, sort: u8, sq: Size, sq_at: At, rq: Size, rq_at: At, stride: u8, flags: u8, twist: Twist },
    /// As the one before; queue pairs are what most is about.
    AnotherQp { pd: Pick, send: Pick, recv: Pick, srq: u8, sort: u8, sq: Size, sq_at: At, rq: Size, rq_at: At, stride: u8, flags: u8, twist: Twist },
    ModifyQp { qp: Pick, to: u8, mask: u32, peer: Pick, access: u8, values: [u8; 8], twist: Twist },
    /// Brings it to RTS.
    Connect { qp: Pick, peer: Pick, access: u8 },
    QueryQp { qp: Pick, mask: u32, twist: Twist },
    DestroyQp { qp: Pick, twist: Twist },
    CreateAh { pd: Pick, gid: u8, source: u8, global: bool, twist: Twist },
    DestroyAh { ah: Pick, twist: Twist },
    Attach { qp: Pick, gid: u8, lid: u8, detach: bool, twist: Twist },
    Query { port: u8, twist: Twist },
    /// A command by its number, with handles and random words.
    Other { number: u8, extended: bool, words: u8, answer: u8, driver: u8, seed: u16, object: Pick, twist: Twist },
    /// A method by its number.
    Method { object: u8, method: u8, parts: [Part; 4] },
    Post { qp: Pick, work: Work, times: u8, ring: bool },
    /// As the one before.
    PostMore { qp: Pick, work: Work, times: u8, ring: bool },
    PostRecv { qp: Pick, srq: bool, mr: Pick, bytes: u16, sges: u8, times: u8, odd: u8, word: u64 },
    Scribble { at: At, offset: u16, words: u8, seed: u16 },
    Ring { place: u8, of: Pick, kind: u8, ahead: Size, back: bool },
    /// A store of another width.
    Narrow { offset: u16, width: u8, value: u64 },
    Poll { cq: Pick, most: u8, arm: u8 },
    Map { offset: u8, pages: u8, protection: u8, private: bool },
    Unmap { page: bool, at: At, pages: u8 },
    Advise { at: At, pages: u8, advice: u8 },
    Protect { at: At, pages: u8, protection: u8 },
    Truncate { pages: u8 },
    /// A child that runs the next calls, after or beside this process.
    Fork { calls: u8, beside: bool, end: End },
    Close { file: u8, dup: bool },
    Events { read: bool },
    /// What `rdma resource` asks for.
    Dump { command: u8, id: Pick },
    Wait { ticks: u8 },
    /// What another process does to the device meanwhile; mostly nothing.
    Beside { what: u8, rarely: u8 },
    Die { kill: bool, rarely: u8 },
}

/// The calls of an input.
pub(crate) fn calls(input: &[u8]) -> Vec<Call> {
    let records = input.chunks(RECORD).take(RECORDS);
    // A record has no length of its own that could be wrong.
    records
        .filter_map(|record| Call::arbitrary(&mut Unstructured::new(record)).ok())
        .collect()
}

/// What most inputs begin with: a region, and a queue pair that is connected to itself. Or two, with an
/// SRQ and a window, by twice as many commands.
#[rustfmt::skip]
pub(crate) fn usual(more: bool) -> Vec<Call> {
    let (twist, first, second, at, depth) = (Twist::NONE, Pick(0), Pick(1), At(0), Size::USUAL);
    let cq = Call::CreateCq { at, depth, short: 0, vector: 0, channel: 0, eventfd: 0, twist };
    let qp = Call::CreateQp {
        pd: first, send: first, recv: second, srq: 0, sort: 0, sq: depth, sq_at: at, rq: depth, rq_at: at, stride: 0, flags: 0, twist,
    };
    let mut all = vec![
        Call::Open { legacy: false, events: true },
        Call::AllocPd { twist },
        Call::RegMr { pd: first, at, bytes: depth, less: 0, access: 0, other: false, twist },
        cq, qp,
    ];
    if more {
        all.extend([
            cq, qp,
            Call::AllocMw { pd: first, kind: 0, twist },
            Call::CreateSrq { pd: first, at, depth, stride: 0, limit: 0, twist },
            Call::Connect { qp: second, peer: first, access: 0 },
        ]);
    }
    // The peer of one alone is itself.
    all.push(Call::Connect { qp: first, peer: second, access: 0 });
    all
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::mem::discriminant;

    use super::{calls, Call, RECORD, RECORDS};

    #[test]
    fn random_records_are_calls_of_each_kind() {
        let mut random = fastrand::Rng::with_seed(1);
        let input: Vec<u8> = (0..100 * RECORD * RECORDS).map(|_| random.u8(..)).collect();
        let all: Vec<Call> = input.chunks(RECORD * RECORDS).flat_map(calls).collect();
        assert_eq!(all.len(), 100 * RECORDS);
        let kinds: HashSet<_> = all.iter().map(discriminant).collect();
        assert_eq!(kinds.len(), 46);
    }

    #[test]
    fn a_call_does_not_depend_on_those_before_it() {
        let mut random = fastrand::Rng::with_seed(2);
        let input: Vec<u8> = (0..3 * RECORD).map(|_| random.u8(..)).collect();
        let (all, two) = (calls(&input), calls(&input[RECORD..]));
        assert_eq!(format!("{:?}", &all[1..]), format!("{two:?}"));
    }

    #[test]
    fn a_part_of_a_record_is_a_call() {
        assert_eq!(calls(&[0; RECORD + 1]).len(), 2);
    }
}
