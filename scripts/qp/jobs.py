# SPDX-License-Identifier: GPL-2.0
"""Runs the jobs of scripts/test side by side, and keeps their times and the logs of those that fail."""

import collections.abc
import concurrent.futures
import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time
import traceback

from qp import base, ktap

# Jobs at a time: a guest has two CPUs and up to 2 GB.
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
CORES = int(base.JOBS)
GUESTS = max(1, min(max(CORES // 2, 2), CORES, MEMORY // 3))

RESULTS = base.TOP / "build/test.json"
LOGS = base.TOP / "build/log/test"
# The logs of failures remain until there are more of them, or .ci/run begins.
FAILED = base.TOP / "build/log/failed"
MOST_FAILED = 200

# How many of the dearest jobs are listed.
DEAREST = 12

# Seconds without output after which the jobs that run are reported.
REPORT_AFTER = 60.0
# Seconds between two checks of that.
POLL = 1.0

# Seconds after which a failure is one: a signal may end a job's process before this process takes its
# own.
SETTLED = 0.5

# The logs of the job that runs in a thread.
LOGGED = threading.local()


def tell(text):
    print(text, flush=True)
    base.has_said()


def log_of(name):
    """The log of a part of the job that runs in this thread."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / (re.sub(r"[^\w.-]+", "-", name) + ".log")
    # Other commands have logs without a job.
    if path not in (paths := getattr(LOGGED, "paths", [])):
        paths.append(path)
    return path


def show_end(path, lines=60):
    text = path.read_text(errors="replace").splitlines()
    if len(text) > lines:
        tell(f"[... all of it: {path}]")
    tell("\n".join(text[-lines:]))


def program(name, words, timeout, **variables):
    """Runs a program with environment variables; returns its status, 124 after the timeout, its output,
    and the file with that."""
    log, env = log_of(name), {**os.environ, **variables}
    with open(log, "wb") as out, base.started(words, env=env, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            status = process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            status = 124
    return status, log.read_text(errors="replace"), log


def guest(name, options, command, timeout):
    """Runs a command in a guest; returns its status, its output, and the file with all of it. The
    kernel's log is in another file."""
    log, console = log_of(name), log_of(f"{name}.kernel")
    words = [base.SCRIPTS / "guest", *options, "--log", console, "--timeout", timeout, "--", *command]
    with open(log, "wb") as out, base.started(words, stdout=subprocess.PIPE, stderr=out) as process:
        text = process.stdout.read()
        status = process.wait()
        out.seek(0, os.SEEK_END)
        out.write(text)
    return status, text.decode(errors="replace"), log


def keep(path):
    """Stores the log of a failed job; returns where."""
    names = (f"{time.strftime('%m%d-%H%M%S')}-{path.stem}{more}{path.suffix}" for more in ("", *(f"-{n}" for n in range(2, 1000))))
    FAILED.mkdir(parents=True, exist_ok=True)
    there = next(FAILED / name for name in names if not (FAILED / name).exists())
    shutil.copyfile(path, there)
    return there


def begin():
    """Removes the logs of the last run, and the oldest ones of failures."""
    shutil.rmtree(LOGS, ignore_errors=True)
    FAILED.mkdir(parents=True, exist_ok=True)
    for old in sorted(FAILED.iterdir(), key=lambda it: it.stat().st_mtime_ns)[:-MOST_FAILED]:
        old.unlink()


@dataclasses.dataclass(eq=False)
class Job:
    """A part of a layer that runs by itself."""

    layer: str
    name: str
    # Returns the count; the argument is the number of jobs that share the machine.
    call: collections.abc.Callable[[int], ktap.Count]
    # In seconds. Long jobs start first.
    timeout: int = 600
    # Runs without other jobs.
    alone: bool = False
    # The kernel that it boots, if any.
    kernel: str | None = None
    # Runs in turn with others that cargo's lock of the target directory would hold up.
    cargo: bool = False
    # Seconds of the last run, on the clock and of the processors.
    took: float = 0
    worked: float = 0
    # The logs of its failures.
    logs: list[pathlib.Path] = dataclasses.field(default_factory=list)
    # The logs of this run, and when it started, on the clock; None if it does not run.
    opened: list[pathlib.Path] = dataclasses.field(default_factory=list)
    started: float | None = None

    def run(self, slower):
        start, before, say = time.monotonic(), base.worked(), None
        self.opened = LOGGED.paths = []
        self.started = start
        try:
            count = self.call(slower)
        except base.Fail as failure:
            say = functools.partial(base.say_failure, failure)
            count = ktap.Count(failed=1, bad=[str(failure)])
        # A fault of one job's code does not end the others.
        except Exception as fault:
            say = functools.partial(base.say, traceback.format_exc())
            count = ktap.Count(failed=1, bad=[f"{type(fault).__name__}: {fault}"])
        self.started, LOGGED.paths = None, []
        self.took, self.worked = time.monotonic() - start, base.worked() - before
        if count.failed:
            time.sleep(SETTLED)
        # What a signal ends has no result.
        if base.INTERRUPTED:
            return count
        if say:
            say()
        if count.failed:
            logs = [path for path in self.opened if path.exists()]
            self.logs += map(keep, logs)
            for path in logs[:1]:
                show_end(path)
        tell(f"  {self.layer}: {self.name} ... {count} ({self.took:.0f} s)")
        return count

    @property
    def short(self):
        return self.name.partition(":")[0]

    def report(self, now):
        """Says how long it has run, and the last line of the log that was written to last."""
        if (started := self.started) is not None:
            logs = sorted((path for path in self.opened if path.exists()), key=lambda path: path.stat().st_mtime_ns)
            base.report_progress(f"{self.layer}: {self.name}", max(now - started, 0), logs[-1] if logs else None)


def is_quiet(now):
    """Whether nothing was printed for so long that a user may take the jobs for hung."""
    return now - base.SAID >= REPORT_AFTER


def report_until(over, found):
    """Reports the jobs that run, each time that nothing was printed for a while."""
    while not over.wait(POLL):
        if is_quiet(now := time.monotonic()):
            for job in found:
                job.report(now)


def side_by_side(calls, jobs):
    """The results of the calls, in order; `jobs` of them run at a time. Their processor time is the
    caller's."""

    def counted(call):
        before = base.worked()
        return call(), base.worked() - before

    # Not by `with`, which waits for the calls before their processes are ended.
    pool, results = concurrent.futures.ThreadPoolExecutor(jobs), []
    try:
        # The first call may run before the last one is submitted.
        results.extend(pool.submit(counted, call) for call in calls)
        done = [result.result() for result in results]
        base.add_work(sum(worked for _, worked in done))
        return [result for result, _ in done]
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        # The threads wait for processes, and a thread may start its process only now.
        while not all(result.done() for result in results):
            base.end(base.family(os.getpid())[1:])
            time.sleep(base.LOCK_LOOK)
        raise


def lanes(found):
    """Jobs that may run side by side, those with the longest limits first, so that none of them is left
    over at the end."""
    cargos = [job for job in found if job.cargo]
    others = [[job] for job in found if not (job.alone or job.cargo)]
    by_length = sorted(others, key=lambda lane: -lane[0].timeout)
    # Host tests need most of the first run's compiling.
    return [cargos, *by_length] if cargos else by_length


def run(found):
    """Runs jobs, as many in parallel as the machine can run; returns their counts."""
    beside = lanes(found)
    slower = min(GUESTS, len(beside))

    def run_lane(lane, slower):
        return {job: job.run(slower) for job in lane}

    counts, over = {}, threading.Event()
    reports = threading.Thread(target=report_until, args=(over, found), daemon=True)
    reports.start()
    try:
        for lane in side_by_side([functools.partial(run_lane, lane, slower) for lane in beside], GUESTS):
            counts.update(lane)
        counts.update(run_lane([job for job in found if job.alone], 1))
    finally:
        over.set()
        reports.join()
    return {job: counts[job] for job in found}


def store(layers, found, counts):
    """Prints the result of each layer, and the dearest jobs; writes all to build/test.json; returns the total."""
    total, results = ktap.Count(), {}
    for layer in layers:
        mine, count = [job for job in found if job.layer == layer], ktap.Count()
        for job in mine:
            count.add(counts[job], f"{job.short}: ")
        if not count.total:
            count.fail(f"no test found; `scripts/test --list {layer}` prints the names")
        took, worked = (round(sum(getattr(job, key) for job in mine), 1) for key in ("took", "worked"))
        tell(f"== {layer}: {count}, {took:.0f} s of jobs")
        each = {job.short: {"seconds": round(job.took, 1), "processor": round(job.worked, 1)} for job in mine}
        results[layer] = {**vars(count), "seconds": took, "processor": worked, "jobs": each}
        total.add(count, f"{layer}: ")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    return total


def tell_times(found):
    """Prints the dearest jobs."""
    tell("seconds, of processors, job")
    for job in sorted(found, key=lambda job: -job.worked)[:DEAREST]:
        tell(f"{job.took:7.0f}  {job.worked:12.0f}  {job.layer}: {job.short}")
    tell(f"{'':7}  {sum(job.worked for job in found):12.0f}  all jobs")


def tell_failures(found, total):
    """Prints the failed tests, and where their logs are."""
    if total.bad:
        tell("failed:")
        tell("\n".join(f"  {name}" for name in total.bad))
    logs = [path for job in found for path in job.logs]
    if logs:
        tell("logs:")
        tell("\n".join(f"  {path.relative_to(base.TOP)}" for path in logs))
