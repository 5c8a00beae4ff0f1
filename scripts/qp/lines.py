# SPDX-License-Identifier: GPL-2.0
"""Lines of code of each module, per directory: scripts/py lines.

Counted are the files that the module compiles, from its root on: without comments, blank lines and
tests.
"""

import collections
import re

from qp import base, imports

ROOTS = ["rust/qpair.rs", "stream/qpair_stream.rs"]
MOD = re.compile(r'((?:^#\[.*\]\n)*)^(?:pub(?:\(\w+\))? )?mod (\w+);', re.MULTILINE)
# Their code is a test, or not in a module.
OTHERS = re.compile(r"KUNIT|not\(MODULE\)")
TESTS = re.compile(r"^#\[(?:cfg\(test\)|[\w:]*kunit_tests)", re.MULTILINE)


def compiled(path, is_root=False):
    """The files of a module, from `path` on, each with its text."""
    text = path.read_text()
    yield path, text
    folder = path.parent if is_root or path.name == "mod.rs" else path.with_suffix("")
    for attributes, name in MOD.findall(text):
        if OTHERS.search(attributes):
            continue
        elsewhere = re.search(r'path = "(.*)"', attributes)
        places = [path.parent / elsewhere[1]] if elsewhere else [folder / f"{name}.rs", folder / name / "mod.rs"]
        yield from compiled(next(place for place in places if place.exists()).resolve(), is_root=elsewhere is not None)


def count(text):
    return len({line for _, line in imports.tokens(TESTS.split(text)[0])})


def table(root):
    """The lines of a module, in {directory: lines}; those of a file are its directory's, if one has its
    name."""
    lines = collections.Counter()
    for path, text in compiled(base.TOP / root, is_root=True):
        top, *inside = path.relative_to(base.TOP).with_suffix("").parts
        room = f"{top}/{inside[0]}"
        lines[room if (base.TOP / room).is_dir() else top] += count(text)
    return lines


def run(argv):
    base.no_words(argv, "lines", __doc__)
    for root in ROOTS:
        lines = table(root)
        for place, number in sorted(lines.items()):
            print(f"{number:6} {place}")
        print(f"{lines.total():6} {root}")


if __name__ == "__main__":
    base.main(run)
