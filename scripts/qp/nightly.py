# SPDX-License-Identifier: GPL-2.0
"""What takes hours: fuzzers, each way to end a thousand times, traffic under loss, wrong variants.

    make nightly
    scripts/py nightly endings-host soak --hours 0.1 --rounds 100
    scripts/py nightly --list

Each step is a command that can be run by itself, and is printed. The steps run one after the other,
also after one that fails. Their output is in build/nightly; the lines with figures are printed at the
end. All of them are estimated to take a day under TCG.
"""

import argparse
import datetime
import re
import shlex
import tomllib

from qp import base, fuzz, payload

OUT = payload.BUILD / "nightly"
PLAN = base.TOP / "tools/selftests/plan.toml"
# The case of each group of endings, and its guest in the plan.
ENDINGS = {
    "endings-kill": ("processes/ended_by_sigkill", "plain"),
    "endings-guest": ("device/ended_by_the_guest", "iommu"),
    "endings-host": ("knobs/ended_by_the_host", "many-eqs"),
    "endings-sleep": ("sleep/ended_by_sleep", "sleep"),
    "endings-link": ("recovery/ended_by_the_link", "link"),
}
# Rounds of a run of a case, which has a time limit: more are repetitions of it. And the seconds of one
# round of four ways under TCG on a busy machine.
ROUNDS, SECONDS = 100, 10
# One of how many variants of a tool: of crates, which have thousands, and of the module, which has 1400.
EVERY, EVERY_OF_MODULE = 20, 14
# Lines of an output that have figures.
FIGURES = re.compile(r"times, \d+ to|messages|\d+ seeds|variants caught|stat::number_of_executed_units|^after \d+ s:|^rust/(kernel/rdma|object) |^(not )?ok ")


def steps(hours, rounds, day):
    """{step: its command} of a day, by its number."""
    seconds = max(1, round(3600 * hours))
    runs = -(-rounds // ROUNDS)
    guests = tomllib.loads(PLAN.read_text())["guests"]
    found = {f"fuzz-{target}": ["scripts/fuzz", target, "--time", seconds] for target in fuzz.TARGETS}
    for name, dev in (("uverbs", "qpair"), ("roce", "roce")):
        found[f"fuzz-{name}"] = ["scripts/fuzz", "uverbs", "--device", dev, "--kernel", "debug", "--time", seconds]
    for name, (case, guest) in ENDINGS.items():
        words = ["qpair-selftest", "--rounds", -(-rounds // runs), "--repeat", runs, case]
        found[name] = ["scripts/guest", *guests[guest], "--timeout", 300 + rounds * SECONDS, "--", *words]
    found["soak"] = ["scripts/py", "soak", "--time", seconds]
    found["soak-model"] = ["scripts/py", "soak", "--time", seconds, "--model"]
    # Another sample each day.
    found["variants"] = ["scripts/py", "variants", "--every", EVERY, "--first", day % EVERY]
    found["variants-module"] = ["scripts/py", "variants", "module", "--every", EVERY_OF_MODULE, "--first", day % EVERY_OF_MODULE]
    return found


def figures(log):
    return [line for line in log.read_text(errors="replace").splitlines() if FIGURES.search(line)]


def run(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/py nightly", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help="of those of --list; default: all")
    parser.add_argument("--hours", type=float, default=1, help="of each fuzzer, and of the traffic (%(default)s)")
    parser.add_argument("--rounds", type=int, default=1000, help="of each way to end (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print the commands, and run none")
    args = parser.parse_intermixed_args(argv)
    if not 0 < args.hours < 1000 or args.rounds < 1:
        raise base.Fail(f"--hours {args.hours}, --rounds {args.rounds}", "give --hours above 0 and below 1000, and --rounds above 0")
    found = steps(args.hours, args.rounds, datetime.date.today().toordinal())
    base.known("step", args.steps, found)
    chosen = {name: found[name] for name in args.steps or found}
    if args.list:
        for name, words in chosen.items():
            print(f"{name:15} {shlex.join(map(str, words))}")
        return 0
    OUT.mkdir(parents=True, exist_ok=True)
    failed = []
    for name, words in chosen.items():
        base.say(shlex.join(map(str, words)))
        try:
            base.step(name, words, OUT / name, cwd=base.TOP)
        except base.Fail as failure:
            base.say_failure(failure)
            failed.append(name)
    for name in chosen:
        print(f"{name}: {'failed' if name in failed else 'ok'}")
        for line in figures(OUT / name):
            print(f"    {line}")
    print(f"{len(chosen) - len(failed)} passed, {len(failed)} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    base.main(run)
