# SPDX-License-Identifier: GPL-2.0
"""The points of order between driver and device, looked up in the module's object code.

No test on x86 can see a barrier that is missing: the processor keeps these
orders by itself, and only the compiler may break them. So the object code is
searched for the calls. Each row of POINTS says which functions of the module
have the code of a ring or of the admin queue inlined, and which barrier each of
them has to call, and how often. All of these functions are looked at, however
many instances the compiler makes.

A command has an instance for each of its types. The compiler inlines some of
them into their callers, so they are found not by name but by the wait for the
answer. The compiler also duplicates that wait, so it does not tell how many
commands a function has: one barrier is demanded of each function, and a
function with two commands and one barrier is not found.
"""

import re

from qp import base

# What it orders: functions, by a pattern of their demangled names; what they
# call, by a pattern as well; the barrier; how often each of them calls it at least.
POINTS = {
    "EQ: owner word before the entry's body": (r"eq::Eq as .*Handler>::poll$", r"", "dma_rmb", 1),
    "EQ: entries before the head": (r"Poller<.*Ring>>::publish", r"", "dma_mb", 1),
    "CQ: owner word before the entry's body": (r"KernelCq>::consume$", r"", "dma_rmb", 1),
    "CQ: entries before the head": (r"KernelCq>::publish$", r"", "dma_mb", 1),
    "SQ and RQ: entries before the tail": (r"Queues>::ring$", r"", "dma_wmb", 2),
    "commands: completion before the context": (
        r"^(?!<qpair::sys::completion::Completion>::)",
        r"\bwait_for_completion_timeout\b|Completion.*wait_timeout",
        "dma_rmb",
        1,
    ),
}

FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
CALL = re.compile(r"R_X86_64_\w+\s+(.*)")
BARRIER = re.compile(r"\b\w*(dma_r?w?mb)\b")


def calls(text):
    """What each function calls, in the text of a disassembly with relocations."""
    found, function = {}, None
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            function = found.setdefault(match[1], [])
        elif function is not None and (match := CALL.search(line)):
            function.append(match[1])
    return found


def missing(text):
    """The points of order that the object code lacks."""
    found, lines = calls(text), []
    for what, (pattern, called, barrier, least) in POINTS.items():
        functions = [
            name
            for name, symbols in found.items()
            if re.search(pattern, name) and (not called or any(re.search(called, symbol) for symbol in symbols))
        ]
        if not functions:
            lines.append(f"{what}: no function {called or pattern}; mend POINTS in scripts/qp/barriers.py")
        for name in functions:
            barriers = [match[1] for symbol in found[name] if (match := BARRIER.search(symbol))]
            if barriers.count(barrier) < least:
                lines.append(f"{what}: no {barrier} in {name}")
    return lines


def missing_in(module):
    return missing(base.output("objdump", "--disassemble", "--reloc", "--no-show-raw-insn", "--demangle", module))
