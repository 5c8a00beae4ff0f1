# SPDX-License-Identifier: GPL-2.0
"""Runs the tests, layer by layer.

    scripts/test [--all] [--list] [--repeat N] [LAYER[/NAME]]...

layer   what runs
host    `cargo test` of the workspace: rules, device model, ring code
mutants the suites of the rules, of the device and of the library, under each wrong variant, which they must catch;
        every interleaving of small instances of the event path and of flow control; the order of memory of the rings
device  the device in QEMU, without a guest: PCI, properties, DMA, reset, unplug; as a plugin, and with --all linked into it and
        as a plugin of backports' QEMU
kunit   the module's KUnit suites, in the debug kernel
tree    the driver in the source of the debug kernel: each patch of `make series` builds, checkpatch, clippy, rustdoc,
        and a guest of that kernel
stock   the tests of the plans on the stock kernel, without an IOMMU
iommu   the same with one
7.3     the same on the test kernel, which is of the newest series; skipped where the stock kernel is of that series
debug   the same on the debug kernel; with --all, its detectors have to report planted bugs
fuzz    a minute of each fuzzer: frames, device and parse on the host, processes that attack the driver on the debug kernel
verbs   unmodified programs of verbs, and rdma-core's own tests (provider/tests.toml)
wire    programs of verbs on two guests with one network (provider/wire.toml)
packages
        the Debian packages, installed, upgraded and removed in systems of Debian's packages; the same bytes twice;
        the image of `make image` boots by the documented command, reboots, and runs a program of verbs; with --all
        also in the QEMU of backports
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

By default, and as the layer `default`, kunit, tree, 7.3, debug and fuzz, which build kernels, are skipped, and so
are packages. A layer that finds no test fails. The last line has the total, and build/test.json all results; build/log/failed has the logs of
tests that failed.
"""

import argparse
import functools
import os
import re
import subprocess
import sys
import tomllib

from qp import (
    barriers, base, crates, debs_suite, detectors, figures, fuzz, guest as runner, image_suite, intree_suite, jobs, kernel as kernels, ktap, kunit,
    payload, plugin, qemu, space, verbs_suite, wire_suite,
)

LAYERS = ("host", "mutants", "device", "kunit", "tree", "stock", "iommu", "7.3", "debug", "fuzz", "verbs", "wire", "packages", "figures")
KERNEL = {"stock": "stock", "iommu": "stock", "7.3": "test", "debug": "debug"}

# Those of `make test`: they build no kernel, and no system for the packages.
DEFAULT = tuple(layer for layer in LAYERS if layer not in ("kunit", "tree", "7.3", "debug", "fuzz", "packages"))

# They run as a whole.
WHOLE = {"mutants", "kunit", "tree", "figures"}
# What runs there is in a table of their own.
LISTED = {"verbs": (verbs_suite, verbs_suite.guests), "wire": (wire_suite, wire_suite.networks)}
# NAME is a part of a test's name there.
ON_PARTS = {
    "host": "NAME is a part of a test's name (scripts/in-root cargo test --workspace --target-dir build/host -- --list)",
    "device": "NAME is a part of the name of a function in qemu/tests/*.py",
}
# They need neither a kernel nor QEMU.
ON_HOST = {"host", "mutants"}

# Seconds of a target of the layer fuzz, with what it builds.
FUZZING = 1200
# Seconds that a guest may take besides its test, and how much slower a kernel is.
BOOT = 120
SLOWER = {"stock": 1, "test": 1, "debug": 6}

tell = jobs.tell


def cargo(name, *args, **variables):
    """Runs `cargo test` with environment variables; returns its counts and its output, which is also
    stored. The features are the same each time, so that a package is built once."""
    log = jobs.log_of(name)
    env = {**os.environ, **variables}
    with open(log, "wb") as out, crates.target("host") as target:
        words = ["nice", "cargo", "test", "--locked", "--target-dir", target, "--workspace", "--features", "qpair/tokio", "--no-fail-fast", *args]
        with base.started(words, cwd=base.TOP, env=env, stdout=out, stderr=subprocess.STDOUT) as process:
            while process.returncode is None:
                try:
                    process.wait(timeout=base.REPORT_EVERY)
                except subprocess.TimeoutExpired:
                    base.report(f"cargo test: {base.last_line(log)}")
    text = log.read_text(errors="replace")
    count = ktap.of_cargo(text)
    if process.returncode != 0 and count.failed == 0:
        count.fail("cargo test")
    if count.failed:
        said = re.findall(r"^---- .* ----\n(?:.+\n)*", text, re.MULTILINE)
        tell("\n".join("\n".join(part.splitlines()[:15]) for part in said[:10]))
    return count, text


def host(chosen, _slower):
    """Layer: cargo test, of all or of what has one of the chosen names."""
    more = {"QPAIR_MESSAGES": "10000000"} if chosen.everything else {}
    return cargo("host", "--", *chosen.names, **more)[0]


def mutants(chosen, _slower):
    """Layer: the wrong variants of rules, device and library, and the tests that caught each; all
    interleavings and memory orders."""
    targets = [word for test in ("mutants", "exhaust", "order") for word in ("--test", test)]
    more = {"QPAIR_ALL_INSTANCES": "1"} if chosen.everything else {}
    count, text = cargo("mutants", *targets, "--", "--nocapture", **more)
    told = [line for line in text.splitlines() if ": caught by " in line or line.startswith("states: ")]
    tell("\n".join(line[:180] for line in told))
    return count


def device(chosen, emulator, name, _slower):
    """Layer: the device in QEMU, driven by a program instead of a CPU; all of it, or what has one of
    the chosen names."""
    path = emulator()
    search = [word for folder in qemu.firmware(path) for word in ("-L", folder)]
    return program(name, [base.TOP / "qemu/tests/device.py", path, *search], QPAIR_TESTS=" ".join(chosen.names))


def program(name, words, **variables):
    """Runs a program that prints TAP; returns its count."""
    status, text, _ = jobs.program(name, ["nice", *words], 600, **variables)
    count, plan = ktap.of_ktap(text), re.search(r"^1\.\.(\d+)$", text, re.MULTILINE)
    if not plan or count.total != int(plan[1]) or (status != 0 and not count.failed):
        count.fail(f"{count.total} results, status {status}")
    return count


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

    def run(self, words, rounds, slower):
        """Runs the tests, in a number of rounds, with `words` for the program; returns their count."""
        program = self.tests[0]["command"][0]
        if rounds > 1:
            words = [*words, "--repeat", rounds]
        command = [program, *words, *(case for test in self.tests for case in test["command"][1:])]
        expected = sum(test["tests"] for test in self.tests) * rounds
        options = ["--kernel", self.kernel, *self.options]
        status, text, _ = jobs.guest(f"{self.layer}-{self.name}", options, command, self.timeout * rounds * slower)
        count = ktap.of_ktap(text)
        if count.total != expected:
            count.fail(f"{count.total} results instead of {expected}")
        if count.skipped:
            count.fail(f"{count.skipped} cases skipped that have to run")
        if status != 0 and (status in runner.WHY or not count.failed):
            count.fail(runner.WHY.get(status, f"status {status}"))
        return count


@functools.cache
def groups():
    """The groups of the selftests, each with the names of its cases."""
    lists = re.compile(r'name: "([\w-]+)",\s*cases: cases!\[(.*?)\]', re.DOTALL)
    sources = (path.read_text() for path in (base.TOP / "tools/selftests/src").rglob("*.rs"))
    return {name: re.findall(r"\w+::(\w+)", cases) for source in sources for name, cases in lists.findall(source)}


def case_of(test, name):
    """The test with one case, GROUP/CASE, of those that it runs; None if it does not run it."""
    group, _, case = name.partition("/")
    words = test["command"][1:]
    if case not in groups().get(group, [case]):
        return None
    if f"!{name}" in words or group not in words and name not in words:
        return None
    return {**test, "name": name, "command": [test["command"][0], name], "tests": 1}


def boots(layer, chosen):
    """The guests of a layer. Tests with the same guest share it, except those marked `alone`."""
    kernel, (guests, tests), found = KERNEL[layer], plans(), {}
    # GROUP/CASE, perhaps with a guest: GROUP/CASE.GUEST.
    cases = dict.fromkeys(name.partition(".")[0] for name in chosen.names if "/" in name)
    if cases:
        tests = [part for name in cases for test in tests if (part := case_of(test, name))]
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


def without_warnings(layer, _slower):
    """Builds the modules for a layer's kernel with warnings as errors, and checks the barriers in
    them."""
    kernel = kernels.get(KERNEL[layer])
    count = ktap.Count()
    try:
        module = payload.module(kernel, strict=True)
        count.passed = 1
    except base.Fail as failure:
        tell(f"  {failure}")
        count.fail(f"modules for {kernel.release} without warnings")
        return count
    # Only for the kernel that users have, and without counters; otherwise the compiler inlines
    # functions differently.
    if layer == "stock" and not payload.coverage():
        lines = barriers.missing_in(module) + barriers.missing_in(module.with_name(payload.STREAM), barriers.STREAM)
        count.passed += not lines
        for line in lines:
            count.fail(f"object code: {line}")
    return count


def kunit_suites(slower):
    """Layer: the modules' own suites, run when they are loaded."""
    return kunit.run(BOOT * SLOWER["debug"] * slower)


def fuzzed(name, slower):
    """A target of the layer fuzz; a failure is not made smaller, which takes many guests."""
    words = [base.SCRIPTS / "fuzz", name]
    if name == fuzz.UVERBS:
        kernels.get("debug")
        words += ["--device", "roce", "--kernel", "debug", "--as-found"]
    status, text, _ = jobs.program(f"fuzz-{name}", words, FUZZING * slower)
    # The last line, also if QEMU has ended itself.
    ran = re.findall(r"^(?:(?:after )?\d+ s: |stat::number_of_executed_units: *)[1-9].*$", text, re.MULTILINE)
    tell(f"  {ran[-1] if ran else 'no input has run'}")
    if status == 0 and ran:
        return ktap.Count(passed=1)
    return ktap.Count(failed=1, bad=[f"scripts/fuzz {name}: status {status}"])


def counted_figures(brief, _slower):
    """Layer: no operation costs more than before; those of NVMe only in `make test-all`."""
    kept = {name: value for name, value in figures.load().items() if not (brief and figures.of_disk(name))}
    now, _ = figures.measure(disk=not brief)
    worse = figures.worse(kept, now)
    count = ktap.Count(passed=len(kept) - len(worse))
    for line in worse:
        tell(f"  {line}")
        count.fail(line)
    if worse:
        tell("  that is a regression; if it is intended: scripts/bench counted --accept")
    return count


def in_suite(suite, name, brief, kernel, machine):
    """Runs a part of a suite of LISTED: its kernel and the machine are so much slower."""
    return suite.run(name, brief, kernel * machine)


def loading(name, suite, _slower):
    return program(f"device-{name}", plugin.tests(suite))


def found_jobs(layer, chosen):
    """The jobs of a layer."""
    job = functools.partial(jobs.Job, layer)
    if layer in LISTED:
        suite, found = LISTED[layer]
        return [
            job(name, functools.partial(in_suite, suite, name, chosen.brief, SLOWER[kernel]), suite.TIMEOUT * SLOWER[kernel], kernel=kernel)
            for name, kernel in found(chosen.brief).items()
            if chosen(name)
        ]
    if layer == "host":
        return [job("all", functools.partial(host, chosen), cargo=True)]
    if layer == "mutants":
        return [job("all", functools.partial(mutants, chosen), cargo=True)]
    if layer == "device":
        forms, loads = {"plugin": plugin.emulator}, {"loading": qemu.DISTRIBUTION}
        if chosen.everything or qemu.choice() == qemu.BACKPORTS:
            forms[qemu.BACKPORTS] = functools.partial(plugin.emulator, qemu.BACKPORTS)
            loads[f"loading-{qemu.BACKPORTS}"] = qemu.BACKPORTS
        if chosen.everything or qemu.choice() == qemu.PATCHED:
            forms[qemu.PATCHED] = qemu.patched
        return [
            *(job(name, functools.partial(device, chosen, emulator, f"device-{name}")) for name, emulator in forms.items()),
            *([job(name, functools.partial(loading, name, suite)) for name, suite in loads.items()] if chosen.all else []),
        ]
    if layer == "kunit":
        return [job("all", kunit_suites, kernel="debug")]
    if layer == "fuzz":
        return [
            job(name, functools.partial(fuzzed, name), FUZZING, **({"kernel": "debug"} if name == fuzz.UVERBS else {"cargo": True}))
            for name in (fuzz.UVERBS, *fuzz.TARGETS)
            if chosen(name)
        ]
    if layer == "tree":
        return [job("all", intree_suite.run, intree_suite.TIMEOUT, kernel="debug")]
    if layer == "packages":
        images, newer = {"image": qemu.DISTRIBUTION}, f"image-{qemu.BACKPORTS}"
        if chosen.everything or qemu.choice() == qemu.BACKPORTS or newer in chosen.names:
            images[newer] = qemu.BACKPORTS
        found = [
            job("installed", debs_suite.install, debs_suite.TIMEOUT + debs_suite.OUTSIDE, kernel="stock"),
            job("twice", debs_suite.twice, debs_suite.OUTSIDE, cargo=True),
            *(job(name, functools.partial(image_suite.run, name, suite), image_suite.TIMEOUT, kernel="stock") for name, suite in images.items()),
        ]
        return [job for job in found if chosen(job.name)]
    if layer == "figures":
        return [job("all", functools.partial(counted_figures, chosen.brief), alone=True, kernel="stock")]
    job = functools.partial(job, kernel=KERNEL[layer])
    found = []
    if chosen("warnings"):
        found.append(job("warnings", functools.partial(without_warnings, layer)))
    # They test the configuration of the kernel, which rarely changes.
    if layer == "debug" and chosen("detectors") and not chosen.brief:
        found += [job(f"detectors-{name}", functools.partial(detectors.prove, name)) for name in detectors.GUESTS]
    if layer == "7.3" and chosen.all and kernels.FIRST == kernels.LAST:
        # What it would run are the tests of the layers stock, iommu and debug.
        why = "skipped: the stock kernel is of this series itself; scripts/test 7.3/everything runs it all the same"
        return [*found, jobs.Job(layer, why, lambda _slower: ktap.Count(skipped=1))]
    words, some = ["--brief"] if chosen.brief else [], boots(layer, chosen)
    if not some and chosen.all:
        found.append(jobs.Job(layer, "guests", lambda _slower: ktap.Count(failed=1, bad=["no test found"])))
    for boot in some:
        tests = ", ".join(test["name"] for test in boot.tests)
        found.append(job(f"{boot.name}: {tests}", functools.partial(boot.run, words, chosen.rounds), boot.timeout * chosen.rounds, boot.alone))
    return found


class Chosen:
    """The selected names of a layer, all if none; and whether repetitions are omitted."""

    def __init__(self, names, everything, rounds=1):
        self.names = names or []
        self.all = not names
        self.everything = everything
        # A test that is selected by its name runs as a whole.
        self.brief = self.all and not everything
        # Of each case in its guest.
        self.rounds = rounds

    def __call__(self, name):
        return self.all or any(name.startswith(part) for part in self.names)


def wanted(words):
    """The selected layers, and the selected names of each."""
    asked = {}
    for word in words:
        layer, _, name = word.partition("/")
        if word == "default":
            asked |= {layer: [] for layer in DEFAULT}
            continue
        base.known("layer", [layer], LAYERS)
        if name and layer in WHOLE:
            raise base.Fail(f"{word}: {layer} runs as a whole", f"scripts/test {layer}")
        asked.setdefault(layer, [])
        if name:
            asked[layer].append(name)
    return asked


def listed(layer, names, everything):
    """What can be selected in a layer; in parentheses what does not run by default."""
    whole, usual = Chosen(names, True), Chosen(names, everything)

    def shown(name, runs):
        return name if runs else f"({name})"

    if layer in LISTED:
        suite, found = LISTED[layer]
        some = found(usual.brief)
        table = suite.TABLE.relative_to(base.TOP)
        return [f"{shown(name, name in some)}: programs on the {kernel} kernel ({table})" for name, kernel in found(False).items() if whole(name)]
    if layer in ON_PARTS:
        return [ON_PARTS[layer]]
    if layer in ("packages", "fuzz"):
        some = [job.name for job in found_jobs(layer, usual)]
        return [shown(job.name, job.name in some) for job in found_jobs(layer, whole)]
    if layer not in KERNEL:
        return ["runs as a whole"]
    lines = ["warnings: the modules build without any"] if whole("warnings") else []
    if layer == "debug" and whole("detectors"):
        lines.append(f"{shown('detectors', not usual.brief)}: they report planted bugs")
    some = {boot.name: boot.tests for boot in boots(layer, usual)}
    for boot in boots(layer, whole):
        lines.append(f"{boot.name}: {', '.join(shown(test['name'], test in some.get(boot.name, [])) for test in boot.tests)}")
    return lines


def unknown(layer, names):
    """The error that nothing in a layer has these names."""
    return base.Fail(f"no test of {layer} has the name {' or '.join(names)}", f"scripts/test --list {layer}")


def show_list(asked, everything):
    """Lists what can be selected, of all layers by default."""
    found = {layer: listed(layer, asked.get(layer), everything) for layer in asked or LAYERS}
    without = next((layer for layer, lines in found.items() if not lines), None)
    if without:
        raise unknown(without, asked[without])
    tell("layer: guest: tests; LAYER/NAME selects tests by the beginning of their name, of `verbs` a guest, of `wire` a network;")
    tell("GROUP/CASE is a case of a guest (scripts/guest -- qpair-selftest --list)")
    left = [layer for layer in LAYERS if layer not in DEFAULT]
    tell(f"not run by default, only by name or with --all: what is in parentheses, and the layers {', '.join(left)}")
    for layer, lines in found.items():
        for line in lines:
            tell(f"{layer}: {line}")


def run_once(layers, found):
    """Runs the jobs of the layers; returns the total."""
    counts = jobs.run(found)
    total = jobs.store(layers, found, counts)
    jobs.tell_times(found)
    return total


def run(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/test", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("layers", nargs="*", metavar="LAYER[/NAME]", help=f"of {', '.join(LAYERS)}; by default `default`, those that need no kernel of our own: {', '.join(DEFAULT)}. NAME is the beginning of a test's name, or GROUP/CASE, of layers in guests; of `verbs`, a guest's; of `wire`, a network's; of `host` and `device`, a part of a test's name")
    parser.add_argument("--all", action="store_true", help="all layers by default, and the tests that are omitted otherwise (make test-all)")
    parser.add_argument("--repeat", type=runner.positive, default=1, metavar="N", help="run it all N times, also after a failure, and count the failures: cases of a guest in one boot, each round with its own seed")
    parser.add_argument("--list", action="store_true", help="list all that can be selected, without running it")
    args = parser.parse_intermixed_args(argv)
    asked = wanted(args.layers)
    layers = asked or (LAYERS if args.all else DEFAULT)
    if args.list:
        show_list(asked, args.all)
        return 0
    in_a_boot = bool(asked) and all(layer in KERNEL and names and all("/" in name for name in names) for layer, names in asked.items())
    rounds, runs = (args.repeat, 1) if in_a_boot else (1, args.repeat)
    found = [job for layer in layers for job in found_jobs(layer, Chosen(asked.get(layer), args.all, rounds))]
    for layer in layers:
        if asked.get(layer) and not any(job.layer == layer for job in found):
            raise unknown(layer, asked[layer])
    booted = dict.fromkeys(job.kernel for job in found if job.kernel)
    used = {"device": {qemu.DISTRIBUTION}, "packages": {qemu.DISTRIBUTION, qemu.BACKPORTS}}
    emulators = set(qemu.NAMES) if args.all else {qemu.choice()}.union(*(used.get(layer, set()) for layer in layers))
    space.need(booted, set() if ON_HOST.issuperset(layers) else emulators, host=not ON_HOST.isdisjoint(layers), tree="tree" in layers)
    jobs.begin()
    # The guests' module is the one that is built without warnings, so that it is built once.
    os.environ["QPAIR_STRICT"] = "1"
    total = ktap.Count()
    for number in range(runs):
        if runs > 1:
            tell(f"== run {number + 1} of {runs}")
        total.add(run_once(layers, found), f"run {number + 1}: " if runs > 1 else "")
    jobs.tell_failures(found, total)
    sys.stdout.flush()
    tell(str(total))
    return 1 if total.failed else 0


if __name__ == "__main__":
    base.main(run)
