// SPDX-License-Identifier: GPL-2.0
//! The library's data path against the device model, in one process: what it moves, full queues,
//! events.

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use qpair::{
    Channel, Counter, Cq, CqOptions, Done, Error, Memory, Mr, Pages, Pd, PostError, Qp, QpOptions,
    Receive, Service, Sge, Status, Wants, WorkRequest,
};
use qpair_model::Config;
use rustix::io::Errno;
use support::bench::{bench, connect, poll};
use support::{machine, machine_of, Fake};

/// Bytes that tell where they come from.
fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 256) as u8 ^ seed).collect()
}

fn read(mr: &Mr, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    mr.read(offset, &mut bytes);
    bytes
}

#[test]
fn counters_count_from_an_earlier_time() {
    let (_fake, context) = machine();
    let b = bench(context);
    b.far.post_recv(&[Receive::new(1, &[])]).unwrap();
    let before = b.context.counters().unwrap();
    let send = WorkRequest::send_inline(2, b"").signaled();
    b.near.post_send(&[send]).unwrap();
    let since = b.context.counters().unwrap().since(&before);
    let counted = [Counter::SendWqes, Counter::Cqes, Counter::RqDoorbells];
    assert_eq!(counted.map(|counter| since.get(counter)), [1, 2, 0]);
    let again = since.iter().find(|(counter, _)| *counter == Counter::Cqes);
    assert_eq!(again, Some((Counter::Cqes, 2)));
}

/// READs, atomics and NOPs carry no immediate data, and stay what they are.
#[test]
fn only_sends_and_writes_carry_immediate_data() {
    let (_fake, context) = machine();
    let b = bench(context);
    b.mr.write(0, b"read");
    let here = [b.mr.sge(64, 4)];
    let fetch = WorkRequest::read(1, &here, b.mr.remote(0)).signaled();
    b.near.post_send(&[fetch.imm(9)]).unwrap();
    let came = poll(&b.cq);
    assert_eq!((came.len(), came[0].done()), (1, Done::Read));
    assert_eq!((came[0].imm(), read(&b.mr, 64, 4)), (None, b"read".into()));
}

#[test]
fn every_operation_moves_its_bytes() {
    let (_fake, context) = machine();
    let b = bench(context);
    let (from, to) = (0, 1 << 15);
    let data = pattern(1, 9000);
    b.mr.write(from, &data);
    let here = [b.mr.sge(from, 9000)];
    let there = [b.mr.sge(to, 9000)];

    let check = |what: &str, len: usize| {
        assert_eq!(read(&b.mr, to, len), data[..len], "{what}");
        b.mr.write(to, &vec![0; 9000]);
    };
    let expect = |done: &[(u64, Done, bool, Option<u32>)]| {
        let mut came: Vec<_> = poll(&b.cq)
            .iter()
            .map(|c| (c.check().unwrap().id(), c.done(), c.is_receive(), c.imm()))
            .collect();
        came.sort_by_key(|c| c.0);
        assert_eq!(came, done);
    };

    b.far.post_recv(&[Receive::new(1, &there)]).unwrap();
    let send = WorkRequest::send(2, &here).signaled();
    b.near.post_send(&[send]).unwrap();
    expect(&[(1, Done::Receive, true, None), (2, Done::Send, false, None)]);
    check("send", 9000);

    b.far.post_recv(&[Receive::new(3, &there)]).unwrap();
    b.near.post_send(&[send.imm(0xabcd)]).unwrap();
    expect(&[
        (2, Done::Send, false, None),
        (3, Done::Receive, true, Some(0xabcd)),
    ]);
    check("send with immediate", 9000);

    let write = WorkRequest::write(4, &here, b.mr.remote(to)).signaled();
    b.near.post_send(&[write]).unwrap();
    expect(&[(4, Done::Write, false, None)]);
    check("write", 9000);

    b.far.post_recv(&[Receive::new(5, &[])]).unwrap();
    b.near.post_send(&[write.imm(7)]).unwrap();
    expect(&[
        (4, Done::Write, false, None),
        (5, Done::ReceiveWrite, true, Some(7)),
    ]);
    check("write with immediate", 9000);

    let fetch = WorkRequest::read(6, &there, b.mr.remote(from)).signaled();
    b.near.post_send(&[fetch]).unwrap();
    expect(&[(6, Done::Read, false, None)]);
    check("read", 9000);

    // Inline data of every length that fits, which must not be needed after the post.
    for len in 0..=b.context.attributes().max_inline as usize {
        let mut inline = data[..len].to_vec();
        b.far.post_recv(&[Receive::new(7, &there)]).unwrap();
        b.near
            .queue_send(&WorkRequest::send_inline(8, &inline).signaled())
            .unwrap();
        inline.fill(0xee);
        b.near.ring();
        let came = poll(&b.cq);
        assert_eq!(came.len(), 2, "{len} inline bytes");
        assert!(came.iter().all(|c| c.check().is_ok()));
        assert_eq!(
            came.iter().find(|c| c.is_receive()).unwrap().bytes(),
            len as u32
        );
        check("inline", len);
    }

    // Pieces of all sizes, gathered into other pieces.
    let sges = |at: usize, sizes: &[usize]| -> Vec<Sge> {
        let mut at = at;
        let mut sge = |&len: &usize| {
            at += len;
            b.mr.sge(at - len, len)
        };
        sizes.iter().map(&mut sge).collect()
    };
    let out = sges(from, &[1, 0, 700, 63, 64, 4097, 5]);
    let into = sges(to, &[3000, 1, 0, 1929, 0, 0, 0]);
    b.far.post_recv(&[Receive::new(9, &into)]).unwrap();
    b.near
        .post_send(&[WorkRequest::send(10, &out).signaled()])
        .unwrap();
    expect(&[
        (9, Done::Receive, true, None),
        (10, Done::Send, false, None),
    ]);
    check("pieces", 4930);

    b.near
        .post_send(&[WorkRequest::nop(11).signaled()])
        .unwrap();
    expect(&[(11, Done::Nop, false, None)]);
    assert_eq!(b.cq.stale(), 0);
}

/// A completion as text has the request, and why it failed.
#[test]
fn a_failed_request_is_shown_with_its_cause() {
    let (_fake, context) = machine();
    let b = bench(context);
    let here = [b.mr.sge(0, 8)];
    let beyond = b.mr.remote(1 << 16);
    b.near
        .post_send(&[WorkRequest::write(3, &here, beyond)])
        .unwrap();
    let came = poll(&b.cq);
    assert_eq!((came.len(), came[0].status()), (1, Status::RemoteAccess));
    let shown = format!("{:?}", came[0]);
    for part in [
        "id: 3,".to_string(),
        format!("qp: {:?}", b.near.number()),
        "status: RemoteAccess, detail: Range".into(),
    ] {
        assert!(shown.contains(&part), "{part} is not in {shown}");
    }
}

/// The mappings of this process that ask for transparent huge pages.
fn large_mappings() -> usize {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let flags = maps
        .lines()
        .filter_map(|line| line.strip_prefix("VmFlags:"));
    flags.filter(|flags| flags.contains(" hg")).count()
}

/// The flags of the mapping that has an address.
fn mapping_flags(address: u64) -> String {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let has_it = |line: &&str| {
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let number = |hex| u64::from_str_radix(hex, 16).ok();
        let range = range.and_then(|(from, to)| Some(number(from)?..number(to)?));
        range.is_some_and(|range| range.contains(&address))
    };
    let mut lines = maps.lines().skip_while(|line| !has_it(line));
    let flags = lines.find_map(|line| line.strip_prefix("VmFlags:"));
    flags.unwrap().to_owned()
}

#[test]
fn huge_pages_are_those_that_the_system_has_reserved() {
    match Memory::with_pages(1, Pages::Huge) {
        Ok(memory) => assert!(mapping_flags(memory.address()).contains(" ht")),
        Err(error) => {
            assert!(error.to_string().contains("vm.nr_hugepages"), "{error}");
            let supports = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists();
            assert!(!supports || error.errno() == Some(Errno::NOMEM), "{error}");
        }
    }
}

#[test]
fn objects_have_the_sizes_that_they_report() {
    let (_fake, context) = machine();
    let b = bench(context);
    assert_eq!(b.cq.depth(), 64);
    assert_eq!(b.mr.addr() + 100, b.mr.remote(100).addr);
    let keys = (b.mr.lkey(), b.mr.rkey());
    assert_eq!(keys, (b.mr.sge(0, 1).lkey, b.mr.remote(0).rkey));
    let room = b.far.recv_room();
    for posted in 0..room {
        assert_eq!(b.far.recv_room(), room - posted);
        b.far.post_recv(&[Receive::new(1, &[])]).unwrap();
    }
    let full = b.far.post_recv(&[Receive::new(1, &[])]);
    assert_eq!((b.far.recv_room(), full.is_err()), (0, true));
}

/// Memory and rings may be in large pages. Rings hold the same entries there, over more than one round.
#[test]
fn memory_and_rings_may_be_in_large_pages() {
    // A kernel without them has ordinary pages.
    let has_large = Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    let is_large = |pages| {
        let memory = Memory::with_pages(1, pages).unwrap();
        mapping_flags(memory.address()).contains(" hg")
    };
    let found = [Pages::Normal, Pages::Large].map(is_large);
    assert_eq!(found, [false, has_large]);
    let (_fake, context) = machine();
    // The count is of the process: no other test of this file may have large pages.
    let before = large_mappings();
    let pd = Pd::new(&context).unwrap();
    let cq = Cq::new(&context, &CqOptions::new(64).pages(Pages::Large)).unwrap();
    let options = QpOptions::new(&cq, &cq).pages(Pages::Large);
    let (near, _far) = connect(&pd, &options, &options);
    assert_eq!(large_mappings() > before, has_large);
    for id in 0..200 {
        near.post_send(&[WorkRequest::nop(id).signaled()]).unwrap();
        let came = poll(&cq);
        assert_eq!((came.len(), came[0].id()), (1, id));
        came[0].check().unwrap();
    }
}

#[test]
fn atomics_change_a_word_and_return_the_old_one() {
    let (_fake, context) = machine();
    let b = bench(context);
    let word = |offset: usize| u64::from_le_bytes(read(&b.mr, offset, 8).try_into().unwrap());
    let (old, remote) = (b.mr.sge(64, 8), b.mr.remote(256));
    b.mr.write(256, &40_u64.to_le_bytes());
    for (request, kind, was, is) in [
        (
            WorkRequest::fetch_add(1, old, remote, 2),
            Done::FetchAdd,
            40,
            42,
        ),
        (
            WorkRequest::fetch_add(1, old, remote, u64::MAX),
            Done::FetchAdd,
            42,
            41,
        ),
        (
            WorkRequest::compare_swap(1, old, remote, 41, 7),
            Done::CompareSwap,
            41,
            7,
        ),
        (
            WorkRequest::compare_swap(1, old, remote, 41, 8),
            Done::CompareSwap,
            7,
            7,
        ),
    ] {
        b.near.post_send(&[request.signaled()]).unwrap();
        let [done] = poll(&b.cq)[..] else {
            panic!("one completion")
        };
        assert_eq!((done.check().unwrap().done(), done.bytes()), (kind, 8));
        assert_eq!((word(64), word(256)), (was, is), "{request:?}");
    }
    // The encoded request is one block, whatever it is queued with.
    let request = WorkRequest::fetch_add(2, old, remote, 1);
    b.near.post_send(&[request; 3]).unwrap();
    b.near.post_send(&[WorkRequest::nop(3).signaled()]).unwrap();
    assert_eq!(poll(&b.cq).len(), 1);
    assert_eq!(word(256), 10);
    // The device refuses a word that is not aligned.
    let remote = b.mr.remote(257);
    let request = WorkRequest::fetch_add(4, old, remote, 1);
    b.near.post_send(&[request]).unwrap();
    assert_eq!(poll(&b.cq)[0].status(), Status::RemoteInvalidRequest);
}

/// Of UC a SEND without a receive is dropped, a READ is refused, and a SEND with one arrives.
#[test]
fn an_unreliable_connection_drops_what_has_no_receive() {
    let (_fake, context) = machine();
    let b = bench(context);
    let cq = Cq::new(&b.context, &CqOptions::new(64)).unwrap();
    let options = QpOptions::new(&cq, &cq).service(Service::Uc);
    let (near, far) = connect(&b.pd, &options, &options);
    let send = WorkRequest::send_inline(1, b"lost").signaled();
    near.post_send(&[send]).unwrap();
    assert!(poll(&cq)[0].check().is_ok());
    let into = [b.mr.sge(0, 64)];
    far.post_recv(&[Receive::new(2, &into)]).unwrap();
    near.post_send(&[WorkRequest::send_inline(3, b"found").signaled()])
        .unwrap();
    assert!(poll(&cq).iter().all(|done| done.check().is_ok()));
    assert_eq!(read(&b.mr, 0, 5), b"found");
    near.post_send(&[WorkRequest::read(4, &into, b.mr.remote(0))])
        .unwrap();
    assert_eq!(poll(&cq)[0].status(), Status::LocalQpOperation);
}

#[test]
fn a_full_queue_refuses_and_nothing_is_overwritten() {
    let (fake, context) = machine();
    let b = bench(context);
    fake.by_hand();
    // Two-block requests: five pieces.
    let piece = [b.mr.sge(0, 1); 5];
    let request = |id| WorkRequest::write(id, &piece, b.mr.remote(100)).signaled();
    let mut next = 0;
    let mut expected = 0;
    for round in 0..200 {
        let refused = loop {
            match b.near.queue_send(&request(next)) {
                Ok(()) => next += 1,
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused, PostError::Full { posted: 0 }, "round {round}");
        assert_eq!(next - expected, 8, "16 blocks hold 8 requests of 2");
        b.near.ring();
        fake.machine().settle();
        for completion in poll(&b.cq) {
            assert_eq!(completion.check().unwrap().id(), expected);
            expected += 1;
        }
        assert_eq!(expected, next, "each is done once, in order");
    }
    // Of several the error says how many went.
    let many: Vec<_> = (0..20).map(|_| request(0)).collect();
    assert_eq!(b.near.post_send(&many), Err(PostError::Full { posted: 8 }));
    // They were submitted all the same; and what is polled makes room in the middle of a call.
    fake.machine().settle();
    assert_eq!(poll(&b.cq).len(), 8);
    let doorbells = |fake: &Fake| fake.machine().function.counter(qpair::Counter::SqDoorbells);
    let before = doorbells(&fake);
    let few = many.iter().take(8);
    b.near.post_sends(few.copied()).unwrap();
    assert_eq!(doorbells(&fake) - before, 1, "one for all");
    let one_too_many = || std::iter::once(request(0));
    assert_eq!(
        b.near.post_sends(one_too_many()),
        Err(PostError::Full { posted: 0 })
    );
    // The lower bound of a filter's length is 0: no slot is freed before the first post, which finds
    // the queue full.
    fake.machine().settle();
    assert_eq!(poll(&b.cq).len(), 8);
    let filtered = many.iter().copied().filter(|_| true);
    assert_eq!(
        b.near.post_sends(filtered),
        Err(PostError::Full { posted: 8 })
    );
    // The receive queue in the same way.
    let receives = [Receive::new(0, &piece); 20];
    assert_eq!(
        b.far.post_recv(&receives),
        Err(PostError::Full { posted: 16 })
    );
    assert_eq!(
        fake.machine().function.counter(qpair::Counter::Violations),
        0
    );
}

#[test]
fn unsignaled_requests_never_wedge_the_queue() {
    let (_fake, context) = machine();
    let b = bench(context);
    let sge = [b.mr.sge(0, 8)];
    let mut completions = 0;
    for id in 0..10_000 {
        let request = WorkRequest::write(id, &sge, b.mr.remote(64));
        if let Err(PostError::Full { .. }) = b.near.post_send(&[request]) {
            let came = poll(&b.cq);
            assert!(!came.is_empty(), "request {id}: full, and nothing comes");
            completions += came.len();
            b.near.post_send(&[request]).unwrap();
        }
    }
    assert!(
        completions < 10_000 / 8,
        "{completions} unexpected completions"
    );
}

/// If so many ask for a completion that the queue needs no other.
#[test]
fn only_signaled_requests_have_a_completion() {
    let (_fake, context) = machine();
    let b = bench(context);
    for id in 0..96 {
        let (nop, signaled) = (WorkRequest::nop(id), id % 3 == 2);
        let request = if signaled { nop.signaled() } else { nop };
        b.near.post_send(&[request]).unwrap();
        assert_eq!(poll(&b.cq).len(), usize::from(signaled), "{id}");
    }
}

/// How often the heads of CQs were published, also of the admin queue's.
fn heads(fake: &Fake) -> u64 {
    let function = &fake.machine().function;
    function.counter(qpair::Counter::CqHeadDoorbells)
}

#[test]
fn the_head_is_published_in_batches() {
    let (fake, context) = machine();
    let b = bench(context);
    let before = heads(&fake);
    for id in 0..640 {
        b.near
            .post_send(&[WorkRequest::nop(id).signaled()])
            .unwrap();
        assert_eq!(poll(&b.cq).len(), 1);
    }
    // A quarter of 64 entries, which is also the length of the SQ.
    assert_eq!(heads(&fake) - before, 40);
}

#[test]
fn the_head_is_published_for_room_or_if_asked() {
    let (fake, context) = machine();
    let b = bench(context);
    let [cq, other] = [64; 2].map(|entries| Cq::new(&b.context, &CqOptions::new(entries)).unwrap());
    // Half of the entries of a CQ.
    let on = |cq| QpOptions::new(cq, cq).sq_blocks(16).max_recv_wr(16);
    let (near, _far) = connect(&b.pd, &on(&cq), &on(&other));
    let complete_one = || {
        near.post_send(&[WorkRequest::nop(1).signaled()]).unwrap();
        assert_eq!(poll(&cq).len(), 1);
    };
    complete_one();
    let reserving = |cq| {
        let before = heads(&fake);
        let _qp = Qp::new(&b.pd, &on(cq)).unwrap();
        heads(&fake) - before
    };
    assert_eq!(
        reserving(&cq),
        reserving(&other),
        "there is room without it"
    );
    // A queue pair none of whose work requests have completed gets no room by it either.
    let (full, _peer) = connect(&b.pd, &on(&cq), &on(&other));
    complete_one();
    fake.by_hand();
    let before = heads(&fake);
    let refused = full.post_send(&[WorkRequest::nop(2); 17]);
    assert_eq!(refused, Err(PostError::Full { posted: 16 }));
    fake.machine().settle();
    assert_eq!(heads(&fake), before);
    fake.machine().eager = true;
    for _ in 0..2 {
        cq.publish();
        assert_eq!(heads(&fake), before + 1);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    let (_fake, context) = machine();
    let (_other_fake, other) = machine();
    let b = bench(context.clone());
    let free = b.cq.unreserved();
    assert_eq!(free, 0, "two queue pairs of 16 and 16 fill 64");
    let made = Qp::new(&b.pd, &QpOptions::new(&b.cq, &b.cq));
    assert!(
        matches!(
            made,
            Err(Error::CqTooSmall {
                free: 0,
                needed: 16
            })
        ),
        "{made:?}"
    );

    let foreign = Cq::new(&other, &CqOptions::new(64)).unwrap();
    let made = Qp::new(&b.pd, &QpOptions::new(&foreign, &foreign));
    assert!(matches!(made, Err(Error::OtherContext)), "{made:?}");

    for (what, made) in [
        ("no depth", Cq::new(&context, &CqOptions::new(0)).map(drop)),
        ("no memory", Memory::new(0).map(drop)),
        ("all memory", Memory::new(usize::MAX).map(drop)),
    ] {
        assert!(matches!(made, Err(Error::Range { .. })), "{what}: {made:?}");
    }
    let deep = Cq::new(&context, &CqOptions::new(1 << 20));
    assert_eq!(deep.unwrap_err().errno(), Some(Errno::INVAL));

    let cq = Cq::new(&context, &CqOptions::new(256)).unwrap();
    let pieces = QpOptions::new(&cq, &cq).max_recv_sge(16);
    assert!(matches!(
        Qp::new(&b.pd, &pieces),
        Err(Error::Range { value: 16, .. })
    ));
    let deep = QpOptions::new(&cq, &cq).sq_blocks(512);
    assert!(matches!(
        Qp::new(&b.pd, &deep),
        Err(Error::CqTooSmall {
            free: 256,
            needed: 512
        })
    ));
    assert_eq!(
        cq.unreserved(),
        256,
        "a queue pair that was not made takes nothing"
    );

    let sges = [b.mr.sge(0, 1); 32];
    let limit = b.context.attributes().max_send_sge as usize;
    let too_many = WorkRequest::send(1, &sges[..limit + 1]);
    assert!(matches!(
        b.near.post_send(&[too_many]),
        Err(PostError::TooLarge { .. })
    ));
    let too_many = Receive::new(1, &sges[..8]);
    assert!(matches!(
        b.near.post_recv(&[too_many]),
        Err(PostError::TooLarge { .. })
    ));
    let inline = vec![0; b.context.attributes().max_inline as usize + 1];
    let too_long = WorkRequest::send_inline(1, &inline);
    assert!(matches!(
        b.near.post_send(&[too_long]),
        Err(PostError::TooLarge { .. })
    ));
    assert_eq!(b.near.send_room(), 16, "and none of them took a slot");
}

/// The limits are the device's, which are lower than those of a work request's format.
#[test]
fn the_limits_are_those_of_the_device() {
    let (_fake, context) = machine_of(Config {
        send_sges: 2,
        inline_bytes: 24,
        ..Config::default()
    });
    let b = bench(context);
    let (sges, bytes) = ([b.mr.sge(0, 1); 3], [0; 25]);
    let is_taken = |request: WorkRequest<'_>| match b.near.post_send(&[request]) {
        Ok(()) => true,
        Err(PostError::TooLarge { .. }) => false,
        Err(error) => panic!("{error}"),
    };
    for (count, len, fits) in [(2, 24, true), (3, 25, false)] {
        let gathered = WorkRequest::write(1, &sges[..count], b.mr.remote(0));
        let inline = WorkRequest::write_inline(1, &bytes[..len], b.mr.remote(0));
        assert_eq!([is_taken(gathered), is_taken(inline)], [fits; 2]);
    }
}

#[test]
fn an_arm_gives_one_event_and_nothing_is_missed() {
    let (fake, context) = machine();
    let channel = Channel::new().unwrap();
    let pd = Pd::new(&context).unwrap();
    let cq = Cq::new(&context, &CqOptions::new(64).channel(&channel)).unwrap();
    let options = QpOptions::new(&cq, &cq);
    let (near, far) = connect(&pd, &options, &options);
    let event = || channel.wait(Some(Duration::ZERO)).unwrap();
    let nop = |id| near.post_send(&[WorkRequest::nop(id).signaled()]).unwrap();

    nop(1);
    assert!(!event(), "not armed");
    cq.arm(Wants::Next);
    assert!(event(), "armed with one unread: at once");
    assert_eq!(poll(&cq).len(), 1);
    nop(2);
    assert!(!event(), "one event for each arm");
    assert_eq!(poll(&cq).len(), 1);
    cq.arm(Wants::Next);
    assert!(!event(), "nothing past the arm yet");
    nop(3);
    nop(4);
    assert!(event());
    assert_eq!(poll(&cq).len(), 2);

    cq.arm(Wants::Solicited);
    nop(5);
    assert!(!event(), "not a solicited one");
    far.post_recv(&[Receive::new(6, &[])]).unwrap();
    near.post_send(&[WorkRequest::send(7, &[]).solicited()])
        .unwrap();
    assert!(event());
    assert_eq!(poll(&cq).len(), 2, "the nop and the receive");
    assert_eq!(fake.machine().completion_events, 3);
}
