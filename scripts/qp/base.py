# SPDX-License-Identifier: GPL-2.0
"""Steps, failures and paths, for all other modules."""

import argparse
import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time

TOP = pathlib.Path(os.environ.get("QPAIR_TOP") or pathlib.Path(__file__).resolve().parents[2])
# By the XDG standard, a relative XDG_CACHE_HOME is ignored (scripts/lib.sh does the same).
XDG = os.environ.get("XDG_CACHE_HOME", "")
CACHE = pathlib.Path(
    os.environ.get("QPAIR_CACHE") or pathlib.Path(XDG if XDG.startswith("/") else pathlib.Path.home() / ".cache") / "qpair"
)
SCRIPTS = TOP / "scripts"
LOGS = pathlib.Path(os.environ.get("QPAIR_LOGS") or TOP / "build/log")
JOBS = str(len(os.sched_getaffinity(0)))

# The remedy for a full disk.
MORE_SPACE = "free some space (scripts/cache lists its entries, make clean removes this checkout's build), or set XDG_CACHE_HOME to a larger disk"

IN_THE_WAY = "a file is in the place of a directory: remove or rename it"
NOT_ALLOWED = "run as its owner, or change its owner or its mode"
# Remedies for errors of the system.
REMEDIES = {
    errno.ENOTDIR: IN_THE_WAY,
    errno.EEXIST: IN_THE_WAY,
    errno.EACCES: NOT_ALLOWED,
    errno.EPERM: NOT_ALLOWED,
    errno.EROFS: "use a checkout, and a cache (XDG_CACHE_HOME), on a writable file system",
    errno.ENOSPC: MORE_SPACE,
    errno.EDQUOT: MORE_SPACE,
}

# The exit status of a failure of the scripts, as distinct from a guest's command.
OWN_FAILURE = 125

TAIL_LINES = 25
# Columns of a report where there is no terminal, and at least.
WIDE, NARROW = 160, 30
REPORT_EVERY = 20.0
# Seconds that a process has to end after SIGTERM.
PATIENCE = 5.0
# Seconds between two attempts to take a lock.
LOCK_LOOK = 0.1
# Seconds after which a step that is usually quick reports that it is running.
QUIET_FOR = 3.0

# When this process last printed something, on the clock.
SAID = time.monotonic()
# Sequences that move a terminal's cursor, or change its colours.
CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")

# Causes of a failed download that another one may replace.
LACKS = "the archive lacks a package"
GONE = "the archive lacks a version of a package"

# Patterns in the log of a failed step, their cause, and the remedy.
CAUSES = [
    (
        r"no space left on device",
        "the disk is full",
        MORE_SPACE,
    ),
    (
        r"unable to locate package|has no installation candidate|can't find a source to download",
        LACKS,
        "use a complete mirror of Debian 13 with its backports in /etc/apt",
    ),
    (
        r"\b404  not found",
        GONE,
        "run again, which reads the archive's lists anew; if it fails again, use a complete mirror of Debian 13 with its backports in /etc/apt",
    ),
    (
        r"temporary failure resolving|could not (resolve|connect)|unable to connect"
        r"|connection (timed out|refused|reset)|failed to fetch|network is unreachable"
        r"|hash sum mismatch|unexpected size|spurious network error|failed to download",
        "a download broke off",
        "check the network and the proxy settings, then run again: completed downloads are kept",
    ),
    (
        r"cannot allocate memory|out of memory|killed signal terminated program|signal: 9",
        "the machine ran out of memory",
        "give it 4 GB, and run again",
    ),
    (
        r"command not found|: not found$|no such command",
        "a program is missing in the build root",
        "add its package to scripts/packages",
    ),
]


# The steps so far: name, seconds, and seconds of processor time.
TIMES = []


class Fail(Exception):
    """A failure with a cause, and perhaps a remedy, for the user. `known` is the one of CAUSES that a
    log has shown, or None."""

    def __init__(self, cause, remedy=None, known=None):
        super().__init__(cause)
        self.remedy = remedy
        self.known = known


# The signals that have ended the program.
INTERRUPTED = []


def end_by(number, _frame):
    """Ends the program by its first signal. timeout(1) signals its whole group, and make its command
    once more: the second one must not end the end of the child processes."""
    INTERRUPTED.append(number)
    if len(INTERRUPTED) == 1:
        raise KeyboardInterrupt


def say(text):
    print(f"qpair: {text}", file=sys.stderr, flush=True)
    has_said()


def has_said():
    """Notes that this process has just printed something."""
    global SAID
    SAID = time.monotonic()


def report(text):
    """Says how far a step is, in one line of the terminal, which ends with a word."""
    columns = WIDE
    with contextlib.suppress(OSError):
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or WIDE
    say(textwrap.shorten(text, max(columns - len("qpair: "), NARROW), placeholder=" ...", break_on_hyphens=False))


def report_progress(name, seconds, log):
    """Reports how long a step has run, and the last line of its log, if it has one."""
    line = last_line(log).removeprefix("qpair: ") if log else ""
    report(f"{name}: {seconds:.0f} s{', ' if line else ''}{line}")


def say_failure(failure):
    say(f"error: {failure}")
    if failure.remedy:
        say(f"remedy: {failure.remedy}")


def no_words(argv, name, text):
    """Prints the help of a command without options, or refuses its words."""
    argparse.ArgumentParser(prog=f"scripts/py {name}", description=text, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(argv)


def main(entry):
    """Runs `entry(argv)` as the whole program, and prints failures as messages.

    SIGTERM, and SIGHUP of a closed terminal, end it as Ctrl-C does: its child processes are ended,
    and its temporary files are removed.
    """
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        # In the background of a shell SIGINT is ignored.
        if (number, signal.getsignal(number)) != (signal.SIGINT, signal.SIG_IGN):
            signal.signal(number, end_by)
    try:
        status = entry(sys.argv[1:])
    except Fail as failure:
        say_failure(failure)
        status = OWN_FAILURE
    except KeyboardInterrupt:
        say("interrupted")
        status = 128 + INTERRUPTED[0]
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 128 + signal.SIGPIPE
    except OSError as error:
        say(f"error: {f'{error.filename}: ' if error.filename else ''}{error.strerror or error}")
        if error.errno in REMEDIES:
            say(f"remedy: {REMEDIES[error.errno]}")
        status = OWN_FAILURE
    finally:
        # Including a process that was being started when the signal arrived.
        end(family(os.getpid())[1:])
    sys.exit(status or 0)


def explain(text):
    """The likely cause of a failure and its remedy, from the end of a log."""
    for pattern, cause, remedy in CAUSES:
        if re.search(pattern, text, re.IGNORECASE | re.MULTILINE):
            return cause, remedy
    return None, None


def last_line(path):
    """The last line of a log with something to print, without what a terminal obeys."""
    with contextlib.suppress(OSError), open(path, "rb") as log:
        log.seek(max(0, os.path.getsize(path) - 4000))
        lines = re.split(r"[\r\n]", CONTROLS.sub("", log.read().decode(errors="replace")))
        for line in reversed(lines):
            if line := "".join(filter(str.isprintable, line)).strip():
                return line
    return ""


def show_end(what, log):
    """Prints the last lines of a log, and returns them."""
    tail = "\n".join(pathlib.Path(log).read_text(errors="replace").splitlines()[-TAIL_LINES:])
    say(f"{what}; the end of {log}:")
    print(tail, file=sys.stderr, flush=True)
    return tail


def family(pid):
    """A process and all its descendants; parents come first."""
    parents = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        # The process may be gone. Its name, in parentheses, may have any characters.
        with contextlib.suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def end(pids, patience=PATIENCE):
    """Ends processes by SIGTERM, or by SIGKILL if they do not end."""
    # By descriptors: the number of an ended process may be reused.
    alive = set()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            alive.add(os.pidfd_open(pid))
    ends = select.poll()
    for one in alive:
        ends.register(one, select.POLLIN)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for one in alive:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(one, number)
        until = time.monotonic() + patience
        while alive and (left := until - time.monotonic()) > 0:
            for one, _ in ends.poll(left * 1000):
                ends.unregister(one)
                os.close(one)
                alive.remove(one)


class Process(subprocess.Popen):
    """A process; `wait` adds the processor time of it and of its descendants to that of the
    thread."""

    def wait(self, timeout=None):
        if self.returncode is None:
            with open(os.pidfd_open(self.pid)) as end_of_it:
                ends = select.poll()
                ends.register(end_of_it, select.POLLIN)
                if not ends.poll(None if timeout is None else timeout * 1000):
                    raise subprocess.TimeoutExpired(self.args, timeout)
            # Until it is reaped, its entry has its times and those of its children: proc(5).
            fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            add_work(sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"))
        return super().wait()


WORK = threading.local()


def worked():
    """Seconds of processor time of all processes that this thread has started and waited for."""
    return getattr(WORK, "seconds", 0.0)


def add_work(seconds):
    WORK.seconds = worked() + seconds


@contextlib.contextmanager
def started(command, **options):
    """Starts a process, and ends it and its descendants when the block is left in any way."""
    try:
        process = Process([str(word) for word in command], **{"stdin": subprocess.DEVNULL, **options})
    except FileNotFoundError as error:
        # It may also be the working directory.
        if error.filename != str(command[0]):
            raise
        raise Fail(f"there is no program {error.filename}", "add its package to scripts/packages") from None
    try:
        yield process
    finally:
        if process.poll() is None:
            end(family(process.pid))
        process.wait()


def step(name, command, log=None, cwd=None, env=None, quiet=False, stdout=None, remedy=None):
    """Runs a command with its output in a log, or that of stdout in a file of its own.

    Prints a line when the command starts, every 20 seconds while it runs, and when it is done;
    prints the end of the log when it fails. With `quiet` the first line comes after three seconds.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    log = log or LOGS / re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
    start, before = time.monotonic(), worked()
    if not quiet:
        say(f"{name} ...")
    with (
        open(log, "wb") as out,
        started(command, stdout=stdout or out, stderr=out, cwd=cwd, env={**os.environ, **(env or {})}) as process,
    ):
        patience = QUIET_FOR if quiet else REPORT_EVERY
        while True:
            try:
                status = process.wait(timeout=patience)
                break
            except subprocess.TimeoutExpired:
                if patience == REPORT_EVERY:
                    report_progress(name, time.monotonic() - start, log)
                else:
                    say(f"{name} ...")
                patience = REPORT_EVERY
    took = time.monotonic() - start
    TIMES.append((name, took, worked() - before))
    if status != 0:
        cause, better = explain(show_end(f"{name}: failed ({status})", log))
        raise Fail(f"{name} failed" + (f": {cause}" if cause else ""), better or remedy, cause)
    if not quiet or took > QUIET_FOR:
        say(f"{name}: done in {took:.0f} s")


def known(what, asked, names):
    """Raises a Fail if a requested name does not exist."""
    for name in asked:
        if name not in names:
            raise Fail(f"no {what} {name}", f"there are {', '.join(names)}")


def output(*command, cwd=None):
    """The standard output of a command that must succeed."""
    result = subprocess.run(
        [str(word) for word in command], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True
    )
    if result.returncode != 0:
        text = result.stderr.decode(errors="replace").strip()
        cause, remedy = explain(text)
        raise Fail(f"{command[0]}: {cause or text or result.returncode}", remedy, cause)
    return result.stdout.decode(errors="replace")


def digest(*parts):
    """A short hash of texts and of files' contents, in order."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, pathlib.Path) else str(part).encode()
        total.update(hashlib.sha256(data).digest())
    return total.hexdigest()[:16]


@functools.cache
def toolchain():
    """The compilers of the root: their output is built again when they change."""
    tools = ["rustc", "gcc", "clang", "bindgen", "pahole"]
    return digest(*(output(tool, "--version") for tool in tools))


def take(lock, how):
    """Takes the lock of an open file; prints every 20 seconds that it waits."""
    start, said = time.monotonic(), -1
    while True:
        try:
            return fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            waited = time.monotonic() - start
        if waited // REPORT_EVERY > said:
            said = waited // REPORT_EVERY
            say(f"waiting for another command ({lock.name})" + (f": {waited:.0f} s" if said else ""))
        time.sleep(LOCK_LOOK)


@contextlib.contextmanager
def locked(path):
    """Holds a lock file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as lock:
        take(lock, fcntl.LOCK_EX)
        yield
