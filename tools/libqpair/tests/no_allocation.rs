// SPDX-License-Identifier: GPL-2.0
//! Posting, polling and arming allocate nothing, and only write to the doorbell page.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use qpair::kernel::{
    Address, AsyncEvent, Attributes, Change, CounterValues, Gid, Kernel, Keys, NewCq, NewMr, NewQp,
    NewSrq, Object, QpAttributes, QpState, ResetAt, Resolved, Retries,
};
use qpair::{
    Access, Ah, Completion, Context, Counter, Cq, CqOptions, Datagram, Memory, Mr, Pd, Qp,
    QpOptions, Receive, Srq, SrqOptions, Wants, WorkRequest,
};
use qpair_abi::entry::{cqe_flags, Cqe, OWNER};
use qpair_abi::Number;
use rustix::io::Errno;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: It hands everything to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: As the caller has it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: As the caller has it.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Says yes to everything, and counts.
#[derive(Debug, Default)]
struct Yes {
    calls: AtomicUsize,
    doorbells: AtomicUsize,
    cq: AtomicU64,
}

const QP: u32 = 0x1_0001;

impl Yes {
    fn call<T>(&self, answer: T) -> Result<T, Errno> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(answer)
    }
}

fn object(raw: u32) -> Object {
    Object {
        handle: raw,
        number: Number::from_raw(raw),
    }
}

impl Kernel for Yes {
    fn query(&self) -> Result<Attributes, Errno> {
        self.call(Attributes {
            max_send_sge: 14,
            max_inline: 224,
            lid: 1,
            ..Default::default()
        })
    }

    fn counters(&self) -> Result<CounterValues, Errno> {
        self.call([0; Counter::COUNT])
    }

    fn alloc_pd(&self) -> Result<u32, Errno> {
        self.call(1)
    }

    fn dealloc_pd(&self, _pd: u32) -> Result<(), Errno> {
        self.call(())
    }

    fn create_cq(&self, cq: &NewCq<'_>) -> Result<(Object, u32), Errno> {
        self.cq.store(cq.buffer, Ordering::Relaxed);
        self.call((object(0), cq.depth))
    }

    fn destroy_cq(&self, _cq: Object) -> Result<(), Errno> {
        self.call(())
    }

    fn create_srq(&self, _srq: &NewSrq) -> Result<Object, Errno> {
        self.call(object(3))
    }

    fn arm_srq(&self, _srq: Object, _limit: u32) -> Result<(), Errno> {
        self.call(())
    }

    fn query_srq(&self, _srq: Object) -> Result<u32, Errno> {
        self.call(0)
    }

    fn destroy_srq(&self, _srq: Object) -> Result<(), Errno> {
        self.call(())
    }

    fn create_qp(&self, _qp: &NewQp) -> Result<Object, Errno> {
        self.call(object(QP))
    }

    fn modify_qp(&self, _qp: Object, _change: Change) -> Result<ResetAt, Errno> {
        self.call(ResetAt::default())
    }

    fn query_qp(&self, _qp: Object) -> Result<QpAttributes, Errno> {
        self.call(QpAttributes {
            state: QpState::Rts,
            peer: Number::from_raw(2),
            access: 0,
            retries: Retries::default(),
            q_key: 0,
        })
    }

    fn destroy_qp(&self, _qp: Object) -> Result<(), Errno> {
        self.call(())
    }

    fn gid(&self, _index: u8) -> Result<Gid, Errno> {
        self.call(Gid::default())
    }

    fn create_ah(&self, _pd: u32, _address: Address) -> Result<Resolved, Errno> {
        self.call(Resolved::default())
    }

    fn destroy_ah(&self, _handle: u32) -> Result<(), Errno> {
        self.call(())
    }

    fn reg_mr(&self, _mr: &NewMr) -> Result<Keys, Errno> {
        self.call(Keys::default())
    }

    fn dereg_mr(&self, _mr: u32) -> Result<(), Errno> {
        self.call(())
    }

    fn doorbell(&self, _offset: u64, _value: u64) {
        self.doorbells.fetch_add(1, Ordering::Relaxed);
    }

    fn async_event(&self) -> Result<Option<AsyncEvent>, Errno> {
        self.call(None)
    }

    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Yes {
    /// The device writes an entry.
    fn complete(&self, at: u32, depth: u32, flags: u8, index: u32) {
        let cqe = Cqe {
            qp: Number::from_raw(QP),
            index,
            flags,
            ..Default::default()
        };
        let mut words = cqe.encode();
        if at / depth % 2 == 0 {
            words[3] |= OWNER;
        }
        let ring = self.cq.load(Ordering::Relaxed) as *const AtomicU64;
        for (i, word) in words.into_iter().enumerate() {
            // SAFETY: The ring is mapped as long as its CQ lives, and has this place.
            let to = unsafe { &*ring.add((at % depth) as usize * 4 + i) };
            to.store(word, Ordering::Release);
        }
    }
}

/// What a test posts to and polls.
struct Bench {
    kernel: Arc<Yes>,
    pd: Pd,
    cq: Cq,
    mr: Mr,
}

impl Bench {
    fn new() -> Self {
        let kernel = Arc::new(Yes::default());
        let context = Context::new(kernel.clone()).unwrap();
        let pd = Pd::new(&context).unwrap();
        let memory = Memory::new(1 << 16).unwrap();
        Self {
            kernel,
            cq: Cq::new(&context, &CqOptions::new(128)).unwrap(),
            mr: Mr::new(&pd, memory, Access::LOCAL_WRITE).unwrap(),
            pd,
        }
    }

    /// A thousand rounds of posts, by `post` to a queue pair of 64 blocks: five blocks, the last
    /// signaled, and one receive. It takes less than `most` doorbells.
    fn run(&self, most: usize, post: impl Fn()) {
        let Self { kernel, cq, .. } = self;
        let mut into = [Completion::default(); 32];
        let (calls, allocations) = (kernel.calls.load(Ordering::Relaxed), ALLOCATIONS.get());
        let (mut written, mut polled) = (0, 0);
        for round in 1..=1000_u32 {
            post();
            kernel.complete(written, 128, 0, round * 5);
            kernel.complete(written + 1, 128, cqe_flags::RECV, round);
            written += 2;
            polled += cq.poll(&mut into).len();
            if round % 16 == 0 {
                cq.arm(Wants::Next);
            }
        }
        assert_eq!(polled, 2000);
        assert_eq!(ALLOCATIONS.get() - allocations, 0, "allocations");
        assert_eq!(kernel.calls.load(Ordering::Relaxed) - calls, 0, "calls");
        let doorbells = kernel.doorbells.load(Ordering::Relaxed);
        assert!(
            (most - 200..most).contains(&doorbells),
            "{doorbells} doorbells: one for each batch, and heads"
        );
    }
}

#[test]
fn the_data_path_allocates_nothing_and_calls_nobody() {
    let bench = Bench::new();
    let Bench { pd, cq, mr, .. } = &bench;
    let qp = Qp::new(pd, &QpOptions::new(cq, cq).sq_blocks(64)).unwrap();
    let peer = Number::from_raw(2);
    let qp = qp.init(Access::NONE).unwrap().rtr(peer).unwrap();
    let qp = qp.rts().unwrap();
    bench.run(2200, || {
        let sges = [mr.sge(0, 100), mr.sge(200, 300), mr.sge(1000, 1)];
        // Two blocks, one, two.
        let requests = [
            WorkRequest::send(1, &sges).signaled(),
            WorkRequest::write(2, &sges[..1], mr.remote(0)),
            WorkRequest::send_inline(3, b"inline data, copied into the queue").signaled(),
        ];
        qp.post_send(&requests).unwrap();
        qp.post_recv(&[Receive::new(4, &sges[..1])]).unwrap();
    });
}

#[test]
fn the_same_of_datagrams() {
    let bench = Bench::new();
    let Bench { pd, cq, mr, .. } = &bench;
    let to = Ah::own(pd).unwrap().to(Number::from_raw(2), 7);
    let qp = Qp::new(pd, &QpOptions::ud(cq, cq).sq_blocks(64)).unwrap();
    let qp = qp.init(7).unwrap().rtr().unwrap().rts().unwrap();
    bench.run(2200, || {
        let sges = [mr.sge(0, 100), mr.sge(200, 300), mr.sge(1000, 1)];
        // Two blocks, one, two.
        let datagrams = [
            Datagram::send(1, to, &sges).signaled(),
            Datagram::send(2, to, &[]),
            Datagram::send_inline(3, to, b"inline data, copied into the queue").signaled(),
        ];
        qp.post_send(&datagrams).unwrap();
        qp.post_recv(&[Receive::new(4, &sges[..1])]).unwrap();
    });
}

/// Every second round the posts find no room before they publish the head.
#[test]
fn the_same_of_shared_receives() {
    let bench = Bench::new();
    let Bench { pd, cq, mr, .. } = &bench;
    let srq = Srq::new(pd, &SrqOptions::new(2)).unwrap();
    let options = QpOptions::new(cq, cq).sq_blocks(64).srq(&srq);
    let qp = Qp::new(pd, &options).unwrap();
    let peer = Number::from_raw(2);
    let qp = qp.init(Access::NONE).unwrap().rtr(peer).unwrap();
    let qp = qp.rts().unwrap();
    bench.run(2600, || {
        let sges = [mr.sge(0, 100), mr.sge(200, 300), mr.sge(1000, 1)];
        let send = WorkRequest::send(1, &sges);
        let nop = WorkRequest::nop(2).signaled();
        qp.post_send(&[send, send, nop]).unwrap();
        srq.post_recv(&[Receive::new(4, &sges[..1])]).unwrap();
    });
}
