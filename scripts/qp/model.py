# SPDX-License-Identifier: GPL-2.0
"""The device's model: a static library, linked into QEMU or into the plugin."""

from qp import base, crates

PACKAGE = "qpair-ffi"
LIBRARY = "libqpair_ffi.a"
PROFILE = "device"


def build():
    """Builds the library; returns its path."""
    with crates.target("model") as target:
        base.step(
            "building the device model",
            ["nice", "cargo", "build", "--profile", PROFILE, "--locked", "--package", PACKAGE, "--target-dir", target],
            cwd=base.TOP,
            quiet=True,
        )
    return target / PROFILE / LIBRARY
