# SPDX-License-Identifier: GPL-2.0
"""Kernels to run, and trees to build the module in.

stock   Debian's newest amd64 image in the supported range, unmodified. Its
        header package has no Rust metadata, so the module's tree is made from
        the source package of the same version, with the configuration and the
        symbol versions of the header package.
test    the newest supported series from source: small, with KUnit.
debug   the same with every detector that sees Rust, built with LLVM, and Linux's users of fast
        registration as modules.

No patch version is fixed here, since the archive changes within weeks. The version that was found
is printed, and kept until `--update`.
"""

import argparse
import dataclasses
import pathlib
import re
import shutil

from qp import archive, base, cache


def series_of(name):
    """A kernel series defined in Kbuild."""
    found = re.search(rf"^{name} := (\d+)\.(\d+)$", (base.TOP / "Kbuild").read_text(), re.MULTILINE)
    return int(found[1]), int(found[2])


FIRST, LAST = series_of("OLDEST"), series_of("NEWEST")
RANGE = " to ".join(f"{major}.{minor}" for major, minor in sorted({FIRST, LAST}))

# Versions of the recipes below.
RECIPES = {"stock": 2, "test": 1, "debug": 1}

# Files of a source tree that no build here compiles, as patterns of tar, in which * matches a slash:
# more than half of its size. Makefiles and Kconfig files stay.
LEFT_OUT = [
    "arch/[!x]*/*.[chS]", "arch/*.dts*", "Documentation/devicetree/*.yaml", "Documentation/translations/*",
    *(f"{folder}/*.[ch]" for folder in ("drivers/accel", "drivers/clk", "drivers/gpu", "drivers/iio", "drivers/media",
        "drivers/net/wireless", "drivers/pinctrl", "drivers/staging", "sound", "tools/perf", "tools/testing")),
    "tools/perf/pmu-events/*.json",
]  # fmt: skip

CONFIGS = base.SCRIPTS / "kernel-configs"
NAMES = ("stock", "test", "debug")

# Gigabytes, measured and rounded up, of a kernel's entry in the cache, with its source.
SIZE = {"stock": 1.4, "test": 2.2, "debug": 2.4}


@dataclasses.dataclass
class Kernel:
    """A kernel that can be booted, and the tree for its modules."""

    name: str
    release: str
    image: pathlib.Path
    tree: pathlib.Path
    # The directory of its modules, if it has any.
    modules: pathlib.Path | None
    # Arguments of make besides -C tree.
    make: list[str]


def supported(release):
    match = re.match(r"(\d+)\.(\d+)", release)
    return bool(match) and FIRST <= (int(match[1]), int(match[2])) <= LAST


def numbers(text):
    return [int(number) for number in re.findall(r"\d+", text)]


def outside(what):
    return base.Fail(
        f"the archive has {what} in the supported range {RANGE}",
        "bring your own: make KDIR=/path/to/a/built/tree, scripts/guest --kernel /path/to/bzImage",
    )


def find_stock():
    """The newest image with the headers and the source of the same version."""
    archive.update()
    found = []
    for package in archive.names("linux-image-"):
        match = re.fullmatch(r"linux-image-((\d+\.\d+)\.\d+\+\w+-amd64)", package)
        if match and supported(match[1]):
            found.append((numbers(match[1]), match[1], match[2]))
    for _, release, series in sorted(found, reverse=True):
        for version in archive.versions(f"linux-image-{release}"):
            if version in archive.versions(f"linux-headers-{release}") and version in archive.versions(
                f"linux-source-{series}"
            ):
                return release, series, version
    raise outside("no installable amd64 image with its source")


def find_source():
    """The newest source package of the newest supported series."""
    archive.update()
    for series in sorted(range(FIRST[1], LAST[1] + 1), reverse=True):
        name = f"{FIRST[0]}.{series}"
        found = archive.versions(f"linux-source-{name}")
        if found:
            return name, found[0]
    raise outside("no linux-source package")


def source_folder(version):
    return base.CACHE / "source" / f"linux-{version}-{base.digest(*LEFT_OUT)}"


def source(series, version):
    """A kernel source tree, unpacked and otherwise unmodified, without what no build here compiles."""
    top = f"linux-source-{series}"
    left = [f"--exclude={top}/{pattern}" for pattern in LEFT_OUT]

    def build(folder):
        package = archive.download(f"linux-source-{series}", version)
        # A partially unpacked tree is unpacked again.
        shutil.rmtree(folder / "tree", ignore_errors=True)
        (folder / "tree").mkdir()
        base.step(
            f"unpacking linux-source {version}",
            [
                "sh", "-c",
                'set -e; dpkg-deb --fsys-tarfile "$1" | tar -xO --wildcards "./usr/src/linux-source-*.tar.xz"'
                ' | (cd "$2" && shift 2 && exec tar -xJ --strip-components=1 --anchored "$@"); test -f "$2/Makefile"; test ! -e "$2/sound/core/init.c"',
                "sh", package, folder / "tree", *left,
            ],
        )  # fmt: skip
        package.unlink()

    return cache.entry(source_folder(version), build) / "tree"


def link(path, to):
    """A symbolic link, in place of one that an interrupted build has left."""
    path.unlink(missing_ok=True)
    path.symlink_to(to)


def begun(folder, from_source):
    """The tree of an interrupted build; not of another source, since make decides by time stamps
    what to build again."""
    tree = folder / "tree"
    if (tree / "source").is_symlink() and (tree / "source").resolve() != from_source.resolve():
        shutil.rmtree(tree)
    tree.mkdir(exist_ok=True)
    return tree


def same_compiler(release, config):
    """Refuses a kernel of another compiler than the root's: its exported symbols of Rust have other
    names."""
    own, here = re.search(r'^CONFIG_RUSTC_VERSION_TEXT="(.*)"$', config, re.MULTILINE), base.output("rustc", "--version").strip()
    if not own or own[1] != here:
        raise base.Fail(
            f"{release} was built with {own[1] if own else 'no rustc'}, and the compiler of the build root is {here}",
            "use a mirror with a kernel of that compiler in its backports, or bring your own kernel: make KDIR=/path/to/a/built/tree",
        )


def build_stock(folder):
    release, series, version = find_stock()
    cache.need_space((base.CACHE, SIZE["stock"]))
    base.say(f"stock kernel: {release} ({version}), the newest of {RANGE} in the archive")
    debian = folder / "debian"
    # The image is one package in older series, several in newer ones.
    image = f"linux-image-{release}"
    parts = [name for name in archive.depends(image) if re.fullmatch(rf"linux-(base|binary|modules)-{re.escape(release)}", name)]
    packages = [archive.download(name, version) for name in (image, *parts, f"linux-headers-{release}")]
    for package in packages:
        base.step(f"unpacking {package.name}", ["dpkg-deb", "-x", package, debian], quiet=True)
    headers = debian / "usr/src" / f"linux-headers-{release}"
    same_compiler(release, (headers / ".config").read_text())
    from_source = source(series, version)
    tree = begun(folder, from_source)
    for name in (".config", "Module.symvers"):
        shutil.copyfile(headers / name, tree / name)
    make = ["make", f"-j{base.JOBS}", "-C", from_source, f"O={tree}", f"KERNELRELEASE={release}"]
    # Without the tools of Rust prepare would silently clear CONFIG_RUST. For the other kernels build_own()
    # compares the options.
    base.step("checking the tools of Rust", [*make, "rustavailable"], quiet=True)
    base.step(f"preparing the module tree of {release}", [*make, "prepare", "modules_prepare"])
    # prepare regenerates the release from the source; modules take it from this file.
    (tree / "include/config/kernel.release").write_text(release + "\n")
    shutil.copyfile(headers / "Module.symvers", tree / "Module.symvers")
    modules = next(debian.glob(f"**/lib/modules/{release}/kernel"), None)
    image = next(debian.glob(f"**/vmlinuz*"), None)
    if modules is None or image is None:
        raise base.Fail(f"the packages of {release} have no kernel in the expected place", "correct scripts/qp/kernel.py")
    # Debian's /lib is merged into /usr: pass the directory to depmod.
    base.step("listing the modules", ["depmod", "-b", modules.parents[3], release], quiet=True)
    link(folder / "modules", modules.parent)
    link(folder / "vmlinuz", image)
    (folder / "release").write_text(release)
    for package in packages:
        package.unlink()


def fragments(name):
    parts = [CONFIGS / "base.config"]
    return parts + [CONFIGS / "debug.config"] if name == "debug" else parts


def wanted(name):
    """The options of a kernel's configuration; a later fragment takes precedence."""
    options = {}
    for part in fragments(name):
        for line in part.read_text().splitlines():
            match = re.fullmatch(r"(?:# )?(CONFIG_\w+)(?:=(.*)| is not set)", line)
            if match:
                options[match[1]] = match[2] or "n"
    return options


def build_own(name, folder):
    series, version = find_source()
    cache.need_space((base.CACHE, SIZE[name]))
    base.say(f"{name} kernel: linux-source-{series} {version}, the newest of {RANGE} in the archive")
    from_source = source(series, version)
    tree = begun(folder, from_source)
    make = ["make", f"-j{base.JOBS}", "-C", from_source, f"O={tree}", *own_make(name)]
    asked = wanted(name)
    lines = (f"{key}={value}" if value != "n" else f"# {key} is not set" for key, value in asked.items())
    (folder / "asked.config").write_text("\n".join(lines) + "\n")
    base.step(
        f"configuring the {name} kernel",
        [*make, "allnoconfig"],
        env={"KCONFIG_ALLCONFIG": str(folder / "asked.config")},
    )
    got = set((tree / ".config").read_text().splitlines())
    missed = [key for key, value in asked.items() if value != "n" and f"{key}={value}" not in got]
    if missed:
        raise base.Fail(
            f"the {name} kernel cannot have {', '.join(missed)}",
            "its dependencies have changed: correct scripts/kernel-configs",
        )
    base.step(f"building the {name} kernel {version}", ["nice", *make, "bzImage", "modules"])
    link(folder / "vmlinuz", tree / "arch/x86/boot/bzImage")
    release = (tree / "include/config/kernel.release").read_text().strip()
    if "m" in asked.values():
        place = folder / "installed"
        base.step("installing the modules", [*make, f"INSTALL_MOD_PATH={place}", "modules_install"])
        link(folder / "modules", place / "lib/modules" / release)
    (folder / "release").write_text(release)


def own_make(name):
    return ["LLVM=1"] if name == "debug" else []


def folder_of(name):
    parts = [name, RANGE, RECIPES[name], base.toolchain(), *(LEFT_OUT if name == "stock" else sorted(wanted(name).items()))]
    return base.CACHE / "kernel" / f"{name}-{base.digest(*parts)}"


def get(name):
    """A kernel by its name, built if necessary."""
    build = build_stock if name == "stock" else lambda folder: build_own(name, folder)
    folder = cache.entry(folder_of(name), build)
    modules = folder / "modules"
    return Kernel(
        name=name,
        release=(folder / "release").read_text(),
        image=(folder / "vmlinuz").resolve(),
        tree=folder / "tree",
        modules=modules.resolve() if modules.exists() else None,
        make=own_make(name),
    )


def run(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/kernel", description="Download or build a kernel, and print the paths of its parts."
    )
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--tree", action="store_true", help="the tree to build modules in (make -C TREE M=...)")
    parser.add_argument("--image", action="store_true", help="the image to boot")
    parser.add_argument("--release", action="store_true", help="the output of uname -r")
    parser.add_argument("--modules", action="store_true", help="the directory of its modules, if it has one")
    parser.add_argument("--update", action="store_true", help="forget the version that was found, and search again")
    args = parser.parse_args(argv)
    if args.update:
        cache.forget(folder_of(args.name))
    kernel = get(args.name)
    shown = [key for key in ("tree", "image", "release", "modules") if getattr(args, key)]
    for key in shown or ["release", "image", "tree"]:
        print(getattr(kernel, key) or "", flush=True)


if __name__ == "__main__":
    base.main(run)
