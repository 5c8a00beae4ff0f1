# SPDX-License-Identifier: GPL-2.0
"""Wrong variants of the module: what cargo-mutants lists, built by the kernel's make, tried in guests.

cargo-mutants cannot build a module, but it lists the variants of any Rust that a Cargo package names. Each
is put into a copy of the checkout, and runs the cases that need no special guest, up to the first
that fails. If none does, more guests run: those of links that fail, of ports of RoCE and of sleep, the
KUnit suites on the debug kernel, the programs of tools/examples, which resize CQs, and Linux's NVMe, which
uses the queue pairs of ULPs.
"""

import json
import pathlib
import shutil
import subprocess
import tempfile
import tomllib
import typing

from qp import base, kernel as kernels, kunit, lines

FOLDERS = ("hw", "life", "object")
# Percent of the variants that have to be caught.
GOAL = 90
# The package that names the sources of the module.
MANIFEST = """[package]
name = "qpair-module"
version = "0.0.0"
edition = "2021"

[lib]
path = "qpair.rs"

[workspace]
"""
# The plan's guest and its tests of most groups, other groups, and cases that repeat for minutes.
PLAN, GUEST, TESTS = base.TOP / "tools/selftests/plan.toml", "everything", ("everything", "everything-many")
MORE = ("scale", "vectors", "tuning", "tool")
LONG = ("knobs/garbage_in_each_word", "knobs/ended_by_the_host", "device/ended_by_the_guest", "processes/ended_by_sigkill")
# Tests that need guests of their own.
APART = ("recovery", "roce", "sleep")
# The table of the guests of verbs, that of NVMe, and what runs there.
VERBS, STORAGE = base.TOP / "provider/tests.toml", "storage"
NVME = "roce storage nvme --srq fault limit link reset"
# The kernel that has KUnit.
KUNIT = "debug"
EXAMPLES = base.TOP / "tools/examples"
# Seconds of a guest, more than the plan allows the same cases; one that takes longer hangs.
LIMIT = 1200
# The statuses of a guest with a wrong module: a case failed, the guest hung, the kernel warned.
CAUGHT = (1, 124, 126)
# Some cases were skipped, and none failed.
SKIPPED = 4


def listed(tool, without, top):
    """All variants of a checkout: [(name, what cargo-mutants says of it)]. `without` are options that leave some
    out."""
    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(folder) / "rust"
        shutil.copytree(top / "rust", package)
        (package / "Cargo.toml").write_text(MANIFEST)
        files = [word for name in FOLDERS for word in ("--file", f"{name}/**")]
        words = [tool / "cargo-mutants", "mutants", "--list", "--colors", "never", "--dir", package, *without, *files]
        names, variants = base.output(*words).splitlines(), json.loads(base.output(*words, "--json"))
    found = [(f"rust/{name}", variant) for name, variant in zip(names, variants, strict=True)]
    return [(name, variant) for name, variant in found if not in_kunit_suite(top / "rust", variant)]


def in_kunit_suite(rust, variant):
    """Whether a variant is in a KUnit suite, which is the last item of its file."""
    before, *suite = lines.TESTS.split((rust / variant["file"]).read_text(), 1)
    return bool(suite) and variant["span"]["start"]["line"] > before.count("\n")


def changed(text, variant):
    """A source as a variant has it."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    first, end = (starts[at["line"] - 1] + at["column"] - 1 for at in (variant["span"]["start"], variant["span"]["end"]))
    return text[:first] + variant["replacement"] + text[end:]


def builds(folder, kernel, log):
    """Whether the module of a copy compiles."""
    out = folder / "build" / f"module-{kernel.name}"
    out.mkdir(parents=True, exist_ok=True)
    words = ["make", f"-j{base.JOBS}", "-C", kernel.tree, f"M={folder}", f"MO={out}", *kernel.make, "modules"]
    return subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=log, stderr=log).returncode == 0


class Guest(typing.NamedTuple):
    """A guest that a variant runs in."""

    # Of scripts/guest.
    arguments: tuple
    # Those that have to pass, of a guest with the kernel that has KUnit: {name: tests}.
    suites: dict = {}


def guests(folder):
    """The guests that a variant of a copy runs in: {name: Guest}."""
    plan, verbs = tomllib.loads(PLAN.read_text()), tomllib.loads(VERBS.read_text())
    tests = {test["name"]: test for test in plan["test"]}

    def of(options, *command):
        return Guest((*options, "--timeout", LIMIT, "--", *command))

    def of_plan(guest, command):
        return of(plan["guests"][guest], *command)

    def of_verbs(options, *commands):
        # A failure is 1: `roce` ends with 125 if the port gets no GID, as a guest that cannot run does.
        return of(("--verbs", *options), "sh", "-c", f"{' && '.join(commands)} || exit 1")

    # A later selector adds what an earlier one has taken away.
    cases = [case for name in TESTS for case in tests[name]["command"][1:]]
    commands = [program["command"] for program in verbs["program"]]
    own = [words for words in commands if (EXAMPLES / words.split()[0]).with_suffix(".c").exists()]
    suites = kunit.suites(folder / "rust")
    with_kunit = of(("--kernel", KUNIT, "--append", kunit.APPEND), "sh", "-c", kunit.show(suites))
    return {
        "selftests": of_plan(GUEST, ("qpair-selftest", *cases, *MORE, *(f"!{case}" for case in LONG))),
        **{name: of_plan(tests[name]["guests"][0], tests[name]["command"]) for name in APART},
        "KUnit": with_kunit._replace(suites=suites),
        "examples": of_verbs(["--iommu"], *(words.format(device="qpair0") for words in own)),
        "NVMe": of_verbs(verbs["guest"][STORAGE]["options"], NVME),
    }


def failure(found, folder, log):
    """What fails first in the guests with the module of a copy; None if nothing does."""
    ends = (failure_in(name, guest, folder, log) for name, guest in found.items())
    return next(filter(None, ends), None)


def failure_in(name, guest, folder, log):
    """What fails first in a guest; None if nothing does."""
    if guest.suites and not builds(folder, kernels.get(KUNIT), log):
        return f"the module of the {KUNIT} kernel does not compile"
    words, text = [str(word) for word in (folder / "scripts/guest", *guest.arguments)], ""
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True) as run:
        for line in run.stdout:
            log.write(line)
            text += line
            if line.startswith("not ok"):
                run.terminate()
                return line.strip()
    if run.returncode in CAUGHT:
        return f"the guest of {name} ended with status {run.returncode}"
    if run.returncode not in (0, SKIPPED):
        raise base.Fail(f"the guest of {name} could not run ({run.returncode})", f"see {log.name}")
    # A suite that did not run prints no failure.
    return next(iter(kunit.judged(guest.suites, 0, text).bad), None) if guest.suites else None


def tried(variants, folder, out):
    """Tries variants, as `listed`, in a copy of the checkout. Returns how many compile, how many of them are caught, and
    the names of the others."""
    kernel, found = kernels.get("stock"), guests(folder)
    total, missed = 0, []
    with open(out / "log", "w", buffering=1) as log:
        why = failure(found, folder, log) if builds(folder, kernel, log) else "it does not compile"
        if why:
            raise base.Fail(f"the module as it is: {why}", f"see {out / 'log'}")
        for number, (name, variant) in enumerate(variants, 1):
            source = folder / "rust" / variant["file"]
            text = source.read_text()
            print(f"== {name}", file=log, flush=True)
            source.write_text(changed(text, variant))
            compiles = builds(folder, kernel, log)
            why = failure(found, folder, log) if compiles else "it does not compile"
            source.write_text(text)
            total += compiles
            base.say(f"{number} of {len(variants)}: {name}: {why or 'not caught'}")
            if why is None:
                missed.append(name)
    return total, total - len(missed), missed
