# SPDX-License-Identifier: GPL-2.0
"""Tests of qp/plugin.py, and of the choice of a plugin in the package qpair-qemu: run by `scripts/check scripts`."""

import os
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

from qp import archive, base, debs, plugin, qemu

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


class Wrapper(Temporary):
    """qpair-qemu with a directory of plugins, and an emulator that prints its words."""

    def setUp(self):
        super().setUp()
        for series in ("10.0", "11.1"):
            self.put(f"lib/qpair-qemu-{series}.so", "")
        self.wrapper = self.put("qpair-qemu", plugin.wrapper(self.folder / "lib", plugin.BINARY))

    def emulator(self, said, status=0):
        self.put(f"bin/{plugin.BINARY}", f'#!/bin/sh\n[ "$*" != --version ] || {{ echo "{said}"; exit {status}; }}\necho "$*"\n')

    def run_with(self, *words):
        done = subprocess.run(["/bin/sh", self.wrapper, *words], env={"PATH": f"{self.folder}/bin:/bin"}, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def test_the_plugin_is_that_of_the_emulator(self):
        for version in ("10.0.0", "10.0.13 (Debian 1:10.0.13+ds-0+deb13u1)", "11.1.3 (Debian 1:11.1.3+ds-1~bpo13+1)", "11.1.0-rc2"):
            self.emulator(f"QEMU emulator version {version}\nCopyright (c) 2003-2026 Fabrice Bellard")
            file = f"{self.folder}/lib/qpair-qemu-{version[:4]}.so"
            self.assertEqual(self.run_with("-S", "-m", "1G"), (0, f"-plugin {file} -S -m 1G\n", ""))
            self.assertEqual(self.run_with("-device", "qpair,help"), (0, f"-plugin {file},help=qpair\n", ""))

    def test_help_names_the_plugin_before_that_of_the_emulator(self):
        self.emulator("QEMU emulator version 11.1.3")
        for word in ("-h", "-help", "--help"):
            status, text, errors = self.run_with(word)
            self.assertRegex(text, rf"^usage: qpair-qemu (?s:.*)/lib/qpair-qemu-11\.1\.so\n(?s:.*)\n-plugin \S+ {word}\n$")
            self.assertEqual((status, errors), (0, ""))

    def refused(self, cause, remedy):
        status, text, errors = self.run_with("-S")
        self.assertEqual((status, text), (1, ""))
        self.assertRegex(errors, rf"^qpair-qemu: error: {cause}\nqpair-qemu: remedy: {remedy}\n$")

    def test_other_versions_are_refused_with_cause_and_remedy(self):
        remedy = "apt install qemu-system-x86 of Debian 13 or of its backports, or a newer qpair-qemu"
        for version in ("9.2.4", "10.1.0", "11.0.2", "11.10.1", "1.1.0", "110.0.1"):
            self.emulator(f"QEMU emulator version {version} (x)")
            self.refused(rf"{self.folder}/bin/{plugin.BINARY} is QEMU {version}, and the plugins are for QEMU 10\.0 and 11\.1", remedy)
        for said, status in (("", 0), ("", 127), ("no such option", 1)):
            self.emulator(said, status)
            self.refused(".* is QEMU of an unknown version, and .*", remedy)

    def test_a_missing_emulator_is_named(self):
        self.refused("there is no program qemu-system-x86_64", "apt install qemu-system-x86")

    def test_one_plugin_needs_no_version(self):
        file = self.put("one.so", "")
        self.wrapper.write_text(plugin.wrapper(file, plugin.BINARY))
        self.emulator("", 1)
        self.assertEqual(self.run_with("-S"), (0, f"-plugin {file} -S\n", ""))


class Dependency(unittest.TestCase):
    """What dpkg makes of the dependency on QEMU."""

    PROGRAM = "use Dpkg::Deps; my $facts = Dpkg::Deps::KnownFacts->new;" \
        "$facts->add_installed_package('qemu-system-x86', $ARGV[1], 'amd64', 'foreign');" \
        "print deps_parse($ARGV[0], host_arch => 'amd64')->get_evaluation($facts) ? 'yes' : 'no'"

    def test_one_of_the_series_satisfies_it(self):
        for series, fine, others in (
            (["10.0"], ["10.0.2", "10.0~rc1"], ["9.2.1", "10.1.0", "10.1~rc1", "11.1.0"]),
            (["10.0", "11.1"], ["10.0.13", "11.1.3", "11.1~rc2"], ["9.2.4", "10.1.0", "10.1~rc1", "10.2.1", "11.0.9", "11.2.0", "11.2~rc0", "11.10.0"]),
            (["9.9", "10.0", "11.1"], ["9.9.1", "10.0.13", "11.1.3"], ["9.8.9", "9.10.0", "10.1.0", "11.0.9", "11.2.0"]),
        ):
            text = debs.depends_on_qemu(series)
            for version in (*fine, *others):
                said = base.output("perl", "-e", self.PROGRAM, text, f"1:{version}+ds-1~bpo13+1")
                self.assertEqual(said, "yes" if version in fine else "no", f"{version}: {text}")


class Sources(Temporary):
    def unpack(self, failure=None):
        """Unpacks the source of backports, whose download fails; returns the spare's downloads."""
        spare = self.enterContext(mock.patch.object(archive, "download_file"))
        self.enterContext(mock.patch.object(base, "step"))
        self.enterContext(mock.patch.object(base, "say"))
        self.enterContext(mock.patch.object(archive, "backports_source", side_effect=failure))
        plugin.unpack_source(plugin.BACKPORTS, "1:11.1.3+ds-1", self.folder, pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / "source")
        return spare.call_count

    def test_a_source_that_the_archive_lacks_has_a_spare(self):
        for known in (base.LACKS, base.GONE):
            self.assertEqual(self.unpack(base.Fail("downloading the source failed", known=known)), 1)

    def test_another_failure_is_told(self):
        with self.assertRaisesRegex(base.Fail, "broke off"):
            self.unpack(base.Fail("downloading the source failed: a download broke off", known="a download broke off"))

    def test_backports_are_found_in_the_lists_of_the_cache(self):
        line = "http://mirror/debian/|trixie-backports|main|$(SIGNED_BY)\n"
        output = self.enterContext(mock.patch.object(base, "output", return_value=line))
        self.assertEqual(archive.backports(), [["http://mirror/debian/", "trixie-backports", "main", ""]])
        self.assertIn(f"Dir::State::Lists={archive.LISTS}/lists", output.call_args.args)
        output.return_value = ""
        self.assertRaisesRegex(base.Fail, "no backports", archive.backports)

    def emulator(self, version, archived=None):
        """What unpack_emulator does with an emulator of this version in backports, of which the archive
        has this version."""
        self.enterContext(mock.patch.object(archive, "update"))
        self.enterContext(mock.patch.object(archive, "versions", return_value=[f"1:{archived or version}+ds-1"]))
        for path in plugin.RUNTIME:
            self.put(f"tree/{path}/x", "")
        self.enterContext(mock.patch.object(archive, "unpack_all", return_value=self.folder / "tree"))
        self.enterContext(mock.patch.object(base, "output", return_value=f"QEMU emulator version {version} (Debian 1:{version}+ds-1)\n"))
        return plugin.unpack_emulator(BACKPORTS, self.folder)

    def test_an_emulator_of_another_series_is_refused_when_it_is_unpacked(self):
        with self.assertRaises(plugin.OtherSeries) as failure:
            self.emulator("11.2.0", archived="11.1.9")
        self.assertEqual(str(failure.exception), "the QEMU of backports is 1:11.2.0+ds-1, and qpair is for 11.1")
        self.assertIn("QPAIR_QEMU=distribution", failure.exception.remedy)

    def test_an_archive_of_another_series_is_refused_before_a_download(self):
        with self.assertRaisesRegex(plugin.OtherSeries, "is 1:11.2.0"):
            self.emulator("11.2.0")
        archive.unpack_all.assert_not_called()

    def test_an_emulator_of_the_series_has_the_version_of_its_package(self):
        self.assertEqual(self.emulator("11.1.9"), "1:11.1.9+ds-1")

    def packaged(self, build):
        self.enterContext(mock.patch.object(base, "TOP", self.folder))
        self.put("build/x", "")
        self.enterContext(mock.patch.object(base, "say"))
        self.enterContext(mock.patch.object(plugin, "build", side_effect=build))
        return debs.of_qemu()

    def test_a_suite_of_another_series_has_no_plugin_in_the_package(self):
        contents = self.packaged([self.folder / "a.so", plugin.OtherSeries("backports has 11.2")])
        self.assertEqual([name for name in contents.files if name.endswith(".so")], [f"usr/lib/{debs.TRIPLET}/qpair/qpair-qemu-10.0.so"])
        self.assertEqual(contents.values["qemu_depends"], "qemu-system-x86 (>= 1:10.0~), qemu-system-x86 (<< 1:10.1~)")
        self.assertIn("11.2", base.say.call_args.args[0])
        contents = self.packaged([plugin.OtherSeries("Debian has 10.1"), self.folder / "a.so"])
        self.assertEqual(contents.values["qemu_depends"], "qemu-system-x86 (>= 1:11.1~), qemu-system-x86 (<< 1:11.2~)")

    def test_a_package_without_any_plugin_is_refused(self):
        self.assertRaisesRegex(base.Fail, "no QEMU", self.packaged, [plugin.OtherSeries("a"), plugin.OtherSeries("b")])


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
