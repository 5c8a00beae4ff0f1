# SPDX-License-Identifier: GPL-2.0
"""Keeps the guest's kernel log, and finds reports of errors in it."""

import re
import time

# Reports of the kernel and of its detectors. A run passes if the log has none of these patterns,
# whatever else debug options print.
REPORTS = re.compile(
    r"""
    \bWARNING:                      # WARN(), lockdep, suspicious RCU usage
    | \bBUG:                        # KASAN, bad pages, atomic sleep, lockups, ODEBUG
    | \bkernel\ BUG\ at
    | \bOops\b | \bKernel\ panic\b | \bgeneral\ protection\ fault\b
    | \b(double|stack\ segment)\ fault\b | \bunable\ to\ handle\b
    | \bKASAN: | \bUBSAN: | \bODEBUG: | \brefcount_t:
    | \bINFO:\ (task|rcu|possible|trying\ to|lockdep\ is)
    | \bhung_task\b.*\bblocked\b | \brcu:?\ .*\bdetected\b.*\bstalls?\b
    | \bsuspected\ memory\ leaks?\b | \bunreferenced\ object\b
    | \b(list_add|list_del)\ corruption\b | \bcorruption\ detected\b
    | \bDMA-API:\ (?!preallocated|debugging\ |pre-allocat)
    | \bDMAR:.*\b(fault|\[fault)\b | \bDMAR:\ \[(DMA|INTR)
    | \bnobody\ cared\b | \bpage\ allocation\ failure\b
    | \[qpair\]\ enqueued\ on\ deprecated
    | \brust_kernel:\ panicked | \bqpair-init:\ failed
    """,
    re.VERBOSE,
)

# Lines of a healthy boot that look like reports.
BENIGN = re.compile(
    r"""
    \b(Spectre | RETBleed | MDS | SRBDS | TAA | VMSCAPE | MMIO\ Stale\ Data)\b
    | DMA-API:\ disabled
    """,
    re.VERBOSE,
)

# The kernel patches its code under a breakpoint. An emulated processor with several threads may hit
# a breakpoint that the kernel has already removed, and then does not recognise.
MISREAD = "Oops: int3"

BEFORE = 3
AFTER = 70
SHOWN = 3


class Console:
    """The lines that a guest's kernel has printed so far."""

    def __init__(self, echo=None):
        self.lines = []
        self.in_init = False
        self.heard = time.monotonic()
        self.echo = echo
        self.rest = b""

    def feed(self, data):
        self.heard = time.monotonic()
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").rstrip("\r")
            self.lines.append(text)
            self.in_init |= "Run /init as init process" in text
            if self.echo:
                print(text, file=self.echo, flush=True)

    def close(self):
        if self.rest:
            self.feed(b"\n")

    def found(self):
        """The numbers of the lines with a report."""
        return [
            number
            for number, line in enumerate(self.lines)
            if REPORTS.search(line) and not BENIGN.search(line)
        ]

    def misread(self):
        """Whether a stale breakpoint ended the kernel before its init."""
        first = next(iter(self.found()), None)
        return first is not None and MISREAD in self.lines[first] and not self.in_init

    def report(self):
        """The kernel's reports, with the lines around them; None if there are none."""
        shown, last = [], -1
        found = self.found()
        for number in found:
            if number <= last:
                continue
            if len(shown) == SHOWN:
                shown.append(f"... and more: {len(found)} lines in all look like reports")
                break
            first, last = max(last + 1, number - BEFORE), number + AFTER
            # A report ends where its call trace does.
            for end in range(number + 1, min(last, len(self.lines))):
                if "---[ end trace" in self.lines[end] or self.lines[end].endswith("</TASK>"):
                    last = end
                    break
            shown.append("\n".join(self.lines[first : last + 1]))
        return "\n[...]\n".join(shown) if shown else None

    def tail(self, count=30):
        return "\n".join(self.lines[-count:])
