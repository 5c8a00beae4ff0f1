# SPDX-License-Identifier: GPL-2.0
"""Counted figures: the cost of an operation, the same from run to run.

A guest with one processor runs under -icount, where each instruction takes a nanosecond of the
guest's clock and the device runs inside the doorbell. So nanoseconds are instructions, as long as
no process sleeps (the clock then jumps to the next timer) and no other task runs (the kernel tests
its ciphers for a second after boot, which once doubled all figures). measure() checks both, and
rejects figures of a guest in which
- a loop of known length takes another time, before or after all workloads;
- the idle loop was entered more often in a longer run than in a shorter one;
- the cost of a repeated run differs by more than 1 % of the figure.

If a process must sleep, or the device has a delay, the guest's instructions are read from QEMU
(`guest-instructions` of the device) before and after.

Each workload runs with a small count, a large one, and the small one again. A
figure is the difference of large and small divided by the difference of the
counts, so that set-up and teardown cancel out.
"""

import json
import statistics

from qp import base, guest

# The figures in the repository, and by how much a new one may be worse.
KEPT = base.TOP / "tools/bench/figures.json"
WORSE = 0.05
# By how much two runs of one workload may differ.
AGREE = 0.01
# The same of NVMe: how many completions a poll finds depends on when the interrupt comes.
WORSE_NVME, AGREE_NVME = 0.10, 0.08
# A difference of one in ten thousand operations comes from set-up and teardown.
STRAY = 1e-4
# The moderation controller's decisions depend on when it samples, so two runs may differ by this
# many interrupts per completion.
SLACK = {"kernel_loopback_slow_interrupts": 1 / 32}
# The number of attempts to get a guest that ran nothing else.
ATTEMPTS = 3

GUEST = ["--append", "cryptomgr.notests", "--icount", "--eqs", "1", "--device-opt", "max-qps=4096", "--device-opt", "max-cqs=4096"]

# Properties of the device and knobs of the driver for each workload. One work request in 100
# instructions is faster than the driver can be, and one in 1000 is slower.
SETTINGS = {
    "roundtrip": ({"core-delay-ns": 10_000}, {"moderation": "off"}),
    "fast": ({"wqe-ns": 100}, {"moderation": "off"}),
    # A driver without coalescing: one completion for an event, and the head update of each event
    # unmasks.
    "control": ({"wqe-ns": 100}, {"moderation": "off", "policy": 1, "events": 1, "completions": 1}),
    "slow": ({"wqe-ns": 1_000}, {}),
}
DEFAULTS = {"moderation": "adaptive", "policy": 0, "events": 32, "completions": 64}

LOOPBACK = "kernel qps=256 depth=64"
PROCESS = "qpair bench --op write --size 64 --batch 32 --json"
ENDPOINT = "qpair bench --endpoint --size 64 --json"
SCALE = "qpair bench --op write --size 64 --batch 16 --json"
QPS = (1, 16, 256, 1024)
MODEL_QPS = (1, 1024)
FRAME_BYTES = (64, 4096)

# Of libibverbs, beside WRITEs: SENDs and their receives, and atomics.
KINDS = ("send", "srq", "uc", "ud", "atomic")

# NVMe: fio's kind, size and depth, and two counts.
DISK = {
    "read4k": ("randread 4k 1", 200, 2_200),
    "read4k_d32": ("randread 4k 32", 200, 2_200),
    "write4k": ("randwrite 4k 1", 200, 2_200),
    "write4k_d32": ("randwrite 4k 32", 200, 2_200),
    "read128k": ("read 128k 8", 50, 350),
    "write128k": ("write 128k 8", 50, 350),
}
# Over the device, over soft-RoCE, and over TCP.
WAYS = ("qpair", "rxe", "tcp")

# Name: the command, where N is the count, and two counts.
WORKLOADS = {
    "process": (f"{PROCESS} --signal 1 --count N", 50_000, 350_000),
    "sig32": (f"{PROCESS} --count N", 50_000, 350_000),
    **{f"scale_{qps}": (f"{SCALE} --qps {qps} --count N", 65_536, 327_680) for qps in QPS},
    **{f"model_scale_{qps}": (f"model-scale --qps {qps} --count N", 16_384, 49_152) for qps in MODEL_QPS},
    **{f"model_frames_{size}": (f"model-frames --bytes {size} --count N", 4_096, 12_288) for size in FRAME_BYTES},
    "endpoint": (f"{ENDPOINT} --batch 32 --count N", 20_000, 120_000),
    "endpoint_single": (f"{ENDPOINT} --batch 1 --count N", 20_000, 120_000),
    "roundtrip": ("qpair ping --events --size 64 --json --count N", 500, 20_000),
    "fast": (f"{LOOPBACK} count=N", 600, 4_600),
    "control": (f"{LOOPBACK} count=N", 100, 300),
    "slow": (f"{LOOPBACK} count=N", 900, 2_900),
    "syscalls": (f"syscalls {PROCESS} --signal 1 --count N", 50_000, 350_000),
    "verbs": ("loop qpair0 N 32", 50_000, 350_000),
    **{f"verbs_{kind}": (f"loop qpair0 N 32 {kind}", 20_000, 100_000) for kind in KINDS},
    **{f"nvme_{way}_{io}": (f"nvme-io {way} {words} N", few, many) for way in WAYS for io, (words, few, many) in DISK.items()},
}
# Those of libibverbs: a guest of their own has the provider.
VERBS = ("verbs", *(f"verbs_{kind}" for kind in KINDS))
# Those of NVMe: theirs has a port of RoCE too.
NVME = tuple(f"nvme_{way}_{io}" for way in WAYS for io in DISK)
# Operations per unit of the count.
TIMES = {
    "fast": 256,
    "control": 256,
    "slow": 256,
    # One frame acknowledges the 8 messages of a round.
    **{f"model_frames_{size}": 9 / 8 for size in FRAME_BYTES},
}

# Entries to the idle loop by which two runs may differ: programs start and end, and wait for the
# counters to be new.
RESTS = 12

# For scripts in the guest: the device's properties, the driver's files, the kernel's client, and
# the device's counters since its creation.
TOOLS = r"""
property=path=/machine/peripheral/qpair0
files=$(ls -d /sys/kernel/debug/qpair/*) || exit
device() { qmp qom-set $property property="$1" value:="$2" > /dev/null || exit; }
knob() { name=$1; shift; echo "$*" > "$files/$name" || exit; }
loopback() {
	echo "op=write size=64 verify=0 group=1 $*" > "$files/loopback" && read -r words < "$files/loopback" || exit
	case $words in *result=ok*) ;; *) echo "$words" >&2; exit 1 ;; esac
}
counters() { qpair info --json || exit; }
"""

# Runs a workload, and prints how often the processor was idle meanwhile.
PRELUDE = TOOLS + r"""
power=/sys/kernel/tracing/events/power/cpu_idle
watch() { echo "$1hist:keys=state" > $power/trigger || exit; }
watch ""
# 0 without a trigger.
idle() { awk '/Hits:/ { hits = $2 } END { printf "%d", hits }' $power/hist; }
# System calls of the program alone, from a histogram of the kernel's trace point.
syscalls() {
	enter=/sys/kernel/tracing/events/raw_syscalls/sys_enter
	hist='hist:keys=common_pid if comm == "qpair"'
	echo "$hist" > $enter/trigger && "$@" > /dev/null || return
	awk '/Hits:/ { printf "{\"syscalls\": %d}\n", $2 }' $enter/hist
	echo "!$hist" > $enter/trigger
}
kernel() { loopback "$@"; counters; }
executed() { qmp qom-get $property property=guest-instructions | tr -dc 0-9; }
# Wait until the kernel's work after the boot is done.
while sleep 1; before=$(idle); sleep 1; [ $(($(idle) - before)) -lt 10 ]; do :; done
run() {
	executed=$(executed)
	before=$(idle)
	"$@" || exit
	idle=$(($(idle) - before))
	echo "{\"idle\": $idle, \"instructions\": $(($(executed) - executed))}"
}
"""

# Timed figures (qp/peers.py): dividend, divisor, and the least that is a goal. Those of `main` have no
# IOThread.
TIMED = {
    "timed_write64_vs_rxe": ("write64", "rxe", 50),
    "timed_write64_vs_nvme": ("write64", "nvme", 50),
    "timed_write1m_vs_memcpy": ("write1m", "memcpy", None),
    "timed_endpoint64_vs_unix_socket": ("endpoint", "socket", None),
    "timed_write1m_iommu_cost": ("identity", "translated", None),
    "timed_perftest_write64_vs_rxe": ("qpair_lists", "rxe_lists", 20),
    "timed_perftest_write1m_vs_rxe": ("qpair_large", "rxe_large", 100),
    **{
        f"timed_perftest_{core}{name}_vs_rxe": (f"qpair_{core}{kind}", f"rxe_{core}{kind}", least)
        for core in ("", "main_")
        for name, kind, least in (
            ("write64_single", "single", 100),
            ("send_latency", "latency", 20),
            ("write_latency", "write_latency", 20),
            ("send_events", "events", 3),
        )
    },
    **{
        f"timed_perftest_{name}_single_vs_rxe": (f"qpair_{kind}", f"rxe_{kind}", None)
        for name, kind in (("send64", "send"), ("ud64", "ud"), ("srq64", "srq"), ("atomic", "atomic"))
    },
    # Between two guests (qp/wire_bench.py).
    **{
        f"timed_wire_{name}_vs_rxe": (f"qpair_wire_{name}", f"rxe_wire_{name}", least)
        for name, least in (("write64k", 2), ("read64k", 2), ("write64", 2), ("write_latency", 1), ("send_latency", 1))
    },
}

# If this figure met the goal of the others too, they would prove nothing.
CONTROL = "kernel_loopback_control_interrupts"
# The goal of each figure. Less is better for all counted figures except the control.
GOALS = {
    "process_write64_b32_instructions": ("<= 60", lambda f, v: v <= 60),
    "process_write64_b32_sig32_instructions": (
        "less than all signaled",
        lambda f, v: v < f["process_write64_b32_instructions"],
    ),
    "process_write64_b32_sq_doorbells": ("1/32", lambda f, v: v <= 1 / 32 + 1e-9),
    "process_write64_b32_cq_doorbells": ("<= 1/32", lambda f, v: v <= 1 / 32 + 1e-9),
    "process_write64_b32_syscalls": ("0", lambda f, v: v == 0),
    "process_write64_b32_interrupts": ("0", lambda f, v: v == 0),
    "process_write64_b32_dma": ("<= 3.2", lambda f, v: v <= 3.2),
    **{f"scale_{qps}_instructions": ("within 10 % of each other", lambda f, v: even(f, "scale", QPS)) for qps in QPS},
    **{f"model_scale_{qps}_instructions": ("<= 600, within 10 % of each other", lambda f, v: v <= 600 and even(f, "model_scale", MODEL_QPS)) for qps in MODEL_QPS},
    **{
        f"model_frames_{size}_instructions": (f"<= {1200 + size // 2}: 1200 and 0.5 a byte", lambda f, v, most=1200 + size // 2: v <= most)
        for size in FRAME_BYTES
    },
    "kernel_loopback_256x64_instructions": ("<= 220", lambda f, v: v <= 220),
    "kernel_loopback_256x64_interrupts": ("<= 1/64", lambda f, v: v <= 1 / 64),
    "kernel_loopback_256x64_eq_doorbells": ("<= 1/64", lambda f, v: v <= 1 / 64),
    CONTROL: ("> 1/64: without coalescing", lambda f, v: v > 1 / 64),
    "kernel_loopback_slow_interrupts": ("<= 1/16", lambda f, v: v <= 1 / 16),
    "process_roundtrip64_event_instructions": ("<= 20000", lambda f, v: v <= 20_000),
    "endpoint_send64_b32_instructions": ("reported", None),
    "endpoint_send64_single_instructions": ("reported", None),
    "verbs_write64_b32_instructions": ("<= 120", lambda f, v: v <= 120),
    **{f"verbs_{kind}_b32_instructions": ("reported", None) for kind in KINDS},
    **{f"nvme_{io}_{what}": ("reported", None) for io in DISK for what in ("instructions", "vs_rxe", "vs_tcp")},
    "nvme_read4k_d32_instructions": ("<= 45000", lambda f, v: v <= 45_000),
    **{f"nvme_{io}_vs_rxe": ("<= 1/3", lambda f, v: v <= 1 / 3) for io in ("read4k", "read4k_d32", "write4k_d32")},
    **{f"nvme_{io}_vs_rxe": ("<= 1/5", lambda f, v: v <= 1 / 5) for io in ("read128k", "write128k")},
    **{name: ("reported", None) if least is None else (f">= {least}", lambda f, v, least=least: v >= least) for name, (_, _, least) in TIMED.items()},
}


class Disturbed(base.Fail):
    """The guest ran something else as well, so its counts are not valid."""


def even(figures, name, counts):
    """Whether the cost is the same for any number of queue pairs."""
    costs = [figures[f"{name}_{qps}_instructions"] for qps in counts]
    return max(costs) <= 1.1 * min(costs)


def settings_of(name):
    """The commands that set up the device and the driver for a workload."""
    device, knobs = SETTINGS.get(name, ({}, {}))
    return [*(f"device {key} {value}" for key, value in device.items()), *(f"knob {knob} {value}" for knob, value in knobs.items())]


def script_of(name):
    """The commands that run a workload with each of its counts."""
    command, few, many = WORKLOADS[name]
    runs = [f"run {command.replace('N', str(count))}" for count in (few, many, few)]
    if name in VERBS or name in NVME:
        # A first run, which reads the programs from their disk, and connects.
        return [f"{command.replace('N', str(few))} > /dev/null || exit", *runs]
    if name not in SETTINGS:
        return runs
    device, knobs = SETTINGS[name]
    return [
        # If QEMU counts the instructions, the trace of the idle loop is not needed, and would be
        # counted.
        "watch !",
        *settings_of(name),
        # A first run for one-time costs, such as memory for queue pairs.
        f"{command.replace('N', str(few))} > /dev/null || exit",
        *runs,
        *(f"device {key} 0" for key in device),
        *(f"knob {knob} {DEFAULTS[knob]}" for knob in knobs),
        'watch ""',
    ]


def run_guest(names, *options):
    """Workloads with each of their counts, in one boot: {name: [(report, {idle, instructions}), ...]}."""
    lines = [line for name in names for line in script_of(name)]
    end = ["nvme-io end || exit"] if NVME[0] in names else []
    script = PRELUDE + "\n".join(["run spin", *lines, "run spin", *end])
    found = guest.reports("counting", [*GUEST, *options, "--timeout", "900"], script)
    first, *runs, last = zip(found[::2], found[1::2], strict=True)
    for spin, _ in (first, last):
        calibrate(spin)
    return {name: runs[3 * i : 3 * i + 3] for i, name in enumerate(names)}


def options(name):
    """The options of the guest of a workload."""
    return ["--verbs"] if name in VERBS else ["--verbs", "--device-opt", "mac=52:54:00:12:34:56"] if name in NVME else []


def run_guests(disk):
    """All workloads, those of NVMe only if asked for."""
    others = [name for name in WORKLOADS if name not in VERBS and name not in NVME]
    runs = run_guest(others) | run_guest(VERBS, *options(VERBS[0]))
    return runs | run_guest(NVME, *options(NVME[0])) if disk else runs


def calibrate(spin):
    """Raises a Fail if the guest's nanoseconds are not instructions."""
    ratio = spin["nanoseconds"] / spin["instructions"]
    if abs(ratio - 1) > AGREE:
        raise Disturbed(f"an instruction takes {ratio:.3f} ns of the guest's time instead of 1: another task used its processor")


def nanoseconds(report):
    return report["seconds"] * 1e9


def counter(report, *names):
    """The sum of some of the device's counters in a program's report."""
    return sum(report["counters"][name] for name in names)


def of_disk(name):
    """Whether a workload or a figure is of NVMe."""
    return name.startswith("nvme_")


def allowed(name):
    """By what part a figure may be worse than the stored one."""
    return WORSE_NVME if of_disk(name) else WORSE


def agree(name):
    """By what part two runs of a workload, or two values of a figure, may differ."""
    return AGREE_NVME if of_disk(name) else AGREE


def each(name, runs, value):
    """The difference of two runs per operation."""
    _, few, many = WORKLOADS[name]
    (first, _), (second, _), _ = runs[name]
    return (value(second) - value(first)) / ((many - few) * TIMES.get(name, 1))


def instructions(name, runs):
    """Instructions of an operation; raises a Fail if the runs show that time is not
    instructions."""
    (first, rested), (larger, rested_more), (again, _) = runs[name]
    slept = abs(rested_more["idle"] - rested["idle"])
    if slept > RESTS:
        raise Disturbed(f"{name}: the guest slept {slept} times more in one of two runs, so time is not instructions")
    once, twice = nanoseconds(first), nanoseconds(again)
    if abs(once - twice) > AGREE * (nanoseconds(larger) - once):
        raise Disturbed(f"{name}: the same run took {once:.0f} and then {twice:.0f} instructions, which would make more than 1 % of the figure")
    return each(name, runs, nanoseconds)


def executed(name, runs):
    """Instructions of an operation, from QEMU; raises a Fail if two runs do not agree."""
    _, few, many = WORKLOADS[name]
    once, more, again = (seen["instructions"] for _, seen in runs[name])
    if abs(once - again) > agree(name) * (more - once):
        raise Disturbed(f"{name}: the same run took {once} and then {again} instructions, which would make more than {agree(name):.0%} of the figure")
    return (more - once) / ((many - few) * TIMES.get(name, 1))


def measure(disk=True):
    """The figures, those of NVMe only if asked for, and all reports, of the first guest that ran
    nothing else."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return measured(run_guests(disk))
        except Disturbed as why:
            if attempt == ATTEMPTS:
                raise
            base.say(f"{why}; counting again")


def measured(runs):
    """The figures of a guest, and all its reports."""

    def counted(*names):
        return each("process", runs, lambda report: counter(report, *names))

    def by_the_kernel(name, *counters):
        # These count from the device's creation, and include the creation of queue pairs: take the
        # increase of the second run minus that of the third, which repeats the first.
        _, few, many = WORKLOADS[name]
        first, second, third = (counter(report, *counters) for report, _ in runs[name])
        return ((second - first) - (third - second)) / ((many - few) * TIMES[name])

    figures = {
        "process_write64_b32_instructions": instructions("process", runs),
        "process_write64_b32_sig32_instructions": instructions("sig32", runs),
        "process_write64_b32_sq_doorbells": counted("sq-doorbells"),
        "process_write64_b32_cq_doorbells": counted("cq-head-doorbells", "cq-arm-doorbells"),
        "process_write64_b32_syscalls": each("syscalls", runs, lambda report: report["syscalls"]),
        "process_write64_b32_interrupts": counted("interrupts"),
        "process_write64_b32_dma": counted("dma-reads", "dma-writes"),
        **{f"scale_{qps}_instructions": instructions(f"scale_{qps}", runs) for qps in QPS},
        **{f"model_scale_{qps}_instructions": instructions(f"model_scale_{qps}", runs) for qps in MODEL_QPS},
        **{f"model_frames_{size}_instructions": instructions(f"model_frames_{size}", runs) for size in FRAME_BYTES},
        "kernel_loopback_256x64_instructions": executed("fast", runs),
        "kernel_loopback_256x64_interrupts": by_the_kernel("fast", "interrupts"),
        "kernel_loopback_256x64_eq_doorbells": by_the_kernel("fast", "eq-head-doorbells", "eq-masked-doorbells"),
        CONTROL: by_the_kernel("control", "interrupts"),
        "kernel_loopback_slow_interrupts": by_the_kernel("slow", "interrupts"),
        "process_roundtrip64_event_instructions": executed("roundtrip", runs),
        "endpoint_send64_b32_instructions": instructions("endpoint", runs),
        "endpoint_send64_single_instructions": instructions("endpoint_single", runs),
        "verbs_write64_b32_instructions": instructions("verbs", runs),
        **{f"verbs_{kind}_b32_instructions": instructions(f"verbs_{kind}", runs) for kind in KINDS},
    }
    for io in DISK if NVME[0] in runs else ():
        ours, *others = (executed(f"nvme_{way}_{io}", runs) for way in WAYS)
        figures[f"nvme_{io}_instructions"] = ours
        figures |= {f"nvme_{io}_vs_{way}": ours / theirs for way, theirs in zip(WAYS[1:], others)}
    # A stray doorbell of the shorter run must not make a figure negative.
    return {name: max(0.0, round(value, 5)) for name, value in figures.items()}, runs


def differing(first, second):
    """Messages about figures for which two runs do not agree."""
    return [
        f"{name}: {first[name]:g} and {second[name]:g}"
        for name in first
        if abs(first[name] - second[name]) > agree(name) * max(abs(first[name]), abs(second[name])) + SLACK.get(name, STRAY)
    ]


def worse(kept, now):
    """Messages about figures that are worse than the stored ones by more than is allowed, or missing."""
    found = []
    for name, before in kept.items():
        if name not in now:
            found.append(f"{name}: {before:g} is kept, and it was not measured")
        elif name == CONTROL:
            goal, met = GOALS[name]
            found += [] if met(now, now[name]) else [f"{name}: {now[name]:g} instead of {goal}: the interrupts of others show nothing"]
        elif now[name] > before * (1 + allowed(name)) + SLACK.get(name, STRAY):
            more = f"{100 * (now[name] / before - 1):.1f} % worse" if before else "worse"
            found.append(f"{name}: {now[name]:g} instead of {before:g}, {more}")
    return found


def load():
    try:
        return json.loads(KEPT.read_text())
    except FileNotFoundError:
        raise base.Fail(f"no {KEPT}", "scripts/bench counted --accept") from None


def save(path, figures):
    path.parent.mkdir(parents=True, exist_ok=True)
    # Replace the file atomically.
    half = path.with_name(path.name + ".new")
    half.write_text(json.dumps(figures, indent=1) + "\n")
    half.replace(path)


def ratio(ours, theirs):
    """The median and the spread of the ratios of two rates in each round."""
    rounds = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return {"median": statistics.median(rounds), "least": min(rounds), "largest": max(rounds), "rounds": rounds}


def is_timed(name):
    return name.startswith("timed_")


def merged(before, now):
    """Figures of one kind, counted or timed, and the previous ones of the other kind."""
    kinds = {is_timed(name) for name in now}
    both = {name: value for name, value in before.items() if is_timed(name) not in kinds} | now
    return {name: both[name] for name in sorted(both, key=is_timed)}


def table(figures):
    """The figures beside their goals, in Markdown."""
    lines = ["| figure | goal | measured | |", "|---|---|---:|---|"]
    for name, value in figures.items():
        goal, met = GOALS.get(name, ("none", None))
        verdict = "" if met is None else "met" if met(figures, value) else "missed"
        lines.append(f"| `{name}` | {goal} | {value:.5g} | {verdict} |")
    lines += [f"| `{name}` | {goal} | | not measured |" for name, (goal, _) in GOALS.items() if name not in figures]
    return "\n".join(lines)
