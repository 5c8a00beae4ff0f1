# SPDX-License-Identifier: GPL-2.0
"""Tests of qp/suite.py: run by `scripts/check scripts`."""

import contextlib
import io
import threading
import time
import unittest
import unittest.mock

from qp import base
from qp import ktap
from qp import suite


class Suite(unittest.TestCase):
    def test_a_part_of_what_runs_as_a_whole_is_refused(self):
        self.assertEqual(suite.wanted(["stock/a", "stock/b", "host"]), {"stock": ["a", "b"], "host": []})
        for layer in ("host", "mutants", "device", "kunit", "figures"):
            with self.assertRaises(base.Fail) as refused:
                suite.wanted([f"{layer}/name"])
            self.assertIn(f"scripts/test {layer}", refused.exception.remedy)
        with self.assertRaises(base.Fail):
            suite.wanted(["hosts"])

    def test_tests_that_want_one_guest_share_its_boot(self):
        guests = {"plain": [], "iommu": ["--iommu"]}
        tests = [
            {"name": "a", "kernels": ["stock"], "guests": ["plain", "iommu"], "left": ["stock.plain"]},
            {"name": "b", "kernels": ["stock", "debug"], "guests": ["plain"]},
            {"name": "c", "kernels": ["stock"], "guests": ["plain"], "alone": True},
        ]
        for layer, names, everything, expected in (
            ("stock", [], True, {"plain": "ab", "c-plain": "c"}),
            ("stock", [], False, {"plain": "b", "c-plain": "c"}),
            ("stock", ["a"], False, {"plain": "a"}),
            ("iommu", [], False, {"iommu": "a"}),
            ("debug", [], True, {"plain": "b"}),
        ):
            with self.subTest(layer, names=names, everything=everything):
                with unittest.mock.patch.object(suite, "plans", lambda: (guests, tests)):
                    found = suite.boots(layer, suite.Chosen(names, everything))
                self.assertEqual({boot.name: "".join(test["name"] for test in boot.tests) for boot in found}, expected)
                self.assertEqual([boot.name for boot in found if boot.alone], ["c-plain"] if "c-plain" in expected else [])

    def test_jobs_run_side_by_side_and_those_alone_by_themselves(self):
        together, running = threading.Barrier(2, timeout=10), []

        def beside(slower):
            together.wait()
            return ktap.Count(passed=slower)

        def alone(slower):
            running.append(slower)
            return ktap.Count(passed=1)

        def fails(_slower):
            raise base.Fail("no kernel")

        found = [
            suite.Job("figures", "all", alone, alone=True),
            suite.Job("debug", "a", beside, timeout=900),
            suite.Job("stock", "b", beside),
            suite.Job("host", "all", fails),
        ]
        with unittest.mock.patch.object(suite, "GUESTS", 3), contextlib.redirect_stdout(io.StringIO()):
            with contextlib.redirect_stderr(io.StringIO()):
                counts = suite.run_jobs(found)
        self.assertEqual([counts[job].passed for job in found], [1, 3, 3, 0])
        self.assertEqual(counts[found[3]].bad, ["no kernel"])
        self.assertEqual(running, [1])

    def test_calls_side_by_side_end_with_the_first_failure(self):
        together = threading.Barrier(2, timeout=10)
        self.assertEqual(suite.side_by_side([lambda: together.wait() * 0, lambda: together.wait() * 0 + 1], 2), [0, 1])

        def sleeps():
            with base.started(["sleep", "60"]) as process:
                return process.wait()

        def fails():
            raise base.Fail("one of them")

        start = time.monotonic()
        with self.assertRaises(base.Fail):
            suite.side_by_side([fails, sleeps, sleeps], 2)
        self.assertLess(time.monotonic() - start, 30)
