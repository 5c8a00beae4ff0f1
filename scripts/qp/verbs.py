# SPDX-License-Identifier: GPL-2.0
"""Programs of verbs in a guest: Debian's, unmodified, and the provider that they load.

Their packages are unpacked into an image of squashfs, which a guest mounts; it is in the cache. The
provider, the modules of the RDMA core and of soft-RoCE, and the scripts of scripts/qp/verbs are in
the initramfs. fio is one of them, for qp/peers.py.
"""

import ast
import itertools
import pathlib
import re
import shutil

from qp import archive, base, cache, payload, provider

# Version of the image's contents.
RECIPE = 1

PACKAGES = (
    "fio",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "libfabric-bin",
    "netpipe-openmpi",
    "nfs-kernel-server",
    "open-iscsi",
    "openmpi-bin",
    "perftest",
    "python3",
    "python3-pyverbs",
    "rdmacm-utils",
    "ucx-utils",
)
# Dependencies of UCX and Open MPI for parts that no guest uses: those for GPUs, with 230 MB of a
# compiler, a plugin for the topology of GPUs, and the start of processes on other machines.
ABSENT = ("libamdhip64-5", "libhsa-runtime64-1", "libhwloc-plugins", "openssh-client")
# What makes the image; runs from the unpacked packages, since the root lacks it.
MAKER = "squashfs-tools"
MAKER_PROGRAM = "usr/bin/mksquashfs"
# Directories that no program needs.
OMITTED = ("usr/share/doc", "usr/share/locale", "usr/share/man", "var/lib/dpkg")

# The serial number of the image's disk in the guest.
SERIAL = "programs"

# The modules that init loads: for the image, and all of verbs.
MODULES = ["virtio_blk", "squashfs", "ib_umad", "rdma_ucm", "rdma_rxe", "dummy"]

# The modules that modprobe finds, for `storage` and `nvme-io`: Linux's users of fast registration, and
# their disks.
ON_DEMAND = (
    "brd", "ib_iser", "ib_isert", "ib_srp", "ib_srpt", "nfsd", "nfsv3", "nfsv4", "null_blk", "nvme_rdma", "nvme_tcp", "nvmet_rdma",
    "nvmet_tcp", "rds_rdma", "rpcrdma", "sd_mod",
)  # fmt: skip

# A kernel without modules needs them built in: their symbols in its configuration.
BUILT_IN = (
    "VIRTIO_BLK", "SQUASHFS", "INFINIBAND_USER_ACCESS", "INFINIBAND_USER_MAD", "INFINIBAND_ADDR_TRANS", "RDMA_RXE", "DUMMY",
)  # fmt: skip

# Where the provider is in the guest: a driver file may name a path.
PROVIDERS = "qpair"

# rdma-core's own tests, without those of a vendor's devices.
TESTS = "qpair/tests"
VENDORS = re.compile(r"test_(mlx5|efa|cuda)")

SCRIPTS = pathlib.Path(__file__).parent / "verbs"


def help_of(command):
    """What a script says of itself, if a command asks for it: that needs no guest."""
    if len(command) != 2 or command[1] not in ("-h", "--help"):
        return None
    path = SCRIPTS / pathlib.Path(command[0]).name
    if not path.is_file():
        return None
    text = path.read_text()
    if text.startswith("#!/usr/bin/python3"):
        return ast.get_docstring(ast.parse(text))
    comment = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines()[3:])
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in comment)


def build_image(folder):
    cache.need_space((base.CACHE, 1))
    tree = archive.unpack_all((*PACKAGES, MAKER), folder, ABSENT)
    for name in OMITTED:
        shutil.rmtree(tree / name, ignore_errors=True)
    base.step(
        "making the image of programs",
        # Not compressed: in a guest decompression takes longer than reading.
        [*archive.program(tree, MAKER_PROGRAM), tree, folder / "image", "-noappend", "-all-root", "-no-xattrs", "-noI", "-noD", "-noF", "-noX"],
    )  # fmt: skip
    shutil.copytree(tree / "etc/libibverbs.d", folder / "drivers", dirs_exist_ok=True)
    shutil.rmtree(tree)


def folder():
    key = base.digest(RECIPE, *PACKAGES, MAKER, *ABSENT, *OMITTED)
    return cache.entry(base.CACHE / "programs" / key, build_image)


def image():
    return folder() / "image"


def require(kernel):
    """Raises a Fail if a kernel has neither the modules nor what they would be built in as."""
    config = (kernel.tree / ".config").read_text().splitlines() if kernel.tree else []
    missed = [f"CONFIG_{name}" for name in BUILT_IN if f"CONFIG_{name}=y" not in config]
    if kernel.modules is None and missed:
        raise base.Fail(
            f"the {kernel.name} kernel has neither modules nor {', '.join(missed)}",
            "use --verbs with the stock or the debug kernel",
        )


def files(kernel):
    """The files of a guest besides the image: {name: (contents, mode)}."""
    require(kernel)
    found = {}
    for driver in (folder() / "drivers").iterdir():
        found[f"etc/libibverbs.d/{driver.name}"] = (driver.read_bytes(), 0o644)
    library = provider.build(payload.coverage() is not None)
    found[f"{PROVIDERS}/{library.name}"] = (library.read_bytes(), 0o755)
    # libibverbs appends the rest of the library's name.
    stem = library.name.partition("-")[0]
    found["etc/libibverbs.d/qpair.driver"] = (f"driver /{PROVIDERS}/{stem}\n".encode(), 0o644)
    for source in payload.c_sources(verbs=True):
        program = payload.c_program(source, provider.to_link())
        found[f"bin/{program.name}"] = (program.read_bytes(), 0o755)
    for script in SCRIPTS.iterdir():
        found[f"bin/{script.name}"] = (script.read_bytes(), 0o755)
    for path in (provider.fetched() / "source/tests").glob("*.py"):
        if not VENDORS.match(path.name):
            found[f"{TESTS}/{path.name}"] = (path.read_bytes(), 0o644)
    return found
