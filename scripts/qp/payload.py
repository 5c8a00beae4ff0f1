# SPDX-License-Identifier: GPL-2.0
"""The guest's files from the checkout: the modules and the static programs.

Programs: each binary of a Cargo package below tools/ goes to /bin, those of
tools/selftests to /selftests; each C file below tools/ that has a `main` is a program too. A
package that is not for guests declares it in its manifest:

	[package.metadata.qpair]
	host-only = true
"""

import contextlib
import json
import os
import pathlib
import re
import sys
import time

from qp import base, crates, kernel as kernels

TARGET = "x86_64-unknown-linux-gnu"
BUILD = base.TOP / "build"
WARNING = re.compile(r"^(warning|.*: warning|.*\bWARNING: modpost)\b.*", re.MULTILINE)

# The module of channels.
STREAM = "qpair-stream.ko"

# The module that keeps the counters of a build for scripts/coverage.
COVERAGE = "proofs/coverage/qpair_coverage.ko"

# The flags of user space in Rust that has counters. A process maps the file of its counters, which
# outlast a kill.
COUNTERS = "-Cinstrument-coverage -Cllvm-args=-runtime-counter-relocation"
COUNTED_TOOLS = BUILD / "coverage-tools"
# Those that libqpair is in. A change of libqpair changes the last.
OF_LIBQPAIR = tuple(COUNTED_TOOLS / TARGET / "release" / name for name in ("qpair", "qpair-selftest"))

# The strict build turns warnings into errors. scripts/test has its guests use it.
STRICT = ["KRUSTFLAGS=-Dwarnings", "KCFLAGS=-Werror"]


def coverage():
    """Where the counters of guests go, if the modules have any (scripts/coverage)."""
    folder = os.environ.get("QPAIR_COVERAGE")
    return pathlib.Path(folder) if folder else None


def counted(kernel):
    """The module with counters of a kernel."""
    return BUILD / f"coverage-{kernel}" / "qpair.ko"


def build_of(*built):
    """The name of a build, to know its counters from those of another; "none" without one."""
    return base.digest(*found) if (found := [path for path in built if path.exists()]) else "none"


def counters(kind, *built):
    """A new file for a guest's counters, of a kind of what has them and of its build."""
    return coverage() / f"{kind}-{build_of(*built)}-{os.getpid()}-{time.time_ns()}"


def module(kernel, strict="QPAIR_STRICT" in os.environ, clippy=False):
    """Builds the modules for a kernel's tree, and returns the path of that of queue pairs; the other
    is beside it."""
    counts = coverage() is not None and not clippy
    kind = "clippy" if clippy else "coverage" if counts else "strict" if strict else "module"
    extra = [*(STRICT if strict else []), *(["CLIPPY=1"] if clippy else []), *(["QPAIR_COVERAGE=1"] if counts else [])]
    out = BUILD / f"{kind}-{kernel.name}"
    name = f"{'checking' if clippy else 'building'} the modules for {kernel.release}"
    make_modules(name, kernel, base.TOP, out, extra)
    return out / "qpair.ko"


def make_modules(name, kernel, source, out, extra):
    """Builds the modules of a directory with the kernel's make, and prints warnings."""
    log = out / "log"
    command = ["make", f"-j{base.JOBS}", "-C", kernel.tree, f"M={source}", f"MO={out}", *kernel.make, *extra, "modules"]
    with base.locked(out / "lock"):
        base.step(name, command, log=log, quiet=True)
    text = log.read_text(errors="replace")
    if WARNING.search(text):
        base.say(f"{name}: warnings, in {log}")
        print(text, file=sys.stderr, flush=True)


def own_tree(image):
    """The user's kernel: PATH, with KDIR for its modules."""
    tree = os.environ.get("KDIR")
    release = "?"
    if tree:
        tree = pathlib.Path(tree).resolve()
        file = tree / "include/config/kernel.release"
        if not file.exists():
            raise base.Fail(f"KDIR={tree} is not a built kernel tree", "run make prepare modules_prepare in it")
        release = file.read_text().strip()
    return kernels.Kernel("own", release, image, tree, None, [])


def packages():
    text = base.output("cargo", "metadata", "--no-deps", "--format-version=1", "--locked", cwd=base.TOP)
    for package in json.loads(text)["packages"]:
        folder = pathlib.Path(package["manifest_path"]).parent
        metadata = (package["metadata"] or {}).get("qpair") or {}
        if (base.TOP / "tools") in folder.parents and not metadata.get("host-only"):
            yield package, folder


def programs(only=None):
    """The static programs for guests: a map of names in the guest to paths. With `only`, a Cargo
    package, no others are built."""
    ours = {name: stripped(path) for name, path in with_symbols(only).items()}
    return ours if only else {**ours, **c_programs()}


def stripped(path):
    """A program without its symbols, since the guest keeps it in memory."""
    copy = path.parent / "stripped" / path.name
    if not copy.exists() or copy.stat().st_mtime_ns < path.stat().st_mtime_ns:
        copy.parent.mkdir(parents=True, exist_ok=True)
        base.output("strip", "-o", copy, path)
    return copy


def with_symbols(only=None):
    """The programs of Cargo packages with symbols, to find the source of an address."""
    if not (base.TOP / "tools").is_dir():
        return {}
    found, names = {}, []
    if only:
        base.known("package", [only], [package["name"] for package, _ in packages()])
    counts = coverage() is not None
    target = COUNTED_TOOLS if counts else BUILD / "tools"
    for package, folder in packages():
        where = "selftests" if folder.name == "selftests" else "bin"
        binaries = [part["name"] for part in package["targets"] if "bin" in part["kind"]]
        if only not in (None, package["name"]):
            continue
        if binaries:
            names.append(package["name"])
        for name in binaries:
            found[f"{where}/{name}"] = target / TARGET / "release" / name
    if names:
        chosen = [word for name in names for word in ("--package", name)]
        with contextlib.nullcontext() if counts else crates.target("tools"):
            base.step(
                "building the tools",
                ["cargo", "build", "--locked", "--release", "--bins", "--target", TARGET, "--target-dir", target, *chosen],
                cwd=base.TOP,
                # For guests without a C library.
                env={"CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS": f"-C target-feature=+crt-static {COUNTERS if counts else ''}"},
                quiet=True,
            )
    return found


def c_sources(verbs):
    """The sources of C programs: those for libibverbs, or the others."""
    for source in sorted((base.TOP / "tools").rglob("*.c")):
        text = source.read_text()
        if re.search(r"^(int\s+)?main\(", text, re.MULTILINE) and ("<infiniband/" in text) == verbs:
            yield source


def c_program(source, words):
    """Builds a C program, if it is older than its source or a header beside that; returns its path."""
    program = BUILD / "c" / source.stem
    newest = max(path.stat().st_mtime for path in (source, *source.parent.glob("*.h")))
    if not program.exists() or program.stat().st_mtime < newest:
        program.parent.mkdir(parents=True, exist_ok=True)
        base.step(
            f"building {source.relative_to(base.TOP)}",
            ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source, *words],
            quiet=True,
        )
    return program


def c_programs():
    return {f"bin/{source.stem}": c_program(source, ["-static", "-pthread"]) for source in c_sources(verbs=False)}
