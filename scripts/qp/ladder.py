# SPDX-License-Identifier: GPL-2.0
"""The table of Documentation/ladder.rst: what a frame costs on each rung, counted in one boot.

A guest with one processor runs under -icount (qp/figures.py) and has both functions. The kernel's
clients move frames, which are not filled and not verified: so the cost is that of the rings. Each
workload runs with a small count and a large one, and a figure is the difference divided by the
difference of the counts.

Registers, DMA and interrupts are the counters of the functions. The function of queue pairs counts
doorbells, and no bytes of DMA.
"""

import itertools

from qp import figures, guest

SIZES = (64, 1500)
BATCHES = (1, 32)
RUNGS = ("polled", "chain", "headtail", "pair")
# Both are multiples of the batches.
FEW, MANY = 256, 16640
# Queue pairs of the client: each is its own peer.
QPS = 2

GUEST = [*figures.GUEST, "--stream"]

STREAM = ("reg-writes", "reg-reads", "dma-reads", "dma-read-bytes", "dma-writes", "dma-write-bytes", "interrupts")
DOORBELLS = ("sq-doorbells", "rq-doorbells", "cq-head-doorbells", "cq-arm-doorbells", "eq-head-doorbells", "eq-masked-doorbells")
PAIR = (*DOORBELLS, "dma-reads", "dma-writes", "interrupts")

# Counts are read outside of what is counted: the instructions last before, and first after.
PRELUDE = (
    figures.TOOLS
    + r"""
channels=$(ls -d /sys/kernel/debug/qpair-stream/*) || exit
get() { qmp qom-get path=/machine/peripheral/$1 property=$2 | tr -dc 0-9; }
channel() {
	echo "verify=0 $*" > $channels/loopback && return
	cat $channels/loopback >&2
	exit 1
}
counts() {
	object=$1
	shift
	for name; do printf '"%s": %s, ' $name $(get $object $name); done
}
# run OBJECT "COUNTERS" COMMAND...
run() {
	object=$1 names=$2
	shift 2
	before=$(counts $object $names)
	start=$(get qpair0 guest-instructions)
	"$@" || exit
	end=$(get qpair0 guest-instructions)
	echo "{\"before\": {$before\"instructions\": $start}, \"after\": {$(counts $object $names)\"instructions\": $end}}"
}
knob moderation off
while sleep 1; do before=$(get qpair0 guest-instructions); sleep 1; [ $(($(get qpair0 guest-instructions) - before)) -lt 20000000 ] && break; done
"""
)


def cases():
    """Each rung, size and batch; a single descriptor has no batches."""
    for rung, size, batch in itertools.product(RUNGS, SIZES, BATCHES):
        if rung != "polled" or batch == 1:
            yield rung, size, batch


def lines(rung, size, batch):
    """The commands of a case: once for one-time costs, then both counts."""
    for count in (FEW, FEW, MANY):
        if rung == "pair":
            yield f'run qpair0 "{" ".join(PAIR)}" loopback op=send qps={QPS} group=1 depth={batch} size={size} count={count // QPS}'
        else:
            # A single frame does not wait for the interval of a ring.
            interval = 0 if batch == 1 else 20
            yield f'run stream0 "{" ".join(STREAM)}" channel kind={rung} size={size} batch={batch} count={count} interval={interval}'


def each(few, many):
    """The counts of a frame."""

    def used(run, name):
        return run["after"][name] - run["before"][name]

    return {name: (used(many, name) - used(few, name)) / (MANY - FEW) for name in many["after"]}


def named(rung, counts):
    """The columns of the table; None is not counted."""
    writes = sum(counts[name] for name in DOORBELLS) if rung == "pair" else counts["reg-writes"]
    return {
        "instructions": round(counts["instructions"]),
        "register writes": round(writes, 2),
        "register reads": round(counts["reg-reads"], 2) if rung != "pair" else 0,
        "DMA reads": round(counts["dma-reads"], 2),
        "bytes read": round(counts["dma-read-bytes"]) if rung != "pair" else None,
        "DMA writes": round(counts["dma-writes"], 2),
        "bytes written": round(counts["dma-write-bytes"]) if rung != "pair" else None,
        "interrupts": round(counts["interrupts"], 2),
    }


def measure():
    """{(rung, size, batch): {column: number}}."""
    script = PRELUDE + "\n".join(line for case in cases() for line in lines(*case))
    found = guest.reports("the ladder", [*GUEST, "--timeout", "900"], script)
    runs = itertools.batched(found, 3)
    return {case: named(case[0], each(few, many)) for case, (_, few, many) in zip(cases(), runs, strict=True)}


def table(found):
    """The table, in reStructuredText."""
    head = ["rung", "bytes", "batch", *next(iter(found.values()))]
    rows = [[*map(str, case), *("--" if value is None else f"{value:g}" for value in row.values())] for case, row in found.items()]
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    rule = "  ".join("=" * width for width in widths)
    text = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]]
    return "\n".join([rule, text[0], rule, *text[1:], rule])

