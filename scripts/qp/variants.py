# SPDX-License-Identifier: GPL-2.0
"""Wrong variants by a tool: cargo-mutants changes a crate in one place, and its tests have to fail.

    scripts/py variants queue                         every variant of rust/queue: hours
    scripts/py variants queue --every 10              a tenth of them, evenly spread
    scripts/py variants queue --every 10 --first 5    another tenth
    scripts/py variants queue --list                  what they are
    scripts/py variants queue --name 'in PageList::push'    those whose names, as --list prints them, have this

A name has the line and the column of its place, which move: --name is better without them. --every tries
one of N of those that --name leaves.

The variants of wrong.toml are written by hand, each of a known mistake. These show which code no
test checks. Each is a build and a run of the crate's tests in a copy of the checkout, in
build/variants. A variant that does not compile does not count, and one that runs into the time limit
is caught.

    scripts/py variants module --every 100            of rust/hw, rust/life and rust/object, in guests

`module` is not among the crates that are tried by default: a variant takes minutes. It needs the debug
kernel too. At least 95 % of a crate's variants have to be caught, and 90 % of the module's. Logs are in
build/variants.
"""

import argparse
import json
import re
import shutil
import typing

from qp import base, cache, payload, variants_module
from qp.guest import positive

VERSION = "26.0.0"
OUT = payload.BUILD / "variants"
# The package that is changed, and the one whose tests have to fail; options of cargo-mutants.
CRATES = {
    "queue": ("qpair-queue", "proofs-queue"),
    "model": ("qpair-model", "qpair-model"),
    "roce": ("qpair-roce", "proofs-roce"),
    "library": ("qpair", "qpair", "--features", "tokio"),
    # The host does not compile what takes the structures of libibverbs.
    "provider": ("qpair-verbs", "qpair-verbs", "--exclude", "provider/data/src/ops/**"),
}
# The module, which no crate has.
MODULE = "module"
# Percent of a crate's variants that have to be caught.
GOAL = 95
# Not tried: no test can tell them from the original, or the host does not compile them.
EXCLUDED = (
    # Nearly all join disjoint bits, where both are equal.
    r"replace \| with \^",
    # Equal in a minimum.
    r"replace < with <= in SlotShares::of",
    # Correct, and slower: the general path does the same.
    r"delete match arm \[\] in Receive<'a>::one_block",
    r"replace match guard put_other\(.*\) with false in put_sends",
    # An audit, which finds nothing as long as the other rules hold.
    r"replace (Account<K>|Flow|Direct)::is_whole -> bool with true",
    r"replace && with \|\| in (Flow|Direct)::is_whole",
    # A pool keeps one frame more, which nothing observes.
    r"replace < with <= in Frames::discard",
    # For `ops`, which the host does not compile.
    r"provider/data/src/lock\.rs.* replace keep with",
)
# Gigabytes of the copy with what it builds, and of the tool.
SIZE, TOOL = 3, 0.1


def tool():
    """The folder that has cargo-mutants, which is built if it is missing."""
    folder = base.CACHE / "tool" / f"cargo-mutants-{VERSION}-{base.digest(base.toolchain())}"

    def build(folder):
        cache.need_space((base.CACHE, TOOL))
        words = ["cargo", "install", "--locked", "--version", VERSION, "cargo-mutants", "--root", folder, "--target-dir", OUT / "tool"]
        base.step(f"building cargo-mutants {VERSION}", words)

    return cache.entry(folder, build) / "bin"


def copy():
    """A copy of the checkout without what is built, in which the sources are changed.

    The copied files get the current time. Otherwise Cargo would take a source that is older than its last
    build, which may be of a variant, for unchanged."""
    folder = OUT / "source"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    script = 'git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -c | tar -x -m -C "$1"'
    base.step("copying the checkout", ["sh", "-c", script, "sh", folder], cwd=base.TOP, quiet=True)
    return folder


class Sample(typing.NamedTuple):
    """Which variants are tried."""

    # One of `every`, beginning with `first`.
    first: int = 0
    every: int = 1
    # Only those that have one of these in their names, if there are any.
    names: tuple = ()

    def of(self, listed):
        """Those of the module: `listed` are (name, what cargo-mutants says of it)."""
        return [one for one in listed if not self.names or any(name in one[0] for name in self.names)][self.first :: self.every]

    def options(self):
        """The same for cargo-mutants."""
        named = [word for name in self.names for word in ("--re", re.escape(name))]
        return [*named, "--sharding", "round-robin", "--shard", f"{self.first}/{self.every}"]


def without():
    """Options of cargo-mutants that leave out what is not tried."""
    return [word for name in EXCLUDED for word in ("--exclude-re", name)]


def command(name, sample, folder=base.TOP):
    """The command that tries a sample of the variants of a crate in a folder."""
    changed, tests, *more = CRATES[name]
    words = [tool() / "cargo-mutants", "mutants", "--dir", folder, "--package", changed, "--test-package", tests, "--output", OUT / name]
    return [*words, *more, *without(), *sample.options(), "--no-shuffle", "--colors", "never"]


def listed(name, sample):
    """The names of a sample of the variants, each a line."""
    if name == MODULE:
        return "".join(f"{line}\n" for line, _ in sample.of(variants_module.listed(tool(), without(), base.TOP)))
    return base.output(*command(name, sample), "--list")


def judged(folder):
    """How many variants count, how many of them are caught, and the names of the others."""
    found = json.loads((folder / "outcomes.json").read_text())
    caught = found["caught"] + found["timeout"]
    return caught + found["missed"], caught, (folder / "missed.txt").read_text().splitlines()


def of_a_crate(name, sample, folder):
    """Tries a sample of the variants of a crate in a copy of the checkout, as `judged`."""
    # The status is 2 if any is missed, and 3 if any has hung.
    words = ["sh", "-c", '"$@" || case $? in 2 | 3) ;; *) exit 1 ;; esac', "sh", *command(name, sample, folder), "--in-place", "--caught"]
    base.step(f"variants of {name}", words, OUT / name / "log", env={"CARGO_TARGET_DIR": str(OUT / "target"), "CARGO_INCREMENTAL": "1"})
    return judged(OUT / name / "mutants.out")


def tried(name, sample, folder):
    """Tries a sample of the variants of a crate or of the module in a copy of the checkout; whether enough are caught."""
    (OUT / name).mkdir(parents=True, exist_ok=True)
    cache.need_space((OUT, SIZE))
    if name == MODULE:
        variants = sample.of(variants_module.listed(tool(), without(), folder))
        goal, (total, caught, missed) = variants_module.GOAL, variants_module.tried(variants, folder, OUT / name)
    else:
        goal, (total, caught, missed) = GOAL, of_a_crate(name, sample, folder)
    if not total:
        base.say(f"no variant of {name} that was tried compiles, see {OUT / name / 'log'}")
        return False
    for line in missed:
        print(f"not caught: {line}")
    print(f"{name}: {caught} of {total} variants caught, {100 * caught / total:.1f} %")
    return 100 * caught >= goal * total


def run(argv):
    parser = argparse.ArgumentParser(prog="scripts/py variants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("crates", nargs="*", metavar="CRATE", help=f"{', '.join(CRATES)}; default: all of these. Or {MODULE}")
    parser.add_argument("--every", type=positive, default=1, metavar="N", help="try one of N (%(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="which of each N, from 0 to N-1 (%(default)s)")
    parser.add_argument("--name", action="append", default=[], metavar="TEXT", help="try only those whose names have this text; may be repeated, for those that have one of the texts")
    parser.add_argument("--list", action="store_true", help="print the variants, and try none")
    args = parser.parse_intermixed_args(argv)
    base.known("crate", args.crates, (*CRATES, MODULE))
    if not 0 <= args.first < args.every:
        raise base.Fail(f"--first {args.first} is not from 0 to {args.every - 1}", f"with --every {args.every}, --first is below {args.every}; a greater --every allows more")
    sample = Sample(args.first, args.every, tuple(args.name))
    found = {name: listed(name, sample) for name in args.crates or CRATES}
    if args.list:
        print("".join(found.values()), end="")
    if not any(found.values()):
        lists = " ".join(["scripts/py variants", *args.crates, "--list"])
        raise base.Fail("there is no such variant", f"`{lists}` prints the names; --name is a part of one, and a smaller --every leaves more")
    if args.list:
        return 0
    names = [name for name, variants in found.items() if variants]
    folder = copy()
    few = [name for name in names if not tried(name, sample, folder)]
    if few:
        raise base.Fail(f"too few of the variants are caught: {', '.join(few)}", "add a test for each that is wrong; add those that are equal to the source to EXCLUDED in scripts/qp/variants.py")
    return 0


if __name__ == "__main__":
    base.main(run)
