# SPDX-License-Identifier: GPL-2.0
"""Runs a target under a fuzzer, which prefers inputs that reach new code.

    scripts/fuzz frames               one minute
    scripts/fuzz parse --time 3600    one hour
    scripts/fuzz frames --time 0 --accept
    scripts/fuzz uverbs --kernel debug
    scripts/fuzz uverbs --replay build/fuzz/uverbs/broken-0123456789abcdef

Those of proofs/fuzz run on the host under libFuzzer. They begin with the inputs of
proofs/fuzz/corpus and with those that earlier runs have found, in build/fuzz/TARGET. An input that
breaks a guarantee is printed as a line for the corpus, which the host's tests replay.

uverbs runs in a guest under LibAFL. A process without rights opens the device, and makes the calls
of an input: commands by ioctl() and write(), with right and wrong handles, lengths and addresses,
doorbells, work requests, changes of its memory; it forks, closes, dies, and in a few inputs the
device is reset or its driver unbound meanwhile. The module is built with counters, as for
scripts/coverage, which guide the engine. A report of the kernel is a failure, and so is a process
that cannot be killed, or a device that does not work any more. The input is then made smaller, in
further guests, and the command is printed that replays it and prints its calls. A run begins with
the inputs of proofs/uverbs/corpus.txt, and with those that earlier runs have found.
--device roce has a port of RoCE, which changes too. --device rxe does the same to soft-RoCE, without
guidance.
"""

import argparse
import pathlib

from qp import base, fuzz_uverbs, kernel as kernels, payload

SOURCE = base.TOP / "proofs/fuzz"
OUT = payload.BUILD / "fuzz"
TARGETS = ("parse", "frames", "device")
UVERBS = "uverbs"
PROFILE = "fuzz"

# The coverage that libFuzzer reads, as cargo-fuzz has it. These options need no nightly compiler.
COVERAGE = (
    "-Cpasses=sancov-module",
    *(
        f"-Cllvm-args=-sanitizer-coverage-{option}"
        for option in ("level=4", "inline-8bit-counters", "pc-table", "trace-compares")
    ),
)

# Bytes of an input, those of one for the corpus, and how many the corpus has.
LONGEST, SHORT, KEPT = 4096, 400, 150
# Megabytes of the process, and seconds of an input: more is a failure.
MEMORY, PATIENCE = 1024, 30


def build(target):
    """Builds a target; returns its program."""
    lines = base.output("rustc", "-vV").splitlines()
    machine = next(line.split()[1] for line in lines if line.startswith("host:"))
    base.step(
        f"building the target {target}",
        ["nice", "cargo", "build", "--locked", "--profile", PROFILE, "--package", "proofs-fuzz", "--features", "engine",
         "--bin", target, "--target", machine, "--target-dir", OUT / "target"],
        cwd=base.TOP,
        env={"RUSTFLAGS": " ".join(COVERAGE), "CXX": "clang++"},
        quiet=True,
    )  # fmt: skip
    return OUT / "target" / machine / PROFILE / target


def corpus(target):
    """The kept inputs of a target, as lines of hexadecimal digits."""
    lines = (SOURCE / "corpus" / f"{target}.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def put(folder, inputs):
    """Writes inputs as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for line in inputs:
        (folder / base.digest(line)).write_bytes(bytes.fromhex(line))


def accept(target, program, found):
    """Adds short inputs to the corpus which reach code that its inputs do not reach."""
    new = OUT / target / "new"
    for path in new.glob("*"):
        path.unlink()
    put(new, corpus(target))
    before = {path.name for path in new.iterdir()}
    base.step(
        "merging", [program, "-merge=1", f"-max_len={SHORT}", new, found], OUT / target / "merge.log", quiet=True
    )
    added = sorted((path for path in new.iterdir() if path.name not in before), key=lambda path: path.stat().st_size)
    room = max(0, KEPT - len(before))
    with open(SOURCE / "corpus" / f"{target}.txt", "a") as lines:
        lines.writelines(f"{path.read_bytes().hex()}\n" for path in added[:room] if path.stat().st_size)
    base.say(f"{min(room, len(added))} inputs added to the corpus of {target}")


def run(argv):
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", metavar="TARGET", help=", ".join([*TARGETS, UVERBS]))
    parser.add_argument("--time", type=int, default=60, metavar="SECONDS", help="how long it runs (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="SEED", help="of the engine's choices; 0, the default, is another one each time")
    parser.add_argument("--accept", action="store_true", help="add inputs that reach new code to the corpus")
    add = parser.add_argument_group("of uverbs").add_argument
    of_uverbs = [
        add("--kernel", choices=kernels.NAMES, default="stock", help="the guest's kernel (%(default)s)"),
        add("--device", choices=fuzz_uverbs.DEVICES, default="qpair", help="%(default)s; roce, the same with a port of RoCE; or soft-RoCE to compare with"),
        add("--as-found", action="store_true", help="do not make a failing input smaller"),
        add("--replay", type=pathlib.Path, metavar="FILE", help="run the inputs of a file, and print their calls"),
    ]
    args = parser.parse_args(argv)
    base.known("target", [args.target], [*TARGETS, UVERBS])
    if args.target == UVERBS:
        return fuzz_uverbs.fuzz(args)
    given = [option.option_strings[0] for option in of_uverbs if getattr(args, option.dest) != option.default]
    if given:
        again = f"; to run an input again, put its line into proofs/fuzz/corpus/{args.target}.txt, and run scripts/test host/corpus"
        remedy = f"leave it out{again if args.replay else ''}"
        raise base.Fail(f"{given[0]} is of {UVERBS}, not of {args.target}", remedy)
    program = build(args.target)
    found, broken = OUT / args.target / "found", OUT / args.target / "broken"
    put(found, corpus(args.target))
    broken.mkdir(exist_ok=True)
    before = set(broken.iterdir())
    if args.time:
        try:
            base.step(
                f"fuzzing {args.target}",
                [program, found, f"-max_total_time={args.time}", f"-seed={args.seed}", f"-max_len={LONGEST}", f"-rss_limit_mb={MEMORY}",
                 f"-timeout={PATIENCE}", f"-artifact_prefix={broken}/", "-print_final_stats=1", "-reload=0"],
                OUT / args.target / "log",
            )  # fmt: skip
        except base.Fail as failure:
            new = sorted(set(broken.iterdir()) - before)
            if not new:
                raise
            for path in new:
                print(path.read_bytes().hex())
            raise base.Fail(f"{failure}", f"mend what it shows, and add the line to proofs/fuzz/corpus/{args.target}.txt") from None
        for line in (OUT / args.target / "log").read_text(errors="replace").splitlines():
            if line.startswith("stat::"):
                print(line)
    if args.accept:
        accept(args.target, program, found)
    return 0


if __name__ == "__main__":
    base.main(run)
