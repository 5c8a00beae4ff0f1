# SPDX-License-Identifier: GPL-2.0
"""Makes a disk of Debian with the packages for guests: build/image/qpair.qcow2.

    scripts/image [--packages DIR] [--output FILE]

Debian's packages are installed by mmdebstrap, once, in the cache; qpair's, of build/packages
(make packages), in a copy of that. The disk has one partition, whose file system mkfs.ext4 fills; GRUB
is in the gap before it, and loads /vmlinuz and /initrd.img, which Debian's kernel packages keep up to
date. Nothing is mounted from the disk, so no loop device is needed.
"""

import argparse
import pathlib
import shlex
import shutil
import struct

from qp import archive, base, cache, debian, kernel as kernels

OUTPUT = base.TOP / "build/image/qpair.qcow2"
PACKAGES = base.TOP / "build/packages"

# What boots it: the address of both devices is that of QEMU's first network device.
COMMAND = f"qpair-qemu -machine q35 -m 1G -smp 2 -nographic -vga none -drive file={OUTPUT.relative_to(base.TOP)},if=virtio -device qpair,mac=52:54:00:12:34:56"
# A first test in it.
TEST = "pair ibv_rc_pingpong -d qpair0 -g 0"

DEBIAN = ("systemd-sysv", "udev", "login", "initramfs-tools", "iproute2", "ibverbs-utils", "perftest", "grub-pc-bin")
OURS = ("qpair-modules-{release}", "qpair-provider", "qpair-tools")

# Gigabytes beside the output while it is made, and with it, measured and rounded up.
SIZE = 1.3

# The disk: sectors before the partition, and in all.
SECTOR = 512
GAP = 2048
SECTORS = 3 << 21
NAME = "qpair"

FILES = {
    "etc/hostname": f"{NAME}\n",
    "etc/hosts": f"127.0.0.1 localhost {NAME}\n",
    # Of QEMU's user network.
    "etc/resolv.conf": "nameserver 10.0.2.3\n",
    # systemd gives them to agetty and login: root is logged in.
    "etc/credstore/agetty.autologin": "root",
    "etc/credstore/login.noauth": "yes",
    "etc/motd": f"Queue pairs of qpair. A first test: {TEST}\nThe end: systemctl poweroff\n",
    "grub.cfg": f"linux /vmlinuz root=LABEL={NAME} rw console=ttyS0 loglevel=4\ninitrd /initrd.img\nboot\n",
}
# Both sides of a program of verbs.
PROGRAMS = ("pair", "verbs.sh")
# Each network device is configured by DHCP.
NETWORK = ("etc/systemd/network/89-ethernet.network", "/usr/lib/systemd/network/89-ethernet.network.example")

# Runs in a mount namespace, with the system and the packages.
INSTALL = """\
root=$1
shift
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
cp -- "$@" "$root/tmp"
chroot "$root" sh -ec '
	dpkg -i /tmp/*.deb
	rm /tmp/*.deb
	systemctl enable systemd-networkd
	grub-mkimage -O i386-pc -p "(,msdos1)/" -c /grub.cfg -o /core.img biosdisk part_msdos ext2 linux
	# /usr is not newer: no service of a first boot runs.
	touch /etc/.updated /var/.updated'
"""


def of_guests(folder):
    """The files of the packages for guests, one each."""
    if not folder.is_dir():
        raise base.Fail(f"--packages {folder}: no such directory", f"make packages makes them in {PACKAGES.relative_to(base.TOP)}")
    found = []
    for name in OURS:
        name = name.format(release=kernels.get("stock").release)
        there = sorted(folder.glob(f"{name}_*.deb"))
        if len(there) != 1:
            raise base.Fail(f"{folder} has {'several' if there else 'no'} {name}", "make packages makes one of each")
        found += there
    return found


def make_tree(tree, packages):
    """A system with the packages in it."""
    system = debian.system("image", (*DEBIAN, debian.kernel(kernels.get("stock").release)))
    base.step("copying the system", ["cp", "-a", "--reflink=auto", system / "tree", tree], quiet=True)
    # The host's, with its proxies.
    (tree / "etc/apt/apt.conf.d/99mmdebstrap").unlink(missing_ok=True)
    for name, text in FILES.items():
        (tree / name).unlink(missing_ok=True)
        (tree / name).write_text(text)
    for name in PROGRAMS:
        shutil.copy2(base.SCRIPTS / "qp/verbs" / name, tree / "usr/local/bin")
    (tree / NETWORK[0]).symlink_to(NETWORK[1])
    base.step("installing qpair's packages", ["unshare", "--mount", "sh", "-ec", INSTALL, "sh", tree, *packages], quiet=True)


def boot_sectors(boot, core):
    """What is before the partition: GRUB's first sector, with the partition table, and its core."""
    if len(boot) != SECTOR or len(core) > (GAP - 1) * SECTOR:
        raise base.Fail(f"GRUB has {len(boot)} and {len(core)} bytes, which do not fit before the partition", "correct scripts/qp/image.py")
    # Its first sector is 1; both ends by cylinder, head and sector are unknown.
    entry = struct.pack("<B3sB3sII", 0x80, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff", GAP, SECTORS - GAP)
    return boot[:446] + entry + bytes(48) + b"\x55\xaa" + core


def make_disk(stage):
    tree, disk = stage / "tree", stage / "disk"
    sectors = boot_sectors((tree / "usr/lib/grub/i386-pc/boot.img").read_bytes(), (tree / "core.img").read_bytes())
    for name in ("core.img", "grub.cfg"):
        (tree / name).unlink()
    size = f"{(SECTORS - GAP) * SECTOR >> 10}k"
    base.step("making the file system", ["mkfs.ext4", "-q", "-L", NAME, "-E", f"offset={GAP * SECTOR}", "-d", tree, disk, size], quiet=True)
    with open(disk, "r+b") as file:
        file.write(sectors)
        file.truncate(SECTORS * SECTOR)
    tools = cache.entry(base.CACHE / "qemu-utils" / base.digest(1), lambda folder: archive.unpack_all(("qemu-utils",), folder))
    words = [*archive.program(tools / "tree", "usr/bin/qemu-img"), "convert", "-O", "qcow2", "-c", "-W", "-o", "compression_type=zstd"]
    base.step("compressing the disk", [*words, disk, stage / "image"], quiet=True)


def build(packages, output):
    cache.need_space((output.parent, SIZE))
    stage = output.with_name(f".{output.name}.qpair")
    cache.discard(stage)
    stage.mkdir(parents=True)
    try:
        make_tree(stage / "tree", packages)
        make_disk(stage)
        (stage / "image").rename(output)
    finally:
        cache.discard(stage)


def run(argv):
    parser = argparse.ArgumentParser(prog="scripts/image", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=pathlib.Path, default=PACKAGES, metavar="DIR", help="where qpair's packages are (build/packages)")
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT, metavar="FILE", help="the disk that is made (build/image/qpair.qcow2)")
    args = parser.parse_args(argv)
    output = args.output.resolve()
    if output.is_dir():
        raise base.Fail(f"--output {output} is a directory", "name a file in it")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise base.Fail(f"--output {output}: {output.parent} cannot be made: {error.strerror}", "name a file in a directory that exists") from None
    with base.locked(base.TOP / "build/image/lock"):
        build(of_guests(args.packages.absolute()), output)
    print(output)
    print(COMMAND.replace(str(OUTPUT.relative_to(base.TOP)), shlex.quote(str(output))))
    return 0


if __name__ == "__main__":
    base.main(run)
