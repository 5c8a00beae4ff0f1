# SPDX-License-Identifier: GPL-2.0
"""Is there room for what a command is going to make? Asked before it begins, not when the disk is full.

What is there already is not counted. So that a long run does not end half way,
unused entries of the cache are removed first where there is too little.
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


def missing(names, emulator, host):
    """What will be made, as (path, gigabytes): for kernels of these names, for QEMU, for the host's tests."""
    build = base.TOP / "build"
    there = cache.size(build) / 1e9 if build.is_dir() else 0
    own = max(0, BUILD * emulator + HOST * host - there)
    built = kernels.takes([name for name in names if not cache.complete(kernels.folder_of(name))])
    stages = zip(qemu.folders(), (qemu.PRISTINE, qemu.COPY)) if emulator else ()
    built += sum(size for folder, size in stages if not cache.complete(folder))
    return [(base.TOP, own), (base.CACHE, built)]


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
