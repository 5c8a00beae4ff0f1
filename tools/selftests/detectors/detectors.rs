// SPDX-License-Identifier: GPL-2.0
//! Planted bugs, one for each detector of the debug kernel.
//!
//! A clean run on the debug kernel proves something only if its detectors work for Rust code. So
//! before each such run this module is loaded, once for each `bug`, and the report must appear;
//! `scripts/qp/detectors.py` has the reports and the order. The module plants its bug while it is
//! loaded or bound, and then fails to load.
//!
//! For the debug kernel only, which is of the newest supported series.

use core::hint::black_box;
use core::mem::forget;
use core::ptr;

use kernel::device::Core;
use kernel::dma::Coherent;
use kernel::driver;
use kernel::new_mutex;
use kernel::new_spinlock;
use kernel::pci;
use kernel::prelude::*;
use kernel::sync::Mutex;
use kernel::sync::SpinLock;

/// The bug to plant; the numbers are those of `scripts/qp/detectors.py`.
mod bug {
    pub(crate) const LOCK_ORDER: u32 = 1;
    pub(crate) const ATOMIC_SLEEP: u32 = 2;
    pub(crate) const OUT_OF_BOUNDS: u32 = 3;
    pub(crate) const USE_AFTER_FREE: u32 = 4;
    pub(crate) const LEAK: u32 = 5;
    pub(crate) const DMA_LEAK: u32 = 6;
    pub(crate) const OVERFLOW: u32 = 7;
    pub(crate) const DEBUG_ASSERTION: u32 = 8;
    pub(crate) const BOUNDS_CHECK: u32 = 9;
}

#[pin_data]
struct Locks {
    #[pin]
    one: Mutex<u32>,
    #[pin]
    two: Mutex<u32>,
    #[pin]
    spin: SpinLock<u32>,
}

impl Locks {
    fn new() -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                one <- new_mutex!(0, "detectors_one"),
                two <- new_mutex!(0, "detectors_two"),
                spin <- new_spinlock!(0, "detectors_spin"),
            }),
            GFP_KERNEL,
        )
    }
}

/// Two locks in both orders. No deadlock happens: lockdep must report that one could.
fn lock_order() -> Result {
    let locks = Locks::new()?;
    {
        let _one = locks.one.lock();
        let _two = locks.two.lock();
    }
    let _two = locks.two.lock();
    let _one = locks.one.lock();
    Ok(())
}

/// An allocation that may sleep under a spinlock.
fn atomic_sleep() -> Result {
    let locks = Locks::new()?;
    let value = locks.spin.lock();
    let copy = KBox::new(*value, GFP_KERNEL)?;
    black_box(&*copy);
    Ok(())
}

/// A write behind the end of an allocation.
fn out_of_bounds() -> Result {
    let mut bytes = KVec::<u8>::with_capacity(13, GFP_KERNEL)?;
    // SAFETY: it is not; that is the point.
    unsafe { ptr::write_volatile(bytes.as_mut_ptr().add(black_box(16)), 1) };
    Ok(())
}

/// A read of freed memory.
fn use_after_free() -> Result {
    let place = KBox::into_raw(KBox::new([7u64; 8], GFP_KERNEL)?);
    // SAFETY: `place` comes from `into_raw`.
    drop(unsafe { KBox::from_raw(place) });
    // SAFETY: it is not; that is the point.
    black_box(unsafe { ptr::read_volatile(place.cast::<u64>()) });
    Ok(())
}

/// Allocations without a reference. Several, since a stale copy of a pointer hides one.
fn leak() -> Result {
    for _ in 0..8 {
        forget(KBox::new([0x5au64; 12], GFP_KERNEL)?);
    }
    Ok(())
}

/// A sum that does not fit.
fn overflow() {
    pr_info!("the sum is {}\n", black_box(u32::MAX) + black_box(1));
}

fn debug_assertion() {
    debug_assert!(black_box(1) == 2, "a planted debug assertion");
}

fn bounds_check() {
    let values = [1u32; 4];
    pr_info!("the ninth of four is {}\n", values[black_box(9)]);
}

/// A driver that binds to the device and does not free a mapping when it is unbound.
struct Forgetful;

kernel::pci_device_table!(
    PCI_TABLE,
    <Forgetful as pci::Driver>::IdInfo,
    [(pci::DeviceId::from_class(0xff0000, 0xffff00), ())]
);

impl pci::Driver for Forgetful {
    type IdInfo = ();
    type Data<'bound> = ();

    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: Option<&'bound Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        let mapping: Coherent<[u64; 64]> = Coherent::zeroed(pdev.as_ref(), GFP_KERNEL)?;
        forget(mapping);
        dev_info!(pdev, "forgot a mapping\n");
        Ok(())
    }
}

type Driver = driver::Registration<pci::Adapter<Forgetful>>;

struct Detectors {
    _driver: Pin<KBox<Driver>>,
}

impl kernel::Module for Detectors {
    fn init(module: &'static ThisModule) -> Result<Self> {
        match module_parameters::bug.value() {
            bug::LOCK_ORDER => lock_order()?,
            bug::ATOMIC_SLEEP => atomic_sleep()?,
            bug::OUT_OF_BOUNDS => out_of_bounds()?,
            bug::USE_AFTER_FREE => use_after_free()?,
            bug::LEAK => leak()?,
            bug::DMA_LEAK => {
                let name = <Self as kernel::ModuleMetadata>::NAME;
                return Ok(Self {
                    _driver: KBox::pin_init(Driver::new(name, module), GFP_KERNEL)?,
                });
            }
            bug::OVERFLOW => overflow(),
            bug::DEBUG_ASSERTION => debug_assertion(),
            bug::BOUNDS_CHECK => bounds_check(),
            _ => return Err(EINVAL),
        }
        Err(ECANCELED)
    }
}

module! {
    type: Detectors,
    name: "detectors",
    authors: ["The qpair authors"],
    description: "Bugs on purpose, for the detectors of a debug kernel",
    license: "GPL",
    params: {
        bug: u32 {
            default: 0,
            description: "Which",
        },
    },
}
