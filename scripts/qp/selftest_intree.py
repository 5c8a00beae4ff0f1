# SPDX-License-Identifier: GPL-2.0
"""Tests of qp/intree.py and qp/series.py: run by `scripts/check scripts`."""

import functools
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

import docutils.core

from qp import base, intree, kernel as kernels, series

MAKEFILE = "VERSION = {}\nPATCHLEVEL = {}\nSUBLEVEL = 4\n"
COMPLETION = "use crate::bindings;\n\nimpl Completion {\n    fn as_raw(&self) {}\n}\n"


# Once for all tests: rustfmt takes a while.
derived = functools.cache(intree.derived)


class Sandbox(unittest.TestCase):
    """A tree with the lines that the additions are made to, and no more."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name).resolve() / "linux"
        files = {"Makefile": MAKEFILE.format(*kernels.LAST), "Kconfig": "", intree.COMPLETION: COMPLETION}
        for edit in intree.edits():
            name = edit["file"]
            files[name] = files.get(name, "first\n") + (edit.get("after") or edit["before"]) + "\nbetween\n"
        for name, text in files.items():
            self.put(name, text)
        self.said = []
        for what, values in ((base, {"say": self.said.append}), (intree, {"derived": derived})):
            patch = mock.patch.multiple(what, **values)
            patch.start()
            self.addCleanup(patch.stop)

    def put(self, name, text):
        (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
        (self.tree / name).write_text(text)

    def refused(self, words, cause, remedy):
        with self.assertRaises(base.Fail) as failure:
            intree.run(words)
        self.assertRegex(str(failure.exception), cause)
        self.assertRegex(failure.exception.remedy, remedy)


class Trees(Sandbox):
    def test_a_bad_tree_is_refused_with_cause_and_remedy(self):
        tree = str(self.tree)
        self.refused([], "no kernel tree is named", "TREE=")
        self.refused([""], "no kernel tree is named", "TREE=")
        self.refused(["/nonexistent"], "does not exist", "unpacked source.*does not see")
        self.refused([__file__], "is not a directory", "unpacked source")
        self.refused([str(self.tree.parent)], "is not the source of a kernel", "MAINTAINERS")
        self.put("../out/Makefile", "")
        (self.tree.parent / "out/source").symlink_to(self.tree)
        self.refused([str(self.tree.parent / "out")], "is the output of a build", f"TREE={tree}")
        self.put("Makefile", "all:\n")
        self.refused([tree], "names no version", "unpacked source")
        self.put("Makefile", MAKEFILE.format(kernels.FIRST[0], kernels.FIRST[1] - 1))
        self.refused([tree], r"is Linux \d+\.\d+; the driver is for", "name a tree of Linux")
        self.put("Makefile", MAKEFILE.format(*kernels.LAST))
        (self.tree / "rust/kernel/lib.rs").unlink()
        self.refused([tree], "lacks rust/kernel/lib.rs$", "complete tree")

    def test_a_tree_of_the_cache_is_refused(self):
        with mock.patch.object(base, "CACHE", self.tree.parent):
            self.refused([str(self.tree)], "is in the cache", f"cp -a {self.tree} ")
            self.put("../out/Makefile", "")
            (self.tree.parent / "out/source").symlink_to(self.tree)
            self.refused([str(self.tree.parent / "out")], "is in the cache", f"cp -a {self.tree} ")
        link = self.tree.parent / "link"
        link.symlink_to(self.tree.parent)
        with mock.patch.object(base, "CACHE", link):
            self.refused([str(link / self.tree.name)], "is in the cache", "cp -a")

    def test_a_tree_that_cannot_be_written_is_refused(self):
        with mock.patch.object(os, "access", lambda path, mode: not (path == self.tree and mode == os.W_OK)):
            self.refused([str(self.tree)], "cannot be written", "cp -a")

    def test_abstractions_and_code_of_the_user_stay(self):
        for name in ("rust/kernel/rdma/theirs.rs", "rust/kernel/rdma.rs", "rust/helpers/rdma.c"):
            self.put(name, "// theirs\n")
            self.refused([str(self.tree)], "has rust/(kernel|helpers)/rdma.* of its own", "without it")
            (self.tree / name).unlink()
            shutil.rmtree(self.tree / "rust/kernel/rdma", ignore_errors=True)
        before = (self.tree / intree.COMPLETION).read_text()
        self.put(intree.COMPLETION, f"{before}\nfn theirs() {{}}\n")
        self.refused([str(self.tree)], "more than its impl of Completion", "supported series")
        self.assertFalse((self.tree / intree.DRIVER).exists())

    def test_a_newer_series_is_a_warning(self):
        self.put("Makefile", MAKEFILE.format(kernels.LAST[0], kernels.LAST[1] + 1))
        intree.run([str(self.tree)])
        self.assertRegex(self.said[0], "^warning: Linux .* is newer")

    def test_a_tree_without_the_line_of_an_addition_is_left_as_it_is(self):
        self.put("rust/kernel/lib.rs", "pub mod page;\n")
        self.refused([str(self.tree)], "rust/kernel/lib.rs of the tree has not exactly one line", "edits.toml")
        self.assertFalse((self.tree / intree.DRIVER).exists())

    def test_changes_of_the_user_are_not_mixed_with_the_driver(self):
        def git(*words):
            subprocess.run(["git", "-C", self.tree, "-c", "user.name=a", "-c", "user.email=b", *words], check=True, capture_output=True)

        git("init")
        # A variable of git's own tests.
        with mock.patch.dict(os.environ, GIT_TEST_ASSUME_DIFFERENT_OWNER="1"):
            self.refused([str(self.tree)], "belongs to another user", "run as its owner")
        git("add", "--all")
        git("commit", "--message", "a tree")
        self.put("MAINTAINERS", (self.tree / "MAINTAINERS").read_text() + "mine\n")
        self.refused([str(self.tree)], "uncommitted changes in MAINTAINERS", "commit or stash")
        git("commit", "--all", "--message", "mine")
        intree.run([str(self.tree)])
        intree.run([str(self.tree)])

    def test_the_second_time_only_what_differs_is_written(self):
        linked = self.tree.parent / "linked"
        os.link(self.tree / "MAINTAINERS", linked)
        before = linked.read_text()
        self.assertGreater(intree.put(self.tree), 100)
        self.assertEqual(intree.put(self.tree), 0)
        # That of another tree, which cp -al has made.
        self.assertEqual(linked.read_text(), before)
        for name in ("MAINTAINERS", "drivers/infiniband/Kconfig"):
            self.assertEqual((self.tree / name).read_text().count("first\n"), 1)
        self.put(f"{intree.DRIVER}/hw/gone.rs", "")
        self.put(f"{intree.DRIVER}/driver.rs", "changed")
        self.put(f"{intree.DRIVER}/driver.o", "built")
        self.assertEqual(intree.put(self.tree), 2)
        self.assertFalse((self.tree / intree.DRIVER / "hw/gone.rs").exists())
        self.assertTrue((self.tree / intree.DRIVER / "driver.o").exists())

    def test_the_series_adds_up_to_the_tree(self):
        _, changes = series.states(self.tree)
        intree.put(self.tree)
        last = {}
        for _, change in changes:
            self.assertTrue(change)
            last |= change
        for name, text in last.items():
            self.assertEqual((self.tree / name).read_text(), text, name)
        self.assertLessEqual(set(derived()), set(last))

    def test_a_patch_without_files_is_refused_and_a_file_without_patch(self):
        names = sorted(series.placed(derived()))
        for wrong, cause in (([name for name in names if "/life/" not in name], "has no file"), ([*names, "lib/new.c"], "no patch has lib/new.c")):
            with self.assertRaisesRegex(base.Fail, cause):
                series.parts(wrong)


class Rules(unittest.TestCase):
    def test_nothing_of_the_checkout_remains(self):
        for name, text in derived().items():
            for pattern in (r"\bMODULE\b.*\)\]", r"QPAIR_RDMA_BINDINGS", r"CONFIG_KUNIT = ", r"\{section"):
                self.assertNotRegex(text, pattern, name)
            if name.startswith("rust/kernel/"):
                self.assertNotRegex(text, r"(?<!crate::)\bkernel::|raw_device|mod bindings", name)
        self.assertNotIn("rust/kernel/rdma/bindings.rs", derived())
        self.assertNotIn(f"{intree.DRIVER}/queue/producer/rows.rs", derived())

    def test_the_page_of_the_driver_is_without_warnings(self):
        page = derived()["Documentation/infiniband/qpair.rst"]
        docutils.core.publish_doctree(page, settings_overrides={"halt_level": 2, "report_level": 2, "syntax_highlight": "none"})
        self.assertIn("debugfs/live.rs", page)
        self.assertNotIn("values_change", page)

    def test_what_is_not_for_modules_is_left_out(self):
        text = (
            "//! | [`a`] | one |\n//! | [`b`] | two |\n\n#![cfg_attr(not(MODULE), no_std)]\n\n#[cfg(not(MODULE))]\n#[macro_use]\nmod a;\nmod b;\n"
            "#[cfg(not(MODULE))]\npub use a::{\n    X,\n    Y, //\n};\n#[cfg(MODULE)]\nuse b::Z;\n"
            "impl Z {\n    #[cfg(not(MODULE))]\n    fn one() {\n        two();\n    }\n\n    #[cfg_attr(MODULE, inline)]\n    fn three() {}\n}\n"
        )
        self.assertEqual(
            intree.for_modules(text),
            "//! | [`b`] | two |\n\n\nmod b;\nuse b::Z;\nimpl Z {\n    #[inline]\n    fn three() {}\n}\n",
        )

    def test_paths_become_those_of_the_kernel_crate(self):
        text = (
            "mod bindings;\nuse kernel::{\n    prelude::*,\n};\nlet a = crate::kernel::raw_device(&this.parent);\n"
            "use ::kernel::x;\n#[kernel::macros::kunit_tests(rdma)]\nmod tests {\n    use kernel::y;\n}\n"
        )
        self.assertEqual(
            intree.in_crate(text),
            "use crate::{\n    bindings,\n    prelude::*,\n};\nlet a = this.parent.as_raw();\n"
            "use crate::x;\n#[cfg(CONFIG_RUST_RDMA_KUNIT_TEST)]\n#[crate::macros::kunit_tests(rdma)]\nmod tests {\n    use crate::y;\n}\n",
        )

    def test_comments_have_a_hundred_columns(self):
        words = "word " * 21
        self.assertEqual(intree.narrow(f"/// {words}end\n/// of it.\n"), f"/// {('word ' * 19).strip()}\n/// word word end of it.\n")
        self.assertEqual(intree.narrow(f"    // - {words}end\n    // - next\n"), f"    // - {('word ' * 18).strip()}\n    //   word word word end\n    // - next\n")
        self.assertEqual(intree.narrow(f"/* short */\n\t{'x' * 120}\n"), f"/* short */\n\t{'x' * 120}\n")
        table = "//! | file | gives |\n//! |---|---|\n//! | [`a`] | one |\n"
        self.assertEqual(intree.narrow(table), table)
        long = f"{table}//! | [`b`] | {words}|\n"
        self.assertRegex(intree.narrow(long), r"^//! - \[`a`\]: one\n//! - \[`b`\]: word .*\n//!   word")
