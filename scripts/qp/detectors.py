# SPDX-License-Identifier: GPL-2.0
"""Proves that the debug kernel's detectors see bugs in Rust code.

A clean run proves nothing if a detector does not work. So before the debug layer the module in
tools/selftests/detectors plants a bug for each detector, and the report must appear. scripts/guest
must find it too: a guest with a planted bug must end with the status for reports.

The order matters, and not all bugs are planted in one guest: a KASAN report disables lockdep for
the rest of the boot, so lockdep comes first; and a panic in Rust is a kernel panic.
"""

import re

from qp import base, jobs, kernel as kernels, ktap, payload

SOURCE = base.TOP / "tools/selftests/detectors"
REPORTED = 126

# The detector, the number of the bug in detectors.rs, and the required report. The guest's init
# runs kmemleak at the end.
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

# The bugs of each guest: those that a guest survives, and those that end it.
GUESTS = {"lasting": LASTING, **{bug[0]: [bug] for bug in ENDING}}


def build():
    """Builds the module for the debug kernel; returns its directory."""
    out = payload.BUILD / "detectors"
    payload.make_modules("building the detectors' module", kernels.get("debug"), SOURCE, out, [])
    return out


def plant(folder, bugs):
    """The shell command that plants bugs, one after the other."""
    # A module that fails to load need not be removed.
    one = "insmod {0}/detectors.ko bug={1} 2>/dev/null && rmmod detectors"
    return "; ".join([*(one.format(folder, number) for _, number, _ in bugs), "true"])


def prove(group, slower):
    """Plants the bugs of one guest, and counts the reports."""
    name, folder, bugs = f"detectors-{group}", build(), GUESTS[group]
    options = ["--kernel", "debug", "--no-insmod", "--verbose", "--share", str(folder)]
    status, text, log = jobs.guest(name, options, ["sh", "-c", plant(folder, bugs)], 300 * slower)
    text += log.read_text(errors="replace")
    count = ktap.Count()
    for what, _, report in bugs:
        if re.search(report, text):
            count.passed += 1
        else:
            count.fail(f"{what} did not report")
    if status != REPORTED:
        count.fail(f"{name}: the guest ended with {status}, not {REPORTED}")
    return count
