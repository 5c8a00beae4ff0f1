# SPDX-License-Identifier: GPL-2.0
"""Tests of what reads the sources, the walks and readings of driver.rst and imports: run with those
of qp/selftest.py."""

import unittest

from qp import imports, walks


class Walks(unittest.TestCase):
    def test_a_walk_is_held_against_the_sources(self):
        page = """\
The driver
==========

Walk: one WQE
-------------

At most 3 stops in 2 rooms.

1. ``rust/object/qp.rs``: ``post``,
   ``Slots::take``. A text with ``code``.
2. ``qemu/glue.c``: ``ring``. More
   text.

Next
----

1. No step of the walk.
"""
        tree = {
            "rust/object/qp.rs": "impl Qp {\n    pub(crate) fn post(&self) {}\n    fn take() {}\n}",
            "qemu/glue.c": "static void ring(void *opaque,\n                 int n)\n{\n    post();\n}\n",
        }
        self.assertEqual(walks.faults(page, tree.get), [])
        for wrong, line in (
            (page.replace("Slots::take", "give"), "one WQE: rust/object/qp.rs defines no give"),
            # A call is no definition.
            (page.replace("``ring``", "``post``"), "one WQE: qemu/glue.c defines no post"),
            (page.replace("glue.c", "gone.c"), "one WQE: there is no qemu/gone.c"),
            (page.replace("3 stops", "2 stops"), "one WQE: 3 stops, but at most 2"),
            (page.replace("2 rooms", "1 rooms"), "one WQE: 2 rooms, but at most 1"),
            (page.replace("At most 3 stops in 2 rooms", "Few"), "one WQE: no steps, or no bound in its first paragraph"),
            (page.replace("``qemu/glue.c``:", "The glue:"), "one WQE: no file and function in: The glue: ``ring``. More"),
            (page.replace("Walk: ", ""), "Documentation/driver.rst has no walk"),
        ):
            self.assertEqual(walks.faults(wrong, tree.get), [line])

    def test_a_reading_is_held_against_the_sources(self):
        page = """\
Walk: one WQE
-------------

At most 1 stops.

1. ``rust/a.rs``: ``a``. Text.

Reading: the data
-----------------

At most 3 lines of code.

1. ``rust/a.rs``, ``rust/b.rs``. Both.
2. ``rust/a.rs`` once more.
"""
        tree = {"rust/a.rs": "// A comment.\nfn a() {}\n", "rust/b.rs": "fn b() {\n\n}\n"}
        self.assertEqual(walks.faults(page, tree.get), [])
        for wrong, line in (
            (page.replace("3 lines", "2 lines"), "the data: 3 lines, but at most 2"),
            (page.replace("b.rs", "c.rs"), "the data: there is no rust/c.rs"),
            (page.replace("3 lines", "3 stops"), "the data: a bound in stops, which are not counted"),
            (page.replace("At most 3 lines", "Few lines"), "the data: no steps, or no bound in its first paragraph"),
        ):
            self.assertEqual(walks.faults(wrong, tree.get), [line])

    def test_an_import_through_a_directory_is_of_its_file(self):
        sources = {
            "raw/mod.rs": "pub use self::args::QpArg;\npub(crate) use self::queue::Cq;\nuse super::wait;",
            "raw/args.rs": "use super::Cq;",
            "raw/queue.rs": "\nuse crate::raw::QpArg;",
        }
        line = "tests/raw/args.rs:1: a circle in tests/raw: args -> queue -> args"
        self.assertEqual(imports.circles(sources, "tests")[0], line)
        # In braces, over several lines, by another name, through one more directory.
        for exported, middle in (
            ("pub use self::{args::{QpArg, SrqArg}, queue::Cq};", "queue"),
            ("pub(super) use self::{\n    args::QpArg, //\n    queue::{\n        self,\n        Cq,\n    },\n};", "queue"),
            ("pub(in crate::raw) use self::queue::Ring as Cq;\npub use args::QpArg;", "queue"),
            ("pub use crate::raw::args::QpArg;\npub use super::raw::queue::Cq;\nmod inner { pub use super::args::Cq; }", "queue"),
            ("pub use self::args::QpArg;\npub use self::far::Cq;", "far -> queue"),
        ):
            far = {"raw/far/mod.rs": "pub use self::near::Cq;\nuse super::queue;", "raw/far/near.rs": ""}
            line = f"tests/raw/args.rs:1: a circle in tests/raw: args -> {middle} -> args"
            self.assertIn(line, imports.circles(sources | far | {"raw/mod.rs": exported}, "tests"))
        crate = {"lib.rs": "mod a;\npub use b::B;", "a.rs": "use crate::B;", "b.rs": "use super::a::A;"}
        self.assertIn("tests/a.rs:1: a circle in tests: a -> b -> a", imports.circles(crate, "tests"))
        sources["raw/queue.rs"] = "use super::wait;"
        self.assertEqual(imports.circles(sources, "tests"), [])
