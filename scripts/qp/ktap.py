# SPDX-License-Identifier: GPL-2.0
"""Counts the results in KTAP, and in the output of `cargo test`."""

import dataclasses
import re


@dataclasses.dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    # The names of failed tests.
    bad: list[str] = dataclasses.field(default_factory=list)

    def add(self, other, prefix=""):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.bad += [prefix + name for name in other.bad]

    def fail(self, name):
        self.failed += 1
        self.bad.append(name)

    @property
    def total(self):
        return self.passed + self.failed + self.skipped

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


RESULT = re.compile(r"^(\s*)(not )?ok (\d+)\s*-?\s*([^#]*?)\s*(#.*)?$")


def of_ktap(text):
    """Counts the leaves: a line with subtests above it is only their sum."""
    count, deepest = Count(), 0
    for line in text.splitlines():
        match = RESULT.match(line)
        if not match:
            continue
        depth, (bad, name, comment) = len(match[1]), (match[2], match[4], match[5] or "")
        # Subtests are indented and precede the line with their sum.
        is_sum, deepest = depth < deepest, depth
        if is_sum:
            continue
        if re.match(r"#\s*SKIP", comment, re.IGNORECASE):
            count.skipped += 1
        elif bad:
            count.fail(name)
        else:
            count.passed += 1
    return count


def of_cargo(text):
    count = Count()
    for match in re.finditer(
        r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", text, re.MULTILINE
    ):
        count.passed += int(match[1])
        count.failed += int(match[2])
        count.skipped += int(match[3])
    count.bad = re.findall(r"^test (.*) \.\.\. FAILED$", text, re.MULTILINE)
    return count
