# SPDX-License-Identifier: GPL-2.0
"""Lists the instructions of a counted figure by function.

    scripts/profile process      a 64-byte WRITE of a process
    scripts/profile fast         one of the kernel's own client

A workload of qp/figures.py runs in two guests under -icount, with a small count in one and a
large one in the other, while a QEMU plugin (tools/bench/profile.c) counts how often each
instruction ran. The common part, including the boot, cancels: the difference per operation is shown
by function of the source. Inlined functions are listed separately, from the debug information.

Addresses are the same in each guest (nokaslr, norandmaps). A third guest prints the symbols and
mappings, since so much output would disturb the measurement. For the kernel's own functions only
the symbols are known.
"""

import argparse
import bisect
import collections
import functools
import math
import re
import subprocess

from qp import base, figures, guest, kernel as kernels, payload, provider, qemu, verbs

OUT = payload.BUILD / "bench"
SOURCE = base.TOP / "tools/bench/profile.c"
# The allowed difference of two boots, as a part of the count, and the maximum factor of a longer
# run.
LITTLE = 0.02
LONGEST = 50

FIXED = ["--append", "nokaslr norandmaps"]

# Prints symbols, sections and, while a program runs, its mappings.
WHERE = r"""
awk '$2 ~ /^[tTwW]$/ { print "symbol", $1, $3, $4 }' /proc/kallsyms
for section in /sys/module/qpair/sections/.*text*; do echo "section ${section##*/} $(cat $section)"; done
work() {
	[ "$1" != kernel ] || return 0
	"$@" > /dev/null &
	# Wait until all is mapped.
	while ! grep -q "/${last:-$1}\$" /proc/$!/maps; do kill -0 $! || exit; done
	while read -r range rights offset _ _ name; do
		case $rights,$name in r-xp,/*) echo "map ${range%-*} $offset $name" ;; esac
	done < /proc/$!/maps
	wait $! || exit
}
"""
WORK = r"""
kernel() { loopback "$@"; }
work() { "$@" > /dev/null || exit; }
"""

# Functions with fewer instructions per operation are not listed.
LEAST = 0.05


def plugin():
    """The plugin, built for the project's QEMU."""
    emulator = qemu.patched()
    library = payload.BUILD / "c/profile.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    flags = base.output("pkg-config", "--cflags", "--libs", "glib-2.0").split()
    include = emulator.parent.parent / "source/include/qemu"
    base.step(
        "building the plugin",
        ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-shared", "-fPIC",
         "-I", include, "-o", library, SOURCE, *flags],
        quiet=True,
    )  # fmt: skip
    return library


def run_guest(what, name, count, prelude, *options):
    """Runs a workload in a guest; returns its output, line by line."""
    command, _, _ = figures.WORKLOADS[name]
    lines = [*figures.settings_of(name), f"work {command.replace('N', str(count))}"]
    if name in figures.VERBS:
        prelude = f"last={provider.build().name}\n{prelude}"
    words = [*figures.GUEST, "--qemu", qemu.PATCHED, *FIXED, *options, *figures.options(name), "--timeout", "900"]
    return guest.output(what, words, figures.TOOLS + prelude + "\n".join(lines)).splitlines()


def count(name, times, library):
    """How often each address was executed, in a run with a given count."""
    ran = OUT / "profile.ran"
    run_guest(f"counting {name} with {times}", name, times, WORK, "--qemu-opt", f"-plugin {library},out={ran}")
    counts = collections.Counter()
    with open(ran) as blocks:
        for line in blocks:
            runs, *addresses = line.split()
            for address in addresses:
                counts[int(address, 16)] += int(runs)
    ran.unlink()
    return counts


def programs(name):
    """The programs of a guest with symbols: {name in the guest: path}."""
    found = payload.with_symbols()
    if name in figures.VERBS:
        library = provider.build()
        found[f"{verbs.PROVIDERS}/{library.name}"] = library
        found |= {f"bin/{source.stem}": payload.c_program(source, provider.to_link()) for source in payload.c_sources(verbs=True)}
    return found


class Places:
    """The symbols and mappings of the guest."""

    def __init__(self, said, programs, module):
        self.module = module
        self.sections, self.symbols, self.maps = [], [], []
        for kind, *words in (line.split() for line in said):
            if kind == "symbol" and len(words) == 2:
                self.symbols.append((int(words[0], 16), words[1]))
            elif kind == "section":
                self.sections.append((int(words[1], 16), words[0]))
            elif kind == "map" and words[2].lstrip("/") in programs:
                self.maps.append((int(words[0], 16) - int(words[1], 16), programs[words[2].lstrip("/")]))
        for found in (self.symbols, self.sections, self.maps):
            found.sort()

    def of(self, address):
        """The file, the section and the address in it; or the kernel's function."""
        if address < 1 << 63:
            return self.below(self.maps, address)
        section = self.below(self.sections, address)
        if section and section[1] < 1 << 20:
            return (self.module, *section)
        found = self.below(self.symbols, address)
        return found and ("kernel", found[0])

    @staticmethod
    def below(found, address):
        place = bisect.bisect_right(found, address, key=lambda entry: entry[0]) - 1
        return (found[place][1], address - found[place][0]) if place >= 0 else None


@functools.cache
def segment(path):
    """The difference of address and file offset in a program's code segment."""
    for line in base.output("readelf", "-lW", path).splitlines():
        words = line.split()
        if words[:1] == ["LOAD"] and "E" in words[6:8]:
            return int(words[2], 16) - int(words[1], 16)
    raise base.Fail(f"{path} has no code")


def names(path, section, addresses):
    """The source function of each address."""
    words = ["addr2line", "-e", path, "-f", "-i", "-C", "-a", *(["-j", section] if section else [])]
    text = subprocess.run(
        [str(word) for word in words], input="".join(f"{address:x}\n" for address in addresses), stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    # An address and, for each function around it, innermost first, its name and source line.
    parts = re.split(r"^0x[0-9a-f]+\n", text, flags=re.MULTILINE)[1:]
    return {address: short(part.splitlines()[0]) for address, part in zip(addresses, parts, strict=True)}


def short(name):
    """A name without the crate's hash and without generic arguments."""
    name = re.sub(r"\[[0-9a-f]{8,}\]|::h[0-9a-f]{16}$", "", name)
    before = None
    while before != name:
        before, name = name, re.sub(r"::<[^<>]*>|(?<=\w)<[^<>]*>", "", name)
    return name


def by_function(costs, places):
    """{(where, function): instructions}, from {address: instructions}."""
    total, asked = collections.Counter(), collections.defaultdict(dict)
    for address, cost in costs.items():
        place = places.of(address)
        if place is None:
            total["unknown", "unknown"] += cost
        elif place[0] == "kernel":
            total[place] += cost
        elif len(place) == 3:
            asked[place[0], place[1]][place[2]] = cost
        else:
            asked[place[0], None][place[1] + segment(place[0])] = cost
    for (path, section), found in asked.items():
        for address, name in names(path, section, list(found)).items():
            total[path.name, name] += found[address]
    return total


def table(name, total):
    lines = [f"{name}: {sum(total.values()):.1f} instructions for each operation"]
    where = collections.Counter()
    for (place, _), cost in total.items():
        where[place] += cost
    for place, cost in where.most_common():
        lines += ["", f"{cost:9.1f}  {place}"]
        mine = [(cost, function) for (at, function), cost in total.items() if at == place and cost >= LEAST]
        lines += [f"{cost:9.2f}      {function}" for cost, function in sorted(mine, reverse=True)]
    return "\n".join(lines) + "\n"


def times_longer(noise, counted):
    """The factor by which a count must grow so that the difference of two boots is negligible."""
    if counted <= 0 or noise > LONGEST * LITTLE * counted:
        raise base.Fail(
            f"two equal boots differ by {noise} instructions, and the workload by {counted}",
            "run it again when the machine is less busy",
        )
    return math.ceil(noise / (LITTLE * counted)) or 1


def run(argv):
    parser = argparse.ArgumentParser(prog="scripts/profile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", metavar="WORKLOAD", help=", ".join(figures.WORKLOADS))
    args = parser.parse_args(argv)
    base.known("workload", [args.workload], figures.WORKLOADS)
    OUT.mkdir(parents=True, exist_ok=True)
    library = plugin()
    _, few, many = figures.WORKLOADS[args.workload]
    said = run_guest("reading symbols and mappings", args.workload, few, WHERE)
    less, again, more = (count(args.workload, times, library) for times in (few, few, many))
    noise = abs(less.total() - again.total())
    longer = times_longer(noise, more.total() - less.total())
    if longer > 1:
        base.say(f"two boots differ by {noise} instructions; counting a longer run")
        many = few + longer * (many - few)
        more = count(args.workload, many, library)
    operations = (many - few) * figures.TIMES.get(args.workload, 1)
    more.subtract(less)
    costs = {address: times / operations for address, times in more.items() if times}
    module = payload.module(kernels.get("stock"))
    total = by_function(costs, Places(said, programs(args.workload), module))
    text = table(args.workload, total)
    path = OUT / f"profile-{args.workload}.txt"
    path.write_text(text)
    print(text, end="")
    base.say(f"written to {path}")
    return 0


if __name__ == "__main__":
    base.main(run)
