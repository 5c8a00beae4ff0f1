# SPDX-License-Identifier: GPL-2.0
"""Runs tests, and reports them as TAP."""

import traceback
import unittest


def run(tests):
    """Runs tests, each a name and a function; returns the exit status, 0 if all passed."""
    print(f"TAP version 13\n1..{len(tests)}")
    failed = 0
    for number, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} {name}", flush=True)
        except unittest.SkipTest as why:
            print(f"ok {number} {name} # SKIP {why}", flush=True)
        except Exception:
            failed += 1
            for line in traceback.format_exc().rstrip().split("\n"):
                print(f"# {line}")
            print(f"not ok {number} {name}", flush=True)
    return 1 if failed else 0


def name_of(test):
    return test.__name__.replace("_", " ")
