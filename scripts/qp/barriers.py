# SPDX-License-Identifier: GPL-2.0
"""The points of order between driver and device, looked up in the module's object code.

No test on x86 can see a barrier that is missing: the processor keeps these
orders by itself, and only the compiler may break them. So the object code is
searched for the calls. Each row of POINTS is a function of the module, into
which the code of the rings is inlined, and the barrier that it has to call.
"""

import re

from qp import base

# What it orders: the function, by a pattern of its demangled name, the barrier, and how often at least.
POINTS = {
    "EQ: owner word before the entry's body": (r"event::Eq as .*Handler>::poll$", "dma_rmb", 1),
    "EQ: entries before the head": (r"Poller<.*Ring>>::publish", "dma_mb", 1),
    "CQ: owner word before the entry's body": (r"KernelCq>::consume$", "dma_rmb", 1),
    "CQ: entries before the head": (r"KernelCq>::publish$", "dma_mb", 1),
    "SQ and RQ: entries before the tail": (r"Queues>::ring$", "dma_wmb", 2),
    "commands: completion before the context": (r"Admin>::(execute|attempt|create)::<", "dma_rmb", 1),
}

FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
CALL = re.compile(r"\b\w*(dma_r?w?mb)\b")


def calls(text):
    """Each function's barriers, in the text of a disassembly with relocations."""
    found, function = {}, None
    for line in text.splitlines():
        if match := FUNCTION.match(line):
            function = found.setdefault(match[1], [])
        elif function is not None and "R_X86_64" in line and (match := CALL.search(line)):
            function.append(match[1])
    return found


def missing(text):
    """The points of order that the object code lacks."""
    found, lines = calls(text), []
    for what, (pattern, barrier, least) in POINTS.items():
        functions = [barriers for name, barriers in found.items() if re.search(pattern, name)]
        if not functions:
            lines.append(f"{what}: no function {pattern}; mend POINTS in scripts/qp/barriers.py")
        elif all(barriers.count(barrier) < least for barriers in functions):
            lines.append(f"{what}: no {barrier} in {pattern}")
    return lines


def missing_in(module):
    return missing(base.output("objdump", "--disassemble", "--reloc", "--no-show-raw-insn", "--demangle", module))
