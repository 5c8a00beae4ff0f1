# SPDX-License-Identifier: GPL-2.0
"""Static checks: scripts/check [NAME]...

Each check is a function here, named as on the command line; the first line of its docstring is the
question that it answers. All are run even if one fails, those of cargo beside the others.
"""

import argparse
import re
import time

from qp import base, crates, imports as order, jobs, kernel as kernels, lines as code, payload, provider, walks as walked

BUILD = base.TOP / "build"
DOCS = BUILD / "docs"
LONGEST = 700

# Not allowed in a module: a panic in it is a panic of the machine.
PANICS = r"\.unwrap\(\)|\.expect\(|\b(panic|todo|unimplemented|unreachable)!|\b(TODO|FIXME|XXX)\b"


def files(*patterns):
    """The files of the project that git does not ignore, new ones included."""
    names = base.output(
        "git", "-C", base.TOP, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns
    )
    paths = (base.TOP / name for name in names.split("\0") if name)
    return [path for path in paths if path.is_file()]


def name_of(path):
    return str(path.relative_to(base.TOP))


def complain(lines):
    if lines:
        raise base.Fail("\n  ".join(["", *lines]))


def cargo(verb, *words, **more):
    with crates.target("host") as target:
        command = ["nice", "cargo", verb, "--locked", "--target-dir", target, *words]
        base.step(f"cargo {verb}", command, cwd=base.TOP, quiet=True, **more)


def rustfmt():
    """Is all Rust formatted, the module's too?"""
    base.step(
        "rustfmt",
        ["rustfmt", "--check", "--color", "never", "--edition", "2021", "--config-path", base.TOP, *files("*.rs")],
        quiet=True,
    )


def clippy():
    """Does clippy accept the workspace?"""
    cargo("clippy", "--workspace", "--all-targets", "--features", "qpair/tokio", "--", "-D", "warnings")


def module():
    """Does clippy accept the modules, with the kernel's own lints?"""
    payload.module(kernels.get("stock"), strict=True, clippy=True)


def verbs():
    """Does clippy accept the operations of the provider, and gcc the rest?"""
    library = provider.build()
    environment = provider.environment(provider.fetched())
    words = ["--package", provider.PACKAGE, "--features", "provider", "--lib", "--", "-D", "warnings"]
    cargo("clippy", *words, env=environment)
    exported = base.output("nm", "--dynamic", "--defined-only", library).split()[2::3]
    complain([f"{library.name} exports {name}" for name in exported])


def rustdoc():
    """Are the crates' documents without warnings?"""
    cargo("doc", "--workspace", "--no-deps", "--document-private-items", "--features", "qpair/tokio", env={"RUSTDOCFLAGS": "-D warnings"})
    DOCS.mkdir(parents=True, exist_ok=True)
    link = DOCS / "rustdoc"
    if not link.is_symlink():
        link.symlink_to("../host/doc")


def docs():
    """Are the pages of Documentation/ without warnings?"""
    base.step(
        "sphinx",
        # From scratch each time: the leftovers of an interrupted run would cause a warning.
        ["sphinx-build", "-q", "-E", "-a", "-W", "--keep-going", "-b", "html", "-d", BUILD / "doctrees", base.TOP / "Documentation", DOCS],
        quiet=True,
    )


def shellcheck():
    """Does shellcheck accept the shell scripts?"""
    scripts = [
        path
        for path in files("scripts", ".ci", "tools", "qemu", "packaging")
        if path.suffix == ".sh" or path.read_bytes()[:9] == b"#!/bin/sh"
    ]
    base.step(
        "shellcheck",
        ["shellcheck", "--external-sources", "--source-path", base.SCRIPTS, *scripts],
        quiet=True,
    )


def python():
    """Do the Python files compile?"""
    for path in files("*.py"):
        try:
            compile(path.read_text(), str(path), "exec")
        except SyntaxError as error:
            raise base.Fail(f"{name_of(path)}: {error}") from error


def scripts():
    """Do the tests of these scripts pass?"""
    base.step("the scripts' tests", [base.SCRIPTS / "py", "selftest"], quiet=True)


def header():
    """Is the C header of the device what the generator makes?"""
    cargo("run", "--package", "qpair-header", "--", "--check")


def lines_with(pattern, paths, tests=True):
    """The lines of code that have a pattern; without `tests`, not those of tests, which are at the end
    of a file."""
    found = []
    for path in paths:
        text = path.read_text() if tests else code.TESTS.split(path.read_text())[0]
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(pattern, line.split("//")[0]) and "/tests/" not in name_of(path):
                found.append(f"{name_of(path)}:{number}: {line.strip()}")
    return found


def kernel_only():
    """Are `unsafe` and the kernel's bindings in rust/kernel alone?"""
    others = (path for path in files("rust/*.rs", "stream/*.rs") if not name_of(path).startswith("rust/kernel/"))
    complain(lines_with(r"\bbindings::|\bunsafe\s*(\{|fn\b|impl\b|extern\b)", others))


def sources(folder):
    """The Rust code of a folder, in {name in the folder: text}."""
    named = ((name_of(path).removeprefix(f"{folder}/"), path) for path in files(f"{folder}/*.rs"))
    return {name: path.read_text() for name, path in named if "/tests/" not in name}


def imports():
    """Does each import of a crate with an order point downwards, and has no folder a circle?"""
    found = order.upwards(sources("rust"))
    for folder, root in order.TABLES.items():
        found += order.upwards_in_crate(sources(folder), folder, root)
    for folder in order.FOLDERS:
        found += order.circles(sources(folder), folder)
    complain(found)


def walks():
    """Does each walk of driver.rst name functions that exist, within its bound?"""

    def read(name):
        path = base.TOP / name
        return path.read_text() if path.is_file() else None

    complain(walked.faults(read(walked.PAGE), read))


def panics():
    """Is there no panic in the modules, and in the device's model and transport?"""
    complain(lines_with(PANICS, files("rust/*.rs", "stream/*.rs", "qemu/model/src/*.rs", "qemu/roce/src/*.rs", "qemu/ffi/src/*.rs"), tests=False))


def spdx():
    """Does every file have a licence tag?"""
    skipped = ("LICENSES/", "Cargo.lock", ".gitignore")
    complain(
        [
            name_of(path)
            for path in files()
            if not name_of(path).startswith(skipped)
            and b"SPDX-License-Identifier:" not in path.read_bytes()[:400]
            and path.suffix not in (".json", ".svg", ".png", ".proptest-regressions")
        ]
    )


def length():
    """Is each source file short enough to be read at once?"""
    written = [path for path in files("*.rs", "*.c", "*.py", "*.sh", "scripts/*")]
    counted = ((path, len(path.read_text().splitlines())) for path in written)
    complain([f"{name_of(path)}: {lines} lines" for path, lines in counted if lines > LONGEST])


CHECKS = [spdx, length, rustfmt, shellcheck, python, scripts, kernel_only, imports, walks, panics, docs, module, clippy, verbs, header, rustdoc]

# One after the other, since cargo locks their target directory; the others run beside them.
CARGO = [clippy, verbs, header, rustdoc]


def name_on_line(check):
    return check.__name__.replace("_", "-")


def judge(check):
    """Runs a check, and prints its verdict; returns whether it passed."""
    start, failure = time.monotonic(), None
    try:
        check()
        verdict = "ok"
    except base.Fail as error:
        failure = error
        verdict = f"FAILED: {error}" + (f"\n  remedy: {error.remedy}\n " if error.remedy else "")
    print(f"{name_on_line(check):12} {check.__doc__} {verdict} ({time.monotonic() - start:.0f} s)", flush=True)
    return failure is None


def run(argv):
    names = {name_on_line(check): check for check in CHECKS}
    parser = argparse.ArgumentParser(prog="scripts/check", description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    args = parser.parse_intermixed_args(argv)
    base.known("check", args.names, names)
    chosen = [names[name] for name in args.names or names]
    lanes = [[check for check in chosen if (check in CARGO) == cargo] for cargo in (True, False)]
    verdicts = jobs.side_by_side([lambda lane=lane: [judge(check) for check in lane] for lane in lanes], len(lanes))
    passed = sum(map(sum, verdicts))
    print(f"{passed} passed, {len(chosen) - passed} failed, 0 skipped", flush=True)
    return 0 if passed == len(chosen) else 1


if __name__ == "__main__":
    base.main(run)
