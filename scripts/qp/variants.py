# SPDX-License-Identifier: GPL-2.0
"""Wrong variants by a tool: cargo-mutants changes a crate in one place, and its tests have to fail.

    scripts/py variants queue                         every variant of rust/queue: hours
    scripts/py variants queue --every 10              a tenth of them, evenly spread
    scripts/py variants queue --every 10 --first 5    another tenth
    scripts/py variants queue --list                  what they are

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
import shutil

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
# Not tried.
EXCLUDED = (
    # Nearly all join disjoint bits, where both are equal.
    r"replace \| with \^",
    # Equal in a minimum.
    r"replace < with <= in SlotShares::of",
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


def without():
    """Options of cargo-mutants that leave out what is not tried."""
    return [word for name in EXCLUDED for word in ("--exclude-re", name)]


def command(name, first, every, folder=base.TOP):
    """The command that tries one of `every` variants of a crate in a folder, beginning with `first`."""
    changed, tests, *more = CRATES[name]
    words = [tool() / "cargo-mutants", "mutants", "--dir", folder, "--package", changed, "--test-package", tests, "--output", OUT / name]
    return [*words, *more, *without(), "--sharding", "round-robin", "--shard", f"{first}/{every}", "--no-shuffle", "--colors", "never"]


def listed(name, first, every):
    """The names of one of `every` variants, beginning with `first`, each a line."""
    if name == MODULE:
        return "".join(f"{line}\n" for line, _ in variants_module.listed(tool(), without(), first, every))
    return base.output(*command(name, first, every), "--list")


def judged(folder):
    """How many variants count, how many of them are caught, and the names of the others."""
    found = json.loads((folder / "outcomes.json").read_text())
    caught = found["caught"] + found["timeout"]
    return caught + found["missed"], caught, (folder / "missed.txt").read_text().splitlines()


def of_a_crate(name, first, every, folder):
    """Tries the variants of a crate in a copy of the checkout, as `judged`."""
    # The status is 2 if any is missed, and 3 if any has hung.
    words = ["sh", "-c", '"$@" || case $? in 2 | 3) ;; *) exit 1 ;; esac', "sh", *command(name, first, every, folder), "--in-place"]
    base.step(f"variants of {name}", words, OUT / name / "log", env={"CARGO_TARGET_DIR": str(OUT / "target"), "CARGO_INCREMENTAL": "1"})
    return judged(OUT / name / "mutants.out")


def tried(name, first, every, folder):
    """Tries the variants of a crate or of the module in a copy of the checkout; whether enough are caught."""
    (OUT / name).mkdir(parents=True, exist_ok=True)
    cache.need_space((OUT, SIZE))
    if name == MODULE:
        goal, (total, caught, missed) = variants_module.GOAL, variants_module.tried(tool(), without(), first, every, folder, OUT / name)
    else:
        goal, (total, caught, missed) = GOAL, of_a_crate(name, first, every, folder)
    if not total:
        raise base.Fail(f"no variant of {name} was tried", f"see {OUT / name / 'log'}")
    for line in missed:
        print(f"not caught: {line}")
    print(f"{name}: {caught} of {total} variants caught, {100 * caught / total:.1f} %")
    return 100 * caught >= goal * total


def run(argv):
    parser = argparse.ArgumentParser(prog="scripts/py variants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("crates", nargs="*", metavar="CRATE", help=f"{', '.join(CRATES)}; default: all of these. Or {MODULE}")
    parser.add_argument("--every", type=positive, default=1, metavar="N", help="try one of N (%(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="begin with the Kth of these N, counted from 0 (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the variants, and try none")
    args = parser.parse_args(argv)
    base.known("crate", args.crates, (*CRATES, MODULE))
    if not 0 <= args.first < args.every:
        raise base.Fail(f"--first {args.first} is not from 0 to {args.every - 1}", f"with --every {args.every}, --first is below {args.every}; a greater --every allows more")
    names = args.crates or list(CRATES)
    if args.list:
        text = "".join(listed(name, args.first, args.every) for name in names)
        print(text, end="")
        if not text:
            base.say("there is no such variant")
        return 0
    folder = copy()
    few = [name for name in names if not tried(name, args.first, args.every, folder)]
    if few:
        raise base.Fail(f"too few of the variants are caught: {', '.join(few)}", "add a test for each that is wrong; add those that are equal to the source to EXCLUDED in scripts/qp/variants.py")
    return 0


if __name__ == "__main__":
    base.main(run)
