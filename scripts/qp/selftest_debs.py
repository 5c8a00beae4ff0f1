# SPDX-License-Identifier: GPL-2.0
"""Tests of qp/debs.py: run by `scripts/check scripts`."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import tomllib
import unittest
from unittest import mock

from qp import base, debs, payload

VALUES = {"version": "1.0", "author": "A <a@example.org>", "epoch": 0, "year": 1970, "release": "7.3.4-x", "rdma_core": "56.1", "rdma_core_next": 57, "interface": 34, "qemu": "10.0 and 11.1", "qemu_depends": "qemu-system-x86 (>= 1:10.0~)", "oldest": "7.3", "newest": "7.4"}


class Debs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_bad_version_is_refused_with_cause_and_remedy(self):
        for bad in ("", "v1", "1.0-1", "1 0", "1:0", "../1", "1.0\n"):
            with self.assertRaises(base.Fail) as failure:
                debs.run([f"--version={bad}"])
            self.assertRegex(str(failure.exception), "not a version")
            self.assertIn("digit", failure.exception.remedy)

    def test_a_directory_with_other_files_is_not_replaced(self):
        (self.folder / "qpair-tools_1_amd64.deb").touch()
        self.assertEqual(debs.ours(self.folder), self.folder)
        self.assertEqual(debs.ours(self.folder / "new"), self.folder / "new")
        (self.folder / "thesis.txt").touch()
        for bad in (self.folder, self.folder / "thesis.txt"):
            with self.assertRaises(base.Fail) as failure:
                debs.run([f"--output={bad}"])
            self.assertRegex(str(failure.exception), "other files")

    def test_sources_without_a_date_are_refused(self):
        with mock.patch.dict(os.environ), mock.patch.object(base, "TOP", self.folder):
            os.environ.pop("SOURCE_DATE_EPOCH", None)
            with self.assertRaises(base.Fail) as failure:
                debs.date()
            self.assertIn("SOURCE_DATE_EPOCH", failure.exception.remedy)
            os.environ["SOURCE_DATE_EPOCH"] = "yesterday"
            self.assertRaises(base.Fail, debs.date)
            os.environ["SOURCE_DATE_EPOCH"] = "12"
            self.assertEqual(debs.date(), "12")

    def test_each_package_of_the_table_has_files_and_a_control_file_without_gaps(self):
        table = tomllib.loads((debs.HERE / "packages.toml").read_text())
        self.assertEqual(set(table), set(debs.PACKAGES))
        for key, entry in table.items():
            text = debs.control(key, entry, VALUES, ["libc6"], 1)
            self.assertNotRegex(text, r"@\w+@|: ?\n")
            for line in text.splitlines():
                self.assertRegex(line, r"^([A-Z][A-Za-z-]+: | )\S")
                self.assertLessEqual(len(line), 80 if line.startswith(" ") else 999)

    def test_files_have_modes_that_do_not_depend_on_the_user(self):
        script = self.folder / "script"
        script.write_text("#!/bin/sh\n")
        script.chmod(0o700)
        debs.put(self.folder / "root", {"usr/bin/a": b"x", "usr/share/b": b"y", "usr/src/c": script}, VALUES)
        modes = {path.name: path.stat().st_mode & 0o777 for path in (self.folder / "root").rglob("*") if path.is_file()}
        self.assertEqual(modes, {"a": 0o755, "b": 0o644, "c": 0o755})

    def test_a_build_that_fails_leaves_the_packages_of_the_last(self):
        out = self.folder / "build/packages"
        out.mkdir(parents=True)
        (out / "old.deb").touch()
        with mock.patch.dict(os.environ, SOURCE_DATE_EPOCH="0"), mock.patch.object(debs, "pack", side_effect=KeyboardInterrupt):
            self.assertRaises(KeyboardInterrupt, debs.build, "1.0", out)
        self.assertEqual([path.name for path in out.parent.iterdir()], ["packages"])
        self.assertEqual([path.name for path in out.iterdir()], ["old.deb"])


RELEASE = "7.3.4+deb13-amd64"
SOURCE = "linux-source-7.3"
COMPILER = "rustc 1.85.1 (4eb161250 2025-03-15)"
CONFIG = f'CONFIG_RUST=y\nCONFIG_RUSTC_VERSION_TEXT="{COMPILER}"\nCONFIG_INFINIBAND=m\nCONFIG_INFINIBAND_USER_ACCESS=m\n'


class Examples(unittest.TestCase):
    def test_a_program_is_built_if_it_is_older_than_its_source_or_a_header(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        source, header, program = folder / "a.c", folder / "b.h", folder / "c/a"
        step = self.enterContext(mock.patch.object(base, "step"))
        self.enterContext(mock.patch.object(base, "TOP", folder))
        self.enterContext(mock.patch.object(payload, "BUILD", folder))
        program.parent.mkdir()
        for path in (source, header, program):
            path.touch()
        for times, builds in (((1, 1, 2), False), ((3, 1, 2), True), ((1, 3, 2), True)):
            for path, seconds in zip((source, header, program), times):
                os.utime(path, (seconds, seconds))
            step.reset_mock()
            self.assertEqual(payload.c_program(source, []), program)
            self.assertEqual(step.called, builds, times)


class ModuleTree(unittest.TestCase):
    """packaging/module-tree, in a directory in place of /."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.script = self.put(f"usr/src/qpair-{VALUES['version']}/module-tree", self.here("module-tree"))
        for name in ("sort", "sed", "tr", "cat", "awk"):
            self.put(f"bin/{name}", "").unlink()
            (self.root / "bin" / name).symlink_to(shutil.which(name))
        for name, line in {"bindgen": "", "rustc": f"echo '{COMPILER}'", "dpkg-query": f"cat {self.root}/versions/$4", "df": f"cat {self.root}/space"}.items():
            self.put(f"bin/{name}", f"#!/bin/sh\n{line}\n")
        for name in (f"linux-headers-{RELEASE}", SOURCE):
            self.put(f"versions/{name}", "7.3.4-1")
        self.put("space", "Filesystem 1M-blocks Used Available\n/dev/vda 9000 8000 1000\n")
        self.config = self.put(f"lib/modules/{RELEASE}/build/.config", CONFIG)
        self.put(f"usr/src/{SOURCE}.tar.xz", "")

    def here(self, name):
        """A file of the package with its paths below the directory."""
        return re.sub(r"(?<!\w)/(?=(lib|usr/src|var/cache)/)", f"{self.root}/", debs.filled((debs.HERE / name).read_text(), VALUES))

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def run_in(self, *words, **env):
        return subprocess.run(words, env={"PATH": str(self.root / "bin"), **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def check(self, release=RELEASE):
        done = self.run_in("/bin/sh", self.script, "--check", release)
        return done.returncode, done.stdout

    def refused(self, cause, remedy, release=RELEASE):
        self.assertEqual(self.check(release), (1, f"qpair-dkms: no modules for {release}: {cause}\nqpair-dkms: remedy: {remedy}\n"))

    def test_a_kernel_of_debian_with_its_source_is_served(self):
        self.assertEqual(self.check(), (0, ""))

    def test_other_series_are_refused(self):
        for release in ("6.12.1-amd64", "7.2.9-amd64", "unknown"):
            self.refused("it is older than Linux 7.3", "install a newer kernel, from Debian's backports", release)
        for release in ("7.5.0-amd64", "7.10.0-amd64", "8.0.0"):
            self.refused("it is newer than Linux 7.4", "install a newer qpair-dkms", release)

    def test_a_kernel_without_headers_or_an_option_is_refused(self):
        for name in ("RUST", "INFINIBAND", "INFINIBAND_USER_ACCESS"):
            self.config.write_text(re.sub(f"(CONFIG_{name})=.*", r"# \1 is not set", CONFIG))
            self.refused(f"it has no CONFIG_{name}", "use a kernel of Debian, or one with that option")
        self.config.unlink()
        self.refused("its headers are missing", f"apt install linux-headers-{RELEASE}")

    def test_a_program_that_is_missing_is_named(self):
        for name in ("rustc", "bindgen"):
            (self.root / "bin" / name).unlink()
            self.refused(f"the program {name} is missing", f"apt install {name}")

    def test_another_compiler_than_that_of_the_kernel_is_refused(self):
        for name in ("rustc 1.84.9 (x)", "rustc 1.85.2 (x)", "rustc 1.100.0 (x)"):
            self.put("bin/rustc", f"#!/bin/sh\necho '{name}'\n")
            self.refused(f"it was built with {COMPILER}, and the compiler is {name}", "install that compiler")

    def test_a_source_that_is_missing_or_of_another_version_is_refused(self):
        cause = "its source, for the metadata of Rust that its headers lack, is not installed"
        remedy = f"apt install {SOURCE}=7.3.4-1"
        self.put(f"versions/{SOURCE}", "7.3.4-2")
        self.refused(cause, remedy)
        self.put(f"versions/{SOURCE}", "7.3.4-1")
        (self.root / f"usr/src/{SOURCE}.tar.xz").unlink()
        self.refused(cause, remedy)

    def test_a_disk_that_is_full_is_refused(self):
        self.put("space", "Filesystem 1M-blocks Used Available\n/dev/vda 9000 8001 999\n")
        self.refused("its tree needs 1000 MB in /var/cache", "free some space, then dpkg-reconfigure qpair-dkms")

    def test_a_tree_that_was_made_needs_neither_source_nor_space(self):
        state = self.put(f"var/cache/qpair/{RELEASE}/state", "7.3.4-1\n")
        (self.root / f"usr/src/{SOURCE}.tar.xz").unlink()
        self.put("space", "Filesystem 1M-blocks Used Available\n/dev/vda 9000 9000 0\n")
        self.assertEqual(self.check(), (0, ""))
        # Headers of another version have other symbols.
        state.write_text("7.3.4-2\n")
        self.assertEqual(self.check()[0], 1)

    def make(self, status=0):
        """Makes modules, with a make that counts its runs and ends with a status."""
        for name in ("mkdir", "rm", "cp", "nproc"):
            if not (self.root / "bin" / name).exists():
                (self.root / "bin" / name).symlink_to(shutil.which(name))
        line = f'echo "$*" >>{self.root}/made; for word; do case $word in O=*) mkdir -p "${{word#O=}}/include/config" ;; esac; done; exit {status}'
        self.put("bin/tar", "#!/bin/sh\n")
        self.put("bin/make", f"#!/bin/sh\n{line}\n")
        self.put(f"lib/modules/{RELEASE}/build/Module.symvers", "")
        made = self.put("made", "")
        status = self.run_in("/bin/sh", self.script, "--make", RELEASE).returncode
        return status, [line.split()[-1] for line in made.read_text().splitlines()]

    def test_a_tree_is_made_once_and_those_of_kernels_that_are_gone_are_removed(self):
        trees = self.root / "var/cache/qpair"
        other = "7.3.5+deb13-amd64"
        for release in (other, "7.3.1+deb13-amd64"):
            self.put(f"var/cache/qpair/{release}/state", "")
        self.put(f"lib/modules/{other}/build/.config", "")
        self.assertEqual(self.make(), (0, ["rustavailable", "modules_prepare", "modules"]))
        self.assertEqual({path.name for path in trees.iterdir()}, {RELEASE, other})
        self.assertEqual((trees / RELEASE / "tree/include/config/kernel.release").read_text(), f"{RELEASE}\n")
        self.assertEqual(self.make(), (0, ["modules"]))

    def test_a_tree_that_cannot_be_made_leaves_nothing(self):
        self.assertEqual(self.make(status=2), (2, ["rustavailable"]))
        self.assertEqual(list((self.root / "var/cache/qpair").iterdir()), [])

    def test_headers_with_metadata_need_their_compiler_alone(self):
        shutil.rmtree(self.root / "versions")
        self.refused("its headers have no metadata of Rust, and belong to no package", "keep the tree of its build, as its headers")
        for name in ("libkernel.rmeta", "bindings/.bindings_generated.rs.cmd"):
            self.put(f"lib/modules/{RELEASE}/build/rust/{name}", "")
        self.assertEqual(self.check(), (0, ""))
        self.put("bin/rustc", "#!/bin/sh\necho 'rustc 1.86.0 (x)'\n")
        self.refused(f"it was built with {COMPILER}, and the compiler is rustc 1.86.0 (x)", "install that compiler")

    def test_dkms_skips_a_kernel_that_is_refused(self):
        conf = self.put("dkms.conf", self.here("dkms.conf"))
        for release, printed in {RELEASE: "any", "6.12.1-amd64": "^$", "": "any"}.items():
            done = self.run_in(shutil.which("bash"), "-c", f"set -e; . {conf} 2>/dev/null; echo ${{BUILD_EXCLUSIVE_KERNEL-any}}", kernelver=release)
            self.assertEqual((done.returncode, done.stdout), (0, f"{printed}\n"))
