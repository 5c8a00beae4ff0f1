# SPDX-License-Identifier: GPL-2.0
"""Tests of qp/debs.py: run by `scripts/check scripts`."""

import os
import pathlib
import tempfile
import tomllib
import unittest
from unittest import mock

from qp import base, debs

VALUES = {"version": "1.0", "author": "A <a@example.org>", "epoch": 0, "year": 1970, "release": "7.3.4-x", "rdma_core": "56.1", "rdma_core_next": 57, "interface": 34, "qemu": "10.0", "qemu_next": "10.1", "oldest": "7.3", "newest": "7.3"}


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
                self.assertLessEqual(len(line), 81 if line.startswith(" ") else 999)

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
