# SPDX-License-Identifier: GPL-2.0
"""The device as a plugin of Debian 13's own QEMU, unmodified.

The cache has one entry for all checkouts: the emulator with its libraries, unpacked from Debian's
packages, and the headers that a plugin of this version needs. They are those of its source package,
and those that its configure step generates. A checkout compiles its qemu/*.c and links them with the
device's model, in build/plugin.

One file of QEMU is compiled, for qemu/tests: the accelerator qtest, a module that Debian's packages
leave out. An emulator loads modules of its own build only, by a hash of its version, of its package's
and of configure, which is the same here.
"""

import json
import re
import shlex
import shutil

from qp import archive, base, cache, model

# Version of the recipe.
RECIPE = 1

PACKAGE = "qemu-system-x86"
SOURCE = "qemu"
BINARY = "qemu-system-x86_64"
# What the headers depend on; Debian's emulators are built with modules, so they export their symbols.
FLAGS = [
    "--target-list=x86_64-softmmu",
    "--without-default-features",
    "--enable-modules",
    "--enable-plugins",
    "--enable-tcg",
    "--enable-kvm",
    "--enable-trace-backends=log",
    "--disable-download",
    "--disable-install-blobs",
]

# Gigabytes that the entry takes: most of it for a short time, the source.
SIZE = 1

# Of the packages: the emulator, its libraries and its firmware.
RUNTIME = [f"usr/bin/{BINARY}", "usr/lib", "usr/lib64", "usr/share/qemu", "usr/share/seabios"]
MODULES = f"{archive.LIBRARIES}/qemu"
FIRMWARE = ["usr/share/qemu", "usr/share/seabios"]

# Of the source: headers, and the generator of trace points.
HEADERS = ["include", "host", "linux-headers", "scripts", "tcg", "trace"]
# Of the build.
QTEST = "accel-qtest-x86_64.so"
GENERATED = ["config-host.h", "config-poison.h", "qapi/qapi-types-common.h", QTEST]
# A file of QEMU that is compiled as the device is, for the compiler's options.
LIKE = "hw/pci/msix.c"

HERE = base.TOP / "qemu"
BUILD = base.TOP / "build/plugin"
PLUGIN = BUILD / "qpair-qemu.so"
WRAPPER = BUILD / "qpair-qemu"
TRACE = "trace-hw_misc_qpair"
EXPORTS = "{ global: qemu_plugin_install; qemu_plugin_version; local: *; };\n"
# The generator of qpair_ffi.h declares each function twice.
WARNINGS = ["-Wno-redundant-decls"]


def unpack_emulator(folder):
    """Unpacks the emulator; returns the version of its package."""
    tree = archive.unpack_all((PACKAGE,), folder)
    shutil.rmtree(folder / "emulator", ignore_errors=True)
    for name in RUNTIME:
        (folder / "emulator" / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).rename(folder / "emulator" / name)
    shutil.rmtree(tree)
    there = folder / "emulator"
    words = archive.program(there, f"usr/bin/{BINARY}")
    search = [word for name in FIRMWARE for word in ("-L", there / name)]
    script = folder / BINARY
    script.write_text(f'#!/bin/sh\nQEMU_MODULE_DIR={shlex.quote(str(there / MODULES))} exec {shlex.join(map(str, words + search))} "$@"\n')
    script.chmod(0o755)
    said = base.output(script, "--version").splitlines()[0]
    found = re.search(r"\(Debian (\S+)\)", said)
    if not found:
        raise base.Fail(f"{PACKAGE} is not Debian's: {said}", "use a mirror of Debian 13 in /etc/apt")
    return found[1]


def compiler_options(build):
    """The options with which QEMU's build compiles a device, with absolute paths."""
    commands = json.loads((build / "compile_commands.json").read_text())
    words = iter(shlex.split(next(c["command"] for c in commands if c["file"].endswith(LIKE)))[1:])
    found = []
    for word in words:
        if word in ("-MQ", "-MF", "-o", "-c"):
            next(words)
        elif word in ("-isystem", "-iquote"):
            found += [word, str(build / next(words))]
        elif word.startswith("-I"):
            found.append(f"-I{build / word[2:]}")
        elif word not in ("-MD", "-fPIE", "-g"):
            found.append(word)
    return [*found, "-fPIC", "-DQPAIR_PLUGIN", *WARNINGS]


def configure(folder, version):
    """Makes the headers."""
    description = archive.fetch_source(f"{SOURCE}={version}", folder / "package")
    whole, source, build = folder / "whole", folder / "source", folder / "build"
    for path in (whole, source, build):
        shutil.rmtree(path, ignore_errors=True)
    base.step(f"unpacking {description.stem}", ["dpkg-source", "--no-check", "-x", description, source])
    build.mkdir()
    base.step("configuring QEMU, for its headers", [source / "configure", *FLAGS, f"--with-pkgversion=Debian {version}"], cwd=build)
    base.step("generating QEMU's headers, compiling its accelerator for tests", ["ninja", "-C", build, *GENERATED])
    shutil.copy2(build / QTEST, folder / "emulator" / MODULES)
    (folder / "options").write_text("\n".join(compiler_options(build)))
    keep(source, whole, [source / name for name in HEADERS])
    keep(build, whole, [*build.glob("*.h"), *build.glob("qapi/*.h"), build / "linux-headers"])
    shutil.rmtree(folder / "package")


def keep(folder, spare, paths):
    """Removes all of a directory but some paths in it."""
    folder.rename(spare)
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        (spare / path.relative_to(folder)).rename(path)
    shutil.rmtree(spare)


def build_entry(folder):
    cache.need_space((base.CACHE, SIZE))
    version = unpack_emulator(folder)
    base.say(f"the distribution's QEMU: {version}")
    configure(folder, version)


def folder():
    """The cache entry."""
    return base.CACHE / "qemu" / f"distribution-{base.digest(RECIPE, base.toolchain(), *FLAGS, *GENERATED)}"


def prepared():
    return cache.entry(folder(), build_entry)


def version():
    """The version of the emulator that the plugin is for: major and minor."""
    text = (prepared() / "build/config-host.h").read_text()
    return re.search(r'^#define QEMU_VERSION "(\d+\.\d+)', text, re.MULTILINE)[1]


def compiler(entry):
    """The words with which gcc compiles a file of the device."""
    return ["gcc", *(entry / "options").read_text().splitlines(), f"-I{BUILD}", f"-I{HERE}"]


def generate_traces(entry):
    (BUILD / "trace").mkdir(exist_ok=True)
    for kind in "ch":
        base.output(
            "python3", entry / "source/scripts/tracetool.py", "--backend=log", "--group=hw_misc_qpair",
            f"--format={kind}", HERE / "trace-events", BUILD / f"trace/{TRACE}.{kind}",
        )  # fmt: skip


def link(entry, library):
    (BUILD / "exports").write_text(EXPORTS)
    generate_traces(entry)
    base.step(
        "building the device as a plugin",
        [*compiler(entry), "-shared", "-s", "-Wl,--gc-sections", f"-Wl,--version-script={BUILD / 'exports'}",
         "-o", PLUGIN, *sorted(HERE.glob("*.c")), library],
        quiet=True,
    )  # fmt: skip


def tests():
    """The words of the tests of the plugin, with the variants that an emulator has to refuse."""
    build()
    entry = prepared()
    for source in sorted((HERE / "tests").glob("other_*.c")):
        base.output(*compiler(entry), "-shared", f"-Wl,--version-script={BUILD / 'exports'}", "-o", BUILD / f"{source.stem}.so", source)
    return [HERE / "tests/plugin.py", WRAPPER, entry / BINARY, BUILD]


def wrapper(plugin, emulator):
    """The text of the program that runs an emulator with the plugin."""
    text = (HERE / "qpair-qemu.in").read_text()
    for name, path in (("PLUGIN", plugin), ("EMULATOR", emulator)):
        text = text.replace(f"@{name}@", shlex.quote(str(path)))
    return text


def write_wrapper(entry):
    WRAPPER.write_text(wrapper(PLUGIN, entry / BINARY))
    WRAPPER.chmod(0o755)


def build():
    """Builds the plugin; returns its path. The wrapper, beside it, runs the emulator with it."""
    entry = prepared()
    BUILD.mkdir(parents=True, exist_ok=True)
    with base.locked(BUILD / "lock"):
        library = model.build()
        used = [library, entry / "options", base.SCRIPTS / "qp/plugin.py", *HERE.glob("*.[ch]"), HERE / "trace-events", HERE / "qpair-qemu.in"]
        if not PLUGIN.exists() or PLUGIN.stat().st_mtime < max(path.stat().st_mtime for path in used):
            write_wrapper(entry)
            link(entry, library)
    return PLUGIN


def emulator():
    """The path of the emulator that has the device."""
    build()
    return WRAPPER
