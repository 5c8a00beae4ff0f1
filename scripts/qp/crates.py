# SPDX-License-Identifier: GPL-2.0
"""What cargo makes of the registry's crates, for all checkouts.

A checkout has target folders of cargo of its own, below build/. Cargo names what it makes of a crate by
a hash, in which for crates of the registry nothing is of the checkout. So these files of the first checkout
that has built them are kept, and a target folder that is not there yet begins with them.
"""

import contextlib
import json
import os
import pathlib
import shutil

from qp import base
from qp import cache

# Counts changes of what is kept.
RECIPE = 1

# What cargo keeps of a crate, beside one another in the folder of a profile.
FINGERPRINTS, PARTS = ".fingerprint", ("build", "deps")


def kept(name):
    """The cache entry of a target folder."""
    return base.CACHE / "crates" / base.digest(RECIPE, name, base.toolchain(), (base.TOP / "Cargo.lock").read_text())


def ours():
    """The packages of the checkout."""
    text = base.output("cargo", "metadata", "--no-deps", "--format-version=1", "--locked", cwd=base.TOP)
    return {package["name"] for package in json.loads(text)["packages"]}


def copy(source, target, own):
    """Copies a target folder without what is made of the packages `own`; times stay, for cargo compares them."""
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
    """Keeps what was made in build/NAME, if nothing is kept of it."""

    def build(folder):
        shutil.rmtree(folder / "target", ignore_errors=True)
        (folder / "target").mkdir()
        copy(base.TOP / "build" / name, folder / "target", ours())

    # A cache that cannot be written keeps nothing.
    with contextlib.suppress(OSError):
        cache.entry(kept(name), build)


@contextlib.contextmanager
def target(name, whole=True):
    """The target folder build/NAME, for a block that has cargo build all that it ever will there, unless not `whole`."""
    folder = base.TOP / "build" / name
    entry = kept(name)
    if not folder.exists() and cache.held(entry):
        half = folder.with_name(f"{name}.half")
        shutil.rmtree(half, ignore_errors=True)
        shutil.copytree(entry / "target", half, symlinks=True)
        # Another command may have made it meanwhile.
        with contextlib.suppress(OSError):
            os.replace(half, folder)
    yield folder
    if whole and not cache.complete(entry):
        keep(name)
