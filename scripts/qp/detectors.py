# SPDX-License-Identifier: GPL-2.0
"""Proves that the debug kernel's detectors see bugs in Rust code.

A clean run says nothing when a detector is blind. So before the debug layer the
module of tools/selftests/detectors plants a bug for each of them, and the
report has to appear, to the eyes of scripts/guest too: a guest in which one
is planted has to end with its status for reports.

The order matters, and is why not all are in one guest: a KASAN report switches
lockdep off for the rest of the boot, so lockdep comes first; and where Rust
panics the kernel does.
"""

import re

from qp import base
from qp import kernel as kernels
from qp import ktap

SOURCE = base.TOP / "tools/selftests/detectors"
REPORTED = 126

# What is planted, the number of the bug in detectors.rs, and what has to be
# reported. `leak` is looked for by the guest's init at the end.
LASTING = [
    ("lockdep", 1, r"WARNING: possible circular locking dependency detected"),
    ("atomic-sleep", 2, r"BUG: sleeping function called from invalid context"),
    ("dma-api", 6, r"DMA-API:.*device driver has pending DMA allocations while released from device"),
    ("kasan-out-of-bounds", 3, r"BUG: KASAN: slab-out-of-bounds in .*detectors"),
    ("kasan-use-after-free", 4, r"BUG: KASAN: slab-use-after-free in .*detectors"),
    ("kmemleak", 5, r"unreferenced object 0x[0-9a-f]+ \(size \d+\)"),
]
ENDING = [
    ("overflow", 7, r"attempt to add with overflow"),
    ("debug-assertion", 8, r"a planted debug assertion"),
    ("bounds-check", 9, r"index out of bounds: the len is 4 but the index is 9"),
]


def build():
    """Builds the module for the debug kernel; gives the folder that it is in."""
    kernel = kernels.get("debug")
    out = base.TOP / "build/detectors"
    out.mkdir(parents=True, exist_ok=True)
    with base.locked(out / "lock"):
        base.step(
            "building the detectors' module",
            ["make", f"-j{base.JOBS}", "-C", kernel.tree, f"M={SOURCE}", f"MO={out}", *kernel.make, "modules"],
            quiet=True,
        )
    return out


def plant(folder, bugs):
    """The shell command that plants them, one after the other."""
    # A module that refuses to stay is as good as one that was removed.
    one = "insmod {0}/detectors.ko bug={1} 2>/dev/null && rmmod detectors"
    return "; ".join([*(one.format(folder, number) for _, number, _ in bugs), "true"])


def seen(guest, name, folder, bugs, slower):
    """Plants them in one guest, and counts the reports that came."""
    options = ["--kernel", "debug", "--no-insmod", "--verbose", "--share", str(folder)]
    status, text, log = guest(name, options, ["sh", "-c", plant(folder, bugs)], 300 * slower)
    text += log.read_text(errors="replace")
    count = ktap.Count()
    for what, _, report in bugs:
        if re.search(report, text):
            count.passed += 1
        else:
            count.fail(f"{what} did not report (see {log})")
    if status != REPORTED:
        count.fail(f"{name}: the guest ended with {status}, not {REPORTED} (see {log})")
    return count


def guests(everything):
    """What is planted in which guest: bugs that last, and, if `everything` is asked for, those that end a guest."""
    return {"lasting": LASTING, **({bug[0]: [bug] for bug in ENDING} if everything else {})}


def prove(guest, name, slower):
    """Plants the bugs of one guest. `guest` runs a command in a guest, as in qp/suite.py."""
    return seen(guest, f"detectors-{name}", build(), guests(True)[name], slower)
