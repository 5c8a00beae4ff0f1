# SPDX-License-Identifier: GPL-2.0
"""Tests of qp/image.py: run by `scripts/check scripts`."""

import collections
import os
import pathlib
import struct
import tempfile
import unittest
from unittest import mock

from qp import base, cache, image

RELEASE = "7.3.4-x"
NAMES = (f"qpair-modules-{RELEASE}_1_amd64.deb", "qpair-provider_1_amd64.deb", "qpair-tools_1_amd64.deb")


class Images(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        kernel = mock.patch.object(image.kernels, "get", return_value=mock.Mock(release=RELEASE))
        kernel.start()
        self.addCleanup(kernel.stop)

    def refused(self, cause, remedy, packages=".", output="out/a.qcow2"):
        with self.assertRaises(base.Fail) as failure:
            image.run([f"--packages={self.folder / packages}", f"--output={self.folder / output}"])
        self.assertIn(cause, str(failure.exception))
        self.assertIn(remedy, failure.exception.remedy)
        self.assertFalse(list(self.folder.glob("out/*")))

    def test_packages_are_one_of_each_and_for_the_kernel(self):
        self.refused("no qpair-modules", "make packages")
        for name in ("qpair-modules-7.3.3-x_1_amd64.deb", *NAMES[1:]):
            (self.folder / name).touch()
        self.refused(f"no qpair-modules-{RELEASE}", "make packages")
        (self.folder / NAMES[0]).touch()
        self.assertEqual([path.name for path in image.of_guests(self.folder)], list(NAMES))
        (self.folder / "qpair-tools_2_amd64.deb").touch()
        self.refused("several qpair-tools", "make packages")

    def test_a_directory_that_there_is_not_is_named(self):
        self.refused(f"--packages {self.folder}/none: no such directory", "build/packages", packages="none")
        (self.folder / "file").touch()
        self.refused(f"{self.folder}/file/out cannot be made", "a directory that exists", output="file/out/a.qcow2")

    def test_a_full_disk_is_refused_before_anything_is_made(self):
        for name in NAMES:
            (self.folder / name).touch()
        usage = collections.namedtuple("usage", "free")
        with mock.patch.object(cache.shutil, "disk_usage", return_value=usage(1e9)), mock.patch.object(cache, "prune"):
            self.refused("this takes 1.3", "larger disk")

    def test_a_run_that_is_interrupted_leaves_the_disk_of_the_last(self):
        output = self.folder / "a.qcow2"
        output.write_text("old")
        with mock.patch.object(image, "make_tree", side_effect=KeyboardInterrupt):
            self.assertRaises(KeyboardInterrupt, image.build, [], output)
        self.assertEqual(os.listdir(self.folder), ["a.qcow2"])
        self.assertEqual(output.read_text(), "old")

    def test_the_sectors_before_the_partition(self):
        made = image.boot_sectors(b"\1" * 512, b"\2" * 1000)
        self.assertEqual((made[:446], made[462:510], made[510:]), (b"\1" * 446, bytes(48), b"\x55\xaa" + b"\2" * 1000))
        active, _, kind, _, first, size = struct.unpack("<B3sB3sII", made[446:462])
        self.assertEqual((active, kind, first, first + size), (0x80, 0x83, 2048, 3 << 21))
        self.assertRaises(base.Fail, image.boot_sectors, b"\1" * 511, b"")
        self.assertRaises(base.Fail, image.boot_sectors, b"\1" * 512, bytes(2047 * 512 + 1))

    def test_the_documents_have_its_command_and_its_first_test(self):
        for name in ("README.md", "Documentation/install.rst"):
            text = (base.TOP / name).read_text()
            for line in (image.COMMAND, image.TEST):
                self.assertIn(line, text, name)
