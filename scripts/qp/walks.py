# SPDX-License-Identifier: GPL-2.0
"""The walks and readings of Documentation/driver.rst, against the sources.

A walk is a section whose title begins with "Walk: ". Its first line has its bound, in stops, files
or rooms; its list has a file and the functions called there for each stop:

    Walk: one WQE
    -------------

    At most 7 files.

    1. ``rust/object/qp.rs``: ``post``, ``ring``. What they do.

A stop is a function. A room is a folder of rust/, else a folder of the project.

A reading is a section whose title begins with "Reading: ". Its list has the files of each step; its
bound is in lines of code, as scripts/py lines counts them.
"""

import re

from qp import lines as code

PAGE = "Documentation/driver.rst"
TITLE = re.compile(r"^(Walk|Reading): (.+)\n-+\n\n", re.MULTILINE)
# The end of a section: the line under the next title.
END = re.compile(r"^.+\n([-=])\1+\n", re.MULTILINE)
BOUND = re.compile(r"(\d+) (stops|files|rooms|lines)")
STEP = re.compile(r"^\d+\. (.+?)(?=^\d+\. |^\S|\Z)", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"``([\w./-]+\.rs)``")
WHERE = re.compile(r"``([\w./-]+)``:\s+(``[\w:]+``(?:,\s+``[\w:]+``)*)")


def sections(text, kind):
    """The walks or the readings of a page: {title: text}."""
    found = {}
    for start in TITLE.finditer(text):
        end = END.search(text, start.end())
        if start[1] == kind:
            found[start[2]] = text[start.end() : end.start() if end else len(text)]
    return found


def room_of(path):
    """The folder of rust/ that a file is in, else the folder of the project."""
    first, *rest = path.split("/")
    return rest[0].removesuffix(".rs") if first == "rust" and rest else first


def defines(source, function):
    """Whether a source, Rust or C, defines a function."""
    name = re.escape(function.split("::")[-1])
    rust = rf"\bfn {name}\b"
    in_c = rf"^[\w* ]*\b{name}\([^;]*?\)\s*\n?\{{"
    return re.search(f"{rust}|{in_c}", source, re.MULTILINE) is not None


def over(title, body, count):
    """The bounds that a section exceeds."""
    bounds = BOUND.findall(body.split("\n\n")[0])
    if not bounds or not any(count.values()):
        return [f"{title}: no steps, or no bound in its first paragraph"]
    wrong = [f"{title}: a bound in {what}, which are not counted" for _, what in bounds if what not in count]
    return wrong + [f"{title}: {count[what]} {what}, but at most {most}" for most, what in bounds if count.get(what, 0) > int(most)]


def faults(text, read):
    """What is wrong with the walks and readings of a page. `read` returns the text of a file, or None."""
    lines = []
    walks = sections(text, "Walk")
    if not walks:
        lines.append(f"{PAGE} has no walk")
    for title, body in sections(text, "Reading").items():
        sources = {path: read(path) for step in STEP.findall(body) for path in FILE.findall(step)}
        lines += [f"{title}: there is no {path}" for path, source in sources.items() if source is None]
        count = sum(code.count(source) for source in sources.values() if source is not None)
        lines += over(title, body, {"lines": count})
    for title, body in walks.items():
        stops = []
        for step in STEP.findall(body):
            where = WHERE.match(step)
            if not where:
                lines.append(f"{title}: no file and function in: {step.splitlines()[0]}")
                continue
            path, names = where[1], re.findall(r"``([\w:]+)``", where[2])
            source = read(path)
            if source is None:
                lines.append(f"{title}: there is no {path}")
                continue
            stops += [(path, name) for name in names]
            lines += [f"{title}: {path} defines no {name}" for name in names if not defines(source, name)]
        files = {path for path, _ in stops}
        count = {"stops": len(stops), "files": len(files), "rooms": len({room_of(path) for path in files})}
        lines += over(title, body, count)
    return lines
