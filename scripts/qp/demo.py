# SPDX-License-Identifier: GPL-2.0
"""make run: copies a file through queue pairs, with each operation, and runs a program of verbs.

    scripts/run [FILE]

Builds what is missing, boots a guest on the stock kernel, loads the module, and has
`qpair copy` move FILE (by default the guest's kernel image) in the guest: its process posts work
requests in memory of its own and rings doorbells, and the device moves the bytes without the
kernel. The host compares the result with FILE too, and prints the device's own counters with their
meanings. Then ib_write_bw of perftest, as Debian has it, runs on the device between two processes.
QEMU is Debian's too, with the device as a plugin.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import time

from qp import base, kernel as kernels, payload, qemu, space, verbs

OPS = ("send", "write", "read")
FOLDER = payload.BUILD / "run"
# The package of the only program that the guest needs.
TOOL = "qpair-tool"

# An unmodified program of verbs, both sides of it.
PROGRAM = "ib_write_bw -d qpair0 -F -s 65536 -n 1000"

# The device's counters to print, and the meaning of each.
STORY = [
    ("{op}-bytes", "bytes that the device moved: the file, once"),
    ("send-wqes", "work requests that the device fetched from the process's memory"),
    ("recv-wqes", "buffers that a receiver had posted; WRITE and READ need none"),
    ("commands", "of the driver, one of which reads the counters: each has a doorbell, a completion and an event"),
    ("sq-doorbells", "writes of the process to post new requests: one for many"),
    ("rq-doorbells", "the same for receive buffers"),
    ("cqes", "completions that the device wrote to the process's memory"),
    ("cq-head-doorbells", "writes of the process to free completion slots"),
    ("eqes", "events: the process needs none, as it polls"),
    ("interrupts", "interrupts: the process causes none either"),
    ("violations", "invalid doorbells: there must be none"),
]


def number(value):
    return f"{value:,}".replace(",", " ")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_in_guest(source):
    """Runs the three copies and the program in one guest; returns the reports of the copies."""
    steps = [f"qpair copy source copy-{op} --op {op} --json >{op}.json || exit" for op in OPS]
    script = "\n".join([f"cd {shlex.quote(str(FOLDER))}", *steps, f"pair {PROGRAM} >program 2>&1 || {{ cat program >&2; exit 1; }}"])
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    shutil.copyfile(source, FOLDER / "source")
    base.step(
        "booting the guest, loading the module, copying, running perftest",
        [base.SCRIPTS / "guest", "--verbs", "--package", TOOL, "--share", FOLDER, "--", "sh", "-c", script],
    )
    return [json.loads((FOLDER / f"{op}.json").read_text()) for op in OPS]


def show(name, size, reports):
    """Prints the result."""
    print()
    print(f"{name} ({number(size)} bytes) went through queue pairs of a process, three times:")
    print()
    print(f"{'':19}" + "".join(f"{op.upper():>12}" for op in OPS))
    print(f"{'MiB a second':19}" + "".join(f"{report['bytes_per_second'] / 2**20:12.1f}" for report in reports) + "  most of the time is for the files and their SHA-256, in the guest")
    for counter, meaning in STORY:
        name = counter.format(op="payload") if "{" in counter else counter
        values = (report["counters"][counter.format(op=op)] for op, report in zip(OPS, reports))
        print(f"{name:19}" + "".join(f"{number(value):>12}" for value in values) + f"  {meaning}")
    print()


def show_program():
    """Prints the result of the program of verbs."""
    lines = (FOLDER / "program").read_text().splitlines()
    rows = [at for at, line in enumerate(lines) if re.match(r" *\d+ +1000 ", line)]
    if not rows:
        raise base.Fail(f"{PROGRAM} printed no result", f"see {FOLDER / 'program'}")
    print(f"An unmodified program of verbs between two processes, {PROGRAM}:")
    print("how many bytes each WRITE has, how many WRITEs there were, the highest and the average MiB a second,")
    print("and millions of WRITEs a second (Mpps):")
    print()
    print(f"{lines[rows[0] - 1].expandtabs()}\n{lines[rows[0]].expandtabs()}")
    print()


def before_this():
    """Seconds since scripts/run began: the first time it makes the build root."""
    began = os.environ.get("QPAIR_BEGAN")
    return max(0.0, time.time() - float(began)) if began else 0.0


def times(total):
    """The steps that took a second or more with their processor time, and all of it."""
    steps = [f"{name} {took:.0f} s" + (f" ({work:.0f} s)" if work else "") for name, took, work in base.TIMES if took >= 1]
    return "times (of the processors): " + "; ".join([*steps, f"in all {total:.0f} s"])


def run(argv):
    parser = argparse.ArgumentParser(prog="scripts/run", description=__doc__.split("\n\n")[0])
    parser.add_argument("file", nargs="?", type=pathlib.Path, metavar="FILE", help="the file to copy")
    args = parser.parse_args(argv)
    before = before_this()
    begin = time.monotonic() - before
    base.TIMES.append(("making the build root", before, 0.0))
    space.need(["stock"])
    kernel = kernels.get("stock")
    if args.file and not pathlib.Path("/proc/self/fd/3").exists():
        raise base.Fail("FILE must be the first argument", "scripts/run FILE")
    # Opened by scripts/run, on the host.
    source, name = (pathlib.Path("/proc/self/fd/3"), args.file.name) if args.file else (kernel.image, kernel.image.name)
    qemu.binary()
    payload.module(kernel)
    payload.programs(TOOL)
    # Built here, not by scripts/guest, so that each step has its own time.
    verbs.files(kernel)
    reports = copy_in_guest(source)
    expected, size = digest(source), source.stat().st_size
    for op, report in zip(OPS, reports):
        if digest(FOLDER / f"copy-{op}") != expected or report["sha256_written"] != expected:
            raise base.Fail(f"the copy by {op.upper()} differs from {name}")
        if report["counters"][f"{op}-bytes"] < size:
            raise base.Fail(f"{op.upper()}: the device moved fewer bytes than the file has")
    show(name, size, reports)
    show_program()
    print(f"SHA-256 of the file and of the three copies, in the guest and here: {expected}")
    print(times(time.monotonic() - begin))
    return 0


if __name__ == "__main__":
    base.main(run)
