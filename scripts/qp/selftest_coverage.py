# SPDX-License-Identifier: GPL-2.0
"""Tests of scripts/coverage."""

import json
import os
import pathlib
import struct
import tempfile
import unittest
import unittest.mock

from qp import base, coverage, payload, provider


class Lines(unittest.TestCase):
    def test_numbers_are_ranges(self):
        self.assertEqual(coverage.ranges([7, 3, 2, 1, 9, 10]), "1-3, 7, 9-10")
        self.assertEqual(coverage.ranges([]), "")

    def test_tests_and_foreign_files_have_no_name(self):
        self.assertEqual(coverage.name_of(str(base.TOP / "rust/hw/cq.rs"), coverage.MODULE), "rust/hw/cq.rs")
        for path in ("rust/hw/tests/cq.rs", "qemu/model/src/tests.rs", "rust/kunit.rs", "proofs/model/src/lib.rs", "../x.rs"):
            self.assertIsNone(coverage.name_of(str(base.TOP / path), coverage.CRATES), path)

    def test_the_provider_s_counters_measure_the_provider_alone(self):
        for path, owners in (
            ("rust/queue/cq.rs", [coverage.MODULE, coverage.CRATES]),
            ("provider/data/src/cq.rs", [coverage.PROVIDER, coverage.CRATES]),
            ("provider/cq.c", [coverage.PROVIDER]),
            ("qemu/roce/src/lib.rs", [coverage.CRATES]),
        ):
            every = (coverage.MODULE, coverage.PROVIDER, coverage.CRATES)
            self.assertEqual([owner for owner in every if coverage.name_of(str(base.TOP / path), owner)], owners, path)

    def test_modules_of_tests_are_not_counted(self):
        text = "fn f() {\n}\n\n#[kernel::macros::kunit_tests(qpair_f)]\nmod tests {\n    fn g() {\n    }\n}\n\n#[cfg(test)]\nuse f;\nfn h() {}\n"
        self.assertEqual(coverage.without_tests(text, dict.fromkeys(range(1, 13), 0)), dict.fromkeys([1, 2, 3, 9, 10, 11, 12], 0))
        elsewhere = dict.fromkeys(range(1, 6), 0)
        self.assertEqual(coverage.without_tests("#[cfg(test)]\nmod tests;\n\nfn f() {\n}\n", elsewhere), elsewhere)

    def test_a_folder_is_one_of_the_module_or_a_crate(self):
        self.assertEqual(coverage.folder_of("rust/hw/cq.rs"), "rust/hw")
        self.assertEqual(coverage.folder_of("rust/qpair.rs"), "rust")
        self.assertEqual(coverage.folder_of("qemu/model/src/rules/mod.rs"), "qemu/model")

    def test_a_source_of_the_provider_in_c_is_one_too(self):
        self.assertEqual(coverage.folder_of("provider/cq.c"), "provider/cq.c")
        self.assertEqual(coverage.folder_of("provider/data/src/cq.rs"), "provider/data")
        self.assertEqual([coverage.part_of(name) for name in ("provider/cq.c", "provider/data", "rust/hw", "stream")], ["provider", "provider/data", "rust", None])

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


class Kept(unittest.TestCase):
    """Counters of earlier runs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        top = pathlib.Path(folder.name)
        self.guests, self.figures = top / "guests", top / "figures.json"
        for kind in ("stock", "provider"):
            (top / f"coverage-{kind}").mkdir()
        self.module = top / "coverage-stock/qpair.ko"
        self.module.write_bytes(b"one build")
        self.said = []
        found = {"rust/hw/cq.rs": {1: 1, 2: 0}, "provider/cq.c": {1: 1}}
        for patch in (
            unittest.mock.patch.multiple(coverage, GUESTS=self.guests, HOST=top / "host", LOG=top / "host/log", FIGURES=self.figures, lines=lambda: found),
            unittest.mock.patch.multiple(payload, BUILD=top),
            unittest.mock.patch.object(base, "say", self.said.append),
            unittest.mock.patch("builtins.print"),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def guest(self, layer, kind="stock"):
        """The counters of a guest of a layer."""
        folder = self.guests / layer
        folder.mkdir(parents=True, exist_ok=True)
        with unittest.mock.patch.dict(os.environ, {"QPAIR_COVERAGE": str(folder)}):
            path = payload.counters(kind, payload.counted(kind))
        path.write_bytes(b"counters")
        return path

    def test_counters_of_another_build_are_removed(self):
        path = self.guest("verbs:roce")
        self.assertEqual(coverage.fresh("stock", payload.build_of(self.module)), [path])
        self.assertEqual(self.said, [])
        self.module.write_bytes(b"another")
        later = self.guest("stock")
        self.assertEqual(coverage.fresh("stock", payload.build_of(self.module)), [later])
        self.assertEqual(len(self.said), 1)
        self.assertFalse(path.exists())

    def test_counters_of_programs_are_a_profile_already(self):
        library = payload.counted("provider")
        library.touch()
        path = self.guest("verbs:iommu", "provider")
        path.write_bytes(b"a raw profile")
        tools = [self.guests.parent / name for name in ("qpair", "missing")]
        tools[0].touch()
        with (
            unittest.mock.patch.multiple(payload, OF_LIBQPAIR=tools),
            unittest.mock.patch.multiple(coverage, OUT=self.guests.parent, merged=lambda files, kind: [file.read_bytes() for file in files]),
            unittest.mock.patch.object(provider, "library_of", lambda counts: library),
        ):
            found = [(owner, merged) for owner, _, merged in coverage.of_guests()]
            # Those of the tools are in the same file, as far as there are tools.
            self.assertEqual(found, [(owner, [b"a raw profile"]) for owner in (coverage.PROVIDER, coverage.TOOLS)])

    def store(self, figures):
        """Stores figures: {part: (layers, folders)}."""
        stored = {part: {"date": "2026-11-27", "layers": layers, "folders": folders} for part, (layers, folders) in figures.items()}
        self.figures.write_text(json.dumps(stored))

    def stored(self):
        return {part: (figures["layers"], figures["folders"]) for part, figures in json.loads(self.figures.read_text()).items()}

    def test_figures_have_what_was_counted(self):
        self.guest("stock:data")
        self.guest("verbs:roce", "provider")
        self.assertEqual(coverage.run(["--accept"]), 0)
        self.assertEqual(self.stored(), {"rust": (["stock/data"], {"rust/hw": 0.5}), "provider": (["verbs/roce"], {"provider/cq.c": 1})})

    def test_figures_of_a_failed_layer_are_not_stored(self):
        self.guest("stock")
        with unittest.mock.patch.object(coverage, "run_layers", lambda *_: 1), self.assertRaisesRegex(base.Fail, "a test failed"):
            coverage.run(["--accept", "stock"])
        self.assertFalse(self.figures.exists())

    def test_figures_of_a_part_replace_those_of_no_other(self):
        rust = (["stock"], {"rust/hw": 0.9})
        self.store({"rust": rust, "provider": (["verbs"], {"provider/cq.c": 0.7, "provider/gone.c": 0.7})})
        self.guest("verbs:iommu", "provider")
        self.assertEqual(coverage.run(["--accept", "--part", "provider"]), 0)
        self.assertEqual(self.stored(), {"rust": rust, "provider": (["verbs/iommu"], {"provider/cq.c": 1})})

    def test_figures_are_compared_once_their_layers_are_counted(self):
        self.store({"rust": (["stock/data", "verbs"], {"rust/hw": 0.9}), "provider": (["stock"], {"provider/cq.c": 1})})
        self.guest("stock")
        self.guest("stock", "provider")
        self.assertEqual(coverage.run(["--lines"]), 0)
        self.assertEqual(self.said, ["rust is not compared: its figures also count verbs"])
        self.guest("verbs")
        self.assertEqual(coverage.run(["--lines"]), 1)
        self.assertEqual(coverage.run(["--lines", "--part", "provider"]), 0)

    def test_counters_of_the_provider_are_none_of_the_module(self):
        self.store({"rust": (["verbs"], {"rust/hw": 0.9}), "provider": (["verbs"], {"provider/cq.c": 1})})
        self.guest("verbs", "provider")
        self.assertEqual(coverage.run(["--lines"]), 0)
        self.assertEqual(self.said, ["rust is not compared: its figures also count verbs"])

    def test_the_crates_count_what_they_have_alone(self):
        coverage.HOST.mkdir()
        coverage.LOG.touch()
        self.assertEqual(coverage.counted("qemu/ffi"), [])
        (coverage.HOST / "1.profraw").touch()
        self.guest("verbs")
        self.guest("stock", "tools")
        self.assertEqual({part: coverage.counted(part) for part in ("rust", "qemu/ffi", "provider/data", "provider", "tools/libqpair")},
                         {"rust": ["host", "verbs"], "qemu/ffi": ["host"], "provider/data": ["host"], "provider": [], "tools/libqpair": ["host", "stock"]})
