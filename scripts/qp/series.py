# SPDX-License-Identifier: GPL-2.0
"""Writes the driver as patches to a kernel: make series

The patches are what `make in-tree` puts into a tree, in the parts of scripts/in-tree/series.toml, with
a cover letter: build/series/*.patch, for git am or git send-email. The tree builds after each.
"""

import argparse
import fnmatch
import os
import pathlib
import shutil
import tempfile
import textwrap
import tomllib

from qp import base, intree, kernel as kernels

TABLE = intree.OWN / "series.toml"
OUT = base.TOP / "build/series"
COLUMNS = 72


def parts(names):
    """The patches with their files, each file in one: [(patch, [name])]."""
    table, left, found = tomllib.loads(TABLE.read_text()), sorted(names), []
    for patch in table["patch"]:
        own = [name for name in left if any(fnmatch.fnmatchcase(name, pattern) for pattern in patch["paths"])]
        if not own:
            raise base.Fail(f"the patch {patch['subject']!r} has no file", "correct its paths in scripts/in-tree/series.toml")
        found.append((patch, own))
        left = [name for name in left if name not in own]
    if left:
        raise base.Fail(f"no patch has {', '.join(left)}", "name a patch for it in scripts/in-tree/series.toml")
    return table["cover"], found


def place(edit):
    """The file with which an addition is in one patch."""
    return edit.get("with", edit["file"])


def placed(files):
    """The files that patches have to have."""
    return {*files, intree.COMPLETION, *map(place, intree.edits())}


def states(tree):
    """The cover letter, and what each patch changes in a tree, in order: (patch, {path: text})."""
    files, now = intree.derived(), {}
    cover, found = parts(placed(files))
    changes = []
    for patch, own in found:
        change = {name: files[name] for name in own if name in files}
        if intree.COMPLETION in own:
            change[intree.COMPLETION] = intree.completed((tree / intree.COMPLETION).read_text())
        for edit in intree.edits():
            name = edit["file"]
            if place(edit) not in own:
                continue
            change[name] = now[name] = intree.inserted(edit, now.get(name) or (tree / name).read_text())
        changes.append((patch, change))
    return cover, changes


def message(of):
    """Subject and body of a commit, as checkpatch wants them."""
    body = (textwrap.fill(part, COLUMNS) for part in of["body"].strip().split("\n\n"))
    return "\n\n".join([of["subject"], *body]) + "\n"


def write(tree, cover, changes, out):
    """Writes the patches for a tree, which are its `states`, into an empty directory."""
    name, _, address = intree.author().partition(" <")
    date = base.output("git", "-C", base.TOP, "log", "-1", "--format=%aI").strip()
    identity = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in (("NAME", name), ("EMAIL", address.rstrip(">")), ("DATE", date))}
    # The user's settings may sign, or have hooks and another format.
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    with tempfile.TemporaryDirectory() as folder:
        repository = pathlib.Path(folder)

        def git(*words):
            base.output("env", *(f"{key}={value}" for key, value in {**identity, **settings}.items()), "git", "-C", repository, *words)

        git("init", "--quiet", "--initial-branch=qpair")
        # Only what the patches change: they apply to a whole tree as well.
        touched = {name for _, change in changes for name in change}
        for name in touched:
            if (tree / name).exists():
                (repository / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(tree / name, repository / name)
        git("add", "--all")
        git("commit", "--quiet", "--message", "the tree")
        git("tag", "tree")
        for patch, change in changes:
            intree.write(repository, change)
            git("add", "--all")
            git("commit", "--quiet", "--signoff", "--message", message(patch))
        git("config", "branch.qpair.description", message(cover))
        git("format-patch", "--quiet", "--cover-letter", "--cover-from-description=subject", "--output-directory", out, "tree")


def run(argv):
    parser = argparse.ArgumentParser(prog="make series", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", metavar="TREE", nargs="?", help="the source of a kernel without the driver; that of the stock kernel by default")
    args = parser.parse_args(argv)
    tree = intree.checked(args.tree) if args.tree else (kernels.get("stock").tree / "source").resolve()
    if (tree / intree.DRIVER).exists():
        raise base.Fail(f"TREE={args.tree} has the driver already", "name a tree without it, or none")
    cover, changes = states(tree)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    write(tree, cover, changes, OUT)
    for path in sorted(OUT.iterdir()):
        print(os.path.relpath(path), flush=True)
    base.say(f"{len(changes)} patches for Linux {'.'.join(map(str, intree.version(tree)))} in {os.path.relpath(OUT)}")
    return 0


if __name__ == "__main__":
    base.main(run)
