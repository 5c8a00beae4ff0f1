# SPDX-License-Identifier: GPL-2.0
"""The layer `wire` of scripts/test: programs of verbs on two guests with one network.

provider/wire.toml lists the networks and the programs.
"""

import fnmatch
import os
import signal
import tomllib

from qp import base, frames, intruder, jobs, ktap, network, wire

TABLE = base.TOP / "provider/wire.toml"

# Seconds of a network with all its programs, and of one program.
TIMEOUT = 900
LIMIT = 60

# The statuses of a server that timeout(1) of the guest has ended.
ENDED = (wire.TIMED_OUT, 128 + signal.SIGTERM)


def table():
    return tomllib.loads(TABLE.read_text())


def faults(one):
    """What happens to the frames of a network."""
    return {name: one[name] for name in network.FAULTS if name in one}


def kernel_of(one):
    """The kernel of a network."""
    return one.get("kernel", "stock")


def networks(brief):
    """The networks, in brief or all: {name: kernel}."""
    found = table()["network"].items()
    return {name: kernel_of(one) for name, one in found if not (brief and one.get("all"))}


def cases(found, name, brief):
    """The programs of a network, in brief or all: (name, both commands, the index of the server's
    side, seconds, whether the server may wait at the end)."""
    one = found["network"][name]
    sides = range(len(network.SIDES)) if len(set(one["kinds"])) > 1 else [0]
    for program in found["program"]:
        server = program["server"]
        if brief and program.get("all"):
            continue
        lossless = program.get("lossless", []) if faults(one) else []
        if any(fnmatch.fnmatchcase(server, pattern) for pattern in one.get("programs", ["*"])):
            words = [word for word in program.get("name", server).split() if "{" not in word and word not in ("-d", "-F", "-p", "-x", "-a", "-b")]
            for side in sides:
                kind = one["kinds"][1 - side]
                if kind in lossless or kind not in program.get("clients", network.KINDS):
                    continue
                client = program.get("client", f"{server} {{peer}}")
                yield f"{one['kinds'][side]}.{'_'.join(words)}", (server, client), side, program.get("limit", LIMIT), bool("loss" in one and program.get("server_waits"))


def fails(served, ended, server_waits):
    """Whether the statuses of server and client are a failure."""
    return ended != 0 or served != 0 and not (server_waits and served in ENDED)


def run(name, brief, slower):
    """Runs the programs of a network, whose kernel and machine are so much slower."""
    found, count = table(), ktap.Count()
    one = found["network"][name]
    log = jobs.log_of(f"wire-{name}")
    pcap = log.with_suffix(".pcap") if one.get("judged") else None
    forge = one.get("forge")
    both = wire.wires(one["kinds"], f"{name}-{os.getpid()}", faults(one), one.get("mtu", 1500), pcap, forge is not None)
    options = ["--timeout", TIMEOUT * slower, "--kernel", kernel_of(one), *one.get("options", [])]
    with (
        open(log, "w") as out,
        intruder.between(both, forge) as station,
        wire.connected(both, options, lambda side: jobs.log_of(f"wire-{name}.{side}")) as guests,
    ):
        for case, commands, side, limit, server_waits in cases(found, name, brief):
            served, ended = guests.run(side, 1 - side, commands, limit * slower)
            print(f"== {case}: server {served[0]}, client {ended[0]}\n{served[1]}--\n{ended[1]}", file=out, flush=True)
            if fails(served[0], ended[0], server_waits):
                count.fail(case)
            else:
                count.passed += 1
    if pcap:
        judged(pcap, log, count)
    if station:
        missed = {forgery.__name__ for forgery in intruder.ALL} - set(station.sent)
        count.passed += not missed
        for forgery in missed:
            count.fail(f"no frame with another {forgery}")
    return count


def judged(pcap, log, count):
    """Adds the test of a network's frames, whose capture is kept if it fails."""
    opcodes, refused = frames.judge(pcap)
    with open(log, "a") as out:
        print(f"== frames: {dict(opcodes)}", *refused[:20], sep="\n", file=out)
    if refused or not opcodes:
        count.fail("frames")
    else:
        count.passed += 1
        pcap.unlink()
