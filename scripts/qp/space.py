# SPDX-License-Identifier: GPL-2.0
"""Is there room for what a command is going to make? Asked before it begins, not when the disk is full.

What is there already is not counted. So that a long run does not end half way,
what nobody needs is removed from the cache first where there is too little.
"""

import os
import shutil

from qp import base
from qp import cache
from qp import kernel as kernels
from qp import qemu

# Gigabytes, as measured and rounded up, of what a checkout's own build/ grows to: with the tools, the device's model and
# the modules, which all commands make, and with the host's tests beside them.
BUILD = 1.1
HOST = 3.4

# Gigabytes of a kernel's entry in the cache, and of the source tree that it is made of.
KERNEL = {"stock": 0.5, "test": 0.7, "debug": 0.9}
SOURCE = 1.9

# Other kernels that share a source.
SAME_SOURCE = {"stock": (), "test": ("debug",), "debug": ("test",)}


def missing(names, emulator, host):
    """What will be made, as (path, gigabytes): for kernels of these names, for QEMU, for the host's tests."""
    build = base.TOP / "build"
    there = cache.size(build) / 1e9 if build.is_dir() else 0
    found = [(base.TOP, max(0, BUILD * emulator + HOST * host - there))]
    pristine, own = qemu.folders()
    entries = [(pristine, qemu.PRISTINE), (own, qemu.COPY)] if emulator else []
    unpacked = set()
    for name in names:
        folder = kernels.folder_of(name)
        entries.append((folder, KERNEL[name]))
        same = {name, *SAME_SOURCE[name]}
        if not any((kernels.folder_of(other) / ".complete").exists() for other in same) and not same & unpacked:
            found.append((base.CACHE, SOURCE))
        unpacked.add(name)
    return found + [(base.CACHE, size) for folder, size in entries if not (folder / ".complete").exists()]


def short(parts):
    """The first disk that has too little, as (path, gigabytes left, gigabytes taken); None if all have enough."""
    disks = {}
    for path, size in parts:
        path.mkdir(parents=True, exist_ok=True)
        where, taken = disks.get(os.stat(path).st_dev, (path, 0))
        disks[os.stat(path).st_dev] = (where, taken + size)
    for path, taken in disks.values():
        left = shutil.disk_usage(path).free / 1e9
        if left < taken:
            return path, left, taken
    return None


def need(names, emulator=True, host=False):
    """Fails if what will be made does not fit."""
    parts = missing(names, emulator, host)
    found = short(parts)
    if found and cache.prune():
        found = short(parts)
    if found:
        path, left, taken = found
        raise base.Fail(f"{path} has {left:.1f} GB left, and this takes {taken:.1f}", base.MORE_SPACE)
