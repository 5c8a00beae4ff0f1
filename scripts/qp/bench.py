# SPDX-License-Identifier: GPL-2.0
"""make bench: measures, in two ways, into build/bench.json.

counted  one processor under -icount: the same instructions each time, so that
         what the device counts for each message can be compared between versions
timed    as fast as this machine goes: says little on a shared one

Both run the same commands of the tool `qpair` in a guest on the stock kernel.
"""

import argparse
import json
import subprocess

from qp import base
from qp import payload

COMMANDS = [
    *(f"bench --op {op} --size 64 --count 20000" for op in ("send", "write", "read")),
    "bench --op send --size 64 --batch 1 --count 5000",
    "bench --op send --size 64 --qps 16 --count 20000",
    *(f"bench --op {op} --size 64k --count 1000" for op in ("send", "write", "read")),
    "ping --poll --count 2000",
    "ping --events --count 1000",
    "loopback --qps 4 --count 2000",
]
MODES = {"counted": ["--icount"], "timed": ["--smp", "2"]}


def measure(options):
    script = "; ".join(f"qpair {command} --json || exit" for command in COMMANDS)
    result = subprocess.run(
        [base.SCRIPTS / "py", "guest", *options, "--timeout", "900", "--", "sh", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    if result.returncode != 0:
        raise base.Fail(f"the guest ended with {result.returncode}")
    text, found, decoder = result.stdout.decode().strip(), [], json.JSONDecoder()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].lstrip()
    return dict(zip(COMMANDS, found, strict=True))


def show(mode, results):
    print(f"== {mode}")
    for command, result in results.items():
        simple = {key: value for key, value in result.items() if isinstance(value, (int, float))}
        skipped = ("size", "count", "qps", "batch", "depth")
        shown = ", ".join(f"{key} {value:,.6g}" for key, value in simple.items() if key not in skipped)
        print(f"qpair {command:50} {shown}")
        counters, count = result.get("counters"), result.get("count")
        if counters and count:
            each = {key: value / count for key, value in counters.items() if value}
            print("    each: " + ", ".join(f"{key} {value:.3f}" for key, value in each.items()))


def run(argv):
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.split("\n\n")[0])
    parser.add_argument("modes", nargs="*", choices=[[], *MODES], metavar="MODE", help=", ".join(MODES))
    args = parser.parse_args(argv)
    results = {}
    for mode in args.modes or MODES:
        results[mode] = measure(MODES[mode])
        show(mode, results[mode])
    path = payload.BUILD / "bench.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {path}")
    return 0


if __name__ == "__main__":
    base.main(run)
