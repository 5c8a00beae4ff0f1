# SPDX-License-Identifier: GPL-2.0
"""The cache of what takes minutes to build, and what leaves it.

An entry is a folder KIND/NAME that is complete when it holds the file `.complete`;
an entry without it is never used. It is built in its final place, since kernel trees
contain their own path. An interrupted build is continued: each part is skipped if its
result exists.

Beside it is NAME.lock, which is never removed, since a lock of a file that is removed and
created again excludes nothing. A process that builds or removes the entry holds it
exclusively; processes that use the entry share it, until they end. Each use writes its time
to `.used`. An entry of a single checkout names it in `checkout`. A kernel's tree needs the
source that it was built from: using the one uses the other, and an entry whose source is
missing is not complete.

Before a new entry is built, unused entries are removed:

- those of a checkout that is gone, if not used for DAY: a checkout may
  be out of sight, on a disk that is not mounted or outside of a container;
- the one that the new one replaces: of the same checkout and kind;
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

# What holds entries; the build root's are whole when they have their name (scripts/root).
KINDS = ("crates", "initramfs", "kernel", "peers", "plots", "qemu", "source")
ROOTS = "root"

# Folders of / of which the build root shows its own instead of the host's (scripts/in-root).
HIDDEN = ("bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "usr", "var", "run")

# How many of what went are named.
NAMED = 3

# What is being removed has its name, and this.
GONE = ".gone"
HALF = "half removed"

# The locks of what this process uses, by entry.
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
    """Takes a lock in place of how it was held."""
    base.take(lock, how, holder)


def holder(lock):
    """What holds a lock that could not be taken; takes it shared meanwhile, if the holders share it."""
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
    """Leaves what is held to the program that takes the place of this one."""
    for lock in USED.values():
        os.set_inheritable(lock.fileno(), True)


def made_of(folder):
    """The entry that an entry is made of and does not work without; None if it is of none."""
    try:
        source = pathlib.Path(os.readlink(folder / "tree/source")).parent
    except OSError:
        return None
    sources = base.CACHE / "source"
    return sources / source.name if os.path.realpath(source.parent) == os.path.realpath(sources) else None


def whole(folder):
    """An entry, and what it is made of."""
    return [part for part in (folder, made_of(folder)) if part]


def complete(folder):
    return all((part / ".complete").exists() for part in whole(folder))


def held(folder):
    """Holds an entry and what it is made of; says whether it is complete."""
    for part in whole(folder):
        hold(part)
    return complete(folder)


def entry(folder, build, checkout=None):
    """The cache entry `folder`, made by `build(folder)` if it is not complete; for `checkout` only, if one is given."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Between the two locks another process may have built or removed it.
        while not held(folder):
            if folder not in USED:
                # Fails as it did before, and says why.
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
    # What it was made of may be gone.
    (folder / ".complete").unlink(missing_ok=True)
    if checkout:
        (folder / "checkout").write_text(f"{checkout}\n")
    build(folder)
    (folder / ".complete").touch()


def forget(folder):
    """Removes an entry, once it is not locked."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(lock_of(folder), "a+") as lock:
        take(lock, fcntl.LOCK_EX)
        if folder.exists():
            remove(folder)


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
    if checkout.parts[1:2] and checkout.parts[1] in HIDDEN and checkout.parts[:3] != ("/", "var", "tmp"):
        return False
    try:
        return not stat.S_ISDIR(checkout.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        # It is on a server that does not answer, or belongs to another user.
        return False


def last(folder):
    """When an entry was used last; what others are made of is used when they are."""
    times = [used(folder, folder / ".complete", folder / ".used")]
    if folder.parent.name == "source":
        times += [last(other) for other in (base.CACHE / "kernel").glob("*/") if made_of(other) == folder]
    return max(times)


def needless(folder, new, checkout, now):
    """Why an entry is unused; None if it may be in use."""
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
    """The bytes that a folder takes on the disk."""
    # What goes meanwhile is not counted, and said on stderr.
    said = subprocess.run(["du", "-s", "-B1", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    return int(said.split()[0]) if said else 0


def remove(folder):
    """Removes an entry, whose lock is held; gives its size, or None if not all of it went."""
    old = folder
    if not folder.name.endswith(GONE):
        old = folder.with_name(folder.name + GONE)
        discard(old)
        folder.rename(old)
    freed = size(old)
    discard(old)
    return None if os.path.lexists(old) else freed


def discard(folder):
    """Removes a folder, but nothing that is mounted in it."""
    subprocess.run(["rm", "-rf", "--one-file-system", folder], stderr=subprocess.DEVNULL)


def entries(now, new, checkout):
    """The folders of all kinds, as (folder, the locks of it, a function that returns why it is unused)."""
    for kind in (*KINDS, ROOTS):
        for folder in sorted((base.CACHE / kind).glob("*/")):
            lock = lock_of(folder.with_name(folder.name.removesuffix(GONE).removesuffix(".new")))
            if kind == ROOTS:
                # A process that makes one holds the lock of all.
                yield folder, [base.CACHE / ROOTS / "lock", lock], lambda folder: needless_root(folder, now)
            elif folder.name.endswith(GONE):
                yield folder, [lock], lambda _: HALF
            else:
                yield folder, [lock], lambda folder: needless(folder, new, checkout, now)


def prune(new=None, checkout=None):
    """Removes the entries that are unused once there is `new`, which is of `checkout`; returns them, and why."""
    went, freed = [], 0
    for folder, locks, why in entries(time.time(), new, checkout):
        # What cannot be looked at, locked or renamed stays.
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            if folder == new or not why(folder):
                continue
            ours = all(stack.enter_context(alone(lock)) for lock in locks)
            # It may have been taken into use before it was locked.
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
    """The same of a build root; scripts/in-root leaves the time of each use beside it."""
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
