# SPDX-License-Identifier: GPL-2.0
"""The recipes of Documentation/faults.rst: commands, and what they print.

A recipe is a console block whose first line is a command of scripts/guest --verbs, over more lines
if they end with a backslash. The other lines are of its output, in their order; `...` stands for
anything, and alone in a line for lines. The layer `verbs` runs the recipes in a guest: the first as
its options are, the others in the same guest, and so without options of their own.
"""

import dataclasses
import re
import shlex

from qp import base, jobs, ktap

PAGE = base.TOP / "Documentation/faults.rst"

BLOCK = re.compile(r"^\.\. code-block:: console\n\n((?:   .*\n|\n)+)", re.MULTILINE)
GUEST = ["scripts/guest", "--verbs"]
# What the guest prints around each.
BEGIN, END = "# recipe", "# status"
# A program that meets a fault may fail. From this status on, it is missing or was killed.
FIRST_OF_SHELL = 126
RESULT = re.compile(rf"^{BEGIN} (\d+)\n(.*?)^{END} (\d+)$", re.MULTILINE | re.DOTALL)


@dataclasses.dataclass
class Recipe:
    options: list
    command: list
    prints: list

    def missing(self, output):
        """The first line that the output does not have where it should; None if it has all."""
        lines = iter(plain(line) for line in output.splitlines())
        for wanted in self.prints:
            pattern = re.escape(plain(wanted)).replace(re.escape("..."), ".*")
            if not any(re.fullmatch(pattern, line) for line in lines):
                return wanted
        return None


def plain(line):
    return " ".join(line.split())


def recipes(text):
    found = []
    for block in BLOCK.findall(text):
        lines = [line[3:] for line in block.replace("\\\n", " ").rstrip().splitlines()]
        words = shlex.split(lines[0].removeprefix("$"))
        if words[:2] != GUEST:
            raise base.Fail(f"{PAGE.name}: a recipe begins with {' '.join(GUEST)}: {lines[0]}")
        dashes = words.index("--")
        prints = [line for line in lines[1:] if line.strip() not in ("", "...")]
        found.append(Recipe(words[2:dashes], words[dashes + 1 :], prints))
    if not found or not all(recipe.prints for recipe in found) or any(recipe.options for recipe in found[1:]):
        raise base.Fail(f"{PAGE.name}: each recipe has its output, and only the first has options")
    return found


def script(found):
    """The guest's script."""
    lines = []
    for number, recipe in enumerate(found, 1):
        lines += [f"echo {shlex.quote(f'{BEGIN} {number}')}", f"{shlex.join(recipe.command)} 2>&1", f'echo "{END} $?"']
    # The rules of the options end with the first.
    lines.insert(3, "qmp qom-set path=/machine/peripheral/qpair0 property=faults value= >/dev/null")
    return "\n".join(lines) + "\n"


def judge(found, text):
    count = ktap.Count()
    results = {int(number): (output, int(status)) for number, output, status in RESULT.findall(text)}
    for number, recipe in enumerate(found, 1):
        if number not in results:
            count.fail(f"recipe {number} did not run")
            continue
        output, status = results[number]
        missing = recipe.missing(output)
        if status >= FIRST_OF_SHELL:
            count.fail(f"recipe {number}: status {status}")
        elif missing is None:
            count.passed += 1
        else:
            count.fail(f"recipe {number} does not print: {missing.strip()}")
    return count


def run(name, options, timeout):
    """Runs the recipes in a guest."""
    found = recipes(PAGE.read_text())
    options = ["--verbs", *options, *found[0].options]
    status, text, _ = jobs.guest(f"verbs-{name}", options, ["sh", "-c", script(found)], timeout)
    count = judge(found, text)
    if status != 0:
        count.fail(f"status {status}")
    return count
