# SPDX-License-Identifier: GPL-2.0
"""The layer `kunit` of scripts/test: the modules' KUnit suites in a guest."""

import re

from qp import base, guest as runner, jobs, ktap

# Kernel parameters with which suites run: of the kernel at boot, of a module when it is loaded.
APPEND = "kunit.enable=1 kunit.autorun=1"


def suites(*folders):
    """The KUnit suites in sources, and how many tests each has."""
    found = {}
    for path in (path for folder in folders for path in (base.TOP / folder).rglob("*.rs")):
        _, *parts = re.split(r"#\[(?:[\w:]+::)?kunit_tests\((\w+)\)\]", path.read_text())
        for name, text in zip(parts[::2], parts[1::2]):
            found[name] = len(re.findall(r"^\s*#\[test\]", text, re.MULTILINE))
    return found


def show(found):
    """The shell command that prints the results of suites; the kernel has others of its own."""
    return "; ".join(f"cat /sys/kernel/debug/kunit/{name}/results" for name in found) or "true"


def judged(found, status, text):
    """The results that a guest has printed."""
    count = ktap.of_ktap(text)
    for name, expected in found.items():
        # A suite that never ran prints `ok` as well, but has neither this sum nor, if KUnit leaves out
        # the sum of a single test, the line of that.
        ran = rf"^\s*# {name}: pass:\d+ fail:0 skip:\d+ total:{expected}\b"
        if expected == 1:
            ran = rf"^\s*# Subtest: {name}\n\s*1\.\.1\n(?:\s*#.*\n)*\s+ok 1 "
        if not re.search(ran, text, re.MULTILINE):
            count.fail(f"{name} has no result of {expected} tests")
    if count.total < sum(found.values()):
        count.fail(f"{count.total} results instead of {sum(found.values())}")
    if status != 0:
        count.fail(runner.WHY.get(status, f"status {status}"))
    return count


def run(timeout):
    """The job of the layer: both modules, in the debug kernel."""
    found = suites("rust", "stream")
    options = ["--kernel", "debug", "--stream", "--append", APPEND]
    status, text, _ = jobs.guest("kunit", options, ["sh", "-c", show(found)], timeout)
    return judged(found, status, text)
