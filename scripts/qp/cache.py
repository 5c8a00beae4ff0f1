# SPDX-License-Identifier: GPL-2.0
"""The cache of slow builds, and the removal of its entries.

An entry is a directory KIND/NAME that is complete when it has the file `.complete`; an entry
without this file is never used. It is built in its final place, since kernel trees contain their
own path. An interrupted build is continued: each part is skipped if its result exists.

Beside the entry is NAME.lock, which is never removed, since a lock of a file that is removed and
created again excludes nothing. A process that builds or removes the entry holds it exclusively;
processes that use the entry share it, until they end. Each use writes its time to `.used`. An entry
of a single checkout names it in `checkout`. A kernel's tree needs the source that it was built
from: using the one uses the other, and an entry whose source is missing is not complete.

Before a new entry is built, unused entries are removed:

- those of a removed checkout, if not used for DAY: a checkout may only be unreachable, on a disk
  that is not mounted or outside of a container; - the one that the new one replaces: of the same
  checkout and kind;
- those not used for MONTH, and incomplete ones not used for DAY.

A locked entry is never removed. An entry is renamed before it is removed, so that a partly
removed one is never taken for an interrupted build. An entry that cannot be checked or
removed stays, and does not stop a build. A user without write access to the cache can use
complete entries too.
"""

import contextlib
import fcntl
import os
import pathlib
import stat
import subprocess
import time

from qp import base

DAY = 24 * 3600
MONTH = 30 * DAY

# The kinds of entries; a build root is complete when it has its final name (scripts/root).
KINDS = ("crates", "initramfs", "kernel", "peers", "plots", "programs", "qemu", "rdma-core", "source")
ROOTS = "root"

# Directories of / that the build root has for itself, instead of the host's (scripts/in-root).
HIDDEN = ("bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "usr", "var", "run")

# Maximum number of removed entries that are listed.
NAMED = 3

# Suffix of the name of an entry that is being removed.
GONE = ".gone"
HALF = "half removed"

# The locks of the entries that this process uses, by entry.
USED = {}


def lock_of(folder):
    return folder.with_name(folder.name + ".lock")


@contextlib.contextmanager
def alone(path):
    """Tries to take a lock file exclusively; returns whether it did."""
    with open(path, "a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = True
        except BlockingIOError:
            ours = False
        yield ours


def take(lock, how):
    """Changes the mode in which a lock is held."""
    base.take(lock, how, holder)


def holder(lock):
    """Describes the holder of a lock that could not be taken; takes it shared meanwhile, if the
    holders share it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "another build"
    return "its users to end"


def hold(folder):
    """Holds an entry together with others, until the process ends."""
    if folder in USED:
        return
    for mode in ("a+", "r"):
        # A cache of another user may be read-only.
        with contextlib.suppress(OSError):
            lock = open(lock_of(folder), mode)
            break
    else:
        return
    take(lock, fcntl.LOCK_SH)
    USED[folder] = lock


def bequeath():
    """Passes the held locks to the program that replaces this one."""
    for lock in USED.values():
        os.set_inheritable(lock.fileno(), True)


def made_of(folder):
    """The entry that an entry was built from and needs; None if there is none."""
    try:
        source = pathlib.Path(os.readlink(folder / "tree/source")).parent
    except OSError:
        return None
    sources = base.CACHE / "source"
    return sources / source.name if os.path.realpath(source.parent) == os.path.realpath(sources) else None


def whole(folder):
    """An entry, and the one that it was built from."""
    return [part for part in (folder, made_of(folder)) if part]


def complete(folder):
    return all((part / ".complete").exists() for part in whole(folder))


def held(folder):
    """Holds an entry and the one that it was built from; returns whether it is complete."""
    for part in whole(folder):
        hold(part)
    return complete(folder)


def entry(folder, build, checkout=None):
    """The cache entry `folder`, built by `build(folder)` if it is not complete; for `checkout`
    only, if given."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Between the two locks another process may have built or removed it.
        while not held(folder):
            if folder not in USED:
                # Fails as before, with the reason.
                USED[folder] = open(lock_of(folder), "a+")
            take(USED[folder], fcntl.LOCK_EX)
            if not complete(folder):
                make(folder, build, checkout)
            take(USED[folder], fcntl.LOCK_SH)
    except BaseException:
        if folder in USED:
            USED.pop(folder).close()
        raise
    for part in whole(folder):
        with contextlib.suppress(OSError):
            (part / ".used").touch()
    return folder


def make(folder, build, checkout):
    with contextlib.suppress(OSError):
        prune(folder, checkout)
    folder.mkdir(exist_ok=True)
    # The entry that it was built from may be gone.
    (folder / ".complete").unlink(missing_ok=True)
    if checkout:
        (folder / "checkout").write_text(f"{checkout}\n")
    build(folder)
    (folder / ".complete").touch()


def forget(folder):
    """Removes an entry, when it is no longer locked."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(lock_of(folder), "a+") as lock:
        take(lock, fcntl.LOCK_EX)
        if folder.exists():
            remove(folder)


def used(*paths):
    """The modification time of the newest of some files."""
    times = [0.0]
    for path in paths:
        with contextlib.suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)


def of(folder):
    """The checkout that an entry belongs to, if any."""
    with contextlib.suppress(OSError):
        return pathlib.Path((folder / "checkout").read_text().rstrip("\n"))
    return None


def gone(checkout):
    """Whether a checkout does not exist; False if this cannot be determined."""
    if checkout.parts[1:2] and checkout.parts[1] in HIDDEN and checkout.parts[:3] != ("/", "var", "tmp"):
        return False
    try:
        return not stat.S_ISDIR(checkout.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        # The checkout is on a server that does not respond, or belongs to another user.
        return False


def last(folder):
    """The time of an entry's last use; using an entry also uses the one that it was built from."""
    times = [used(folder, folder / ".complete", folder / ".used")]
    if folder.parent.name == "source":
        times += [last(other) for other in (base.CACHE / "kernel").glob("*/") if made_of(other) == folder]
    return max(times)


def needless(folder, new, checkout, now):
    """The reason why an entry is unused; None if it may be in use."""
    owner = of(folder)
    idle = now - last(folder)
    if owner and idle > DAY and gone(owner):
        return f"its checkout {owner} is gone"
    if owner and owner == checkout and folder.parent == new.parent:
        return "superseded"
    if not (folder / ".complete").exists():
        return f"begun, and left for {idle / DAY:.0f} days" if idle > DAY else None
    return f"not used for {idle / DAY:.0f} days" if idle > MONTH else None


def size(folder):
    """The bytes that a directory takes on the disk."""
    # du does not count files that are removed meanwhile, and reports them on stderr.
    said = subprocess.run(["du", "-s", "-B1", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return int(said.split()[0]) if said else 0


def remove(folder):
    """Removes an entry, whose lock is held; returns its size, or None if a part of it remains."""
    old = folder
    if not folder.name.endswith(GONE):
        old = folder.with_name(folder.name + GONE)
        discard(old)
        folder.rename(old)
    freed = size(old)
    discard(old)
    return None if os.path.lexists(old) else freed


def discard(folder):
    """Removes a directory, except mounts in it."""
    subprocess.run(["rm", "-rf", "--one-file-system", folder], stderr=subprocess.DEVNULL)


def entries(now, new, checkout):
    """The entries of all kinds, as (directory, its locks, a function that returns why it is
    unused)."""
    for kind in (*KINDS, ROOTS):
        for folder in sorted((base.CACHE / kind).glob("*/")):
            lock = lock_of(folder.with_name(folder.name.removesuffix(GONE).removesuffix(".new")))
            if kind == ROOTS:
                # A process that creates a root holds the lock of all roots.
                yield folder, [base.CACHE / ROOTS / "lock", lock], lambda folder: needless_root(folder, now)
            elif folder.name.endswith(GONE):
                yield folder, [lock], lambda _: HALF
            else:
                yield folder, [lock], lambda folder: needless(folder, new, checkout, now)


def prune(new=None, checkout=None):
    """Removes the entries that are unused when `new`, of `checkout`, exists; returns them, with the
    reasons."""
    went, freed = [], 0
    for folder, locks, why in entries(time.time(), new, checkout):
        # An entry that cannot be checked, locked or renamed stays.
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            if folder == new or not why(folder):
                continue
            ours = all(stack.enter_context(alone(lock)) for lock in locks)
            # A process may have used it before it was locked.
            reason = ours and folder.is_dir() and why(folder)
            took = remove(folder) if reason else None
            if took is not None:
                freed += took
                went.append(f"{folder.relative_to(base.CACHE)} ({reason})")
    if went:
        more = f" and {len(went) - NAMED} more" if len(went) > NAMED else ""
        base.say(f"freed {freed / 1e9:.1f} GB of unused entries of the cache: {', '.join(went[:NAMED])}{more}")
    return went


def needless_root(folder, now):
    """The same for a build root; scripts/in-root records the time of each use beside it."""
    if folder.name.endswith(GONE):
        return HALF
    idle = now - used(folder, folder.with_name(folder.name + ".used"))
    if folder.name.endswith(".new"):
        return "begun, and left" if idle > DAY else None
    return f"not used for {idle / DAY:.0f} days" if idle > MONTH else None


def run(_argv):
    prune()
    return 0


if __name__ == "__main__":
    base.main(run)
