// SPDX-License-Identifier: GPL-2.0
//! The C interface, called as QEMU calls it, by a test machine.

mod support;

use std::{
    cell::{
        Cell,
        RefCell, //
    },
    ffi::{
        c_char,
        CStr, //
    },
    ptr,
    str,
    sync::atomic::Ordering::SeqCst, //
};

use qpair_abi::{
    command,
    counters::{
        self,
        Counter, //
    },
    doorbell,
    regs::{
        offset,
        MAGIC_VALUE, //
    },
    Number, //
};
use qpair_ffi::{
    model::*,
    QpairKind,
    QpairRun,
    QpairText,
    QpairTrace, //
};
use support::{
    defaults,
    index_of,
    Board,
    Machine,
    CONTEXT,
    CQ,
    EQ,
    READY,
    RESET,
    SQ, //
};

type Reentry = Box<dyn Fn(*const QpairModel)>;

/// A machine of one thread.
struct Alone {
    board: Board,
    woken: Cell<bool>,
    /// The clock of the host, and how much later it is at each look.
    host_now: Cell<u64>,
    step: Cell<u64>,
    /// A re-entry into the model while it runs.
    reentry: RefCell<Option<Reentry>>,
    reentries: Cell<u64>,
}

impl Machine for Alone {
    fn board(&self) -> &Board {
        &self.board
    }

    fn wake(&self) {
        self.woken.set(true);
    }

    fn host_now(&self) -> u64 {
        self.host_now.set(self.host_now.get() + self.step.get());
        self.host_now.get()
    }

    fn reads(&self) {
        self.reenter();
    }

    fn traces(&self, _what: QpairTrace, _arguments: &[u64; 6]) {
        self.reenter();
    }
}

impl Alone {
    fn new(mappable: bool) -> Box<Self> {
        Box::new(Self {
            board: Board::new(mappable),
            woken: Cell::default(),
            host_now: Cell::default(),
            step: Cell::default(),
            reentry: RefCell::default(),
            reentries: Cell::default(),
        })
    }

    fn reenter(&self) {
        let model = self.board.model();
        if let (Some(act), false) = (&*self.reentry.borrow(), model.is_null()) {
            self.reentries.set(self.reentries.get() + 1);
            act(model);
        }
    }

    fn mapped(&self) -> i64 {
        self.board.mapped.load(SeqCst)
    }

    /// Queries the counters by the first admin command; returns whether it completed.
    fn query(&self) -> bool {
        let opcode = command::opcode(command::kind::DEVICE, command::verb::QUERY);
        let bytes = counters::BYTES as u64;
        let words = [
            u64::from(opcode) | 1 << 8 | 1 << 16,
            7,
            CONTEXT,
            bytes << 32,
        ];
        for (i, word) in words.into_iter().enumerate() {
            self.board.word(SQ + 8 * i as u64).store(word, SeqCst);
        }
        let value = doorbell::value(Number::ADMIN, 1);
        // SAFETY: The model lives, and this is the only thread.
        unsafe { qpair_model_doorbell(self.board.model(), doorbell::SQ, value, 8) };
        while self.woken.take() {
            // SAFETY: As above.
            self.woken
                .set(unsafe { qpair_model_run(self.board.model()) });
        }
        self.board.word(CQ + 24).load(SeqCst) >> 63 == 1
    }

    fn end(&self) {
        self.unplug();
        assert_eq!(self.mapped(), 0, "a mapping is left");
    }
}

#[test]
fn commands_are_done_with_and_without_mappings() {
    for mappable in [false, true] {
        let machine = Alone::new(mappable);
        machine.plug(&defaults()).unwrap();
        assert_eq!(machine.reg_read(offset::MAGIC), MAGIC_VALUE);
        machine.up();
        assert!(machine.query());
        assert_eq!(machine.board.maps.load(SeqCst) > 0, mappable);
        machine.end();
    }
}

/// With the BQL, and without it.
#[test]
fn a_run_ends_when_its_time_is_up() {
    let steps = [(0, 1), (1_000_000, 2)];
    for (apart, (step, runs)) in steps.iter().flat_map(|of| [(false, *of), (true, *of)]) {
        let machine = Alone::new(true);
        let mut values = defaults();
        values[index_of("wqes-per-turn") as usize] = 1;
        let model = machine.plug(&values).unwrap();
        machine.up();
        machine.step.set(step);
        // Blocks of zeros: commands that are refused, each in a turn of its own.
        let value = doorbell::value(Number::ADMIN, 16);
        // SAFETY: The model lives, and this is the only thread.
        unsafe { qpair_model_doorbell(model, doorbell::SQ, value, 8) };
        for run in 1..=runs {
            let more = if apart {
                // SAFETY: As above.
                unsafe { qpair_model_run_apart(model) == QpairRun::More }
            } else {
                // SAFETY: As above.
                unsafe { qpair_model_run(model) }
            };
            assert_eq!(more, run < runs);
            assert_eq!(machine.counter(Counter::Commands), 16 * run / runs);
        }
        machine.end();
    }
}

#[test]
fn nothing_is_mapped_that_is_not_wanted() {
    let machine = Alone::new(true);
    let model = machine.plug(&defaults()).unwrap();
    machine.up();
    assert!(machine.query() && machine.mapped() > 0);
    // SAFETY: The model exists; the message buffer is empty.
    let set = |on| unsafe { qpair_model_set(model, index_of("unmapped"), on, ptr::null_mut(), 0) };
    assert!(set(1));
    assert_eq!(machine.mapped(), 0);
    machine.reg_write(offset::CTRL, RESET);
    machine.up();
    assert!(machine.query());
    assert_eq!(machine.mapped(), 0);
    assert!(set(0));
    machine.reg_write(offset::CTRL, RESET);
    machine.up();
    assert!(machine.query() && machine.mapped() > 0);
    machine.end();
}

#[test]
fn a_reset_from_inside_is_done_after() {
    let machine = Alone::new(true);
    machine.plug(&defaults()).unwrap();
    machine.up();
    let first = Cell::new(true);
    *machine.reentry.borrow_mut() = Some(Box::new(move |model| {
        if first.take() {
            // SAFETY: The model exists while it calls back.
            unsafe { qpair_model_reset(model) }
        }
    }));
    machine.query();
    assert!(machine.reentries.take() > 0);
    machine.reentry.take();
    assert_eq!(machine.status() & READY, 0);
    assert_eq!(machine.mapped(), 0);
    machine.up();
    assert!(machine.query());
    machine.end();
}

#[test]
fn accesses_from_inside_do_nothing() {
    let machine = Alone::new(true);
    machine.plug(&defaults()).unwrap();
    machine.up();
    // SAFETY: The model exists while it calls back.
    *machine.reentry.borrow_mut() = Some(Box::new(|model| unsafe {
        assert_eq!(qpair_model_reg_read(model, offset::MAGIC), 0);
        qpair_model_reg_write(model, offset::CTRL, RESET);
        qpair_model_doorbell(model, doorbell::SQ, u64::MAX, 8);
        assert!(!qpair_model_run(model));
    }));
    assert!(machine.query());
    assert!(machine.reentries.take() > 0);
    machine.reentry.take();
    assert_eq!(machine.status() & READY, READY);
    assert_eq!(machine.counter(Counter::Violations), 0);
    machine.end();
}

#[test]
fn a_setting_from_inside_is_refused() {
    let machine = Alone::new(true);
    machine.plug(&defaults()).unwrap();
    machine.up();
    *machine.reentry.borrow_mut() = Some(Box::new(|model| {
        let mut room = [1; 64];
        let (error, length) = (room.as_mut_ptr(), room.len());
        // SAFETY: The model exists while it calls back; the buffer is the array.
        assert!(!unsafe { qpair_model_set(model, index_of("link-down"), 1, error, length) });
        assert_eq!(said(&room), "the device is busy");
    }));
    assert!(machine.query());
    assert!(machine.reentries.take() > 0);
    machine.reentry.take();
    // SAFETY: The model exists.
    let value = unsafe { qpair_model_get(machine.board.model(), index_of("link-down")) };
    assert_eq!(value, 0);
    machine.end();
}

/// A callback that ends the function: it is done after, and for good.
#[test]
fn an_end_from_inside_is_final() {
    let machine = Alone::new(true);
    machine.plug(&defaults()).unwrap();
    machine.up();
    let first = Cell::new(true);
    *machine.reentry.borrow_mut() = Some(Box::new(move |model| {
        if first.take() {
            // SAFETY: The model exists while it calls back.
            unsafe { qpair_model_end(model) }
        }
    }));
    machine.query();
    assert!(machine.reentries.take() > 0);
    machine.reentry.take();
    assert_eq!(machine.reg_read(offset::MAGIC), u32::MAX);
    assert_eq!(machine.mapped(), 0);
    machine.end();
}

#[test]
fn facts_and_counters_are_those_of_the_abi() {
    let text = |text: QpairText| {
        // SAFETY: Constant text of the library, with this many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(text.text.cast::<u8>(), text.bytes) };
        str::from_utf8(bytes).unwrap()
    };
    let facts = qpair_facts();
    assert_eq!((facts.vendor, facts.device), (0x1234, 0x5150));
    let counters = (0..facts.counters).map(|i| {
        let counter = qpair_counter(i);
        (text(counter.name), text(counter.text))
    });
    let expected = Counter::ALL.iter().map(|of| (of.name(), of.text()));
    assert!(counters.eq(expected));
    assert_eq!(text(qpair_counter(facts.counters).name), "");
    assert_ne!(text(qpair_setting(facts.settings - 1).name), "");
    let none = qpair_setting(facts.settings);
    assert_eq!((text(none.name), none.live), ("", false));
}

#[test]
fn mappings_that_are_lost_inside_are_dropped_after() {
    let machine = Alone::new(true);
    machine.plug(&defaults()).unwrap();
    machine.up();
    // SAFETY: The model exists while it calls back.
    *machine.reentry.borrow_mut() = Some(Box::new(|model| unsafe { qpair_model_unmap_all(model) }));
    assert!(machine.query());
    assert!(machine.reentries.take() > 0);
    machine.reentry.take();
    assert_eq!(machine.mapped(), 0);
    machine.end();
}

#[test]
fn frames_of_others_pass() {
    const TO: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2];
    let machine = Alone::new(true);
    let model = machine.plug_wired(&defaults(), true).unwrap();
    assert_eq!(machine.reg_read(offset::MAC_HI) >> 16, 1, "wired");
    // A frame of RoCEv2 whose address is no GID of the port, and bytes that are none.
    let mut frame = [0; 100];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[17] = 86;
    frame[23] = 17;
    frame[30..34].copy_from_slice(&TO[12..]);
    frame[36..38].copy_from_slice(&4791u16.to_be_bytes());
    assert!(qpair_model::is_of_roce(&frame));
    for bytes in [0, 13, frame.len()] {
        let frame = frame.as_ptr().cast();
        // SAFETY: The model lives, and the frame has as many bytes.
        assert!(!unsafe { qpair_model_frame(model, frame, bytes) });
    }
    machine.end();
}

#[test]
fn a_bad_setting_is_named() {
    let machine = Alone::new(true);
    let mut values = defaults();
    values[index_of("eqs") as usize] = 5000;
    let words = machine.plug(&values).unwrap_err();
    for part in ["'qpair.eqs'", "5000", "2048"] {
        assert!(words.contains(part), "{words}");
    }
    values[index_of("eqs") as usize] = (1 << 32) + 1;
    assert!(machine.plug(&values).is_err(), "a number was cut off");
    assert_eq!(machine.mapped(), 0);
}

#[test]
fn settings_turn_what_they_say() {
    let machine = Alone::new(true);
    let model = machine.plug(&defaults()).unwrap();
    let mut reason = [0; 8];
    machine.up();
    for i in 0..qpair_facts().settings {
        let setting = qpair_setting(i);
        // SAFETY: The model exists, and the buffer is the array.
        let (done, value) = unsafe {
            let done = qpair_model_set(model, i, 1, reason.as_mut_ptr(), reason.len());
            let value = qpair_model_get(model, i);
            qpair_model_set(model, i, 0, reason.as_mut_ptr(), reason.len());
            (done, value)
        };
        // SAFETY: Constant text of the library, with this many bytes.
        let name = unsafe {
            std::slice::from_raw_parts(setting.name.text.cast::<u8>(), setting.name.bytes)
        };
        match setting.kind {
            QpairKind::Words | QpairKind::Text => assert!(!done),
            // The admin queue pair, its CQ and EQ 0.
            _ if name == b"objects" => assert!(!done && value == 3),
            _ if setting.live => assert!(done && value == 1),
            _ => assert!(!done && value == setting.initial),
        }
        assert!(done || reason.contains(&0), "no end of the message");
    }
    machine.end();
}

/// The text in a buffer.
fn said(room: &[c_char]) -> String {
    // SAFETY: The model leaves a terminated text.
    let text = unsafe { CStr::from_ptr(room.as_ptr()) };
    text.to_string_lossy().into_owned()
}

/// Sets a setting by text; the message of a refusal.
fn set_text(model: *const QpairModel, name: &str, text: &[u8]) -> Result<(), String> {
    let mut room = [1; 256];
    let (from, bytes) = (text.as_ptr().cast(), text.len());
    // SAFETY: The model exists, and the buffers are the arrays.
    let done = unsafe {
        let (error, length) = (room.as_mut_ptr(), room.len());
        qpair_model_set_text(model, index_of(name), from, bytes, error, length)
    };
    if done {
        Ok(())
    } else {
        Err(said(&room))
    }
}

#[test]
fn entries_are_injected_by_their_words() {
    let machine = Alone::new(true);
    let model = machine.plug(&defaults()).unwrap();
    machine.up();
    assert_eq!(set_text(model, "inject-cqe", b"0:17:0x12:19:20"), Ok(()));
    assert_eq!(set_text(model, "inject-eqe", b"0:0x21:22"), Ok(()));
    let words = |at, count| {
        let words = (0..count).map(|i| machine.board.word(at + 8 * i).load(SeqCst) & !(1 << 63));
        words.collect::<Vec<_>>()
    };
    assert_eq!(words(CQ, 4), [17, 18, 19, 20]);
    assert_eq!(words(EQ, 2), [0x21, 22]);
    for (name, text, why) in [
        ("inject-cqe", "0:1:2:3", "takes 5 numbers"),
        ("inject-cqe", "0:1:2:3:4:5", "takes 5 numbers"),
        ("inject-eqe", "0:1:0y2", "takes 3 numbers"),
        ("inject-eqe", "", "takes 3 numbers"),
        ("inject-eqe", "9:1:2", "no such queue"),
        // Not the queue with the index 0.
        ("inject-cqe", "65536:1:2:3:4", "no such queue"),
    ] {
        let refused = set_text(model, name, text.as_bytes()).unwrap_err();
        assert!(refused.contains(why), "{text}: {refused}");
    }
    machine.reg_write(offset::CTRL, RESET);
    for (name, text) in [("inject-cqe", "0:1:2:3:4"), ("inject-eqe", "0:1:2")] {
        let refused = set_text(model, name, text.as_bytes()).unwrap_err();
        assert!(refused.contains("is not ready"), "{refused}");
    }
    machine.end();
}

#[test]
fn a_halted_function_works_when_it_goes_on() {
    let machine = Alone::new(true);
    let model = machine.plug(&defaults()).unwrap();
    machine.up();
    // SAFETY: The model lives, and this is the only thread.
    unsafe { qpair_model_halt(model, true) };
    assert!(!machine.query());
    // SAFETY: As above.
    unsafe { qpair_model_halt(model, false) };
    assert!(machine.woken.get(), "nothing runs the core");
    // SAFETY: As above.
    unsafe { qpair_model_run(model) };
    assert!(machine.board.word(CQ + 24).load(SeqCst) >> 63 == 1);
    machine.end();
}

#[test]
fn properties_of_the_function_follow_its_settings() {
    let machine = Alone::new(true);
    let mut values = defaults();
    values[index_of("eqs") as usize] = 5;
    values[index_of("doorbell-pages") as usize] = 9;
    let model = machine.plug(&values).unwrap();
    let set = |name, value| {
        // SAFETY: The model exists; the message buffer is empty.
        assert!(unsafe { qpair_model_set(model, index_of(name), value, ptr::null_mut(), 0) });
    };
    // SAFETY: The model lives, and this is the only thread.
    unsafe {
        assert_eq!(qpair_model_vectors(model), 5);
        assert_eq!(qpair_model_doorbell_bytes(model), 9 * doorbell::PAGE_BYTES);
        for name in ["core-delay-ns", "wqe-ns"] {
            assert!(!qpair_model_paced(model));
            set(name, 1);
            assert!(qpair_model_paced(model), "{name}");
            set(name, 0);
        }
        assert!(!qpair_model_vanished(model));
        set("vanish", 1);
        assert!(qpair_model_vanished(model));
        set("vanish", 0);
        // Each write that is to be ignored counts.
        set("ignore-stops", 2);
        let ignored = [(); 3].map(|()| qpair_model_ignores_stop(model));
        assert_eq!(ignored, [true, true, false]);
    }
    machine.end();
}

#[test]
fn settings_of_text_are_read_back() {
    let machine = Alone::new(true);
    let model = machine.plug(&defaults()).unwrap();
    let get = |name: &str| {
        let mut room = [1; 1024];
        // SAFETY: The model exists, and the buffer is the array.
        unsafe { qpair_model_get_text(model, index_of(name), room.as_mut_ptr(), room.len()) };
        said(&room)
    };
    let set = |name: &str, text: &[u8]| set_text(model, name, text);
    assert_eq!(
        (get("faults"), get("stall")),
        (String::new(), String::new())
    );
    let rules = "fail=rem-access,qp=3;seed=4";
    assert_eq!(set("faults", rules.as_bytes()), Ok(()));
    assert_eq!(get("faults"), rules);
    assert_eq!(get("faults-injected"), "fail 0 of 0");
    for (name, text, why) in [
        (
            "faults",
            &b"fail=x"[..],
            "Property 'qpair.faults': rule 1, 'fail=x': a status is one of",
        ),
        ("faults", &b"freeze,qp=\xff"[..], "a part is one of"),
        ("faults", &b"\xff"[..], "a part is one of"),
        ("faults-injected", &b""[..], "cannot be set"),
        ("eqs", &b"3"[..], "is one number"),
    ] {
        let refused = set(name, text).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(get("faults"), rules, "a refusal changes nothing");
    // The longest report fits as well.
    let many = vec!["drop-ack"; 16].join(";");
    assert_eq!(set("faults", many.as_bytes()), Ok(()));
    assert_eq!(
        get("faults-injected").matches("drop-ack 0 of 0").count(),
        16
    );
    machine.end();
}
