# SPDX-License-Identifier: GPL-2.0
"""make bench: measures, in three ways, into build/bench.

counted  figures for each operation, from a guest under -icount (qp/figures.py). It
         is measured twice, and two runs that do not agree within 1 % are a failure
timed    messages and bytes a second of this machine: says little on a shared one
plots    curves: against n, k and queue pairs; latency; a changing load (qp/sweeps.py)

    build/bench/counted.json, timed.json  all that was reported
    build/bench/figures.json              name: number
    build/bench/table.md                  the figures beside their goals
    build/bench/by-n.svg, ...             plots, and their data as .json

--accept keeps the counted figures in tools/bench/figures.json, against which
`make test LAYER=figures` compares, and the plots in Documentation/plots.
"""

import argparse
import subprocess

from qp import base
from qp import figures
from qp import payload
from qp import sweeps

OUT = payload.BUILD / "bench"

TIMED = [
    *(f"bench --op {op} --size 64 --count 20000" for op in ("send", "write", "read")),
    "bench --op send --size 64 --batch 1 --count 5000",
    "bench --op send --size 64 --qps 16 --count 20000",
    *(f"bench --op {op} --size 64k --count 1000" for op in ("send", "write", "read")),
    "ping --poll --count 2000",
    "ping --events --count 1000",
    "loopback --qps 4 --count 2000",
]


def counted(accept):
    base.say("counting, 1 of 2")
    first, runs = figures.measure()
    figures.save(OUT / "counted.json", runs)
    figures.save(OUT / "figures.json", first)
    base.say("counting, 2 of 2")
    second, _ = figures.measure()
    table = figures.table(first)
    (OUT / "table.md").write_text(table + "\n")
    print(table)
    differing = figures.differing(first, second)
    if differing:
        raise base.Fail("two runs do not agree:\n  " + "\n  ".join(differing))
    if accept:
        figures.save(figures.KEPT, first)
        base.say(f"kept in {figures.KEPT}")


def timed(_accept):
    script = "; ".join(f"qpair {command} --json || exit" for command in TIMED)
    result = subprocess.run(
        [base.SCRIPTS / "py", "guest", "--smp", "2", "--timeout", "900", "--", "sh", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    if result.returncode != 0:
        raise base.Fail(f"the guest ended with {result.returncode}")
    reports = dict(zip(TIMED, figures.documents(result.stdout.decode()), strict=True))
    figures.save(OUT / "timed.json", reports)
    for command, report in reports.items():
        rate = report.get("messages_per_second")
        shown = f"{rate:,.0f} messages a second" if rate else f"{report.get('seconds', report.get('usecs'))}"
        print(f"qpair {command:50} {shown}")


MODES = {"counted": counted, "timed": timed, "plots": sweeps.run}


def run(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modes", nargs="*", metavar="MODE", help=", ".join(MODES))
    parser.add_argument("--accept", action="store_true", help="keep the counted figures as those to compare with, and the plots as those of the documents")
    args = parser.parse_args(argv)
    base.known("mode", args.modes, MODES)
    for mode in args.modes or MODES:
        MODES[mode](args.accept)
    print(f"written to {OUT}")
    return 0


if __name__ == "__main__":
    base.main(run)
