# SPDX-License-Identifier: GPL-2.0
"""Cargo's build results for crates of the registry, shared by all checkouts.

Each checkout has target directories of its own, below build/. Cargo names the files that it builds
from a crate by a hash, which for crates of the registry does not depend on the checkout. So the
cache keeps these files from the first checkout that builds them, and a new target directory starts
with them.
"""

import contextlib
import json
import os
import pathlib
import shutil

from qp import base
from qp import cache

# Version of the contents of an entry.
RECIPE = 2

# The files that cargo keeps for a crate, in the directory of a profile.
FINGERPRINTS, PARTS = ".fingerprint", ("build", "deps")


def kept(name):
    """The cache entry of a target directory."""
    return base.CACHE / "crates" / base.digest(RECIPE, name, base.toolchain(), (base.TOP / "Cargo.lock").read_text())


def ours():
    """The packages of the checkout."""
    text = base.output("cargo", "metadata", "--no-deps", "--format-version=1", "--locked", cwd=base.TOP)
    return {package["name"] for package in json.loads(text)["packages"]}


def copy(source, target, own):
    """Copies a target directory without the files of the packages `own`; keeps times, since cargo
    compares them."""
    for prints in sorted(source.rglob(FINGERPRINTS)):
        profile = prints.parent
        hashes = set()
        for path in prints.iterdir():
            package, _, key = path.name.rpartition("-")
            if package not in own:
                hashes.add(key)
                shutil.copytree(path, target / path.relative_to(source))
        for path in (path for part in PARTS if (profile / part).is_dir() for path in (profile / part).iterdir()):
            # NAME-HASH, and a suffix if it is a file.
            if path.name.rpartition("-")[2].split(".")[0] in hashes:
                there = target / path.relative_to(source)
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copytree(path, there, symlinks=True) if path.is_dir() else shutil.copy2(path, there)


def keep(name):
    """Stores the files of build/NAME in the cache, if the cache has no such entry."""

    def build(folder):
        shutil.rmtree(folder / "target", ignore_errors=True)
        (folder / "target").mkdir()
        copy(base.TOP / "build" / name, folder / "target", ours())

    # A read-only cache stores nothing.
    with contextlib.suppress(OSError):
        cache.entry(kept(name), build)


@contextlib.contextmanager
def target(name, whole=True):
    """The target directory build/NAME, for a block in which cargo builds everything for it, if
    `whole`."""
    folder = base.TOP / "build" / name
    entry = kept(name)
    if not folder.exists() and cache.held(entry):
        half = folder.with_name(f"{name}.half")
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(entry / "target", half, symlinks=True)
        # Another command may have created it meanwhile.
        with contextlib.suppress(OSError):
            os.replace(half, folder)
    yield folder
    if whole and not cache.complete(entry):
        keep(name)
