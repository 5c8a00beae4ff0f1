# SPDX-License-Identifier: GPL-2.0
"""Checks that there is enough disk space for a command before it starts, so that a long run does not
fail half way. Existing results are not counted."""

from qp import base, cache, kernel as kernels, plugin, qemu

# Final size of a checkout's own build/ in gigabytes, measured and rounded up: with the tools, the
# device's model and the modules, which all commands build, and with the host's tests in addition.
BUILD = 1.1
HOST = 3.4
# The layer `tree` writes beside the debug kernel's tree what it builds anew: at most all of it.
TREE = 1.2


def need(names, emulators=None, host=False, tree=False):
    """Raises a Fail if what is to be built does not fit: kernels and emulators of these names, by
    default the emulator that the environment chooses, the host's tests, the driver in a kernel's
    tree."""
    emulators = {qemu.choice()} if emulators is None else emulators
    there = cache.size(base.TOP / "build") / 1e9
    entries = [(kernels.folder_of(name), kernels.SIZE[name]) for name in names]
    entries += [(plugin.folder(name), plugin.SIZE) for name in sorted(emulators - {qemu.PATCHED})]
    if qemu.PATCHED in emulators:
        entries += zip(qemu.folders(), (qemu.PRISTINE, qemu.COPY))
    cache.need_space(
        (base.TOP, max(0, BUILD * bool(emulators) + HOST * host + TREE * tree - there)),
        *((base.CACHE, size) for folder, size in entries if not cache.complete(folder)),
    )
