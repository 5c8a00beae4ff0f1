# SPDX-License-Identifier: GPL-2.0
"""Systems that are made of Debian's packages alone, by mmdebstrap, in the cache."""

import pathlib
import re

from qp import base, cache

# Version of the recipe.
RECIPE = 1

# Gigabytes of a system, that of the compilers.
SIZE = 2


def suite():
    return re.search(r"^VERSION_CODENAME=(\w+)$", pathlib.Path("/etc/os-release").read_text(), re.MULTILINE)[1]


def backports():
    return f"{suite()}-backports"


def newer(package):
    """A package of backports; what it needs of newer versions has to be named too."""
    return f"{package}/{backports()}"


def kernel(release, part="image"):
    """A package of a kernel."""
    return newer(f"linux-{part}-{release}")


def system(name, packages, finish=lambda folder: None):
    """The cache entry of a Debian with some packages; its tree, and what `finish` adds to the entry."""

    def build(folder):
        cache.need_space((base.CACHE, SIZE))
        tree = folder / "tree"
        cache.discard(tree)
        lists = [path for path in [pathlib.Path("/etc/apt/sources.list"), *sorted(pathlib.Path("/etc/apt/sources.list.d").iterdir())] if path.exists()]
        settings = [word for path in sorted(pathlib.Path("/etc/apt/apt.conf.d").glob("99*")) for word in (f"--aptopt={path}",)]
        base.step(
            f"installing a Debian with {', '.join(packages)}",
            ["mmdebstrap", "--variant=apt", f"--include={','.join(packages)}", *settings, "--aptopt=APT::Install-Recommends \"false\"",
             "--dpkgopt=path-exclude=/usr/share/locale/*", suite(), tree, *lists],
            log=base.LOGS / f"debian-{name}",
        )  # fmt: skip
        finish(folder)

    return cache.entry(base.CACHE / "debian" / f"{name}-{base.digest(RECIPE, *packages)}", build)
