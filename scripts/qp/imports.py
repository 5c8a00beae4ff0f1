# SPDX-License-Identifier: GPL-2.0
"""The order of the directories in rust/ and of the files of crates, and the imports that violate
it.

A directory of rust/, or a file in it with a directory of the same name, may import only modules
below it in ORDER. Modules on the same line may not import each other. So a file of hw/ cannot know
a process, and a file of policy/ can do no I/O.

A crate of TABLES has its order in the table of its root, with one file in each row. Items of the
root itself are above all files.

The files of one directory may not import each other in a circle, in whatever order; a file and the
directory of its name are one.

An import is any path in the code that begins with crate:: or super::, in a use or elsewhere. A name
that a directory's own file or the root re-exports, but not by a glob, is the file's that has it.
Comments, including documentation links, are not checked.
"""

import re

# From the bottom up.
ORDER = [
    ["abi"],
    ["queue"],
    ["policy"],
    ["kernel", "report"],
    ["hw"],
    ["life"],
    ["object", "loopback"],
    ["debugfs"],
    ["driver", "kunit"],
]
# Declares the others, and imports nothing.
ROOT = "qpair"
# Crates with a table, and their roots.
TABLES = {"provider/data/src": "lib", "qemu/model/src": "lib", "qemu/roce/src": "lib", "stream": "qpair_stream", "tools/libqpair/src": "lib", "tools/selftests/src": "lib"}
ROOTS = {ROOT, "lib", "main", *TABLES.values()}
# The folders whose directories have no circle.
FOLDERS = ("rust", *TABLES, "qemu/ffi/src", "tools/bench/src", "tools/header/src", "tools/qpair/src", "tools/ring/src", "tools/testkit/src", "tools/uverbs/src")

# A file of another directory.
ELSEWHERE = re.compile(r"^#\[path = .*\]\n(?:pub )?mod (\w+);", re.MULTILINE)
ROW = re.compile(r"^//! \| \[?`(\w+)`\]? \|", re.MULTILINE)
NOT_CODE = re.compile(r"""//[^\n]*|'(?:\\[^']+|[^\\'])'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
TOKEN = re.compile(r"\w+|::|\S")


def text_of_order(order=ORDER):
    return "order, from the bottom: " + ", ".join(" and ".join(names) for names in order)


def tokens(text):
    """The tokens of the code, each with its line."""
    code = NOT_CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
    return [(token, line) for line, words in enumerate(code.splitlines(), 1) for token in TOKEN.findall(words)]


def leaves(code, at, path):
    """The paths of a use tree from token `at` on, each with its line and its name, and the token
    after the tree."""
    found = []
    while at < len(code) and (code[at][0] in "{*" or re.match(r"\w", code[at][0])):
        token, line = code[at]
        at += 1
        if token == "{":
            while at < len(code) and code[at][0] != "}":
                inner, at = leaves(code, at, path)
                found += inner
                # A comma, or a token that is not a path: skip it.
                at += code[at : at + 1] != [] and code[at][0] != "}"
            return found, at + 1
        # `self` in braces is the path before it.
        path = path if path and token == "self" else [*path, token]
        if code[at : at + 1] and code[at][0] == "::":
            at += 1
            continue
        name = path[-1]
        if code[at : at + 1] and code[at][0] == "as":
            name, at = code[at + 1][0], at + 2
        found.append((path, line, name))
        break
    return found, at


def absolute(path, module):
    """A path in `module` that begins with crate, self or super, from the root of the crate."""
    base, rest = ([], path[1:]) if path[0] == "crate" else (module, path)
    while rest and rest[0] in ("self", "super"):
        base, rest = base if rest[0] == "self" else base[:-1], rest[1:]
    return base + rest


def paths(text, module):
    """The paths in a file of `module`, from the root of the crate, each with its line."""
    code, found, at = tokens(text), [], 0
    # The module that the token is in, and the brace depth at which it ends.
    inside, depth = [(module, -1)], 0
    while at < len(code):
        token, _ = code[at]
        before = code[at - 1][0] if at else ""
        if token in ("crate", "super") and before not in ("::", "$"):
            tree, at = leaves(code, at, [])
            found += [(absolute(path, inside[-1][0]), line) for path, line, _ in tree]
            continue
        if token == "{":
            if at >= 2 and code[at - 2][0] == "mod":
                inside.append((inside[-1][0] + [before], depth))
            depth += 1
        elif token == "}":
            depth -= 1
            if inside[-1][1] == depth:
                inside.pop()
        at += 1
    return found


def exports(text, module, known):
    """The names that a file of `module` re-exports from the files below it, in {path: path}."""
    code, found, depth = tokens(text), {}, 0
    for at, (token, _) in enumerate(code):
        depth += (token == "{") - (token == "}")
        # The modules in a file are not looked at, nor what they export.
        if token != "use" or depth or not at or code[at - 1][0] not in ("pub", ")"):
            continue
        for path, _, name in leaves(code, at + 1, [])[0]:
            path = absolute(path if path[0] in ("crate", "self", "super") else ["self", *path], module)
            if path[:-1] != module and tuple(path[: len(module) + 1]) in known and (*module, name) not in known:
                found[(*module, name)] = path
    return found


def module_of(name):
    """The module of a file, from its name in rust/: hw/cq.rs is hw, cq."""
    parts = name.removesuffix(".rs").split("/")
    return parts[:-1] if parts[-1] == "mod" else parts


def upwards(sources, folder="rust", order=ORDER, root=ROOT, place="ORDER of scripts/qp/imports.py"):
    """The imports in a directory that violate its order, in {name in the directory: text}."""
    rank = {name: rank for rank, names in enumerate(order) for name in names}
    rooms = {module_of(name)[0] for name in sources} - {root}
    lines = [f"{folder}/{room} has no place in {place}" for room in sorted(rooms - set(rank))]
    for name, text in sources.items():
        module = module_of(name)
        room = module[0]
        if room not in rank:
            continue
        for path, line in paths(text, [] if room == root else module):
            other = path[0] if path else room
            if other not in rank:
                other = root
            if other != room and other in rank and rank[other] >= rank[room]:
                where = "beside" if rank[other] == rank[room] else "above"
                lines.append(f"{folder}/{name}:{line}: {'::'.join(path)}, but {other} stands {where} {room}")
    return lines + [text_of_order(order)] * bool(lines)


def upwards_in_crate(sources, folder, root="lib"):
    """As upwards(), with the order in the table of the root."""
    text = sources[f"{root}.rs"]
    table = ROW.findall(text)
    files = {module_of(name)[0] for name in sources} | set(ELSEWHERE.findall(text))
    missing = [f"{folder}/{root}.rs: the table has {name}, which is no file" for name in table if name not in files]
    order = [[name] for name in [*table, root]]
    return missing + upwards(sources, folder, order, root, f"the table of {folder}/{root}.rs")


def beside(sources):
    """The imports between files of one directory, in {directory: {file: {other: where}}}; of a
    directory, those of its files."""
    modules = {name: [] if name.removesuffix(".rs") in ROOTS else module_of(name) for name in sources}
    known, found = {tuple(module) for module in modules.values()}, {}
    exported = {}
    for name, module in modules.items():
        exported |= exports(sources[name], module, known)
    for name, module in modules.items():
        for path, line in paths(sources[name], module):
            while head := next((head for end in range(len(path)) if (head := tuple(path[: end + 1])) in exported), None):
                path = exported[head] + path[len(head) :]
            # The file that has the item, which may be a directory's own.
            while path and tuple(path) not in known:
                path = path[:-1]
            same = next((at for at, (one, other) in enumerate(zip(module, path)) if one != other), None)
            if same is not None:
                files = found.setdefault("/".join(module[:same]), {})
                files.setdefault(module[same], {}).setdefault(path[same], f"{name}:{line}")
    return found


def circle(files, start):
    """The shortest circle of imports from a file to itself; empty if there is none."""
    ways, seen = [[start]], set()
    for way in ways:
        for other in files.get(way[-1], ()):
            if other == start:
                return [*way, start]
            if other not in seen:
                seen.add(other)
                ways.append([*way, other])
    return []


def circles(sources, folder):
    """The circles in the directories of a folder."""
    lines = []
    for inside, files in sorted(beside(sources).items()):
        place = f"{folder}/{inside}".rstrip("/")
        for file in sorted(files):
            if way := circle(files, file):
                lines.append(f"{folder}/{files[file][way[1]]}: a circle in {place}: {' -> '.join(way)}")
    return lines
