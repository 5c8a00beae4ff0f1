# SPDX-License-Identifier: GPL-2.0
"""Tests of qp/plugin.py: run by `scripts/check scripts`."""

import os
import pathlib
import tempfile
import unittest
from unittest import mock

from qp import archive, base, plugin, qemu

BACKPORTS = plugin.EMULATORS[plugin.BACKPORTS]


class Temporary(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def put(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path


class Sources(Temporary):
    def unpack(self, failure=None):
        """Unpacks the source of backports, whose download fails; returns the spare's downloads."""
        spare = self.enterContext(mock.patch.object(archive, "download_file"))
        self.enterContext(mock.patch.object(base, "step"))
        self.enterContext(mock.patch.object(base, "say"))
        self.enterContext(mock.patch.object(archive, "backports_source", side_effect=failure))
        plugin.unpack_source(plugin.BACKPORTS, "1:11.1.3+ds-1", self.folder, self.folder / "source")
        return spare.call_count

    def test_a_source_that_the_archive_lacks_has_a_spare(self):
        self.assertEqual(self.unpack(base.Fail(f"downloading the source failed: {base.LACKS}")), 1)

    def test_another_failure_is_told(self):
        with self.assertRaisesRegex(base.Fail, "broke off"):
            self.unpack(base.Fail("downloading the source failed: a download broke off"))

    def emulator(self, version):
        """What unpack_emulator does with an emulator of this version in backports."""
        for path in plugin.RUNTIME:
            self.put(f"tree/{path}/x", "")
        self.enterContext(mock.patch.object(archive, "unpack_all", return_value=self.folder / "tree"))
        self.enterContext(mock.patch.object(base, "output", return_value=f"QEMU emulator version {version} (Debian 1:{version}+ds-1)\n"))
        return plugin.unpack_emulator(BACKPORTS, self.folder)

    def test_an_emulator_of_another_series_is_refused_when_it_is_unpacked(self):
        with self.assertRaises(base.Fail) as failure:
            self.emulator("11.2.0")
        self.assertEqual(str(failure.exception), "the QEMU of backports is 1:11.2.0+ds-1, and qpair is for 11.1")
        self.assertIn("QPAIR_QEMU=distribution", failure.exception.remedy)

    def test_an_emulator_of_the_series_has_the_version_of_its_package(self):
        self.assertEqual(self.emulator("11.1.9"), "1:11.1.9+ds-1")


class Choice(unittest.TestCase):
    def test_there_is_no_plugin_for_the_patched_emulator(self):
        for words, variable in ((["--plugin"], qemu.PATCHED), (["--plugin", "--patched"], ""), (["--plugin", "--plain"], "")):
            with mock.patch.dict(os.environ, {plugin.CHOICE: variable}), mock.patch.object(plugin, "build") as build:
                with self.assertRaisesRegex(base.Fail, "needs no plugin") as failure:
                    qemu.run(words)
                self.assertIn("QPAIR_QEMU=distribution or backports", failure.exception.remedy)
                build.assert_not_called()

    def test_the_plugin_is_that_of_the_choice(self):
        for variable in ("", *plugin.EMULATORS):
            with mock.patch.dict(os.environ, {plugin.CHOICE: variable}), mock.patch.object(plugin, "build") as build, mock.patch("builtins.print"):
                qemu.run(["--plugin"])
                build.assert_called_once_with(variable or plugin.DISTRIBUTION)
