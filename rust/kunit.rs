// SPDX-License-Identifier: GPL-2.0

//! The module's KUnit suite.
//!
//! The rules of [`queue`](crate::queue) are tested on the host. These few tests show that they hold
//! as well with the kernel's own compiler, flags and overflow checks, on the machine that the
//! module is for. They neither allocate nor panic.

use crate::queue::{
    account::Account,
    buflist::{
        PageLimits,
        Plan,
        Segment, //
    },
    credit::{
        RingId,
        Sq, //
    },
    index::{
        Depth,
        Index, //
    },
    pages::PageList, //
};
use kernel::prelude::*;

/// What did not hold.
type Outcome = Result<(), &'static str>;

fn holds(condition: bool, what: &'static str) -> Outcome {
    if condition {
        Ok(())
    } else {
        Err(what)
    }
}

fn depth(log2: u8) -> Result<Depth, &'static str> {
    Depth::from_log2(log2).ok_or("a valid depth is refused")
}

const LIMITS: PageLimits = PageLimits {
    min_shift: 12,
    max_shift: 30,
};

fn plan(segments: &[(u64, u64)], flat: u64) -> Option<Plan> {
    let segments = segments.iter();
    let segments = segments.map(|&(addr, bytes)| Segment { addr, bytes });
    Plan::new(segments, LIMITS, flat).ok()
}

// The macro writes the C side of the suite.
#[allow(unsafe_code)]
#[kunit_tests(qpair_rules)]
mod rules {
    use super::*;

    /// The owner bit is 1 in the first pass, and flips.
    #[test]
    fn owner_bits() -> Outcome {
        for (log2, index, owner, position) in [
            (3, 0, true, 0),
            (3, 7, true, 7),
            (3, 8, false, 0),
            (3, 16, true, 0),
            (3, u32::MAX, false, 7),
            (0, 0, true, 0),
            (0, 1, false, 0),
            (31, 1 << 31, false, 0),
            (31, u32::MAX, false, u32::MAX >> 1),
        ] {
            let (depth, index) = (depth(log2)?, Index::new(index));
            holds(depth.owner(index) == owner, "owner bit")?;
            holds(depth.is_valid(owner, index), "a valid entry is not seen")?;
            holds(!depth.is_valid(!owner, index), "an invalid entry is seen")?;
            holds(depth.position(index) == position, "position")?;
        }
        Ok(())
    }

    /// Slots are neither lost nor made.
    #[test]
    fn slots() -> Outcome {
        let mut account = Account::<Sq>::new(RingId::new(1, 0), 5);
        holds(
            !account.pay(6) && account.free() == 5,
            "more than there are",
        )?;
        holds(
            account.pay(3) && account.free() == 2,
            "slots that are there",
        )?;
        holds(account.taken() == 3 && account.is_whole(), "balance")?;
        holds(account.repay(4).is_err(), "more than are taken")?;
        holds(account.repay(1).is_ok() && account.free() == 3, "give")?;
        holds(account.taken() == 2 && account.is_whole(), "balance")
    }

    /// The pages that a list names.
    #[test]
    fn page_addresses() -> Outcome {
        let segments = [(0x5800, 0x800), (0x9000, 0x1000), (0x2000, 0x10)];
        let plan = plan(&segments, 9).ok_or("a good buffer is refused")?;
        let from = segments.iter();
        let from = from.map(|&(addr, bytes)| Segment { addr, bytes });
        holds(
            plan.entries(from).eq([0x5000, 0x9000, 0x2000]),
            "page addresses",
        )
    }

    /// A run of pages, then pages with a gap, by an address whose upper half is not theirs.
    #[test]
    fn pages_of_a_registration() -> Outcome {
        const ADDR: u64 = 0xfeed_0000_0000_0234;
        const TABLE: u64 = 0x7000;
        let mut pages = PageList::new(3);
        pages.begin(12);
        holds(pages.list(Some(TABLE), ADDR, 1).is_none(), "no pages")?;
        for (index, page) in [0x5000, 0x6000].into_iter().enumerate() {
            holds(pages.push(page) == Ok(index), "the index of a page")?;
        }
        let run = pages.list(Some(TABLE), ADDR, 0x1000);
        let run = run.ok_or("a run is refused")?;
        holds(run.levels == 0 && run.root == 0x5234, "a run")?;
        holds(
            pages.list(Some(TABLE), ADDR, 0x2000).is_none(),
            "one page too few",
        )?;
        holds(pages.push(0x9000) == Ok(2), "the last page")?;
        holds(pages.push(0xa000).is_err(), "one page too many")?;
        let table = pages.list(Some(TABLE), ADDR, 0x2000);
        let table = table.ok_or("a table is refused")?;
        holds(
            table.levels == 1 && table.root == TABLE && table.offset == 0x234,
            "a table",
        )
    }
}
