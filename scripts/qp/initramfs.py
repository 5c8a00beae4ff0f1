# SPDX-License-Identifier: GPL-2.0
"""The guest's file system: an initramfs, created for each run.

It consists of concatenated archives, as the kernel accepts them: those that only depend on the kernel
(busybox and the modules of a stock kernel, and those that modprobe finds) are in the cache; the part
of this run has init, the module, the tools and the command. They are not compressed: in a guest
decompression takes longer than reading.
"""

import io
import lzma
import pathlib
import stat
import subprocess

from qp import base, cache

BUSYBOX = pathlib.Path("/bin/busybox")
HERE = pathlib.Path(__file__).parent

# Version of the cached parts.
RECIPE = 5

# Modules of a stock kernel that a guest needs: always (the module needs the RDMA core), for --share, and for a disk of --qemu-opt.
ALWAYS = ["virtio_pci", "virtio_console", "ib_uverbs"]
SHARE = ["9pnet_virtio", "9p"]
DISK = ["virtio_blk"]
FIXED = ALWAYS + SHARE + DISK

FOLDERS = [
    "bin", "dev", "etc", "etc/libibverbs.d", "modules", "programs", "proc", "qpair", "qpair/tests", "root", "selftests", "sys", "tmp", "var",
]  # fmt: skip


class Cpio:
    """An archive in the kernel's "newc" form."""

    def __init__(self):
        self.out = io.BytesIO()
        self.inode = 0

    def add(self, name, mode, data=b"", device=(0, 0)):
        self.inode += 1
        fields = [self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0]
        self.out.write(b"070701" + b"".join(b"%08X" % field for field in fields))
        self.out.write(name.encode() + b"\0")
        self.pad()
        self.out.write(data)
        self.pad()

    def pad(self):
        self.out.write(b"\0" * (-self.out.tell() % 4))

    def folder(self, name):
        self.add(name, stat.S_IFDIR | 0o755)

    def file(self, name, data, mode=0o644):
        self.add(name, stat.S_IFREG | mode, data)

    def link(self, name, target):
        self.add(name, stat.S_IFLNK | 0o777, target.encode())

    def end(self):
        self.add("TRAILER!!!", 0)
        return self.out.getvalue()


def module_files(kernel, names):
    """The files of modules and of their dependencies, in load order; none of what is built in."""
    words = ["modprobe", "--config=/dev/null", f"--dirname={kernel.modules.parents[2]}", f"--set-version={kernel.release}"]
    found = base.output(*words, "--show-depends", "--all", *names).splitlines()
    return list(dict.fromkeys(pathlib.Path(line.split()[1]) for line in found if line.startswith("insmod ")))


def plain_name(path):
    return pathlib.PurePath(path).name.removesuffix(".xz").removesuffix(".zst")


def module_bytes(path):
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True).stdout
    return path.read_bytes()


def modules(kernel, names):
    """The modules of a kernel that init loads, and those of them that the fixed part lacks: their names
    in /modules, and {name: (contents, mode)}."""
    if kernel.modules is None:
        return [], {}
    found, there = module_files(kernel, names), module_files(kernel, FIXED)
    lacking = {f"modules/{plain_name(path)}": (module_bytes(path), 0o644) for path in found if path not in there}
    return [plain_name(path) for path in found], lacking


def fixed_part(kernel):
    def build(folder):
        cpio = Cpio()
        for name in FOLDERS:
            cpio.folder(name)
        cpio.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
        cpio.file("bin/busybox", BUSYBOX.read_bytes(), 0o755)
        for applet in base.output(BUSYBOX, "--list").split():
            if applet != "busybox":
                cpio.link(f"bin/{applet}", "busybox")
        # Programs look for their interpreter in the usual places.
        for name in ("sbin", "usr"):
            cpio.link(name, "bin" if name == "sbin" else ".")
        cpio.file("etc/passwd", b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/sh\n")
        cpio.file("etc/group", b"root:x:0:\nnogroup:x:65534:\n")
        if kernel.modules is not None:
            for path in module_files(kernel, FIXED):
                cpio.file(f"modules/{plain_name(path)}", module_bytes(path))
        (folder / "cpio").write_bytes(cpio.end())

    key = base.digest(RECIPE, str(kernel.modules), kernel.release, BUSYBOX)
    return cache.entry(base.CACHE / "initramfs" / key, build) / "cpio"


def dependencies(text, files):
    """The lines of modules.dep that are of some files, without directories."""
    lines = (line.partition(":") for line in text.splitlines())
    return "".join(
        f"{plain_name(path)}: {' '.join(map(plain_name, needed.split()))}\n" for path, _, needed in lines if plain_name(path) in files
    )


def module_tree(kernel, names):
    """The modules that modprobe finds in the guest, with what they need. It reports those that a small
    kernel does not have."""
    root = f"lib/modules/{kernel.release}"
    listed = (kernel.modules / "modules.dep").read_text()
    there = {plain_name(line.split(":")[0]).removesuffix(".ko").replace("-", "_") for line in listed.splitlines()}
    names = [name for name in names if name in there]

    def build(folder):
        cpio = Cpio()
        for name in ("lib", "lib/modules", root):
            cpio.folder(name)
        files = {plain_name(path): path for path in module_files(kernel, names)}
        for name, path in files.items():
            cpio.file(f"{root}/{name}", module_bytes(path))
        cpio.file(f"{root}/modules.dep", dependencies(listed, files).encode())
        (folder / "cpio").write_bytes(cpio.end())

    key = base.digest(RECIPE, str(kernel.modules), kernel.release, *names)
    return cache.entry(base.CACHE / "initramfs" / key, build) / "cpio"


def build(kernel, files, settings, command, names=()):
    """The whole initramfs of a run, as bytes.

    `files` maps names to (contents, mode); `settings` become shell variables of
    init; `command` is the text of the shell script to run; `names` are the
    modules that modprobe finds.
    """
    cpio = Cpio()
    cpio.file("init", (HERE / "init.sh").read_bytes(), 0o755)
    cpio.file("bin/qmp", (HERE / "qmp.sh").read_bytes(), 0o755)
    for name, (data, mode) in files.items():
        cpio.file(name, data, mode)
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    cpio.file("qpair/settings", text.encode())
    cpio.file("qpair/command", command.encode("utf-8", "surrogateescape"))
    parts = [fixed_part(kernel)]
    if names and kernel.modules is not None:
        parts.append(module_tree(kernel, names))
    return b"".join(part.read_bytes() for part in parts) + cpio.end()
