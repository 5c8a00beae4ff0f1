// SPDX-License-Identifier: GPL-2.0
//! Arbitrary software: nothing panics, nothing hangs, memory that no list, context or key names is
//! not accessed, and after a reset the device works.

use super::checks;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::doorbell;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::regs::offset;
use qpair_abi::Number;
use qpair_model::Config;
use qpair_testkit::with_seeds;

checks![
    garbage_in_registers_and_doorbells,
    garbage_in_commands,
    garbage_in_work_requests,
    anything_in_any_order,
    a_device_that_keeps_nothing_to_itself,
];

fn garbage_in_registers_and_doorbells() {
    with_seeds("garbage_in_registers_and_doorbells", 40, |rng| {
        let mut m = if rng.one_in(2) {
            Machine::new()
        } else {
            Machine::off(Config::default())
        };
        m.memory.set_lenient(true);
        for _ in 0..2000 {
            match rng.below(8) {
                0 => {
                    let wild = rng.odd();
                    let near = rng.below(0x60) & !3;
                    let at = rng.pick(&[offset::ADMIN_DEPTH, offset::CTRL, wild, near]);
                    m.f.reg_write(at, rng.odd() as u32);
                }
                1 => _ = m.f.reg_read(rng.odd()),
                2 => _ = m.f.run(rng.below(5) as u32),
                3 => {
                    let wild = (rng.odd(), rng.odd(), rng.odd() as u32);
                    m.f.doorbell(wild.0, wild.1, wild.2);
                }
                4 => m.f.host_mut().now += rng.below(1 << 30),
                5 => m.f.unmap(rng.odd(), rng.odd()),
                _ => {
                    let at = rng.below(4) * 4096 + rng.below(9) * 8;
                    let number = Number::new(rng.below(3) as u16, rng.below(3) as u16);
                    m.f.doorbell(at, doorbell::value(number, rng.odd() as u32), 8);
                }
            }
        }
        works_after_reset(&mut m);
    });
}

fn garbage_in_commands() {
    with_seeds("garbage_in_commands", 40, |rng| {
        let mut m = Machine::new();
        m.memory.set_lenient(true);
        let spare = m.memory.alloc(1 << 16, 4096, Grant::Write);
        for _ in 0..400 {
            let context = m.context;
            for word in 0..16 {
                let value = match rng.below(4) {
                    0 => rng.odd(),
                    1 => spare + (rng.below(1 << 16) & !63),
                    2 => rng.below(1 << 16) | rng.below(3) << 32 | rng.below(3) << 40,
                    _ => 0,
                };
                m.memory.set_word(context + 8 * word, value);
                m.memory.set_word(spare + 8 * rng.below(8192), rng.odd());
            }
            let mut command = Command {
                opcode: opcode(rng.below(12) as u8, rng.below(7) as u8),
                flags: send_flags::SIGNALED,
                blocks: 1,
                number: Number::new(rng.below(4) as u16, rng.below(4) as u16),
                wr_id: rng.next(),
                context,
                mask: rng.below(40) as u32,
                context_bytes: rng.pick(&[64, 128, 0, qpair_abi::counters::BYTES as u32]),
            };
            if rng.one_in(5) {
                command.context = rng.odd();
                command.context_bytes = rng.odd() as u32;
            }
            let mut words = Machine::command_words(&command);
            if rng.one_in(10) {
                words[rng.below(8) as usize] = rng.odd();
            }
            m.post_command(&words);
            m.settle();
            let done = m.admin_done().expect("a command completes, whatever it is");
            if words[1] == command.wr_id {
                assert_eq!(done.wr_id, command.wr_id);
            }
            if rng.one_in(4) {
                m.events0();
            }
        }
        works_after_reset(&mut m);
    });
}

fn garbage_in_work_requests() {
    with_seeds("garbage_in_work_requests", 60, |rng| {
        let unreliable = rng.one_in(4);
        let mut p = Pair::with(|a, b| {
            if unreliable {
                (a.service, b.service) = (service::UC, service::UC);
            } else {
                (a.retry, a.rnr_retry) = (2, 2);
                (b.retry, b.rnr_retry) = (1, 7);
                (a.flags, b.flags) = (qp_flags::REGISTERS, qp_flags::REGISTERS);
            }
        });
        let keys = keys(&mut p);
        for _ in 0..200 {
            for qp in [p.a.number, p.b.number] {
                if p.state(qp) == qp_state::ERROR {
                    p.m.set_state(qp, qp_state::RESET).unwrap();
                }
            }
            (p.a.sq_tail, p.a.rq_tail, p.b.sq_tail, p.b.rq_tail) = (0, 0, 0, 0);
            let (a, b) = (p.a.number, p.b.number);
            for (qp, peer) in [(a, b), (b, a)] {
                p.m.set_state(qp, qp_state::RESET).unwrap();
                p.m.connect(qp, peer);
            }
            for _ in 0..rng.below(3) {
                let sges = sges(rng, &p.mr_b, &p.mr_a, &keys);
                p.m.post_recv(&mut p.b, 1, &sges);
                if rng.one_in(8) {
                    p.m.memory.set_word(p.b.rq, rng.odd());
                }
            }
            for _ in 0..1 + rng.below(3) {
                let mut words = half_right(rng, &p, &keys);
                // A registration names memory of the machine, which is strict.
                if words[0] as u8 == work::REG_MR {
                    let list = block(p.mr_a.addr, rng.below(1 << 20));
                    words[4..7].copy_from_slice(&list.encode());
                }
                p.m.post_words(&mut p.a, &words);
            }
            p.m.ring(0, doorbell::RQ, p.b.number, p.b.rq_tail);
            p.m.ring(0, doorbell::SQ, p.a.number, p.a.sq_tail % 17);
            p.m.pass(20_000_000);
            p.done_a();
            p.done_b();
            p.m.events0();
            p.m.events0();
        }
        // No other memory was accessed: the machine would have failed the test.
        assert_eq!(p.m.f.status() & 3, 1);
        works_after_reset(&mut p.m);
    });
}

fn anything_in_any_order() {
    with_seeds("anything_in_any_order", 60, |rng| {
        let mut world = Anything::new(rng);
        for _ in 0..1500 {
            world.step(rng);
        }
        world.works();
    });
}

fn a_device_that_keeps_nothing_to_itself() {
    // Memory that no list, context or key names is never accessed, whatever a WQE has: the machine
    // is strict here.
    with_seeds("a_device_that_keeps_nothing_to_itself", 60, |rng| {
        let mut p = Pair::new();
        let keys = keys(&mut p);
        for _ in 0..30 {
            let mut words = half_right(rng, &p, &keys);
            // Addresses in WQEs are checked by keys, so they may have any value.
            for word in words.iter_mut().skip(4) {
                if rng.one_in(3) {
                    *word = rng.odd();
                }
            }
            p.m.post_words(&mut p.a, &words);
            p.m.ring(0, doorbell::SQ, p.a.number, p.a.sq_tail);
            p.m.settle();
            p.done_a();
        }
    });
}
