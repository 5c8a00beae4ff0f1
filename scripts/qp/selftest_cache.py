# SPDX-License-Identifier: GPL-2.0
"""Tests of the removal of cache entries, and of the check for disk space: run with those of
qp/selftest.py."""

import fcntl
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from qp import base, cache, crates, kernel as kernels, plugin, qemu, space


class Sandbox(unittest.TestCase):
    """A cache of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name)
        self.said = []
        self.patch(base, CACHE=self.top / "cache", say=self.said.append)
        self.addCleanup(self.let_go)

    def patch(self, what, **values):
        patch = mock.patch.multiple(what, **values)
        patch.start()
        self.addCleanup(patch.stop)

    def let_go(self):
        while cache.USED:
            cache.USED.popitem()[1].close()


class Cache(Sandbox):
    def setUp(self):
        super().setUp()
        self.here = self.top / "here"
        self.here.mkdir()

    def put(self, name, checkout=None, days=0.0, complete=True, used=None):
        """Creates an entry that was built some days ago, and last used some days ago."""
        folder = base.CACHE / name
        folder.mkdir(parents=True)
        (folder / "data").write_bytes(bytes(1 << 20))
        cache.lock_of(folder).touch()
        if checkout:
            (folder / "checkout").write_text(f"{checkout}\n")
        if complete:
            (folder / ".complete").touch()
        if used is not None:
            (folder / ".used").touch()
            self.age(folder / ".used", used)
        for path in (folder / ".complete", folder):
            if path.exists():
                self.age(path, days)
        return folder

    def age(self, path, days):
        at = time.time() - days * cache.DAY
        os.utime(path, (at, at))

    def goes(self, folder, **more):
        cache.prune(**more)
        return not folder.exists()

    def test_that_of_a_checkout_that_is_gone_goes(self):
        folder = self.put("qemu/a", checkout=self.top / "gone", days=1.1)
        self.assertTrue(self.goes(folder))
        (line,) = self.said
        self.assertIn("freed 0.0 GB", line)
        self.assertIn(f"qemu/a (its checkout {self.top}/gone is gone)", line)

    def test_that_of_a_checkout_that_may_be_out_of_sight_stays(self):
        self.assertFalse(self.goes(self.put("qemu/a", checkout=self.top / "gone", days=90, used=0.9)))

    def test_what_cannot_be_judged_stays_and_ends_nothing(self):
        locked, old, stuck = (self.put(f"qemu/{name}", days=90) for name in ("locked", "old", "stuck"))
        cache.lock_of(locked).unlink()
        cache.lock_of(locked).mkdir()
        discard = cache.discard
        kept = lambda folder: None if folder.name.startswith("stuck") else discard(folder)
        with mock.patch.object(cache, "discard", kept):
            for _ in range(2):
                cache.entry(base.CACHE / "qemu/new", lambda folder: None)
                self.let_go()
                (base.CACHE / "qemu/new/.complete").unlink()
                stuck.mkdir(exist_ok=True)
                (stuck / "data").touch()
                self.age(stuck, 90)
        self.assertEqual([locked.exists(), old.exists(), stuck.exists()], [True, False, True])
        (line,) = self.said
        self.assertNotIn("stuck", line)

    def test_what_another_is_made_of_stays_as_long_as_that_one(self):
        source = self.put("source/linux-1", days=90)
        (source / "tree").mkdir()
        kernel = self.put("kernel/a", days=29)
        (kernel / "tree").mkdir()
        (kernel / "tree/source").symlink_to(source / "tree")
        self.age(kernel, 29)
        self.age(source, 90)
        self.assertFalse(self.goes(source))
        self.age(kernel, 31)
        self.age(kernel / ".complete", 31)
        # The lock of the kernel also locks and uses the source.
        cache.entry(kernel, self.fail)
        self.assertLess(time.time() - (source / ".used").stat().st_mtime, 60)
        with cache.alone(cache.lock_of(source)) as ours:
            self.assertFalse(ours)
        self.let_go()
        for path in (source / ".used", kernel / ".used", source, kernel):
            self.age(path, 31)
        cache.prune()
        self.assertEqual([kernel.exists(), source.exists()], [False, False])

    def test_what_lacks_what_it_is_made_of_is_made_again(self):
        source, kernel = base.CACHE / "source/linux-1", self.put("kernel/a")
        source.parent.mkdir()
        (kernel / "tree").mkdir()
        (kernel / "tree/source").symlink_to(source / "tree")
        built = []

        def build(folder):
            self.assertFalse((folder / ".complete").exists())
            cache.entry(source, lambda folder: (folder / "tree").mkdir())
            built.append(folder)

        for _ in range(2):
            self.assertEqual(cache.entry(kernel, build), kernel)
        self.assertEqual(built, [kernel])
        self.let_go()

    def test_a_tree_of_another_source_is_begun_anew(self):
        folder = self.top / "kernel"
        one, other = self.top / "one", self.top / "other"
        one.mkdir()
        tree = folder / "tree"
        tree.mkdir(parents=True)
        (tree / "source").symlink_to(one)
        (tree / "object").touch()
        self.assertTrue((kernels.begun(folder, one) / "object").exists())
        self.assertEqual(list(kernels.begun(folder, other).iterdir()), [])

    def test_what_is_complete_serves_who_may_not_write(self):
        folder, fresh = self.put("kernel/a"), base.CACHE / "kernel/b"
        cache.lock_of(folder).chmod(0o644)
        self.top.chmod(0o755)
        child = os.fork()
        if not child:
            status = 1
            try:
                if os.getuid() == 0:
                    os.setgroups([])
                    os.setuid(65534)
                else:
                    folder.chmod(0o555)
                    folder.parent.chmod(0o555)
                for _ in range(2):
                    cache.entry(folder, self.fail)
                cache.prune(checkout=self.here)
                try:
                    cache.entry(fresh, lambda folder: None)
                except PermissionError:
                    status = 0 if folder in cache.USED else 2
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        folder.chmod(0o755)
        folder.parent.chmod(0o755)

    def test_that_of_a_checkout_that_is_there_stays(self):
        folder = self.put("qemu/a", checkout=self.here)
        self.assertFalse(self.goes(folder))
        self.assertEqual(self.said, [])

    def test_what_this_checkout_had_before_goes_and_nobody_elses(self):
        there = self.top / "there"
        there.mkdir()
        before, theirs = self.put("qemu/a-1", checkout=self.here), self.put("qemu/b-1", checkout=there)
        cache.entry(base.CACHE / "qemu/a-2", lambda folder: None, checkout=self.here)
        self.assertEqual([before.exists(), theirs.exists()], [False, True])
        self.assertIn("qemu/a-1 (superseded)", self.said[0])

    def test_what_somebody_has_stays(self):
        for how in (fcntl.LOCK_SH, fcntl.LOCK_EX):
            with self.subTest(how):
                folder = self.put(f"qemu/{how}", checkout=self.top / "gone", days=90)
                with open(cache.lock_of(folder)) as lock:
                    fcntl.flock(lock, how)
                    self.assertFalse(self.goes(folder))
                self.assertTrue(self.goes(folder))

    def test_what_is_used_while_it_is_judged_stays(self):
        folder = self.put("kernel/a", days=31)
        judge = cache.needless

        def meanwhile(*args):
            reason = judge(*args)
            (folder / ".used").touch()
            return reason

        with mock.patch.object(cache, "needless", meanwhile):
            self.assertFalse(self.goes(folder))

    def test_what_nobody_used_for_long_goes(self):
        for kind in ("initramfs", "kernel", "plots", "qemu", "source"):
            with self.subTest(kind):
                self.assertTrue(self.goes(self.put(f"{kind}/old", days=31)))
                self.assertFalse(self.goes(self.put(f"{kind}/young", days=29)))
                self.assertFalse(self.goes(self.put(f"{kind}/used", days=90, used=29)))
                self.assertTrue(self.goes(self.put(f"{kind}/unused", days=90, used=31)))

    def test_what_was_begun_and_left_goes(self):
        self.assertTrue(self.goes(self.put("source/left", complete=False, days=1.1)))
        self.assertFalse(self.goes(self.put("source/begun", complete=False, days=0.9)))

    def test_what_was_half_removed_leaves_nothing(self):
        for name in ("source/a.gone", "qemu/b", "qemu/b.gone", "root/c.gone"):
            self.put(name, days=90)
        (base.CACHE / "root/lock").touch()
        cache.prune()
        self.assertEqual([path for path in base.CACHE.glob("*/*/")], [])

    def test_a_root_goes_when_nobody_used_it_for_long(self):
        (base.CACHE / "root").mkdir(parents=True)
        (base.CACHE / "root/lock").touch()
        days = {"old": 40, "used": 40, "young": 20, "left.new": 2, "begun.new": 0.5}
        roots = [self.put(f"root/{name}", days=days, complete=False) for name, days in days.items()]
        (base.CACHE / "root/used.used").touch()
        cache.prune()
        self.assertEqual([root.name for root in roots if root.exists()], ["used", "young", "begun.new"])

    def test_a_root_stays_while_something_runs_in_it(self):
        root = self.put("root/old", days=40, complete=False)
        for path in (cache.lock_of(root), base.CACHE / "root/lock"):
            with open(path, "a") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH)
                self.assertFalse(self.goes(root))
        self.assertTrue(self.goes(root))

    def test_an_entry_is_built_once_and_held_by_who_uses_it(self):
        built = []
        for _ in range(2):
            folder = cache.entry(base.CACHE / "kernel/a", built.append)
        self.assertEqual(built, [folder])
        self.age(folder / ".used", 90)
        cache.entry(folder, built.append)
        self.assertLess(time.time() - (folder / ".used").stat().st_mtime, 60)
        with cache.alone(cache.lock_of(folder)) as ours:
            self.assertFalse(ours)
        self.let_go()
        with cache.alone(cache.lock_of(folder)) as ours:
            self.assertTrue(ours)

    def test_what_takes_the_place_of_a_program_holds_what_it_had(self):
        folder = cache.entry(base.CACHE / "qemu/a", lambda folder: None)
        with base.started(["sleep", "60"], close_fds=False):
            self.let_go()
            with cache.alone(cache.lock_of(folder)) as ours:
                self.assertFalse(ours)
        with cache.alone(cache.lock_of(folder)) as ours:
            self.assertTrue(ours)

    def test_what_is_forgotten_is_not_in_use(self):
        folder = self.put("kernel/a")
        with open(cache.lock_of(folder)) as theirs:
            fcntl.flock(theirs, fcntl.LOCK_SH)
            self.patch(base, say=lambda text: (self.said.append(text), fcntl.flock(theirs, fcntl.LOCK_UN)))
            cache.forget(folder)
            cache.forget(folder)
        self.assertEqual([list(folder.parent.glob("*/")), len(self.said)], [[], 1])
        self.assertIn("waiting for another command", self.said[0])

    def test_an_error_of_who_has_a_lock_is_its_own(self):
        with self.assertRaises(BlockingIOError), cache.alone(self.top / "lock"):
            raise BlockingIOError

    def test_a_cache_is_where_the_standard_says(self):
        env = {name: value for name, value in os.environ.items() if not name.startswith("QPAIR_")}
        ours, standard = f"{self.top}/xdg", f"{self.top}/.cache"
        for given, found in ((ours, ours), ("relative", standard), ("", standard)):
            env |= {"XDG_CACHE_HOME": given, "HOME": str(self.top)}
            shown = subprocess.run([base.SCRIPTS / "root", "--path"], env=env, capture_output=True, text=True).stdout
            self.assertTrue(shown.startswith(f"{found}/qpair/root/"), shown)
            told = [sys.executable, "-c", "from qp import base; print(base.CACHE)"]
            python = {**env, "PYTHONPATH": str(base.SCRIPTS)}
            shown = subprocess.run(told, env=python, capture_output=True, text=True).stdout
            self.assertEqual(shown, f"{found}/qpair\n")

    def test_help_waits_for_no_root(self):
        tools = self.top / "bin"
        tools.mkdir()
        for tool in ("awk", "cut", "dirname", "env", "grep", "sh", "sha256sum"):
            (tools / tool).symlink_to(shutil.which(tool))
        # Another command makes the root.
        (self.top / "xdg/qpair/root").mkdir(parents=True)
        with open(self.top / "xdg/qpair/root/lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            env = {**os.environ, "XDG_CACHE_HOME": str(self.top / "xdg"), "QPAIR_ROOT": "", "QPAIR_IN_ROOT": ""}
            for path, says in ((os.environ["PATH"], "usage: scripts/test"), (str(tools), "Runs the tests, layer by layer.")):
                ran = subprocess.run([base.SCRIPTS / "test", "--help"], env=env | {"PATH": path}, capture_output=True, text=True, timeout=20)
                self.assertEqual((ran.returncode, ran.stdout[: len(says)]), (0, says))
                self.assertNotIn("import ", ran.stdout)

    def test_packages_of_the_host_are_installed_one_command_at_a_time(self):
        tools, place = self.top / "bin", self.top / "xdg/qpair/root"
        for folder in (tools, place):
            folder.mkdir(parents=True)
        # Without mmdebstrap.
        for tool in ("cut", "date", "dirname", "flock", "grep", "mkdir", "sh", "sha256sum", "uname"):
            (tools / tool).symlink_to(shutil.which(tool))
        (tools / "id").write_text("#!/bin/sh\necho 0\n")
        (tools / "apt-get").write_text("#!/bin/sh\necho apt-get runs >&2\n")
        for tool in ("id", "apt-get"):
            (tools / tool).chmod(0o755)
        env = {"PATH": str(tools), "HOME": str(self.top), "XDG_CACHE_HOME": str(self.top / "xdg")}
        with open(place / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with base.started([base.SCRIPTS / "root"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waits:
                # Its first words are that it waits.
                self.assertTrue(select.select([waits.stderr], [], [], 20)[0])
                root = subprocess.run([base.SCRIPTS / "root", "--path"], env=env, capture_output=True, text=True).stdout
                pathlib.Path(root.strip()).mkdir()
                fcntl.flock(lock, fcntl.LOCK_UN)
                found, said = waits.communicate(timeout=20)
        self.assertEqual((waits.returncode, found), (0, root))
        self.assertRegex(said, r"\Aqpair: waiting for another build .*\n\Z")

    def test_help_makes_no_root(self):
        env = {**os.environ, "XDG_CACHE_HOME": str(self.top / "xdg"), "QPAIR_ROOT": ""}
        for word, status in (("--help", 0), ("--hepl", base.OWN_FAILURE)):
            ran = subprocess.run([base.SCRIPTS / "root", word], env=env, capture_output=True)
            self.assertEqual(ran.returncode, status)
        self.assertFalse((self.top / "xdg").exists())

    def test_a_build_that_fails_is_begun_anew_and_holds_no_lock(self):
        def fail(_folder):
            raise base.Fail("no")

        folder = base.CACHE / "kernel/a"
        with self.assertRaises(base.Fail):
            cache.entry(folder, fail)
        self.assertFalse((folder / ".complete").exists())
        built = []
        cache.entry(folder, built.append)
        self.assertEqual(built, [folder])


class Space(Sandbox):
    def setUp(self):
        super().setUp()
        self.free = 100e9
        self.patch(base, TOP=self.top / "here")
        self.patch(kernels, folder_of=lambda name: base.CACHE / "kernel" / name)
        self.patch(qemu, folders=lambda: (base.CACHE / "qemu/pristine", base.CACHE / "qemu/own"))
        self.patch(plugin, folder=lambda name: base.CACHE / "qemu" / name)
        self.patch(cache.shutil, disk_usage=lambda _: mock.Mock(free=self.free))

    def taken(self, *args, **more):
        """The gigabytes that are requested when none are left."""
        self.free = 0
        with self.assertRaises(base.Fail) as failure:
            space.need(*args, **more)
        self.assertIn("0.0 GB left", str(failure.exception))
        self.assertIn("larger disk", failure.exception.remedy)
        return float(str(failure.exception).split()[-1])

    def test_what_fits_is_not_told(self):
        space.need(["stock", "test", "debug"], host=True)

    def test_all_of_it_is_counted(self):
        own = qemu.PRISTINE + qemu.COPY
        names = ["stock", "test", "debug"]
        rest = space.BUILD + space.HOST + sum(kernels.SIZE.values())
        for emulators, size in (set(qemu.NAMES), own + 2 * plugin.SIZE), ({qemu.BACKPORTS}, plugin.SIZE), (None, plugin.SIZE):
            self.assertAlmostEqual(self.taken(names, emulators, host=True), rest + size, places=1)
        with mock.patch.dict(os.environ, {qemu.CHOICE: qemu.PATCHED}):
            self.assertAlmostEqual(self.taken(names, host=True), rest + own, places=1)
        self.assertAlmostEqual(self.taken([], set(), host=True), space.HOST, places=1)
        self.assertAlmostEqual(self.taken([], set(), tree=True), space.TREE, places=1)

    def test_an_emulator_of_no_name_is_refused(self):
        with mock.patch.dict(os.environ, {qemu.CHOICE: "linked"}), self.assertRaisesRegex(base.Fail, "QPAIR_QEMU=linked"):
            space.need([])

    def test_what_is_there_is_not_counted(self):
        for name in ("qemu/distribution", "qemu/pristine", "qemu/own", "kernel/test"):
            (base.CACHE / name).mkdir(parents=True)
            (base.CACHE / name / ".complete").touch()
        self.assertAlmostEqual(self.taken(["test", "debug"]), space.BUILD + kernels.SIZE["debug"], places=1)
        with mock.patch.object(cache, "size", lambda _: 1e9):
            self.assertAlmostEqual(self.taken(["test"]), space.BUILD - 1, places=1)
        with mock.patch.object(cache, "size", lambda _: 5e9):
            space.need(["test"])

    def test_what_nobody_needs_goes_first(self):
        def prune():
            self.free = 100e9
            return ["some"]

        self.free = 0
        with mock.patch.object(cache, "prune", prune):
            space.need(["stock"])


class Crates(Sandbox):
    def setUp(self):
        super().setUp()
        self.patch(base, toolchain=lambda: "rustc")
        self.patch(crates, ours=lambda: {"qpair-abi"})

    def checkout(self, name, lock="one"):
        here = self.top / name
        here.mkdir()
        (here / "Cargo.lock").write_text(lock)
        return mock.patch.object(base, "TOP", here)

    def build(self, target, key="0a"):
        """Cargo's files for a crate of the registry, for a crate and a program of the workspace."""
        for package, key, files in (
            ("anyhow", key, (f"deps/libanyhow-{key}.rlib", f"deps/anyhow-{key}.d", f"build/anyhow-{key}/output")),
            ("qpair-abi", "0b", ("deps/libqpair_abi-0b.rlib",)),
        ):
            for file in (f".fingerprint/{package}-{key}/lib.json", *files):
                path = target / "release" / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(key)
                os.utime(path, (1000, 1000))
        (target / "release/qpair").write_text("program")

    def files(self, target):
        return sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())

    def test_crates_of_the_registry_are_shared_and_ours_are_not(self):
        with self.checkout("first"), crates.target("tools") as target:
            self.assertFalse(target.exists())
            self.build(target)
        with self.checkout("second"), crates.target("tools") as target:
            release = [".fingerprint/anyhow-0a/lib.json", "build/anyhow-0a/output", "deps/anyhow-0a.d", "deps/libanyhow-0a.rlib"]
            self.assertEqual(self.files(target), [f"release/{name}" for name in release])
            # Cargo builds a crate again whose parts are younger than its fingerprint.
            self.assertEqual((target / "release/deps/libanyhow-0a.rlib").stat().st_mtime, 1000)
        with self.checkout("third", lock="two"), crates.target("tools") as target:
            self.assertFalse(target.exists())

    def begun(self, target):
        """Another cargo, which has begun to build a crate."""
        part = target / "release/.fingerprint/syn-0d"
        part.mkdir()
        (part / "invoked.timestamp").touch()
        lock = open(target / "release/.cargo-lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return part, lock

    def test_a_crate_that_is_being_built_is_not_shared(self):
        with self.checkout("first"):
            with crates.target("host") as target:
                self.build(target)
                part, lock = self.begun(target)
            self.assertEqual([*crates.entries("host")], [])
            with crates.target("host"):
                lock.close()
                (part / "lib.json").touch()
        with self.checkout("second"), crates.target("host") as target:
            self.assertEqual({path.name for path in crates.prints(target)}, {"anyhow-0a", "syn-0d"})

    def test_what_a_later_command_builds_replaces_the_entry(self):
        with self.checkout("first"):
            with crates.target("host") as target:
                self.build(target)
            with crates.target("host") as target:
                self.build(target, "0c")
        self.assertEqual(len(list((base.CACHE / "crates").glob("*/"))), 1)
        with self.checkout("second"), crates.target("host") as target:
            self.assertEqual({path.name for path in crates.prints(target)}, {"anyhow-0a", "anyhow-0c"})

    def test_the_crates_of_two_checkouts_are_not_mixed(self):
        with self.checkout("second"), crates.target("host") as target:
            with self.checkout("first"), crates.target("host") as other:
                self.build(other)
            self.build(target)
            self.build(target, "0c")
            (target / "release/deps/libanyhow-0a.rlib").write_text("second")
        with self.checkout("third"), crates.target("host") as target:
            self.assertEqual((target / "release/deps/libanyhow-0a.rlib").read_text(), "second")
            self.assertTrue((target / "release/deps/libanyhow-0c.rlib").exists())
