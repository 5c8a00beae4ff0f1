# SPDX-License-Identifier: GPL-2.0
"""The layer `packages` of scripts/test: the Debian packages, where they are installed.

Three systems are made of Debian's packages alone, by mmdebstrap, and are in the cache: one with its
QEMU, one with its kernel and its programs of verbs, one with what qpair-dkms needs. In a copy of the
last, qp/dkms.sh has the modules built for a kernel and the next. The packages for a host are installed
in a copy of the first, whose QEMU boots the second; there qp/debs.sh installs those for guests, uses
them, upgrades, removes and purges them. lintian judges all of them, and a copy of the checkout at
another path makes the same bytes.
"""

import hashlib
import pathlib
import re
import shlex
import shutil
import subprocess
import tomllib

from qp import base, cache, check, debian, debs, jobs, kernel as kernels, ktap, plugin

HERE = pathlib.Path(__file__).parent
BUILD = base.TOP / "build/packages-test"

# The systems, the third with what the table of packages has.
HOST = (plugin.PACKAGE, "autopkgtest", "lintian")
GUEST = ("autopkgtest", "ibverbs-utils", "kmod", "perftest", "rdma-core")
BUILDER = "qpair-dkms"

# The two versions, and where the packages are installed.
FIRST, SECOND = "1.0", "1.1"
FOR_HOSTS = "qpair-qemu"
FOR_GUESTS = ("qpair-modules", "qpair-provider", "qpair-tools")

# Seconds of the guest, most of them depmod's, and of all else.
TIMEOUT = 1500
OUTSIDE = 3000

# Runs what a system has installed, with the directories of this one that a command line names.
INSIDE = """\
#!/bin/sh
exec unshare --mount sh -c '
	root=$1
	shift
	for folder in /dev /proc /sys /tmp "$@"; do
		[ "$folder" != -- ] || break
		mount --rbind "$folder" "$root$folder"
	done
	while [ "$1" != -- ]; do shift; done
	shift
	exec chroot "$root" "$@"' sh {root} {folders} -- {program} "$@"
"""

# Runs dkms.sh.
BUILDS = 'mount --bind "$1" "$0/mnt" && mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot "$0" sh /mnt/dkms.sh'
# Runs a command in a system.
IN_SYSTEM = 'mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
# What autopkgtest runs.
TESTS = debs.HERE / "debian"


def make_disk(folder):
    base.step("making its disk", ["mkfs.ext4", "-q", "-L", "debian", "-d", folder / "tree", folder / "image", "3G"])


def make(version, out, scripts=base.SCRIPTS):
    base.step(f"making the packages, version {version}", [scripts / "py", "debs", "--version", version, "--output", out])
    return sorted(out.glob("*.deb"))


class Results:
    """Lines of TAP as a count."""

    def __init__(self):
        self.count = ktap.Count()

    def tell(self, name, faults):
        if faults:
            jobs.tell("\n".join(f"  {name}: {line}" for line in faults[:40]))
            self.count.fail(name)
        else:
            self.count.passed += 1

    def command(self, name, *words, wanted=""):
        """A command that has to end with 0, and to print a text."""
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        fine = done.returncode == 0 and wanted in done.stdout
        self.tell(name, [] if fine else [f"status {done.returncode}", *done.stdout.splitlines()[-20:]])


def files(root):
    """What a system has, without what dpkg and apt write for themselves."""
    own = ("var/log/", "var/cache/", "var/lib/apt/", "tmp/")
    found = (path for path in root.rglob("*") if not str(path.relative_to(root)).startswith(own))
    return {str(path.relative_to(root)) for path in found if not re.search(r"^var/lib/dpkg/(.*-old|lock.*)$", str(path.relative_to(root)))}


def of(packages, names):
    return [path for path in packages if path.name.startswith(names)]


def copy(name, packages, root):
    base.step(f"copying the system {name}", ["cp", "-a", "--reflink=auto", debian.system(name, packages) / "tree", root], quiet=True)


def host(root, packages, system="host", contents=HOST):
    """Makes a copy of a host's system, with packages in its /tmp; returns its path."""
    copy(system, contents, root)
    # Where INSIDE mounts them.
    for folder in (base.CACHE, base.TOP):
        (root / folder.relative_to("/")).mkdir(parents=True, exist_ok=True)
    for path in packages:
        shutil.copyfile(path, root / "tmp" / path.name)
    return root


def inside(root, script, *words):
    """Writes the script that runs a program of a host's system; returns its path."""
    script.write_text(INSIDE.format(root=root, folders=f"{base.CACHE} {base.TOP}", program=shlex.join(map(str, words))))
    script.chmod(0o755)
    return script


def use_on_host(results, root, suite=plugin.DISTRIBUTION):
    """qpair-qemu takes the plugin for the QEMU of the suite, which refuses the others."""
    chroot, there = ["chroot", root], plugin.EMULATORS[suite].series
    results.command("host: help", *chroot, "qpair-qemu", "-device", "qpair,help", wanted="qpair options:")
    results.command("host: the plugin", *chroot, "qpair-qemu", "--help", wanted=f"/qpair-qemu-{there}.so\n")
    installed = {path.stem.removeprefix("qpair-qemu-") for path in (root / f"usr/lib/{debs.TRIPLET}/qpair").glob("qpair-qemu-*.so")}
    for series in sorted(installed - {there}):
        script = f"{plugin.BINARY} -display none -plugin /usr/lib/{debs.TRIPLET}/qpair/qpair-qemu-{series}.so; [ $? = 1 ]"
        wanted = f"the plugin is built for QEMU {series}, and this is QEMU {there}."
        results.command(f"host: the plugin for {series} is refused", *chroot, "sh", "-c", script, wanted=wanted)


def install(slower):
    """Job: the life of the packages on a host and in its guest."""
    cache.discard(BUILD)
    share = BUILD / "share"
    share.mkdir(parents=True)
    versions = {version: make(version, BUILD / version) for version in (FIRST, SECOND)}
    for name, packages in zip(("first", "second"), versions.values(), strict=True):
        (share / name).mkdir()
        for path in of(packages, FOR_GUESTS):
            shutil.copyfile(path, share / name / path.name)
    for script in ("tap.sh", "debs.sh"):
        shutil.copyfile(HERE / script, share / script)
    shutil.copytree(TESTS, share / "tests" / TESTS.name)
    results = Results()
    results.count.add(with_dkms(versions, share))
    guest = debian.system("guest", (*GUEST, debian.kernel(kernels.get("stock").release)), make_disk)
    root = host(BUILD / "host", [path for packages in versions.values() for path in packages])
    before = files(root)
    chroot = ["chroot", root]
    names = [f"/tmp/{path.name}" for path in versions[FIRST]]
    results.command("lintian", *chroot, "lintian", "--allow-root", "--fail-on", "error,warning", *names)
    for version, packages in versions.items():
        results.command(f"host: install {version}", *chroot, "dpkg", "-i", *(f"/tmp/{path.name}" for path in of(packages, FOR_HOSTS)))
        use_on_host(results, root)
    results.count.add(in_guest(guest, root, share, slower))
    results.command("host: remove", *chroot, "dpkg", "--remove", FOR_HOSTS)
    results.command("host: purge", *chroot, "dpkg", "--purge", FOR_HOSTS)
    results.tell("host: nothing is left", sorted(files(root) ^ before))
    shutil.copytree(TESTS, root / "tmp/tests" / TESTS.name)
    words = [*(f"/tmp/{path.name}" for path in of(versions[FIRST], FOR_HOSTS)), "/tmp/tests"]
    results.command("host: autopkgtest", "unshare", "--mount", "sh", "-c", IN_SYSTEM, root, "autopkgtest", "--test-name=host", *words, "--", "null")
    if not results.count.failed:
        cache.discard(BUILD)
    return results.count


def all_of(text, where):
    """The results of a script, which ends with the plan."""
    count, plan = ktap.of_ktap(text), re.search(r"^1\.\.(\d+)$", text, re.MULTILINE)
    if not plan or count.total != int(plan[1]):
        count.fail(f"{where}: {count.total} results")
    return count


def with_dkms(versions, share):
    """Runs dkms.sh in a system with headers and source of the stock kernel; the modules are left in the share."""
    release = kernels.get("stock").release
    series = re.match(r"\d+\.\d+", release)[0]
    needs = tomllib.loads((debs.HERE / "packages.toml").read_text())[BUILDER]["depends"]
    kernel = (debian.kernel(release, "headers"), debian.kernel(series, "source"))
    root, own = BUILD / "builder", BUILD / "builder-share"
    copy("builder", (*needs, *kernel), root)
    for name, packages in zip(("first", "second"), versions.values(), strict=True):
        (own / name).mkdir(parents=True)
        for path in of(packages, BUILDER):
            shutil.copyfile(path, own / name / path.name)
    for script in ("tap.sh", "dkms.sh"):
        shutil.copyfile(HERE / script, own / script)
    log = jobs.log_of("packages-dkms")
    base.step("building modules with DKMS", ["unshare", "--mount", "sh", "-c", BUILDS, root, own], log=log)
    count = all_of(log.read_text(), BUILDER)
    if count.failed:
        base.show_end("qpair-dkms", log)
    else:
        (own / "dkms").rename(share / "dkms")
        cache.discard(root)
    return count


def in_guest(system, root, share, slower):
    """Boots the guest's system under the host's emulator, and runs debs.sh in it."""
    emulator = inside(root, BUILD / "emulator", "qpair-qemu")
    disk = f"-drive file={system / 'image'},if=none,id=debian,format=raw,snapshot=on -device virtio-blk-pci,drive=debian"
    script = (
        "mkdir /debian && mount -t ext4 /dev/vda /debian && for name in dev proc sys; do mount --bind /$name /debian/$name; done"
        " && mount --bind . /debian/mnt && chroot /debian /bin/sh /mnt/debs.sh"
    )
    options = ["--qemu", emulator, "--no-insmod", "--package", "qpair-ring", "--load", "ext4", "--mem", "1G", "--share", share, "--qemu-opt", disk]
    status, text, _ = jobs.guest("packages-guest", options, ["sh", "-c", script], TIMEOUT * slower)
    count = all_of(text, "guest")
    if status != 0:
        count.fail(f"guest: status {status}")
    return count


def twice(_slower):
    """Job: a copy of the checkout, at another path, by a user with other settings, makes the same."""
    results, copy = Results(), base.TOP / "build/packages-copy"
    cache.discard(copy)
    for path in check.files():
        there = copy / path.relative_to(base.TOP)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, there, follow_symlinks=False)
    git = base.output("git", "-C", base.TOP, "rev-parse", "--absolute-git-dir").strip()
    (copy / ".git").write_text(f"gitdir: {git}\n")
    ours = make(FIRST, copy / "build/ours")
    script = 'umask 077; TZ=Pacific/Auckland LC_ALL=C exec "$@"'
    base.step("making the packages in a copy", ["sh", "-c", script, "sh", copy / "scripts/py", "debs", "--version", FIRST, "--output", copy / "build/theirs"])
    for path in ours:
        other = copy / "build/theirs" / path.name
        same = other.exists() and hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(other.read_bytes()).digest()
        results.tell(f"the same bytes: {path.name}", [] if same else [f"{path} and {other} differ"])
    if not results.count.failed:
        cache.discard(copy)
    return results.count
