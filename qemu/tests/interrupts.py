# SPDX-License-Identifier: GPL-2.0
"""The path of interrupts from the model to the guest: cases of device.py."""

import re
import time

import driver
import machine
from driver import APIC, APIC_VECTOR, BELL, MESSAGE, QEMU, REG, RESET, Driver, device
from machine import BARS, Machine, Ringer


def sent(m, thread=None):
    """The number of messages sent by the IOThread, by other threads, or by any thread."""
    by = r"\d" if thread is None else str(int(thread))
    return len(re.findall(rf"qpair_message .* sent, by the IOThread {by}", m.trace()))


def a_masked_vector_is_pending():
    """Masked by its own bit, by the function mask, or with MSI-X disabled: the message is sent
    afterwards, once."""
    with Machine(*QEMU, *device()) as m:
        f = Driver(m, 4)
        f.up()
        f.vector(0, MESSAGE, 0xCAFE)
        control = f.capability(machine.CAP_MSIX) + 2
        m.set("inject-eqe", "0:0:0")
        masks = (
            (lambda: f.mask(0, True), lambda: f.mask(0, False)),
            (lambda: f.set_config(control, 0xC000, "w"), lambda: f.set_config(control, 0x8000, "w")),
            (lambda: f.set_config(control, 0x0000, "w"), lambda: f.set_config(control, 0x8000, "w")),
        )
        for mask, unmask in masks:
            mask()
            m.write(MESSAGE, 0)
            before = m.get("interrupts")
            f.unmask_eq()
            f.until(lambda: f.is_pending(0))
            assert m.get("interrupts") == before + 1, "the model does not know of MSI-X"
            assert m.read(MESSAGE) == 0, "sent while it was masked"
            unmask()
            assert m.read(MESSAGE) == 0xCAFE and not f.is_pending(0), "not sent afterwards"


def an_interrupt_that_its_message_raises_is_sent():
    """A message makes another device ring a doorbell, which raises the same vector while it is
    being sent."""
    with Machine(*QEMU, *device(), *Ringer.DEVICE, "--trace", "qpair_*") as m:
        f = Driver(m, 4)
        f.enable()
        ringer = Ringer(m, BARS[2] + BELL["EQ_HEAD"])
        f.vector(0, ringer.BAR + ringer.NOTIFY, 0)

        def by_property():
            m.set("inject-eqe", "0:0:0")

        def by_core():
            f.doorbell(BELL["CQ_ARM_NEXT"], 0)
            f.post()

        # If the device's own bottom half sends, QEMU refuses the doorbell unless it takes no lock.
        for raises in (by_property, by_core) if driver.IOTHREAD else (by_property,):
            before = sent(m)
            f.set_register(REG["CTRL"], RESET)
            f.start()
            f.unmask_eq()
            ringer.load()
            raises()
            f.until(lambda: sent(m) >= before + 2)
            assert m.get("interrupts") == 2, m.get("interrupts")


def a_reset_forgets_what_was_raised():
    """Two vectors are raised at once. The message of one resets the function, so that of the other
    is never sent."""
    with Machine(*QEMU, *device(), "--trace", "qpair_*") as m:
        f = Driver(m, 4)
        flr = f.extended(f.capability(machine.CAP_EXPRESS) + 8)
        f.up()
        number = f.create_eq(vector=1)
        f.vector(0, flr, 1 << 15)
        f.vector(1, MESSAGE, 0xCAFE)
        f.unmask_eq()
        f.unmask_eq(number)
        m.set("delay-interrupts-ns", 1000)
        m.write(MESSAGE, 0)
        m.set("inject-eqe", "0:0:0")
        m.set("inject-eqe", "1:0:0")
        assert sent(m) == 0
        f.until(lambda: sent(m))
        assert f.config(machine.COMMAND, "w") == 0, "no reset"
        assert m.trace().count("qpair_interrupt ") == 2, "not raised"
        m.set("delay-interrupts-ns", 0)
        f.up()
        f.vector(1, MESSAGE, 0xBEEF)
        assert not f.is_pending(1) and m.read(MESSAGE) == 0, "an interrupt outlived a reset"
        assert sent(m) == 1, "sent after a reset"


def the_thread_sends_where_it_may():
    """The core's thread sends to the interrupt controller, the main loop to other addresses. Without
    bql_trylock() (qemu/patches/0003) the main loop sends all."""
    thread_sends = driver.IOTHREAD and not driver.PLUGIN
    with Machine(*QEMU, *device(), "--trace", "qpair_*") as m:
        f = Driver(m, 4)
        f.up()
        m.set("inject-eqe", "0:0:0")
        m.set("delay-interrupts-ns", 1000)

        def one(address, data):
            f.vector(0, address, data)
            before = sent(m)
            f.unmask_eq()
            f.until(lambda: sent(m) > before)

        one(APIC, APIC_VECTOR)
        one(MESSAGE, 0xCAFE)
        assert m.read(MESSAGE) == 0xCAFE
        # The thread does not send while the main loop holds the lock, so try several times.
        end = time.monotonic() + machine.TIMEOUT
        while thread_sends and sent(m, thread=True) < 8:
            assert time.monotonic() < end, "the thread never sends"
            one(APIC, APIC_VECTOR)
            before = sent(m, thread=True)
            one(MESSAGE, 0xCAFE)
            assert sent(m, thread=True) == before, "the thread sent to memory"
        assert thread_sends or not sent(m, thread=True)
        lapic = m.qmp("human-monitor-command", **{"command-line": "info lapic"})
        assert re.search(rf"IRR.*\b{APIC_VECTOR}\b", lapic), lapic


TESTS = [
    a_masked_vector_is_pending,
    an_interrupt_that_its_message_raises_is_sent,
    a_reset_forgets_what_was_raised,
    the_thread_sends_where_it_may,
]
