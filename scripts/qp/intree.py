# SPDX-License-Identifier: GPL-2.0
"""Puts the driver into the source of a kernel: make in-tree TREE=/path/to/linux-7.3

    drivers/infiniband/hw/qpair/     the driver, from rust/
    rust/kernel/rdma.rs, rdma/       the RDMA abstractions, a part of the kernel crate
    rust/helpers/rdma.c              what Rust cannot call in C headers
    include/uapi/rdma/qpair-abi.h    the driver's part of uverbs commands
    Documentation/infiniband/        the driver's page

and adds what these need to files of the tree: scripts/in-tree/edits.toml has the list. Then, in it:

    make menuconfig    RUST, INFINIBAND=y, INFINIBAND_USER_ACCESS=y, RUST_RDMA_ABSTRACTIONS, INFINIBAND_QPAIR
    make

All is derived from the sources of this checkout each time, so nothing of it is to be edited in the
tree. Run it again after a change: only files that differ are written. The rules:

- Files come along that a `mod` of rust/qpair.rs reaches, once what is not for modules
  (`cfg(not(MODULE))`) is left out; C files as Kbuild lists them, with the headers beside them.
- rust/kernel/rdma is in the kernel crate: its paths begin with `crate` instead of `kernel`, its bindings
  are those of the crate, and `raw_device(dev)` is `dev.as_raw()`, which is private there.
- The methods that `kernel::sync::Completion` lacks are added to it.
- KUnit suites have an option each.
- rustfmt orders what the new names disorder.
"""

import argparse
import os
import pathlib
import re
import subprocess
import tomllib

from qp import base, cache, kernel as kernels

RUST = base.TOP / "rust"
OWN = base.SCRIPTS / "in-tree"
DRIVER = "drivers/infiniband/hw/qpair"
RDMA = "rust/kernel/rdma"
UAPI = "include/uapi/rdma/qpair-abi.h"
COMPLETION = "rust/kernel/sync/completion.rs"
# The object qpair.o is the module, so its root has another name.
ROOT = "qpair_main.rs"
# The option of the driver's KUnit suites.
TESTS = "CONFIG_INFINIBAND_QPAIR_KUNIT_TEST"

# Where the build root has its own.
HIDDEN = "the build root does not see one below /usr, /lib, /etc, /boot, /run or /var, except /var/tmp"
WIDTH = 100
MOD = re.compile(r"^\s*(?:pub(?:\([\w ]+\))? )?mod (\w+);", re.MULTILINE)
METHODS = re.compile(r"^impl Completion \{\n.*?^\}\n", re.MULTILINE | re.DOTALL)


def for_modules(text):
    """A source as modules have it, without `MODULE`."""
    removed = set()

    def leave(match):
        removed.update(MOD.findall(match[0]))
        return ""

    # An item ends at a line of its own indent: with a semicolon, or the closing brace of a body.
    text = re.sub(
        r"^( *)#\[cfg\(not\(MODULE\)\)\]\n(?:.*\n)*?(?:\1\S.*;|\1\}.*)\n(?:\n(?=\n|\1[^ }]))?", leave, text, flags=re.MULTILINE
    )
    text = re.sub(r"^#!\[cfg_attr\(not\(MODULE\), .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^ *#\[cfg\(MODULE\)\]\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"#\[cfg_attr\(MODULE, (.*)\)\]", r"#[\1]", text)
    for name in removed:
        text = re.sub(rf"^//! \| \[`{name}`\] \|.*\n", "", text, flags=re.MULTILINE)
    return text


def reached(path, found):
    """Adds the text of a source of rust/, and of those that its `mod`s reach."""
    found[path] = text = for_modules(path.read_text())
    folder = path.parent if path.stem in ("mod", "qpair") else path.with_suffix("")
    for name in MOD.findall(text):
        file = folder / f"{name}.rs"
        reached(file if file.exists() else folder / name / "mod.rs", found)


def in_crate(text):
    """A source of the abstractions, as a part of the kernel crate."""
    text = re.sub(r"\bcrate::kernel::raw_device\(&?([\w.]+)\)", r"\1.as_raw()", text)
    text = text.replace("crate::kernel::", "crate::")
    text = re.sub(r"(?<![\w:])(?:::)?kernel::(?=[\w{])", "crate::", text)
    text = text.replace("#[crate::macros::kunit_tests(", "#[cfg(CONFIG_RUST_RDMA_KUNIT_TEST)]\n#[crate::macros::kunit_tests(")
    if "mod bindings;\n" in text:
        text = text.replace("mod bindings;\n", "").replace("use crate::{\n", "use crate::{\n    bindings,\n", 1)
    return text


def in_driver(name, text):
    """A source of the driver, which has the abstractions from the kernel crate."""
    if name == "kernel/mod.rs":
        text = re.sub(r"^pub mod (?:rdma|sync);\n", "", text, flags=re.MULTILINE)
        text = text.replace("\nuse raw::{", "\npub use ::kernel::{\n    rdma,\n    sync, //\n};\nuse raw::{")
    text = text.replace('#[cfg(CONFIG_KUNIT = "y")]', f"#[cfg({TESTS})]")
    return re.sub(r"^#\[(?:[\w:]+::)?kunit_tests\(", rf"#[cfg({TESTS})]\n\g<0>", text, flags=re.MULTILINE)


def objects():
    """The C sources of the module, from Kbuild."""
    listed = re.search(r"^qpair-y := (.*)$", (base.TOP / "Kbuild").read_text(), re.MULTILINE)[1].split()
    paths = [base.TOP / name for name in listed if name != "rust/qpair.o"]
    return [path.with_suffix(".c") for path in paths]


def makefile(sources):
    names = [str(pathlib.Path(name).with_suffix(".o")) for name in (ROOT, *sources)]
    return (
        "# SPDX-License-Identifier: GPL-2.0\n"
        "obj-$(CONFIG_INFINIBAND_QPAIR) += qpair.o\n\n"
        f"qpair-y := {' '.join(names)}\n\n"
        "# Rust alone calls what they define, so there are no prototypes.\n"
        + "".join(f"CFLAGS_REMOVE_{name.with_suffix('.o')} := -Wmissing-prototypes -Wmissing-declarations\n" for name in sources)
        + "\n# define_trace.h includes trace.h once more, by its bare name.\n"
        "CFLAGS_kernel/shim.o := -I$(src)/kernel\n"
    )


def helpers(text):
    """The helpers, which need the core to be built in."""
    *head, last = re.findall(r"^#include .*\n", text, re.MULTILINE)
    before, after = text.split(last)
    return f"{before}{last}\n#ifdef CONFIG_RUST_RDMA_ABSTRACTIONS\n{after}\n#endif /* CONFIG_RUST_RDMA_ABSTRACTIONS */\n"


def derived():
    """The files that a tree gets, in {path: text}."""
    found, rust, c = {}, {}, []
    reached(RUST / "qpair.rs", rust)
    for path, text in rust.items():
        name = str(path.relative_to(RUST))
        if name.startswith("kernel/rdma/"):
            inner = name.removeprefix("kernel/rdma/")
            if inner != "bindings.rs":
                found[f"{RDMA}.rs" if inner == "mod.rs" else f"{RDMA}/{inner}"] = in_crate(text)
        elif not name.startswith("kernel/sync/"):
            found[f"{DRIVER}/{ROOT if name == 'qpair.rs' else name}"] = in_driver(name, text)
    for path in objects():
        name = path.relative_to(RUST)
        if str(name).startswith("kernel/rdma/"):
            found["rust/helpers/rdma.c"] = helpers(path.read_text())
        else:
            c.append(name)
            for beside in (path, *path.parent.glob("*.h")):
                found[f"{DRIVER}/{beside.relative_to(RUST)}"] = beside.read_text()
    found[f"{DRIVER}/Makefile"] = makefile(c)
    found[UAPI] = (base.TOP / UAPI).read_text()
    for path in OWN.rglob("*"):
        if path.is_file() and path.parent != OWN:
            found[str(path.relative_to(OWN))] = re.sub(r"\{section (.*)\}\n", section, path.read_text())
    return formatted(found)


def section(match):
    """The text below a title of the driver's page, up to the next one."""
    page = (base.TOP / "Documentation/driver.rst").read_text()
    found = re.search(rf"^{match[1]}\n[=-]+\n\n((?:(?!.*\n[=-]+\n).*\n)*)", page, re.MULTILINE)
    # Not the names of tests, GROUP/CASE.
    text = re.sub(r"\s\(``\w+/\w+``\)", "", found[1])
    return text.strip("\n").replace("``rust/", f"``{DRIVER}/") + "\n"


COMMENT = re.compile(r"(\s*(?:///|//!|//|\*) ?)(.*)")
# Not the rest of a paragraph.
APART = re.compile(r"(?:\s*[-|#`*]|\s*\d+\.|\s*$|/$)")


TABLE = re.compile(r"(?:^ *//[/!] \|.*\n)+", re.MULTILINE)


def listed(match):
    """A table in a comment as a list, if a row of it is too long."""
    rows = match[0].splitlines()
    if max(map(len, rows)) <= WIDTH:
        return match[0]
    start = rows[0].partition("|")[0]
    heads, _, *cells = ([cell.strip() for cell in row.partition("|")[2].rstrip("|").split(" | ")] for row in rows)
    named = len(heads) > 2
    items = (
        f"{first}: " + "; ".join(f"{head}: {cell}" if named else cell for head, cell in zip(heads[1:], rest) if cell)
        for first, *rest in cells
    )
    return "".join(f"{start}- {item}\n" for item in items)


def narrow(text):
    """A text whose comments have at most 100 columns: words go to the next line of the paragraph."""
    text = TABLE.sub(listed, text)
    lines, found, fenced = text.splitlines(), [], False
    while lines:
        line = lines.pop(0)
        found.append(line)
        comment = COMMENT.fullmatch(line)
        fenced ^= bool(comment and comment[2].startswith("```"))
        if not comment or fenced or len(line.expandtabs(8)) <= WIDTH:
            continue
        start, words = comment.groups()
        at = line.rfind(" ", len(start), WIDTH + 1 - len(start.expandtabs(8)) + len(start))
        if at < 0:
            continue
        found[-1], rest = line[:at], line[at + 1 :]
        following = COMMENT.fullmatch(lines[0]) if lines else None
        if following and following[1] == start and not APART.match(following[2]):
            words = following[2]
            indent = words[: len(words) - len(words.lstrip())]
            lines[0] = f"{start}{indent}{rest} {words.lstrip()}"
        else:
            indent = re.match(r"\s*(?:- |\d+\. )?", words)[0]
            lines.insert(0, f"{start}{' ' * len(indent)}{rest}")
    return "\n".join(found) + "\n"


def formatted(files):
    """The files, with those in Rust as rustfmt writes them: by its own order of names."""
    for name, text in files.items():
        # The one British word that the tree's list of misspellings has.
        text = text.replace("acknowledgement", "acknowledgment")
        if name.endswith(".rs"):
            made = subprocess.run(
                ["rustfmt", "--edition", "2021", "--config", "newline_style=Unix"], input=text, capture_output=True, text=True
            )
            if made.returncode != 0:
                raise base.Fail(f"{name}: {made.stderr.strip()}", "correct the rules in scripts/qp/intree.py")
            text = made.stdout
        if name.endswith((".rs", ".c", ".h")):
            files[name] = narrow(text)
    return files


def author():
    ident = subprocess.run(["git", "-C", base.TOP, "log", "-1", "--format=%an <%ae>"], capture_output=True, text=True)
    return ident.stdout.strip() or "The qpair authors"


def edits():
    """The additions to files of a tree."""
    headers = "\n".join(re.findall(r"^#include <rdma/.*", (RUST / "kernel/rdma/bindings.h").read_text(), re.MULTILINE))
    listed = tomllib.loads((OWN / "edits.toml").read_text())["edit"]
    return [{**edit, "add": edit["add"].replace("{headers}", headers).replace("{author}", author())} for edit in listed]


def inserted(edit, text):
    """A file of a tree with an addition; as it is, if it has it."""
    if edit["add"].strip("\n") in text:
        return text
    anchor = edit.get("after") or edit["before"]
    lines = text.splitlines(keepends=True)
    if lines.count(f"{anchor}\n") != 1:
        raise base.Fail(
            f"{edit['file']} of the tree has not exactly one line {anchor!r}",
            "the tree is of another series: name another line in scripts/in-tree/edits.toml",
        )
    at = lines.index(f"{anchor}\n") + ("after" in edit)
    return "".join([*lines[:at], edit["add"], *lines[at:]])


def completed(text):
    """The kernel crate's Completion with the methods that it lacks."""
    own = METHODS.findall((base.TOP / COMPLETION).read_text())[-1]
    first = METHODS.search(text)
    if not first:
        raise base.Fail(f"{COMPLETION} of the tree has no impl of Completion", "use a tree of a supported series")
    if METHODS.sub("", text[first.end() :]).strip():
        raise base.Fail(f"{COMPLETION} of the tree has more than its impl of Completion", "use a tree of a supported series")
    return text[: first.end()] + "\n" + formatted({COMPLETION: in_crate(own)})[COMPLETION]


def edited(read):
    """The files of a tree that change, in {path: text}; `read` has the text of one."""
    found = {}
    for edit in edits():
        name = edit["file"]
        found[name] = inserted(edit, found.get(name) or read(name))
    return found | {COMPLETION: completed(read(COMPLETION))}


def version(tree):
    """The series of a tree, as (major, minor)."""
    found = dict(re.findall(r"^(VERSION|PATCHLEVEL) = (\d+)$", (tree / "Makefile").read_text(), re.MULTILINE))
    return int(found["VERSION"]), int(found["PATCHLEVEL"])


def checked(word):
    """The source of a kernel, by what the user names it."""
    if not word:
        raise base.Fail("no kernel tree is named", "make in-tree TREE=/path/to/linux-7.3; scripts/py intree --help says what it does")
    tree = pathlib.Path(word).expanduser().resolve()
    if not tree.is_dir():
        cause = "is not a directory" if tree.exists() else "does not exist"
        raise base.Fail(f"TREE={word} {cause}", f"name the unpacked source of a kernel; {HIDDEN}")
    is_output = (tree / "source").is_symlink() and not (tree / "Kconfig").exists()
    its_source = (tree / "source").resolve() if is_output else tree
    if base.CACHE.resolve() in tree.parents:
        raise base.Fail(f"TREE={word} is in the cache, where other builds use it", f"copy the source: cp -a {its_source} DIR")
    if is_output:
        raise base.Fail(f"TREE={word} is the output of a build", f"TREE={its_source}, its source")
    if not ((tree / "Makefile").is_file() and (tree / "Kconfig").is_file() and (tree / "MAINTAINERS").is_file()):
        raise base.Fail(f"TREE={word} is not the source of a kernel", "name a directory that has the kernel's Makefile, Kconfig and MAINTAINERS")
    try:
        series = version(tree)
    except KeyError:
        raise base.Fail(f"TREE={word}: its Makefile names no version", "name the unpacked source of a kernel") from None
    if series < kernels.FIRST:
        raise base.Fail(f"TREE={word} is Linux {series[0]}.{series[1]}; the driver is for {kernels.RANGE}", f"name a tree of Linux {kernels.RANGE}")
    if series > kernels.LAST:
        base.say(f"warning: Linux {series[0]}.{series[1]} is newer than {kernels.LAST[0]}.{kernels.LAST[1]}, which the driver was built for")
    names = changed_files()
    missing = [name for name in names if not (tree / name).is_file()]
    if missing:
        raise base.Fail(f"TREE={word} lacks {', '.join(missing)}", "use a complete tree")
    own_changes(word, tree, names)
    return tree


def changed_files():
    """The files of a tree that the driver's additions change."""
    return sorted({edit["file"] for edit in edits()} | {COMPLETION})


def own_changes(word, tree, names):
    """Refuses to mix the user's uncommitted changes of a file with the command's."""
    if not (tree / ".git").exists():
        return
    words = ["git", "-C", tree, "status", "--porcelain", "--", *names]
    git = subprocess.run(words, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True)
    if "dubious ownership" in git.stderr:
        raise base.Fail(f"TREE={word} belongs to another user, whose repositories git does not read", "run as its owner, or copy it: cp -r")
    if git.returncode != 0:
        raise base.Fail(f"TREE={word}: {git.stderr.strip()}", "mend the repository, or unpack the source of a kernel")
    changed = [line[3:] for line in git.stdout.splitlines()]
    # After an earlier run they are its own.
    if changed and not (tree / DRIVER).exists():
        raise base.Fail(f"TREE={word} has uncommitted changes in {', '.join(changed)}", "commit or stash them, so that the driver's changes can be told apart")


def write(tree, files):
    """Writes the files that differ; returns their number."""
    count = 0
    for name, text in files.items():
        path = tree / name
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            # The old one stays until the new one is whole, and may have other links, as by cp -al.
            new = path.with_name(f"{path.name}.new")
            new.write_text(text)
            new.replace(path)
            count += 1
    return count


def put(tree):
    """Puts the driver into a tree, or what has changed of it; returns how many files differed."""
    files, had = derived(), (tree / DRIVER).exists()
    there = [name for name in (RDMA, *files) if not had and (tree / name).exists()]
    if there:
        raise base.Fail(f"the tree has {there[0]} of its own, which the driver's would replace", "use a tree without it")
    # First, since it may fail.
    changes = edited(lambda name: (tree / name).read_text())
    count = 0
    for folder in (DRIVER, RDMA):
        for path in [*(tree / folder).rglob("*.rs"), *(tree / folder).rglob("*.[ch]")]:
            if str(path.relative_to(tree)) not in files:
                path.unlink()
                count += 1
    return count + write(tree, files | changes)


def run(argv):
    parser = argparse.ArgumentParser(prog="make in-tree", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", metavar="TREE", nargs="?", help="the source of a kernel")
    args = parser.parse_args(argv)
    tree = checked(args.tree)
    if not os.access(tree, os.W_OK):
        raise base.Fail(f"TREE={args.tree} cannot be written", "run as its owner, or copy it to a file system that can: cp -a")
    had = (tree / DRIVER).exists()
    count = put(tree)
    base.say(f"{tree}: {'refreshed' if had else 'the driver is in it'}, {count} files written; next: configure and build it: Documentation/install.rst, The kernel's tree")
    return 0


if __name__ == "__main__":
    base.main(run)
