# SPDX-License-Identifier: GPL-2.0
"""Peers, with which qpair is compared in the same boot.

    rxe     soft-RoCE, an RDMA device in software: perftest's ib_write_bw
    nvme    an NVMe drive emulated by QEMU, without storage: fio
    memcpy  the guest's own processor
    socket  a Unix socket of one process, beside two endpoints of one

The programs are Debian's (qp/verbs.py), the modules those of the stock kernel.

The speed of a shared machine may change by half from one second to the next. So there are rounds,
in each of which everything is measured for a while, one after the other; a ratio is of two
measurements of the same round, and a figure is the median of a ratio over the rounds. A warm-up
round is discarded: in it the emulator translates the code, and qpair reports how many operations
take the time of a measurement.

Four boots: one without an IOMMU, with all peers; one with an IOMMU and two devices, of which one is
translated, as all are by default, and the other is not; and two in which perftest runs on qpair and
on soft-RoCE: with an IOThread as in the boots before, and without one. Then two guests of each
(qp/wire_bench.py).
"""

import operator

from qp import base, figures, guest, kernel as kernels, machine, wire_bench

ROUNDS = 5
# Of a measurement.
SECONDS = 2
TIMEOUT = 900

NVME = (
    "-drive driver=null-co,if=none,id=null,size=1G,read-zeroes=off"
    " -device pcie-root-port,id=nvmeport,chassis=100,slot=100"
    " -device nvme,drive=null,serial=null,bus=nvmeport"
)
# The device's core has a thread of its own: it runs beside a polling processor, not in turns with
# the main loop.
GUEST = ["--smp", "2", "--mem", "2G", "--verbs", "--timeout", TIMEOUT]
THREAD = ["--iothread"]

# NAME: prints the contents of /tmp/NAME as the report of NAME.
COMMON = f"""
seconds={SECONDS}
fail() {{ echo "qpair: error: $*" >&2; exit 1; }}
tell() {{ [ -s /tmp/$1 ] || fail "$1 reported nothing"; echo '"'$1'"'; cat /tmp/$1; }}
# NAME COUNT WORDS...: as many operations as fit into the time according to the last run, or COUNT.
bench() {{
	name=$1 count=$2
	shift 2
	[ ! -e /tmp/$name.count ] || read -r count < /tmp/$name.count
	qpair bench --json --count $count "$@" > /tmp/$name || fail "qpair bench $*"
	awk -v seconds=$seconds '/messages_per_second/ {{ print int($2 * seconds + 1000) }}' /tmp/$name > /tmp/$name.count
	tell $name
}}
# NAME COUNT RESULT COMMAND...: both sides of a program of perftest, on one device; COUNT is that of
# the first run, and a later one takes the time, which the average decides. A latency is reported as
# a rate, transfers a second. It is perftest's median, `t_typical`: the average is that of the few
# transfers during which the host ran something else.
perf() {{
	name=$1 count=$2 result=$3
	shift 3
	[ ! -e /tmp/$name.count ] || read -r count < /tmp/$name.count
	pair "$@" -F -n $count > /tmp/said 2>&1 || fail "$*: $(tail -n 5 /tmp/said)"
	# Lists of 32 want a multiple.
	awk -v result=$result -v seconds=$seconds -v counts=/tmp/$name.count '$1 ~ /^[0-9]+$/ && NF >= 5 {{
		rate = result == "rate" ? $5 * 1e6 : 1e6 / $5
		pace = result == "rate" ? rate : 1e6 / $6
		print "{{\\"rate\\":", rate, "}}"
		print int(pace * seconds / 64 + 5) * 64 > counts
		exit
	}}' /tmp/said > /tmp/$name
	tell $name
}}
rounds() {{
	for round in $(seq 0 {ROUNDS}); do
		[ $round = 0 ] && echo "qpair: warming up" >&2 || echo "qpair: $1, round $round of {ROUNDS}" >&2
		round
	done
}}
"""

PEERS = (
    COMMON
    + """
rdma link add rxe0 type rxe netdev lo || fail "no soft-RoCE over lo"
nvme() {
	fio --name=nvme --filename=/dev/nvme0n1 --rw=randread --bs=4k --iodepth=32 --ioengine=libaio --direct=1 \\
		--time_based --runtime=$seconds --output-format=json --output=/tmp/nvme || fail "fio: $(tail -n 3 /tmp/nvme)"
	tell nvme
}
copies() { memcpy-rate $seconds > /tmp/memcpy || fail memcpy-rate; tell memcpy; }
round() {
	bench write64 100000 --op write --size 64 --batch 32
	perf rxe 20032 rate ib_write_bw -s 64 -d rxe0
	nvme
	bench write1m 1000 --op write --size 1M
	copies
	bench endpoint 20000 --endpoint --size 64 --batch 32
	cp /tmp/endpoint /tmp/socket
	tell socket
}
rounds "soft-RoCE, NVMe, memcpy, a Unix socket"
"""
)

IOMMU = (
    COMMON
    + """
cd /sys/bus/pci/drivers/qpair
set -- *:*:*
[ $# = 2 ] || fail "2 devices were asked for, and there are $#"
group=/sys/bus/pci/devices/$2/iommu_group/type
echo $2 > unbind && echo identity > $group && echo $2 > bind ||
	fail "the IOMMU of $2 cannot be switched off: $(cat $group)"
cd /
# FUNCTION: prints the RDMA device of a function.
rdma_of() { ls /sys/bus/pci/devices/$1/infiniband; }
case $(cat /sys/bus/pci/devices/$1/iommu_group/type) in DMA*) ;; *) fail "$1 is not translated" ;; esac
translated=$(rdma_of $1) identity=$(rdma_of $2)
round() {
	bench translated 1000 --device $translated --op write --size 1M
	bench identity 1000 --device $identity --op write --size 1M
}
rounds "with and without an IOMMU"
"""
)

# Both devices by perftest: with an IOThread, and without one.
PERFTEST = (
    COMMON
    + """
soft-roce || fail "no soft-RoCE"
both() {
	what=$1 first=$2 result=$3
	shift 3
	perf qpair_$what $first $result "$@" -d qpair0
	perf rxe_$what $first $result "$@" -d rxe0 -x 1
}
waits() {
	both $1latency 256 time ib_send_lat -s 64
	both $1write_latency 256 time ib_write_lat -s 64
	both $1events 256 time ib_send_lat -s 64 -e
	both $1single 1024 rate ib_write_bw -s 64
}
"""
)
PERFTEST_THREAD = (
    PERFTEST
    + """
round() {
	waits ""
	both lists 1024 rate ib_write_bw -s 64 -l 32
	both large 64 rate ib_write_bw -s 1048576
	both send 1024 rate ib_send_bw -s 64
	both ud 1024 rate ib_send_bw -s 64 -c UD
	both srq 1024 rate ib_send_bw -s 64 --use-srq
	both atomic 1024 rate ib_atomic_bw
}
rounds "perftest"
"""
)
PERFTEST_MAIN = (
    PERFTEST
    + """
round() { waits main_; }
rounds "perftest, main loop"
"""
)
# The rate in a report of another program than perftest.
VALUES = {
    "write64": lambda report: report["messages_per_second"],
    "nvme": lambda report: report["jobs"][0]["read"]["iops"],
    "write1m": lambda report: report["bytes_per_second"],
    # The faster of the two ways.
    "memcpy": lambda report: max(report.values()),
    "endpoint": lambda report: report["messages_per_second"],
    "socket": lambda report: report["socket_messages_per_second"],
    "translated": lambda report: report["bytes_per_second"],
    "identity": lambda report: report["bytes_per_second"],
}

def rates(reports, value=lambda name, report: VALUES.get(name, operator.itemgetter("rate"))(report)):
    """{name: [a rate for each round]} of a guest's reports: a name, its report, and so on."""
    found = {}
    for name, report in zip(reports[::2], reports[1::2], strict=True):
        found.setdefault(name, []).append(value(name, report))
    for name, values in found.items():
        if len(values) != ROUNDS + 1:
            raise base.Fail(f"{name} was measured in {len(values)} rounds instead of {ROUNDS + 1}")
        if min(values) <= 0:
            raise base.Fail(f"{name} did nothing in {SECONDS} seconds")
    return {name: values[1:] for name, values in found.items()}


def ratios(found):
    """{figure: {median, least, largest, rounds}} of rates."""
    return {figure: figures.ratio(found[ours], found[peers]) for figure, (ours, peers, _) in figures.TIMED.items()}


def run_guest(script, *words):
    remedy = "its output is above; on a busy machine, try again later"
    return rates(guest.reports("measuring peers", [*GUEST, *words], script, remedy))


def measure():
    """The measurements: the ratios, their rates, and the machine."""
    kernel = kernels.get("stock")
    found = {
        **run_guest(PEERS, *THREAD, "--load", "nvme", "--qemu-opt", NVME),
        **run_guest(IOMMU, *THREAD, "--iommu", "--devices", 2),
        **run_guest(PERFTEST_THREAD, *THREAD),
        **run_guest(PERFTEST_MAIN),
        **wire_bench.rates(ROUNDS),
    }
    return {
        "kernel": kernel.release,
        "accelerator": "kvm" if machine.kvm_works() else "tcg",
        "ratios": ratios(found),
        "rates": found,
    }


def summary(found):
    """The ratios with their spread, as text."""
    lines = [f"{ROUNDS} rounds on {found['kernel']}, under {found['accelerator'].upper()}:"]
    for name, ratio in found["ratios"].items():
        lines.append(f"{name:26} {ratio['median']:8.2f}  ({ratio['least']:.2f} to {ratio['largest']:.2f})")
    return "\n".join(lines)
