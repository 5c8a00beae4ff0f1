# SPDX-License-Identifier: GPL-2.0
"""The parts of scripts/* that run inside the build root: kernels, QEMU, guests, tests."""
