# SPDX-License-Identifier: GPL-2.0
"""perftest between two guests: over qpair on both sides, and over soft-RoCE on both.

All four guests run at once, and each round measures one pair after the other, as qp/peers.py has it.
"""

import contextlib
import os

from qp import base, jobs, network, wire

# Seconds of a command, and of all guests.
LIMIT, TIMEOUT = 60, 1200
# What is measured: transfers of a round, and the command.
PROGRAMS = {
    "write64k": (200, "ib_write_bw -s 65536"),
    "read64k": (200, "ib_read_bw -s 65536"),
    "write64": (1000, "ib_write_bw -s 64"),
    "write_latency": (300, "ib_write_lat -s 64"),
    "send_latency": (300, "ib_send_lat -s 64"),
}


def rate(program, text):
    """The transfers of a second in what perftest prints: the average of a bandwidth, the median of a
    latency."""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5 and words[0].isdigit():
            return 1e6 / float(words[4]) if program.endswith("latency") else 1e6 * float(words[4])
    raise base.Fail(f"perftest printed no result: {text.strip()[-300:]}", "on a busy machine, try again later")


def measured(guests, name):
    count, words = PROGRAMS[name]
    command = f"{words} -n {count} -d {{device}} -x {{index}} -p {{port}} -F"
    (served, said), (status, text) = guests.run(0, 1, (command, f"{command} {{peer}}"), LIMIT)
    if served or status:
        raise base.Fail(f"{words}: server {served}, client {status}: {(text or said).strip()[-300:]}", "on a busy machine, try again later")
    return rate(name, text)


def rates(rounds):
    """{name: [a rate for each round]}, after a round that is discarded."""
    found = {f"{kind}_wire_{name}": [] for kind in network.KINDS for name in PROGRAMS}
    with contextlib.ExitStack() as stack:
        pairs = {
            kind: stack.enter_context(
                wire.connected(
                    wire.wires([kind] * 2, f"{kind}-{os.getpid()}", {}),
                    ["--timeout", TIMEOUT],
                    lambda side, kind=kind: jobs.log_of(f"wire-bench-{kind}.{side}"),
                )
            )
            for kind in network.KINDS
        }
        for number in range(rounds + 1):
            base.say(f"two guests, round {number} of {rounds}" if number else "two guests, warming up")
            for name in PROGRAMS:
                for kind, guests in pairs.items():
                    found[f"{kind}_wire_{name}"].append(measured(guests, name))
    return {name: values[1:] for name, values in found.items()}
