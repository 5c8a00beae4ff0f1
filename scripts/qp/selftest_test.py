# SPDX-License-Identifier: GPL-2.0
"""Tests of qp/test.py, qp/jobs.py, qp/demo.py, qp/nightly.py and qp/variants*.py: run by `scripts/check scripts`."""

import contextlib
import io
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

from qp import base, demo, fuzz, fuzz_uverbs, guest as runner, jobs, ktap, nightly, test, variants, variants_module, verbs, verbs_suite


class Demo(unittest.TestCase):
    def test_the_total_has_the_time_of_the_build_root(self):
        said = io.StringIO()
        with (
            unittest.mock.patch.dict(os.environ, QPAIR_BEGAN=str(time.time() - 100)),
            unittest.mock.patch.object(base, "TIMES", []),
            unittest.mock.patch.multiple(demo.space, need=lambda *_, **__: None),
            unittest.mock.patch.multiple(demo.kernels, get=lambda _: unittest.mock.Mock(image=pathlib.Path(__file__))),
            unittest.mock.patch.multiple(demo.qemu, binary=lambda: None),
            unittest.mock.patch.multiple(demo.payload, module=lambda _: None, programs=lambda _: None),
            unittest.mock.patch.multiple(demo.verbs, files=lambda _: None),
            unittest.mock.patch.multiple(demo, OPS=(), copy_in_guest=lambda _: [], show=lambda *_: None, show_program=lambda: None),
            contextlib.redirect_stdout(said),
        ):
            self.assertEqual(demo.run([]), 0)
        self.assertRegex(said.getvalue(), r"\ntimes \(of the processors\): making the build root 100 s; in all 10[0-9] s\n$")


class Nightly(unittest.TestCase):
    def test_each_step_has_a_case_and_enough_rounds(self):
        cases = (base.TOP / "tools/selftests/src/life/mod.rs").read_text()
        for rounds in (1, 99, 100, 150, 1999):
            found = nightly.steps(0.5, rounds, 0)
            for name, (case, _guest) in nightly.ENDINGS.items():
                words = found[name]
                self.assertIn(f"endings::{case.partition('/')[2]} ", cases)
                each, runs = (int(words[words.index(option) + 1]) for option in ("--rounds", "--repeat"))
                self.assertGreaterEqual(each * runs, rounds)
                self.assertLessEqual(each, nightly.ROUNDS)
        self.assertEqual(found["soak"][-1], 1800)
        self.assertEqual(found["soak-model"][-2:], [1800, "--model"])

    def test_each_day_has_another_sample(self):
        for name, every in (("variants", nightly.EVERY), ("variants-module", nightly.EVERY_OF_MODULE)):
            days = [nightly.steps(1, 1, day)[name] for day in range(800_000, 800_000 + every)]
            firsts = {words[words.index("--first") + 1] for words in days}
            self.assertEqual((firsts, days[0][days[0].index("--every") + 1]), (set(range(every)), every))

    def test_a_time_without_an_end_is_refused(self):
        for words in (["--hours", "nan"], ["--hours", "inf"], ["--hours", "0"], ["--rounds", "0"]):
            with self.assertRaises(base.Fail):
                nightly.run(words)

    def test_a_step_that_fails_ends_no_other(self):
        said, failed = io.StringIO(), []

        def step(name, _words, log, cwd):
            log.write_text("stat::number_of_executed_units: 7\nnothing\n")
            if name == "fuzz-parse":
                failed.append(name)
                raise base.Fail("broken")

        with (
            tempfile.TemporaryDirectory() as folder,
            unittest.mock.patch.object(nightly, "OUT", pathlib.Path(folder)),
            unittest.mock.patch.object(base, "step", step),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            self.assertEqual(nightly.run(["fuzz-parse", "soak"]), 1)
        self.assertEqual(failed, ["fuzz-parse"])
        self.assertIn("soak: ok\n    stat::number_of_executed_units: 7\n1 passed, 1 failed, 0 skipped\n", said.getvalue())


class Variants(unittest.TestCase):
    OUTCOMES = {"caught": 17, "timeout": 2, "missed": 1, "unviable": 5}

    def tried(self, **changed):
        """Runs the command with the outcomes of a tool; returns what it has printed."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            out = pathlib.Path(folder)
            (out / "queue/mutants.out").mkdir(parents=True)
            (out / "queue/mutants.out/outcomes.json").write_text(json.dumps(self.OUTCOMES | changed))
            (out / "queue/mutants.out/missed.txt").write_text("a.rs:1: replace f\n")
            changes = {"OUT": out, "tool": lambda: out, "copy": lambda: out, "listed": lambda *_: "a.rs:1: replace f\n"}
            with unittest.mock.patch.multiple(variants, **changes), unittest.mock.patch.object(base, "step"):
                variants.run(["queue", "--every", "20"])
        return said.getvalue()

    def test_what_compiles_counts_and_what_hangs_is_caught(self):
        self.assertEqual(self.tried(), "not caught: a.rs:1: replace f\nqueue: 19 of 20 variants caught, 95.0 %\n")

    def test_a_sample_begins_where_it_is_asked_to(self):
        with unittest.mock.patch.object(variants, "tool", pathlib.Path):
            words = variants.command("queue", variants.Sample(5, 10, ("a.rs:1: replace (", "b")))
        self.assertEqual(words[words.index("--shard") + 1], "5/10")
        self.assertEqual([words[place + 1] for place, word in enumerate(words) if word == "--re"], [r"a\.rs:1:\ replace\ \(", "b"])
        for first in ("20", "-1"):
            with self.assertRaisesRegex(base.Fail, f"--first {first} is not from 0 to 19"):
                variants.run(["queue", "--every", "20", "--first", first, "--list"])

    def test_a_copy_is_newer_than_what_was_built(self):
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder) / "top"
            subprocess.run(["git", "init", "-q", top], check=True)
            (top / "a.rs").touch()
            os.utime(top / "a.rs", (1, 1))
            with unittest.mock.patch.object(base, "TOP", top), unittest.mock.patch.object(variants, "OUT", top.parent):
                copied = variants.copy() / "a.rs"
            self.assertGreater(copied.stat().st_mtime, 1)

    def test_what_is_equal_is_not_tried(self):
        with unittest.mock.patch.object(variants, "tool", pathlib.Path):
            words = variants.command("queue", variants.Sample())
        excluded = "|".join(f"(?:{word})" for option, word in itertools.pairwise(words) if option == "--exclude-re")
        self.assertRegex("a.rs:1:2: replace | with ^ in f", excluded)
        for name in ("|= with ^=", "|| with &&", "| with &", "< with <="):
            self.assertNotRegex(f"a.rs:1:2: replace {name} in f", excluded)

    def test_each_has_its_goal(self):
        def of_the_module(caught):
            with (
                tempfile.TemporaryDirectory() as folder,
                unittest.mock.patch.multiple(variants, OUT=pathlib.Path(folder), tool=str, copy=str),
                unittest.mock.patch.multiple(variants_module, listed=lambda *_: [("a", {})], tried=lambda *_: (100, caught, ["a"] * (100 - caught))),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                return variants.run(["module"])

        self.assertEqual(of_the_module(90), 0)
        with self.assertRaisesRegex(base.Fail, "too few of the variants.*: module"):
            of_the_module(89)

    def test_too_few_that_are_caught_fail_and_so_do_none(self):
        with self.assertRaisesRegex(base.Fail, "too few of the variants.*: queue"):
            self.tried(caught=16)
        with unittest.mock.patch.object(base, "say") as say, self.assertRaisesRegex(base.Fail, "too few of the variants.*: queue"):
            self.tried(caught=0, timeout=0, missed=0)
        self.assertRegex(say.call_args.args[0], "no variant of queue that was tried compiles, see .*/queue/log")

    def test_crates_without_a_variant_of_the_name_are_left_out(self):
        def listed(name, sample):
            return "a.rs:1: replace f\n" if (name, sample.names) == ("queue", ("f", "g")) else ""

        seen = []
        with unittest.mock.patch.multiple(variants, listed=listed, copy=str, tried=lambda name, *_: seen.append(name) or True):
            self.assertEqual(variants.run(["--name", "f", "--name", "g"]), 0)
            for words in ([], ["--list"]):
                with self.assertRaisesRegex(base.Fail, "there is no such variant"):
                    variants.run(["--name", "h", *words])
        self.assertEqual(seen, ["queue"])

    def test_a_crate_may_follow_an_option(self):
        with unittest.mock.patch.object(variants, "listed", lambda *_: ""), self.assertRaises(base.Fail) as refused:
            variants.run(["queue", "--list", "library"])
        self.assertIn("variants queue library --list", refused.exception.remedy)


class OfTheModule(unittest.TestCase):
    TEXT = "fn f() -> bool {\n    // \u2264\n    a()\n        && b\n}\n"

    def span(self, first, end):
        return {"start": dict(zip(("line", "column"), first)), "end": dict(zip(("line", "column"), end))}

    def test_a_variant_replaces_its_span(self):
        for first, end, replacement, expected in (
            ((3, 5), (4, 13), "true", "fn f() -> bool {\n    // \u2264\n    true\n}\n"),
            ((4, 9), (4, 11), "||", self.TEXT.replace("&&", "||")),
            ((2, 8), (2, 9), "", self.TEXT.replace("\u2264", "")),
        ):
            variant = {"span": self.span(first, end), "replacement": replacement}
            self.assertEqual(variants_module.changed(self.TEXT, variant), expected)

    def tried(self, outcomes):
        """Tries variants of one source with these outcomes, the first of which is of the source itself;
        returns how many compile, how many of them are caught, and the names of the others."""
        with tempfile.TemporaryDirectory() as folder:
            copy, left = pathlib.Path(folder), list(outcomes)
            (copy / "rust").mkdir()
            source = copy / "rust/a.rs"
            source.write_text(self.TEXT)
            seen = []

            def builds(*_):
                seen.append(source.read_text())
                return left[0] != "unbuilt" or not left.pop(0)

            variant = {"file": "a.rs", "span": self.span((4, 9), (4, 11)), "replacement": "||"}
            listed = [(f"rust/a.rs:4: {number}", variant) for number in range(len(outcomes) - 1)]
            with unittest.mock.patch.multiple(
                variants_module, builds=builds, failure=lambda *_: left.pop(0), kernels=unittest.mock.Mock(),
            ), unittest.mock.patch.object(base, "say"):
                (copy / "out").mkdir()
                found = variants_module.tried(listed, copy, copy / "out")
            self.assertEqual((source.read_text(), seen[1:]), (self.TEXT, [self.TEXT.replace("&&", "||")] * len(listed)))
        return found

    def test_what_compiles_and_passes_is_not_caught(self):
        caught = ["not ok 3 data/sizes"] * 9
        self.assertEqual(self.tried([None, "unbuilt", *caught, None]), (10, 9, ["rust/a.rs:4: 10"]))

    def test_the_suites_of_the_copy_have_to_pass(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            (copy / "rust").mkdir()
            (copy / "rust/a.rs").write_text("#[kunit_tests(of_the_copy)]\nmod tests {\n    #[test]\n    fn f() {}\n}\n")
            found = variants_module.guests(copy)
        self.assertEqual({name: guest.suites for name, guest in found.items() if guest.suites}, {"KUnit": {"of_the_copy": 1}})
        self.assertIn("of_the_copy/results", found["KUnit"].arguments[-1])
        self.assertEqual(list(found), ["selftests", *variants_module.APART, "KUnit", "examples", "NVMe"])

    def test_a_guest_that_cannot_run_catches_nothing(self):
        def failure(text, suites=None):
            with (
                tempfile.TemporaryDirectory() as folder,
                unittest.mock.patch.multiple(variants_module, builds=lambda *_: True, kernels=unittest.mock.Mock()),
                unittest.mock.patch.object(variants_module.kunit, "suites", lambda *_: suites or {}),
            ):
                copy = pathlib.Path(folder)
                (copy / "scripts").mkdir()
                (copy / "scripts/guest").write_text(f"#!/bin/sh\n{text}\n")
                (copy / "scripts/guest").chmod(0o755)
                with open(copy / "log", "w") as log:
                    return variants_module.failure(variants_module.guests(copy), copy, log)

        self.assertEqual([failure(f"exit {status}") for status in (0, 4)], [None, None])
        self.assertEqual(failure("exit 126"), "the guest of selftests ended with status 126")
        self.assertEqual(failure("echo 'not ok 3 a/b'; exec sleep 60"), "not ok 3 a/b")
        self.assertEqual(failure("case $* in *kunit.autorun=1*) echo 'not ok 1 a' ;; esac", {"a": 1}), "not ok 1 a")
        self.assertEqual(failure("echo 'ok 1 a'", {"a": 2}), "a has no result of 2 tests")
        self.assertEqual(failure("case $* in *storage*) exit 1 ;; esac"), "the guest of NVMe ended with status 1")
        self.assertEqual(failure("case $* in *'resize qpair0 20 srq'*) exit 1 ;; esac"), "the guest of examples ended with status 1")
        # Their commands never end with the status of a guest that cannot run.
        command = variants_module.guests(base.TOP)["NVMe"].arguments[-3:]
        self.assertEqual(command[:2], ("sh", "-c"))
        command = command[2].replace(variants_module.NVME, "(exit 125)")
        self.assertEqual(subprocess.run(["sh", "-c", command]).returncode, 1)
        for status in (125, 143):
            with self.assertRaisesRegex(base.Fail, "could not run"):
                failure(f"exit {status}")

    def test_a_suite_of_kunit_has_no_variants(self):
        found = [{"file": "a.rs", "span": self.span((line, 1), (line, 2))} for line in (1, 6, 1, 1)]
        names = [f"a.rs:{number}" for number in range(4)]
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder)
            (top / "rust").mkdir()
            (top / "rust/a.rs").write_text("fn f() {}\n\n#[kernel::macros::kunit_tests(a)]\nmod tests {\n\n    fn f() {}\n}\n")

            def output(*words):
                return json.dumps(found) if "--json" in words else "\n".join(names)

            with unittest.mock.patch.object(base, "output", output):
                listed = variants_module.listed(top, [], top)
        samples = [[name for name, _ in sample.of(listed)] for sample in (variants.Sample(0, 2), variants.Sample(1, 2), variants.Sample(names=("rs:2", "rs:3")))]
        self.assertEqual(samples, [["rust/a.rs:0", "rust/a.rs:3"], ["rust/a.rs:2"], ["rust/a.rs:2", "rust/a.rs:3"]])

    def test_a_source_that_fails_is_an_error(self):
        for outcomes in (["not ok 1 control"], ["unbuilt"]):
            with self.assertRaises(base.Fail):
                self.tried(outcomes)


class Uverbs(unittest.TestCase):
    def test_its_options_are_refused_for_other_targets(self):
        for words in (["--replay", "x"], ["--kernel", "debug"], ["--device", "rxe"], ["--as-found"]):
            with self.assertRaisesRegex(base.Fail, f"{words[0]} is of uverbs, not of parse"):
                fuzz.run(["parse", *words])

    def target(self, fails):
        """One whose inputs fail if this says so."""

        def first_of(inputs, _times):
            return next((number for number, line in enumerate(inputs) if fails(line)), None)

        found = object.__new__(fuzz_uverbs.Target)
        found.first_of = first_of
        return found

    def test_what_a_failure_does_not_need_is_left_out(self):
        calls = [f"{number:02x}" * fuzz_uverbs.RECORD for number in range(40)]
        needed = {calls[3], calls[20], calls[39]}

        def has(line):
            step = 2 * fuzz_uverbs.RECORD
            return needed <= {line[at : at + step] for at in range(0, len(line), step)}

        self.assertEqual(self.target(has).smaller("".join(calls)), calls[3] + calls[20] + calls[39])

    def test_the_last_inputs_are_in_order(self):
        with tempfile.TemporaryDirectory() as folder:
            target = self.target(None)
            target.share = pathlib.Path(folder)
            (target.share / "last").write_text("000000016 aa  \n000000001 bb\n000000002 \n")
            self.assertEqual(target.last(), [(1, "bb"), (16, "aa")])

    def test_what_was_found_is_kept_until_it_has_run_again(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(fuzz_uverbs, "corpus", lambda: ["aa"]):
            target = object.__new__(fuzz_uverbs.Target)
            target.share = pathlib.Path(folder)
            target.begin()
            self.assertEqual(target.read("start"), ["aa"])
            # The first guest is killed, and so is the second before it has found something.
            (target.share / "new").write_text("aa\nbb\n")
            for _ in range(2):
                target.begin()
                self.assertEqual(target.read("start"), ["aa", "bb"])

    def test_a_guest_that_ends_before_the_first_input_has_not_replayed(self):
        with tempfile.TemporaryDirectory() as folder:
            target = object.__new__(fuzz_uverbs.Target)
            target.share, target.device = pathlib.Path(folder), "qpair"
            # None: QEMU has ended itself, whatever input ran.
            for written, status, first in (("", 126, None), ("000000007 aa\n", 126, 3), ("000000007 aa\n", None, None), ("", 0, None)):

                def run(*_, written=written, status=status):
                    (target.share / "last").write_text(written)
                    return status

                with self.subTest(written, status=status), unittest.mock.patch.object(target, "run", run):
                    if status is None or (status and not written):
                        with self.assertRaises(base.Fail):
                            target.first_of(["aa"] * 4, 2)
                    else:
                        self.assertEqual(target.first_of(["aa"] * 4, 2), first)


class Suite(unittest.TestCase):
    def test_a_part_of_what_runs_as_a_whole_is_refused(self):
        self.assertEqual(test.wanted(["stock/a", "stock/b/c", "host"]), {"stock": ["a", "b/c"], "host": []})
        for layer in ("mutants", "kunit", "tree", "figures"):
            with self.assertRaises(base.Fail) as refused:
                test.wanted([f"{layer}/name"])
            self.assertIn(f"scripts/test {layer}", refused.exception.remedy)
        with self.assertRaises(base.Fail):
            test.wanted(["hosts"])

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
                with unittest.mock.patch.object(test, "plans", lambda: (guests, tests)):
                    found = test.boots(layer, test.Chosen(names, everything))
                self.assertEqual({boot.name: "".join(test["name"] for test in boot.tests) for boot in found}, expected)
                self.assertEqual([boot.name for boot in found if boot.alone], ["c-plain"] if "c-plain" in expected else [])

    def test_a_case_runs_in_the_guests_of_its_group(self):
        guests = {"plain": [], "iommu": ["--iommu"]}
        tests = [
            {"name": "a", "command": ["program", "one", "two/x"], "tests": 9, "kernels": ["stock"], "guests": ["plain", "iommu"]},
            {"name": "b", "command": ["program", "two"], "tests": 5, "kernels": ["debug"], "guests": ["plain"]},
        ]
        for layer, name, expected in (
            ("stock", "one/x", ["plain"]),
            ("stock", "one/x.plain", ["plain"]),
            ("stock", "one/x.two", []),
            ("iommu", "two/x", ["iommu"]),
            ("stock", "two/y", []),
            ("debug", "two/y", ["plain"]),
        ):
            with self.subTest(layer, name=name), unittest.mock.patch.object(test, "plans", lambda: (guests, tests)):
                found = test.boots(layer, test.Chosen([name], False, 3))
                self.assertEqual([boot.name for boot in found], expected)
                for boot in found:
                    self.assertEqual([(test["command"], test["tests"]) for test in boot.tests], [(["program", name.partition(".")[0]], 1)])

    def test_a_layer_may_follow_an_option(self):
        with unittest.mock.patch.object(test, "show_list") as listed:
            self.assertEqual(test.run(["stock", "--list", "iommu"]), 0)
        listed.assert_called_once_with({"stock": [], "iommu": []}, False)

    def test_a_case_that_does_not_exist_is_refused(self):
        for name, exists in (("data/send_and_receive", True), ("tool/loopback", True), ("data/nosuch", False), ("data/send", False)):
            with self.subTest(name):
                self.assertEqual(bool(test.boots("stock", test.Chosen([name], False))), exists)

    def test_the_list_has_all_that_can_be_selected(self):
        guests = {"plain": [], "iommu": ["--iommu"]}
        tests = [
            {"name": "a", "kernels": ["stock"], "guests": ["plain", "iommu"], "left": ["stock.plain"]},
            {"name": "b", "kernels": ["stock"], "guests": ["plain"]},
        ]
        with unittest.mock.patch.object(test, "plans", lambda: (guests, tests)):
            for names, everything, line in ((None, False, "plain: (a), b"), (None, True, "plain: a, b"), (["a"], False, "plain: a")):
                self.assertEqual([one for one in test.listed("stock", names, everything) if "warnings" not in one], [line])
        for suite, found in test.LISTED.values():
            layer = suite.__name__.removeprefix("qp.").removesuffix("_suite")
            shown = [line.partition(":")[0] for line in test.listed(layer, None, False)]
            self.assertEqual([name for name in found(False) if name not in found(True)], [name[1:-1] for name in shown if name[0] == "("])
            self.assertEqual(len(shown), len(found(False)))

    def test_a_suite_gets_how_much_slower_its_kernel_is(self):
        for name, kernel in test.wire_suite.networks(False).items():
            [job] = [job for job in test.found_jobs("wire", test.Chosen([name], True)) if job.name == name]
            with unittest.mock.patch.object(test.wire_suite, "run") as run:
                job.call(2)
            run.assert_called_once_with(name, False, 2 * test.SLOWER[kernel])
            self.assertEqual(job.timeout, test.wire_suite.TIMEOUT * test.SLOWER[kernel])

    def test_a_name_that_nothing_has_cannot_be_listed(self):
        with contextlib.redirect_stdout(io.StringIO()), self.assertRaisesRegex(base.Fail, "no test of fuzz has the name nonsense"):
            test.run(["--list", "fuzz/nonsense"])

    def test_a_fuzzer_passes_if_inputs_have_run_and_none_failed(self):
        log = pathlib.Path(self.enterContext(tempfile.NamedTemporaryFile()).name)
        for name, text in (("uverbs", "after 61 s: 70 inputs"), ("uverbs", "14 s: 70 inputs"), ("frames", "stat::number_of_executed_units: 70")):
            for status, said, passed in ((0, text, True), (0, text.replace(" 70", " 0"), False), (0, "", False), (125, text, False)):
                with unittest.mock.patch.object(jobs, "program", return_value=(status, f"{said}\n", log)) as program, contextlib.redirect_stdout(io.StringIO()), unittest.mock.patch.object(test.kernels, "get"):
                    [job] = test.found_jobs("fuzz", test.Chosen([name], False))
                    self.assertEqual(bool(job.call(1).passed), passed, (name, status, said))
                self.assertEqual("debug" in program.call_args.args[1], name == "uverbs")

    def test_the_space_of_the_layer_tree_is_counted(self):
        for layer in ("tree", "stock"):
            with unittest.mock.patch.object(test.space, "need", side_effect=base.Fail("full")) as need, self.assertRaises(base.Fail):
                test.run([layer])
            self.assertEqual(need.call_args.kwargs["tree"], layer == "tree")

    def test_the_default_builds_no_kernel_and_omits_nothing_without_one(self):
        def kernels_of(layer):
            return {job.kernel for job in test.found_jobs(layer, test.Chosen([], False))}

        # The packages are no part of the driver's tests, and need two systems of their own.
        for layer in set(test.LAYERS) - {"packages"}:
            self.assertEqual(kernels_of(layer) <= {None, "stock"}, layer in test.DEFAULT, layer)
        self.assertNotIn("packages", test.DEFAULT)

    def test_make_help_has_each_layer(self):
        line = next(line for line in (base.TOP / "Makefile").read_text().splitlines() if line.startswith("test:"))
        lists = re.search(r"\[LAYER='([^']*)'; on request: (.*), which need a kernel of their own, and (\S+)\]$", line)
        self.assertEqual(set(lists[1].split()), set(test.DEFAULT))
        self.assertEqual(sorted(" ".join(lists.groups()).split()), sorted(test.LAYERS))

    def test_a_report_is_a_line_of_the_terminal_that_ends_with_a_word(self):
        text = "building the module: 43 s, RUSTC [M] drivers/infiniband/hw/qpair/qpair-stream.o"
        for columns, end in ((200, "qpair-stream.o"), (80, "[M] ..."), (45, "s, RUSTC ..."), (0, "qpair-stream.o"), (1, "43 s, ...")):
            said, size = io.StringIO(), os.terminal_size((columns, 24))
            said.fileno = lambda: 2
            with unittest.mock.patch.object(os, "get_terminal_size", return_value=size), contextlib.redirect_stderr(said):
                base.report(text)
            self.assertTrue(said.getvalue().endswith(f"{end}\n"), said.getvalue())
            self.assertLessEqual(len(said.getvalue()), 1 + max(columns or base.WIDE, base.NARROW + len("qpair: ")))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            base.report(text)
        self.assertIn(text, said.getvalue())

    def test_a_command_that_there_is_not_is_named_with_those_that_there_are(self):
        for words, why in ((["nosuch"], "error: no command nosuch"), (["base"], "error: no command base"), ([], "error: no command; usage")):
            ran = subprocess.run([base.SCRIPTS / "py", *words], capture_output=True, text=True)
            self.assertEqual((ran.returncode, ran.stdout), (base.OWN_FAILURE, ""))
            self.assertIn(why, ran.stderr)
            self.assertIn(" nightly ", ran.stderr)

    def test_each_guest_of_verbs_has_a_script(self):
        for name, guest in verbs_suite.table()["guest"].items():
            for everything in (False, True):
                with self.subTest(name, everything=everything):
                    verbs_suite.script({}, verbs_suite.tests_on(guest, everything), everything, guest)

    def test_a_script_of_verbs_explains_itself_without_a_guest(self):
        for script in verbs.SCRIPTS.iterdir():
            if script.suffix == ".sh":
                continue
            for words in ([script.name, "--help"], [script.name, "-h"]):
                said = io.StringIO()
                with self.subTest(words), unittest.mock.patch.object(runner, "choose_kernel", side_effect=base.Fail("a guest")), contextlib.redirect_stdout(said):
                    self.assertEqual(runner.run(["--verbs", "--", *words]), 0)
                self.assertGreater(len(said.getvalue()), 60)
        self.assertIn("for each EVENT, under I/O", verbs.help_of(["storage", "--help"]))
        for words in ([], ["storage"], ["storage", "nvme", "--help"], ["ls", "--help"]):
            self.assertIsNone(verbs.help_of(words))

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

        def is_wrong(_slower):
            return [*False]

        found = [
            jobs.Job("figures", "all", alone, alone=True),
            jobs.Job("debug", "a", beside, timeout=900),
            jobs.Job("stock", "b", beside),
            jobs.Job("host", "all", fails),
            jobs.Job("host", "b", is_wrong),
        ]
        with unittest.mock.patch.object(jobs, "GUESTS", 3), contextlib.redirect_stdout(io.StringIO()):
            with contextlib.redirect_stderr(io.StringIO()):
                counts = jobs.run(found)
        self.assertEqual([counts[job].passed for job in found], [1, 3, 3, 0, 0])
        self.assertEqual([counts[job].bad[0][:9] for job in found[3:]], ["no kernel", "TypeError"])
        self.assertEqual(running, [1])

    def test_calls_side_by_side_end_with_the_first_failure(self):
        together = threading.Barrier(2, timeout=10)
        self.assertEqual(jobs.side_by_side([lambda: together.wait() * 0, lambda: together.wait() * 0 + 1], 2), [0, 1])

        def sleeps():
            with base.started(["sleep", "60"]) as process:
                return process.wait()

        def fails():
            raise base.Fail("one of them")

        def interrupted():
            yield sleeps
            raise KeyboardInterrupt

        start = time.monotonic()
        with self.assertRaises(base.Fail):
            jobs.side_by_side([fails, sleeps, sleeps], 2)
        with self.assertRaises(KeyboardInterrupt):
            jobs.side_by_side(interrupted(), 2)
        self.assertLess(time.monotonic() - start, 30)

    def test_what_a_signal_ends_has_not_failed(self):
        program = """
import os, signal, sys
from qp import base, demo, jobs, ktap

def call(_slower):
    with base.started(["sleep", "60"]) as process:
        print("begun", flush=True)
        return ktap.Count(failed=int(process.wait() != 0))

base.main(lambda _: print(jobs.run([jobs.Job("stock", "a", call)])))
"""
        for number, whole in ((signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGINT, False)):
            with self.subTest(number, whole=whole):
                words = ["env", "--default-signal=INT", sys.executable, "-c", program]
                process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
                self.assertEqual(process.stdout.readline(), "begun\n")
                # timeout(1) signals the group of its command.
                os.kill(-process.pid if whole else process.pid, number)
                said, errors = process.communicate(timeout=30)
                self.assertEqual((process.returncode, said, errors), (128 + number, "", "qpair: interrupted\n"))

    def test_a_second_signal_does_not_end_the_end(self):
        program = """
from qp import base, demo, jobs, ktap

def call(_slower):
    with base.started(["sh", "-c", "exec 2>/dev/null; trap 'echo told' TERM; echo begun; while true; do sleep 1; done"]) as process:
        return ktap.Count(failed=int(process.wait() != 0))

base.main(lambda _: jobs.run([jobs.Job("stock", "a", call)]))
"""
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in ("begun\n", "told\n"):
            self.assertEqual(process.stdout.readline(), line)
            process.terminate()
        _, errors = process.communicate(timeout=30)
        self.assertEqual((process.returncode, errors), (128 + signal.SIGTERM, "qpair: interrupted\n"))

    def test_a_failure_keeps_its_logs_and_the_next_one_too(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)

            def call(_slower):
                jobs.log_of("a b").write_text("why")
                jobs.log_of("not written")
                return ktap.Count(failed=1)

            job = jobs.Job("stock", "a: b, c", call)
            with (
                unittest.mock.patch.multiple(jobs, LOGS=folder / "test", FAILED=folder / "failed", MOST_FAILED=2),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                for number in (1, 2, 3):
                    job.run(1)
                    self.assertEqual(len(set(job.logs)), number)
                jobs.begin()
            self.assertEqual([path.read_text() for path in (folder / "failed").iterdir()], ["why"] * 2)

    def test_jobs_that_run_are_reported_once_nothing_was_printed_for_a_while(self):
        reported = threading.Event()
        call = lambda _slower: ktap.Count(failed=not reported.wait(30))
        with (
            unittest.mock.patch.multiple(jobs, REPORT_AFTER=0.01, POLL=0.01),
            unittest.mock.patch.object(jobs.Job, "report", lambda *_: reported.set()),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            self.assertEqual([count.failed for count in jobs.run([jobs.Job("stock", "a", call)]).values()], [0])
        with unittest.mock.patch.object(base, "SAID", 100.0):
            self.assertEqual([jobs.is_quiet(now) for now in (159.0, 160.0)], [False, True])
            for say in (base.say, jobs.tell):
                base.SAID = time.monotonic() - 60
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    say("a")
                self.assertFalse(jobs.is_quiet(time.monotonic()))

    def test_a_report_has_the_last_line_that_a_job_wrote(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(base, "report") as report:
            opened = [pathlib.Path(folder) / name for name in ("not-written", "newer", "older")]
            for path, at in zip(opened[1:], (2, 1)):
                path.write_text(f"old\nqpair: \x1b[2Jbuilding {path.name}\x07: 20 s\n\x1b[0m\n")
                os.utime(path, (at, at))
            jobs.Job("stock", "a", None, started=40, opened=opened).report(100)
            jobs.Job("stock", "b", None, opened=opened).report(100)
        self.assertEqual([call.args[0] for call in report.call_args_list], ["stock: a: 60 s, building newer: 20 s"])

    def test_the_longest_job_starts_first(self):
        found = [
            jobs.Job("stock", "a: x", None, timeout=100),
            jobs.Job("stock", "b", None, timeout=200),
            jobs.Job("host", "all", None, cargo=True),
            jobs.Job("mutants", "all", None, cargo=True),
            jobs.Job("figures", "all", None, alone=True),
        ]
        self.assertEqual(jobs.lanes(found), [found[2:4], [found[1]], [found[0]]])

    def test_the_processor_time_of_a_job_is_that_of_its_processes(self):
        def busy(_slower):
            with base.started(["sh", "-c", "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done'"]) as process:
                with self.assertRaises(subprocess.TimeoutExpired):
                    process.wait(timeout=0)
                return ktap.Count(passed=1, failed=process.wait())

        job = jobs.Job("stock", "busy", busy)
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(job.run(1).failed, 0)
        self.assertGreater(job.worked, 0)
