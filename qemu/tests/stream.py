# SPDX-License-Identifier: GPL-2.0
"""The function of channels, qpair-stream, in QEMU: cases of device.py."""

import re
import subprocess
import time

import machine
from driver import ABI, MESSAGE, PORT, QEMU, Driver, device, facts, open_port
from machine import Iommu, Machine, QmpError

REGISTER = r"pub (\w+)\(u32\) @ (0x\w+)"


def registers(file):
    return {name: int(value, 0) for name, value in facts(f"stream/{file}.rs", REGISTER).items()}


REG, CHAIN, RING = registers("regs"), registers("chain"), registers("headtail")
COUNTERS = [n.strip('"') for n in facts("stream/counters.rs", r'(\w+) = ("[\w-]+"),').values()]
CAUSES = {n: int(v) for n, v in facts("stream/mod.rs", r"(\w+) = (\d+), \"").items()}

BARS = {0: 0xC4000000, 4: 0xC4100000}
RESET = 2
TRANSMIT, RECEIVE = 0, 1
RUN, DONE, COMPLETE = 1, 1 << 12, 1 << 31
START, END = 1 << 27, 1 << 26
ENABLE = 1 << 25

# Addresses in guest memory: rings, by channel, and buffers.
RINGS, FROM, TO = 0x180000, 0x190000, 0x1A0000


def stream(options="", slot=5, **more):
    """Arguments for one function of channels on the root bus."""
    words = ["qpair-stream", "id=s", f"addr={slot}"] + ([options] if options else [])
    return ["-device", ",".join([*words, *(f"{k}={v}" for k, v in more.items())])]


class Channels(Driver):
    """A minimal driver: rings of eight descriptors, each used once."""

    def __init__(self, m, slot=5, bus=0):
        super().__init__(m, slot, bus=bus, bars=BARS)

    def block(self, channel, register):
        return 0x1000 + 64 * channel + register

    def get(self, channel, register):
        return self.register(self.block(channel, register))

    def put(self, channel, register, value):
        self.set_register(self.block(channel, register), value)

    def ring(self, channel):
        return RINGS + 0x1000 * channel

    def cause(self, channel):
        register = CHAIN["SR"] if self.get(channel, CHAIN["KIND"]) == 1 else RING["SR"]
        return self.get(channel, register) >> 4 & 0xFF

    def until(self, condition):
        end = time.monotonic() + machine.TIMEOUT
        while not condition():
            assert time.monotonic() < end, "waited for too long"
            self.machine.step(1000)

    def chain(self, channel, buffer, size, flags, control=0):
        """Starts a chain of eight descriptors for one buffer."""
        base = self.ring(channel)
        for i in range(8):
            words = [base + 64 * ((i + 1) % 8), buffer, 0, size | flags, 0, 0, 0, 0]
            self.machine.store(base + self.shift + 64 * i, words)
        self.put(channel, CHAIN["CURDESC"], base)
        self.put(channel, CHAIN["CURDESC_MSB"], 0)
        self.put(channel, CHAIN["CR"], RUN | control)

    def tail(self, channel, index):
        self.put(channel, CHAIN["TAILDESC_MSB"], 0)
        self.put(channel, CHAIN["TAILDESC"], self.ring(channel) + 64 * index)

    def complete(self, channel, index):
        word = self.machine.words(self.ring(channel) + self.shift + 64 * index, 4)[3]
        return word >> 32 & COMPLETE

    def headtail(self, channel, buffer, size, flags):
        """Starts a ring of eight descriptors for one buffer."""
        for i in range(8):
            self.machine.store(self.ring(channel) + 16 * i, [buffer, size | flags << 24])
        for name, value in (("BAL", self.ring(channel)), ("BAH", 0), ("LEN", 128), ("HEAD", 0), ("TAIL", 0)):
            self.put(channel, RING[name], value)
        self.put(channel, RING["DCTL"], ENABLE)

    def frame(self, word):
        """Sends a frame of a word from chain 0 to itself, which were just started."""
        self.machine.store(FROM + self.shift, [word])
        self.chain(TRANSMIT, FROM, 8, START | END)
        self.chain(RECEIVE, TO, 64, 0, 1 << 16 | DONE)
        self.tail(RECEIVE, 0)
        self.tail(TRANSMIT, 0)


def run(*args):
    command = [*QEMU, "-nodefaults", "-display", "none", "-machine", "q35", "-accel", "qtest", "-S", *args]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=machine.TIMEOUT
    )


def stream_properties_are_described_and_checked():
    lines = run("-device", "qpair-stream,help").stdout
    manual = (ABI.parents[1] / "Documentation/stream.rst").read_text()
    for name in (*COUNTERS, "channels", "kind", "stall", "vanish", "drop-interrupts"):
        assert re.search(rf"^  {name}=<\w+> +- \w", lines, re.MULTILINE), name
        assert re.search(rf"^(\d+ +)?``{name}`` ", manual, re.MULTILINE), f"{name} is not in the manual"
    assert "(default: 2)" in lines, lines
    for options, part in (
        ("channels=0", "'qpair-stream.channels' doesn't take value 0 (minimum: 1, maximum: 64)"),
        ("channels=65", "'qpair-stream.channels' doesn't take value 65"),
        ("kind=queue", "'qpair-stream.kind' doesn't take value 'queue' (chain, headtail, mixed)"),
        ("stall=on", "can be set once the device is realized"),
    ):
        result = run(*stream(options))
        assert result.returncode == 1 and part in result.stderr, f"{options}: {result.stderr}"
    with Machine(*QEMU, *stream("channels=3,kind=headtail")) as m:
        f = Channels(m)
        f.enable()
        assert f.register(REG["PAIRS"]) == 3
        assert [f.get(channel, CHAIN["KIND"]) for channel in range(7)] == [2] * 6 + [0]


def stream_is_a_pci_function():
    with Machine(*QEMU, *stream("channels=64")) as m:
        f = Channels(m)
        assert f.config(0) == 0x5151 << 16 | 0x1234, hex(f.config(0))
        assert f.config(8) == 0xFF0000 << 8 | 1, hex(f.config(8))
        assert f.bar_bytes(0) == (0x4000, 0)
        assert f.config(f.capability(machine.CAP_MSIX) + 2, "w") & 0x7FF == 128 - 1
        assert f.config(f.capability(machine.CAP_MSIX) + 4) & 7 == 4
        assert f.config(f.capability(machine.CAP_EXPRESS) + 4) & 1 << 28, "no function level reset"
        f.enable()
        assert f.register(REG["MAGIC"]) == int.from_bytes(b"QPS1", "little")
        assert m.read(BARS[0], "w") == 0, "accesses have 32 bits"


def chains_move_frames_and_interrupt():
    with Machine(*QEMU, *stream(), "--trace", "qpair_*") as m:
        f = Channels(m)
        f.enable()
        f.vector(1, MESSAGE, 0xCAFE)
        f.frame(0x1234567890)
        f.until(lambda: f.complete(RECEIVE, 0))
        f.until(lambda: m.read(MESSAGE) == 0xCAFE)
        assert m.words(TO, 1) == [0x1234567890]
        assert m.get("frames", "s") == 1 and m.get("frame-bytes", "s") == 8
        assert m.get("interrupts", "s") == 1 and m.get("descriptors", "s") == 2
        assert f.get(RECEIVE, CHAIN["SR"]) & DONE
        reads = m.get("reg-reads", "s")
        f.get(RECEIVE, CHAIN["SR"])
        assert m.get("reg-reads", "s") == reads + 1
        m.write(MESSAGE, 0)
        m.set("drop-interrupts", 1, "s")
        f.put(RECEIVE, CHAIN["SR"], DONE)
        f.tail(RECEIVE, 1)
        f.tail(TRANSMIT, 1)
        f.until(lambda: f.complete(RECEIVE, 1))
        assert m.read(MESSAGE) == 0 and m.get("drop-interrupts", "s") == 0
        f.put(TRANSMIT, CHAIN["TAILDESC"], 8)
        for name in ("frame", "halt", "reg_write"):
            assert f"qpair_{name} s: " in m.trace(), f"no trace of {name}"


def rings_move_frames_and_interrupt():
    with Machine(*QEMU, *stream()) as m:
        f = Channels(m)
        f.enable()
        f.vector(3, MESSAGE, 0xBEEF)
        m.store(FROM, [0x77])
        f.headtail(2, FROM, 8, 1 | 8)
        f.headtail(3, TO, 0, 0)
        f.put(3, RING["ITR"], 500)
        f.put(3, RING["IMS"], 1)
        f.put(3, RING["TAIL"], 7)
        f.put(2, RING["TAIL"], 1)
        f.until(lambda: m.words(f.ring(3) + 8, 1)[0] >> 32 & 1)
        f.until(lambda: m.read(MESSAGE) == 0xBEEF)
        assert m.words(TO, 1) == [0x77]
        assert m.words(f.ring(2) + 8, 1)[0] >> 32 & 1, "not written back"
        assert f.get(3, RING["HEAD"]) == 1 and f.get(3, RING["IMS"]) == 0
        # The next message waits for its interval, by the virtual clock.
        m.write(MESSAGE, 0)
        f.put(3, RING["IMS"], 1)
        f.put(2, RING["TAIL"], 2)
        end = time.monotonic() + machine.TIMEOUT
        while not m.words(f.ring(3) + 16 + 8, 1)[0] >> 32 & 1:
            assert time.monotonic() < end, "no second frame"
        assert m.read(MESSAGE) == 0, "too early"
        m.step(1000000)
        f.until(lambda: m.read(MESSAGE) == 0xBEEF)


def stream_vectors_can_be_masked():
    with Machine(*QEMU, *stream()) as m:
        f = Channels(m)
        f.enable()
        f.vector(1, MESSAGE, 0xCAFE)
        f.mask(1, True)
        f.frame(1)
        f.until(lambda: f.is_pending(1))
        assert m.read(MESSAGE) == 0
        f.mask(1, False)
        assert m.read(MESSAGE) == 0xCAFE and not f.is_pending(1)


def stream_resets_return_to_power_on():
    with Machine(*QEMU, *stream()) as m:
        f = Channels(m)

        def machine_reset():
            m.qmp("system_reset")
            m.event("RESET")

        def d3hot():
            f.power(3)
            f.power(0)

        def register():
            f.set_register(REG["CTRL"], RESET)

        for reset in (machine_reset, f.flr, d3hot, register):
            f.enable()
            f.frame(5)
            f.until(lambda: f.complete(RECEIVE, 0))
            reset()
            f.enable()
            assert m.get("frames", "s") == 0, reset
            for channel in range(4):
                assert f.get(channel, CHAIN["SR"] if channel < 2 else RING["SR"]) & 1
            assert f.get(TRANSMIT, CHAIN["CURDESC"]) == 0, reset


def stream_accesses_that_are_refused_halt():
    """Without bus mastering, and at an address that is not RAM but its own BAR."""
    with Machine(*QEMU, *stream()) as m:
        f = Channels(m)
        f.enable()
        f.set_config(machine.COMMAND, machine.MEMORY, "w")
        f.frame(1)
        f.until(lambda: f.cause(TRANSMIT))
        assert f.cause(TRANSMIT) == CAUSES["Descriptor"] and m.get("halts", "s") == 1
        f.set_config(machine.COMMAND, machine.MEMORY | machine.MASTER, "w")
        f.frame(2)
        f.until(lambda: f.complete(RECEIVE, 0))
        assert m.words(TO, 1) == [2], "a restart works"
        m.store(f.ring(TRANSMIT) + 64 + 8, [BARS[0] + 0x1000])
        f.tail(TRANSMIT, 1)
        f.until(lambda: f.cause(TRANSMIT))
        assert f.cause(TRANSMIT) == CAUSES["Data"], f.cause(TRANSMIT)


def stream_knobs_turn():
    with Machine(*QEMU, *stream()) as m:
        f = Channels(m)
        f.enable()
        m.set("stall", True, "s")
        f.frame(3)
        m.step(1000000)
        assert not f.complete(TRANSMIT, 0) and m.get("stall", "s")
        m.set("stall", False, "s")
        f.until(lambda: f.complete(RECEIVE, 0))
        m.set("vanish", True, "s")
        assert f.register(REG["MAGIC"]) == 0xFFFFFFFF and f.config(0) == 0xFFFFFFFF
        m.set("vanish", False, "s")
        assert f.register(REG["PAIRS"]) == 2


def stream_leaves_a_stopped_machine_alone():
    with Machine(*QEMU, *stream()) as m:
        f = Channels(m)
        f.enable()
        m.qmp("stop")
        f.frame(3)
        m.step(1000000)
        time.sleep(0.01)
        assert not f.complete(TRANSMIT, 0), "a frame was sent in a machine that is stopped"
        m.qmp("cont")
        f.until(lambda: f.complete(RECEIVE, 0))


def stream_goes_through_an_iommu():
    with Machine(*QEMU, "-device", "intel-iommu", *stream()) as m:
        f = Channels(m)
        f.enable()
        f.frame(1)
        f.until(lambda: f.complete(RECEIVE, 0))
        iommu = Iommu(m)
        iommu.on(devfn=5 << 3, iova=RINGS, shift=0x1000000)
        before = m.words(RINGS, 8)
        f.shift = 0x1000000
        f.set_register(REG["CTRL"], RESET)
        f.frame(7)
        f.until(lambda: f.complete(RECEIVE, 0))
        assert m.words(TO + f.shift, 1) == [7] and m.words(TO, 1) == [1]
        assert m.words(RINGS, 8) == before, "written past the IOMMU"
        iommu.map(TO, None)
        f.tail(RECEIVE, 1)
        f.tail(TRANSMIT, 1)
        f.until(lambda: f.cause(RECEIVE))
        assert f.cause(RECEIVE) == CAUSES["Data"]


def stream_is_not_migrated():
    with Machine(*QEMU, *stream()) as m:
        try:
            m.qmp("migrate", uri="exec:cat>/dev/null")
            raise AssertionError("migrated")
        except QmpError as error:
            assert "s: its channels cannot be migrated" in str(error), error


def both_functions_work_together():
    with Machine(*QEMU, *device(), *stream()) as m:
        f, g = Driver(m, 4), Channels(m)
        f.up()
        g.enable()
        g.frame(9)
        f.query()
        g.until(lambda: g.complete(RECEIVE, 0))
        assert m.words(TO, 1) == [9] and m.get("commands") == 1


def stream_unplug_ends():
    with Machine(*QEMU, *PORT, *stream(slot=0, bus="rp")) as m:
        open_port(m)
        f = Channels(m, 0, bus=1)
        f.bars = {0: 0xC0C00000, 4: 0xC0D00000}
        for _ in range(3):
            f.enable()
            f.chain(TRANSMIT, FROM, 8, START | END)
            m.qmp("device_del", id="s")
            f.tail(TRANSMIT, 7)
            for bus in range(2):
                m.line("outl", 0xCC0 + 0x10, bus)
                m.line("outl", 0xCC0 + 0x08, 1)
            m.event("DEVICE_DELETED")
            before = m.words(f.ring(TRANSMIT), 64)
            m.step(1000000)
            time.sleep(0.01)
            assert m.words(f.ring(TRANSMIT), 64) == before, "written after the end"
            assert f.config(0) == 0xFFFFFFFF, "still on the bus"
            m.qmp("device_add", driver="qpair-stream", id="s", bus="rp", addr="0")
        assert f.config(0) == 0x5151 << 16 | 0x1234


def an_unplugged_function_ends_beside_kept_mappings():
    """The mappings of one function keep no other function alive."""
    with Machine(*QEMU, *device(), *PORT, *stream(slot=0, bus="rp")) as m:
        open_port(m)
        g = Channels(m, 0, bus=1)
        g.bars = {0: 0xC0C00000, 4: 0xC0D00000}
        g.enable()
        f = Driver(m, 4)
        f.up()
        f.query()
        m.qmp("device_del", id="s")
        for bus in range(2):
            m.line("outl", 0xCC0 + 0x10, bus)
            m.line("outl", 0xCC0 + 0x08, 1)
        m.event("DEVICE_DELETED")
        f.query()


TESTS = [
    stream_properties_are_described_and_checked,
    stream_is_a_pci_function,
    chains_move_frames_and_interrupt,
    rings_move_frames_and_interrupt,
    stream_vectors_can_be_masked,
    stream_resets_return_to_power_on,
    stream_accesses_that_are_refused_halt,
    stream_knobs_turn,
    stream_leaves_a_stopped_machine_alone,
    stream_goes_through_an_iommu,
    stream_is_not_migrated,
    both_functions_work_together,
    stream_unplug_ends,
    an_unplugged_function_ends_beside_kept_mappings,
]
