// SPDX-License-Identifier: GPL-2.0
//! Payload, frames and traces through the C interface: what a queue pair moves is in memory, or on
//! the network, whether its memory stays mapped or not.

mod support;

use std::{
    cell::{
        Cell,
        RefCell, //
    },
    sync::atomic::Ordering::SeqCst, //
};

use qpair_abi::{
    command::{
        self,
        access,
        kind,
        qp_state,
        service,
        verb,
        BufferList,
        CqContext,
        EqContext,
        GidContext,
        MrContext, //
    },
    counters::Counter,
    doorbell,
    entry::{
        opcode,
        send_flags,
        Cqe,
        RecvWqe,
        SendWqe,
        Sge,
        UdWqe,
        GRH_BYTES, //
    },
    regs::offset,
    status::{
        AdminError,
        Detail,
        EnableError,
        Event as Kind,
        Status, //
    },
    Number, //
};
use qpair_ffi::{
    model::*,
    QpairTrace, //
};
use support::{
    defaults,
    index_of,
    Board,
    Machine,
    Ready,
    BYTES,
    QP_CQ,
    QP_RQ,
    QP_SQ,
    RESET, //
};

/// Where a region of `LENGTH` bytes begins, and another: the last byte of a word, and the first.
const SOURCE: u64 = 0x2007;
const TARGET: u64 = 0x3001;
const LENGTH: u64 = 0x800;
/// The address of the first byte of a region in its own address space.
const VA: u64 = 0x7000_0000_0000;
/// Where the payload of a frame begins, behind the headers of Ethernet, IPv4, UDP and IB.
const FRAME_PAYLOAD: usize = 14 + 20 + 8 + 12 + 8;

struct Sender {
    board: Board,
    traces: RefCell<Vec<(QpairTrace, [u64; 6])>>,
    room: Cell<usize>,
    frames: RefCell<Vec<Vec<u8>>>,
    ready: Cell<Option<Ready>>,
    /// Requests and receives that were posted, and completions that were seen.
    sent: Cell<u32>,
    received: Cell<u32>,
    done: Cell<u32>,
}

impl Machine for Sender {
    fn board(&self) -> &Board {
        &self.board
    }

    fn wake(&self) {}

    fn room(&self) -> usize {
        self.room.get()
    }

    fn sends(&self, frame: &[u8]) {
        self.frames.borrow_mut().push(frame.to_vec());
    }

    fn traces(&self, what: QpairTrace, arguments: &[u64; 6]) {
        self.traces.borrow_mut().push((what, *arguments));
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.unplug();
        assert!(std::thread::panicking() || self.board.mapped.load(SeqCst) == 0);
    }
}

/// Bytes that differ from those of other seeds.
fn pattern(seed: u8) -> Vec<u8> {
    let byte = |i: u64| ((i * i) >> 4) as u8 ^ seed;
    (0..LENGTH).map(byte).collect()
}

impl Sender {
    fn off(mappable: bool, wired: bool) -> Box<Self> {
        let machine = Box::new(Self {
            board: Board::new(mappable),
            traces: RefCell::default(),
            room: Cell::new(1),
            frames: RefCell::default(),
            ready: Cell::new(None),
            sent: Cell::default(),
            received: Cell::default(),
            done: Cell::default(),
        });
        machine.plug_wired(&defaults(), wired).unwrap();
        machine
    }

    /// With a queue pair that is its own peer.
    fn new(mappable: bool) -> Box<Self> {
        let machine = Self::off(mappable, false);
        machine.up();
        machine.connect(Number::ADMIN);
        machine
    }

    /// To itself.
    fn connect(&self, eq: Number) {
        self.ready.set(Some(self.queue_pair(service::RC, eq)));
    }

    fn ready(&self) -> Ready {
        self.ready.get().unwrap()
    }

    fn set_text(&self, name: &str, text: &str) {
        let (from, bytes) = (text.as_ptr().cast(), text.len());
        let none = std::ptr::null_mut();
        // SAFETY: The model exists; the message buffer is empty.
        let done = unsafe {
            qpair_model_set_text(self.board.model(), index_of(name), from, bytes, none, 0)
        };
        assert!(done, "{name}");
    }

    fn set(&self, name: &str, value: u64) {
        let none = std::ptr::null_mut();
        // SAFETY: As above.
        let done = unsafe { qpair_model_set(self.board.model(), index_of(name), value, none, 0) };
        assert!(done, "{name}");
    }

    /// A region of this memory, with all rights.
    fn region(&self, buffer: BufferList) -> u32 {
        let context = MrContext {
            pd: self.ready().pd,
            access: access::ALL,
            addr: VA,
            buffer,
            ..MrContext::default()
        };
        self.create(kind::MR, &context.encode()).raw()
    }

    fn block(&self, root: u64) -> u32 {
        self.region(BufferList {
            root,
            bytes: LENGTH,
            ..BufferList::default()
        })
    }

    /// Posts a request of these words, and runs the core.
    fn send_words(&self, words: &[u64]) {
        let blocks = words.len().div_ceil(8) as u32;
        self.board
            .set_words(QP_SQ + 64 * u64::from(self.sent.get()), words);
        self.sent.set(self.sent.get() + blocks);
        self.ring_and_run(doorbell::SQ, self.ready().qp, self.sent.get());
    }

    /// The completions that are new: work request, bytes, status and detail.
    fn done(&self) -> Vec<(u64, u32, Status, Detail)> {
        let next = || {
            let at = self.done.get();
            let words = self.board.words::<4>(QP_CQ + 32 * u64::from(at));
            if words[3] >> 63 == 0 {
                return None;
            }
            self.done.set(at + 1);
            let cqe = Cqe::decode(&words);
            let status = Status::from_code(cqe.status).unwrap();
            let detail = Detail::from_code(cqe.vendor).unwrap();
            Some((cqe.wr_id, cqe.bytes, status, detail))
        };
        std::iter::from_fn(next).collect()
    }

    /// Sends `bytes` bytes from a byte of one region to, or with READ from, a byte of another.
    fn send(&self, opcode: u8, (lkey, from): (u32, u64), bytes: u32, (rkey, to): (u32, u64)) {
        let wqe = SendWqe {
            opcode,
            flags: send_flags::SIGNALED,
            blocks: 1,
            sges: 1,
            wr_id: 1,
            remote_addr: VA + to,
            rkey,
            ..SendWqe::default()
        };
        let sge = Sge {
            addr: VA + from,
            bytes,
            lkey,
        };
        self.send_words(&[&wqe.encode()[..], &sge.encode()].concat());
    }

    /// Posts a receive.
    fn recv(&self, lkey: u32, at: u64, bytes: u32) {
        let wqe = RecvWqe { sges: 1, wr_id: 2 };
        let sge = Sge {
            addr: VA + at,
            bytes,
            lkey,
        };
        let words = [&wqe.encode()[..], &sge.encode()].concat();
        self.board
            .set_words(QP_RQ + 64 * u64::from(self.received.get()), &words);
        self.received.set(self.received.get() + 1);
        self.ring_and_run(doorbell::RQ, self.ready().qp, self.received.get());
    }

    fn moved(&self) -> [u64; 3] {
        [0, 1, 2].map(|how| self.board.moved[how].load(SeqCst))
    }

    /// The traces since the last call.
    fn traced(&self) -> Vec<(QpairTrace, [u64; 6])> {
        self.traces.take()
    }
}

const SENT: (u64, u32, Status, Detail) = (1, 0, Status::Success, Detail::None);

/// A region's memory is used by its address at first, then its mapping is read and written, then
/// bytes go from one mapping to the other.
#[test]
fn payload_arrives_with_and_without_mappings() {
    const COUNT: usize = 1001;
    for mappable in [false, true] {
        let machine = Sender::new(mappable);
        let board = &machine.board;
        let (source, target) = (machine.block(SOURCE), machine.block(TARGET));
        let count = COUNT as u32;
        for round in 0..4 {
            for op in [opcode::WRITE, opcode::READ, opcode::SEND] {
                let bytes = pattern(round * 3 + op);
                let (from, to) = match op {
                    opcode::READ => (TARGET + 5, SOURCE + 2),
                    _ => (SOURCE + 2, TARGET + 5),
                };
                board.set_bytes(from, &bytes[..COUNT]);
                board.set_bytes(to - 1, &[0xaa; COUNT + 2]);
                if op == opcode::SEND {
                    machine.recv(target, 5, count);
                }
                machine.send(op, (source, 2), count, (target, 5));
                let got = board.bytes(to - 1, COUNT + 2);
                assert_eq!(got[1..=COUNT], bytes[..COUNT], "round {round}, {op}");
                assert_eq!((got[0], got[COUNT + 1]), (0xaa, 0xaa), "beyond them");
                let done = machine.done();
                let got = |wr_id| (wr_id, count, Status::Success, Detail::None);
                match op {
                    opcode::SEND => assert_eq!(done, [got(2), SENT]),
                    opcode::READ => assert_eq!(done, [got(1)]),
                    _ => assert_eq!(done, [SENT]),
                }
            }
        }
        // The first of all is done by address. The second maps both ends, and is loaded and stored, as
        // the SENDs are; other WRITEs and READs are copied.
        let bytes = COUNT as u64;
        let expected = if mappable {
            [5 * bytes, 5 * bytes, 6 * bytes]
        } else {
            [0; 3]
        };
        assert_eq!(machine.moved(), expected);
        // What is written word by word is reported to QEMU, which may migrate it.
        let written = board.written.lock().unwrap();
        for at in 0..u64::from(machine.done.get()) {
            let entry = (QP_CQ + 32 * at, 32);
            assert_eq!(written.contains(&entry), mappable, "{entry:x?}");
        }
    }
}

/// The region's pages are not in order: a mapping ends before the message.
#[test]
fn a_message_goes_on_in_another_mapping() {
    const PAGES: [u64; 2] = [0x3000, 0x2000];
    const TABLE: u64 = 0x6800;
    for mappable in [false, true] {
        let machine = Sender::new(mappable);
        let board = &machine.board;
        board.set_words(TABLE, &PAGES);
        let paged = machine.region(BufferList {
            root: TABLE,
            bytes: 0x2000,
            page_shift: 12,
            levels: 1,
            ..BufferList::default()
        });
        let block = machine.block(1);
        for round in 0..3 {
            // The first page is mapped when the message begins.
            for _ in 0..2 {
                machine.send(opcode::WRITE, (block, 0), 8, (paged, 0));
            }
            let bytes = pattern(round);
            board.set_bytes(1, &bytes);
            machine.send(opcode::WRITE, (block, 0), LENGTH as u32, (paged, 0xd01));
            let halves = [board.bytes(0x3d01, 0x2ff), board.bytes(0x2000, 0x501)];
            assert_eq!(halves.concat(), bytes, "round {round}");
            board.set_bytes(1, &[0; LENGTH as usize]);
            machine.send(opcode::READ, (block, 0), LENGTH as u32, (paged, 0xd01));
            assert_eq!(board.bytes(1, LENGTH as usize), bytes, "round {round}");
        }
        let moved = machine.moved();
        assert_eq!(moved[0] > 0 && moved[1] > 0, mappable, "{moved:?}");
        // One byte more than the region has.
        board.set_bytes(1, &[1; LENGTH as usize]);
        let before = board.bytes(0x2000, 0x2000);
        machine.done();
        machine.send(opcode::WRITE, (block, 0), LENGTH as u32, (paged, 0x1801));
        assert_eq!(
            machine.done(),
            [(1, 0, Status::RemoteAccess, Detail::Range)]
        );
        assert_eq!(board.bytes(0x2000, 0x2000), before);
    }
}

/// What the machine does not map, nor let the function access, is a failure of the request.
#[test]
fn refused_memory_fails_the_request() {
    for mappable in [false, true] {
        let machine = Sender::new(mappable);
        let beyond = machine.block(BYTES - 8);
        let target = machine.block(TARGET);
        machine.send(opcode::WRITE, (beyond, 0), 8, (target, 0));
        assert_eq!(machine.done(), [SENT], "it is inside");
        let faults = machine.counter(Counter::DmaFaults);
        machine.send(opcode::WRITE, (beyond, 0), 9, (target, 0));
        let failed = (1, 0, Status::LocalProtection, Detail::Dma);
        assert_eq!(machine.done(), [failed]);
        assert_eq!(machine.counter(Counter::DmaFaults), faults + 1);
    }
}

/// Two machines on a network. Each has a queue pair of UD, and the second a receive.
#[test]
fn frames_wait_for_room_and_arrive() {
    const COUNT: usize = 333;
    const GIDS: [[u64; 2]; 2] = [
        [0, 0x0100_000a_ffff_0000],
        [0, 0x0200_000a_ffff_0000], //
    ];
    let machines = [0, 1].map(|place: usize| {
        let machine = Sender::off(true, true);
        machine.set_text("mac", &format!("52:54:00:00:00:0{}", place + 1));
        machine.up();
        let [gid, gid_high] = GIDS[place];
        let gid = GidContext { gid, gid_high }.encode();
        machine.command(kind::GID, verb::MODIFY, Number::from_raw(1), 0, &gid);
        machine
            .ready
            .set(Some(machine.queue_pair(service::UD, Number::ADMIN)));
        machine
    });
    let [from, to] = &machines;
    let (source, target) = (from.block(SOURCE), to.block(TARGET));
    from.board.set_bytes(SOURCE, &pattern(9));
    let wqe = UdWqe {
        opcode: opcode::SEND,
        flags: send_flags::SIGNALED,
        blocks: 2,
        sges: 1,
        wr_id: 1,
        dest: to.ready().qp,
        source: 1,
        gid: GIDS[1][0],
        gid_high: GIDS[1][1],
        mac_low: u32::from_le_bytes([0x52, 0x54, 0, 0]),
        mac_high: u16::from_le_bytes([0, 2]),
        hop_limit: 64,
        ..UdWqe::default()
    };
    let sge = Sge {
        addr: VA,
        bytes: COUNT as u32,
        lkey: source,
    };
    let mut words = [0; 16];
    words[..8].copy_from_slice(&wqe.encode());
    words[8..10].copy_from_slice(&sge.encode());
    from.room.set(0);
    from.send_words(&words);
    assert!(from.frames.borrow().is_empty() && from.done().is_empty());
    from.room.set(1);
    from.finish();
    assert_eq!(from.done(), [SENT]);
    let frames = from.frames.take();
    assert_eq!(frames.len(), 1);
    let frame = &frames[0];
    assert_eq!(frame[..12], *b"\x52\x54\0\0\0\x02\x52\x54\0\0\0\x01");
    assert_eq!(frame[FRAME_PAYLOAD..][..COUNT], pattern(9)[..COUNT]);
    to.recv(target, 0, 1000);
    let (start, bytes) = (frame.as_ptr().cast(), frame.len());
    // SAFETY: The model lives, and the frame has as many bytes.
    let is_own = unsafe { qpair_model_frame(to.board.model(), start, bytes) };
    assert!(is_own, "it is also for the network device");
    to.finish();
    let bytes = GRH_BYTES + COUNT;
    let arrived = (2, bytes as u32, Status::Success, Detail::None);
    assert_eq!(to.done(), [arrived]);
    let payload = to.board.bytes(TARGET + GRH_BYTES as u64, COUNT);
    assert_eq!(payload, pattern(9)[..COUNT]);
}

/// Each trace has the arguments of its description, in their order.
#[test]
fn traces_have_their_arguments() {
    use QpairTrace::*;
    const VECTOR: u16 = 3;
    const PAGE: u64 = 5;
    let machine = Sender::off(true, false);
    machine.up();
    let block = |root, bytes| BufferList {
        root,
        bytes,
        ..BufferList::default()
    };
    // No two of the objects have the same number.
    let [_, _, eq] = [1, 2, VECTOR].map(|vector| {
        let context = EqContext {
            vector,
            log_depth: 4,
            buffer: block(0x6800 + 0x100 * u64::from(vector), 16 << 4),
            ..EqContext::default()
        };
        machine.create(kind::EQ, &context.encode())
    });
    let context = CqContext {
        log_depth: 4,
        buffer: block(0x6c00, 32 << 4),
        ..CqContext::default()
    };
    machine.create(kind::CQ, &context.encode());
    machine.connect(eq);
    let Ready { pd, cq, qp } = machine.ready();
    let region = machine.block(SOURCE);
    let [raw_eq, raw_cq, raw_qp, raw_pd] = [eq, cq, qp, pd].map(|number| u64::from(number.raw()));
    let bell = |page, place, number, index| {
        (
            Doorbell,
            [page, place, doorbell::value(number, index), 0, 0, 0],
        )
    };
    machine.ring_and_run(doorbell::EQ_HEAD, eq, 0);
    machine.traced();

    machine.ring_and_run(doorbell::CQ_ARM_NEXT, cq, 0);
    machine.recv(region, 0, 8);
    machine.send(opcode::SEND, (region, 0), 8, (0, 0));
    let (recv, send) = (opcode::RECV.into(), opcode::SEND.into());
    let expected = [
        bell(0, doorbell::CQ_ARM_NEXT, cq, 0),
        bell(0, doorbell::RQ, qp, 1),
        bell(0, doorbell::SQ, qp, 1),
        (Fetch, [raw_qp, 0, 1, 0, 0, 0]),
        (FetchReceive, [raw_qp, 0, 0, 0, 0, 0]),
        (Completion, [raw_cq, 0, raw_qp, recv, 0, 0]),
        (Event, [raw_eq, 0, event(Kind::Completion), raw_cq, 0, 0]),
        (Interrupt, [raw_eq, VECTOR.into(), 0, 0, 0, 0]),
        (Completion, [raw_cq, 1, raw_qp, send, 0, 0]),
    ];
    assert_eq!(machine.traced(), expected);

    let commands = machine.counter(Counter::Commands);
    machine.execute(kind::PD, verb::DESTROY, pd, 0, &[]);
    let destroy = command::opcode(kind::PD, verb::DESTROY).into();
    let (failed, busy) = (
        Status::General.code().into(),
        AdminError::Busy.code().into(),
    );
    let expected = [
        bell(0, doorbell::SQ, Number::ADMIN, commands as u32 + 1),
        (Fetch, [0, commands, 1, 0, 0, 0]),
        (Command, [destroy, raw_pd, busy, 0, 0, 0]),
        (Completion, [0, commands, 0, destroy, failed, busy]),
    ];
    assert_eq!(machine.traced(), expected);

    // Both are traced with their rule, the second and the third.
    let rules = "event=link-up,nth=9;fail=rem-op,opcode=write;garble=cqe:2";
    machine.set_text("faults", rules);
    machine.send(opcode::WRITE, (region, 0), 8, (region, 0));
    let write = opcode::WRITE.into();
    let failed = Status::RemoteOperation.code().into();
    let injected = Detail::Injected.code().into();
    let states = [qp_state::RTS, qp_state::ERROR].map(u64::from);
    let expected = [
        bell(0, doorbell::SQ, qp, 2),
        (Fetch, [raw_qp, 1, 1, 0, 0, 0]),
        (Fault, [2, raw_qp, write, 2, 0, 0]),
        (Garbage, [3, raw_qp, 2, 0, 0, 0]),
        (Completion, [raw_cq, 2, raw_qp, write, failed, injected]),
        (State, [raw_qp, states[0], states[1], 0, 0, 0]),
    ];
    assert_eq!(machine.traced(), expected);

    // The queue pair is of page 0.
    machine.ring_and_run(PAGE * doorbell::PAGE_BYTES + doorbell::SQ, qp, 7);
    let violation = event(Kind::DoorbellViolation);
    let expected = [
        bell(PAGE, doorbell::SQ, qp, 7),
        (Violation, [PAGE, doorbell::value(qp, 7), 0, 0, 0, 0]),
        (Event, [0, 0, violation, PAGE, 0, 0]),
        (Interrupt, [0; 6]),
    ];
    assert_eq!(machine.traced(), expected);

    machine.set("fatal", 1);
    machine.reg_write(offset::CTRL, RESET);
    let cause = EnableError::Injected.code().into();
    let expected = [
        (Fatal, [cause, 0, 0, 0, 0, 0]),
        (Event, [0, 1, event(Kind::DeviceFatal), 0, 0, 0]),
        (Reset, [0; 6]),
    ];
    assert_eq!(machine.traced(), expected);
}

fn event(kind: Kind) -> u64 {
    kind.code().into()
}
