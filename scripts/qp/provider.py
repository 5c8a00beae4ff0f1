# SPDX-License-Identifier: GPL-2.0
"""The provider of rdma-core: libqpair-rdmavN.so, which libibverbs loads for a device of the module.

The interface between libibverbs and its providers is private to rdma-core: its headers are in no
package, and N is the version of this interface. So the headers are taken from the source of
rdma-core in Debian's own version, whose library is linked.

The cache has the source, its headers as a provider includes them, and the library. The provider is
built from provider/ into build/provider: the data path by cargo, the rest by gcc, or by clang with
counters.
"""

import argparse
import pathlib
import re
import shutil

from qp import archive, base, cache, crates, payload

# Version of the recipe.
RECIPE = 1

SOURCE = "rdma-core"
LIBRARY = "libibverbs1"

# Where a provider includes the headers of a directory of the source.
HEADERS = {
    "ccan": "ccan",
    "kernel-headers/rdma": "rdma",
    "libibverbs": "infiniband",
    "util": "util",
}
# Headers that are published under a second name.
SECOND = {"kernel-headers/rdma/ib_user_ioctl_verbs.h": "infiniband/ib_user_ioctl_verbs.h"}
# The template of config.h, and the values that headers use. 3 selects both ways to call the kernel.
CONFIG = "buildlib/config.h.in"
VALUES = {"IOCTL_MODE_NUM": "3"}
# Makes macros of the structures of a kernel's header.
MACROS = "buildlib/make_abi_structs.py"
CORE_ABI = "kernel-headers/rdma/ib_user_verbs.h"
EXPORTS = "buildlib/provider.map"

HERE = base.TOP / "provider"
OWN_ABI = base.TOP / "include/uapi/rdma/qpair-abi.h"
BUILD, COUNTED = base.TOP / "build/provider", base.TOP / "build/coverage-provider"

# The package of the data path, its library, and the structures of libibverbs that it accesses.
PACKAGE = "qpair-verbs"
STATIC = "libqpair_verbs.a"
STRUCTURES = (
    "ibv_(sge|send_wr|recv_wr|wc|data_buf|poll_cq_attr|qp_ex|cq_ex)",
    "ibv_(access_flags|send_flags|wc_flags|qp_create_send_ops_flags|create_cq_wc_flags|qp_state)",
    "qpair_(qp|cq|ah|srq)",
)

# The provider's C with LLVM's counters of what runs (scripts/coverage), as payload.COUNTERS are for Rust.
# The runtime of both is rustc's: with -Xclang the driver of clang adds no other.
COUNTERS_OF_C = [
    "-Xclang", "-fprofile-instrument=clang", "-Xclang", "-fcoverage-mapping", "-mllvm", "-runtime-counter-relocation",
    "-Wl,-u,__llvm_profile_runtime", "-Wno-gnu-variable-sized-type-not-at-end",
]  # fmt: skip
RUNTIME = "libprofiler_builtins-*.rlib"

FLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
LINKED = ["-shared", "-Wl,-Bsymbolic", "-Wl,--no-undefined", "-Wl,--allow-shlib-undefined", "-Wl,--gc-sections"]


def interface(source):
    """The version of the interface between libibverbs and its providers."""
    found = re.search(r'set\(IBVERBS_PABI_VERSION "(\d+)"\)', (source / "CMakeLists.txt").read_text())
    if not found:
        raise base.Fail(
            f"{SOURCE}'s CMakeLists.txt sets no IBVERBS_PABI_VERSION",
            "the source package has changed: correct scripts/qp/provider.py",
        )
    return found[1]


def config(source):
    """config.h, with what the compilers of the root have."""
    values = {**VALUES, "IBVERBS_PABI_VERSION": interface(source)}
    text = re.sub(r"^#cmakedefine (\w+) 1$", r"#define \1 1", (source / CONFIG).read_text(), flags=re.MULTILINE)
    return re.sub(r"@(\w+)@", lambda found: values.get(found[1], ""), text)


def publish(source, include):
    """Makes the directory that a provider includes."""
    shutil.rmtree(include, ignore_errors=True)
    for there, name in HEADERS.items():
        (include / name).mkdir(parents=True)
        for header in sorted((source / there).glob("*.h")):
            shutil.copyfile(header, include / name / header.name)
    for there, name in SECOND.items():
        shutil.copyfile(source / there, include / name)
    (include / "config.h").write_text(config(source))
    macros(source, source / CORE_ABI, include)


def macros(source, header, include):
    """Makes the macros of a kernel's header."""
    (include / "kernel-abi").mkdir(parents=True, exist_ok=True)
    base.output("python3", source / MACROS, header, include / "kernel-abi" / header.name)


def build_source(folder):
    cache.need_space((base.CACHE, 0.2))
    archive.update()
    tarball = archive.fetch_source(SOURCE, folder / "package", "orig.tar.*", "--tar-only")
    source = folder / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    base.step(f"unpacking {tarball.name}", ["tar", "-xf", tarball, "-C", source, "--strip-components=1"], quiet=True)
    version = archive.versions(LIBRARY)[0]
    upstream = re.search(r"_([\d.]+)\.orig", tarball.name)
    if not upstream or not version.startswith(f"{upstream[1]}-"):
        raise base.Fail(
            f"the archive has {LIBRARY} {version} and {tarball.name}, of another version",
            "use a complete mirror of Debian 13 in /etc/apt",
        )
    package = archive.download(LIBRARY, version)
    base.step(f"unpacking {package.name}", ["dpkg-deb", "-x", package, folder / "library"], quiet=True)
    publish(source, folder / "include")
    base.say(f"rdma-core: {version}, interface {interface(source)}")
    package.unlink()
    shutil.rmtree(folder / "package")


def fetched():
    """The cache entry of rdma-core: source, include and library."""
    key = base.digest(RECIPE, CONFIG, VALUES, *HEADERS.items(), *SECOND.items())
    return cache.entry(base.CACHE / "rdma-core" / key, build_source)


def includes(folder):
    own = BUILD / "include"
    macros(folder / "source", OWN_ABI, own)
    return ["-I", HERE, "-I", base.TOP / "include/uapi", "-I", own, "-I", folder / "include"]


def bindings(folder):
    """The structures that the data path accesses, in Rust; written only if they change, for
    cargo."""
    path = BUILD / "bindings.rs"
    text = base.output(
        "bindgen", HERE / "qpair.h", "--no-layout-tests", "--no-doc-comments", "--no-prepend-enum-name",
        "--default-macro-constant-type", "signed",
        *(word for name in STRUCTURES for word in ("--allowlist-type", name)),
        "--", *includes(folder),
    )  # fmt: skip
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def environment(folder):
    """The environment in which cargo finds the structures."""
    return {"QPAIR_VERBS_BINDINGS": str(bindings(folder))}


def data_path(folder, counts):
    """The static library of the data path."""
    with crates.target(place(counts).name) as target:
        base.step(
            "building the data path of the provider",
            ["nice", "cargo", "build", "--profile", "provider", "--locked", "--package", PACKAGE,
             "--features", "provider", "--target-dir", target],
            cwd=base.TOP,
            env=environment(folder) | ({"RUSTFLAGS": payload.COUNTERS} if counts else {}),
            quiet=True,
        )  # fmt: skip
    return target / "provider" / STATIC


def to_link():
    """The words with which gcc builds a program for libibverbs."""
    folder = fetched()
    return ["-I", folder / "include", "-Wl,--allow-shlib-undefined", shared_library(folder)]


def version(folder):
    """The upstream version of the rdma-core whose headers these are."""
    text = (folder / "source/CMakeLists.txt").read_text()
    return re.search(r'set\(PACKAGE_VERSION "([\d.]+)"\)', text)[1]


def shared_library(folder):
    return next((folder / "library").glob("**/libibverbs.so.1"))


def place(counts):
    """Where the provider is built, with counters or without."""
    return COUNTED if counts else BUILD


def library_of(counts):
    """The path of the library that build() builds."""
    return place(counts) / f"libqpair-rdmav{interface(fetched() / 'source')}.so"


def compiler(counts):
    """The compiler of the part in C with its flags, and what it links besides."""
    if not counts:
        return ["gcc"], []
    runtime = next(pathlib.Path(base.output("rustc", "--print", "target-libdir").strip()).glob(RUNTIME), None)
    if not runtime:
        raise base.Fail(
            f"rustc lacks the library of counters, {RUNTIME}",
            "use Debian's package rustc, which has it: install it in QPAIR_ROOT, or unset that to have a build root created",
        )
    return ["clang", *COUNTERS_OF_C], [runtime]


def build(counts=False):
    """Builds the provider; returns the path of its library. The file for /etc/libibverbs.d is
    beside it."""
    folder, library = fetched(), library_of(counts)
    BUILD.mkdir(parents=True, exist_ok=True)
    # Two commands may build it at a time.
    with base.locked(BUILD / "lock"):
        static = data_path(folder, counts)
        sources = sorted(HERE.glob("*.c"))
        used = [*sources, *HERE.glob("*.h"), OWN_ABI, static, base.SCRIPTS / "qp/provider.py"]
        if not library.exists() or library.stat().st_mtime < max(path.stat().st_mtime for path in used):
            words, runtime = compiler(counts)
            base.step(
                "building the provider",
                [*words, *FLAGS, *includes(folder), *LINKED, f"-Wl,--version-script={folder / 'source' / EXPORTS}",
                 "-o", library, *sources, static, *runtime, shared_library(folder)],
                quiet=True,
            )  # fmt: skip
        library.with_name("qpair.driver").write_text("driver qpair\n")
    return library


def run(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/provider", description="Build the provider of rdma-core, and print the path of its library."
    )
    parser.add_argument("--source", action="store_true", help="print the directory of rdma-core's source instead")
    args = parser.parse_args(argv)
    if args.source:
        print(fetched() / "source")
        return 0
    print(build())
    return 0


if __name__ == "__main__":
    base.main(run)
