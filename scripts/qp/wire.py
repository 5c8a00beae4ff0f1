# SPDX-License-Identifier: GPL-2.0
"""Runs a command in each of two guests on one network.

    scripts/wire OPTIONS 'COMMAND A' -- 'COMMAND B'

Guest a has a qpair device whose port of RoCE is on the network, and so has guest b; with
--kinds qpair,rxe that of b is a device of soft-RoCE. COMMAND A is the server, and B starts a little
later; a client that is refused is started again. The output of B goes to stdout, that of A to
stderr. The exit status is that of B, or, if that is 0, of A.

In the commands {peer} and {address} are the addresses of the other guest and of its own, {device} is
the RDMA device, {index} the index of its GID, {port} a TCP port, the same in both:

    scripts/wire 'rping -s -a {address} -C 5' -- 'rping -c -v -a {peer} -C 5'
    scripts/wire --kinds rxe,qpair 'ib_write_bw -d {device} -x {index} -F' -- 'ib_write_bw -d {device} -x {index} -F {peer}'
"""

import argparse
import base64
import contextlib
import os
import queue
import subprocess
import sys
import threading
import time

from qp import base, guest as runner, intruder, network

# Seconds that a guest has to boot, that a client is not started after its server, and in which one
# that fails may have been refused.
BOOT = 240
# Of each guest: of the programs of tools/ the tool alone.
OPTIONS = ["--verbs", "--package", "qpair-tool"]
LATER = 0.7
REFUSED = 8.0
TRIES = 10
# That of timeout(1).
TIMED_OUT = 124

class Side:
    """A guest of the network, and what runs in it."""

    def __init__(self, wire, process):
        self.wire, self.process = wire, process
        self.index = None
        self.up = threading.Event()
        self.waiting = {}
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        """Reads what the script `wire` says."""
        for line in self.process.stdout:
            word, *rest = line.decode(errors="replace").split()
            if word == "up":
                self.index = rest[0]
                self.up.set()
            elif word == "ended":
                text = base64.b64decode(rest[2]) if len(rest) > 2 else b""
                self.waiting[rest[0]].put((int(rest[1]), text.decode(errors="replace")))
        self.up.set()
        for one in self.waiting.values():
            one.put((base.OWN_FAILURE, f"guest {self.wire.side} has ended\n"))

    def start(self, name, command, peer, port, limit):
        """Starts a command; returns the queue of its result."""
        for word, value in {
            "peer": peer.wire.address, "address": self.wire.address, "device": self.wire.device, "index": self.index, "port": port,
        }.items():  # fmt: skip
            command = command.replace(f"{{{word}}}", str(value))
        self.waiting[name] = queue.Queue()
        line = f"{name} {limit} {' '.join(command.splitlines())}\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        return self.waiting[name]


class Wire:
    """Two guests on a network."""

    def __init__(self, sides):
        self.sides, self.ids = sides, 0

    def run(self, server, client, commands, limit):
        """Runs a server's and a client's command, on the sides of these indices; returns the statuses
        and the outputs, the server's first."""
        here, there = self.sides[server], self.sides[client]
        self.ids += 1
        port = 20000 + self.ids
        serving = here.start(f"{self.ids}s", commands[0], there, port, limit)
        for number in range(TRIES):
            time.sleep(LATER)
            begun = time.monotonic()
            ended = there.start(f"{self.ids}c{number}", commands[1], here, port, limit).get()
            if ended[0] == 0 or time.monotonic() - begun > REFUSED or not serving.empty():
                break
        try:
            # A server whose client has failed may wait for ever.
            served = serving.get(timeout=5 if ended[0] else limit + REFUSED)
        except queue.Empty:
            # If the client has passed, timeout(1) of the guest had the time to end it.
            served = (TIMED_OUT, "it waits for a client\n") if ended[0] else (base.OWN_FAILURE, "timeout(1) does not end it\n")
        return served, ended


def ended(side, log, when):
    """What is raised for a guest that has ended, with the end of its log."""
    status = side.process.wait()
    why = runner.WHY.get(status, f"status {status}")
    base.show_end(f"guest {side.wire.side}: {why}", log)
    return base.Fail(f"guest {side.wire.side}, {when}: {why}", f"see {log}")


@contextlib.contextmanager
def connected(wires, options, log_of):
    """Two guests on a network, as a Wire; `log_of` gives the log of a side. Their kernels may have
    reported something: a Fail at the end."""
    with contextlib.ExitStack() as stack:
        sides = []
        for wire in wires:
            log = stack.enter_context(open(log_of(wire.side), "wb"))
            devices = [] if wire.kind == network.QPAIR else ["--devices", "0"]
            words = [base.SCRIPTS / "guest", *OPTIONS, *devices, *wire.words(), *options, "--", "wire", "serve"]
            process = base.started(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
            sides.append(Side(wire, stack.enter_context(process)))
        for side in sides:
            side.up.wait()
            if side.index is None:
                raise ended(side, log_of(side.wire.side), "before it was on the network")
        yield Wire(sides)
        for side in sides:
            side.process.stdin.close()
        for side in sides:
            if side.process.wait():
                raise ended(side, log_of(side.wire.side), "at its end")


def wires(kinds, net, faults, mtu=1500, pcap=None, third=False):
    """The sides of a network, of these kinds."""
    base.known("kind", kinds, network.KINDS)
    return [
        network.Wire(side, kind, net, mtu, faults, pcap if side == "a" else None, third)
        for side, kind in zip(network.SIDES, kinds, strict=True)
    ]


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/wire",
        usage="scripts/wire OPTIONS 'COMMAND A' -- 'COMMAND B'",
        description=__doc__.split("\n\n")[0],
        epilog=__doc__.split("\n\n", 2)[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--kinds", default="qpair,qpair", metavar="A,B", help=f"the devices of both guests, of {', '.join(network.KINDS)}")
    for name, what in {"loss": "are lost", "dup": "come twice", "reorder": "are overtaken, or overtake others"}.items():
        add(f"--{name}", type=runner.of_1000, default=0, metavar="N", help=f"of 1000 frames that each guest sends, N {what}")
    add("--delay", type=int, default=0, metavar="US", help="each frame takes so many microseconds more")
    add("--seed", type=int, default=0, metavar="N", help="which frames these are")
    add("--mtu", type=int, default=1500, metavar="BYTES", help="the MTU of the network devices (1500)")
    add("--taps", metavar="A,B", help="interfaces of the host, of both guests, in place of a socket")
    add("--pcap", metavar="FILE", help="store the frames that guest a sends and receives")
    add("--forge", type=int, metavar="SEED", help="a third station forges frames from those that it hears (scripts/qp/intruder.py)")
    add("--timeout", type=runner.positive, default=120, metavar="S", help="timeout of each command in seconds (120)")
    add("--guest", action="append", default=[], metavar="WORD", help="a word of the command line of each scripts/guest")
    add("command", help="the command of guest a")
    at = argv.index("--") if "--" in argv else len(argv)
    args, client = parser.parse_args(argv[:at]), argv[at + 1 :]
    if len(client) != 1:
        parser.error("there are two commands, each a word, with -- between them")
    return args, client[0]


def run(argv):
    args, client = parse(argv)
    kinds = args.kinds.split(",")
    if len(kinds) != len(network.SIDES):
        raise base.Fail(f"--kinds {args.kinds}", "name two kinds, such as qpair,rxe")
    base.LOGS.mkdir(parents=True, exist_ok=True)
    limit = BOOT + 2 * args.timeout
    options = ["--timeout", limit, *args.guest]
    both = wires(kinds, f"{os.getpid()}", {name: getattr(args, name) for name in network.FAULTS}, args.mtu, args.pcap, args.forge is not None)
    if args.taps:
        for side, tap in zip(both, args.taps.split(","), strict=True):
            side.tap = tap
    with intruder.between(both, args.forge), connected(both, options, lambda side: base.LOGS / f"wire-{side}") as wire:
        (served, said), (status, text) = wire.run(0, 1, (args.command, client), args.timeout)
    sys.stderr.write(said)
    sys.stdout.write(text)
    return status or served


if __name__ == "__main__":
    base.main(run)
