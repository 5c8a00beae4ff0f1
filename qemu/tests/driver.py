# SPDX-License-Identifier: GPL-2.0
"""A minimal driver of the device, and machines with the device."""

import pathlib
import re
import subprocess
import sys
import time

import machine
from machine import Function

ABI = pathlib.Path(__file__).resolve().parents[2] / "rust/abi"
QEMU = sys.argv[1:]
PLUGIN = pathlib.Path(QEMU[0]).name == "qpair-qemu" if QEMU else False
"""Whether the device is a plugin of an unmodified QEMU."""
IOTHREAD = False
"""Whether the core of each device of `device` has a thread of its own."""


def facts(file, pattern):
    """Names and numbers from their only source, rust/abi."""
    text = (ABI / file).read_text()
    return {m[1]: m[2] for m in re.finditer(pattern, text)}


REG = {n: int(v, 0) for n, v in facts("regs.rs", r"pub (\w+)\(u32\) @ (0x\w+)").items()}
BELL = {n: int(v, 0) for n, v in facts("doorbell.rs", r"pub const (\w+): u64 = (0x\w+)").items()}
COUNTERS = list(facts("counters.rs", r'(\w+) = ("[\w-]+"),').values())
COUNTERS = [name.strip('"') for name in COUNTERS]

ENABLE, RESET = 1, 2
READY, FATAL = 1, 2
BUS_MASTER = 3

# Addresses in guest memory.
EQ, SQ, CQ, CONTEXT, MESSAGE, EQ1 = 0x100000, 0x110000, 0x120000, 0x130000, 0x140000, 0x148000
LOG = 4
QUERY_DEVICE, CREATE_PD, CREATE_MR = 8 << 4 | 3, 5 << 4 | 1, 4 << 4 | 1
# The address of x86's first local APIC, and a valid vector.
APIC, APIC_VECTOR = 0xFEE00000, 0x51
GENERAL = 21
REMOTE_OPERATION = 11
LOCAL_WRITE, REMOTE_WRITE = 1, 2
# Of a request: signaled and of one block; one SGE.
BLOCK, SGE = 1 << 8 | 1 << 16, 1 << 24


class Driver(Function):
    """A minimal driver: only the admin queue pair."""

    posted = 0
    shift = 0
    """What an IOMMU adds to the addresses that the device uses."""

    def up(self):
        self.enable()
        self.start()

    def start(self):
        m = self.machine
        for ring in (EQ, SQ, CQ):
            m.line("memset", ring + self.shift, 0x1000, 0)
        for name, ring in (("EQ0", EQ), ("ASQ", SQ), ("ACQ", CQ)):
            self.set_register(REG[f"{name}_BASE_LO"], ring)
            self.set_register(REG[f"{name}_BASE_HI"], 0)
        self.set_register(REG["ADMIN_DEPTH"], LOG << 16 | LOG << 8 | self.log_eq())
        self.set_register(REG["CTRL"], ENABLE)
        self.posted = 0
        status = self.register(REG["STATUS"])
        assert status & READY, f"not ready: STATUS {status:#x}"

    def log_eq(self):
        """The depth of EQ 0, enough for the asynchronous events."""
        return 8

    def vector(self, index, addr, data):
        """Sets the address and data of a vector's message."""
        table = self.bars[4] + 16 * index
        for i, word in enumerate((addr, 0, data, 0)):
            self.machine.write(table + 4 * i, word)
        at = self.capability(machine.CAP_MSIX) + 2
        self.set_config(at, self.config(at, "w") & 0x3FFF | 0x8000, "w")

    def mask(self, index, masked):
        """Masks or unmasks a vector in the table."""
        self.machine.write(self.bars[4] + 16 * index + 12, int(masked))

    def is_pending(self, index):
        """A vector's pending bit."""
        at = self.config(self.capability(machine.CAP_MSIX) + 8) & ~7
        return bool(self.machine.read(self.bars[4] + at + index // 32 * 4) >> index % 32 & 1)

    def unmask_eq(self, number=0):
        """Unmasks an EQ: it interrupts at once, if it has events."""
        self.doorbell(BELL["EQ_HEAD"], number)

    def create_eq(self, vector):
        """Creates an EQ of 16 entries; returns its number."""
        return self.command(1, 1, context=[LOG << 16 | vector, 0, EQ1, 16 << LOG, 0, 0, 0, 0])

    def post(self, opcode=QUERY_DEVICE, context=CONTEXT, context_bytes=None, number=0, mask=0):
        """Posts an admin command."""
        size = 8 * len(COUNTERS) if context_bytes is None else context_bytes
        words = [opcode | 1 << 8 | 1 << 16 | number << 32, 0x77, context, mask | size << 32, 0, 0, 0, 0]
        self.machine.store(SQ + self.shift + 64 * (self.posted % (1 << LOG)), words)
        self.posted += 1
        self.doorbell(BELL["SQ"], self.posted << 32)

    def cqe(self, index):
        """The CQE with this index, or None if the device has not written it."""
        words = self.machine.words(CQ + self.shift + 32 * (index % (1 << LOG)), 4)
        return words if (words[3] >> 63) != (index >> LOG & 1) else None

    def wait(self, index):
        """Waits for the CQE with this index; the core runs in QEMU's main loop."""
        self.until(lambda: self.cqe(index))
        return self.cqe(index)

    def until(self, condition):
        """Advances time until a condition holds."""
        end = time.monotonic() + machine.TIMEOUT
        while not condition():
            status = self.register(REG["STATUS"])
            assert time.monotonic() < end, f"waited for too long; STATUS {status:#x}"
            self.machine.step(1000)

    def command(self, kind, verb, number=0, mask=0, context=()):
        """Runs an admin command; returns its first result."""
        self.machine.store(CONTEXT + self.shift, context)
        index = self.posted
        self.post(kind << 4 | verb, CONTEXT if context else 0, 8 * len(context), number, mask)
        entry = self.wait(index)
        assert status(entry) == 0, f"command {kind}.{verb}: {entry}"
        return entry[1] >> 32

    def query(self):
        """Queries the device's counters by an admin command."""
        index = self.posted
        self.post()
        entry = self.wait(index)
        assert entry[0] == 0x77 and status(entry) == 0, entry
        values = self.machine.words(CONTEXT + self.shift, len(COUNTERS))
        return dict(zip(COUNTERS, values))


def run(*args):
    """Runs QEMU until it ends by itself."""
    return subprocess.run(
        [*QEMU, "-nodefaults", "-display", "none", *args],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=machine.TIMEOUT,
    )  # fmt: skip


def status(entry):
    """The status of a CQE."""
    return entry[3] >> 40 & 0xFF


class Writer(Driver):
    """A queue pair that is its own peer, and writes from its only region to the same region."""

    QUEUE, ENTRIES, PAYLOAD = 0x150000, 0x160000, 0x170000
    BYTES = 0x2000
    FLAGS = 0
    posted_sends = 0

    def connect(self):
        create, modify = 1, 2
        cq, qp, mr, pd = 2, 3, 4, 5
        self.domain = domain = self.command(pd, create)
        entries = [self.ENTRIES, 32 << LOG, 0]
        self.cq = self.command(cq, create, context=[LOG << 48, 0, *entries, 0, 0, 0])
        queue = [self.QUEUE, 64 << LOG, 0]
        context = [domain, self.cq | self.cq << 32, LOG << 32, 0, REMOTE_WRITE << 32, 0, 0, self.FLAGS << 16, *queue, *queue, 0, 0]
        self.qp = self.command(qp, create, context=context)
        region = [self.PAYLOAD, self.BYTES, 0]
        access = LOCAL_WRITE | REMOTE_WRITE
        self.key = self.command(mr, create, context=[domain | access << 32, 0, *region, 0, 0, 0])
        for state, peer in ((1, 0), (2, self.qp), (3, 0)):
            mask = 3 if peer else 1
            self.command(qp, modify, self.qp, mask, [state << 56, 0, 0, peer, *[0] * 12])

    def send(self, wqe):
        """Posts a request of one block; returns its status."""
        m = self.machine
        m.store(self.QUEUE + self.shift + 64 * self.posted_sends, wqe)
        index, self.posted_sends = self.posted_sends, self.posted_sends + 1
        self.doorbell(BELL["SQ"], self.posted_sends << 32 | self.qp)
        entry = self.ENTRIES + self.shift + 32 * index
        self.until(lambda: m.words(entry, 4)[3] >> 63)
        return status(m.words(entry, 4))

    def write(self, source, target, size, key=None):
        """WRITEs the bytes at one offset to another, or to an address of another key; returns the status."""
        return self.send([3 | BLOCK | SGE, 0, target, key or self.key, source, size | self.key << 32, 0, 0])

    def write_page(self, word):
        """WRITEs a word to the second page; returns the status, and the word read back."""
        self.machine.store(self.PAYLOAD + self.shift, [word])
        return self.write(0, 0x1000, 8), self.second_page(self.shift)

    def second_page(self, shift):
        return self.machine.words(self.PAYLOAD + 0x1000 + shift, 1)[0]


class Registrar(Writer):
    """A writer that registers an FRMR, with a table of its pages."""

    FLAGS = 2
    TABLE = 0x180000

    def connect(self):
        super().connect()
        number = self.command(11, 1, context=[self.domain, *[0] * 7])
        self.frmr = 1 << 30 | number >> 16 << 24 | (number & 0xFFFF) << 8

    def reg_mr(self, tag, pages):
        """Registers so many pages at address 0; returns the status."""
        access = LOCAL_WRITE | REMOTE_WRITE
        return self.send([13 | BLOCK | access << 32, 1, 0, self.frmr | tag, self.TABLE, pages << 12, (1 << 8 | 12) << 32, 0])

    def local_inv(self, tag):
        """Ends the registration; returns the status."""
        return self.send([9 | BLOCK, 2, 0, self.frmr | tag, 0, 0, 0, 0])


def device(options="", slot=4, **more):
    """Arguments for one device on the root bus."""
    words = ["qpair", "id=q", f"addr={slot}"] + ([options] if options else [])
    words += [f"{k}={v}" for k, v in more.items()]
    if IOTHREAD:
        return ["-object", "iothread,id=core", "-device", ",".join([*words, "iothread=core"])]
    return ["-device", ",".join(words)]


PORT = ["-device", "pcie-root-port,id=rp,bus=pcie.0,addr=3,chassis=1"]
"""Arguments for a root port, the only one."""


def open_port(m):
    """Configures the root port to forward bus 1 and its memory."""
    port = Driver(m, 3, bars={4: 0xE1000000})
    port.set_config(0x10, port.bars[4])
    port.set_config(0x18, 0x00010100)
    port.set_config(0x20, 0xDFF0C000)
    port.set_config(0x24, 0x0000FFF0)
    port.set_config(machine.COMMAND, machine.MEMORY | machine.MASTER, "w")
    return port
