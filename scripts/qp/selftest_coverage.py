# SPDX-License-Identifier: GPL-2.0
"""Tests of scripts/coverage."""

import pathlib
import struct
import tempfile
import unittest
import unittest.mock

from qp import base, coverage


class Lines(unittest.TestCase):
    def test_numbers_are_ranges(self):
        self.assertEqual(coverage.ranges([7, 3, 2, 1, 9, 10]), "1-3, 7, 9-10")
        self.assertEqual(coverage.ranges([]), "")

    def test_tests_and_foreign_files_have_no_name(self):
        self.assertEqual(coverage.name_of(str(base.TOP / "rust/hw/cq.rs")), "rust/hw/cq.rs")
        for path in ("rust/hw/tests/cq.rs", "qemu/model/src/tests.rs", "proofs/model/src/lib.rs", "../x.rs"):
            self.assertIsNone(coverage.name_of(str(base.TOP / path)), path)

    def test_a_folder_is_one_of_the_module_or_a_crate(self):
        self.assertEqual(coverage.folder_of("rust/hw/cq.rs"), "rust/hw")
        self.assertEqual(coverage.folder_of("rust/qpair.rs"), "rust")
        self.assertEqual(coverage.folder_of("qemu/model/src/rules/mod.rs"), "qemu/model")

    def test_the_sum_of_the_folders_is_last(self):
        found = {"rust/hw/cq.rs": {1: 0, 2: 5}, "tools/libqpair/src/lib.rs": {4: 1}, "rust/qpair.rs": {1: 1}}
        folders = coverage.table(found)
        self.assertEqual(folders, {"rust": [1, 1], "rust/hw": [2, 1], "tools/libqpair": [1, 1], "all": [4, 3]})
        self.assertEqual(list(folders)[-1], "all")

    def test_a_folder_that_falls_by_more_than_one_hundredth_is_named(self):
        before = {"rust/hw": 0.95, "rust/life": 0.9, "gone": 0.5}
        self.assertEqual(len(coverage.fallen({"rust/hw": 0.945, "rust/life": 0.88}, before)), 2)
        self.assertEqual(coverage.fallen({"rust/hw": 0.96, "rust/life": 0.9, "gone": 0.5}, before), [])


class Profile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)

        def extract(*words):
            words[-1].write_bytes(b"names")

        self.patches = unittest.mock.patch.multiple(coverage, OUT=self.out)
        self.patches.start()
        self.addCleanup(self.patches.stop)
        output = unittest.mock.patch.object(base, "output", extract)
        output.start()
        self.addCleanup(output.stop)

    def test_a_guest_s_counters_are_a_raw_profile(self):
        data, counts = bytes(2 * coverage.RECORD), struct.pack("<3Q", 7, 0, 1)
        raw = coverage.profile(struct.pack("<4Q", 0x1000, len(data), 0x1800, len(counts)) + data + counts, "m.ko")
        header = struct.unpack_from("<16Q", raw)
        self.assertEqual(header[:4], (coverage.MAGIC, coverage.VERSION, 0, 2))
        self.assertEqual((header[5], header[9], header[10]), (3, 5, 0x800))
        self.assertEqual(raw[128:], data + counts + b"names\0\0\0")

    def test_incomplete_counters_are_refused(self):
        with self.assertRaises(base.Fail):
            coverage.profile(struct.pack("<4Q", 0x1000, 64, 0x1800, 8) + bytes(64), "m.ko")
