# SPDX-License-Identifier: GPL-2.0
"""The data of the plots (qp/plots.py): measured in one guest, or taken from the counted figures.

by-n     interrupts and head updates for each completion, against n: the events for each
         update of the EQ's head
by-k     the same against k, the completions of a CQ's turn
rate     operations a second, against both
by-qps   instructions of an operation against queue pairs: from the counted figures
latency  round trips that sleep, with moderation off, fixed and adaptive
load     a load that changes, and the decisions of the adaptive controller

The guest has one processor and runs under -icount: a nanosecond of its clock is an instruction, or
idle time until a deadline of the device. So a second is one of a machine with 10^9 instructions a
second, whatever the host does meanwhile. The device has delays (wqe-ns, core-delay-ns): without
them it completes the work inside the doorbell, no CQ ever drains, and there are no events to
measure.

Each point of by-n and by-k is a short run and a long one; the plot shows their difference, so that
creating and destroying the queue pairs, which has events too, cancels.
"""

import itertools
import json

from qp import base, figures, guest, payload, plots

OUT = payload.BUILD / "bench"
# The plots in the documents.
KEPT = base.TOP / "Documentation/plots"

# Knob, its values, its default, the loopback client's parameters, operations of each queue pair
# (few, many), queue pairs.
SWEEPS = {
    "by-n": ("events", (1, 2, 4, 8, 16, 32, 64), 32, "qps=256 depth=1", (64, 320), 256),
    "by-k": ("completions", (1, 2, 4, 8, 16, 32, 64, 128, 256), 64, "qps=16 depth=256", (1024, 5120), 16),
}
# The device's time for a work request, in nanoseconds. The driver needs 290 to 1080.
DEVICES = {"fast": 100, "slow": 1500}
MODERATION = ("off", "fixed 16 50", "adaptive 10000")
# Far longer than the controller's pause for an EQ without traffic.
TRIPS = 20_000
# The device's delay for each message, in both directions.
DELAY = 20_000
# Less than this per completion counts as 0: commands of another client.
LEAST = 1e-4
# Seconds between samples of the EQ.
LOOK = 0.02
# A load: the loopback client's parameters, and the device's time for a work request.
LOADS = {
    "2000 completions a second": ("qps=2 depth=1 count=500", 500_000),
    "40 000": ("qps=64 depth=8 count=300", 25_000),
    "200 000": ("qps=64 depth=8 count=1500", 5_000),
}
REST = 0.4

PRELUDE = figures.TOOLS + r"""
# Progress.
say() { echo "$*" >&2; }
# A run, with its start and end, and the device's counters since its creation.
point() {
	begin=$EPOCHREALTIME
	loopback "$@"
	echo "{\"seconds\": [$begin, $EPOCHREALTIME], \"device\": $(counters)}"
}
# Samples the EQ's counters; the only program that it starts is usleep.
watch() {
	read -r names < "$files/eqs"
	echo "{\"names\": \"time $names\", \"looks\": ["
	while :; do
		{ read -r names; read -r values; } < "$files/eqs"
		echo "\"$EPOCHREALTIME $values\","
		usleep "$1"
	done
}
"""


def script():
    """The guest's script; each part prints JSON documents."""
    lines = ["knob moderation off"]
    for (knob, values, default, plan, counts, _), nanoseconds in itertools.product(SWEEPS.values(), DEVICES.values()):
        lines.append(f"device wqe-ns {nanoseconds}")
        # The counters before the first run.
        lines.append(f"point {plan} count={counts[0]}")
        for value in values:
            lines += [f"say {knob} {value}, wqe-ns {nanoseconds}", f"knob {knob} {value}", *(f"point {plan} count={count}" for count in counts)]
        lines.append(f"knob {knob} {default}")
    lines += ["device wqe-ns 0", f"device core-delay-ns {DELAY}"]
    for mode in MODERATION:
        lines += [f"say round trips, {mode}", f"knob moderation {mode}", f"qpair ping --events --count {TRIPS} --json || exit"]
    lines += ["device core-delay-ns 0", "sleep 1", f"watch {LOOK * 1e6:.0f} > /tmp/looks &", f"sleep {REST}"]
    for plan, nanoseconds in LOADS.values():
        lines += [f"say {plan}", f"device wqe-ns {nanoseconds}", f"loopback {plan}"]
    lines += [f"sleep {REST}", "kill $!", "cat /tmp/looks", "echo '\"\"]}'"]
    return PRELUDE + "\n".join(lines)


def run_guest():
    """The guest's output, in the order of script()."""
    return guest.reports("sweeping n and k, round trips, a load that changes", [*figures.GUEST, "--timeout", "900"], script())


def each(reports, operations):
    """The difference of a short run and a long one per operation, from the reports before, between
    and after them."""
    before, few, many = reports

    def counted(*names):
        start, middle, end = (figures.counter(report["device"], *names) for report in (before, few, many))
        return ((end - middle) - (middle - start)) / operations

    def took(report):
        begin, end = report["seconds"]
        return end - begin

    return {
        "interrupts": counted("interrupts"),
        "events": counted("eqes"),
        "EQ head updates": counted("eq-head-doorbells", "eq-masked-doorbells"),
        "CQ head updates": counted("cq-head-doorbells", "cq-arm-doorbells"),
        "operations a second": operations / (took(many) - took(few)),
    }


def swept(name, reports):
    """A point for each value, from a first report and two for each value."""
    _, values, _, _, (few, many), qps = SWEEPS[name]
    return [each(reports[2 * i : 2 * i + 3], (many - few) * qps) for i in range(len(values))]


def described(name):
    _, _, _, plan, _, qps = SWEEPS[name]
    return f"{qps} queue pairs, {plan.rpartition('=')[2]} in flight each"


def by_knob(name, points):
    """The plot of a sweep, from the points of each device. A count that is always 0 has no line."""
    knob, values, default, plan, _, _ = SWEEPS[name]
    letter = name[-1]
    series = {}
    for count, device in itertools.product(("EQ head updates", "CQ head updates", "interrupts"), DEVICES):
        line = [point[count] for point in points[device]]
        if any(value >= LEAST for value in line):
            series[f"{count}, {device} device"] = [round(value, 6) if value >= LEAST else None for value in line]
    return {
        "title": f"Against {letter}: {described(name)}, moderation off",
        "x": f"{letter} (debugfs: {knob}; {default} is the default)",
        "y": "for each completion",
        "log": True,
        "at": list(values),
        "series": series,
        "how": f"loopback op=write size=64 verify=0 group=1 {plan}, one EQ, wqe-ns={DEVICES}",
        "measured": points,
    }


def rate(points):
    """Operations a second against both knobs, with a fast device."""
    at = sorted({value for _, values, *_ in SWEEPS.values() for value in values})
    series = {}
    for name, (_, values, *_) in SWEEPS.items():
        rates = dict(zip(values, (point["operations a second"] for point in points[name]["fast"]), strict=True))
        series[f"{name[-1]}: {described(name)}"] = [round(rates[value] / 1e6, 4) if value in rates else None for value in at]
    return {
        "title": "Throughput of the kernel's loopback against n and k, fast device",
        "x": "n, k",
        "y": "million WRITEs a second of guest time",
        "at": at,
        "series": series,
        "from_zero": True,
        "how": "as by-n and by-k",
    }


def by_qps(counted):
    """Instructions against queue pairs, from counted figures."""
    return {
        "title": "A 64-byte WRITE of a process, batches of 16: instructions against queue pairs",
        "x": "pairs of queue pairs",
        "y": "guest instructions for each operation",
        "at": list(figures.QPS),
        "series": {"instructions": [counted[f"scale_{qps}_instructions"] for qps in figures.QPS]},
        "from_zero": True,
        "how": figures.SCALE,
    }


def latency(reports):
    """Latency, from qpair ping's reports, one for each moderation."""
    at = [f"{percent:g}" for percent, _ in reports[0]["percentiles"]]
    series = {mode: [micros for _, micros in report["percentiles"]] for mode, report in zip(MODERATION, reports, strict=True)}
    return {
        "title": "Round trips of 64 bytes whose two ends sleep: time against percentile",
        "x": "of a hundred round trips, so many took at most",
        "y": "microseconds of guest time",
        "at": at,
        "series": series,
        "from_zero": True,
        "how": f"qpair ping --events --count {TRIPS}, core-delay-ns={DELAY}",
        "measured": dict(zip(MODERATION, reports, strict=True)),
    }


def load(report):
    """Rates and the controller's settings, from samples of the EQ."""
    names = report["names"].split()
    looks = [dict(zip(names, map(float, line.split()), strict=True)) for line in report["looks"] if line]
    begin = looks[0]["time"]
    at, events, interrupts, chosen = [], [], [], []
    for before, now in zip(looks, looks[1:]):
        seconds = now["time"] - before["time"]
        at.append(round(now["time"] - begin, 2))
        for line, name in ((events, "events"), (interrupts, "interrupts")):
            rate = (now[name] - before[name]) / seconds
            line.append(round(rate) if rate >= 1 else None)
        # 0 means that each event raises an interrupt.
        chosen.append(max(now["count"], 1))
    phases = ", ".join(f"{name}: {plan}, wqe-ns={nanoseconds}" for name, (plan, nanoseconds) in LOADS.items())
    return {
        "title": "A load that changes, and what the adaptive controller does",
        "x": "seconds",
        "y": "a second; events",
        "log": True,
        "at": at,
        "labels": 10,
        "series": {"interrupts a second": interrupts, "events a second": events, "events collected for an interrupt": chosen},
        "how": f"loopback op=write size=64 verify=0 group=1; {phases}; adaptive 10000; looked at every {LOOK} s",
    }


def measure():
    """All plots except by-qps, by name, from one guest."""
    documents = run_guest()
    points = {name: {} for name in SWEEPS}
    for name, device in itertools.product(SWEEPS, DEVICES):
        length = 1 + 2 * len(SWEEPS[name][1])
        points[name][device] = swept(name, documents[:length])
        documents = documents[length:]
    *pings, looks = documents
    knobs = {name: by_knob(name, points[name]) for name in SWEEPS}
    return {**knobs, "rate": rate(points), "latency": latency(pings), "load": load(looks)}


def counted():
    """The figures that `scripts/bench counted` measured, or the stored ones."""
    path = OUT / "figures.json"
    return {**figures.load(), **(json.loads(path.read_text()) if path.exists() else {})}


def draw(found, accept):
    library = plots.library()
    for name, plot in found.items():
        picture = plots.svg(plot, library)
        figures.save(OUT / f"{name}.json", plot)
        (OUT / f"{name}.svg").write_text(picture)
        if accept:
            KEPT.mkdir(exist_ok=True)
            (KEPT / f"{name}.svg").write_text(picture)


def run(accept):
    found = {**measure(), "by-qps": by_qps(counted())}
    draw(found, accept)
    base.say(f"plots: {', '.join(f'{name}.svg' for name in found)}")
