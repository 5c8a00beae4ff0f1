# SPDX-License-Identifier: GPL-2.0
"""Cargo's build results for crates of the registry, shared by all checkouts.

Each checkout has target directories of its own, below build/. Cargo names the files that it builds
from a crate by a hash, which for crates of the registry does not depend on the checkout. So the
cache keeps these files, and a new target directory starts with them.

A new target directory starts with one entry: the contents of a file do depend on the checkout (the
path of what a build script generates is part of them), and rustc refuses a crate that was built
against another build of its dependency. A command that builds more crates than an entry has (for a
lint, for tests) stores all of them as a new entry, which replaces the ones that it contains.
"""

import contextlib
import fcntl
import os
import shutil
import tomllib

from qp import base, cache

# Version of the contents of an entry.
RECIPE = 3

# The files that cargo keeps for a crate, in the directory of a profile.
FINGERPRINTS, PARTS = ".fingerprint", ("build", "deps")

# The file that cargo locks while it builds in the directory of a profile.
LOCK = ".cargo-lock"


def kept(name):
    """The cache entries of a target directory begin so. What rustc makes has the path of the crates."""
    home = filter(None, [os.environ.get("CARGO_HOME")])
    return base.CACHE / "crates" / base.digest(RECIPE, name, base.toolchain(), (base.TOP / "Cargo.lock").read_text(), *home)


def entries(name):
    """The complete ones and the fingerprints of each, the one with most of them last."""
    start = kept(name)
    found = (path for path in start.parent.glob(f"{start.name}-*/") if not path.name.endswith(cache.GONE))
    whole = {entry: prints(entry / "target") for entry in sorted(found) if cache.complete(entry)}
    return dict(sorted(whole.items(), key=lambda item: len(item[1])))


def ours():
    """The packages of the checkout."""
    members = tomllib.loads((base.TOP / "Cargo.toml").read_text())["workspace"]["members"]
    return {tomllib.loads((base.TOP / member / "Cargo.toml").read_text())["package"]["name"] for member in members}


def prints(target):
    """The fingerprints in a target directory, of a profile, for this machine or for a named one, of
    crates that are built: cargo makes the directory when it begins."""
    found = (path.parent for pattern in ("*", "*/*") for path in target.glob(f"{pattern}/{FINGERPRINTS}/*/*.json"))
    return {path.relative_to(target) for path in found}


def copy(source, target, chosen):
    """Copies the files of some fingerprints to another target directory; keeps times, since cargo
    compares them."""
    for profile in {path.parents[1] for path in chosen}:
        mine = {path for path in chosen if path.parents[1] == profile}
        hashes = {path.name.rpartition("-")[2] for path in mine}
        # NAME-HASH, and a suffix if it is a file.
        parts = (path.relative_to(source) for part in PARTS for path in (source / profile / part).glob("*"))
        for path in mine.union(path for path in parts if path.name.rpartition("-")[2].split(".")[0] in hashes):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            if (source / path).is_dir():
                shutil.copytree(source / path, target / path, symlinks=True)
            else:
                shutil.copy2(source / path, target / path)


@contextlib.contextmanager
def still(target):
    """Tries to keep cargo from building in a target directory; returns whether it does not."""
    with contextlib.ExitStack() as stack:
        locks = [stack.enter_context(open(path)) for pattern in ("*", "*/*") for path in target.glob(f"{pattern}/{LOCK}")]
        try:
            for lock in locks:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            quiet = True
        except BlockingIOError:
            quiet = False
        yield quiet


def keep(name):
    """Stores the crates of build/NAME if no entry has all of them."""
    source, own = base.TOP / "build" / name, ours()
    with still(source) as quiet:
        # The command that builds there now stores them.
        if not quiet:
            return
        mine = {path for path in prints(source) if path.name.rpartition("-")[0] not in own}
        old = entries(name)
        if not mine or any(mine <= theirs for theirs in old.values()):
            return

        def build(folder):
            shutil.rmtree(folder / "target", ignore_errors=True)
            copy(source, folder / "target", mine)

        cache.entry(kept(name).with_name(f"{kept(name).name}-{base.digest(*sorted(map(str, mine)))}"), build)
    for entry in (entry for entry, theirs in old.items() if theirs < mine):
        cache.replaced(entry)


@contextlib.contextmanager
def target(name):
    """The target directory build/NAME, for a block in which cargo builds in it."""
    folder = base.TOP / "build" / name
    folder.parent.mkdir(exist_ok=True)
    with base.locked(folder.with_name(f"{name}.lock")):
        if not folder.exists():
            half = folder.with_name(f"{name}.half")
            shutil.rmtree(half, ignore_errors=True)
            for entry in filter(cache.held, [*entries(name)][-1:]):
                shutil.copytree(entry / "target", half, symlinks=True)
            # Without an entry there is none.
            with contextlib.suppress(FileNotFoundError):
                os.replace(half, folder)
    yield folder
    # A read-only cache stores nothing.
    with contextlib.suppress(OSError):
        keep(name)
