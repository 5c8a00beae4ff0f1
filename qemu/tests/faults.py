# SPDX-License-Identifier: GPL-2.0
"""Fault points, set at the start and at run time: cases of device.py."""

from driver import BELL, QEMU, REG, Writer, device, run, status
from machine import Machine, QmpError


def rules_are_set_at_the_start_and_at_run_time():
    """A rule fails the second write; the property has the rules and what they did."""
    rules = "seed=3;fail=rem-op,opcode=write,nth=2"
    words = device(f"faults={rules.replace(',', ',,')}")
    with Machine(*QEMU, *words, "--trace", "qpair_fault", "--trace", "qpair_garbage") as m:
        w = Writer(m, 4)
        w.up()
        w.connect()
        assert m.get("faults") == rules
        # Counts since the rules were set; the commands are none of them.
        assert m.get("faults-injected") == "fail 0 of 0", m.get("faults-injected")
        assert [w.write(0, 8, 8), w.write(0, 8, 8)] == [0, 11]
        assert m.get("faults-injected") == "fail 1 of 2"
        line = f"q: fault of rule 1: QP {w.qp & 0xFFFF}.{w.qp >> 16} opcode 3, before SQ index 2"
        assert line in m.trace(), m.trace()
        # Rules that are refused change nothing.
        for bad, why in (("fail=rem-opp", "rule 1, 'fail=rem-opp': a status is one of"), ("freeze;qp=1", "rule 2, 'qp=1': no action")):
            try:
                m.set("faults", bad)
                raise AssertionError(f"{bad} was accepted")
            except QmpError as error:
                assert f"'qpair.faults': {why}" in str(error), error
        assert m.get("faults") == rules and m.get("faults-injected") == "fail 1 of 2"
        try:
            m.set("faults-injected", "")
            raise AssertionError("the counts were set")
        except QmpError as error:
            assert "cannot be set" in str(error), error
        # The wr_id of a completion, here of a request that is flushed, and a register.
        m.set("faults", "garble=cqe:0;garble=register:1")
        assert w.write(0, 8, 8) == 5
        w.register(REG["VERSION"])
        name = f"{w.qp & 0xFFFF}.{w.qp >> 16}"
        for line in (f"q: garbage of rule 1: number {name} word 0", "q: garbage of rule 2: number 0.0 word 1"):
            assert line in m.trace(), m.trace()
        m.set("faults", "")
        assert m.get("faults") == "" and m.get("faults-injected") == ""


def a_frozen_queue_pair_goes_on_at_run_time():
    with Machine(*QEMU, *device("faults=freeze")) as m:
        w = Writer(m, 4)
        w.up()
        w.connect()
        m.store(w.PAYLOAD, [77])
        before = m.get("send-wqes")
        ring = w.QUEUE
        m.store(ring, [3 | 1 << 8 | 1 << 16 | 1 << 24, 0, 0x1000, w.key, 0, 8 | w.key << 32, 0, 0])
        w.doorbell(BELL["SQ"], 1 << 32 | w.qp)
        w.until(lambda: m.get("faults-injected") == "freeze 1 of 1")
        m.step(10**9)
        assert m.get("send-wqes") > before and w.second_page(0) == 0, "a frozen queue pair has moved bytes"
        m.set("faults", "")
        w.until(lambda: m.words(w.ENTRIES, 4)[3] >> 63)
        assert status(m.words(w.ENTRIES, 4)) == 0 and w.second_page(0) == 77


def bad_rules_are_refused_at_the_start():
    for bad, why in (("fail=x", "rule 1, 'fail=x': a status is one of loc-len"), ("delay=1", "rule 1, 'delay=1': a number with ns")):
        result = run("-machine", "q35", "-accel", "qtest", "-S", "-device", f"qpair,faults={bad}")
        assert result.returncode == 1, f"{bad}: status {result.returncode}"
        assert f"Property 'qpair.faults': {why}" in result.stderr, result.stderr


# Of QEMU's output.
WORDS = [bad_rules_are_refused_at_the_start]

TESTS = [rules_are_set_at_the_start_and_at_run_time, a_frozen_queue_pair_goes_on_at_run_time]
