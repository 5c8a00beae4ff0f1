# SPDX-License-Identifier: GPL-2.0
"""Wrong variants of the module: what cargo-mutants lists, built by the kernel's make, tried in guests.

cargo-mutants cannot build a module, but it lists the variants of any Rust that a Cargo package names. Each
is put into a copy of the checkout, and runs the cases that need no special guest, up to the first
that fails.
"""

import json
import pathlib
import shutil
import subprocess
import tempfile
import tomllib

from qp import base, kernel as kernels

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
# Seconds of a guest.
LIMIT = 1200
# The statuses of a guest with a wrong module: a case failed, the guest hung, the kernel warned.
CAUGHT = (1, 124, 126)
# Some cases were skipped, and none failed.
SKIPPED = 4


def listed(tool, every):
    """One of `every` variants: [(name, what cargo-mutants says of it)]."""
    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(folder) / "rust"
        shutil.copytree(base.TOP / "rust", package)
        (package / "Cargo.toml").write_text(MANIFEST)
        files = [word for name in FOLDERS for word in ("--file", f"{name}/**")]
        words = [tool / "cargo-mutants", "mutants", "--list", "--colors", "never", "--dir", package, *files]
        names, variants = base.output(*words).splitlines(), json.loads(base.output(*words, "--json"))
    return [(f"rust/{name}", variant) for name, variant in zip(names, variants, strict=True)][::every]


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


def failure(folder, log):
    """What fails first in a guest with the module of a copy; None if nothing does."""
    plan = tomllib.loads(PLAN.read_text())
    # A later selector adds what an earlier one has taken away.
    cases = [case for name in TESTS for test in plan["test"] if test["name"] == name for case in test["command"][1:]]
    command = ["qpair-selftest", *cases, *MORE, *(f"!{case}" for case in LONG)]
    words = [folder / "scripts/guest", *plan["guests"][GUEST], "--timeout", LIMIT, "--", *command]
    with subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True) as guest:
        for line in guest.stdout:
            log.write(line)
            if line.startswith("not ok"):
                guest.terminate()
                return line.strip()
    if guest.returncode in (0, SKIPPED):
        return None
    if guest.returncode in CAUGHT:
        return f"the guest ended with status {guest.returncode}"
    raise base.Fail(f"the guest could not run ({guest.returncode})", f"see {log.name}")


def tried(tool, every, folder, out):
    """Tries the variants in a copy of the checkout; whether enough are caught."""
    kernel = kernels.get("stock")
    out.mkdir(parents=True, exist_ok=True)
    variants = listed(tool, every)
    caught = missed = 0
    with open(out / "log", "w", buffering=1) as log:
        why = failure(folder, log) if builds(folder, kernel, log) else "it does not compile"
        if why:
            raise base.Fail(f"the module as it is: {why}", f"see {out / 'log'}")
        for number, (name, variant) in enumerate(variants, 1):
            source = folder / "rust" / variant["file"]
            text = source.read_text()
            print(f"== {name}", file=log, flush=True)
            source.write_text(changed(text, variant))
            compiles = builds(folder, kernel, log)
            why = failure(folder, log) if compiles else "it does not compile"
            source.write_text(text)
            caught += compiles and why is not None
            missed += why is None
            base.say(f"{number} of {len(variants)}: {name}: {why or 'not caught'}")
            if why is None:
                print(f"not caught: {name}", flush=True)
    total = caught + missed
    if not total:
        raise base.Fail("no variant of the module was tried", f"see {out / 'log'}")
    print(f"module: {caught} of {total} variants caught, {100 * caught / total:.1f} %")
    return 100 * caught >= GOAL * total
