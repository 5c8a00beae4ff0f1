# SPDX-License-Identifier: GPL-2.0
"""The layer `verbs` of scripts/test: programs of verbs, and rdma-core's own tests.

provider/tests.toml lists the guests, the programs, and the tests that are skipped. A test is counted
by its name in the guest's KTAP: one that is missing or unknown fails as well.
"""

import fnmatch
import re
import shlex
import tomllib

from qp import base, guest as runner, jobs, ktap, recipes

TABLE = base.TOP / "provider/tests.toml"
OURS, OTHER = "qpair0", "rxe0"
DEVICES = (OURS, OTHER)

# The option of each family of programs that selects the GID of a RoCE port.
GIDS = {"ibv": "-g 1", "ib": "-x 1"}

# The addresses that the scripts `roce` and `soft-roce` give the network devices of the ports.
ADDRESSES = {OURS: "198.51.100.1", OTHER: "192.0.2.1"}

# Seconds in a guest of the stock kernel.
TIMEOUT = 900

# The part of the tests that pass here that must pass on the other device: soft-RoCE sometimes loses
# a message on a busy machine. If fewer do, the tests or the guest are wrong.
MOST = 0.8

RESULT = re.compile(r"^(not )?ok \d+ - (\S+)(?: # SKIP (.*))?$", re.MULTILINE)


def table():
    return tomllib.loads(TABLE.read_text())


def programs(found, where, everything):
    """The programs that run in the guest `where`: {name: command}; and those that do not: {name:
    reason}."""
    guest, runs, skips = found["guest"][where], {}, {}
    some = ["*"] if everything else guest.get("programs", ["*"])
    for program in found["program"]:
        if program.get("roce", False) != guest.get("roce", False) or where not in program.get("guests", [where]):
            continue
        if not any(fnmatch.fnmatchcase(program["command"], pattern) for pattern in some):
            continue
        for device in program.get("devices", DEVICES):
            if device not in devices(everything):
                continue
            family = program["command"].partition("_")[0]
            gid = GIDS.get(family) if device == OTHER else ""
            both = [] if program.get("alone") else ["pair"]
            rounds = 50 if everything else 10
            words = both + program["command"].format(device=device, gid=gid, address=ADDRESSES[device], rounds=rounds).split()
            # KTAP's names have no blanks here.
            name = "_".join(word for word in program["command"].split() if "{" not in word and word not in ("-d", "-F"))
            name = f"{device}.{name}"
            if device == OURS and "skip" in program:
                skips[name] = program["skip"]
            else:
                runs[name] = words
    return runs, skips


def devices(everything):
    return DEVICES if everything else [OURS]


def tests_on(guest, everything):
    """The devices on which rdma-core's tests run in a guest."""
    if guest.get("roce"):
        return [OURS] if "tests" in guest else []
    return devices(everything) if everything or guest.get("tests", True) else []


class Skips:
    """The tests of rdma-core that a guest skips on each device."""

    def __init__(self, found, guest):
        self.patterns = {device: [] for device in DEVICES}
        own = [{"tests": guest.get("skips", [])}]
        for skip in own if guest.get("roce") else found["skip"]:
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


def ports(guest, everything):
    """The scripts that make the ports of a guest's devices."""
    if not guest.get("roce"):
        return ["soft-roce"]
    # The network device of one is not that of the other.
    return ["roce", "soft-roce dummy1"] if OTHER in devices(everything) else ["roce"]


def script(runs, tested, everything, guest):
    """The guest's script: KTAP of the programs, then of rdma-core's tests on the devices `tested`."""
    lines = [f"{port} || exit 125" for port in ports(guest, everything)]
    for number, (name, words) in enumerate(runs.items(), 1):
        lines.append(f"result {number} {shlex.quote(name)} {shlex.join(words)}")
    # Side by side: most of their time is python's.
    if OTHER in tested:
        lines.append(f"pyverbs-tests {OTHER} >/tmp/other 2>&1 &")
    if OURS in tested:
        lines.append(f"pyverbs-tests {shlex.join([OURS, *(guest.get('tests') or [])])} 2>&1")
    if OTHER in tested:
        lines += ["wait", "cat /tmp/other"]
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
		# A program that is ended may leave a line without its end: awk adds that, sed does not.
		tail -n 8 /tmp/client | awk '{ print "# " $0 }'
		tail -n 8 /tmp/server | awk '{ print "# " $0 }'
	fi
}
"""


def judge(text, runs, left, listed, tested):
    """Compares the guest's results with what is expected of each; the programs `left` did not
    run."""
    count = ktap.Count(skipped=len(left))
    results = {name: (bool(bad), reason) for bad, name, reason in RESULT.findall(text)}
    for name, (bad, reason) in results.items():
        expected = name not in runs and listed(name)
        if name.startswith(f"{OTHER}.") and (bad or reason and not expected):
            # A kernel's soft-RoCE may lack what another's has.
            base.say(f"{name} {f'is skipped: {reason}' if reason else 'fails'}: not a failure of this device")
            count.skipped += 1
        elif bad:
            count.fail(name)
        elif reason and not expected:
            count.fail(f"{name}: skipped, and not listed: {reason}")
        elif expected and not reason:
            count.fail(f"{name}: passes, and is listed as a skip")
        elif reason:
            count.skipped += 1
        else:
            count.passed += 1
    for name in sorted(set(runs) - set(results)):
        count.fail(f"{name}: did not run")
    if tested:
        compare(count, {name: result for name, result in results.items() if name not in runs}, listed, tested)
    return count


def compare(count, results, listed, tested):
    """Each pattern has its test, and the other device passes most of what passes here."""
    for pattern in listed.unused():
        count.fail(f"{pattern}: no test has this name")
    passed = {
        device: {name.removeprefix(f"{device}.") for name, result in results.items() if name.startswith(device) and result == (False, "")}
        for device in tested
    }
    if not passed[OURS]:
        count.fail(f"no test of rdma-core passed on {OURS}")
    if OTHER in tested and len(passed[OURS] & passed[OTHER]) < MOST * len(passed[OURS]):
        count.fail(f"of {len(passed[OURS])} tests of rdma-core that pass on {OURS}, {len(passed[OURS] & passed[OTHER])} pass on {OTHER}")


def kernel_of(guest):
    """The kernel of a guest."""
    return guest.get("kernel", "stock")


def guests(brief):
    """The guests of the layer, in brief or all: {name: kernel}."""
    found = table()["guest"].items()
    return {name: kernel_of(guest) for name, guest in found if not (brief and guest.get("all"))}


def run(name, brief, slower):
    """Runs a guest of the layer, whose kernel and machine are so much slower."""
    found, everything = table(), not brief
    guest = found["guest"][name]
    skips = Skips(found, guest)
    if guest.get("recipes"):
        return recipes.run(name, guest.get("options", []), TIMEOUT * slower)
    runs, left = programs(found, name, everything)
    tested = tests_on(guest, everything)
    command = ["sh", "-c", script(runs, tested, everything, guest)]
    options = ["--verbs", "--kernel", kernel_of(guest), *guest.get("options", [])]
    status, text, _ = jobs.guest(f"verbs-{name}", options, command, TIMEOUT * slower)
    # The script ends with the status of its last program.
    count = judge(text, runs, left, skips, tested) if RESULT.search(text) else ktap.Count()
    if status in runner.WHY:
        count.fail(runner.WHY[status])
    elif not count.total:
        count.fail(f"no result, status {status}")
    return count
