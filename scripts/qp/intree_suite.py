# SPDX-License-Identifier: GPL-2.0
"""The layer `tree` of scripts/test: the driver in a kernel's tree.

The patches of `make series` are applied to the source of the debug kernel, one after the other, and
what each touches is built. The result has to be what `make in-tree` writes. Then checkpatch, clippy
and rustdoc judge it, and a guest runs the kernel with the driver of the tree: its KUnit suites, and
cases of tools/selftests.

Source and tree of the debug kernel are in the cache, and are not to change. So all of it runs in a
mount namespace where an overlay is over each, at the same path: make then builds again only what the
patches change.
"""

import re
import shutil
import subprocess
import sys

from qp import base, intree, jobs, kernel as kernels, ktap, kunit, payload, series

BUILD = base.TOP / "build/in-tree"
OPTIONS = {"RUST_RDMA_ABSTRACTIONS": "y", "INFINIBAND_QPAIR": "m", "RUST_KUNIT_TESTS": "y", "RUST_RDMA_KUNIT_TEST": "y", "INFINIBAND_QPAIR_KUNIT_TEST": "y"}

# Seconds for all that is built, and for the guest.
BUILD_TIMEOUT = 3600
GUEST_TIMEOUT = 900
TIMEOUT = BUILD_TIMEOUT + GUEST_TIMEOUT

# Every TRACE_EVENT has these.
IN_TRACE_H = "OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT"
# The patches add files by folders, and their entries of MAINTAINERS last.
OF_SERIES = "FILE_PATH_CHANGES"

CASES = ["data/send_and_receive", "device/with_files_open"]


def mounts():
    """The directories that get an overlay, with the folder of what changes in each."""
    tree = kernels.get("debug").tree
    return {(tree / "source").resolve(): BUILD / "source", tree.resolve(): BUILD / "tree"}


def overlaid():
    """Mounts the overlays, in the namespace of this process; each begins empty."""
    for below, upper in mounts().items():
        work = upper.with_suffix(".work")
        for folder in (upper, work):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        base.output("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={below},upperdir={upper},workdir={work}", below)


class Tree:
    """The tree in the overlays, and its results: a line of TAP for each."""

    def __init__(self):
        self.source, self.objects = mounts()
        self.make = ["make", f"-j{base.JOBS}", "-C", self.source, f"O={self.objects}", *kernels.own_make("debug")]
        self.count = 0

    def tell(self, name, faults):
        self.count += 1
        print(f"{'not ok' if faults else 'ok'} {self.count} - {name}", flush=True)
        for line in faults[:40]:
            print(f"# {line}", flush=True)

    def run(self, name, *words):
        """A step of make; returns its warnings, or its end if it fails."""
        log = BUILD / "log" / re.sub(r"\W+", "-", name)
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            base.step(name, [*self.make, *words], log=log, quiet=True)
        except base.Fail as failure:
            return [str(failure), *log.read_text(errors="replace").splitlines()[-20:]]
        return [match[0] for match in payload.WARNING.finditer(log.read_text(errors="replace"))]

    def built(self, name, **others):
        """Builds what has changed, with all options that the tree has; returns warnings."""
        words = [word for option, value in (OPTIONS | others).items() for word in ("--set-val", option, value)]
        base.output(self.source / "scripts/config", "--file", self.objects / ".config", *words)
        return self.run(f"{name}: configuration", "olddefconfig") or self.run(f"{name}: build", "prepare", "drivers/infiniband/hw/")

    def checkpatch(self, *words):
        command = ["perl", self.source / "scripts/checkpatch.pl", "--strict", "--terse", "--quiet", "--show-types", "--showfile", f"--root={self.source}", *words]
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        # Of standard error only if it broke off: there it says that it has no spdxcheck.py.
        text = done.stdout if done.returncode in (0, 1) else done.stdout + done.stderr
        return [line for line in text.splitlines() if not line.startswith("total:")]

    def patches(self):
        """Applies the series."""
        cover, changes = series.states(self.source)
        out = BUILD / "patches"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        series.write(self.source, cover, changes, out)
        patches = sorted(out.glob("*.patch"))[1:]
        for path, (_, change) in zip(patches, changes, strict=True):
            # New files alone: nothing that make reads yet.
            connects = any((self.source / name).exists() for name in change)
            base.output("git", "-C", self.source, "apply", "--whitespace=error-all", path)
            if connects:
                self.tell(f"{path.stem}: builds", self.built(path.stem[:4]))
            style = [line for line in self.checkpatch(f"--ignore={OF_SERIES}", path) if "trace.h" not in line]
            self.tell(f"{path.stem}: checkpatch", style)
        self.tell("the series is what make in-tree writes", ["files differ"] * bool(intree.put(self.source)))

    def style(self):
        names = [name for name in intree.derived() if name.endswith((".rs", ".c", ".h", ".rst", "Kconfig", "Makefile"))]
        traces = [name for name in names if name.endswith("trace.h")]
        paths = [self.source / name for name in names if name not in traces]
        self.tell("checkpatch", self.checkpatch("--file", *paths))
        self.tell("checkpatch of trace points", self.checkpatch(f"--ignore={IN_TRACE_H}", "--file", *(self.source / name for name in traces)))

    def lints(self):
        """Clippy and rustdoc: they print the file of a warning in the line after it."""
        for name, words in {"clippy": ["CLIPPY=1", "drivers/infiniband/hw/qpair/"], "rustdoc": ["rustdoc"]}.items():
            faults = self.run(name, *words)
            text = (BUILD / "log" / name).read_text(errors="replace")
            found = re.findall(r"^ +--> (.*(?:rdma|qpair).*)$", text, re.MULTILINE)
            self.tell(name, [line for line in faults if "failed" in line] + found)

    def image(self):
        """The kernel and the module, for a guest."""
        self.tell("the driver, built in, without tests", self.built("built in", INFINIBAND_QPAIR="y", INFINIBAND_QPAIR_KUNIT_TEST="n"))
        self.tell("the driver, as a module", self.built("module"))
        faults = self.run("kernel and modules", "bzImage", "modules")
        self.tell("a kernel with the driver", [line for line in faults if "failed" in line])


def inside(argv):
    base.no_words(argv, "intree_suite", __doc__)
    tree = Tree()
    overlaid()
    tree.patches()
    tree.style()
    tree.image()
    tree.lints()
    return 0


def overlays_work():
    """Whether this machine mounts an overlay over the cache."""
    probe = BUILD / "probe"
    for name in ("upper", "work", "at"):
        (probe / name).mkdir(parents=True, exist_ok=True)
    words = f"lowerdir={base.TOP / 'rust'},upperdir={probe / 'upper'},workdir={probe / 'work'}"
    return subprocess.run(["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", words, probe / "at"], capture_output=True).returncode == 0


def run(slower):
    """The job of the layer."""
    kernels.get("debug")
    if not overlays_work():
        jobs.tell("  skipped: an overlay cannot be mounted over the cache; run on a file system that overlayfs accepts")
        return ktap.Count(skipped=1)
    status, text, log = jobs.program("tree", ["unshare", "--mount", sys.executable, "-P", "-m", "qp.intree_suite"], BUILD_TIMEOUT * slower)
    count = ktap.of_ktap(text)
    if status != 0:
        jobs.show_end(log)
        count.fail(f"the build in the tree: status {status}")
    elif count.failed:
        jobs.show_end(log)
    if status == 0:
        count.add(guest(slower))
    if not count.failed:
        shutil.rmtree(BUILD)
    return count


def guest(slower):
    """Runs the kernel that was built, with the module of its tree."""
    image, module = (BUILD / "tree" / name for name in ("arch/x86/boot/bzImage", f"{intree.DRIVER}/qpair.ko"))
    share = BUILD / "share"
    share.mkdir(exist_ok=True)
    shutil.copyfile(module, share / "qpair.ko")
    suites = kunit.suites("rust")
    options = ["--kernel", image, "--mem", "2G", "--no-insmod", "--share", share, "--append", kunit.APPEND]
    command = f"insmod ./qpair.ko && {kunit.show(suites)} && qpair-selftest {' '.join(CASES)}"
    status, text, _ = jobs.guest("tree-guest", options, ["sh", "-c", command], GUEST_TIMEOUT * slower)
    return kunit.judged(suites, status, text)


if __name__ == "__main__":
    base.main(inside)
