# SPDX-License-Identifier: GPL-2.0
"""Debian's archive: its current versions, and downloads.

This module runs the root's apt with package lists of its own in the cache: the root is read-only
and its lists become outdated, since versions leave the archive within weeks.
"""

import functools
import os
import re
import shutil

from qp import base

# Of unpacked packages.
LOADER = "usr/lib64/ld-linux-x86-64.so.2"
LIBRARIES = "usr/lib/x86_64-linux-gnu"

LISTS = base.CACHE / "apt"
DOWNLOADS = base.CACHE / "download"

OPTIONS = [
    "-o", f"Dir::State::Lists={LISTS}/lists",
    "-o", f"Dir::Cache={LISTS}/cache",
    "-o", "Dir::Cache::srcpkgcache=",
    "-o", "Acquire::GzipIndexes=true",
    "-o", "Debug::NoLocking=1",
    "-o", "APT::Sandbox::User=root",
    "-o", "Acquire::Languages=none",
    "-o", "Acquire::Retries=3",
]  # fmt: skip


@functools.cache
def update():
    """Reads the lists, once in a run."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (LISTS / folder).mkdir(parents=True, exist_ok=True)
    with base.locked(LISTS / "lock"):
        base.step("reading the package archive's lists", ["apt-get", *OPTIONS, "update", "--error-on=any"])


def names(prefix):
    return base.output("apt-cache", *OPTIONS, "pkgnames", prefix).split()


def versions(package):
    """The versions of a package that can be downloaded, newest first."""
    text = base.output("apt-cache", *OPTIONS, "madison", package)
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    return [row[1] for row in rows if row[0] == package and row[2].endswith("Packages")]


def depends(package):
    """The names of the packages that the newest version of a package needs."""
    text = base.output("apt-cache", *OPTIONS, "show", "--no-all-versions", package)
    match = re.search(r"^Depends: (.*)$", text, re.MULTILINE)
    return re.findall(r"[^,| ()]+(?=[,| (]|$)", match[1]) if match else []


def download(package, version):
    """The path of a package's file, which is downloaded if it does not exist."""
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    pattern = re.compile(rf"{re.escape(package)}_{re.escape(version).replace(':', '%3a')}_\w+\.deb")

    def find():
        return next((DOWNLOADS / name for name in os.listdir(DOWNLOADS) if pattern.fullmatch(name)), None)

    # apt-get completes a partial download, and verifies the checksum of the file, also if an
    # earlier run left it.
    base.step(
        f"downloading {package} {version}",
        ["apt-get", *OPTIONS, "download", f"{package}={version}"],
        cwd=DOWNLOADS,
        quiet=find() is not None,
    )
    path = find()
    if path is None:
        raise base.Fail(f"apt-get downloaded no {package} {version}")
    return path


def fetch_source(package, folder, part="dsc", *options):
    """Downloads a source package of the root's own release (NAME or NAME=VERSION), or a part of it;
    returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    base.step(
        f"downloading the source of {package}",
        ["apt-get", *OPTIONS, "source", "--download-only", "--only-source", *options, package],
        cwd=folder,
    )
    found = sorted(folder.glob(f"{package.partition('=')[0]}_*.{part}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise base.Fail(f"apt-get downloaded no source of {package}")
    return found[-1]


# A package that apt takes for installed, of a version that satisfies all dependencies.
INSTALLED = """\
Package: {name}
Status: install ok installed
Version: 99:0
Architecture: amd64
Maintainer: qpair
Description: not here

"""


def backports_source(package, version, folder):
    """Downloads a source package of backports, which the root's lists do not have; returns its path."""
    lines = [f"deb-src {f'[signed-by={key}] ' if key else ''}{address} {suite} {part}\n" for address, suite, part, key in backports()]
    (folder / "lists/partial").mkdir(parents=True, exist_ok=True)
    (folder / "sources.list").write_text("".join(lines))
    only = [
        "-o", f"Dir::Etc::SourceList={folder}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
        "-o", f"Dir::State::Lists={folder}/lists",
    ]  # fmt: skip
    base.step("reading the lists of backports' sources", ["apt-get", *OPTIONS, *only, "update", "--error-on=any"])
    return fetch_source(f"{package}={version}", folder, "dsc", *only)


def backports():
    """Address, suite, component and key of the root's backports; the lists have been read."""
    text = base.output("apt-get", *OPTIONS, "indextargets", "--format", "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(SIGNED_BY)", "Created-By: Packages")
    # A field without a value is printed by its name.
    found = [re.sub(r"\$\(.*", "", line).split("|") for line in text.splitlines() if "-backports|" in line]
    if not found:
        raise base.Fail("the build root has no backports", "remove the root, which scripts/root --path prints, to have another created")
    return found


def download_file(path, digest, target):
    """Downloads a file of the archive that has this digest, by its path in the archive."""
    base.step(
        f"downloading {target.name}",
        ["/usr/lib/apt/apt-helper", "-o", "APT::Sandbox::User=root", "download-file", backports()[0][0] + path, target, f"SHA256:{digest}"],
    )  # fmt: skip


def unpack_all(packages, folder, without=(), release=None):
    """Unpacks packages with all their dependencies, except those in `without` and what only they
    need; returns the directory. Their scripts do not run."""
    status = folder / "status"
    status.write_text("".join(INSTALLED.format(name=name) for name in without))
    downloads = folder / "archives"
    (downloads / "partial").mkdir(parents=True, exist_ok=True)
    update()
    base.step(
        f"downloading {', '.join(packages)}",
        # As on a machine without any other package, so that apt downloads all dependencies.
        ["apt-get", *OPTIONS, "-o", f"Dir::State::status={status}", "-o", f"Dir::Cache::archives={downloads}",
         "-o", "APT::Install-Recommends=false", *(["-t", release] if release else []), "--yes", "--download-only", "install", *packages],
        log=base.LOGS / "downloading-packages",
    )  # fmt: skip
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for package in sorted(downloads.glob("*.deb")):
        base.step(f"unpacking {package.name}", ["dpkg-deb", "-x", package, tree], quiet=True)
    shutil.rmtree(downloads)
    status.unlink()
    return tree


def program(tree, path):
    """The words that run a program from its unpacked packages."""
    return [tree / LOADER, "--library-path", tree / LIBRARIES, tree / path]
