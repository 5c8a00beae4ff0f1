# SPDX-License-Identifier: GPL-2.0
"""Checks the barriers between driver and device in the object code of the modules.

No test on x86 can detect a missing barrier: the processor keeps these orders by itself, and only
the compiler may break them. So this check searches the object code for the calls. Each row of
POINTS names the functions of a module that have the code of a ring or of the admin queue inlined,
the barrier that each of them must call, and how often. All instances of these functions are
checked. Where the barrier stands is the rules', and tested with them (proofs/queue/tests/order.rs).

A command has an instance for each of its types. The compiler inlines some of them into their
callers, so they are identified not by name but by the wait for the completion. The compiler also
duplicates that wait, so the number of waits is not the number of commands in a function: each
function must have one barrier, and a function with two commands and one barrier is not detected.
"""

import re

from qp import base

# Ordering: a pattern of the functions' demangled names; a pattern of a call in them; the barrier;
# the minimum number of calls of the barrier in each.
POINTS = {
    "EQ: owner word before the entry's body": (r"eq::Eq as .*Handler>::poll$", r"", "dma_rmb", 1),
    "EQ: entries before the head": (r"Poller<.*Ring>>::publish", r"", "dma_mb", 1),
    "CQ: owner word before the entry's body": (r"PolledCq>::consume$", r"", "dma_rmb", 1),
    "CQ: entries before the head": (r"PolledCq>::publish$", r"", "dma_mb", 1),
    "SQ and RQ: entries before the tail": (r"Queues>::ring$", r"", "dma_wmb", 2),
    "CQ of a ULP: owner word before the entry's body": (r"cq::Cq as .*Operations<.*>>::poll$", r"", "dma_rmb", 1),
    "CQ of a ULP: entries before the head": (r"Inner<.*CqState<.*>>>::publish$", r"", "dma_mb", 1),
    "CQ of a ULP: notify before the entries": (r"cq::Cq as .*Operations<.*>>::notify$", r"", "mb", 1),
    "SQ of a ULP: entries before the tail": (r"Ops<.*>>::post_send$", r"", "dma_wmb", 1),
    "RQ of a ULP: entries before the tail": (r"Ops<.*>>::post_recv$", r"", "dma_wmb", 1),
    "commands: completion before the context": (
        # Unregistering an RDMA device waits as well.
        r"^(?!<qpair::kernel::sync::completion::Completion>::|.*(rdma::device|RdmaDevice))",
        r"\bwait_for_completion_timeout\b|Completion.*wait_timeout",
        "dma_rmb",
        1,
    ),
}
# Those of the module of channels: each kind of channel has two rings, whose poll is one function.
STREAM = {
    "channels: status before the rest of the descriptor": (r"client::Pair as .*Handler>::poll$", r"", "dma_rmb", 4),
    "channels: descriptors before the tail": (r"(chain::Chains|headtail::Rings)>::refill$", r"", "dma_wmb", 1),
}

FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
CALL = re.compile(r"R_X86_64_\w+\s+(.*)")
BARRIER = re.compile(r"\b(?:rust_helper_)?((?:dma_[rw]?)?mb)\b")


def calls(text):
    """The calls of each function, from a disassembly with relocations."""
    found, function = {}, None
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            function = found.setdefault(match[1], [])
        elif function is not None and (match := CALL.search(line)):
            function.append(match[1])
    return found


def missing(text, points=POINTS):
    """The barriers that the object code lacks."""
    found, lines = calls(text), []
    for what, (pattern, called, barrier, least) in points.items():
        functions = [
            name
            for name, symbols in found.items()
            if re.search(pattern, name) and (not called or any(re.search(called, symbol) for symbol in symbols))
        ]
        if not functions:
            lines.append(f"{what}: no function {called or pattern}; correct POINTS in scripts/qp/barriers.py")
        for name in functions:
            barriers = [match[1] for symbol in found[name] if (match := BARRIER.search(symbol))]
            if barriers.count(barrier) < least:
                lines.append(f"{what}: no {barrier} in {name}")
    return lines


def missing_in(module, points=POINTS):
    return missing(base.output("objdump", "--disassemble", "--reloc", "--no-show-raw-insn", "--demangle", module), points)
