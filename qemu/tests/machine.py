# SPDX-License-Identifier: GPL-2.0
"""A machine without a processor: this program is its CPU.

QEMU's qtest accelerator runs no guest code; port and memory accesses are sent as lines of text
instead, and the virtual clock advances only on command. So a test controls every access to the
device.
"""

import json
import os
import socket
import subprocess
import tempfile

TIMEOUT = 30

# The address of the BARs: 32-bit space below q35's own windows.
MMCONFIG = 0xB0000000
BARS = {0: 0xC0000000, 2: 0xC8000000, 4: 0xC1000000}

COMMAND = 0x04
STATUS = 0x06
CAPABILITIES = 0x34
MEMORY = 1 << 1
MASTER = 1 << 2
CAP_POWER = 0x01
CAP_MSIX = 0x11
CAP_EXPRESS = 0x10


class Line:
    """A socket that QEMU connects to, read line by line."""

    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1)
        self.listener.settimeout(TIMEOUT)

    def accept(self):
        self.socket, _ = self.listener.accept()
        self.listener.close()
        self.socket.settimeout(TIMEOUT)
        self.file = self.socket.makefile("rw", encoding="utf-8", newline="\n")

    def write(self, text):
        self.file.write(text + "\n")
        self.file.flush()

    def read(self):
        line = self.file.readline()
        if not line:
            raise EOFError("QEMU closed the connection")
        return line.rstrip("\n")

    def close(self):
        self.file.close()
        self.socket.close()


class QmpError(Exception):
    """A QMP command was refused."""


class Machine:
    """A running QEMU, for a `with` block."""

    def __init__(self, *qemu, base=("-machine", "q35", "-accel", "qtest", "-m", "64M"), files=()):
        self.folder = tempfile.TemporaryDirectory(prefix="qpair-")
        self.log = os.path.join(self.folder.name, "log")
        qtest = os.path.join(self.folder.name, "qtest")
        qmp = os.path.join(self.folder.name, "qmp")
        self.qtest = Line(qtest)
        self.qmp_line = Line(qmp)
        self.events = []
        self.process = subprocess.Popen(
            [*qemu[:1], *base, "-nodefaults", "-display", "none", "-qtest", f"unix:{qtest}",
             "-qtest-log", "/dev/null", "-qmp", f"unix:{qmp}", "-D", self.log, *qemu[1:]],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=files,
        )  # fmt: skip

    def __enter__(self):
        try:
            self.qmp_line.accept()
            self.qtest.accept()
            self.qmp_line.read()
            self.qmp("qmp_capabilities")
        except (EOFError, OSError) as error:
            self.process.kill()
            raise AssertionError(f"QEMU did not start: {self.process.stderr.read()}") from error
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            try:
                self.qmp("quit")
            except (EOFError, OSError):
                pass
        try:
            status = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.errors = self.process.stderr.read()
        self.process.stderr.close()
        self.qtest.close()
        self.qmp_line.close()
        self.folder.cleanup()
        assert status == 0, f"QEMU ended with {status}: {self.errors}"

    def trace(self):
        """QEMU's log so far."""
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    # QMP

    def qmp(self, command, **arguments):
        self.qmp_line.write(json.dumps({"execute": command, "arguments": arguments}))
        while True:
            answer = json.loads(self.qmp_line.read())
            if "event" in answer:
                self.events.append(answer)
            elif "error" in answer:
                raise QmpError(answer["error"]["desc"])
            else:
                return answer["return"]

    def event(self, name):
        """Waits for an event."""
        while True:
            for event in self.events:
                if event["event"] == name:
                    self.events.remove(event)
                    return event["data"]
            answer = json.loads(self.qmp_line.read())
            if "event" in answer:
                self.events.append(answer)

    def get(self, name, device="q"):
        return self.qmp("qom-get", path=f"/machine/peripheral/{device}", property=name)

    def set(self, name, value, device="q"):
        self.qmp("qom-set", path=f"/machine/peripheral/{device}", property=name, value=value)

    # The bus

    def line(self, *words):
        self.qtest.write(" ".join(w if isinstance(w, str) else hex(w) for w in words))
        while True:
            answer = self.qtest.read().split()
            if answer[0] == "OK":
                return int(answer[1], 0) if len(answer) > 1 else None
            assert answer[0] != "FAIL", answer

    def read(self, addr, letter="l"):
        return self.line(f"read{letter}", addr)

    def write(self, addr, value, letter="l"):
        self.line(f"write{letter}", addr, value)

    def words(self, addr, count):
        return [self.read(addr + 8 * i, "q") for i in range(count)]

    def store(self, addr, words):
        for i, word in enumerate(words):
            self.write(addr + 8 * i, word, "q")

    def step(self, nanos):
        """Advances the virtual clock."""
        self.line("clock_step", str(nanos))


class Function:
    """A PCI function of a machine."""

    def __init__(self, machine, slot, bus=0, bars=None):
        self.machine = machine
        self.address = 0x80000000 | bus << 16 | slot << 11
        self.bars = bars or BARS

    def config(self, offset, letter="l"):
        self.machine.line("outl", 0xCF8, self.address | offset & ~3)
        return self.machine.line(f"in{letter}", 0xCFC + (offset & 3))

    def set_config(self, offset, value, letter="l"):
        self.machine.line("outl", 0xCF8, self.address | offset & ~3)
        self.machine.line(f"out{letter}", 0xCFC + (offset & 3), value)

    def extended(self, offset):
        """The memory address of a register of the extended configuration space."""
        Function(self.machine, 0).set_config(0x60, MMCONFIG | 1)
        return MMCONFIG + ((self.address & 0xFFFFFF) << 4) + offset

    def bar_bytes(self, bar):
        """Size of a BAR, and its low bits."""
        at = 0x10 + 4 * bar
        self.set_config(at, 0xFFFFFFFF)
        value = self.config(at)
        flags = value & 0xF
        if flags & 4:
            self.set_config(at + 4, 0xFFFFFFFF)
            value |= self.config(at + 4) << 32
            return ((~(value & ~0xF)) & (2**64 - 1)) + 1, flags
        return ((~(value & ~0xF)) & (2**32 - 1)) + 1, flags

    def enable(self):
        """Sets the BARs' addresses, and enables memory decoding and bus mastering."""
        for bar, addr in self.bars.items():
            self.set_config(0x10 + 4 * bar, addr)
        self.set_config(0x10 + 4 * 3, 0)
        self.set_config(COMMAND, MEMORY | MASTER, "w")

    def capability(self, wanted):
        """Offset of a capability, or None."""
        at = self.config(CAPABILITIES, "b")
        while at:
            if self.config(at, "b") == wanted:
                return at
            at = self.config(at + 1, "b")
        return None

    def flr(self):
        """Function level reset."""
        control = self.capability(CAP_EXPRESS) + 8
        self.set_config(control, self.config(control, "w") | 1 << 15, "w")

    def power(self, state):
        """Goes to D0 (0) or D3hot (3)."""
        self.set_config(self.capability(CAP_POWER) + 4, state, "w")

    def register(self, offset):
        return self.machine.read(self.bars[0] + offset)

    def set_register(self, offset, value):
        self.machine.write(self.bars[0] + offset, value)

    def doorbell(self, offset, value, letter="q", page=0):
        self.machine.write(self.bars[2] + page * 4096 + offset, value, letter)


class Iommu:
    """A minimal set-up of an Intel IOMMU: one function, one table of 4 KiB pages, IOVAs below 2
    MiB."""

    BASE = 0xFED90000
    GCMD, RTADDR, IOTLB = 0x18, 0x20, 0xF8
    SET_ROOT, TRANSLATE = 1 << 30, 1 << 31
    ROOT, CONTEXT, UPPER, MIDDLE, PAGES = (0x800000 + 0x1000 * i for i in range(5))

    def __init__(self, machine):
        self.machine = machine

    def on(self, devfn, iova, shift):
        """Enables translation: all pages from `iova` on are mapped `shift` higher."""
        m = self.machine
        for table in (self.ROOT, self.CONTEXT, self.UPPER, self.MIDDLE, self.PAGES):
            m.line("memset", table, 0x1000, 0)
        m.store(self.ROOT, [self.CONTEXT | 1, 0])
        m.store(self.CONTEXT + 16 * devfn, [self.UPPER | 1, 1 << 8 | 1])
        m.store(self.UPPER, [self.MIDDLE | 3])
        m.store(self.MIDDLE, [self.PAGES | 3])
        first = iova >> 12
        m.store(self.PAGES + 8 * first, [(i << 12) + shift | 3 for i in range(first, 512)])
        m.write(self.BASE + self.RTADDR, self.ROOT, "q")
        m.write(self.BASE + self.GCMD, self.SET_ROOT)
        m.write(self.BASE + self.GCMD, self.TRANSLATE)

    def map(self, iova, addr):
        """Changes or unmaps a page: first the table, then the IOTLB."""
        entry = 0 if addr is None else addr | 3
        self.machine.store(self.PAGES + 8 * (iova >> 12), [entry])
        self.machine.write(self.BASE + self.IOTLB, 1 << 63 | 1 << 60, "q")


class Ringer(Function):
    """A virtio balloon that reacts to a 32-bit write, such as an MSI, with one 8-byte write of
    zeroes, before it returns.

    Its only queue has one entry, and it writes the used entry to the address `rings`.
    """

    DEVICE = ["-device", "virtio-balloon-pci,addr=6,disable-legacy=on,ioeventfd=off"]
    BAR, NOTIFY = 0xE2000000, 0x3000
    TABLE, AVAIL, BYTES = 0x150000, 0x151000, 0x152000

    def __init__(self, machine, rings):
        super().__init__(machine, 6, bars={4: self.BAR})
        self.enable()
        m = machine
        for at, value, letter in (
            (0x14, 0, "b"), (0x14, 1 | 2, "b"),
            (0x08, 1, "l"), (0x0C, 1, "l"), (0x14, 1 | 2 | 8, "b"),  # VIRTIO_F_VERSION_1
            (0x16, 0, "w"), (0x18, 1, "w"),
            (0x20, self.TABLE, "q"), (0x28, self.AVAIL, "q"), (0x30, rings - 4, "q"),
            (0x1C, 1, "w"), (0x14, 1 | 2 | 4 | 8, "b"),
        ):  # fmt: skip
            m.write(self.BAR + at, value, letter)
        m.store(self.TABLE, [self.BYTES, 2])
        m.line("memset", self.AVAIL, 16, 0)
        m.write(self.AVAIL, 1, "w")
        self.loaded = 0

    def load(self):
        """Prepares the queue so that the next notification rings once."""
        self.loaded += 1
        self.machine.write(self.AVAIL + 2, self.loaded, "w")
