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

- those of a removed checkout, if not used for DAY;
- the one that the new one replaces: of the same checkout and kind;
- those not used for MONTH, and incomplete ones not used for DAY.

The build root (scripts/root) is an entry whose final name says that it is complete; its last use is
the time of NAME.used, and a process that creates one holds the lock of all.

A locked entry is never removed. An entry is renamed before it is removed, so that a partly
removed one is never taken for an interrupted build. An entry that cannot be checked or
removed stays, and does not stop a build. A user without write access to the cache can use
complete entries too.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import time

from qp import base

DAY = 24 * 3600
MONTH = 30 * DAY

# The build root, a kind of entries; and what is no entry.
ROOT = "root"
OTHERS = ("apt", "download", "log")

# Suffix of the name of an entry that is being removed.
GONE = ".gone"

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
    base.take(lock, fcntl.LOCK_SH)
    # A program that replaces this one holds it too.
    os.set_inheritable(lock.fileno(), True)
    USED[folder] = lock


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
        with contextlib.suppress(OSError):
            (part / ".used").touch()
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
            base.take(USED[folder], fcntl.LOCK_EX)
            if not complete(folder):
                make(folder, build, checkout)
            base.take(USED[folder], fcntl.LOCK_SH)
    except BaseException:
        if folder in USED:
            USED.pop(folder).close()
        raise
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
        base.take(lock, fcntl.LOCK_EX)
        if folder.exists():
            remove(folder)


def replaced(folder):
    """Removes an entry that another one replaces, if no other process uses it."""
    if folder in USED:
        USED.pop(folder).close()
    with alone(lock_of(folder)) as ours:
        if ours and folder.exists():
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


def last(folder):
    """The time of an entry's last use; using an entry also uses the one that it was built from."""
    times = [used(folder, folder / ".complete", folder / ".used", folder.with_name(f"{folder.name}.used"))]
    if folder.parent.name == "source":
        times += [last(other) for other in (base.CACHE / "kernel").glob("*/") if made_of(other) == folder]
    return max(times)


def complete_alone(folder):
    """Whether an entry is complete, whatever it was built from."""
    return not folder.name.endswith(".new") if folder.parent.name == ROOT else (folder / ".complete").exists()


def needless(folder, new, checkout, now):
    """The reason why an entry is unused; None if it may be in use."""
    if folder.name.endswith(GONE):
        return "half removed"
    owner = of(folder)
    idle = now - last(folder)
    if owner and idle > DAY and not owner.is_dir():
        return f"its checkout {owner} is gone"
    if owner and owner == checkout and folder.parent == new.parent:
        return "superseded"
    if not complete_alone(folder):
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


def locks_of(folder):
    """The locks under which an entry may be removed."""
    own = lock_of(folder.with_name(folder.name.removesuffix(GONE).removesuffix(".new")))
    return [base.CACHE / ROOT / "lock", own] if folder.parent.name == ROOT else [own]


def prune(new=None, checkout=None):
    """Removes the entries that are unused when `new`, of `checkout`, exists; returns them, with the
    reasons."""
    went, freed, now = [], 0, time.time()
    for folder in sorted(folder for folder in base.CACHE.glob("*/*/") if folder.parent.name not in OTHERS):
        # An entry that cannot be checked, locked or renamed stays.
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            if folder == new or not needless(folder, new, checkout, now):
                continue
            ours = all(stack.enter_context(alone(lock)) for lock in locks_of(folder))
            # A process may have used it before it was locked.
            reason = ours and folder.is_dir() and needless(folder, new, checkout, now)
            took = remove(folder) if reason else None
            if took is not None:
                freed += took
                went.append(f"{folder.relative_to(base.CACHE)} ({reason})")
    if went:
        base.say(f"freed {freed / 1e9:.1f} GB of unused entries of the cache: {', '.join(went)}")
    return went


def short(sizes):
    """The disks with too little space: (path, gigabytes left, gigabytes needed)."""
    disks = {}
    for path, size in sizes:
        path.mkdir(parents=True, exist_ok=True)
        where, taken = disks.get(path.stat().st_dev, (path, 0))
        disks[path.stat().st_dev] = (where, taken + size)
    left = ((path, shutil.disk_usage(path).free / 1e9, taken) for path, taken in disks.values())
    return [disk for disk in left if disk[1] < disk[2]]


def need_space(*sizes):
    """Raises a Fail if results, as (path, gigabytes), do not fit. If so, removes unused entries first."""
    found = short(sizes)
    if found and prune():
        found = short(sizes)
    for path, left, taken in found:
        raise base.Fail(f"{path} has {left:.1f} GB left, and this takes {taken:.1f}", base.MORE_SPACE)


def run(argv):
    base.no_words(argv, "cache", f"Remove unused entries of the cache.\n\n{__doc__}")
    prune()
    return 0


if __name__ == "__main__":
    base.main(run)
