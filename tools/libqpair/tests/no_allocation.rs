// SPDX-License-Identifier: GPL-2.0
//! Posting, polling and arming allocate nothing, and only write to the doorbell page.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use qpair::kernel::{Call, Kernel};
use qpair::{
    Access, Completion, Context, Cq, CqOptions, Memory, Mr, Pd, Qp, QpOptions, Receive, Wants,
    WorkRequest,
};
use qpair_abi::entry::{cqe_flags, Cqe, OWNER};
use qpair_abi::uapi::{qpair_async_event, QPAIR_UAPI_VERSION};
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

impl Kernel for Yes {
    fn call(&self, call: Call<'_>) -> Result<(), Errno> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match call {
            Call::QueryDevice(device) => {
                device.uapi_version = QPAIR_UAPI_VERSION;
                (device.max_send_sge, device.max_inline) = (14, 224);
            }
            Call::CreateCq(create) => self.cq.store(create.buffer, Ordering::Relaxed),
            Call::CreateQp(create) => create.handle = QP,
            _ => {}
        }
        Ok(())
    }

    fn doorbell(&self, _offset: u64, _value: u64) {
        self.doorbells.fetch_add(1, Ordering::Relaxed);
    }

    fn events(&self, _into: &mut [qpair_async_event]) -> Result<usize, Errno> {
        Ok(0)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
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

#[test]
fn the_data_path_allocates_nothing_and_calls_nobody() {
    let kernel = Arc::new(Yes::default());
    let context = Context::new(kernel.clone()).unwrap();
    let pd = Pd::new(&context).unwrap();
    let cq = Cq::new(&context, &CqOptions::new(128)).unwrap();
    let mr = Mr::new(&pd, Memory::new(1 << 16).unwrap(), Access::LOCAL_WRITE).unwrap();
    let qp = Qp::new(&pd, &QpOptions::new(&cq, &cq).sq_blocks(64)).unwrap();
    let peer = Number::from_raw(2);
    let qp = qp.init(Access::NONE).unwrap().rtr(peer).unwrap();
    let qp = qp.rts().unwrap();
    let mut into = [Completion::default(); 32];

    let (calls, allocations) = (kernel.calls.load(Ordering::Relaxed), ALLOCATIONS.get());
    let (mut written, mut polled) = (0, 0);
    for round in 1..=1000_u32 {
        let sges = [mr.sge(0, 100), mr.sge(200, 300), mr.sge(1000, 1)];
        let requests = [
            WorkRequest::send(1, &sges).signaled(),
            WorkRequest::write(2, &sges[..1], mr.remote(0)),
            WorkRequest::send_inline(3, b"inline data, copied into the queue").signaled(),
        ];
        qp.post_send(&requests).unwrap();
        qp.post_recv(&[Receive::new(4, &sges[..1])]).unwrap();
        // Two blocks, one, two.
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
        (2000..2200).contains(&doorbells),
        "{doorbells} doorbells: one for each batch, and heads"
    );
}
