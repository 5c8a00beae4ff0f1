# SPDX-License-Identifier: GPL-2.0
"""The target `uverbs` of scripts/fuzz: a guest in which proofs/uverbs fuzzes the device's file.

The module is built with the counters of scripts/coverage, which guide the engine. The guest shares a
folder, build/fuzz/uverbs/DEVICE: it has the program, the inputs to begin with, those that were found,
and the last ones, which are there whatever ends the guest.
"""

import os
import shutil
import subprocess

from qp import base, coverage, guest, payload

SOURCE = base.TOP / "proofs/uverbs"
OUT = payload.BUILD / "fuzz"
PROGRAM = "fuzz-uverbs"
DEVICES = {"qpair": "qpair0", "rxe": "rxe0"}

# Bytes of a record of an input, as proofs/uverbs/src/call.rs has it: one call.
RECORD = 40
# Seconds of a boot and of a shutdown, at most; how often an input is replayed that failed once, and
# seconds of one replay.
BOOT, AGAIN, SLOWEST = 300, 10, 10
# The statuses after an input has failed: the program's own, and those of a guest that it has ended.
FAILURES = (3, guest.TIMED_OUT, guest.KERNEL_REPORTED, base.OWN_FAILURE)
# What has the coverage that is printed.
ROOMS = ("rust/kernel/rdma", "rust/object", "rust")


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
        self.counts = OUT / "uverbs" / "counters"
        for folder in (self.share, self.counts):
            folder.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build(), self.share / PROGRAM)

    def run(self, words, seconds, out=None):
        """The status of the program in a guest."""
        options = ["--kernel", self.kernel, "--share", self.share, "--timeout", str(seconds + BOOT), "--package", "proofs-uverbs"]
        command = f"./{PROGRAM} {words}"
        env = {**os.environ}
        if self.device == "qpair":
            env["QPAIR_COVERAGE"] = str(self.counts)
        else:
            options += ["--verbs", "--devices", "0"]
            command = f"soft-roce && {command}"
        words = [base.SCRIPTS / "guest", *options, "--", "sh", "-c", command]
        return subprocess.run(words, env=env, stdin=subprocess.DEVNULL, stdout=out, cwd=self.share).returncode

    def covered(self):
        """Prints the lines of the module that this run has reached."""
        files = sorted(self.counts.iterdir(), key=lambda path: path.stat().st_mtime)
        if not files or not files[-1].stat().st_size:
            return
        coverage.OUT.mkdir(parents=True, exist_ok=True)
        raw, module = self.share / "profraw", payload.counted(self.kernel)
        raw.write_bytes(coverage.profile(files[-1].read_bytes(), module))
        found = coverage.lines_of([(coverage.MODULE, module, coverage.merged([raw], "uverbs"))])
        for room in ROOMS:
            mine = [counts for file, counts in found.items() if file.startswith(f"{room}/")]
            total, ran = sum(map(len, mine)), sum(times > 0 for counts in mine for times in counts.values())
            print(f"{room:20} {total:6} lines {ran:6} ran {100 * ran / max(total, 1):6.1f} %")
        for path in (raw, *files):
            path.unlink()

    def last(self):
        """The last inputs, in their order: [(number, hexadecimal digits)]."""
        lines = (line.split() for line in (self.share / "last").read_text(errors="replace").split("\n"))
        return sorted((int(words[0]), words[1]) for words in lines if len(words) == 2)

    def first_of(self, inputs, times):
        """The number of the first input that fails when each is run so often in one guest; None if
        none does."""
        (self.share / "again").write_text("".join(f"{line}\n" for line in inputs))
        (self.share / "last").unlink(missing_ok=True)
        status = self.run(f"replay {DEVICES[self.device]} again {times}", len(inputs) * times * SLOWEST, subprocess.DEVNULL)
        if status == 0:
            return None
        if not (self.share / "last").exists():
            raise base.Fail("the guest could not replay")
        return self.last()[-1][0] // times

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

    def explain(self):
        """Minimises what has failed; returns the file that has it."""
        last = self.last()
        broken = OUT / "uverbs" / f"broken-{base.digest(*last)}"
        broken.write_text("".join(f"{line}\n" for _, line in last))
        if not last:
            return broken
        if self.first_of([last[-1][1]], AGAIN) is not None:
            broken.write_text(f"{self.smaller(last[-1][1])}\n")
        elif self.first_of([line for _, line in last], 1) is None:
            base.say("the last inputs pass when they are run again")
        return broken


def fuzz(args):
    """Runs the target; returns its status."""
    target = Target(args.device, args.kernel)
    name = DEVICES[args.device]
    if args.replay:
        shutil.copy2(args.replay, target.share / "again")
        return target.run(f"replay {name} again 1", len(args.replay.read_text().splitlines()) * SLOWEST)
    seed = args.seed or int.from_bytes(os.urandom(4))
    base.say(f"fuzzing {name} for {args.time} s with seed {seed}")
    shutil.copy2(SOURCE / "corpus.txt", target.share / "start")
    found = target.share / "found"
    if found.exists():
        with open(target.share / "start", "a") as start:
            start.write(found.read_text())
        found.unlink()
    (target.share / "last").unlink(missing_ok=True)
    status = target.run(f"fuzz {name} {args.time} {seed}", args.time)
    if args.device == "qpair":
        target.covered()
    if status == 0:
        return 0
    if status not in FAILURES or not (target.share / "last").exists():
        raise base.Fail(f"the fuzzer could not run ({status})")
    base.say(f"an input has failed: {guest.WHY.get(status, 'see above')}")
    broken = target.explain().relative_to(base.TOP)
    raise base.Fail("an input has failed", f"scripts/fuzz uverbs --device {args.device} --kernel {args.kernel} --replay {broken} runs it again, and prints its calls")
