# SPDX-License-Identifier: GPL-2.0
"""Checks that there is enough disk space for a command before it starts.

Existing results are not counted. If there is too little space, unused entries of the cache are
removed first, so that a long run does not fail half way.
"""

import os
import shutil

from qp import base
from qp import cache
from qp import kernel as kernels
from qp import qemu

# Final size of a checkout's own build/ in gigabytes, measured and rounded up: with the tools, the
# device's model and the modules, which all commands build, and with the host's tests in addition.
BUILD = 1.1
HOST = 3.4


def missing(names, emulator, host):
    """The results to be built, as (path, gigabytes): for kernels of these names, for QEMU, for the
    host's tests."""
    build = base.TOP / "build"
    there = cache.size(build) / 1e9 if build.is_dir() else 0
    own = max(0, BUILD * emulator + HOST * host - there)
    built = kernels.takes([name for name in names if not cache.complete(kernels.folder_of(name))])
    stages = zip(qemu.folders(), (qemu.PRISTINE, qemu.COPY)) if emulator else ()
    built += sum(size for folder, size in stages if not cache.complete(folder))
    return [(base.TOP, own), (base.CACHE, built)]


def short(parts):
    """The first disk with too little space, as (path, gigabytes left, gigabytes needed); None if
    all have enough."""
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
    """Raises a Fail if the results do not fit."""
    parts = missing(names, emulator, host)
    found = short(parts)
    if found and cache.prune():
        found = short(parts)
    if found:
        path, left, taken = found
        raise base.Fail(f"{path} has {left:.1f} GB left, and this takes {taken:.1f}", base.MORE_SPACE)
