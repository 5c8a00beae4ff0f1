# SPDX-License-Identifier: GPL-2.0
"""The cache of what takes minutes to build, and what leaves it.

An entry is a folder KIND/NAME that is complete when it holds the file `.complete`;
nobody reads one that does not. It is built where it will stay, as kernel trees
remember their own path, and an interrupted build goes on where it stopped:
each part of it is skipped when its result is there.

Beside it is NAME.lock, which is never removed, for a lock of a file that is
gone and made again keeps nobody out. Who builds or removes the entry holds it
alone; who uses it holds it together with others, until the process ends. Each
use leaves its time in `.used`. What is of one checkout only names it in
`checkout`.

Before a new entry is built, what nobody needs is removed:

- what is of a checkout that is gone;
- what the new one takes the place of: the same checkout's, of the same kind;
- what was not used for MONTH, and what was begun and left, for DAY.

Not what somebody has the lock of, whatever else is true of it. An entry is
renamed before it is removed, so that half of one is never taken for a build
to go on with.
"""

import contextlib
import fcntl
import pathlib
import subprocess
import time

from qp import base

DAY = 24 * 3600
MONTH = 30 * DAY

# What holds entries; the build root's are whole when they have their name (scripts/root).
KINDS = ("initramfs", "kernel", "peers", "plots", "qemu", "source")
ROOTS = "root"

# Folders of / of which the build root shows its own instead of the host's (scripts/in-root).
HIDDEN = ("bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "usr", "var", "run")

# How many of what went are named.
NAMED = 3

# The locks of what this process uses, by entry.
USED = {}


def lock_of(folder):
    return folder.with_name(folder.name + ".lock")


@contextlib.contextmanager
def alone(path):
    """Holds a lock file alone if nobody has it; says whether it does."""
    with open(path, "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False


def take(lock, how):
    """Takes a lock in place of how it was held; says so when somebody else has it."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        base.say(f"waiting for another build ({lock.name})")
        fcntl.flock(lock, how)


def entry(folder, build, checkout=None):
    """The cache entry `folder`, made by `build(folder)` if it is not complete; for `checkout` only, if one is given."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder in USED:
        USED.pop(folder).close()
    lock = open(lock_of(folder), "a")
    try:
        take(lock, fcntl.LOCK_SH)
        # Between the one lock and the other somebody else may have made it, or removed it.
        while not (folder / ".complete").exists():
            take(lock, fcntl.LOCK_EX)
            if not (folder / ".complete").exists():
                make(folder, build, checkout)
            take(lock, fcntl.LOCK_SH)
    except BaseException:
        lock.close()
        raise
    USED[folder] = lock
    (folder / ".used").touch()
    return folder


def make(folder, build, checkout):
    prune(folder, checkout)
    folder.mkdir(exist_ok=True)
    if checkout:
        (folder / "checkout").write_text(f"{checkout}\n")
    build(folder)
    (folder / ".complete").touch()


def used(*paths):
    """When the latest of some files was written."""
    times = [0.0]
    for path in paths:
        with contextlib.suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)


def of(folder):
    """The checkout that an entry is of, if it is of one."""
    with contextlib.suppress(OSError):
        return pathlib.Path((folder / "checkout").read_text().rstrip("\n"))
    return None


def gone(checkout):
    """Is there no such checkout? Where one cannot look, there may be."""
    hidden = checkout.parts[1:2] and checkout.parts[1] in HIDDEN and checkout.parts[:3] != ("/", "var", "tmp")
    return not hidden and not checkout.is_dir()


def needless(folder, new, checkout, now):
    """Why nobody needs an entry; None if somebody may."""
    owner = of(folder)
    if owner and gone(owner):
        return f"its checkout {owner} is gone"
    if owner and owner == checkout and folder.parent == new.parent:
        return "superseded"
    idle = now - used(folder, folder / ".complete", folder / ".used")
    if not (folder / ".complete").exists():
        return f"begun, and left for {idle / DAY:.0f} days" if idle > DAY else None
    return f"not used for {idle / DAY:.0f} days" if idle > MONTH else None


def size(folder):
    """The bytes that a folder takes on the disk."""
    # What goes meanwhile is not counted, and said on stderr.
    said = subprocess.run(["du", "-s", "-B1", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return int(said.split()[0]) if said else 0


def remove(folder):
    """Removes an entry, whose lock is held; gives its size."""
    old = folder.with_name(folder.name + ".gone")
    if folder != old:
        discard(old)
        folder.rename(old)
    freed = size(old)
    discard(old)
    return freed


def discard(folder):
    """Removes a folder, and nothing that somebody has mounted in it."""
    subprocess.run(["rm", "-rf", "--one-file-system", folder], stderr=subprocess.DEVNULL)


def entries():
    """The folders of all kinds, with the lock of each."""
    for kind in KINDS:
        for folder in sorted((base.CACHE / kind).glob("*/")):
            yield folder, lock_of(folder.with_name(folder.name.removesuffix(".gone")))


def prune(new=None, checkout=None):
    """Removes what nobody needs once there is `new`, which is of `checkout`; gives what went, and why."""
    now, went, freed = time.time(), [], 0

    def consider(folder, lock, why):
        nonlocal freed
        if folder == new or not why():
            return
        with alone(lock) as ours:
            # It may have been taken into use before it was locked.
            reason = ours and folder.is_dir() and why()
            if reason:
                freed += remove(folder)
                went.append(f"{folder.relative_to(base.CACHE)} ({reason})")

    for folder, lock in entries():
        if folder.name.endswith(".gone"):
            consider(folder, lock, lambda: "half removed")
        else:
            consider(folder, lock, lambda: needless(folder, new, checkout, now))
    for folder in sorted((base.CACHE / ROOTS).glob("*/")):
        consider(folder, base.CACHE / ROOTS / "lock", lambda: needless_root(folder, now))
    if went:
        more = f" and {len(went) - NAMED} more" if len(went) > NAMED else ""
        base.say(f"freed {freed / 1e9:.1f} GB of the cache, which nobody needs: {', '.join(went[:NAMED])}{more}")
    return went


def needless_root(folder, now):
    """The same of a build root; scripts/in-root leaves the time of each use beside it."""
    idle = now - used(folder, folder.with_name(folder.name + ".used"))
    if folder.name.endswith(".new"):
        return "begun, and left" if idle > DAY else None
    return f"not used for {idle / DAY:.0f} days" if idle > MONTH else None


def run(_argv):
    prune()
    return 0


if __name__ == "__main__":
    base.main(run)
