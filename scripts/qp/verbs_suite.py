# SPDX-License-Identifier: GPL-2.0
"""The layer `verbs` of scripts/test: programs of verbs, and rdma-core's own tests.

provider/tests.toml lists the programs, and the tests that are skipped. One guest runs all of it. A
test is counted by its name in the guest's KTAP: one that is missing or unknown fails as well.
"""

import fnmatch
import re
import shlex
import tomllib

from qp import base
from qp import guest as runner
from qp import ktap

TABLE = base.TOP / "provider/tests.toml"
OURS, OTHER = "qpair0", "rxe0"
DEVICES = (OURS, OTHER)

# The option of each family of programs that selects the GID of a RoCE port.
GIDS = {"ibv": "-g 1", "ib": "-x 1"}

TIMEOUT = 600

RESULT = re.compile(r"^(not )?ok \d+ - (\S+)(?: # SKIP (.*))?$", re.MULTILINE)


def table():
    return tomllib.loads(TABLE.read_text())


def programs(found, everything):
    """The programs that run: {name: command}; and those that do not: {name: reason}."""
    runs, skips = {}, {}
    for program in found["program"]:
        for device in program.get("devices", DEVICES):
            if device in program.get("all", ()) and not everything:
                continue
            family = program["command"].partition("_")[0]
            gid = GIDS.get(family) if device == OTHER else ""
            both = [] if program.get("alone") else ["pair"]
            words = both + program["command"].format(device=device, gid=gid, rounds=50 if everything else 10).split()
            # KTAP's names have no blanks here.
            name = "_".join(word for word in program["command"].split() if "{" not in word and word not in ("-d", "-F"))
            name = f"{device}.{name}"
            if device == OURS and "skip" in program:
                skips[name] = program["skip"]
            else:
                runs[name] = words
    return runs, skips


class Skips:
    """The tests of rdma-core that are skipped on each device."""

    def __init__(self, found):
        self.patterns = {device: [] for device in DEVICES}
        for skip in found["skip"]:
            for device in skip.get("devices", [OURS]):
                self.patterns[device] += skip["tests"]
        self.used = set()

    def __call__(self, name):
        """Whether a test, by DEVICE.FILE.CLASS.TEST, is listed."""
        device, _, test = name.partition(".")
        found = [pattern for pattern in self.patterns[device] if fnmatch.fnmatchcase(test, pattern)]
        self.used.update(found)
        return bool(found)

    def unused(self):
        """Patterns that no test has matched."""
        return sorted(set(self.patterns[OURS]) - self.used)


def script(runs, skips, everything):
    """The guest's script: KTAP of the programs, then of rdma-core's tests."""
    lines = ["soft-roce || exit 125"]
    for number, (name, words) in enumerate(runs.items(), 1):
        lines.append(f"result {number} {shlex.quote(name)} {shlex.join(words)}")
    # On the other device, the tests that pass on ours.
    without = [] if everything else [f"--without={pattern}" for pattern in skips.patterns[OURS]]
    lines += [
        # Side by side: most of their time is python's.
        f"pyverbs-tests {shlex.join([*without, OTHER])} >/tmp/other 2>&1 &",
        f"pyverbs-tests {OURS} 2>&1",
        "wait",
        "cat /tmp/other",
    ]
    return RUN + "\n".join(lines) + "\n"


# result NUMBER NAME COMMAND...: runs a program, or by `pair` both sides of one, and prints a line of
# KTAP.
RUN = """
result() {
	number=$1 name=$2
	shift 2
	if "$@" >/tmp/client 2>/tmp/server; then
		echo "ok $number - $name"
	else
		status=$?
		echo "not ok $number - $name"
		echo "# status $status; the ends of the client's and the server's output:"
		tail -n 8 /tmp/client | sed 's/^/# /'
		tail -n 8 /tmp/server | sed 's/^/# /'
	fi
}
"""


def judge(text, runs, left, listed):
    """Compares the guest's results with what is expected of each; the programs `left` did not
    run."""
    count = ktap.Count(skipped=len(left))
    results = {name: (bool(bad), reason) for bad, name, reason in RESULT.findall(text)}
    missing = set(runs) - set(results)
    for name, (bad, reason) in results.items():
        expected = name not in runs and listed(name)
        if bad:
            count.fail(name)
        elif reason and not expected:
            count.fail(f"{name}: skipped, and not listed: {reason}")
        elif expected and not reason:
            count.fail(f"{name}: passes, and is listed as a skip")
        elif reason:
            count.skipped += 1
        else:
            count.passed += 1
    for name in sorted(missing):
        count.fail(f"{name}: did not run")
    for pattern in listed.unused():
        count.fail(f"{pattern}: no test has this name")
    others = [name for name in results if name not in runs and name.startswith(OTHER)]
    passed = [
        name
        for name, (bad, reason) in results.items()
        if name not in runs and name.startswith(OURS) and not bad and not reason
    ]
    if not passed or len(others) < len(passed):
        count.fail(f"{len(passed)} tests of rdma-core passed on {OURS}, {len(others)} ran on {OTHER}")
    return count


def run(guest, show, brief, slower):
    """Runs the layer by `guest` of suite.py; `show` prints the end of a log."""
    found = table()
    (runs, left), skips = programs(found, not brief), Skips(found)
    command = ["sh", "-c", script(runs, skips, not brief)]
    status, text, log = guest("verbs", ["--verbs"], command, TIMEOUT * slower)
    # The script ends with the status of its last program.
    count = judge(text, runs, left, skips) if RESULT.search(text) else ktap.Count()
    if status in runner.WHY:
        count.fail(runner.WHY[status])
    elif not count.total:
        count.fail(f"no result, status {status}")
    if count.failed:
        show(log)
    return count
