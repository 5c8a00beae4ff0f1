// SPDX-License-Identifier: GPL-2.0
//! The target `frames`: frames to a queue pair of each service in each state, beside its own work.
//!
//! The bytes are a program. Most of its steps forge a frame from valid parts and wrong ones. What is
//! checked is independent of the device:
//!
//! - nothing panics, and the device becomes idle;
//! - memory is accessed only where it was granted: not that of a region of another domain, or without
//!   the right of the key and of the queue pair, or by a key that is invalidated; and the rings of
//!   requests are not written;
//! - a frame that is not of the connection, or to a queue pair that does not receive, writes nothing,
//!   changes no state and has no answer;
//! - each other frame has at most one answer, a READ as many as it has packets;
//! - each frame that is sent is well-formed, and goes to the peer;
//! - afterwards the queue pair can be connected again and works.

use crate::harness::*;
use crate::keys::Key;
use crate::keys::Keys;
use arbitrary::Result;
use arbitrary::Unstructured;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode;
use qpair_abi::Number;
use qpair_roce::extended::Aeth;
use qpair_roce::extended::AtomicEth;
use qpair_roce::extended::Deth;
use qpair_roce::extended::Feth;
use qpair_roce::extended::Nak;
use qpair_roce::extended::Reth;
use qpair_roce::extended::Syndrome;
use qpair_roce::extended::With;
use qpair_roce::frame::Datagram;
use qpair_roce::header::Service;
use qpair_roce::operation::Operation;
use qpair_roce::psn::Psn;

/// The machine that gets the frames, and its peer.
pub(crate) const HERE: usize = 1;
const PEER: usize = 0;
/// Where receives are in the region.
const RECEIVES: u64 = 1 << 19;
/// Packets that a sender may repeat at once.
const WINDOW: u64 = 128;
/// The most frames of a burst.
const BURST: u16 = 400;
/// The most frames that wait for one queue pair.
const INBOX: u64 = 256;

/// Runs a program.
pub fn run(bytes: &[u8]) {
    let mut from = Unstructured::new(bytes);
    let Ok(mut world) = World::new(&mut from) else {
        return;
    };
    while !from.is_empty() && world.step(&mut from).is_ok() {}
    world.works();
}

/// Gives the queue pair an SRQ, and connects both anew.
fn with_srq(f: &mut Far) -> TestSrq {
    let (pd, cq, service) = (f.pds[HERE], f.cqs[HERE], f.connection.service);
    f.reset(HERE);
    let srq = f.m(HERE).srq(pd, 8);
    let spec = QpSpec {
        srq: Some(srq.number),
        log_sq: 8,
        access: match service {
            service::UD => 0,
            _ => access::GRANTS,
        },
        service,
        ..Machine::spec(pd, &cq)
    };
    f.qps[HERE] = f.m(HERE).qp(&spec);
    for place in [PEER, HERE] {
        f.reset(place);
        f.connect(place);
    }
    srq
}

struct World {
    f: Far,
    keys: Keys,
    /// The receives, if they are not in an RQ.
    srq: Option<TestSrq>,
    /// The queue pair, of UD, is a member of the group.
    member: bool,
    /// The queue pair as it was last.
    qp: QpContext,
    /// Receives that it has not taken.
    posted: u32,
    halted: bool,
    unlinked: bool,
    /// A request of the queue pair may be in flight.
    sends: bool,
    /// Frames that may yet be sent.
    due: u64,
    /// What it has sent last.
    sent: Vec<Vec<u8>>,
    last: Vec<u8>,
}

impl World {
    fn new(from: &mut Unstructured<'_>) -> Result<Self> {
        let service = *from.choose(&[service::RC, service::RC, service::UC, service::UD])?;
        let mut lan = Lan::new(0);
        let machine = |place| Machine::on_network_with(place, few_objects());
        lan.machines.extend([PEER, HERE].map(machine));
        let connection = Connection {
            service,
            ipv6: service != service::UD && from.arbitrary()?,
            log_mtu: from.int_in_range(8..=12)?,
            reads: from.int_in_range(0..=4)?,
            ..Connection::default()
        };
        let mut f = Far::on(lan, connection);
        let rights = match service {
            service::UD => 0,
            _ => *from.choose(&[access::GRANTS, access::GRANTS, access::REMOTE_READ, 0])?,
        };
        let srq = service != service::UC && from.ratio(1u8, 4u8)?;
        let srq = srq.then(|| with_srq(&mut f));
        let member = service == service::UD && from.arbitrary()?;
        if member {
            let qp = f.qps[HERE].number;
            let joined = f
                .m(HERE)
                .with_context(kind::QP, verb::ATTACH, qp, 0, &GROUP);
            joined.expect("a member");
        }
        let keys = Keys::new(&mut f, rights, from.arbitrary()?);
        let m = f.m(HERE);
        m.memory.keep_done();
        // A region is mapped by its own rights, which may be more than those of the queue pair, and
        // whole, also if a window permits a part of it.
        m.f.host_mut().refuses = true;
        let mut world = Self {
            f,
            keys,
            srq,
            member,
            qp: QpContext::default(),
            posted: 0,
            halted: false,
            unlinked: false,
            sends: false,
            due: 0,
            sent: Vec::new(),
            last: Vec::new(),
        };
        world.grant(rights);
        world.look();
        Ok(world)
    }

    /// Gives the peer these rights, if the service has any.
    fn grant(&mut self, rights: u8) {
        if self.is_ud() {
            return;
        }
        let context = QpContext {
            access: rights,
            ..QpContext::default()
        };
        let qp = self.f.qps[HERE].number;
        let granted = self.f.m(HERE).modify(qp, qp_mask::ACCESS, &context);
        granted.expect("MODIFY of the rights");
    }

    fn is_ud(&self) -> bool {
        self.f.connection.service == service::UD
    }

    fn serves(&self) -> bool {
        (qp_state::RTR..=qp_state::SQD).contains(&self.qp.state)
    }

    /// Reads what the driver gets, and the state of the queue pair.
    fn look(&mut self) {
        if !self.halted {
            self.f.done(HERE);
            self.f.m(HERE).events0();
            let qp = self.f.qps[HERE].number;
            self.qp = self.f.m(HERE).query_qp(qp);
            self.posted = match self.srq {
                Some(srq) => self.f.m(HERE).query_srq(srq.number).left,
                None => self.qp.rq_producer.wrapping_sub(self.qp.rq_consumer),
            };
            self.keys.forget(self.f.m(HERE));
        }
        self.f.m(HERE).memory.take_done();
    }

    /// Takes the frames that were sent since, and checks them.
    fn take_sent(&mut self) {
        let frames = std::mem::take(&mut self.f.m(HERE).f.host_mut().frames);
        let count = frames.len() as u64;
        assert!(
            count <= self.due,
            "{count} frames, and {} are due",
            self.due
        );
        self.due -= count;
        let (mac, peer) = (
            [0x52, 0x54, 0, 0, 0, PEER as u8 + 1],
            self.f.qps[PEER].number,
        );
        for frame in &frames {
            let datagram = Datagram::of(frame, &mac).expect("a frame to the peer");
            let (headers, _) = datagram.open().expect("a frame that is right");
            assert_eq!(headers.dest, peer.raw());
        }
        if count != 0 {
            self.sent = frames;
        }
        // There is room again.
        self.f.m(HERE).f.host_mut().woken = true;
    }

    /// Goes on until all frames are sent.
    fn settle(&mut self) {
        loop {
            self.f.m(HERE).settle();
            let is_full = self.f.m(HERE).f.host().frames.len() >= self.f.m(HERE).f.host().room;
            self.take_sent();
            if !is_full {
                break;
            }
        }
        if !self.halted {
            self.due = 0;
        }
        self.look();
    }

    /// Lets a halted core go on.
    fn resume(&mut self) {
        self.halted = false;
        self.f.m(HERE).f.set_halted(false);
        self.settle();
    }

    /// What a frame may cause: `None` if nothing.
    fn answers(&self, frame: &[u8]) -> Option<u64> {
        let mac = [0x52, 0x54, 0, 0, 0, HERE as u8 + 1];
        let datagram = Datagram::of(frame, &mac).filter(|_| !self.unlinked && self.serves())?;
        let (headers, _) = datagram.open().ok()?;
        let is_of_it = match headers.service {
            Service::Rc => self.f.connection.service == service::RC,
            Service::Uc => self.f.connection.service == service::UC,
            Service::Ud(deth) => self.is_ud() && deth.q_key == KEY,
        };
        let [own, others] =
            [HERE, PEER].map(|place| [gid_at(place), gid6_at(place)].map(gid_bytes));
        let nth = usize::from(self.f.connection.ipv6);
        let is_between = match self.is_ud() {
            true => own.contains(&datagram.to) && !own.contains(&datagram.from),
            false => (datagram.from, datagram.to) == (others[nth], own[nth]),
        };
        let is_its = headers.dest == self.f.qps[HERE].number.raw();
        if frame[0] & 1 != 0 {
            let is_to_it = headers.dest == Number::GROUP.raw() && datagram.to == gid_bytes(GROUP);
            let takes = self.member && is_of_it && is_to_it && !own.contains(&datagram.from);
            return takes.then_some(0);
        }
        if !is_of_it || !is_between || !is_its {
            return None;
        }
        Some(match headers.operation {
            Operation::Read(reth) => u64::from(reth.bytes >> self.f.connection.log_mtu) + 1,
            _ => 1,
        })
    }

    fn deliver(&mut self, frame: &[u8]) {
        let answers = self.answers(frame);
        self.due += answers.unwrap_or(0);
        if answers.is_some() && self.sends {
            self.due += WINDOW;
        }
        let before = self.qp;
        self.f.m(HERE).f.frame(frame);
        if self.halted {
            return;
        }
        self.f.m(HERE).settle();
        if answers.is_none() {
            let m = self.f.m(HERE);
            assert_eq!(m.memory.take_done(), [], "a wrong frame has written");
            assert_eq!(m.f.host().frames.len(), 0, "a wrong frame has an answer");
        }
        self.settle();
        if answers.is_none() {
            assert_eq!(self.qp, before, "a wrong frame has an effect");
        }
    }

    /// Frames that wait are bounded.
    fn burst(&mut self, count: u16) {
        let frame = self.last.clone();
        let overflowed = |world: &mut Self| world.f.m(HERE).f.counter(Counter::FramesOverflowed);
        let before = overflowed(self);
        let waits = self.answers(&frame).is_some();
        for _ in 0..count {
            self.deliver(&frame);
        }
        if self.halted && waits {
            let dropped = overflowed(self) - before;
            assert!(u64::from(count) - dropped <= INBOX);
        }
    }

    fn step(&mut self, from: &mut Unstructured<'_>) -> Result<()> {
        match from.int_in_range(0..=15u8)? {
            0 => self.change(from.int_in_range(qp_state::RESET..=qp_state::ERROR)?),
            1 | 2 => self.receive(from)?,
            3 => self.request(from)?,
            4 => self.pass(1 << from.int_in_range(10..=32u8)?),
            5 if self.halted => self.resume(),
            5 => {
                self.halted = true;
                self.f.m(HERE).f.set_halted(true);
            }
            6 => {
                self.unlinked ^= true;
                let down = self.unlinked;
                self.f.m(HERE).f.set_link_down(down);
                // An event says so.
                self.settle();
            }
            7 => self.burst(from.int_in_range(1..=BURST)?),
            8 => {
                let count = from.int_in_range(0..=200usize)?;
                let frame = from.bytes(count.min(from.len()))?.to_vec();
                self.deliver(&frame);
            }
            9 => self.exchange(),
            _ => {
                let frame = self.forged(from)?;
                self.deliver(&frame);
                self.last = frame;
            }
        }
        Ok(())
    }

    fn change(&mut self, state: u8) {
        self.resume();
        self.due += WINDOW;
        self.f.reset(HERE);
        self.sends = false;
        self.f.bring_to(HERE, state);
        self.settle();
    }

    fn pass(&mut self, nanos: u64) {
        // Repeats by timers.
        self.due += 64 * WINDOW;
        self.f.m(HERE).pass(nanos);
        self.settle();
    }

    fn receive(&mut self, from: &mut Unstructured<'_>) -> Result<()> {
        if self.halted || self.posted >= 200 || self.qp.state == qp_state::RESET {
            return Ok(());
        }
        let bytes = from.int_in_range(0..=8192u32)?;
        let mut sge = self.f.mrs[HERE].sge(RECEIVES, bytes);
        if from.ratio(1u8, 8u8)? {
            sge.lkey = from.choose(self.keys.wrong())?.raw;
        }
        // A receive after RNR may be waited for.
        match &mut self.srq {
            Some(srq) => {
                self.f.m(HERE).post_shared(srq, 5, &[sge]);
                self.f.m(HERE).ring_srq(srq);
            }
            None => self.f.recv(5, &[sge]),
        }
        self.settle();
        Ok(())
    }

    /// Posts a request of the queue pair, to memory of its peer.
    fn request(&mut self, from: &mut Unstructured<'_>) -> Result<()> {
        let free = self.qp.sq_producer.wrapping_sub(self.qp.sq_consumer) < 200;
        if self.halted || !free || self.qp.state != qp_state::RTS || self.is_ud() {
            return Ok(());
        }
        let of_uc = [opcode::SEND, opcode::WRITE, opcode::WRITE_IMM];
        let of_rc = [opcode::READ, opcode::SEND_INV, opcode::FETCH_ADD];
        let opcode = match self.f.connection.service {
            service::UC => *from.choose(&of_uc)?,
            _ => *from.choose(&[of_uc, of_rc].concat())?,
        };
        let bytes = match opcode {
            opcode::FETCH_ADD => 8,
            _ => from.int_in_range(0..=20_000)?,
        };
        let (peer, sge) = (&self.f.mrs[PEER], self.f.mrs[HERE].sge(0, bytes));
        let request = qpair_abi::entry::SendWqe {
            remote_addr: peer.va,
            rkey: peer.key.raw(),
            ..wqe(opcode, 1)
        };
        let mut words = wqe_words(request, &[sge]);
        if opcode == opcode::FETCH_ADD {
            words = atomic_words(self.f.atomic(opcode, 0, 1, 0), &[sge]);
        }
        self.sends = true;
        self.due += 2 * WINDOW;
        let (m, qp) = (&mut self.f.lan.machines[HERE], &mut self.f.qps[HERE]);
        m.post_words(qp, &words);
        m.ring_sq(qp);
        self.settle();
        Ok(())
    }

    /// Gives the peer what was sent last, and takes what it answers.
    fn exchange(&mut self) {
        for frame in std::mem::take(&mut self.sent) {
            self.f.lan.deliver(PEER, &frame);
            let answers = std::mem::take(&mut self.f.m(PEER).f.host_mut().frames);
            for answer in answers {
                self.deliver(&answer);
            }
        }
        self.f.done(PEER);
        self.f.m(PEER).events0();
    }

    /// Memory that a frame names.
    fn reth(&self, from: &mut Unstructured<'_>) -> Result<Reth> {
        let &Key { raw, begin, bytes } = from.choose(self.keys.all())?;
        let end = begin + bytes;
        let addr = *from.choose(&[
            begin,
            begin,
            begin + 8,
            end - 8,
            end,
            begin - 8,
            u64::MAX - 7,
        ])?;
        let mtu = 1 << self.f.connection.log_mtu;
        let lengths = [
            8,
            0,
            mtu,
            mtu + 1,
            3 * mtu,
            4096,
            1 << 20,
            1 << 31,
            u32::MAX,
        ];
        Ok(Reth {
            addr: addr.wrapping_add(*from.choose(&[0, 0, 0, 1, 8])?),
            key: raw,
            bytes: *from.choose(&lengths)?,
        })
    }

    fn operation(&self, from: &mut Unstructured<'_>) -> Result<Operation> {
        let reth = self.reth(from)?;
        let syndromes = [
            Syndrome::Ack,
            Syndrome::Sequence,
            Syndrome::NotReady(from.int_in_range(0..=31)?),
            Syndrome::Nak(Nak::RemoteAccess),
        ];
        let aeth = Aeth {
            syndrome: *from.choose(&syndromes)?,
            msn: from.int_in_range(0..=3)?,
        };
        let eth = AtomicEth {
            addr: reth.addr,
            key: reth.key,
            swap_add: 1,
            compare: 0,
        };
        let imm = [1, 2, 3, 4];
        Ok(*from.choose(&[
            Operation::SendFirst,
            Operation::SendMiddle,
            Operation::SendLast(With::Nothing),
            Operation::SendLast(With::Invalidate(reth.key)),
            Operation::SendOnly(With::Nothing),
            Operation::SendOnly(With::Immediate(imm)),
            Operation::SendOnly(With::Invalidate(reth.key)),
            Operation::WriteFirst(reth),
            Operation::WriteMiddle,
            Operation::WriteLast(None),
            Operation::WriteLast(Some(imm)),
            Operation::WriteOnly(reth, None),
            Operation::WriteOnly(reth, Some(imm)),
            Operation::Read(reth),
            Operation::ReadReplyFirst(aeth),
            Operation::ReadReplyMiddle,
            Operation::ReadReplyLast(aeth),
            Operation::ReadReplyOnly(aeth),
            Operation::Acknowledge(aeth),
            Operation::AtomicReply(aeth, 7),
            Operation::CompareSwap(eth),
            Operation::FetchAdd(eth),
            Operation::Flush(
                Feth {
                    placement: 1,
                    selectivity: 0,
                },
                reth,
            ),
            Operation::AtomicWrite(reth),
        ])?)
    }

    /// A frame of valid parts, and some that are not.
    fn forged(&self, from: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let operation = self.operation(from)?;
        let mtu = 1usize << self.f.connection.log_mtu;
        let fits = match operation {
            Operation::SendFirst | Operation::SendMiddle => mtu,
            Operation::WriteFirst(_) | Operation::WriteMiddle => mtu,
            Operation::WriteOnly(reth, _) => mtu.min(reth.bytes as usize),
            Operation::SendLast(_) | Operation::SendOnly(_) | Operation::WriteLast(_) => 8,
            Operation::AtomicWrite(_) => 8,
            Operation::ReadReplyFirst(_) | Operation::ReadReplyMiddle => mtu,
            _ => 0,
        };
        let bytes =
            *from.choose(&[fits, fits, fits, fits, 0, 8, mtu, 5, mtu - 1, mtu + 1, 4097])?;
        let mut it = Forged::of(&self.f, 0, operation, vec![7; bytes]);
        let base = match operation.is_answer() {
            true => self.qp.acked_psn,
            false => self.qp.rq_psn,
        };
        let near = *from.choose(&[0, 0, 0, 1, -1, 2, -2, 1 << 23])?;
        it.headers.psn = Psn::new(base.wrapping_add_signed(near));
        it.headers.ack = from.arbitrary()?;
        if self.f.connection.ipv6 {
            it.route.from = gid_bytes(gid6_at(PEER));
            it.route.to = gid_bytes(gid6_at(HERE));
        }
        match from.int_in_range(0..=31u8)? {
            0 => it.route.from = gid_bytes(gid_at(HERE)),
            1 => it.route.from = gid_bytes(gid_at(2)),
            2 => it.route.to = gid_bytes(gid_at(2)),
            3 => it.route.to_mac = [0x33; 6],
            4 => it.headers.dest = Number::PORT_QP.raw(),
            5 => it.headers.dest = Number::GROUP.raw(),
            11..=15 if self.member => {
                it.route.from = gid_bytes(gid6_at(PEER));
                (it.route.to, it.route.to_mac) = (gid_bytes(GROUP), [0x33; 6]);
                it.headers.dest = Number::GROUP.raw();
            }
            6 => it.headers.dest ^= 1 << 16,
            7 => it.headers.service = Service::Rc,
            8 => it.headers.service = Service::Uc,
            9 => {
                it.headers.service = Service::Ud(Deth {
                    q_key: 5,
                    source: 5,
                })
            }
            10 => it.headers.solicited = true,
            _ => {}
        }
        let mut frame = it.frame();
        if from.ratio(1u8, 4u8)? {
            for _ in 0..from.int_in_range(1..=3u8)? {
                let at = from.int_in_range(0..=120usize)?;
                let bits: u8 = from.arbitrary()?;
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= bits;
                }
            }
            if from.ratio(1u8, 8u8)? {
                frame.truncate(from.int_in_range(0..=120)?);
            }
            if !from.ratio(1u8, 8u8)? {
                frame = sealed(frame);
            }
        }
        Ok(frame)
    }

    /// The queue pairs can be connected again, and a WRITE arrives.
    fn works(mut self) {
        self.unlinked = false;
        self.f.m(HERE).f.set_link_down(false);
        self.resume();
        for place in [PEER, HERE] {
            self.f.reset(place);
            self.f.connect(place);
            self.f.done(place);
            self.f.m(place).f.host_mut().frames.clear();
        }
        if !self.is_ud() {
            self.grant(access::GRANTS);
            self.f.set_bytes(PEER, 0, &[9; 8]);
            let write = self.f.remote(opcode::WRITE, 64);
            self.f.send(write, &[self.f.mrs[PEER].sge(0, 8)]);
            assert_eq!(self.f.done(PEER).len(), 1);
            assert_eq!(self.f.bytes(HERE, 64, 8), [9; 8]);
        }
    }
}
