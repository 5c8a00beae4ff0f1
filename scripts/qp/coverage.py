# SPDX-License-Identifier: GPL-2.0
"""Measures which lines the tests run: of the module, the provider and libqpair in guests, of the
crates on the host.

    scripts/coverage host stock debug          layers, as scripts/test has them
    scripts/coverage stock/data --all          one test, all its rounds
    scripts/coverage --lines                   those that no test of the last run has reached
    scripts/coverage verbs/iommu --part provider    one part of the tree

The module of queue pairs is built with counters. A module of its own (proofs/coverage) keeps them
while that one is loaded and removed, and each guest that ends writes them to build/coverage. The
tools of a guest, of which libqpair is measured, and its provider are built with counters too: all
processes of a program, or that load the provider, have them in one file, which the guest writes at
its end. A guest that is killed has none. The crates are built with counters into a target directory
beside the profiles. llvm-cov reads all of it, and a table has the lines of each folder, and of each
source of the provider in C.

Without layers: host, stock, iommu, verbs, wire and debug. The counters of earlier runs are kept,
so that a layer may run alone; --fresh removes them. Those of another build of the module, the tools
or the provider are removed too, and so are those of an earlier run of the crates. --accept stores the
figures of each part in proofs/coverage/figures.json, with the date and the layers that have
counters of this part; with --part those of one part, and the others stay. A part is compared once
these layers have been counted: it fails if one of its folders has fallen by more than one hundredth.
"""

import argparse
import collections
import datetime
import json
import os
import re
import shutil
import struct
import subprocess

from qp import base, payload, provider

OUT = payload.BUILD / "coverage"
GUESTS, HOST = OUT / "guests", OUT / "host"
# What cargo said, which names the tests' programs.
LOG = HOST / "log"
LAYERS = ("host", "stock", "iommu", "verbs", "wire", "debug")
# What has counters: a kernel's module, the provider and the tools, all in guests, and the crates.
MODULE, PROVIDER, TOOLS, CRATES = "module", "provider", "tools", "crates"
# The counters of programs in a guest: with programs of verbs it has a provider.
PROGRAMS = {PROVIDER: (PROVIDER, TOOLS), TOOLS: (TOOLS,)}
# The parts of the tree that are measured, and whose counters count each. A folder is such a part or
# one below it, or a source in C.
PARTS = {
    "rust": (MODULE, CRATES),
    "qemu/model": (CRATES,),
    "qemu/roce": (CRATES,),
    "qemu/ffi": (CRATES,),
    "tools/libqpair": (TOOLS, CRATES),
    "provider/data": (PROVIDER, CRATES),
    "provider": (PROVIDER,),
}

FIGURES = base.TOP / "proofs/coverage/figures.json"
# A module of tests in a source, up to the brace that ends it.
TESTS = re.compile(r"^#\[(?:kernel::macros::kunit_tests\(.*\)|cfg\(test\))\]\nmod \w+ \{$.*?^\}$", re.MULTILINE | re.DOTALL)
# By how much the part of a folder's lines that run may fall.
FALL = 0.01

# A raw profile of LLVM 19, 64 bits, little-endian.
MAGIC = int.from_bytes(b"\xfflprofr\x81")
VERSION = 10
# Bytes of a function's record.
RECORD = 64
# Kinds of values that it may profile, less one.
LAST_KIND = 2


def profile(counters, module):
    """What a guest has written, as a raw profile of its module."""
    names = OUT / "names"
    base.output("objcopy", "-O", "binary", "--only-section=__llvm_prf_names", "--set-section-flags", "__llvm_prf_names=alloc", module, names)
    names = names.read_bytes()
    data_at, data_size, counts_at, counts_size = struct.unpack_from("<4Q", counters)
    if len(counters) != 32 + data_size + counts_size:
        raise base.Fail("counters of a guest are incomplete", "scripts/coverage --fresh LAYER")
    header = struct.pack(
        "<16Q", MAGIC, VERSION, 0, data_size // RECORD, 0, counts_size // 8, 0, 0, 0,
        len(names), (counts_at - data_at) % 2**64, 0, 0, 0, 0, LAST_KIND,
    )  # fmt: skip
    return header + counters[32:] + names + bytes(-len(names) % 8)


def merged(files, name):
    """Raw profiles as one, or None."""
    if not files:
        return None
    listed = OUT / f"{name}.list"
    listed.write_text("\n".join(map(str, files)) + "\n")
    out = OUT / f"{name}.profdata"
    base.step(f"merging {len(files)} profiles of {name}", ["llvm-profdata", "merge", "-sparse", "-f", listed, "-o", out], quiet=True)
    return out


def fresh(kind, build):
    """The counters of this build of programs or of a kernel's module. Others are removed."""
    found = sorted(GUESTS.glob(f"*/{kind}-*"))
    stale = [path for path in found if path.name.split("-")[1] != build]
    for path in stale:
        path.unlink()
    if stale:
        what = f"the {kind}" if kind in PROGRAMS else f"the module of the {kind} kernel"
        base.say(f"counters of {len(stale)} guests are removed, because {what} changed since")
    return [path for path in found if path not in stale]


def counted(part):
    """The layers that have counters of a part of the tree."""
    files = (path for path in GUESTS.glob("*/*") if path.stat().st_size and {*owners_of(path)} & {*PARTS[part]})
    guests = {path.parent.name.replace(":", "/") for path in files}
    return sorted(guests | ({"host"} if CRATES in PARTS[part] and any(HOST.glob("*.profraw")) else set()))


def owners_of(path):
    """Whose counters a guest has written to a file."""
    return PROGRAMS.get(path.name.partition("-")[0], (MODULE,))


def programs_of(owner):
    """What is built with counters for guests, of the provider or the tools."""
    return [provider.library_of(counts=True)] if owner == PROVIDER else payload.OF_LIBQPAIR


def of_guests():
    """The coverage of the provider, of the tools, and of each kernel's module: (whose counters, what
    was built, merged profile)."""
    for kind in sorted({path.name.partition("-")[0] for path in GUESTS.glob("*/*")}):
        programs = programs_of(kind) if kind in PROGRAMS else [payload.counted(kind)]
        raw = []
        build = [payload.OF_LIBQPAIR[-1], *programs] if kind == PROVIDER else programs[-1:]
        for path in fresh(kind, payload.build_of(*build)):
            counters = path.read_bytes()
            if not counters:
                unless = ", or ran no program with counters" if kind in PROGRAMS else ""
                base.say(f"{path.name} is empty: its guest was killed{unless}")
                continue
            raw.append(OUT / f"{path.name}.profraw")
            raw[-1].write_bytes(counters if kind in PROGRAMS else profile(counters, programs[-1]))
        whole = merged(raw, kind)
        for owner in PROGRAMS.get(kind, [MODULE]):
            for program in programs_of(owner) if kind in PROGRAMS else programs:
                # A guest may be given no tools.
                if owner != TOOLS or program.exists():
                    yield owner, program, whole
        for path in raw:
            path.unlink()


def of_host():
    """The coverage of the crates: (CRATES, program, merged profile of all), of each program of tests.
    Not of all programs at once, because of each function llvm-cov takes the first one's, which may be
    one that has no code of it."""
    text = LOG.read_text() if LOG.exists() else ""
    programs = {base.TOP / name for name in re.findall(r"^\s+Running .* \((\S+)\)$", text, re.MULTILINE)}
    profile_of_all = merged(sorted(HOST.glob("*.profraw")), "host")
    for program in sorted(programs):
        yield CRATES, program, profile_of_all


def lines():
    """How often each line ran at least: {file: {line: times}}."""
    return lines_of([*of_guests(), *of_host()])


def lines_of(profiles):
    """The same by some profiles: (whose counters, what was built, merged profile)."""
    found = collections.defaultdict(collections.Counter)
    for owner, program, merged_profile in profiles:
        if not merged_profile:
            continue
        text = base.output("llvm-cov", "export", "-format=lcov", f"-instr-profile={merged_profile}", program)
        file = None
        for line in text.splitlines():
            kind, _, value = line.partition(":")
            if kind == "SF":
                file = name_of(value, owner)
            elif kind == "DA" and file:
                number, times = value.split(",")[:2]
                found[file][int(number)] = max(found[file][int(number)], int(times))
    return {file: left for file, counts in found.items() if (left := without_tests((base.TOP / file).read_text(), counts))}


def without_tests(text, counts):
    """The counts of a source's lines, less those of its modules of tests."""
    tests = [range(text.count("\n", 0, part.start()) + 1, text.count("\n", 0, part.end()) + 2) for part in TESTS.finditer(text)]
    return {line: times for line, times in counts.items() if not any(line in part for part in tests)}


def name_of(path, owner):
    """The name in the checkout of a file that these counters measure, or None."""
    name = os.path.relpath(path, base.TOP)
    of_tests = "/tests/" in name or name.endswith(("/tests.rs", "/kunit.rs"))
    return name if owner in PARTS.get(part_of(name), ()) and not of_tests else None


def part_of(name):
    """The part of the tree that has a file or a folder, or None."""
    return next((part for part in PARTS if f"{name}/".startswith(f"{part}/")), None)


def folder_of(file):
    part = part_of(file)
    below = file.removeprefix(f"{part}/").split("/")
    return f"{part}/{below[0]}" if part == "provider" or part == "rust" and len(below) > 1 else part


def table(found):
    """The lines of each folder, and how many ran; "all" is their sum."""
    folders = collections.defaultdict(lambda: [0, 0])
    for file, counts in found.items():
        for total in (folders[folder_of(file)], folders["all"]):
            total[0] += len(counts)
            total[1] += sum(1 for times in counts.values() if times)
    return dict(sorted(folders.items(), key=lambda item: (item[0] == "all", item[0])))


def fractions(folders):
    """The fraction of each folder's lines that ran: {part: {folder: fraction}}. None of the sum, whose
    parts are counted by different layers."""
    found = collections.defaultdict(dict)
    for folder, (total, ran) in folders.items():
        if folder != "all":
            found[part_of(folder)][folder] = round(ran / total, 4)
    return found


def fallen(now, before):
    """The folders of which fewer lines run than before."""
    return [f"{folder}: {now.get(folder, 0):.1%}, was {ran:.1%}" for folder, ran in before.items() if now.get(folder, 0) < ran - FALL]


def ranges(numbers):
    """Numbers as ranges: 1-3, 7."""
    out = []
    for number in sorted(numbers):
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ", ".join(f"{first}-{last}" if first != last else f"{first}" for first, last in out)


def run_layers(layers, everything):
    """Runs them with counters; returns the status of the last that failed."""
    status = 0
    for layer in layers:
        if layer == "host":
            status = run_crates() or status
            continue
        folder = GUESTS / layer.replace("/", ":")
        folder.mkdir(parents=True, exist_ok=True)
        words = [base.SCRIPTS / "test", *(["--all"] if everything else []), layer]
        status = subprocess.run(words, env={**os.environ, "QPAIR_COVERAGE": str(folder)}).returncode or status
    return status


def run_crates():
    """Runs the crates' tests with counters; returns 1 if one fails."""
    shutil.rmtree(HOST, ignore_errors=True)
    HOST.mkdir(parents=True)
    env = {"RUSTFLAGS": "-Cinstrument-coverage", "LLVM_PROFILE_FILE": str(HOST / "%p-%m.profraw")}
    words = ["nice", "cargo", "test", "--locked", "--target-dir", OUT / "target", "--workspace", "--features", "qpair/tokio", "--no-fail-fast"]
    try:
        base.step("cargo test with counters", words, LOG, base.TOP, env)
    except base.Fail:
        return 1
    return 0


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/coverage", description=__doc__.split("\n\n")[0], epilog=__doc__.split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    add = parser.add_argument
    add("layers", nargs="*", metavar="LAYER", help="a layer of scripts/test, or LAYER/NAME")
    add("--all", action="store_true", help="all tests of the layers, all rounds")
    add("--fresh", action="store_true", help="remove the counters of earlier runs first")
    add("--accept", action="store_true", help="store the figures, also of what earlier runs have counted")
    add("--lines", action="store_true", help="run nothing; list the lines that no test has reached")
    add("--part", action="append", choices=PARTS, help="show, compare and store only this part of the tree; repeatable")
    args = parser.parse_intermixed_args(argv)
    unknown = sorted({layer.partition("/")[0] for layer in args.layers} - set(LAYERS))
    if unknown:
        parser.error(f"no counters in {', '.join(unknown)}: layers are {', '.join(LAYERS)}")
    return args


def run(argv):
    args = parse(argv)
    if args.fresh:
        for folder in (GUESTS, HOST):
            shutil.rmtree(folder, ignore_errors=True)
    shown = args.lines or args.accept and not args.layers
    status = 0 if shown else run_layers(args.layers or LAYERS, args.all)
    only = args.part or list(PARTS)
    found = {file: counts for file, counts in lines().items() if part_of(file) in only}
    if not found:
        raise base.Fail("no counters", "scripts/coverage LAYER runs a layer with them")
    if args.lines:
        for file, counts in sorted(found.items()):
            missed = [number for number, times in counts.items() if not times]
            if missed:
                print(f"{file}: {ranges(missed)}")
    folders = table(found)
    for folder, (total, ran) in folders.items():
        print(f"{folder:24} {total:6} lines {ran:6} ran {100 * ran / total:6.1f} %")
    now = fractions(folders)
    before = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    if args.accept and status:
        raise base.Fail("a test failed: its layer's figures are not stored", "mend it, or leave out --accept to see the figures")
    if args.accept:
        date = str(datetime.date.today())
        accepted = {part: {"date": date, "layers": counted(part), "folders": ran} for part, ran in now.items()}
        FIGURES.write_text(json.dumps(before | accepted, indent="\t") + "\n")
        return 0
    return int(any([compare(part, before[part], now[part]) for part in before if part in only])) or status


def compare(part, figures, now):
    """Prints the folders of a part that have fallen below its figures; returns whether there is one."""
    ran = set(counted(part))
    missing = [layer for layer in figures["layers"] if not {layer, layer.partition("/")[0]} & ran]
    if missing:
        base.say(f"{part} is not compared: its figures also count {', '.join(missing)}")
        return False
    worse = fallen(now, figures["folders"])
    for line in worse:
        print(f"less runs of {line}")
    return bool(worse)


if __name__ == "__main__":
    base.main(run)
