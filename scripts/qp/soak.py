# SPDX-License-Identifier: GPL-2.0
"""Traffic between two guests for a long time, with frames that are lost, come twice or late.

    scripts/py soak --time 3600
    scripts/py soak --time 3600 --kinds qpair,rxe --seed 7
    scripts/py soak --time 3600 --model

Programs of verbs run one after the other, with the server on either side, in sizes and an order that
the seed chooses. A run ends at the first that fails or hangs: its output, the state of its queue pairs
and the first bytes of its frames are kept. At the end the devices' counters are printed.

With --model both devices are in one process, with no guest: the host's tests of programs on bad lines,
which check each byte, go on with further seeds. Frames are corrupted too. If one fails, the others run to
the end of the time.

The logs are in build/soak.
"""

import argparse
import collections
import random
import re
import time

from qp import base, crates, network, payload, wire
from qp.guest import of_1000, positive

OUT = payload.BUILD / "soak"
# Seconds of a program: far more than the slowest takes.
LIMIT = 240
# At most so many messages and bytes of one program.
MESSAGES, BYTES = 4000, 16 << 20
SIZES = (1, 64, 1000, 4096, 16384, 65536, 1 << 20)
# rping checks its data, perftest does not.
RPING = "rping -v -V"
PERFTEST = (
    "ib_write_bw", "ib_write_bw -q 8 -b", "ib_read_bw", "ib_read_bw -q 4", "ib_send_bw -e", "ib_send_bw -q 4 -b", "ib_write_lat", "ib_read_lat",
    "ib_send_lat", "ib_atomic_bw", "ib_atomic_bw -A CMP_AND_SWAP",
)  # fmt: skip
# Bytes of each frame in a capture.
KEPT = 160
# The model's tests with lines that have faults.
OF_THE_MODEL = ("any_program_on_a_bad_line", "both_ways_on_a_bad_line", "whole_messages_or_none")


def drawn(chance):
    """A program, both commands of it, and its messages."""
    program = chance.choice((*PERFTEST, RPING, RPING))
    size = 8 if "atomic" in program else chance.choice(SIZES)
    if program == RPING:
        # A READ, a WRITE and two SENDs for each.
        size = min(size, 65536) + 63
        count = min(200, BYTES // 4 // size)
        words = f"{program} -C {count} -S {size}"
        return words, (f"{words} -s -a {{address}}", f"{words} -c -a {{peer}}"), 4 * count
    queues = int(program.split()[2]) if "-q" in program else 1
    count = max(5, min(MESSAGES, BYTES // size) // queues)
    words = f"{program} -n {count}" + (f" -s {size}" if size != 8 else "")
    server = f"{words} -d {{device}} -x {{index}} -p {{port}} -F"
    return words, (server, f"{server} {{peer}}"), count * queues


def run_all(guests, chance, seconds, pcap, log):
    """Runs programs for so long. Returns the passes of each program, and the messages; a Fail at the
    first that does not pass."""
    passed, messages, began = collections.Counter(), 0, time.monotonic()
    # Only frames of the last program are in the capture.
    again = (
        "qmp object-del id=dump0; qmp object-add qom-type=filter-dump id=dump0 netdev=net0"
        f" position=head file={pcap} maxlen:={KEPT}"
    )
    while time.monotonic() - began < seconds:
        side = chance.randrange(len(network.SIDES))
        words, commands, count = drawn(chance)
        told(guests, 0, again)
        started = time.monotonic()
        served, ended = guests.run(side, 1 - side, commands, LIMIT)
        took = time.monotonic() - started
        print(f"== {started - began:.0f} s: {words}, server on {'ab'[side]}: {served[0]}, {ended[0]}, {took:.1f} s", file=log, flush=True)
        if served[0] or ended[0]:
            print(f"{served[1]}--\n{ended[1]}", file=log, flush=True)
            raise base.Fail(f"{words}, server on {'ab'[side]}: server {served[0]}, client {ended[0]}", f"see {log.name} and {pcap}")
        passed[words.split(" -n ")[0].split(" -C ")[0]] += 1
        messages += count
    return passed, messages


def told(guests, side, command):
    """What a command on a side prints, which succeeds."""
    status, text = guests.sides[side].start(f"told{time.monotonic_ns()}", command, guests.sides[1 - side], 0, LIMIT).get()
    if status:
        raise base.Fail(f"{command}: {text}")
    return text


def of_the_model(seconds, seed, log):
    """Runs the model's tests for so long, and prints how many seeds each has run."""
    base.say(f"the model for {seconds} s from seed {seed} on; see {log}")
    again = "run the one that failed again: QPAIR_SEED=N scripts/in-root cargo test --target-dir build/host -p qpair-model --test model NAME"
    with crates.target("host") as target:
        words = ["cargo", "test", "--locked", "--target-dir", target, "--package", "qpair-model", "--test", "model", "--"]
        words += ["--nocapture", "--test-threads", len(OF_THE_MODEL), *OF_THE_MODEL]
        base.step("soak of the model", words, log, env={"QPAIR_SECONDS": str(seconds), "QPAIR_SEED": str(seed)}, remedy=again)
    # The last line of each counts.
    found = dict(re.findall(r"^\.?(\w+): (\d+ seeds .*)$", log.read_text(), re.MULTILINE))
    for name, ran in sorted(found.items()):
        print(f"{name}: {ran}")
    if sorted(found) != sorted(OF_THE_MODEL):
        raise base.Fail(f"the tests {', '.join(OF_THE_MODEL)} were to run, not {', '.join(found) or 'none'}", f"see {log}")


def run(argv):
    parser = argparse.ArgumentParser(prog="scripts/py soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--time", type=positive, default=3600, metavar="SECONDS", help="how long (%(default)s)")
    add("--kinds", default="qpair,qpair", metavar="A,B", help=f"the devices of both guests, of {', '.join(network.KINDS)} (%(default)s)")
    for name, usual, fate in (("loss", 10, "are lost"), ("dup", 10, "come twice"), ("reorder", 20, "come late")):
        add(f"--{name}", type=of_1000, default=usual, metavar="N", help=f"of 1000 frames that each guest sends, how many {fate} (%(default)s)")
    add("--seed", type=positive, default=random.SystemRandom().randrange(1, 1 << 32), metavar="N", help="of the programs and of the frames, with --model the first one (random)")
    add("--model", action="store_true", help="run the model's tests, without guests; of the other options only --time and --seed apply")
    add("--guest", action="append", default=[], metavar="WORD", help="a word of the command line of each scripts/guest")
    args = parser.parse_args(argv)
    faults = {name: getattr(args, name) for name in ("seed", "loss", "dup", "reorder")}
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{'model' if args.model else args.kinds}.log"
    if args.model:
        if parser.parse_args(["--model", f"--time={args.time}", f"--seed={args.seed}"]) != args:
            raise base.Fail("--model has no guests: of the other options only --time and --seed apply")
        return of_the_model(args.time, args.seed, path)
    pcap = path.with_suffix(".pcap")
    sides = wire.wires(args.kinds.split(","), f"soak-{args.seed}", faults, pcap=pcap)
    base.say(f"{args.kinds} for {args.time} s with seed {args.seed}; see {path}")
    options = ["--timeout", args.time + wire.BOOT + 2 * LIMIT, *args.guest]
    with open(path, "w") as log, wire.connected(sides, options, lambda side: OUT / f"{args.kinds}.{side}.log") as guests:
        passed, messages = run_all(guests, random.Random(args.seed), args.time, pcap, log)
        for side, name in enumerate(network.SIDES):
            print(f"{name}: {' '.join(told(guests, side, 'cd /sys/class/infiniband/{device}/ports/1/hw_counters; grep -v ^0 *').split())}")
    pcap.unlink()
    print(*(f"{count} {program}" for program, count in sorted(passed.items())), sep=", ")
    print(f"{passed.total()} programs with {messages} messages passed")


if __name__ == "__main__":
    base.main(run)
