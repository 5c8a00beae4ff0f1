# SPDX-License-Identifier: GPL-2.0
"""Tests of what Kbuild, scripts/kdir, scripts/kernel and make modules_install refuse: run by `scripts/check scripts`."""

import pathlib
import subprocess
import tempfile
import unittest
import unittest.mock

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


class Compiler(unittest.TestCase):
    def test_a_stock_kernel_of_another_compiler_is_refused(self):
        with unittest.mock.patch.object(base, "output", lambda *_: "rustc 1.85.1 (x)\n"):
            kernel.same_compiler("7.3.4", 'CONFIG_RUSTC_VERSION_TEXT="rustc 1.85.1 (x)"\n')
            for config, cause in (('CONFIG_RUSTC_VERSION_TEXT="rustc 1.86.0 (y)"\n', "built with rustc 1.86.0 .y., and"), ("CONFIG_RUST=n\n", "built with no rustc")):
                with self.assertRaisesRegex(base.Fail, cause):
                    kernel.same_compiler("7.3.4", config)


class Trees(unittest.TestCase):
    """scripts/kdir, and make modules_install, with trees of a few files."""

    def setUp(self):
        self.tree = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(dir="/tmp")))

    def put(self, name, text=""):
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def refused(self, cause, remedy, folder=""):
        done = subprocess.run([base.SCRIPTS / "kdir", self.tree / folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, base.OWN_FAILURE)
        self.assertRegex(done.stderr, f"qpair: error: KDIR={self.tree}.*{cause}.*\nqpair: remedy: {remedy}")

    def test_what_is_no_tree_for_modules_is_refused(self):
        self.refused("no such directory", "name the tree", "none")
        self.refused("is no kernel's tree", "name the tree")
        self.put("Kconfig")
        self.refused("the source of a kernel that was not built", f"scripts/in-root make -C {self.tree}")
        self.put("include/config/kernel.release", "7.3.9\n")
        self.put("Module.symvers")
        self.put("include/config/auto.conf", "CONFIG_RUST=y\n")
        self.refused("without the metadata of Rust's crates", "name the tree.*; for Debian's kernel")
        self.put("rust/libkernel.rmeta")
        subprocess.run([base.SCRIPTS / "kdir", self.tree], check=True)

    def test_modules_of_another_kernel_are_not_installed(self):
        self.put("include/config/kernel.release", "7.3.9\n")
        for name in ("qpair.ko", "qpair-stream.ko"):
            self.put(f"modules/{name}", "\0license=GPL\0vermagic=7.3.4+deb13-amd64 SMP \0")
        words = ["make", "modules_install", f"MODULE_OUT={self.tree / 'modules'}", f"INSTALL_MOD_PATH={self.tree}", "kdir_is_built=true"]
        for release, fine in (("7.3.9", False), ("7.3.4+deb13-amd64", True)):
            self.put("include/config/kernel.release", f"{release}\n")
            done = subprocess.run([*words, f"KDIR={self.tree}"], cwd=base.TOP, capture_output=True, text=True)
            self.assertEqual((self.tree / f"lib/modules/{release}/updates/qpair.ko").exists(), fine, done.stderr)
            self.assertEqual("is for 7.3.4+deb13-amd64, not for 7.3.9; remedy: make modules KDIR=" in done.stderr, not fine)
