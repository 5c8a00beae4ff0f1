# SPDX-License-Identifier: GPL-2.0
"""scripts/bench threads: the effect of the device's threads, locks and mappings.

One guest has one device for each setting:

    main       the default: the core runs in QEMU's main loop, the thread of a doorbell does a
               little work itself, and doorbells take no lock
    core       the core does all work
    thread     the core runs in an IOThread
    locked     doorbells take QEMU's global lock
    unmapped   no mappings are kept between requests

In each round each device runs each workload, one after the other, for about the same time, and each
round starts with another device. A ratio is of two rates of the same round, so that the machine's
other work affects both; the report has its median and its spread. The first round is discarded.
"""

from qp import figures, guest, machine, payload, peers, qemu

SECONDS = 1.0
TIMEOUT = 1800

SETTINGS = {
    "main": "",
    "core": "wqes-per-doorbell=0",
    "thread": "iothread=core-thread",
    "locked": "locked-doorbells=on",
    "unmapped": "unmapped=on",
}

# Name: the command, where N is the count, a first count, and the number of processes.
WORKLOADS = {
    "bench, batch 32": ("bench --op write --size 64 --batch 32 --count N", 20_000, 1),
    "bench, batch 1": ("bench --op write --size 64 --batch 1 --count N", 2_000, 1),
    "bench, batch 32, two processes": ("bench --op write --size 64 --batch 32 --count N", 10_000, 2),
    "bench, batch 1, two processes": ("bench --op write --size 64 --batch 1 --count N", 1_000, 2),
    "bench, 64 KiB, batch 32": ("bench --op write --size 64k --batch 32 --count N", 2_000, 1),
    "ping, polling": ("ping --poll --count N", 500, 1),
    "ping, events": ("ping --events --count N", 200, 1),
    "kernel loopback": ("loopback --qps 4 --size 64 --count N", 500, 1),
}

# The reported ratios: one setting divided by another.
RATIOS = {
    "work in doorbells : in the core alone": ("main", "core"),
    "IOThread : main loop": ("thread", "main"),
    "doorbells without : with the global lock": ("main", "locked"),
    "mapped : unmapped": ("main", "unmapped"),
}

ROUND = "\n".join(f"\twork {key} {count} {times} {command}" for key, (command, count, times) in enumerate(WORKLOADS.values()))
SCRIPT = f"""{peers.COMMON}
cd /sys/bus/pci/drivers/qpair
set -- *:*:*
[ $# = {len(SETTINGS)} ] || fail "{len(SETTINGS)} devices were asked for, and there are $#"
order="{" ".join(SETTINGS)}"
for name in $order; do
	ls /sys/bus/pci/devices/$1/infiniband > /tmp/device.$name
	shift
done
cd /
# KEY COUNT TIMES WORDS...: on each device, reports of as many operations as fit into the time
# according to the last run, or COUNT.
work() {{
	key=$1 first=$2 times=$3
	shift 3
	for name in $order; do
		at=/tmp/$key.$name count=$first words=
		[ ! -e $at.count ] || read -r count < $at.count
		for word in "$@"; do [ $word = N ] && words="$words $count" || words="$words $word"; done
		for i in $(seq $times); do
			qpair $words --device $(cat /tmp/device.$name) --json > $at.$i || touch $at.failed &
		done
		wait
		[ ! -e $at.failed ] || fail "qpair $words"
		awk -v count=$count '
			/"seconds"/ {{ took = $2 + 0 }}
			/"usecs"/ {{ took = $2 / 1e6 }}
			END {{ print int(count * (took > 0 ? {SECONDS} / took : 1) + 1) }}' $at.1 > $at.count
		for i in $(seq $times); do echo "\\"$key/$name/$i\\""; cat $at.$i; done
	done
}}
round() {{
{ROUND}
	order="${{order#* }} ${{order%% *}}"
}}
rounds threads
"""


def qemu_options():
    """The devices except the first, which every guest has, in the order of their buses."""
    words = []
    for number, (name, options) in list(enumerate(SETTINGS.items()))[1:]:
        if "iothread=" in options:
            words.append(f"-object iothread,id=core-{name}")
        port = number + 100
        words.append(f"-device pcie-root-port,id=port{port},chassis={port},slot={port}")
        words.append(f"-device qpair,id=qpair{number},bus=port{port},eqs=2,{options}")
    return " ".join(words)


def rate(_name, report):
    """Operations a second, for any workload."""
    if "sends" in report:
        return report["sends"] / report["usecs"] * 1e6
    return report["count"] / report["seconds"]


def rates(reports):
    """{workload: {setting: [a rate for each round]}}, of all its processes."""
    found = peers.rates(reports, rate)
    return {
        workload: {
            name: [sum(rates) for rates in zip(*(found[f"{key}/{name}/{i + 1}"] for i in range(times)))]
            for name in SETTINGS
        }
        for key, (workload, (_, _, times)) in enumerate(WORKLOADS.items())
    }


def ratios(found):
    """{workload: {ratio: median, least and largest}}."""
    return {
        workload: {ratio: figures.ratio(by[ours], by[theirs]) for ratio, (ours, theirs) in RATIOS.items()}
        for workload, by in found.items()
    }


def run(_accept):
    options = ["--qemu", qemu.choice(qemu.PATCHED), "--smp", "2", "--eqs", "2", "--timeout", TIMEOUT, f"--qemu-opt={qemu_options()}"]
    found = rates(guest.reports("measuring threads", options, SCRIPT))
    told = ratios(found)
    accelerator = "kvm" if machine.kvm_works() else "tcg"
    figures.save(payload.BUILD / "bench/threads.json", {"accelerator": accelerator, "ratios": told, "rates": found})
    print(f"{peers.ROUNDS} rounds under {accelerator.upper()}: median (least to largest)")
    for name in RATIOS:
        print(f"{name}:")
        for workload, by in told.items():
            ratio = by[name]
            print(f"  {workload:32} {ratio['median']:6.2f}  ({ratio['least']:.2f} to {ratio['largest']:.2f})")
