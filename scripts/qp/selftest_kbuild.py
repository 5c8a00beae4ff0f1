# SPDX-License-Identifier: GPL-2.0
"""Tests of what Kbuild refuses: run by `scripts/check scripts`."""

import subprocess
import unittest

from qp import base, kernel, payload


class Kbuild(unittest.TestCase):
    def said(self, major, minor, *options):
        """Kbuild's output for a kernel series, and a configuration, without a build."""
        command = ["make", "-n", "-f", base.TOP / "Kbuild", f"VERSION={major}", f"PATCHLEVEL={minor}", *options]
        return subprocess.run(command, capture_output=True, text=True).stderr

    def test_kbuild_refuses_an_older_kernel_and_warns_of_a_newer_one(self):
        (first, oldest), (last, newest) = kernel.FIRST, kernel.LAST
        for series in ((first, oldest), (last, newest)):
            self.assertNotIn("qpair:", self.said(*series))
        for series in ((first, oldest - 1), (first - 1, 99)):
            self.assertRegex(self.said(*series), r"qpair: error: Linux .* is older .*; remedy: ")
        for series in ((last, newest + 1), (last, 10 * newest), (last + 1, 0)):
            said = self.said(*series)
            self.assertRegex(said, r"qpair: warning: Linux .* is newer")
            # It is shown with the compiler's warnings.
            self.assertTrue(payload.WARNING.search(said))

    def test_kbuild_refuses_a_kernel_without_an_option_or_of_another_compiler(self):
        options = [f"CONFIG_{name}=y" for name in ("RUST", "INFINIBAND", "INFINIBAND_USER_ACCESS")]
        series, fine = kernel.LAST, ["CONFIG_MODULES=y", "CONFIG_RUSTC_VERSION_TEXT=rustc 1 (x)", "RUSTC=echo 'rustc 1 (x)' #"]
        self.assertNotIn("qpair:", self.said(*series, *fine, *options))
        for option in options:
            said = self.said(*series, *fine, *(other for other in options if other != option))
            self.assertIn(f"qpair: error: the kernel was built without {option[:-2]}; remedy: ", said)
        said = self.said(*series, *options, *fine[:2], "RUSTC=echo rustc 2 #")
        self.assertIn('qpair: error: the kernel was built with rustc 1 (x), and the compiler is rustc 2; remedy: ', said)
