# SPDX-License-Identifier: GPL-2.0
"""Tests of faults, storage and qp/recipes.py: run by `scripts/check scripts`."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from qp import base, recipes

PAGE = """
.. code-block:: console

   $ scripts/guest --verbs --faults 'fail=rem-op,nth=2' \\
       -- loop qpair0
   loop:   request ... failed
   ...
   scnt=..., ccnt=1

.. code-block:: sh

   scripts/guest --verbs -- nothing

.. code-block:: console

   $ scripts/guest --verbs -- faults 'seed=1;freeze' sh -c 'a & b'
   done
"""


def ended(script, *words, env):
    """The status, output and errors of a script of the guests."""
    ran = subprocess.run(["sh", script, *words], env=env, capture_output=True, text=True)
    return ran.returncode, ran.stdout, ran.stderr


class Recipes(unittest.TestCase):
    def test_a_page_has_commands_and_their_output(self):
        first, second = recipes.recipes(PAGE)
        self.assertEqual(first.options, ["--faults", "fail=rem-op,nth=2"])
        self.assertEqual(first.command, ["loop", "qpair0"])
        self.assertEqual(first.prints, ["loop:   request ... failed", "scnt=..., ccnt=1"])
        self.assertEqual(second.command, ["faults", "seed=1;freeze", "sh", "-c", "a & b"])
        self.assertIn("faults 'seed=1;freeze' sh -c 'a & b' 2>&1", recipes.script([first, second]))

    def test_a_page_that_makes_no_sense_is_refused(self):
        for bad in (
            "",
            PAGE.replace("   done\n", ""),
            PAGE.replace("--verbs -- faults", "--verbs --iommu -- faults"),
            PAGE.replace("$ scripts/guest --verbs --faults", "$ scripts/guest --faults"),
        ):
            with self.subTest(bad), self.assertRaises(base.Fail):
                recipes.recipes(bad)

    def test_output_has_each_line_in_its_place(self):
        recipe = recipes.recipes(PAGE)[0]
        good = "noise\nloop: request 7 failed\nmore\nscnt=3, ccnt=1\n"
        self.assertIsNone(recipe.missing(good))
        self.assertEqual(recipe.missing(good.replace("ccnt=1", "ccnt=12")), "scnt=..., ccnt=1")
        self.assertEqual(recipe.missing("\n".join(reversed(good.splitlines()))), "scnt=..., ccnt=1")
        self.assertEqual(recipe.missing(""), "loop:   request ... failed")

    def test_each_recipe_has_to_run(self):
        found = recipes.recipes(PAGE)
        ran = "# recipe 1\nloop: request 1 failed\nscnt=1, ccnt=1\n# status 1\n"
        count = recipes.judge(found, ran + "# recipe 2\ndone\n# status 0\n")
        self.assertEqual((count.passed, count.failed), (2, 0))
        count = recipes.judge(found, ran)
        self.assertEqual((count.passed, count.bad), (1, ["recipe 2 did not run"]))
        count = recipes.judge(found, ran + "# recipe 2\n# status 0\n")
        self.assertEqual((count.passed, count.bad), (1, ["recipe 2 does not print: done"]))


class Faults(unittest.TestCase):
    """The script that sets rules in a guest, with a monitor of its own."""

    def ended(self, answer, *words):
        """The script's status, output and warnings, when this is the monitor's answer."""
        with tempfile.TemporaryDirectory() as folder:
            port, monitor = pathlib.Path(folder) / "port", pathlib.Path(folder) / "qmp"
            # The command is written over the first lines.
            port.write_text("\n" * 1000 + json.dumps(answer) + "\n")
            monitor.write_text((base.SCRIPTS / "qp/qmp.sh").read_text().replace("/dev/virtio-ports/qpair.qmp", str(port)))
            monitor.chmod(0o755)
            path = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
            return ended(base.SCRIPTS / "qp/verbs/faults", *words, env=path)

    def did(self, text):
        return self.ended({"return": text}, "RULES", "sh", "-c", "exit 3")

    def test_rules_that_the_device_refuses_are_a_plain_error(self):
        why = "rule 1, 'fail=x\\': a status is one of loc-len"
        answer = {"error": {"class": "GenericError", "desc": f"Property 'qpair.faults': {why}"}}
        status, output, said = self.ended(answer, "fail=x\\", "true")
        self.assertEqual((status, output, said.splitlines()[0]), (125, "", f"faults: error: {why}"))
        self.assertIn("remedy: ", said)

    def test_words_that_lack_are_named(self):
        for words, why in (([], "no RULES"), (["freeze"], "no COMMAND after freeze")):
            status, output, said = self.ended({}, *words)
            self.assertEqual((status, output, said.splitlines()[0]), (2, "", f"faults: error: {why}"))
        status, output, said = self.ended({}, "--help")
        self.assertEqual((status, said), (0, ""))
        self.assertIn("usage: faults RULES COMMAND", output)

    def test_a_rule_that_did_nothing_is_named(self):
        self.assertEqual(self.did("fail 1 of 64; event 10 of 10"), (3, "faults: fail 1 of 64; event 10 of 10\n", ""))
        status, _, warnings = self.did("fail 0 of 64; event 1 of 1001; wire 0 of 0")
        self.assertEqual(status, 3)
        self.assertEqual(
            warnings.splitlines(),
            [
                "faults: warning: rule 1, fail, never fired: of its 64 occasions it chose none",
                "faults: warning: rule 3, wire, never fired: it had no occasion",
            ],
        )


class Storage(unittest.TestCase):
    """What the script says before it needs a device."""

    def ended(self, *words):
        folder = base.SCRIPTS / "qp/verbs"
        return ended(folder / "storage", *words, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})

    def test_help_is_output(self):
        for words in (["--help"], ["-h"], ["nvme", "--help"]):
            status, output, said = self.ended(*words)
            self.assertEqual((status, said), (0, ""))
            self.assertIn("usage: storage nvme|nfs", output)

    def test_a_wrong_word_is_named(self):
        for words, why in (
            ([], "no protocol"),
            (["smb"], "no protocol smb"),
            (["nvme", "--on", "siw"], "--on siw"),
            (["nvme", "rest"], "no event or option rest"),
            (["nfs", "hostile"], "nfs has no event or option hostile"),
            (["nvme", "--on", "rxe", "reset"], "reset is an event on qpair alone"),
            (["nvme", "--at"], "one ADDRESS"),
            (["nvme", "--serve"], "scripts/wire"),
        ):
            status, output, said = self.ended(*words)
            self.assertEqual((status, output), (2, ""), words)
            self.assertIn(why, said.splitlines()[0])
            self.assertIn("usage: storage", said)
