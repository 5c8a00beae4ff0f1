# SPDX-License-Identifier: GPL-2.0
"""What scripts/* run inside the build root: kernels, QEMU, guests, tests."""
