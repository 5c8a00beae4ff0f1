# SPDX-License-Identifier: GPL-2.0
"""make bench: measures, in five ways, into build/bench.

counted  figures for each operation, from a guest under -icount (qp/figures.py). They
         are measured twice; two runs that do not agree within 1 % are a failure
timed    ratios to peers, in the same boot: soft-RoCE, NVMe, memcpy, and itself behind
         an IOMMU (qp/peers.py)
plots    curves: against n, k and queue pairs; latency; a changing load (qp/sweeps.py)
threads  ratios of the device to itself: with all work in the core, with an IOThread, with
         doorbells that take the global lock, with nothing kept mapped (qp/threads.py)
ladder   what a frame costs on each rung of Documentation/ladder.rst (qp/ladder.py)

    build/bench/counted.json, timed.json  all reports
    build/bench/figures.json              name: number, of the last run of each mode
    build/bench/table.md                  the figures beside their goals
    build/bench/ladder.json               the table of the ladder
    build/bench/by-n.svg, ...             plots, and their data as .json

On two cores without KVM counted takes about three minutes, the others five each; missing parts are
built first.

--accept stores the counted figures in tools/bench/figures.json, against which `make test
LAYER=figures` compares, and the plots in Documentation/plots.
"""

import argparse
import json

from qp import base, figures, ladder, payload, peers, space, sweeps, threads

OUT = payload.BUILD / "bench"


def keep(measured):
    """Adds figures to those that another mode measured; returns the table of all."""
    path = OUT / "figures.json"
    found = figures.merged(json.loads(path.read_text()) if path.exists() else {}, measured)
    figures.save(path, found)
    table = figures.table(found)
    (OUT / "table.md").write_text(table + "\n")
    return table


def counted(accept):
    base.say("counting, 1 of 2")
    first, runs = figures.measure()
    figures.save(OUT / "counted.json", runs)
    table = keep(first)
    base.say("counting, 2 of 2")
    second, _ = figures.measure()
    print(table)
    differing = figures.differing(first, second)
    if differing:
        raise base.Fail("two runs do not agree:\n  " + "\n  ".join(differing))
    if accept:
        figures.save(figures.KEPT, first)
        base.say(f"kept in {figures.KEPT}")


def timed(_accept):
    found = peers.measure()
    figures.save(OUT / "timed.json", found)
    print(keep({name: round(ratio["median"], 3) for name, ratio in found["ratios"].items()}))
    print(peers.summary(found))


def rungs(_accept):
    found = ladder.measure()
    figures.save(OUT / "ladder.json", {" ".join(map(str, case)): row for case, row in found.items()})
    print(ladder.table(found))


MODES = {"counted": counted, "timed": timed, "plots": sweeps.run, "threads": threads.run, "ladder": rungs}


def run(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modes", nargs="*", metavar="MODE", help=", ".join(MODES))
    parser.add_argument("--accept", action="store_true", help="store the counted figures in tools/bench/figures.json, and the plots in Documentation/plots")
    args = parser.parse_intermixed_args(argv)
    base.known("mode", args.modes, MODES)
    modes = args.modes or MODES
    space.need(["stock"], {qemu.choice(qemu.PATCHED if mode == "threads" else qemu.DISTRIBUTION) for mode in modes})
    for mode in modes:
        MODES[mode](args.accept)
    print(f"written to {OUT}")
    return 0


if __name__ == "__main__":
    base.main(run)
