# SPDX-License-Identifier: GPL-2.0
"""The device as a plugin of Debian 13's own QEMU, or of its backports', unmodified.

The cache has one entry of each for all checkouts: the emulator with its libraries, unpacked from
Debian's packages, and the headers that a plugin of this version needs. They are those of its source
package, and those that its configure step generates. A checkout compiles its qemu/*.c and links them
with the device's model, in build/plugin and build/plugin-backports.

If the archive lacks the source of the version in backports, the headers are those of an earlier
version of the same series, which keeps its structures: the plugin compares their sizes.

One file of QEMU 10.0 is compiled, for qemu/tests: the accelerator qtest, a module that Debian's
packages leave out. An emulator loads modules of its own build only, by a hash of its version, of its
package's and of configure, which is the same here.
"""

import dataclasses
import functools
import json
import re
import shlex
import shutil

from qp import archive, base, cache, debian, model

# Version of the recipe.
RECIPE = 1

# Which emulator runs.
CHOICE = "QPAIR_QEMU"
DISTRIBUTION = "distribution"
BACKPORTS = "backports"

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
GENERATED = ["config-poison.h", "qapi/qapi-types-common.h"]
# A file of QEMU that is compiled as the device is, for the compiler's options.
LIKE = "hw/pci/msix.c"

HERE = base.TOP / "qemu"
TRACE = "trace-hw_misc_qpair"
EXPORTS = "{ global: qemu_plugin_install; qemu_plugin_version; local: *; };\n"
# The generator of qpair_ffi.h declares each function twice.
WARNINGS = ["-Wno-redundant-decls"]

# Of backports: a source of the same series, and its digest.
SPARE = "qemu_11.1.1+ds.orig.tar.xz"
SPARE_DIGEST = "0b1376e75dbe3e2fea4e408f8669f88a723f419f36a5b7d74cc6a4cfe07e4f5e"
POOL = "pool/main/q/qemu/"

# A change to a file of QEMU: a pattern and its replacement. Debian's source lacks third-party firmware.
BLOBS = ("pc-bios/meson.build", "if unpack_edk2_blobs", "if false")
# Of QEMU 11.1, whose own tests need Python packages that are not in the build root.
EDITS = [
    ("pythondeps.toml", r'"(qemu|wheel|pip)" = .*\n', ""),
    BLOBS,
    ("pc-bios/meson.build", r"subdir\('dtb'\)", ""),
]


class OtherSeries(base.Fail):
    """The suite has a QEMU that qpair is not for."""


@dataclasses.dataclass(frozen=True)
class Emulator:
    """A QEMU of Debian 13: of which suite and series, and what ninja makes of its source."""

    name: str
    series: str
    targets: tuple

    @property
    def build(self):
        return base.TOP / ("build/plugin" if self.name == DISTRIBUTION else f"build/plugin-{self.name}")

    @property
    def plugin(self):
        return self.build / "qpair-qemu.so"

    @property
    def wrapper(self):
        return self.build / "qpair-qemu"


EMULATORS = {
    DISTRIBUTION: Emulator(DISTRIBUTION, "10.0", ("config-host.h", *GENERATED, QTEST)),
    BACKPORTS: Emulator(BACKPORTS, "11.1", tuple(GENERATED)),
}


def unpack_emulator(emulator, folder):
    """Unpacks an emulator; returns the version of its package."""
    archive.update()
    newest = archive.versions(PACKAGE)
    if not any(version.startswith(f"1:{emulator.series}.") for version in newest):
        raise other_series(emulator, newest[0] if newest else "missing")
    tree = archive.unpack_all((PACKAGE,), folder, release=debian.backports() if emulator.name == BACKPORTS else None)
    shutil.rmtree(folder / "emulator", ignore_errors=True)
    for path in RUNTIME:
        (folder / "emulator" / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).rename(folder / "emulator" / path)
    shutil.rmtree(tree)
    there = folder / "emulator"
    words = archive.program(there, f"usr/bin/{BINARY}")
    search = [word for path in FIRMWARE for word in ("-L", there / path)]
    script = folder / BINARY
    script.write_text(f'#!/bin/sh\nQEMU_MODULE_DIR={shlex.quote(str(there / MODULES))} exec {shlex.join(map(str, words + search))} "$@"\n')
    script.chmod(0o755)
    said = base.output(script, "--version").splitlines()[0]
    found = re.search(r"\(Debian (\S+)\)", said)
    if not found:
        raise base.Fail(f"{PACKAGE} is not Debian's: {said}", "use a mirror of Debian 13 in /etc/apt")
    if not found[1].startswith(f"1:{emulator.series}."):
        raise other_series(emulator, found[1])
    return found[1]


def other_series(emulator, version):
    others = ", ".join(f"{CHOICE}={name}" for name in EMULATORS if name != emulator.name)
    return OtherSeries(
        f"the QEMU of {emulator.name} is {version}, and qpair is for {emulator.series}",
        f"use {others}, or a newer qpair; or port it: EMULATORS in scripts/qp/plugin.py has the series",
    )


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


def unpack_source(name, version, package, source):
    if name == DISTRIBUTION:
        description = archive.fetch_source(f"{SOURCE}={version}", package)
    else:
        try:
            description = archive.backports_source(SOURCE, version, package)
        except base.Fail as failure:
            if failure.known not in (base.LACKS, base.GONE):
                raise
            return unpack_spare(version, package, source)
    base.step(f"unpacking {description.stem}", ["dpkg-source", "--no-check", "-x", description, source])


def unpack_spare(version, package, source):
    base.say(f"the archive has no source of {version}: the headers are those of {SPARE}")
    archive.download_file(POOL + SPARE, SPARE_DIGEST, package / SPARE)
    source.mkdir()
    base.step(f"unpacking {SPARE}", ["tar", "-xf", package / SPARE, "-C", source, "--strip-components=1"])


def edit(source, change):
    """Replaces a pattern in a file of QEMU, or without one appends a text; only once."""
    path, old, new = change
    file = source / path
    text = file.read_text()
    if new and new in text:
        return
    text, count = (text + new, 1) if old is None else re.subn(old, new, text)
    if not count:
        raise base.Fail(f"QEMU's {path} lacks {old.strip()!r}", "the source package has changed: correct scripts/qp/plugin.py or qemu.py")
    file.write_text(text)


def configure(emulator, folder, version):
    """Makes the headers."""
    whole, source, build = folder / "whole", folder / "source", folder / "build"
    for path in (whole, source, build):
        shutil.rmtree(path, ignore_errors=True)
    unpack_source(emulator.name, version, folder / "package", source)
    if emulator.name == BACKPORTS:
        for change in EDITS:
            edit(source, change)
    build.mkdir()
    base.step("configuring QEMU, for its headers", [source / "configure", *FLAGS, f"--with-pkgversion=Debian {version}"], cwd=build)
    tests = QTEST in emulator.targets
    base.step(f"generating QEMU's headers{', compiling its accelerator for tests' if tests else ''}", ["ninja", "-C", build, *emulator.targets])
    if tests:
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


def build_entry(emulator, folder):
    cache.need_space((base.CACHE, SIZE))
    version = unpack_emulator(emulator, folder)
    base.say(f"QEMU of {emulator.name}: {version}")
    configure(emulator, folder, version)


def folder(name=DISTRIBUTION):
    """The cache entry."""
    return base.CACHE / "qemu" / f"{name}-{base.digest(RECIPE, base.toolchain(), *FLAGS, *EMULATORS[name].targets)}"


def prepared(name=DISTRIBUTION):
    return cache.entry(folder(name), functools.partial(build_entry, EMULATORS[name]))


def compiler(entry, folder):
    """The words with which gcc compiles a file of the device; the path of the cache is not in the result."""
    return ["gcc", *(entry / "options").read_text().splitlines(), f"-fmacro-prefix-map={entry}/=", f"-I{folder}", f"-I{HERE}"]


def generate_traces(entry, folder):
    (folder / "trace").mkdir(exist_ok=True)
    for kind in "ch":
        base.output(
            "python3", entry / "source/scripts/tracetool.py", "--backend=log", "--group=hw_misc_qpair",
            f"--format={kind}", HERE / "trace-events", folder / f"trace/{TRACE}.{kind}",
        )  # fmt: skip


def link(emulator, entry, library):
    (emulator.build / "exports").write_text(EXPORTS)
    generate_traces(entry, emulator.build)
    base.step(
        "building the device as a plugin",
        [*compiler(entry, emulator.build), "-shared", "-s", "-Wl,--gc-sections",
         f"-Wl,--version-script={emulator.build / 'exports'}", "-o", emulator.plugin, *sorted(HERE.glob("*.c")), library],
        quiet=True,
    )  # fmt: skip


def tests(name=DISTRIBUTION):
    """The words of the tests of the plugin, with the variants that an emulator has to refuse."""
    build(name)
    entry, folder = prepared(name), EMULATORS[name].build
    for source in sorted((HERE / "tests").glob("other_*.c")):
        base.output(*compiler(entry, folder), "-shared", f"-Wl,--version-script={folder / 'exports'}", "-o", folder / f"{source.stem}.so", source)
    return [HERE / "tests/plugin.py", EMULATORS[name].wrapper, entry / BINARY, folder]


def wrapper(plugin, emulator):
    """The text of the program that runs an emulator with the plugin, or with its own of a directory."""
    text = (HERE / "qpair-qemu.in").read_text()
    for name, path in (("PLUGIN", plugin), ("EMULATOR", emulator)):
        text = text.replace(f"@{name}@", shlex.quote(str(path)))
    return text


def write_wrapper(emulator, entry):
    emulator.wrapper.write_text(wrapper(emulator.plugin, entry / BINARY))
    emulator.wrapper.chmod(0o755)


def build(name=DISTRIBUTION):
    """Builds the plugin; returns its path. The wrapper, beside it, runs the emulator with it."""
    emulator, entry = EMULATORS[name], prepared(name)
    emulator.build.mkdir(parents=True, exist_ok=True)
    with base.locked(emulator.build / "lock"):
        library = model.build()
        used = [library, entry / "options", base.SCRIPTS / "qp/plugin.py", *HERE.glob("*.[ch]"), HERE / "trace-events", HERE / "qpair-qemu.in"]
        if not emulator.plugin.exists() or emulator.plugin.stat().st_mtime < max(path.stat().st_mtime for path in used):
            write_wrapper(emulator, entry)
            link(emulator, entry, library)
    return emulator.plugin


def emulator(name=DISTRIBUTION):
    """The path of the emulator that has the device."""
    build(name)
    return EMULATORS[name].wrapper
