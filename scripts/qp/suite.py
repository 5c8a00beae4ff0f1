# SPDX-License-Identifier: GPL-2.0
"""Runs the tests, layer by layer.

    scripts/test [--list] [LAYER[/NAME]]...

layer   what runs
host    `cargo test` of the workspace: rules, device model, ring code
mutants the suites of the rules, of the device and of the library, under each wrong variant, which they must catch;
        every interleaving of small instances of the event path and of flow control; the order of memory of the rings
device  the device in QEMU, without a guest: PCI, properties, DMA, reset, unplug
kunit   the module's KUnit suites, in the test kernel
stock   the tests of the plans on the stock kernel, without an IOMMU
iommu   the same with one
7.3     the same on the test kernel, which is of the newest series; skipped where the stock kernel is of that series
debug   the same on the debug kernel; its detectors have to report planted bugs
verbs   unmodified programs of verbs, and rdma-core's own tests, on the device and on soft-RoCE (provider/tests.toml)
figures counted figures against those in tools/bench/figures.json

How to add a test:
- on the host: a `#[test]` anywhere in the Cargo workspace;
- of the device in QEMU: a function of qemu/tests/device.py, and its line in TESTS;
- in KUnit: a `#[test]` in a module marked `#[kunit_tests(name)]`, in rust/;
- in a guest: a case of tools/selftests and its count in plan.toml, or another
  tools/*/plan.toml. That file lists the commands for each guest, and the number of results of each;
  a comment at its top explains it. A command prints KTAP, or, if the plan has no `tests`, it is one
  test by its exit status. A test also fails if the kernel warns, if the module cannot be removed
  afterwards, and, on the debug kernel, if memory leaks.

A layer that finds no test fails. The last line has the total, and build/test.json all results.
"""

import argparse
import collections.abc
import concurrent.futures
import dataclasses
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib

from qp import barriers
from qp import base
from qp import crates
from qp import detectors
from qp import figures
from qp import guest as runner
from qp import kernel as kernels
from qp import ktap
from qp import payload
from qp import qemu
from qp import space
from qp import verbs_suite

LAYERS = ("host", "mutants", "device", "kunit", "stock", "iommu", "7.3", "debug", "verbs", "figures")
KERNEL = {"stock": "stock", "iommu": "stock", "7.3": "test", "debug": "debug"}

# Layers without guests of the plans run as a whole; the command that runs a part of them.
PARTS = {
    "host": "cargo test -p PACKAGE NAME",
}

# The kernels that a layer boots, and the layers that need neither a kernel nor QEMU.
BOOTS = {"kunit": ["test"], "verbs": ["stock", "debug"], "figures": ["stock"], **{layer: [name] for layer, name in KERNEL.items()}}
ON_HOST = {"host", "mutants"}

# Seconds that a guest may take besides its test, and how much slower a kernel is.
BOOT = 120
SLOWER = {"stock": 1, "test": 1, "debug": 6}

# Guests at a time: each has two CPUs and up to 2 GB.
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
CORES = int(base.JOBS)
GUESTS = max(1, min(max(CORES // 2, 2), CORES, MEMORY // 3))

LOGS = base.TOP / "build/log/test"


def tell(text):
    print(text, flush=True)


def kept(name):
    LOGS.mkdir(parents=True, exist_ok=True)
    return LOGS / (re.sub(r"[^\w.-]+", "-", name) + ".log")


def show_end(path, lines=60):
    text = path.read_text(errors="replace").splitlines()
    if len(text) > lines:
        tell(f"[... all of it: {path}]")
    tell("\n".join(text[-lines:]))


def cargo(name, *args, **variables):
    """Runs `cargo test` with environment variables; returns its counts and its output, which is also
    stored."""
    log = kept(name)
    words = ["nice", "cargo", "test", "--locked", "--target-dir", base.TOP / "build/host", *args]
    env = {**os.environ, **variables}
    with open(log, "wb") as out, base.started(words, cwd=base.TOP, env=env, stdout=out, stderr=subprocess.STDOUT) as process:
        while process.poll() is None:
            try:
                process.wait(timeout=base.REPORT_EVERY)
            except subprocess.TimeoutExpired:
                base.say(f"cargo test: {base.last_line(log)}")
    text = log.read_text(errors="replace")
    count = ktap.of_cargo(text)
    if process.returncode != 0 and count.failed == 0:
        count.fail("cargo test")
    if count.failed:
        said = re.findall(r"^---- .* ----\n(?:.+\n)*", text, re.MULTILINE)
        tell("\n".join("\n".join(part.splitlines()[:15]) for part in said[:10]))
        tell(f"[all of it: {log}]") if said else show_end(log)
    return count, text


def host(_slower, brief=True):
    """Layer: cargo test."""
    more = {} if brief else {"QPAIR_MESSAGES": "10000000"}
    with crates.target("host"):
        return cargo("host", "--workspace", "--features", "qpair/tokio", "--no-fail-fast", **more)[0]


def mutants(_slower):
    """Layer: the wrong variants of rules and device, and the tests that caught each; all
    interleavings and memory orders."""
    total = ktap.Count()
    for package, features, tests in (
        ("qpair-queue", "mutants,explore", ("mutants", "exhaust", "order")),
        ("qpair-model", "mutants", ("mutants",)),
        ("qpair", "mutants", ("mutants",)),
    ):
        chosen = [word for test in tests for word in ("--test", test)]
        options = ["--no-fail-fast", "--package", package, "--features", features, *chosen]
        count, text = cargo(f"mutants-{package}", *options, "--", "--nocapture")
        told = [line for line in text.splitlines() if ": caught by " in line or line.startswith("states: ")]
        tell("\n".join(line[:180] for line in told))
        total.add(count, f"{package}: ")
    return total


def device(_slower):
    """Layer: the device in QEMU, driven by a program instead of a CPU."""
    emulator = qemu.binary()
    log = kept("device")
    search = [word for folder in qemu.firmware(emulator) for word in ("-L", folder)]
    words = ["nice", base.TOP / "qemu/tests/device.py", emulator, *search]
    with open(log, "wb") as out, base.started(words, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            status = process.wait(timeout=600)
        except subprocess.TimeoutExpired:
            status = 124
    text = log.read_text(errors="replace")
    count, plan = ktap.of_ktap(text), re.search(r"^1\.\.(\d+)$", text, re.MULTILINE)
    if not plan or count.total != int(plan[1]) or (status != 0 and not count.failed):
        count.fail(f"{count.total} results, status {status}")
    if count.failed:
        show_end(log)
    return count


def guest(name, options, command, timeout):
    """Runs a command in a guest; returns its status, its output, and the file with all of it."""
    log = kept(name)
    words = [base.SCRIPTS / "py", "guest", *options, "--timeout", timeout, "--", *command]
    with open(log, "wb") as out, base.started(words, stdout=subprocess.PIPE, stderr=out) as process:
        text = process.stdout.read()
        status = process.wait()
        out.seek(0, os.SEEK_END)
        out.write(text)
    return status, text.decode(errors="replace"), log


def plans():
    """All plans as one: the guests and the tests."""
    guests, tests = {}, []
    for path in sorted((base.TOP / "tools").glob("*/plan.toml")):
        plan = tomllib.loads(path.read_text())
        guests.update(plan.get("guests", {}))
        tests += plan.get("test", [])
    return guests, tests


class Boot:
    """A guest of a layer, and the tests that run in it, one after the other."""

    def __init__(self, layer, name, options):
        self.layer, self.name, self.options = layer, name, options
        self.tests = []

    @property
    def kernel(self):
        return KERNEL[self.layer]

    @property
    def timeout(self):
        return BOOT + sum(test["timeout"] for test in self.tests) * SLOWER[self.kernel]

    @property
    def alone(self):
        return any(test.get("alone") for test in self.tests)

    def run(self, words, slower):
        """Runs the tests, with `words` for the program; returns their count."""
        program = self.tests[0]["command"][0]
        command = [program, *words, *(case for test in self.tests for case in test["command"][1:])]
        expected = sum(test["tests"] for test in self.tests)
        options = ["--kernel", self.kernel, *self.options]
        status, text, log = guest(f"{self.layer}-{self.name}", options, command, self.timeout * slower)
        count = ktap.of_ktap(text)
        if count.total != expected:
            count.fail(f"{count.total} results instead of {expected}")
        if count.skipped:
            count.fail(f"{count.skipped} cases skipped that have to run")
        if status != 0 and (status in runner.WHY or not count.failed):
            count.fail(runner.WHY.get(status, f"status {status}"))
        if count.failed:
            show_end(log)
        return count


def boots(layer, chosen):
    """The guests of a layer. Tests with the same guest share it, except those marked `alone`."""
    kernel, (guests, tests), found = KERNEL[layer], plans(), {}
    for test in tests:
        if kernel not in test["kernels"]:
            continue
        for name in test["guests"]:
            if kernel == "stock" and ("--iommu" in guests[name]) != (layer == "iommu"):
                continue
            if not chosen(f"{test['name']}.{name}"):
                continue
            if chosen.brief and f"{kernel}.{name}" in test.get("left", ()):
                continue
            boot = f"{test['name']}-{name}" if test.get("alone") else name
            found.setdefault(boot, Boot(layer, boot, guests[name])).tests.append(test)
    return list(found.values())


def side_by_side(calls, jobs):
    """The results of the calls, in order; `jobs` of them run at a time."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = [pool.submit(call) for call in calls]
        try:
            return [result.result() for result in results]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            # The threads wait for processes, and a thread may start its process only now.
            while not all(result.done() for result in results):
                base.end(base.family(os.getpid())[1:])
                time.sleep(base.LOCK_LOOK)
            raise


def without_warnings(layer, _slower):
    """Builds the module for a layer's kernel with warnings as errors, and checks the barriers in
    it."""
    kernel = kernels.get(KERNEL[layer])
    count = ktap.Count()
    try:
        module = payload.module(kernel, strict=True)
        count.passed = 1
    except base.Fail as failure:
        tell(f"  {failure}")
        count.fail(f"module for {kernel.release} without warnings")
        return count
    # Only for the kernel that users have; for the others the compiler inlines functions
    # differently.
    if layer == "stock":
        lines = barriers.missing_in(module)
        count.passed += not lines
        for line in lines:
            count.fail(f"object code: {line}")
    return count


def kunit_suites():
    """The KUnit suites in the module's sources, and how many tests each has."""
    suites = {}
    for path in (base.TOP / "rust").rglob("*.rs"):
        _, *parts = re.split(r"#\[(?:[\w:]+::)?kunit_tests\((\w+)\)\]", path.read_text())
        for name, text in zip(parts[::2], parts[1::2]):
            suites[name] = len(re.findall(r"^\s*#\[test\]", text, re.MULTILINE))
    return suites


def kunit(slower):
    """Layer: the module's own suites, run when it is loaded."""
    suites = kunit_suites()
    # The kernel has suites of its own: read only those of the module.
    show = "; ".join(f"cat /sys/kernel/debug/kunit/{name}/results" for name in suites) or "true"
    options = ["--kernel", "test", "--append", "kunit.enable=1 kunit.autorun=1"]
    status, text, log = guest("kunit", options, ["sh", "-c", show], (BOOT + 120) * slower)
    count = ktap.of_ktap(text)
    for name, expected in suites.items():
        # A suite that never ran prints `ok` as well, but has no such sum.
        if not re.search(rf"^\s*# {name}: pass:\d+ fail:0 skip:\d+ total:{expected}\b", text, re.MULTILINE):
            count.fail(f"{name} has no sum of {expected} tests")
    if count.total < sum(suites.values()):
        count.fail(f"{count.total} results instead of {sum(suites.values())}")
    if status != 0:
        count.fail(runner.WHY.get(status, f"status {status}"))
    if count.failed:
        show_end(log)
    return count


def counted_figures(_slower):
    """Layer: no operation costs more than before."""
    kept = figures.load()
    now, _ = figures.measure()
    worse = figures.worse(kept, now)
    count = ktap.Count(passed=len(kept) - len(worse))
    for line in worse:
        tell(f"  {line}")
        count.fail(line)
    if worse:
        tell(f"  more than {figures.WORSE:.0%} is a regression; if it is intended: scripts/bench counted --accept")
    return count


WHOLE = {"host": host, "mutants": mutants, "device": device, "kunit": kunit, "figures": counted_figures}


@dataclasses.dataclass(eq=False)
class Job:
    """A part of a layer that runs by itself."""

    layer: str
    name: str
    # Returns the count; the argument is the number of jobs that share the machine.
    call: collections.abc.Callable[[int], ktap.Count]
    # In seconds. Long jobs start first.
    timeout: int = 600
    # Runs without other jobs.
    alone: bool = False
    took: float = 0

    def run(self, slower):
        start = time.monotonic()
        try:
            count = self.call(slower)
        except base.Fail as failure:
            base.say(f"error: {failure}")
            if failure.remedy:
                base.say(f"remedy: {failure.remedy}")
            count = ktap.Count(failed=1, bad=[str(failure)])
        self.took = time.monotonic() - start
        tell(f"  {self.layer}: {self.name} ... {count} ({self.took:.0f} s)")
        return count


def jobs(layer, chosen):
    """The jobs of a layer."""
    if layer == "verbs":
        found = []
        for name, kernel in verbs_suite.guests(chosen.brief).items():
            if chosen(name):
                timeout = verbs_suite.TIMEOUT * SLOWER[kernel]
                call = functools.partial(verbs_suite.run, guest, show_end, name, chosen.brief, timeout)
                found.append(Job(layer, name, call, timeout))
        return found
    if layer == "host":
        return [Job(layer, "all", functools.partial(host, brief=chosen.brief))]
    if layer in WHOLE:
        return [Job(layer, "all", WHOLE[layer], alone=layer == "figures")]
    found = []
    if chosen("warnings"):
        found.append(Job(layer, "warnings", functools.partial(without_warnings, layer)))
    if layer == "debug" and chosen("detectors"):
        found += [
            Job(layer, f"detectors-{name}", functools.partial(detectors.prove, guest, name))
            for name in detectors.guests(not chosen.brief)
        ]
    if layer == "7.3" and chosen.all and kernels.FIRST == kernels.LAST:
        # What it would run are the tests of the layers stock, iommu and debug.
        why = "skipped: the stock kernel is of this series itself; scripts/test 7.3/everything runs it all the same"
        return [*found, Job(layer, why, lambda _slower: ktap.Count(skipped=1))]
    words, some = ["--brief"] if chosen.brief else [], boots(layer, chosen)
    if not some and chosen.all:
        found.append(Job(layer, "guests", lambda _slower: ktap.Count(failed=1, bad=["no test found"])))
    for boot in some:
        tests = ", ".join(test["name"] for test in boot.tests)
        found.append(Job(layer, f"{boot.name}: {tests}", functools.partial(boot.run, words), boot.timeout, boot.alone))
    return found


def run_jobs(found):
    """Runs jobs, as many in parallel as the machine can run; returns their counts."""
    # They share a target folder, which cargo locks.
    cargos = [job for job in found if job.layer in ON_HOST]
    others = sorted((job for job in found if not job.alone and job not in cargos), key=lambda job: -job.timeout)
    # The longest first, so that none of them is left over at the end.
    lanes = [[job] for job in others]
    lanes[1:1] = [cargos] if cargos else []
    slower = min(GUESTS, len(lanes))

    def run(lane, slower):
        return {job: job.run(slower) for job in lane}

    counts = {}
    for lane in side_by_side([functools.partial(run, lane, slower) for lane in lanes], GUESTS):
        counts.update(lane)
    counts.update(run([job for job in found if job.alone], 1))
    return {job: counts[job] for job in found}


class Chosen:
    """The selected names of a layer, all if none; and whether repetitions are omitted."""

    def __init__(self, names, everything):
        self.names = names
        self.all = not names
        # A test that is selected by its name runs as a whole.
        self.brief = self.all and not everything

    def __call__(self, name):
        return self.all or any(name.startswith(part) for part in self.names)


def wanted(words):
    """The selected layers, and the selected names of each."""
    asked = {}
    for word in words:
        layer, _, name = word.partition("/")
        base.known("layer", [layer], LAYERS)
        if name and layer not in (*KERNEL, "verbs"):
            part = PARTS.get(layer)
            raise base.Fail(f"{word}: {layer} runs as a whole", f"scripts/test {layer}" + (f"; for a part of it scripts/in-root {part}" if part else ""))
        asked.setdefault(layer, [])
        if name:
            asked[layer].append(name)
    return asked


def show_list(layers, asked, everything):
    """Lists the layers: the guests of each, and the tests in each guest."""
    tell("layer: guest: tests; LAYER/NAME selects tests by name, of `verbs` a guest")
    for layer in layers:
        chosen = Chosen(asked.get(layer), everything)
        if layer == "verbs":
            for name, kernel in verbs_suite.guests(not everything).items():
                if chosen(name):
                    tell(f"verbs: {name}: programs on the {kernel} kernel (provider/tests.toml)")
        elif layer in KERNEL:
            for boot in boots(layer, chosen):
                tell(f"{layer}: {boot.name}: {', '.join(test['name'] for test in boot.tests)}")
        else:
            tell(f"{layer}: runs as a whole")


def run(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/test", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("layers", nargs="*", metavar="LAYER[/NAME]", help=f"of {', '.join(LAYERS)}; all if none. NAME is the beginning of a test's name, of layers in guests; of `verbs`, a guest's")
    parser.add_argument("--all", action="store_true", help="also run the tests that are omitted by default (make test-all)")
    parser.add_argument("--list", action="store_true", help="list the guests and the tests in each, without running them")
    args = parser.parse_args(argv)
    asked = wanted(args.layers)
    layers = asked or LAYERS
    if args.list:
        show_list(layers, asked, args.all)
        return 0
    booted = dict.fromkeys(kernel for layer in layers for kernel in BOOTS.get(layer, ()))
    space.need(booted, emulator=not ON_HOST.issuperset(layers), host=not ON_HOST.isdisjoint(layers))
    found = [job for layer in layers for job in jobs(layer, Chosen(asked.get(layer), args.all))]
    for layer in layers:
        if asked.get(layer) and not any(job.layer == layer for job in found):
            raise base.Fail(f"no test of {layer} has the name {' or '.join(asked[layer])}", f"scripts/test --list {layer}")
    shutil.rmtree(LOGS, ignore_errors=True)
    total, results = ktap.Count(), {}
    counts = run_jobs(found)
    for layer in layers:
        mine = [job for job in found if job.layer == layer]
        count = ktap.Count()
        for job in mine:
            count.add(counts[job], f"{job.name.partition(':')[0]}: ")
        if not count.total:
            count.fail("no test found")
        took = sum(job.took for job in mine)
        tell(f"== {layer}: {count} in {took:.0f} s")
        results[layer] = {**vars(count), "seconds": round(took, 1)}
        total.add(count, f"{layer}: ")
    (base.TOP / "build").mkdir(exist_ok=True)
    (base.TOP / "build/test.json").write_text(json.dumps(results, indent=1) + "\n")
    if total.bad:
        tell("failed:")
        tell("\n".join(f"  {name}" for name in total.bad))
    sys.stdout.flush()
    tell(str(total))
    return 1 if total.failed else 0


if __name__ == "__main__":
    base.main(run)
