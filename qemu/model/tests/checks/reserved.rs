// SPDX-License-Identifier: GPL-2.0
//! Reserved bits must be zero, so that later versions can define them. Contexts may be shorter or
//! longer than those of the device.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::RecvWqe;
use qpair_abi::entry::SendWqe;
use qpair_abi::entry::Sge;
use qpair_abi::status::AdminError;
use qpair_abi::status::Detail;
use qpair_abi::status::EnableError;
use qpair_abi::status::Status;
use qpair_abi::Number;

checks![
    every_bit_of_a_command,
    every_bit_of_a_context,
    every_bit_of_a_receive,
    every_bit_of_the_admin_depths,
    fields_without_use_are_not_looked_at,
    a_shorter_answer,
    a_longer_answer,
    a_shorter_or_longer_context,
    what_the_device_writes,
];

/// One object of each kind, and the contexts that created them.
struct World {
    m: Machine,
    pd: Number,
    eq: TestEq,
    cq: TestCq,
    qp: Number,
    mr: TestMr,
    mw: Number,
    frmr: Number,
    /// The object that the last command created.
    made: Number,
    /// Kind, number, the context of another such object, and its reserved bits.
    kinds: Vec<(u8, Number, Vec<u64>, Vec<u64>)>,
}

impl World {
    fn new() -> Self {
        let mut m = Machine::new();
        let (pd, eq) = (m.pd(), m.eq(4, 1, 0, 0));
        let cq = m.cq_of(eq.number, 4, 0, cq_flags::USER);
        let spec = Machine::spec(pd, &cq);
        let (qp, mr) = (m.qp(&spec).number, m.mr(pd, 64));
        let mw = m.mw(pd, mw_type::TWO).0;
        let frmr = m.frmr(pd).0;
        let mut kinds = Vec::new();
        let mut add = |kind, number, words: &[u64], reserved: &[u64]| {
            kinds.push((kind, number, words.to_vec(), reserved.to_vec()));
        };
        add(
            kind::EQ,
            eq.number,
            &m.query::<8>(kind::EQ, eq.number),
            &EqContext::RESERVED,
        );
        add(
            kind::CQ,
            cq.number,
            &m.query::<8>(kind::CQ, cq.number),
            &CqContext::RESERVED,
        );
        add(
            kind::QP,
            qp,
            &m.query::<20>(kind::QP, qp),
            &QpContext::RESERVED,
        );
        add(
            kind::MR,
            mr.key,
            &m.query::<8>(kind::MR, mr.key),
            &MrContext::RESERVED,
        );
        let unbound = m.query::<8>(kind::MW, mw);
        add(kind::MW, mw, &unbound, &MwContext::RESERVED);
        let free = m.query::<8>(kind::FRMR, frmr);
        add(kind::FRMR, frmr, &free, &FrmrContext::RESERVED);
        Self {
            m,
            pd,
            eq,
            cq,
            qp,
            mr,
            mw,
            frmr,
            made: Number::ADMIN,
            kinds,
        }
    }

    /// Every command, each of them valid.
    fn commands(&self) -> Vec<Command> {
        let context = self.m.context;
        let mut all = Vec::new();
        let mut add = |kind, verb, number, mask, words: usize| {
            all.push(Command {
                opcode: opcode(kind, verb),
                blocks: 1,
                number,
                mask,
                context: if words == 0 { 0 } else { context },
                context_bytes: words as u32 * 8,
                ..Command::default()
            });
        };
        for (kind, number, words, _) in &self.kinds {
            add(*kind, verb::CREATE, Number::ADMIN, 0, words.len());
            add(*kind, verb::QUERY, *number, 0, words.len());
        }
        add(kind::EQ, verb::MODIFY, self.eq.number, 0, EqContext::WORDS);
        add(kind::CQ, verb::MODIFY, self.cq.number, 0, CqContext::WORDS);
        add(kind::QP, verb::MODIFY, self.qp, 0, QpContext::WORDS);
        add(kind::MR, verb::MODIFY, self.mr.key, 0, MrContext::WORDS);
        add(
            kind::DEVICE,
            verb::QUERY,
            Number::ADMIN,
            0,
            EqContext::WORDS,
        );
        add(kind::PD, verb::CREATE, Number::ADMIN, 0, 0);
        add(kind::PAGE, verb::MODIFY, Number::new(3, 0), 0, 0);
        add(kind::PAGE, verb::QUERY, Number::new(3, 0), 0, 0);
        // Last and in this order, so that each can succeed.
        add(kind::FRMR, verb::DESTROY, self.frmr, 0, 0);
        add(kind::MW, verb::DESTROY, self.mw, 0, 0);
        add(kind::MR, verb::DESTROY, self.mr.key, 0, 0);
        add(kind::QP, verb::DESTROY, self.qp, 0, 0);
        add(kind::CQ, verb::DESTROY, self.cq.number, 0, 0);
        add(kind::EQ, verb::DESTROY, self.eq.number, 0, 0);
        add(kind::PD, verb::DESTROY, self.pd, 0, 0);
        all
    }

    /// Runs a command with this context; returns its error, or 0.
    fn outcome(&mut self, command: &[u64; 8], context: &[u64]) -> u8 {
        self.m.memory.set_words(self.m.context, context);
        self.m.post_command(command);
        self.m.settle();
        let done = self.m.admin_done().expect("a command completes");
        self.made = Number::from_raw(done.bytes);
        done.vendor
    }

    /// The context of a command.
    fn context_of(&self, command: &Command) -> Vec<u64> {
        let kind = self.kinds.iter().find(|it| it.0 == command.opcode >> 4);
        kind.map_or_else(Vec::new, |it| it.2.clone())
    }
}

/// The unused bits of a command.
fn unused(command: &Command) -> Vec<(usize, u32)> {
    let mut bits = Vec::new();
    for (word, reserved) in Command::RESERVED.into_iter().enumerate() {
        bits.extend(
            (0..64)
                .filter(|bit| reserved >> bit & 1 != 0)
                .map(|bit| (word, bit)),
        );
    }
    bits.extend((4..8).flat_map(|word| (0..64).map(move |bit| (word, bit))));
    // Flags but SIGNALED; more blocks than one.
    bits.extend((9..24).filter(|bit| *bit != 16).map(|bit| (0, bit)));
    if command.opcode & 15 == verb::CREATE || command.opcode >> 4 == kind::DEVICE {
        bits.extend((32..64).map(|bit| (0, bit)));
    }
    let modifies = [kind::QP, kind::MR, kind::SRQ].map(|kind| opcode(kind, verb::MODIFY));
    if !modifies.contains(&command.opcode) {
        bits.extend((0..32).map(|bit| (3, bit)));
    }
    bits
}

fn every_bit_of_a_command() {
    let mut w = World::new();
    let commands = w.commands();
    assert_eq!(commands.len(), 27, "as many as the manual lists");
    for command in commands {
        let (words, context) = (Machine::command_words(&command), w.context_of(&command));
        for (word, bit) in unused(&command) {
            let mut dirty = words;
            dirty[word] |= 1 << bit;
            assert_eq!(
                w.outcome(&dirty, &context),
                AdminError::Command.code(),
                "{:#x}: word {word} bit {bit}",
                command.opcode
            );
        }
        if command.context_bytes == 0 {
            for bare in [
                Command {
                    context: 64,
                    ..command
                },
                Command {
                    context_bytes: 8,
                    ..command
                },
            ] {
                let words = Machine::command_words(&bare);
                assert_eq!(w.outcome(&words, &[]), AdminError::Context.code());
            }
        }
        assert_eq!(w.outcome(&words, &context), 0, "{:#x}", command.opcode);
        if command.opcode & 15 == verb::CREATE {
            let made = w.made;
            w.m.destroy(command.opcode >> 4, made).unwrap();
        }
    }
}

/// Fields that only QUERY writes: word, first bit, width.
fn queried(kind: u8) -> Vec<(usize, u32, u32)> {
    let (fields, names): (_, &[&str]) = match kind {
        kind::EQ => (EqContext::FIELDS, &["producer", "consumer"]),
        kind::CQ => (CqContext::FIELDS, &["producer", "consumer"]),
        kind::QP => (
            QpContext::FIELDS,
            &[
                "sq_producer",
                "sq_consumer",
                "rq_producer",
                "rq_consumer",
                "draining",
            ],
        ),
        kind::MW => (
            MwContext::FIELDS,
            &["access", "tag", "region", "qp", "addr", "bytes"],
        ),
        kind::FRMR => (FrmrContext::FIELDS, &["access", "tag", "valid", "addr"]),
        _ => return Vec::new(),
    };
    let found = fields.iter().filter(|field| names.contains(&field.0));
    found
        .map(|&(_, word, first, width)| (word, first, width))
        .collect()
}

/// Undefined access rights: word and bits.
fn unknown_rights(kind: u8) -> Vec<(usize, u32)> {
    match kind {
        kind::MR => vec![(0, 37)],
        kind::QP => [32, 36, 37].map(|bit| (4, bit)).to_vec(),
        _ => Vec::new(),
    }
}

fn every_bit_of_a_context() {
    let mut w = World::new();
    let refused = AdminError::Reserved.code();
    for (kind, number, words, reserved) in w.kinds.clone() {
        let mut bits: Vec<(usize, u32)> = (0..words.len())
            .flat_map(|word| (0..64).map(move |bit| (word, bit)))
            .filter(|&(word, bit)| reserved[word] >> bit & 1 != 0)
            .collect();
        assert!(bits.len() > 50, "every context has reserved bits");
        let mut modify = bits.clone();
        bits.extend(unknown_rights(kind));
        modify.extend(unknown_rights(kind));
        let queried = queried(kind).into_iter();
        bits.extend(
            queried.flat_map(|(word, first, width)| {
                (first..first + width).map(move |bit| (word, bit))
            }),
        );
        if kind == kind::CQ {
            bits.extend((57..64).map(|bit| (0, bit)));
        }
        let mut try_all = |verb: u8, number: Number, mask: u32, bits: &[(usize, u32)]| {
            let command = Machine::command_words(&Command {
                opcode: opcode(kind, verb),
                blocks: 1,
                number,
                mask,
                context: w.m.context,
                context_bytes: words.len() as u32 * 8,
                ..Command::default()
            });
            for &(word, bit) in bits {
                let mut dirty = words.clone();
                dirty[word] |= 1 << bit;
                let got = w.outcome(&command, &dirty);
                assert_eq!(got, refused, "{kind}.{verb}: word {word} bit {bit}");
            }
            assert_eq!(w.outcome(&command, &words), 0, "{kind}.{verb}");
        };
        try_all(verb::CREATE, Number::ADMIN, 0, &bits);
        match kind {
            kind::EQ | kind::CQ => try_all(verb::MODIFY, number, 0, &modify),
            kind::QP => try_all(verb::MODIFY, number, qp_mask::ACCESS, &modify),
            kind::MR => try_all(verb::MODIFY, number, mr_mask::ACCESS, &modify),
            _ => {}
        }
    }
}

fn every_bit_of_a_receive() {
    let [first, second] = RecvWqe::RESERVED;
    assert_eq!((first, second), (!0xff, 0));
    assert!(SendWqe::RESERVED == [0; 4] && Sge::RESERVED == [0; 2]);
    let mut p = Pair::new();
    for bit in 8..64 {
        for qp in [p.a.number, p.b.number] {
            p.m.set_state(qp, qp_state::RESET).unwrap();
        }
        p.m.connect(p.a.number, p.b.number);
        p.m.connect(p.b.number, p.a.number);
        (p.a.sq_tail, p.a.rq_tail, p.b.sq_tail, p.b.rq_tail) = (0, 0, 0, 0);
        let room = p.mr_b.sge(0, 64);
        p.m.post_recv(&mut p.b, 1, &[room]);
        let word = p.m.memory.word(p.b.rq);
        p.m.memory.set_word(p.b.rq, word | 1 << bit);
        p.m.ring(0, qpair_abi::doorbell::RQ, p.b.number, p.b.rq_tail);
        p.send(wqe(work::SEND, 2), &[p.mr_a.sge(0, 8)]);
        let (a, b) = (p.done_a(), p.done_b());
        let flags = Detail::Flags;
        assert_eq!(
            outcome(&a[0]),
            (Status::RemoteOperation, flags),
            "bit {bit}"
        );
        assert_eq!(outcome(&b[0]), (Status::LocalQpOperation, flags));
        p.m.events0();
    }
}

fn every_bit_of_the_admin_depths() {
    use qpair_abi::regs::offset;
    let mut m = Machine::off(qpair_model::Config::default());
    let known = 0x001f_1f1f_u32;
    for bit in (0..32).filter(|bit| known >> bit & 1 == 0) {
        m.f.reg_write(offset::ADMIN_DEPTH, 1 << bit | 5 << 16 | 4 << 8 | 6);
        m.f.reg_write(offset::CTRL, 1);
        let status = m.f.reg_read(offset::STATUS);
        let cause = EnableError::Depth.code();
        assert_eq!(status & 0xff03, u32::from(cause) << 8, "bit {bit}");
    }
    m.bring_up(6, 4, 5);
}

/// A defined field that an opcode or a mask does not use is ignored: another opcode, flag or bit of
/// the mask gives it a meaning.
fn fields_without_use_are_not_looked_at() {
    let mut p = Pair::new();
    let all = |opcode| SendWqe {
        opcode,
        imm: !0,
        remote_addr: !0,
        rkey: !0,
        ..wqe(opcode, 7)
    };
    p.recv(1, &[p.mr_b.sge(0, 64)]);
    for opcode in [work::NOP, work::SEND] {
        p.send(all(opcode), &[p.mr_a.sge(0, 8)]);
        assert_eq!(p.done_a()[0].status, 0, "{opcode}");
    }
    let got = p.done_b();
    assert_eq!((got[0].imm, got[0].flags & 2), (0, 0), "SEND has none");
    let mut words = wqe_words(all(work::NOP), &[]);
    let nop = SendWqe {
        sges: !0,
        ..SendWqe::decode(&words[..SendWqe::WORDS].try_into().unwrap())
    };
    words[..SendWqe::WORDS].copy_from_slice(&nop.encode());
    p.m.post_words(&mut p.a, &words);
    p.m.ring_sq(&p.a);
    p.m.settle();
    assert_eq!(p.done_a()[0].status, 0, "a NOP has no SGEs");
    let before = p.m.query_qp(p.a.number);
    let garbage = QpContext {
        state: 77,
        peer: Number::from_raw(!0),
        peer_function: !0,
        access: !0,
        retry: 99,
        rnr_retry: 99,
        flags: !0,
        sq_producer: !0,
        sq: block(!0, !0),
        ..QpContext::default()
    };
    p.m.modify(p.a.number, 0, &garbage).unwrap();
    p.m.modify(p.a.number, qp_mask::Q_KEY, &garbage).unwrap();
    assert_eq!(p.m.query_qp(p.a.number), before);
    let eq = p.m.eq(4, 1, 0, 0);
    let before: [u64; 8] = p.m.query(kind::EQ, eq.number);
    let garbage = EqContext {
        vector: !0,
        log_depth: !0,
        producer: !0,
        consumer: !0,
        buffer: block(!0, !0),
        ..EqContext::default()
    };
    let words = garbage.encode();
    p.m.with_context(kind::EQ, verb::MODIFY, eq.number, 0, &words)
        .unwrap();
    assert_eq!(p.m.query::<8>(kind::EQ, eq.number), before);
}

fn query(m: &mut Machine, kind: u8, number: Number, bytes: u32) -> Result<Vec<u64>, AdminError> {
    let context = m.memory.alloc(8192, 64, Grant::Write);
    m.memory.set_words(context, &[0x5555; 1024]);
    m.command(Command {
        opcode: opcode(kind, verb::QUERY),
        number,
        context,
        context_bytes: bytes,
        ..Command::default()
    })?;
    Ok(m.memory.words::<1024>(context).to_vec())
}

fn a_shorter_answer() {
    let mut w = World::new();
    for (kind, number, words, _) in w.kinds.clone() {
        for count in 1..=words.len() {
            let got = query(&mut w.m, kind, number, count as u32 * 8).unwrap();
            assert_eq!(got[..count], words[..count], "{kind}: {count} words");
            assert_eq!(got[count], 0x5555, "and no more");
        }
    }
    let done = Counter::Commands as usize;
    let before = w.m.f.counter(Counter::Commands);
    let got = query(&mut w.m, kind::DEVICE, Number::ADMIN, done as u32 * 8 + 8).unwrap();
    assert_eq!((got[done], got[done + 1]), (before + 1, 0x5555));
}

fn a_longer_answer() {
    let mut w = World::new();
    for (kind, number, words, _) in w.kinds.clone() {
        let got = query(&mut w.m, kind, number, MAX_CONTEXT_BYTES).unwrap();
        let (known, rest) = got[..512].split_at(words.len());
        assert_eq!(known, words);
        assert!(rest.iter().all(|word| *word == 0), "{kind}");
        assert_eq!(got[512], 0x5555);
    }
    // A driver with one counter more than the device.
    let more = qpair_abi::counters::BYTES as u32 + 8;
    let got = query(&mut w.m, kind::DEVICE, Number::ADMIN, more).unwrap();
    assert_eq!(got[Counter::COUNT..Counter::COUNT + 2], [0, 0x5555]);
    for bad in [0, 4, 12, MAX_CONTEXT_BYTES + 8, u32::MAX - 7] {
        let refused = query(&mut w.m, kind::DEVICE, Number::ADMIN, bad);
        assert_eq!(refused, Err(AdminError::Context), "{bad}");
    }
}

fn a_shorter_or_longer_context() {
    let mut w = World::new();
    for (kind, _, words, _) in w.kinds.clone() {
        // Without its end, which is zero anyway.
        let used = words.iter().rposition(|word| *word != 0).unwrap() + 1;
        assert!(used < words.len(), "{kind}");
        w.m.memory.set_words(w.m.context, &[!0; 16]);
        w.m.create(kind, &words[..used]).unwrap();
        // With words of a later version, which are zero.
        let context = w.m.memory.alloc(4096, 64, Grant::Write);
        w.m.context = context;
        let mut long = words.clone();
        long.resize(512, 0);
        w.m.create(kind, &long).unwrap();
        for word in [words.len(), 511] {
            let mut long = long.clone();
            long[word] = 1 << 63;
            assert_eq!(w.m.create(kind, &long), Err(AdminError::Reserved));
        }
        // A context that ends before the ring has none. A region has no bytes then.
        let has_ring = used != 1 && kind != kind::MR;
        assert!(!has_ring || w.m.create(kind, &words[..1]).is_err());
    }
    let to_error = QpContext {
        state: qp_state::ERROR,
        ..QpContext::default()
    };
    let words = to_error.encode();
    w.m.with_context(kind::QP, verb::MODIFY, w.qp, qp_mask::STATE, &words[..1])
        .unwrap();
    assert_eq!(w.m.query_qp(w.qp).state, qp_state::ERROR);
}

/// Reserved bits of what the device writes are zero.
fn what_the_device_writes() {
    use qpair_abi::entry::Cqe;
    use qpair_abi::entry::Eqe;
    let mut p = Pair::new();
    p.m.arm(&p.cq_a.clone());
    p.recv(1, &[p.mr_b.sge(0, 64)]);
    p.send(wqe(work::SEND_IMM, 2), &[p.mr_a.sge(0, 8)]);
    for cq in [p.cq_a, p.cq_b] {
        let words = p.m.memory.words::<4>(cq.ring.addr);
        let reserved = Cqe::RESERVED;
        assert!(words
            .iter()
            .zip(reserved)
            .all(|(word, bits)| word & bits == 0));
        assert_eq!(words[3] >> 56 & 0x78, 0, "flags");
    }
    let words = p.m.memory.words::<2>(p.m.eq0.ring.addr);
    assert_ne!(words[1], 0);
    assert_eq!(words[1] & Eqe::RESERVED[1] & !(1 << 63), 0);
    let (qp, cq, eq) = (p.a.number, p.cq_a.number, Number::ADMIN);
    let clean = |words: &[u64], reserved: &[u64]| {
        words
            .iter()
            .zip(reserved)
            .all(|(word, bits)| word & bits == 0)
    };
    assert!(clean(&p.m.query::<20>(kind::QP, qp), &QpContext::RESERVED));
    assert!(clean(&p.m.query::<8>(kind::CQ, cq), &CqContext::RESERVED));
    assert!(clean(&p.m.query::<8>(kind::EQ, eq), &EqContext::RESERVED));
    assert!(clean(
        &p.m.query::<8>(kind::MR, p.mr_a.key),
        &MrContext::RESERVED
    ));
}
