#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""qemu/tests/device.py QEMU [-L DIR]...: tests of the device in QEMU.

The model itself is tested on the host and in guests. These tests cover the code in between:
properties, PCI, BARs, DMA, interrupts, reset, power states, errors, unplug; most of it twice, with
the core in QEMU's main loop and in an IOThread. QPAIR_TESTS in the environment are parts of the
names of those to run, all if it is empty. The output is TAP; the exit status is 0 if all passed.
"""

import os
import re
import struct
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import driver  # noqa: E402
import faults  # noqa: E402
import interrupts  # noqa: E402
import iommu  # noqa: E402
import machine  # noqa: E402
import network  # noqa: E402
import stream  # noqa: E402
import tap  # noqa: E402
from driver import (  # noqa: E402
    ABI,
    BELL,
    BUS_MASTER,
    CONTEXT,
    COUNTERS,
    CQ,
    CREATE_MR,
    CREATE_PD,
    ENABLE,
    EQ,
    FATAL,
    GENERAL,
    LOG,
    MESSAGE,
    PORT,
    QEMU,
    QUERY_DEVICE,
    READY,
    REG,
    RESET,
    SQ,
    Driver,
    device,
    open_port,
    run,
    status,
)
from machine import BARS, Function, Machine, QmpError  # noqa: E402


def own_properties():
    """Name and default of each property that only this device has."""
    inherited = set(re.findall(r"^  ([\w-]+)=<", run("-device", "pcie-pci-bridge,help").stdout, re.MULTILINE))
    lines = re.findall(r"^  ([\w-]+)=<\w+>(.*)$", run("-device", "qpair,help").stdout, re.MULTILINE)
    found = []
    for name, rest in lines:
        if name not in inherited:
            match = re.fullmatch(r" +- \w.*?(?: \(default: (\d+)\))?", rest)
            assert match, f"{name} has no description"
            found.append((name, match[1]))
    return found


def help_describes_every_property():
    names = [name for name, _ in own_properties()]
    missing = [n for n in COUNTERS if n not in names]
    assert not missing, f"counters that are no property: {missing}"
    for name in ("eqs", "max-qps", "max-page-shift", "core-delay-ns", "fail-command", "vanish"):
        assert name in names, name


def the_manual_has_every_property():
    text = (ABI.parents[1] / "Documentation/device.rst").read_text()
    manual = dict(re.findall(r"^(?:\d+ +)?``([\w-]+)`` +(\S+)", text, re.MULTILINE))
    for name, default in own_properties():
        assert name in manual, f"{name} is not in the manual"
        if default is not None and manual[name][0].isdigit():
            base, _, power = manual[name].partition("^")
            number = int(base) ** int(power or 1)
            assert number == int(default), f"{name}: the manual says {manual[name]}, not {default}"


def bad_values_are_refused():
    bad = {
        "eqs": (0, 2049, 2**32 + 1, 2**63),
        "max-qps": (1, 65537),
        "max-cqs": (1, 65537),
        "max-mrs": (0, 65537),
        "max-pds": (0, 65537),
        "max-srqs": (65537,),
        "max-mws": (4097,),
        "max-frmrs": (65537,),
        "max-groups": (65536,),
        "max-group-members": (65535,),
        "doorbell-pages": (0, 65537),
        "log-max-sq": (0, 25, 256),
        "log-max-eq": (0, 25),
        "max-send-sge": (0, 15, 255, 257),
        "max-inline": (225, 65536),
        "max-message": (1, 2**32 - 1),
        "min-page-shift": (11, 31),
        "max-page-shift": (11, 31, 64),
        "async-reserve": (0, 2**17),
        "wqes-per-turn": (0, 65537),
        "bytes-per-turn": (0, 2**30 + 1),
        "wqe-ns": (2**63,),
    }
    for name, values in bad.items():
        for value in values:
            result = run("-machine", "q35", "-accel", "qtest", "-S", "-device", f"qpair,{name}={value}")
            assert result.returncode == 1, f"{name}={value}: status {result.returncode}"
            for part in (f"'qpair.{name}'", f" {value} ", "minimum", "maximum"):
                assert part in result.stderr, f"{name}={value}: no {part!r} in {result.stderr!r}"


def properties_become_limits():
    with Machine(*QEMU, *device("eqs=3,max-qps=7,max-page-shift=13,doorbell-pages=5")) as m:
        f = Function(m, 4)
        f.enable()
        assert f.register(REG["LIMIT_EQ"]) == 3
        assert f.register(REG["LIMIT_QP"]) == 7
        assert f.register(REG["LIMIT_PAGE"]) == 5
        assert f.register(REG["LIMIT_REGION"]) >> 16 & 0xFF == 13
        assert f.config(f.capability(machine.CAP_MSIX) + 2, "w") & 0x7FF == 3 - 1
        assert f.bar_bytes(2)[0] == 8 * 4096
        try:
            m.set("eqs", 4)
            raise AssertionError("eqs was changed")
        except QmpError as error:
            assert "'qpair.eqs'" in str(error), error


def pci_is_as_documented():
    with Machine(*QEMU, *device()) as m:
        f = Function(m, 4)
        assert f.config(0) == 0x5150 << 16 | 0x1234, hex(f.config(0))
        assert f.config(8) == 0xFF0000 << 8 | 1, hex(f.config(8))
        assert f.bar_bytes(0) == (4096, 0)
        assert f.bar_bytes(2) == (1024 * 4096, 4)
        assert f.bar_bytes(4)[1] == 0
        express = f.capability(machine.CAP_EXPRESS)
        assert f.config(express + 4) & 1 << 28, "no function level reset"
        assert f.config(express + 4) & 1 << 15, "no role-based error reporting"
        power = f.capability(machine.CAP_POWER)
        assert f.config(power + 2, "w") == 3, "D0 and D3hot, no PME, version 1.2"
        assert f.config(power + 4, "w") == 0, "not in D0, or without a soft reset"
        assert m.read(f.extended(0x100)) == 2 << 16 | 0x0001, "no advanced error reporting"
        assert f.config(f.capability(machine.CAP_MSIX) + 4) & 7 == 4


def registers_are_32_bits():
    with Machine(*QEMU, *device()) as m:
        f = Function(m, 4)
        f.enable()
        assert f.register(REG["MAGIC"]) == struct.unpack("<I", b"QPR1")[0]
        assert f.register(REG["VERSION"]) >> 16 == 2
        assert f.register(0xFFC) == 0
        assert m.read(BARS[0], "b") == 0 and m.read(BARS[0], "w") == 0
        f.set_register(REG["MAGIC"], 0)
        assert f.register(REG["MAGIC"]) != 0


def doorbells_are_64_bits():
    with Machine(*QEMU, *device("doorbell-pages=3")) as m:
        f = Driver(m, 4)
        f.up()
        for letter in "bwl":
            f.doorbell(BELL["SQ"], 0, letter)
        f.doorbell(BELL["SQ"] + 4, 0)
        f.doorbell(BELL["SQ"], 0x5_0000_0005, page=2)
        assert m.get("violations") == 5, m.get("violations")
        f.doorbell(BELL["SQ"], 0, page=3)
        assert m.get("violations") in (5, 6)
        assert m.read(BARS[2] + 0x20, "q") == 0
        assert f.register(REG["STATUS"]) & (READY | FATAL) == READY


def commands_move_memory_and_interrupt():
    with Machine(*QEMU, *device(), "--trace", "qpair_*") as m:
        f = Driver(m, 4)
        f.up()
        f.vector(0, MESSAGE, 0xCAFE)
        f.doorbell(BELL["EQ_HEAD"], 0)
        f.doorbell(BELL["CQ_ARM_NEXT"], 0)
        counters = f.query()
        assert counters["sq-doorbells"] == 1 and counters["cq-arm-doorbells"] == 1, counters
        assert m.read(MESSAGE) == 0xCAFE, "no interrupt message"
        assert m.get("interrupts") == 1 and m.get("eqes") == 1
        assert m.get("commands") == 1 and m.get("cqes") == 1
        log = m.trace()
        for name in ("reg_write", "doorbell", "fetch", "command", "cqe", "eqe", "interrupt", "map"):
            assert f"qpair_{name} " in log, f"no trace of {name}"


def a_notify_waits_for_the_next_completion():
    with Machine(*QEMU, *device()) as m:
        f = Driver(m, 4)
        f.up()
        f.query()
        f.doorbell(BELL["CQ_NOTIFY"], 0)
        f.doorbell(BELL["CQ_NOTIFY_SOLICITED"], 1 << 32)
        assert m.get("cq-arm-doorbells") == 2 and m.get("violations") == 1
        # The violation is an event; the completion of the query came before the notify.
        assert m.get("eqes") == 1, m.get("eqes")
        f.query()
        assert m.get("eqes") == 2, m.get("eqes")
        f.query()
        assert m.get("eqes") == 2, "one notify, two events"


def keys_are_drawn():
    """Keys of memory regions are random, unless a seed fixes them."""

    def keys(options=""):
        with Machine(*QEMU, *device(options)) as m:
            f = Driver(m, 4)
            f.up()
            f.post(CREATE_PD, 0, 0)
            domain = f.wait(0)[1] >> 32
            m.store(CONTEXT, [domain | 1 << 32, 0, MESSAGE, 64, 0, 0, 0, 0])
            for _ in range(4):
                f.post(CREATE_MR, CONTEXT, 64)
            return [f.wait(index)[1] >> 32 for index in range(1, 5)]

    fixed = keys("key-seed=7")
    assert [key & 0xFFFF for key in fixed] == [0, 1, 2, 3], fixed
    assert keys("key-seed=7") == fixed and keys("key-seed=8") != fixed
    assert keys() != keys()


def commands_wait_for_the_virtual_clock():
    with Machine(*QEMU, *device("core-delay-ns=5000")) as m:
        f = Driver(m, 4)
        f.up()
        f.post()
        m.step(4000)
        assert not f.cqe(0), "the core did not wait"
        m.step(2000)
        # An IOThread runs a little after its deadline.
        end = time.monotonic() + (machine.TIMEOUT if driver.IOTHREAD else 0)
        while not f.cqe(0) and time.monotonic() < end:
            time.sleep(0.01)
        assert f.cqe(0), "the core did not work at its time"


def resets_return_to_power_on():
    with Machine(*QEMU, *device()) as m:
        f = Driver(m, 4)

        def machine_reset():
            m.qmp("system_reset")
            m.event("RESET")

        for reset in (lambda: f.set_register(REG["CTRL"], RESET), f.flr, machine_reset):
            f.up()
            f.query()
            reset()
            f.enable()
            assert f.register(REG["STATUS"]) & (READY | FATAL) == 0
            assert m.get("commands") == 0
            f.doorbell(BELL["SQ"], 1 << 32)
            m.step(1000000)
            assert m.get("commands") == 0


def d3hot_is_off():
    """A function that leaves D0 has no BARs and does nothing, and returns as after power-on."""
    with Machine(*QEMU, *device()) as m:
        f = Driver(m, 4)
        f.up()
        f.vector(0, MESSAGE, 0xCAFE)
        f.query()
        f.power(1)
        assert f.config(f.capability(machine.CAP_POWER) + 4, "w") == 0, "D1 was taken"
        f.query()
        bell = BARS[2] + BELL["SQ"]
        f.power(3)
        assert f.config(0) == 0x5150 << 16 | 0x1234
        assert f.register(REG["MAGIC"]) != struct.unpack("<I", b"QPR1")[0], "registers are there in D3hot"
        before = m.words(CQ, 16), m.words(EQ, 16)
        m.write(bell, 5 << 32, "q")
        m.step(1000000)
        assert (m.words(CQ, 16), m.words(EQ, 16)) == before, "written in D3hot"
        assert m.get("commands") == 0, "counters outlived D0"
        f.power(0)
        assert f.config(machine.COMMAND, "w") == 0 and f.config(0x10) == 0, "configuration outlived D3hot"
        assert f.config(f.capability(machine.CAP_MSIX) + 2, "w") & 0x8000 == 0, "MSI-X outlived D3hot"
        f.enable()
        assert f.register(REG["STATUS"]) & (READY | FATAL) == 0, "the function outlived D3hot"
        f.up()
        f.query()


def errors_reach_the_root_port():
    """An injected error is logged by the function, and its root port sends an interrupt."""
    status, command, source, nonfatal = 0x30, 0x2C, 0x34, 1 << 1
    aborted = 1 << 15
    with Machine(*QEMU, *PORT, *device(slot=0, bus="rp")) as m:
        port = open_port(m)
        f = Driver(m, 0, bus=1)
        f.up()
        port.vector(0, MESSAGE, 0xAE5)
        port.set_config(0x3E, 1 << 1, "w")
        m.write(port.extended(0x100 + command), nonfatal)
        for function in (f, port):
            function.set_config(function.capability(machine.CAP_EXPRESS) + 8, nonfatal, "w")

        def inject():
            words = "pcie_aer_inject_error q COMP_ABORT"
            answer = m.qmp("human-monitor-command", **{"command-line": words})
            assert answer.startswith("OK"), answer

        inject()
        assert m.read(f.extended(0x104)) == aborted, "not logged by the function"
        assert m.read(port.extended(0x100 + status)) & 1 << 5, "not reported to the root port"
        assert m.read(port.extended(0x100 + source)) >> 16 == 1 << 8, "another source"
        assert m.read(MESSAGE) == 0xAE5, "no interrupt of the root port"
        f.query()

        # After the error is cleared, the next one is reported again; a reset disables reporting.
        for at in (f.extended(0x104), port.extended(0x100 + status)):
            m.write(at, m.read(at))
            assert m.read(at) & 0x7FFFFFF == 0, "still there after it was cleared"
        m.write(MESSAGE, 0)
        f.flr()
        inject()
        assert m.read(f.extended(0x104)) == aborted
        assert m.read(MESSAGE) == 0, "reported after a reset that turned it off"


def without_bus_mastering_nothing_is_touched():
    with Machine(*QEMU, *device(), "--trace", "qpair_*") as m:
        f = Driver(m, 4)
        f.up()
        f.query()
        f.set_config(machine.COMMAND, machine.MEMORY, "w")
        assert "qpair_unmap_all " in m.trace(), "mappings were kept"
        before = m.words(CQ, 16), m.words(EQ, 16)
        f.post()
        m.step(1000000)
        assert (m.words(CQ, 16), m.words(EQ, 16)) == before, "written without bus mastering"
        # STATUS has the cause, which does not change.
        for command in (machine.MEMORY, machine.MEMORY | machine.MASTER):
            f.set_config(machine.COMMAND, command, "w")
            f.until(lambda: f.register(REG["STATUS"]) & FATAL)
            assert f.register(REG["STATUS"]) & 0xFF03 == BUS_MASTER << 8 | FATAL
        assert m.words(EQ, 16) == before[1], "an event after all"
        f.set_config(machine.COMMAND, machine.MEMORY | machine.MASTER, "w")
        f.set_register(REG["CTRL"], RESET)
        f.start()
        f.query()


def a_device_aimed_at_itself_survives():
    """Rings are in the device's own BARs, and interrupts write its own registers or reset it."""
    with Machine(*QEMU, *device()) as m:
        Function(m, 0).set_config(0x60, machine.MMCONFIG | 1)
        f = Driver(m, 4)
        f.enable()
        for name in ("EQ0", "ASQ", "ACQ"):
            for bar in BARS.values():
                f.set_register(REG["CTRL"], RESET)
                f.set_register(REG["ADMIN_DEPTH"], LOG << 16 | LOG << 8 | f.log_eq())
                for other, ring in (("EQ0", EQ), ("ASQ", SQ), ("ACQ", CQ)):
                    f.set_register(REG[f"{other}_BASE_LO"], bar if other == name else ring)
                f.set_register(REG["CTRL"], ENABLE)
                f.doorbell(BELL["CQ_ARM_NEXT"], 0)
                f.doorbell(BELL["EQ_HEAD"], 0)
                f.doorbell(BELL["SQ"], 1 << 32)
                m.step(1000000)
                assert f.register(REG["MAGIC"]) != 0
        for addr, data in (
            (BARS[0] + REG["CTRL"], RESET),
            (BARS[0] + REG["CTRL"], ENABLE),
            (BARS[2] + BELL["EQ_HEAD"], 0),
            (BARS[2] + BELL["SQ"], 5),
            (BARS[4], 0xFFFFFFFF),
            (machine.MMCONFIG + (4 << 15) + f.capability(machine.CAP_EXPRESS) + 8, 1 << 15),
        ):
            f.set_register(REG["CTRL"], RESET)
            f.up()
            f.vector(0, addr, data)
            f.doorbell(BELL["EQ_HEAD"], 0)
            f.doorbell(BELL["CQ_ARM_NEXT"], 0)
            f.post()
            # If the function was reset, its BARs are unmapped, and read as ones.
            f.until(lambda: m.get("interrupts") or not f.register(REG["STATUS"]) & READY or f.register(REG["MAGIC"]) == 0xFFFFFFFF)
        f.up()
        f.query()


def knobs_turn_at_run_time():
    with Machine(*QEMU, *device("fail-command=2")) as m:
        f = Driver(m, 4)
        f.up()
        f.query()
        f.post()
        assert status(f.wait(1)) == GENERAL, "the second command did not fail"
        m.set("fail-command", 1)
        assert m.get("fail-command") == 1
        m.set("stall", True)
        index = f.posted
        f.post()
        m.step(1000000)
        assert not f.cqe(index), "a stalled core worked"
        m.set("stall", False)
        f.wait(index)
        m.set("drop-interrupts", 3)
        assert m.get("drop-interrupts") == 3
        # The admin queue pair, its CQ and EQ 0.
        assert m.get("objects") == 3
        m.set("ignore-stops", 2)
        command = f.config(machine.COMMAND, "w")
        f.set_config(machine.COMMAND, command & ~machine.MASTER, "w")
        assert f.config(machine.COMMAND, "w") == command, "bus mastering is off"
        f.set_register(REG["CTRL"], RESET)
        assert f.register(REG["STATUS"]) & READY and m.get("ignore-stops") == 0
        try:
            m.set("objects", 1)
            raise AssertionError("objects was set")
        except QmpError as error:
            assert "'qpair.objects' cannot be set" in str(error), error
        m.set("fatal", True)
        assert f.register(REG["STATUS"]) & (READY | FATAL) == FATAL and m.get("fatal")
        m.set("restart", True)
        assert f.register(REG["STATUS"]) & 0xFF03 == 0 and m.get("restart")
        f.up()
        assert not m.get("restart")
        for bad in ("", "1", "0:1:2:3:x", "0:1:2:3:4:5"):
            try:
                m.set("inject-cqe", bad)
                raise AssertionError(f"inject-cqe took {bad!r}")
            except QmpError as error:
                assert "'qpair.inject-cqe'" in str(error), error


def unmapped_bars_refuse_dma():
    """Physical memory is read as by another device's DMA, which sees an error, not ones."""
    with Machine(*QEMU, *device()) as m:

        def dump():
            return m.qmp("human-monitor-command", **{"command-line": f"xp /1wx {f.bars[0]:#x}"})

        f = Function(m, 4)
        f.enable()
        assert f"{f.register(REG['MAGIC']):#x}" in dump()
        f.set_config(machine.COMMAND, 0, "w")
        assert "Cannot access memory" in dump(), dump()


def a_vanished_device_reads_as_ones():
    with Machine(*QEMU, *device()) as m:
        f = Driver(m, 4)
        f.up()
        m.set("vanish", True)
        assert f.register(REG["MAGIC"]) == 0xFFFFFFFF
        assert f.config(0) == 0xFFFFFFFF and f.config(8, "b") == 0xFF
        assert m.read(BARS[2], "q") == 2**64 - 1
        f.set_config(machine.COMMAND, 0, "w")
        m.set("vanish", False)
        assert f.config(machine.COMMAND, "w") & (machine.MEMORY | machine.MASTER)
        f.query()
        assert f.config(0) == 0x5150 << 16 | 0x1234


def migration_is_refused():
    with Machine(*QEMU, *device()) as m:
        try:
            m.qmp("migrate", uri="exec:cat>/dev/null")
            raise AssertionError("migrated")
        except QmpError as error:
            assert "q: its queues cannot be migrated" in str(error), error
    result = run("-machine", "q35", "-accel", "qtest", "-S", "-only-migratable", *device())
    assert result.returncode == 1 and "migrat" in result.stderr, result.stderr


def two_devices_are_two():
    with Machine(*QEMU, *device(), "-device", "qpair,id=r,addr=5") as m:
        f = Driver(m, 4)
        g = Driver(m, 5, bars={0: 0xC2000000, 2: 0xD0000000, 4: 0xC3000000})
        g.up()
        f.up()
        f.query()
        assert m.get("commands", "q") == 1 and m.get("commands", "r") == 0
        # DMA is for RAM, not for other devices.
        f.set_register(REG["CTRL"], RESET)
        f.set_register(REG["ACQ_BASE_LO"], g.bars[2])
        f.set_register(REG["ASQ_BASE_LO"], SQ)
        f.set_register(REG["EQ0_BASE_LO"], EQ)
        f.set_register(REG["ADMIN_DEPTH"], LOG << 16 | LOG << 8 | f.log_eq())
        f.set_register(REG["CTRL"], ENABLE)
        f.doorbell(BELL["SQ"], 1 << 32)
        f.until(lambda: f.register(REG["STATUS"]) >> 8 & 0xFF)
        assert m.get("dma-faults") and m.get("violations", "r") == 0
        assert m.get("sq-doorbells", "r") == 0


def unplug_ends():
    """Unplug behind a port, after bring-up, with delayed work, and through ACPI."""
    with Machine(*QEMU, *PORT, *device("core-delay-ns=1000000000", slot=0, bus="rp")) as m:
        open_port(m)
        f = Driver(m, 0, bus=1)
        f.up()
        f.post()
        m.qmp("device_del", id="q")
        for bus in range(2):
            m.line("outl", 0xCC0 + 0x10, bus)
            m.line("outl", 0xCC0 + 0x08, 1)
        assert m.event("DEVICE_DELETED").get("device") in ("q", None)
        m.step(2000000000)
        assert f.config(0) == 0xFFFFFFFF, "still on the bus"
        assert not f.cqe(0), "a device that is gone wrote memory"
        more = {"iothread": "core"} if driver.IOTHREAD else {}
        m.qmp("device_add", driver="qpair", id="q", bus="rp", addr="0", **more)
        assert f.config(0) == 0x5150 << 16 | 0x1234


def what_ends_the_work_ends_it_in_its_midst():
    """Commands are in flight; when an access that ends them returns, memory does not change any
    more."""
    with Machine(*QEMU, *device()) as m:
        f = Driver(m, 4)

        def master_off():
            f.set_config(machine.COMMAND, machine.MEMORY, "w")
            return lambda: f.set_config(machine.COMMAND, machine.MEMORY | machine.MASTER, "w")

        def vanish():
            m.set("vanish", True)
            return lambda: m.set("vanish", False)

        def stall():
            m.set("stall", True)
            return lambda: m.set("stall", False)

        def sleep():
            f.power(3)
            return lambda: f.power(0)

        def halt():
            m.qmp("stop")
            return lambda: m.qmp("cont")

        ends = (lambda: f.set_register(REG["CTRL"], RESET), f.flr, sleep, master_off, vanish, stall, halt)
        touched = 0
        for end in ends * 8:
            f.enable()
            f.set_register(REG["CTRL"], RESET)
            f.start()
            m.line("memset", CONTEXT, 0x1000, 0)
            for i in range(1 << LOG):
                words = [QUERY_DEVICE | 1 << 8 | 1 << 16, i, CONTEXT, 8 * len(COUNTERS) << 32, 0, 0, 0, 0]
                m.store(SQ + 64 * i, words)
            f.doorbell(BELL["SQ"], (1 << LOG) - 1 << 32)
            undo = end()
            before = m.words(CQ, 4 << LOG), m.words(CONTEXT, len(COUNTERS))
            touched += any(before[0])
            m.step(1000000)
            time.sleep(0.01)
            assert (m.words(CQ, 4 << LOG), m.words(CONTEXT, len(COUNTERS))) == before, "written after the end"
            if undo:
                undo()
        assert touched, "no command was done"
        f.set_register(REG["CTRL"], RESET)
        f.up()
        f.query()


def a_stopped_machine_is_left_alone():
    """What is due while the machine is stopped is done when it goes on: commands, and events."""
    for options in ("", "core-delay-ns=5000"):
        with Machine(*QEMU, *device(options)) as m:
            f = Driver(m, 4)
            f.up()
            m.qmp("stop")
            f.post()
            before = m.words(EQ, 4)
            m.set("inject-eqe", "0:77:77")
            m.step(1000000)
            time.sleep(0.01)
            assert not f.cqe(0), "a command was done in a machine that is stopped"
            assert m.words(EQ, 4) == before, "an event was written in a machine that is stopped"
            m.qmp("cont")
            assert m.words(EQ, 1) == [77], "the event was lost"
            f.wait(0)


def unplug_ends_the_work_in_its_midst():
    more = {"iothread": "core"} if driver.IOTHREAD else {}
    with Machine(*QEMU, *PORT, *device(slot=0, bus="rp")) as m:
        open_port(m)
        for _ in range(10):
            f = Driver(m, 0, bus=1)
            f.up()
            f.vector(0, MESSAGE, 0xCAFE)
            f.doorbell(BELL["EQ_HEAD"], 0)
            f.doorbell(BELL["CQ_ARM_NEXT"], 0)
            m.qmp("device_del", id="q")
            for _ in range(1 << LOG):
                f.post()
            for bus in range(2):
                m.line("outl", 0xCC0 + 0x10, bus)
                m.line("outl", 0xCC0 + 0x08, 1)
            m.event("DEVICE_DELETED")
            before = m.words(CQ, 4 << LOG), m.words(CONTEXT, len(COUNTERS))
            time.sleep(0.01)
            assert (m.words(CQ, 4 << LOG), m.words(CONTEXT, len(COUNTERS))) == before, "written after the end"
            m.qmp("device_add", driver="qpair", id="q", bus="rp", addr="0", **more)
        f.up()
        f.query()


def a_thread_does_not_go_with_icount():
    options = ["-machine", "q35", "-accel", "tcg,thread=single", "-icount", "shift=0", "-S"]
    result = run(*options, "-object", "iothread,id=core", "-device", "qpair,id=q,iothread=core")
    assert result.returncode == 1, f"status {result.returncode}"
    for part in ("q: iothread= does not go with -icount", "leave out one of the two"):
        assert part in result.stderr, result.stderr


# Tests of QEMU's output and of the function of channels, independent of the core's thread.
WORDS = [
    help_describes_every_property,
    the_manual_has_every_property,
    bad_values_are_refused,
    *faults.WORDS,
    a_thread_does_not_go_with_icount,
    *network.WORDS,
    *stream.TESTS,
]

# With the core in the main loop, and in a thread.
TESTS = [
    properties_become_limits,
    pci_is_as_documented,
    registers_are_32_bits,
    doorbells_are_64_bits,
    commands_move_memory_and_interrupt,
    a_notify_waits_for_the_next_completion,
    *interrupts.TESTS,
    keys_are_drawn,
    commands_wait_for_the_virtual_clock,
    resets_return_to_power_on,
    d3hot_is_off,
    errors_reach_the_root_port,
    without_bus_mastering_nothing_is_touched,
    *iommu.TESTS,
    a_device_aimed_at_itself_survives,
    knobs_turn_at_run_time,
    *faults.TESTS,
    unmapped_bars_refuse_dma,
    a_vanished_device_reads_as_ones,
    migration_is_refused,
    two_devices_are_two,
    *network.TESTS,
    unplug_ends,
    what_ends_the_work_ends_it_in_its_midst,
    a_stopped_machine_is_left_alone,
    unplug_ends_the_work_in_its_midst,
]


def case(test, thread):
    """A test by name, with the core in an IOThread or in the main loop."""

    def run():
        driver.IOTHREAD = thread
        test()

    return tap.name_of(test) + (", in a thread" if thread else ""), run


def main():
    if not QEMU:
        sys.exit(__doc__)
    names = os.environ.get("QPAIR_TESTS", "").split()
    tests = [(test, False) for test in WORDS + TESTS] + [(test, True) for test in TESTS]
    tests = [(test, thread) for test, thread in tests if not names or any(name in test.__name__ for name in names)]
    return tap.run([case(test, thread) for test, thread in tests])


if __name__ == "__main__":
    sys.exit(main())
