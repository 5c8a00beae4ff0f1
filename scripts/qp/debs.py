# SPDX-License-Identifier: GPL-2.0
"""Makes the Debian packages, in build/packages.

packaging/packages.toml lists them. Each is a tree of files that dpkg-deb packs, with a control file
from that table.

The same commit gives the same bytes in each checkout: all is built with the checkout, and with
cargo's home, mounted at one place, in a mount namespace, and with a build directory of its own
(build/debs). Only the path of the cache remains in the modules.
"""

import argparse
import dataclasses
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib

from qp import base, cache, crates, intree, kernel as kernels, model, payload, plugin, provider

HERE = base.TOP / "packaging"

# Where checkout and cargo's home are mounted, and what says that they are.
PLACE = "/run/qpair-packages"
MOUNTED = "QPAIR_MOUNTED"

# Gigabytes of build/debs, measured and rounded up.
SIZE = 0.6

ARCHITECTURE = "amd64"
TRIPLET = "x86_64-linux-gnu"
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: qpair

Files: *
Copyright: @year@ @author@
License: GPL-2

License: GPL-2
 This program is free software; you can redistribute it and/or modify it under
 the terms of version 2 of the GNU General Public License as published by the
 Free Software Foundation.
 .
 On Debian systems its text is in /usr/share/common-licenses/GPL-2.
"""
VERSION = r"[0-9][A-Za-z0-9.+~]*"


@dataclasses.dataclass
class Contents:
    """The files of a package: {path: a file, or its contents}; and values for its texts."""

    files: dict
    values: dict = dataclasses.field(default_factory=dict)
    # The cargo package that is linked into them.
    crate: str = ""


def of_provider():
    library, folder = provider.build(), provider.fetched()
    version = provider.version(folder)
    major = version.partition(".")[0]
    files = {
        f"usr/lib/{TRIPLET}/libibverbs/{library.name}": library,
        "etc/libibverbs.d/qpair.driver": library.with_name("qpair.driver"),
    }
    values = {"rdma_core": version, "rdma_core_next": int(major) + 1, "interface": provider.interface(folder / "source")}
    return Contents(files, values, provider.PACKAGE)


def cargo(name, *words):
    """A command of cargo for the package of the tool; returns the directory of its results."""
    with crates.target("tools") as target:
        base.step(name, ["nice", "cargo", *words[:1], "--locked", "--release", "--package", "qpair-tool", "--target-dir", target, *words[1:]], cwd=base.TOP, quiet=True)
    return target / "release"


def of_tools():
    texts = base.TOP / "build/manual"
    shutil.rmtree(texts, ignore_errors=True)
    texts.mkdir(parents=True)
    files = {"usr/bin/qpair": cargo("building the tool", "build", "--bin", "qpair") / "qpair"}
    cargo("making its manual pages", "run", "--example", "manual", "--", str(texts))
    files |= {f"usr/share/man/man1/{page.name}.gz": packed(page.read_bytes()) for page in sorted(texts.glob("*.1"))}
    files["usr/share/bash-completion/completions/qpair"] = texts / "qpair.bash"
    files["usr/share/zsh/vendor-completions/_qpair"] = texts / "_qpair"
    files["usr/share/fish/vendor_completions.d/qpair.fish"] = texts / "qpair.fish"
    files["usr/include/rdma/qpair-abi.h"] = provider.OWN_ABI
    files |= {f"usr/include/qpair/{header.name}": header for header in sorted((base.TOP / "include/qpair").glob("*.h"))}
    files |= {f"usr/share/doc/qpair-tools/examples/{source.name}": source for source in sorted((base.TOP / "tools/examples").glob("*.[ch]"))}
    return Contents(files, crate="qpair-tool")


def of_modules():
    kernel = kernels.get("stock")
    module = payload.module(kernel, strict=False)
    modules = (module, module.with_name(payload.STREAM))
    return Contents({f"usr/lib/modules/{kernel.release}/updates/{path.name}": path for path in modules}, {"release": kernel.release})


def depends_on_qemu(series):
    """The dependency on QEMU of one of the series: dpkg's is a conjunction of alternatives."""
    name = plugin.PACKAGE
    ends = [f"{major}.{int(minor) + 1}" for major, minor in (each.split(".") for each in series)]
    gaps = [f"{name} (<< 1:{end}~) | {name} (>= 1:{start}~)" for end, start in zip(ends, series[1:])]
    return ", ".join([f"{name} (>= 1:{series[0]}~)", *gaps, f"{name} (<< 1:{ends[-1]}~)"])


def of_qemu():
    folder, plugins = f"usr/lib/{TRIPLET}/qpair", {}
    for name, emulator in plugin.EMULATORS.items():
        try:
            plugins[emulator.series] = plugin.build(name)
        except plugin.OtherSeries as failure:
            base.say(f"no plugin for QEMU {emulator.series} in the package: {failure}")
    if not plugins:
        raise base.Fail("the archive has no QEMU that qpair is for", "use a mirror of Debian 13 in /etc/apt")
    values = {"qemu": " and ".join(plugins), "qemu_depends": depends_on_qemu([*plugins]), "folder": folder}
    manual = base.TOP / "build/qpair-qemu.rst"
    manual.write_text(filled((HERE / manual.name).read_text(), values))
    files = {
        **{f"{folder}/qpair-qemu-{series}.so": path for series, path in plugins.items()},
        "usr/bin/qpair-qemu": plugin.wrapper(f"/{folder}", plugin.BINARY).encode(),
        "usr/share/man/man1/qpair-qemu.1.gz": packed(base.output("rst2man", manual).encode()),
    }
    return Contents(files, values, model.PACKAGE)


def of_dkms():
    folder = "usr/src/qpair-@version@"
    names = ["Kbuild", "scripts/bindgen-rdma", *(f"{part}/**/*.{kind}" for part in ("rust", "stream") for kind in ("rs", "c", "h"))]
    sources = sorted(path for name in names for path in base.TOP.glob(name))
    files = {f"{folder}/{path.relative_to(base.TOP)}": path for path in sources}
    files |= {f"{folder}/{name}": HERE / name for name in ("dkms.conf", "module-tree")}
    first, last = (".".join(map(str, series)) for series in (kernels.FIRST, kernels.LAST))
    return Contents(files, {"oldest": first, "newest": last})


PACKAGES = {"qpair-provider": of_provider, "qpair-tools": of_tools, "qpair-modules": of_modules, "qpair-qemu": of_qemu, "qpair-dkms": of_dkms}


def packed(data):
    return gzip.compress(data, mtime=0)


def filled(text, values):
    """A text with values for names between @."""
    return re.sub(r"@(\w+)@", lambda found: str(values[found[1]]), text)


def put(root, files, values):
    """Writes the files of a package; programs without what a debugger needs."""
    for name, source in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = source if isinstance(source, bytes) else source.read_bytes()
        # Values of the texts beside the table.
        own = isinstance(source, pathlib.Path) and source.parent == HERE
        path.write_bytes(filled(data.decode(), values).encode() if own else data)
        runs = name.startswith("usr/bin/") or isinstance(source, pathlib.Path) and source.suffix == "" and os.access(source, os.X_OK)
        path.chmod(0o755 if runs else 0o644)
        if is_binary(path):
            what = ["--strip-debug"] if path.suffix == ".ko" else ["--strip-unneeded", "--remove-section=.comment", "--remove-section=.note"]
            base.output("strip", *what, path)


def is_binary(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries(stage, root):
    """The dependencies on shared libraries that the root has; the others are in the table."""
    binaries = [path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix != ".ko" and is_binary(path)]
    if not binaries:
        return []
    (stage / "debian").mkdir(exist_ok=True)
    (stage / "debian/control").write_text("Source: qpair\n\nPackage: qpair\nArchitecture: any\n")
    search = provider.shared_library(provider.fetched()).parent
    said = base.output("dpkg-shlibdeps", "-O", "--ignore-missing-info", f"-l{search}", *(f"-e{path}" for path in binaries), cwd=stage)
    return said.strip().removeprefix("shlibs:Depends=").split(", ")


def control(name, entry, values, depends, size):
    fields = {
        "Package": name,
        "Source": "qpair",
        "Version": values["version"],
        "Architecture": entry.get("architecture", ARCHITECTURE),
        "Maintainer": values["author"],
        "Installed-Size": size,
        "Section": entry["section"],
        "Priority": "optional",
        "Depends": ", ".join(depends),
        **{key.capitalize(): ", ".join(entry.get(key, [])) for key in ("recommends", "provides", "conflicts")},
        "Description": entry["summary"],
    }
    lines = [f"{key}: {value}" for key, value in fields.items() if value]
    return filled("\n".join([*lines, *(f" {line}" for line in entry["description"].strip().splitlines())]) + "\n", values)


def copyright(crate, values):
    """The terms of a package, with the crates of the registry that are linked into it."""
    text = filled(COPYRIGHT, values)
    if not crate:
        return text
    said = base.output("cargo", "tree", "--locked", "--package", crate, "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p} ({l})", cwd=base.TOP)
    listed = sorted({line.removesuffix(" (*)") for line in said.splitlines() if "(/" not in line})
    return text + "".join(["\nComment:\n Crates that are linked into it, and their terms:\n", *(f"  {line}\n" for line in listed)]) if listed else text


def changelog(values):
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(values["epoch"]))
    return f"qpair ({values['version']}) unstable; urgency=medium\n\n  * Built from qpair's sources.\n\n -- {values['author']}  {date}\n"


def pack(key, entry, stage, values):
    """Packs a package; its file is in the directory of the stage."""
    contents = PACKAGES[key]()
    values = values | contents.values
    name = filled(entry.get("name", key), values)
    documents = f"usr/share/doc/{name}"
    contents.files[f"{documents}/changelog.gz"] = packed(changelog(values).encode())
    contents.files[f"{documents}/copyright"] = copyright(contents.crate, values).encode()
    root = stage / name
    put(root, {filled(name, values): source for name, source in contents.files.items()}, values)
    meta = root / "DEBIAN"
    meta.mkdir()
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    size = sum(-(-path.stat().st_size // 1024) for path in paths)
    names = {str(path.relative_to(root)): path for path in paths}
    (meta / "md5sums").write_text("".join(f"{hashlib.md5(path.read_bytes()).hexdigest()}  {name}\n" for name, path in names.items()))
    settings = [f"/{name}\n" for name in names if name.startswith("etc/")]
    if settings:
        (meta / "conffiles").write_text("".join(settings))
    for part in sorted(HERE.glob(f"{key}.[pt]*")):
        (meta / part.suffix[1:]).write_text(filled(part.read_text(), values))
        (meta / part.suffix[1:]).chmod(0o644 if part.suffix == ".triggers" else 0o755)
    (meta / "control").write_text(control(name, entry, values, [*libraries(stage, root), *entry.get("depends", [])], size))
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)
    # More threads would give other bytes.
    base.output("dpkg-deb", "--root-owner-group", "--threads-max=1", "-Zxz", "--build", root, stage)
    shutil.rmtree(root)


def ours(out):
    """Refuses to replace a directory with other files."""
    others = [path.name for path in out.iterdir() if not (path.name.startswith("qpair-") and path.suffix == ".deb")] if out.is_dir() else []
    if others or out.exists() and not out.is_dir():
        raise base.Fail(f"--output {out} has other files, and would be replaced: {', '.join(others[:3])}", "name a new directory")
    return out


def build(version, out):
    """Makes the packages in a directory, all or none."""
    cache.need_space((base.TOP, SIZE))
    stage = out.with_name(f".{out.name}.qpair")
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    values = {"version": version, "epoch": epoch, "author": intree.author(), "year": time.gmtime(epoch).tm_year}
    try:
        for key, entry in tomllib.loads((HERE / "packages.toml").read_text()).items():
            pack(key, entry, stage, values)
        shutil.rmtree(stage / "debian", ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
        stage.rename(out)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    for path in sorted(out.iterdir()):
        print(path)


def date():
    """The time of the sources: that of the last commit."""
    found = os.environ.get("SOURCE_DATE_EPOCH")
    if found is None:
        said = subprocess.run(["git", "-C", base.TOP, "log", "-1", "--format=%ct"], capture_output=True, text=True)
        found = said.stdout.strip()
    if not re.fullmatch(r"\d+", found):
        raise base.Fail("the date of the sources is not known: this is no git checkout", "set SOURCE_DATE_EPOCH to seconds since 1970")
    return found


def placed(version, out):
    """Runs `build` with checkout and cargo's home mounted at their place."""
    home = pathlib.Path(os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo")
    own = base.TOP / "build/debs"
    for folder in (home, own, base.LOGS):
        folder.mkdir(parents=True, exist_ok=True)
    mounts = {"source": base.TOP, "cargo": home, "source/build": own}
    script = " && ".join(
        [f"mkdir -p {PLACE}/source {PLACE}/cargo", *(f'mount --bind "${number}" {PLACE}/{name}' for number, name in enumerate(mounts, 1))]
        + [f"shift {len(mounts)}", 'exec "$@"']
    )
    env = {
        **os.environ,
        "QPAIR_TOP": f"{PLACE}/source",
        "QPAIR_LOGS": str(base.LOGS),
        "CARGO_HOME": f"{PLACE}/cargo",
        "SOURCE_DATE_EPOCH": date(),
        MOUNTED: "yes",
    }
    words = ["unshare", "--mount", "sh", "-c", script, "sh", *mounts.values(), sys.executable, "-P", "-m", "qp.debs", "--version", version, "--output", out]
    with base.locked(own / "lock"), base.started(words, env=env) as process:
        return process.wait()


def run(argv):
    parser = argparse.ArgumentParser(prog="make packages", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    there = tomllib.loads((base.TOP / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    parser.add_argument("--version", default=there, help=f"the packages' version ({there})")
    parser.add_argument("--output", type=pathlib.Path, default=base.TOP / "build/packages", metavar="DIR", help="where they are made (build/packages)")
    args = parser.parse_args(argv)
    if not re.fullmatch(VERSION, args.version):
        raise base.Fail(f"{args.version!r} is not a version of a package", "begin with a digit, and use letters, digits, '.', '+' and '~'")
    out = ours(args.output.resolve())
    return build(args.version, out) if MOUNTED in os.environ else placed(args.version, out)


if __name__ == "__main__":
    base.main(run)
