// SPDX-License-Identifier: GPL-2.0
//! Uses of fast registration memory regions: lists of SGEs, each service, receives of an SRQ.

use super::checks;
use super::frmr::bind_error;
use super::frmr::block_pair;
use super::frmr::memory;
use super::frmr::pair;
use super::frmr::wqe_of;
use super::frmr::PAGE;
use super::frmr::VA;
use crate::harness::*;
use qpair_abi::command::*;
use qpair_abi::counters::Counter;
use qpair_abi::entry::opcode as work;
use qpair_abi::entry::*;
use qpair_abi::status::Detail;
use qpair_abi::status::Status;

checks![
    no_window_is_bound_to_an_frmr,
    an_frmr_beside_a_region,
    an_frmr_that_only_peers_may_write,
    frmrs_of_unreliable_connections,
    frmrs_of_shared_receives,
    frmrs_of_datagrams,
];

fn no_window_is_bound_to_an_frmr() {
    let (mut p, frmr, key, _) = block_pair(3);
    let before = p.m.query_frmr(frmr);
    for kind in [mw_type::ONE, mw_type::TWO] {
        let window = p.m.mw(p.pd_b, kind).1;
        let wqe = BindWqe {
            addr: VA,
            region: key,
            ..Pair::bind(window, &p.mr_b, 0, 64)
        };
        assert_eq!(p.bind_at_b(wqe), Err(bind_error(Detail::Key)));
        assert_eq!(p.m.query_frmr(frmr), before);
        again(&mut p);
    }
}

/// The first bytes of an FRMR.
fn first(key: u32, bytes: u32) -> Sge {
    Sge {
        addr: VA,
        bytes,
        lkey: key,
    }
}

/// A request of the second queue pair to the region of the first.
fn back(p: &Pair, opcode: u8) -> SendWqe {
    SendWqe {
        remote_addr: p.mr_a.va,
        rkey: p.mr_a.key.raw(),
        ..wqe_of(opcode)
    }
}

fn an_frmr_beside_a_region() {
    for registered in [true, false] {
        let (mut p, _, key, at) = block_pair(3);
        if !registered {
            assert_eq!(p.invalidate(key), DONE);
        }
        let list = [p.mr_b.sge(0, 8), first(key, 8)];
        // A list that is sent is checked first.
        p.m.memory.set_word(p.mr_b.addr, 5);
        p.m.memory.set_word(at, 6);
        let wqe = back(&p, work::WRITE);
        p.m.send(&mut p.b, wqe, &list);
        let got = (outcome(&p.done_b()[0]), p.m.memory.words(p.mr_a.addr));
        let expected = match registered {
            true => (DONE, [5, 6]),
            false => ((Status::LocalProtection, Detail::Key), [0, 0]),
        };
        assert_eq!(got, expected);
        again(&mut p);
        // One that is filled, when it comes to it.
        p.m.memory.set_words(p.mr_a.addr, &[7, 8]);
        p.recv(5, &list);
        p.send(wqe_of(work::SEND), &[p.mr_a.sge(0, 16)]);
        let got = (outcome(&p.done_a()[0]), outcome(&p.done_b()[0]));
        let words = [p.m.memory.word(p.mr_b.addr), p.m.memory.word(at)];
        if registered {
            assert_eq!((got, words), ((DONE, DONE), [7, 8]));
        } else {
            assert_eq!((got, words), (receive_fails(Detail::Key), [7, 6]));
        }
    }
}

/// The outcome of a SEND whose receive names memory that may not be filled.
fn receive_fails(detail: Detail) -> ((Status, Detail), (Status, Detail)) {
    (
        (Status::RemoteOperation, detail),
        (Status::LocalProtection, detail),
    )
}

fn an_frmr_that_only_peers_may_write() {
    let (mut p, _, key) = pair();
    let at = memory(&p.m);
    let wqe = RegWqe {
        access: access::REMOTE.into(),
        ..registration(key, VA, block(at, PAGE))
    };
    assert_eq!(p.register(wqe), DONE);
    p.m.memory.set_word(p.mr_a.addr, 5);
    let own = [first(key, 8)];
    let atomic = AtomicWqe {
        remote_addr: p.mr_a.va,
        rkey: p.mr_a.key.raw(),
        ..p.atomic(work::FETCH_ADD, 0, 2, 0)
    };
    for words in [
        wqe_words(back(&p, work::READ), &own),
        atomic_words(atomic, &own),
    ] {
        p.m.post_words(&mut p.b, &words);
        p.m.ring_sq(&p.b);
        p.m.settle();
        let got = outcome(&p.done_b()[0]);
        assert_eq!(got, (Status::LocalProtection, Detail::Rights));
        again(&mut p);
    }
    p.recv(5, &own);
    p.send(wqe_of(work::SEND), &[p.mr_a.sge(0, 8)]);
    let got = (outcome(&p.done_a()[0]), outcome(&p.done_b()[0]));
    assert_eq!(got, receive_fails(Detail::Rights));
    assert_eq!(p.m.memory.word(at), 0);
    again(&mut p);
    let wqe = back(&p, work::WRITE);
    p.m.send(&mut p.b, wqe, &own);
    assert_eq!(outcome(&p.done_b()[0]), DONE);
}

fn frmrs_of_unreliable_connections() {
    for registered in [true, false] {
        let mut p = Pair::with(|a, b| {
            (a.service, b.service) = (service::UC, service::UC);
        });
        let at = memory(&p.m);
        let key = p.m.registered(p.pd_b, VA, block(at, PAGE));
        let (frmr, _) = frmr_of(key).unwrap();
        if !registered {
            p.m.destroy(kind::FRMR, frmr).unwrap();
        }
        let moved = |word| if registered { word } else { 0 };
        let own = |done| match registered {
            true => DONE,
            false => done,
        };
        // The sender does not learn of a key of its peer.
        p.m.memory.set_word(p.mr_a.addr, 5);
        assert_eq!(try_key(&mut p, work::WRITE, key, VA), DONE);
        assert_eq!(p.m.memory.word(at), moved(5));
        let dropped = p.m.f.counter(Counter::Dropped);
        assert_eq!(dropped, u64::from(!registered));
        p.m.memory.set_word(at, 6);
        let wqe = back(&p, work::WRITE);
        p.m.send(&mut p.b, wqe, &[first(key, 8)]);
        let protection = (Status::LocalProtection, Detail::Key);
        assert_eq!(outcome(&p.done_b()[0]), own(protection));
        again(&mut p);
        p.m.memory.set_word(at, 0);
        p.m.memory.set_word(p.mr_a.addr, 7);
        p.recv(5, &[first(key, 8)]);
        p.send(wqe_of(work::SEND), &[p.mr_a.sge(0, 8)]);
        assert_eq!(outcome(&p.done_a()[0]), DONE);
        assert_eq!(outcome(&p.done_b()[0]), own(protection));
        assert_eq!(p.m.memory.word(at), moved(7));
    }
}

/// A receive of an SRQ has the FRMRs of the SRQ's domain.
fn frmrs_of_shared_receives() {
    for (of_srq, registered, detail) in [
        (true, true, Detail::None),
        (true, false, Detail::Key),
        (false, true, Detail::Domain),
    ] {
        let mut c = Crowd::new(1);
        let pd = match of_srq {
            true => c.m.query_srq(c.srq.number).pd,
            false => c.pd,
        };
        let at = memory(&c.m);
        let key = c.m.registered(pd, VA, block(at, PAGE));
        let (frmr, _) = frmr_of(key).unwrap();
        if !registered {
            c.m.destroy(kind::FRMR, frmr).unwrap();
        }
        c.m.memory.set_word(c.from.addr, 9);
        c.m.post_shared(&mut c.srq, 5, &[first(key, 8)]);
        c.m.ring_srq(&c.srq);
        c.send(0, 8);
        let got = (outcome(&c.sent()[0]), outcome(&c.received(0)[0]));
        if detail == Detail::None {
            assert_eq!((got, c.m.memory.word(at)), ((DONE, DONE), 9));
        } else {
            assert_eq!((got, c.m.memory.word(at)), (receive_fails(detail), 0));
        }
    }
}

fn frmrs_of_datagrams() {
    let mut port = Port::new(2);
    let (at, there) = (memory(&port.m), memory(&port.m));
    let mut key = |qp: usize, at| {
        let pd = port.m.query_qp(port.qps[qp].number).pd;
        port.m.registered(pd, VA, block(at, PAGE))
    };
    let (from, to) = (key(0, at), key(1, there));
    port.m.memory.set_word(at, 77);
    port.recv(1, 5, &[first(to, 104)]);
    port.send(0, port.to(1, 1), &[first(from, 64)]);
    assert_eq!(outcome(&port.done(0)[0]), DONE);
    assert_eq!(outcome(&port.done(1)[0]), DONE);
    assert_eq!(port.m.memory.word(there + GRH as u64), 77);
}
