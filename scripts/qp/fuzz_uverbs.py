# SPDX-License-Identifier: GPL-2.0
"""The target `uverbs` of scripts/fuzz: a guest in which proofs/uverbs fuzzes the device's file.

The module is built with the counters of scripts/coverage, which guide the engine. The guest shares a
folder, build/fuzz/uverbs/DEVICE: it has the program, the inputs to begin with, those that were found,
and the last ones, which are there whatever ends the guest. Those to begin with are of
proofs/uverbs/corpus.txt, and what earlier runs have found.
"""

import os
import shutil
import subprocess
import sys
import time

from qp import base, coverage, guest, payload

SOURCE = base.TOP / "proofs/uverbs"
OUT = payload.BUILD / "fuzz"
PROGRAM = "fuzz-uverbs"
CORPUS = SOURCE / "corpus.txt"
DEVICES = {"qpair": "qpair0", "roce": "qpair0", "rxe": "rxe0"}
# What the guest of each needs, and what it runs before.
GUESTS = {
    "qpair": ([], ""),
    "roce": (["--verbs", "--device-opt", "mac=52:54:00:12:34:56"], "roce"),
    "rxe": (["--verbs", "--devices", "0"], "soft-roce"),
}

# Bytes of a record of an input, as proofs/uverbs/src/call.rs has it: one call.
RECORD = 40
# Seconds of a boot and of a shutdown, at most; how often an input is replayed that failed once, and
# seconds of one replay.
BOOT, AGAIN, SLOWEST = 300, 10, 10
# The statuses after an input has failed: the program's own, and those of a guest that it has ended.
FAILURES = (3, guest.TIMED_OUT, guest.KERNEL_REPORTED, base.OWN_FAILURE)
# What QEMU says when its own assertion ends it, under TCG, now and then while the function is reset or
# unbound: no failure of an input. And how often that may be in a row in a replay.
MOVED, ENDS = "iotlb_to_section: Assertion", 3
# What has the coverage that is printed.
ROOMS = ("rust/kernel/rdma", "rust/object", "rust")


# How many inputs the corpus has, at most, and the seconds to choose them.
KEPT, ACCEPTING = 150, 600


def corpus():
    """The inputs of the checkout."""
    return [line for line in CORPUS.read_text().splitlines() if not line.startswith("#")]


def build():
    """Builds the program; returns it."""
    base.step(
        "building the fuzzer",
        ["nice", "cargo", "build", "--locked", "--release", "--package", "proofs-uverbs", "--features", "engine",
         "--target", payload.TARGET, "--target-dir", OUT / "target"],
        cwd=base.TOP,
        env={"CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS": "-C target-feature=+crt-static"},
        quiet=True,
    )  # fmt: skip
    return payload.stripped(OUT / "target" / payload.TARGET / "release" / PROGRAM)


class Target:
    """The device that is fuzzed, on a kernel."""

    def __init__(self, device, kernel):
        self.device, self.kernel = device, kernel
        self.share = OUT / "uverbs" / device
        self.counts = self.share / "counters"
        for folder in (self.share, self.counts):
            folder.mkdir(parents=True, exist_ok=True)
        for path in self.counts.iterdir():
            path.unlink()
        shutil.copy2(build(), self.share / PROGRAM)

    def run(self, words, seconds, out=None):
        """The status of the program in a guest; None if QEMU ended it."""
        options, before = GUESTS[self.device]
        options = ["--kernel", self.kernel, "--share", self.share, "--timeout", f"{seconds + BOOT:.0f}", "--package", "", *options]
        command = " && ".join(filter(None, [before, f"./{PROGRAM} {words}"]))
        env = {**os.environ}
        if self.device != "rxe":
            env["QPAIR_COVERAGE"] = str(self.counts)
        words = [base.SCRIPTS / "guest", *options, "--", "sh", "-c", command]
        log = self.share / "log"
        with open(log, "wb") as said:
            status = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=said, cwd=self.share).returncode
        text = log.read_text(errors="replace")
        if status == base.OWN_FAILURE and MOVED in text:
            base.say(f"QEMU has ended itself ({MOVED})")
            return None
        if out is None:
            print(text, end="", file=sys.stderr, flush=True)
        return status

    def read(self, name):
        """The inputs of a file of the share."""
        path = self.share / name
        return path.read_text().split() if path.exists() else []

    def write(self, name, inputs):
        (self.share / name).write_text("".join(f"{line}\n" for line in dict.fromkeys(inputs)))

    def keep(self):
        """Adds what is new to what was found: a guest that has not ended by itself may not have run all
        again."""
        self.write("found", [*self.read("found"), *self.read("new")])

    def begin(self):
        """Writes the inputs to begin with."""
        self.keep()
        self.write("start", [*corpus(), *self.read("found")])
        for name in ("new", "last"):
            (self.share / name).unlink(missing_ok=True)

    def accept(self):
        """Adds found inputs to the corpus, without the calls that they do not need."""
        self.keep()
        self.write("start", corpus())
        (self.share / "reduced").unlink(missing_ok=True)
        # A last input may begin as the time ends.
        status = self.run(f"reduce {DEVICES[self.device]} found {ACCEPTING}", 2 * ACCEPTING)
        added = self.read("reduced")[: max(0, KEPT - len(corpus()))]
        with open(CORPUS, "a") as lines:
            lines.writelines(f"{line}\n" for line in added)
        base.say(f"{len(added)} inputs added to the corpus")
        if status is None:
            raise base.Fail("QEMU has ended itself before all were tried", "run it again: it goes on")
        return status

    def covered(self):
        """Prints the lines of the module that the guests of this run have reached, of those that ended
        by themselves."""
        files = [path for path in sorted(self.counts.glob(f"{self.kernel}-*")) if path.stat().st_size]
        if not files:
            return
        coverage.OUT.mkdir(parents=True, exist_ok=True)
        module = payload.counted(self.kernel)
        raw = [path.with_suffix(".profraw") for path in files]
        for path, counters in zip(raw, files):
            path.write_bytes(coverage.profile(counters.read_bytes(), module))
        found = coverage.lines_of([(coverage.MODULE, module, coverage.merged(raw, "uverbs"))])
        for room in ROOMS:
            mine = [counts for file, counts in found.items() if file.startswith(f"{room}/")]
            total, ran = sum(map(len, mine)), sum(times > 0 for counts in mine for times in counts.values())
            print(f"{room:20} {total:6} lines {ran:6} ran {100 * ran / max(total, 1):6.1f} %")

    def last(self):
        """The last inputs, in their order: [(number, hexadecimal digits)]; none before the first has run."""
        path = self.share / "last"
        lines = (line.split() for line in path.read_text(errors="replace").split("\n")) if path.exists() else ()
        return sorted((int(words[0]), words[1]) for words in lines if len(words) == 2)

    def first_of(self, inputs, times):
        """The number of the first input that fails when each is run so often in one guest; None if
        none does."""
        (self.share / "again").write_text("".join(f"{line}\n" for line in inputs))
        (self.share / "last").unlink(missing_ok=True)
        words = f"replay {DEVICES[self.device]} again {times}"
        runs = (self.run(words, len(inputs) * times * SLOWEST, subprocess.DEVNULL) for _ in range(ENDS))
        status = next((status for status in runs if status is not None), None)
        if status is None:
            raise base.Fail(f"QEMU has ended itself {ENDS} times in a row ({MOVED})")
        if status == 0:
            return None
        last = self.last()
        if not last:
            raise base.Fail("the guest could not replay", f"see {self.share / 'log'}")
        return last[-1][0] // times

    def smaller(self, line):
        """An input that fails too, without most calls that are not needed for it."""
        size = len(line) // (2 * RECORD) // 2
        while size:
            step = 2 * RECORD * size
            fewer = [line[:at] + line[at + step :] for at in range(0, len(line), step)]
            at = self.first_of(fewer, AGAIN)
            base.say(f"without {size} calls: {'all pass' if at is None else 'one fails'}")
            if at is None:
                size //= 2
            else:
                line = fewer[at]
                size = min(size, len(line) // (2 * RECORD) // 2)
        return line

    def explain(self, as_found):
        """Minimises what has failed, unless it is to be as it was found; returns the file that has it."""
        last = self.last()
        broken = OUT / "uverbs" / f"broken-{base.digest(*last)}"
        broken.write_text("".join(f"{line}\n" for _, line in last))
        if as_found:
            # The log of a run in a clone that is gone has it.
            print(last[-1][1])
            return broken
        if self.first_of([last[-1][1]], AGAIN) is not None:
            broken.write_text(f"{self.smaller(last[-1][1])}\n")
        elif self.first_of([line for _, line in last], 1) is None:
            base.say("the last inputs pass when they are run again")
        return broken


def fuzz(args):
    """Runs the target; returns its status."""
    if args.replay and not args.replay.is_file():
        raise base.Fail(f"--replay {args.replay}: there is no such file", "name one with inputs, such as build/fuzz/uverbs/broken-0123456789abcdef")
    target = Target(args.device, args.kernel)
    name = DEVICES[args.device]
    if args.replay:
        shutil.copy2(args.replay, target.share / "again")
        status = target.run(f"replay {name} again 1", len(args.replay.read_text().splitlines()) * SLOWEST)
        return base.OWN_FAILURE if status is None else status
    seed = args.seed or int.from_bytes(os.urandom(4))
    until, left, status = time.monotonic() + args.time, args.time, None if args.time else 0
    while status is None and left > 0:
        base.say(f"fuzzing {name} for {left:.0f} s with seed {seed}")
        target.begin()
        status = target.run(f"fuzz {name} {left:.0f} {seed}", left)
        if status == 0:
            (target.share / "new").replace(target.share / "found")
        # A boot counts too.
        seed, left = seed + 1, until - time.monotonic()
        if status is None and not target.last():
            raise base.Fail(f"QEMU has ended itself before the first input ({MOVED})", "QPAIR_QEMU=patched in the environment uses a QEMU that does not")
    if args.device != "rxe":
        target.covered()
    if not status:
        return target.accept() if args.accept else 0
    if status not in FAILURES or not target.last():
        raise base.Fail(f"the fuzzer could not run ({status})")
    base.say(f"an input has failed: {guest.WHY.get(status, 'see above')}")
    broken = target.explain(args.as_found).relative_to(base.TOP)
    raise base.Fail("an input has failed", f"scripts/fuzz uverbs --device {args.device} --kernel {args.kernel} --replay {broken} runs it again, and prints its calls")
