#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""qemu/tests/plugin.py WRAPPER QEMU FOLDER: tests of the device as a plugin of an unmodified QEMU.

WRAPPER runs QEMU with the plugin, FOLDER has the plugin and variants of it that QEMU has to refuse.
QEMU 10.0 of Debian lacks the qtest accelerator, which qemu/tests/device.py needs, so these tests access
no register. The output is TAP; the exit status is 0 if all passed.
"""

import re
import subprocess
import sys
import tempfile

import tap

TIMEOUT = 60


def run(*args, said="", program=1):
    """Runs the wrapper, or QEMU, until it ends; `said` is the input of the monitor."""
    return subprocess.run(
        [sys.argv[program], "-nodefaults", "-display", "none", *args],
        input=said, capture_output=True, text=True, timeout=TIMEOUT,
    )  # fmt: skip


def machine(*args, said="quit\n"):
    """Runs a machine that is stopped, with a monitor."""
    result = run("-machine", "q35", "-accel", "tcg", "-S", "-monitor", "stdio", *args, said=said)
    assert result.returncode == 0, f"status {result.returncode}: {result.stderr}"
    return result


def refused(name, *parts, program=2):
    """QEMU ends with a message that has these parts, not with a signal."""
    result = run("-machine", "q35", "-accel", "tcg", "-S", "-plugin", f"{sys.argv[3]}/{name}", program=program)
    assert result.returncode == 1, f"status {result.returncode}: {result.stderr}"
    for part in parts:
        assert part in result.stderr, f"no {part!r} in {result.stderr!r}"


def both_functions_exist():
    result = machine("-device", "qpair,id=q", "-device", "qpair-stream,id=s", said="info pci\nquit\n")
    assert result.stdout.count("PCI device 1234:515") == 2, result.stdout
    assert not result.stderr, result.stderr


def help_is_answered():
    for name, more, words in (("qpair", "", ("eqs=", "send-wqes=", "faults=")), ("qpair-stream", "id=s,", ("channels=", "kind="))):
        result = run("-device", f"{name},{more}help")
        assert result.returncode == 0 and result.stdout.startswith(f"{name} options:\n"), result
        for word in words:
            assert f"\n  {word}" in result.stdout, f"{name}: no {word}"


def traces_are_printed():
    for words in (("-trace", "qpair_reset"), ("--trace", "enable=qpair_re*")):
        result = machine("-device", "qpair,id=q", *words)
        assert "qpair_reset q: reset" in result.stderr, result.stderr
    assert not machine("-device", "qpair,id=q", "-trace", "pci_nothing_*").stderr
    with tempfile.NamedTemporaryFile() as log:
        assert not machine("-device", "qpair,id=q", "-trace", f"qpair_reset,file={log.name}").stderr
        assert b"qpair_reset q: reset" in log.read()


def other_words_are_qemu_s():
    """The last word, and words with blanks, quotes and commas, reach QEMU as they are."""
    assert run("-device").returncode == 1
    assert "'a \"b\" c" in run("-device", "a \"b\" c").stderr
    assert run("-device", "e1000,help").stdout.startswith("e1000 options:\n")


def another_version_is_refused():
    major, minor = re.search(r"version (\d+)\.(\d+)", run("--version").stdout).groups()
    refused("other_version.so", f"is built for QEMU {major}.99, and this is QEMU {major}.{minor}.", "(Debian 1:", "build the plugin for this emulator")


def another_size_is_refused():
    refused("other_size.so", "whose pci-device has ", " and this one has ", "build the plugin for this emulator")


def another_option_is_refused():
    refused("qpair-qemu.so,color=blue", "no option color=blue", "help=DRIVER")
    refused("qpair-qemu.so,help=e1001", "help=e1001 is not the name of a driver", "help=qpair-stream")


def a_second_one_is_refused():
    # By another path: QEMU loads a path once.
    refused("./qpair-qemu.so", "has the device already", "load the plugin once", program=1)


TESTS = [
    both_functions_exist,
    help_is_answered,
    traces_are_printed,
    other_words_are_qemu_s,
    another_version_is_refused,
    another_size_is_refused,
    another_option_is_refused,
    a_second_one_is_refused,
]


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    return tap.run([(tap.name_of(test), test) for test in TESTS])


if __name__ == "__main__":
    sys.exit(main())
