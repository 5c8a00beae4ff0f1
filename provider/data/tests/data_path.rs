// SPDX-License-Identifier: GPL-2.0
//! What a program can observe of posting and polling.

mod support;

use std::collections::VecDeque;
use std::sync::Arc;

use qpair_abi::entry::{cqe_flags, opcode, send_flags, Cqe, RecvWqe, SendWqe, Sge};
use qpair_abi::entry::{BLOCK_WORDS, OWNER};
use qpair_abi::{doorbell, Number};
use qpair_queue::producer::Rows;
use qpair_queue::storage::Storage;
use qpair_testkit::Rng;
use qpair_verbs::cq::{Cq, CqParts};
use qpair_verbs::list::{List, SendParts};
use qpair_verbs::qp::{Qp, QpParts};
use qpair_verbs::request::{Payload, Refusal, Request};
use qpair_verbs::template::Templates;
use support::{send, usable, Asked, Bench, QPN};

fn ids(bench: &Bench) -> Vec<u64> {
    bench
        .poll(100)
        .iter()
        .map(|found| found.cqe.wr_id)
        .collect()
}

#[test]
fn a_list_is_submitted_by_one_doorbell() {
    let mut bench = Bench::new(Asked::default());
    bench.post(&[(1, true), (2, false), (3, true)]).unwrap();
    assert_eq!(bench.doorbell(doorbell::SQ), 3);
    assert_eq!(bench.execute(9), 3);
    let found = bench.poll(9);
    assert_eq!(found.len(), 2, "the second is not signaled");
    assert_eq!((found[0].cqe.wr_id, found[0].qpn), (1, QPN));
    assert_eq!(found[1].cqe.wr_id, 3);
    assert!(bench.poll(9).is_empty());
}

#[test]
fn completions_of_one_kind_are_reported_alike() {
    let mut bench = Bench::new(Asked::default());
    bench.post(&[(1, true), (2, true)]).unwrap();
    bench.post_recv(3).unwrap();
    assert_eq!((bench.execute(9), bench.receive(9)), (2, 1));
    let mut found = [(0, false); 4];
    let count = bench.cq.poll(&mut found, |place, completion, is_alike| {
        *place = (completion.cqe.wr_id, is_alike);
    });
    assert_eq!(found[..count], [(1, false), (2, true), (3, false)]);
}

#[test]
fn receives_complete_in_their_own_cq() {
    let bench = Bench::new(Asked::default());
    let (number, entries) = (Number::new(6, 1), 4);
    let ring = bench.memory(entries, Cqe::BYTES);
    let cq = Cq::new(CqParts {
        number,
        ring,
        depth: entries,
        usable: entries,
        doorbells: bench.parts.doorbells,
    });
    let cq = Arc::new(cq.unwrap());
    let parts = QpParts {
        number,
        ..bench.parts
    };
    let qp = Qp::new(parts, bench.cq.clone(), cq.clone()).unwrap();
    qp.permit(true, true);
    qp.post_recv(|receives| receives.put(1, &[])).unwrap();
    let mut cqe = Cqe {
        wr_id: 1,
        qp: number,
        index: 1,
        opcode: opcode::RECV,
        flags: cqe_flags::RECV,
        ..Cqe::default()
    }
    .encode();
    cqe[Cqe::WORDS - 1] |= OWNER;
    ring.store_all(0, &cqe);
    let mut found = [0; 2];
    let count = cq.poll(&mut found, |id, completion, _| *id = completion.cqe.wr_id);
    assert_eq!(found[..count], [1]);
}

#[test]
fn all_sges_of_a_receive_are_posted() {
    const SGES: usize = 7;
    const WORDS: usize = RecvWqe::WORDS + SGES * Sge::WORDS;
    let bench = Bench::new(Asked {
        recvs: 1 + SGES as u32,
        sges: SGES as u32,
        ..Asked::default()
    });
    let sge = |i| Sge {
        addr: 0x1000 * i,
        bytes: 5,
        lkey: 6,
    };
    for count in 0..=SGES {
        let sges: Vec<_> = (1..=count as u64).map(sge).collect();
        bench.qp.post_recv(|row| row.put(9, &sges)).unwrap();
        let words: [u64; WORDS] = bench.parts.rq.load_all(count * WORDS);
        let posted = words[RecvWqe::WORDS..].chunks_exact(Sge::WORDS);
        let expected = sges.iter().map(Sge::encode);
        assert!(posted.take(count).eq(expected), "{count} SGEs: {words:x?}");
    }
}

#[test]
fn a_refused_request_ends_a_list_and_those_before_it_are_posted() {
    let bench = Bench::new(Asked::default());
    let posted = bench.post_sends(|sends| {
        for id in 1..3 {
            // SAFETY: No inline data.
            unsafe { sends.put(send(id, true), Payload::Gather(&[]))? };
        }
        Err(Refusal::Unsupported)
    });
    assert_eq!(posted, Err(Refusal::Unsupported));
    assert_eq!(bench.doorbell(doorbell::SQ), 2);
}

#[test]
fn a_common_form_is_the_same_request() {
    let mut bench = Bench::new(Asked::default());
    let made = |operation: u32, flags: u32| Request {
        opcode: operation as u8,
        flags: flags as u8,
        ..Request::default()
    };
    let known = 1..6;
    let templates = Templates::new(SendWqe::WORDS, |operation, flags| {
        known.contains(&operation).then(|| made(operation, flags))
    });
    assert!(templates.get(8, 0).is_none() && templates.get(1, 8).is_none());
    assert!(templates.get(0, 0).is_none(), "not a known one");
    let all = Templates::new(SendWqe::WORDS, |operation, flags| {
        Some(made(operation, flags))
    });
    assert!(all.get(7, 0).is_some() && all.get(8, 0).is_none());
    let sge = Sge {
        addr: 0x1234_5678_9abc,
        bytes: 77,
        lkey: u32::MAX,
    };
    let (wr_id, imm, remote_addr, rkey) = (u64::MAX, 0x8765_4321, u64::MAX - 1, 0xfedc_ba98);
    for (operation, flags) in known.flat_map(|it| (0..8).map(move |flags| (it, flags))) {
        let request = made(operation, flags);
        let has_imm = matches!(request.opcode, opcode::SEND_IMM | opcode::WRITE_IMM);
        let has_remote = request.opcode >= opcode::WRITE;
        let whole = Request {
            wr_id,
            imm: if has_imm { imm } else { 0 },
            remote_addr: if has_remote { remote_addr } else { 0 },
            rkey: if has_remote { rkey } else { 0 },
            ..request
        };
        let template = templates.get(operation, flags).unwrap();
        assert_eq!(
            (template.has_remote(), template.has_imm()),
            (has_remote, has_imm)
        );
        let (own, remote) = ((wr_id, imm), (remote_addr, rkey));
        let common = |list: &mut List<'_>| {
            let mut row = list.row(template);
            let signaled = flags & u32::from(send_flags::SIGNALED) != 0;
            assert_eq!(template.is_signaled(), signaled);
            match (has_remote, has_imm) {
                (false, false) if signaled => row.put::<false, false, true>(own, remote, &sge),
                (true, false) if signaled => row.put::<true, false, true>(own, remote, &sge),
                (false, false) => row.put::<false, false, false>(own, remote, &sge),
                (false, true) => row.put::<false, true, false>(own, remote, &sge),
                (true, false) => row.put::<true, false, false>(own, remote, &sge),
                (true, true) => row.put::<true, true, false>(own, remote, &sge),
            }
        };
        bench.qp.post_send(common).unwrap();
        bench.put(Payload::Gather(&[sge]), whole).unwrap();
        // Of sends that are not signaled, so that there is room for the next.
        bench.put(Payload::Gather(&[]), send(0, true)).unwrap();
        assert_eq!(bench.execute(9), 3);
        let [first, second] = [0, 0].map(|at| bench.sent.remove(at).unwrap());
        assert_eq!(
            (first.head, first.body),
            (second.head, second.body),
            "{whole:?}"
        );
        bench.sent.clear();
        ids(&bench);
    }
}

#[test]
fn a_list_has_the_forms_of_its_queue_pair() {
    let bench = Bench::new(Asked::default());
    let templates = Templates::new(SendWqe::WORDS, |_, _| Some(Request::default()));
    let parts = QpParts {
        number: Number::new(7, 1),
        sends: SendParts {
            templates,
            ..bench.parts.sends
        },
        ..bench.parts
    };
    let qp = Qp::new(parts, bench.cq.clone(), bench.cq.clone()).unwrap();
    qp.permit(true, true);
    for (qp, has_forms) in [(&bench.qp, false), (&qp, true)] {
        let posted = qp.post_send(|list| {
            assert_eq!(list.template([1, 0]).is_some(), has_forms);
            Ok(())
        });
        posted.unwrap();
    }
}

#[test]
fn receives_of_a_row_are_the_same_receives() {
    for sges in [1, 3, 4] {
        let asked = Asked {
            recvs: 5,
            sges,
            ..Asked::default()
        };
        let mut bench = Bench::new(asked);
        let sge = Sge {
            addr: 0x1234_5678_9abc,
            bytes: 77,
            lkey: u32::MAX,
        };
        let post = |ids: &[u64]| {
            bench.qp.post_recv(|receives| {
                let mut row = receives.row()?;
                ids.iter().try_for_each(|id| row.put(*id, &sge))
            })
        };
        assert_eq!(post(&[1, 2]), Ok(()));
        let whole = bench.qp.post_recv(|receives| receives.put(3, &[sge]));
        assert_eq!(whole, Ok(()));
        assert_eq!(post(&[4, 5, 6]), Err(Refusal::Full));
        assert_eq!(
            bench.doorbell(doorbell::RQ),
            5,
            "those before it are posted"
        );
        let words = BLOCK_WORDS << bench.parts.rq_stride;
        let found: Vec<[u64; 4]> = (0..5)
            .map(|at| bench.parts.rq.load_all(at * words))
            .collect();
        for (id, [first, wr_id, addr, bytes]) in (1..).zip(&found) {
            assert_eq!((*first, *wr_id), (1, id));
            assert_eq!([*addr, *bytes], found[2][2..], "as of any number of SGEs");
        }
        assert_eq!(bench.receive(9), 5);
        assert_eq!(ids(&bench), [1, 2, 3, 4, 5]);
        bench.qp.permit(true, false);
        let refused = bench.qp.post_recv(|_| panic!("the state permits none"));
        assert_eq!(refused, Err(Refusal::State));
    }
    let bench = Bench::new(Asked {
        sges: 0,
        ..Asked::default()
    });
    let refused = bench.qp.post_recv(|receives| receives.row().map(|_| ()));
    assert_eq!(refused, Err(Refusal::Invalid));
}

#[test]
fn data_are_sges_or_bytes_in_the_request() {
    let asked = Asked {
        sges: 5,
        inline: 100,
        ..Asked::default()
    };
    let mut bench = Bench::new(asked);
    let sges: Vec<_> = (0..6)
        .map(|i| Sge {
            addr: 0x1000 + i,
            bytes: 10,
            lkey: 7,
        })
        .collect();
    let text: Vec<u8> = (0..101).collect();
    let inline = |from: usize, bytes: usize| Sge {
        addr: text[from..].as_ptr() as u64,
        bytes: bytes as u32,
        lkey: 0,
    };
    for count in [0, 1, 2, 3, 5] {
        bench
            .put(Payload::Gather(&sges[..count]), send(0, false))
            .unwrap();
        // So that there is room for the next.
        bench.put(Payload::Gather(&[]), send(0, true)).unwrap();
        assert_eq!(bench.execute(2), 2);
        assert_eq!(bench.poll(9).len(), 1);
        let sent = bench.sent.pop_front().unwrap();
        assert_eq!(usize::from(sent.head.sges), count);
        for (words, expected) in sent.body.chunks(Sge::WORDS).zip(&sges[..count]) {
            let sge = Sge::decode(&[words[0], words[1]]);
            assert_eq!((sge.addr, sge.bytes, sge.lkey), (expected.addr, 10, 7));
        }
        bench.sent.clear();
    }
    let refused = bench.put(Payload::Gather(&sges), send(0, true));
    assert_eq!(refused, Err(Refusal::Invalid), "too many SGEs");
    let long = [inline(0, 60), inline(60, 41)];
    let refused = bench.put(Payload::Inline(&long), send(0, true));
    assert_eq!(refused, Err(Refusal::Invalid), "too many bytes");
    let read = Request {
        opcode: opcode::READ,
        ..send(0, true)
    };
    let refused = bench.put(Payload::Inline(&[inline(0, 1)]), read);
    assert_eq!(refused, Err(Refusal::Invalid), "a READ has no data");

    let gathered = [inline(0, 33), inline(33, 0), inline(33, 67)];
    bench
        .put(Payload::Inline(&gathered), send(0, true))
        .unwrap();
    assert_eq!(bench.execute(1), 1);
    let sent = bench.sent.pop_front().unwrap();
    assert_eq!((sent.head.inline_bytes, sent.head.sges), (100, 0));
    assert_eq!(sent.head.flags, send_flags::SIGNALED | send_flags::INLINE);
    let bytes: Vec<u8> = sent
        .body
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    assert_eq!(bytes[..100], text[..100]);
}

#[test]
fn a_state_refuses_posts() {
    let bench = Bench::new(Asked::default());
    bench.qp.permit(false, true);
    assert_eq!(bench.post(&[(1, true)]), Err(Refusal::State));
    assert_eq!(bench.post_recv(1), Ok(()));
    bench.qp.permit(true, false);
    assert_eq!(bench.post_recv(1), Err(Refusal::State));
    assert_eq!(bench.post(&[(1, true)]), Ok(()));
}

#[test]
fn no_sends_are_no_sends() {
    let bench = Bench::new(Asked {
        sends: 0,
        ..Asked::default()
    });
    assert_eq!(bench.post(&[(1, true)]), Err(Refusal::Full));
}

#[test]
fn no_receives_are_no_receives() {
    let bench = Bench::new(Asked {
        recvs: 0,
        ..Asked::default()
    });
    assert_eq!(bench.post_recv(1), Err(Refusal::Full));
}

/// A program that keeps to what it asked for is never refused, never overruns a CQ of just that
/// size, and sees each signaled request, in order, and no other.
#[test]
fn what_was_asked_is_always_there() {
    for seed in 0..300 {
        let rng = &mut Rng::new(seed);
        let (sends, recvs) = (1 + rng.below32(20), 1 + rng.below32(20));
        // What a CQ has besides what was asked is the program's, too.
        let least = 1 + rng.below32(sends + recvs);
        let cqe = (least..=sends + recvs).find(|&cqe| usable(cqe) >= sends + recvs);
        let mut bench = Bench::new(Asked {
            cqe: cqe.unwrap_or(sends + recvs),
            sends,
            recvs,
            sges: 1 + rng.below32(14),
            sq_sig_all: rng.one_in(4),
            ..Asked::default()
        });
        let always = bench.parts.sends.sq_sig_all;
        let sges = vec![Sge::default(); bench.parts.sends.limits.max_send_sge as usize];
        // Outstanding sends: a completion ends it and all before it.
        let mut posted: VecDeque<(u64, bool)> = VecDeque::new();
        let (mut silent, mut receives, mut next) = (0, 0, 0u64);
        for _ in 0..400 {
            let series = rng.one_in(3);
            let room = sends - posted.len() as u32;
            let count = rng.below32(room + 1);
            let mut requests = vec![];
            for _ in 0..count {
                // At least one of each `sends` is signaled.
                let signaled = rng.one_in(3) || silent + 1 == sends;
                silent = if signaled || always { 0 } else { silent + 1 };
                requests.push((next, signaled));
                posted.push_back((next, signaled || always));
                next += 1;
            }
            let sges = &sges[..rng.below32(sges.len() as u32 + 1) as usize];
            if series {
                bench.qp.start();
                for &(id, signaled) in &requests {
                    // SAFETY: Started by this thread.
                    unsafe {
                        bench.qp.begin(send(id, signaled));
                        bench.qp.data(Payload::Gather(sges));
                    }
                }
                // SAFETY: Started by this thread.
                assert_eq!(unsafe { bench.qp.complete() }, Ok(()), "seed {seed}");
            } else {
                let result = bench.post_with(&requests, sges);
                assert_eq!(result, Ok(()), "seed {seed}");
            }
            for _ in 0..rng.below32(recvs - receives + 1) {
                assert_eq!(bench.post_recv(0), Ok(()), "seed {seed}");
                receives += 1;
            }
            bench.execute(rng.below32(sends + 1));
            bench.receive(rng.below32(recvs + 1));
            let found = bench.poll(1 + rng.below32(8) as usize);
            for completion in found {
                if completion.cqe.opcode == opcode::RECV {
                    receives -= 1;
                    continue;
                }
                let id = completion.cqe.wr_id;
                while posted.front().is_some_and(|&(other, _)| other < id) {
                    let (_, signaled) = posted.pop_front().unwrap();
                    assert!(!signaled, "seed {seed}: a completion is missing");
                }
                assert_eq!(posted.pop_front(), Some((id, true)), "seed {seed}");
            }
        }
    }
}

#[test]
fn a_series_is_posted_as_a_whole_or_not_at_all() {
    let mut bench = Bench::new(Asked::default());
    let too_many = [Sge::default(); 2];
    // SAFETY: This thread starts and ends each series.
    unsafe {
        bench.qp.start();
        bench.qp.begin(send(1, true));
        bench.qp.data(Payload::Gather(&[]));
        bench.qp.begin(send(2, true));
        bench.qp.data(Payload::Gather(&too_many));
        bench.qp.begin(send(3, true));
        assert_eq!(bench.qp.complete(), Err(Refusal::Invalid));
        assert_eq!(bench.doorbell(doorbell::SQ), 0);
        bench.qp.start();
        bench.qp.begin(send(7, true));
        assert_eq!(bench.qp.complete(), Ok(()));
        assert_eq!(bench.execute(9), 1);
        assert_eq!(ids(&bench), [7]);
        bench.qp.start();
        bench.qp.begin(send(4, true));
        bench.qp.begin(send(4, true));
        bench.qp.abort();
        bench.qp.start();
        bench.qp.data(Payload::Gather(&[]));
        assert_eq!(
            bench.qp.complete(),
            Err(Refusal::Invalid),
            "data of nothing"
        );
        // Without data, the second at the end.
        bench.qp.start();
        bench.qp.begin(send(5, true));
        bench.qp.begin(send(6, true));
        assert_eq!(bench.qp.complete(), Ok(()));
    }
    assert_eq!(bench.execute(9), 2);
    assert_eq!(ids(&bench), [5, 6]);
    bench.qp.permit(false, true);
    bench.qp.start();
    // SAFETY: As above.
    assert_eq!(unsafe { bench.qp.complete() }, Err(Refusal::State));
}

#[test]
fn a_reset_loses_what_was_before() {
    let mut bench = Bench::new(Asked::default());
    for round in 0..20 {
        bench.post(&[(round, true), (round, true)]).unwrap();
        bench.post_recv(round).unwrap();
        bench.execute(1);
        bench.receive(1);
        if round % 3 == 0 {
            assert_eq!(ids(&bench).len(), 2);
        }
        bench.reset();
        // Their indices are those of the entries from before the reset.
        bench.post(&[(100, true), (100, true)]).unwrap();
        bench.post_recv(100).unwrap();
        assert_eq!(ids(&bench), [], "of before the reset");
        bench.flush();
        let found = bench.poll(9);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].cqe.status, 5);
        bench.reset();
    }
}

#[test]
fn a_queue_pair_that_is_gone_has_no_completions() {
    let mut bench = Bench::new(Asked::default());
    bench.post(&[(1, true), (2, true)]).unwrap();
    bench.execute(2);
    bench.destroy();
    assert_eq!(ids(&bench), []);
    // Until then the device does not give its index out again.
    assert_eq!(bench.doorbell(doorbell::CQ_HEAD), 2);
}

#[test]
fn what_was_polled_of_a_queue_pair_that_is_gone_is_published() {
    let mut bench = Bench::new(Asked::default());
    bench.post(&[(1, true)]).unwrap();
    bench.execute(1);
    assert_eq!(ids(&bench), [1]);
    assert_eq!(bench.doorbell(doorbell::CQ_HEAD), 0);
    bench.destroy();
    assert_eq!(bench.doorbell(doorbell::CQ_HEAD), 1);
}

#[test]
fn a_poll_step_by_step() {
    let mut bench = Bench::new(Asked::default());
    assert!(!bench.cq.start());
    for round in 0..100 {
        for id in 0..4 {
            bench.post_recv(round + id).unwrap();
        }
        assert_eq!(bench.receive(4), 4);
        assert!(bench.cq.start());
        for id in 0..4 {
            // SAFETY: Started by this thread.
            let found = unsafe { bench.cq.current() };
            assert_eq!((found.cqe.wr_id, found.qpn), (round + id, QPN));
            // A program posts again while it polls.
            bench.post_recv(round + id).unwrap();
            // SAFETY: As above.
            assert_eq!(unsafe { bench.cq.next() }, id < 3);
        }
        // SAFETY: As above.
        unsafe { bench.cq.end() };
        assert_eq!(bench.receive(9), 4);
        assert_eq!(ids(&bench).len(), 4);
    }
}

#[test]
fn several_threads_poll_each_completion_once() {
    let mut bench = Bench::new(Asked {
        cqe: 64,
        sends: 64,
        ..Asked::default()
    });
    for _ in 0..50 {
        let list: Vec<_> = (0..64).map(|id| (id, true)).collect();
        bench.post(&list).unwrap();
        assert_eq!(bench.execute(64), 64);
        let mut found: Vec<u64> = std::thread::scope(|scope| {
            let poll = || {
                let mut mine = vec![];
                loop {
                    let some = bench.poll(3);
                    if some.is_empty() {
                        return mine;
                    }
                    mine.extend(some.iter().map(|found| found.cqe.wr_id));
                }
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(poll)).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        found.sort_unstable();
        assert!(found.iter().copied().eq(0..64));
    }
}
