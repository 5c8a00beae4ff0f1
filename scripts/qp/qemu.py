# SPDX-License-Identifier: GPL-2.0
"""The QEMU of guests and tests: the distribution's, with the device as a plugin (qp/plugin.py); by
QPAIR_QEMU=backports that of its backports; or, by QPAIR_QEMU=patched, one that is built here, with
the device linked into it.

The patched one is Debian 13's own QEMU source package, with qemu/patches applied and this project's
qemu/ as hw/misc/qpair. Two stages:

1. QEMU without the device, configured and built once, shared by all checkouts; 2. a checkout's own:
   a copy of that, source and objects, whose hw/misc/qpair is a link to the checkout's qemu/, so
   that only the device is compiled and the emulator linked. It is keyed by the checkout's path, so
   that two checkouts do not interfere, and an edit costs one cargo build and one link.

A build of QEMU depends on its path and would be repeated at another, so both stages are mounted at
the same path, in a mount namespace of the command.

qemu/ must have a meson.build, as any directory below hw/misc. The device's model is a static
library that cargo builds from the package `qpair-ffi`; meson.build finds it in the top of QEMU's
build directory, as libqpair_ffi.a. Trace points are in a file trace-events beside meson.build (with
a one-line trace.h).
"""

import argparse
import os
import shutil

from qp import archive, base, cache, model, plugin

# Version of the recipe.
RECIPE = 1

PACKAGE = "qemu"
FLAGS = [
    "--target-list=x86_64-softmmu",
    "--without-default-features",
    "--without-default-devices",
    "--with-devices-x86_64=qpair",
    "--disable-debug-info",
    "--enable-tcg",
    "--enable-kvm",
    "--enable-plugins",
    "--enable-virtfs",
    "--enable-attr",
    "--enable-trace-backends=log",
    "--disable-download",
    "--disable-docs",
    "--disable-tools",
    "--disable-guest-agent",
    "--disable-install-blobs",
    "--disable-werror",
]

# Gigabytes that either stage takes, the first with its source.
PRISTINE = 1
COPY = 0.6

# The path at which each stage is mounted.
PLACE = "/run/qpair-qemu"
BINARY = "qemu-system-x86_64"

# Which emulator runs.
CHOICE = plugin.CHOICE
DISTRIBUTION = plugin.DISTRIBUTION
BACKPORTS = plugin.BACKPORTS
PATCHED = "patched"
NAMES = (DISTRIBUTION, BACKPORTS, PATCHED)

# Fixes of QEMU itself; each file describes one.
PATCHES = sorted((base.TOP / "qemu/patches").glob("*.patch"))

# The devices that are compiled: this omits a third of the files.
DEVICES = base.TOP / "qemu/devices.mak"

# Changes to QEMU's own files, which add the device to the build.
DEVICE = ("hw/misc/meson.build", None, "\nsubdir('qpair')\n")
TRACE = ("meson.build", "    'hw/misc/macio',\n", "    'hw/misc/macio',\n    'hw/misc/qpair',\n")


def at_place(folder, command):
    """A command line that runs with `folder` mounted at PLACE."""
    script = f'mkdir -p {PLACE} && mount --bind "$1" {PLACE} && shift && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", folder, *command]


def ninja(name, folder, quiet=False):
    return base.step(
        name, at_place(folder, ["nice", "ninja", "-C", f"{PLACE}/build", BINARY]), quiet=quiet
    )


def build_pristine(folder):
    cache.need_space((base.CACHE, PRISTINE))
    archive.update()
    description = archive.fetch_source(PACKAGE, folder / "package")
    source = folder / "source"
    if not (folder / ".unpacked").exists():
        shutil.rmtree(source, ignore_errors=True)
        base.step(
            f"unpacking {description.stem}",
            ["dpkg-source", "--no-check", "-x", description, source],
        )
        plugin.edit(source, plugin.BLOBS)
        shutil.copyfile(DEVICES, source / "configs/devices/x86_64-softmmu/qpair.mak")
        for patch in PATCHES:
            base.step(f"applying {patch.name}", ["patch", "-d", source, "-p1", "-i", patch], quiet=True)
        (folder / ".unpacked").touch()
    base.say(f"QEMU: {(source / 'VERSION').read_text().strip()} from Debian's source package")
    if not (folder / "build/build.ninja").exists():
        shutil.rmtree(folder / "build", ignore_errors=True)
        (folder / "build").mkdir()
        base.step(
            "configuring QEMU",
            at_place(folder, ["sh", "-c", f'cd {PLACE}/build && exec ../source/configure "$@"', "sh", *FLAGS]),
        )
    ninja("building QEMU (once)", folder)
    # The option ROMs that load a kernel are 16-bit code that any x86 compiler can build, but
    # configure requires one with 32-bit libraries.
    (folder / "build/pc-bios/optionrom/config.mak").write_text(
        "TOPSRC_DIR=../../../source\nCC=gcc\nOBJCOPY=objcopy\nPYTHON=python3\nEXTRA_CFLAGS=-m32\n"
    )
    base.step(
        "building QEMU's option ROMs",
        at_place(folder, ["make", "-C", f"{PLACE}/build/pc-bios/optionrom"]),
        quiet=True,
    )
    shutil.rmtree(folder / "package")


def folders():
    """The cache entries of the two stages."""
    key = base.digest(RECIPE, base.toolchain(), *FLAGS, DEVICES.read_text(), *(patch.read_text() for patch in PATCHES))
    return base.CACHE / "qemu" / f"pristine-{key}", base.CACHE / "qemu" / f"{base.digest(str(base.TOP))}-{key}"


def build_own(folder, original):
    """A checkout's copy of the pristine build, not yet with the device.

    Omits roms/, two thirds of the source: firmware for other machines, for which this build has no
    rule.
    """
    cache.need_space((base.CACHE, COPY))
    base.step(
        "copying the QEMU build for this checkout",
        ["sh", "-c",
         'rm -rf "$2/source" "$2/build" && mkdir "$2/source" && cp -a --reflink=auto "$1/build" "$2" &&'
         ' find "$1/source" -mindepth 1 -maxdepth 1 ! -name roms -exec cp -a --reflink=auto -t "$2/source" {} +',
         "sh", original, folder],
    )  # fmt: skip
    (folder / "source/hw/misc/qpair").symlink_to(base.TOP / "qemu")
    plugin.edit(folder / "source", DEVICE)
    if (base.TOP / "qemu/trace-events").exists():
        plugin.edit(folder / "source", TRACE)


def copy_model(folder):
    """Builds the device's model; the emulator is linked again if it changed."""
    library = model.build()
    kept = folder / "build" / model.LIBRARY
    if kept.exists() and kept.stat().st_mtime_ns == library.stat().st_mtime_ns:
        return
    # ninja does not know this library.
    shutil.copy2(library, kept)
    (folder / "build" / BINARY).unlink(missing_ok=True)


def patched(plain=False):
    """The path of the emulator that is built here: this checkout's, or the one without the device."""
    original, own = folders()
    cache.entry(original, build_pristine)
    if plain:
        return original / "build" / BINARY
    if not (base.TOP / "qemu/meson.build").exists():
        raise base.Fail("this checkout has no qemu/meson.build, so there is no device to build")
    folder = cache.entry(own, lambda folder: build_own(folder, original), checkout=base.TOP)
    with base.locked(folder / "lock"):
        copy_model(folder)
        ninja("building QEMU with the device", folder, quiet=True)
    return folder / "build" / BINARY


def choice(usual=DISTRIBUTION):
    """The emulator that the environment chooses, or the usual one."""
    name = os.environ.get(CHOICE) or usual
    if name not in NAMES:
        raise base.Fail(f"{CHOICE}={name} names no emulator", f"use {', '.join(NAMES[:-1])} or {NAMES[-1]}")
    return name


def binary(name=None):
    """The path of the emulator of this name, or of that which the environment chooses."""
    name = name or choice()
    return patched() if name == PATCHED else plugin.emulator(name)


def firmware(emulator):
    """The directories in which the emulator looks for firmware."""
    return ["/usr/share/seabios", emulator.parent / "pc-bios/optionrom"]


def run(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/qemu",
        add_help=False,
        description="Prepare Debian's own QEMU, unmodified, with the device as a plugin, and print its path; or run it, with the words of its command line.",
    )
    parser.add_argument("--patched", action="store_true", help="build a QEMU with qemu/patches and the device linked into it; also by QPAIR_QEMU=patched in the environment")
    parser.add_argument("--plain", action="store_true", help="that QEMU without the device")
    parser.add_argument("--plugin", action="store_true", help="build the device as a plugin for that QEMU, or with QPAIR_QEMU=backports for that of backports, and print its path (Documentation/install.rst)")
    # Words of QEMU's own begin like -h does.
    parser.add_argument("--help", action="help", help="show this, as -h does")
    args, rest = parser.parse_known_args(["--help" if word == "-h" else word for word in argv])
    if args.plugin:
        if rest:
            parser.error(f"--plugin takes no words of QEMU: {' '.join(rest)}")
        if args.patched or args.plain or choice() == PATCHED:
            raise base.Fail("the patched QEMU has the device linked into it, and needs no plugin", f"use {CHOICE}={DISTRIBUTION} or {BACKPORTS}")
        print(plugin.build(choice()))
        return 0
    emulator = patched(args.plain) if args.patched or args.plain else binary()
    if rest:
        words = [str(emulator), *(w for f in firmware(emulator) for w in ("-L", str(f))), *rest]
        os.execv(emulator, words)
    print(emulator)
    return 0


if __name__ == "__main__":
    base.main(run)
