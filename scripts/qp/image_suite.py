# SPDX-License-Identifier: GPL-2.0
"""The jobs `image` of the layer `packages`: the disk of `make image`, booted as documented.

The packages and the image are made. In a copy of the system of Debian's packages with its QEMU
(qp/debs_suite.py) qpair-qemu is installed, and runs the command of qp/image.py, as it is. This module
types at the serial console, and waits for what appears there.
"""

import os
import re
import select
import subprocess
import time

from qp import base, cache, console, debian, debs_suite, image, jobs, plugin

# Seconds of a boot or of an end, of one thing else, and of the job.
BOOT = 300
WAIT = 90
TIMEOUT = 3000

PROMPT = rf"root@{image.NAME}:~# "
# The network has an address, so the port of RoCE has its GIDs.
READY = "udevadm settle; /usr/lib/systemd/systemd-networkd-wait-online && ibv_devinfo -v -d qpair0"

# The QEMU of backports.
NEWER = (plugin.PACKAGE, "qemu-system-common", "qemu-system-data", "seabios")


class Serial:
    """The serial console of a machine."""

    def __init__(self, process, log, slower):
        self.process, self.log, self.slower = process, log, slower
        self.text = ""

    def until(self, pattern, seconds=WAIT):
        """Reads until a pattern, a new one each time; returns the text until its end."""
        end = time.monotonic() + seconds * self.slower
        while not (found := re.search(pattern, self.text, re.DOTALL)):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            data = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
            if not data:
                why = "the machine has ended" if ready else f"not within {seconds * self.slower} s"
                raise base.Fail(f"no {pattern!r} on the console: {why}; its last lines:\n{self.text[-2000:]}")
            self.log.write(data)
            self.text += data.decode(errors="replace").replace("\r", "")
        text, self.text = self.text[: found.end()], self.text[found.end() :]
        return text

    def type(self, line):
        self.process.stdin.write(f"{line}\n".encode())

    def command(self, line):
        """The output of a command that has to end with 0."""
        self.type(f"{line}; echo status=$?")
        text = self.until(r"\nstatus=\d+\n")
        if not text.endswith("\nstatus=0\n"):
            raise base.Fail(f"{line}: {text[-2000:]}")
        return text


def use(serial):
    """A boot up to the login, the first test, and the kernel's log of it."""
    serial.until(rf"login: root \(automatic login\).*{PROMPT}", BOOT)
    if not re.search(r"PORT_ACTIVE.*GID\[ *0\]:\s+fe80:", serial.command(READY), re.DOTALL):
        raise base.Fail("the port has no GID")
    serial.command(image.TEST)
    serial.command("qpair info")
    seen = console.Console()
    seen.feed(serial.command("dmesg").encode())
    if seen.report():
        raise base.Fail(f"the kernel reports:\n{seen.report()}")


def run(name, suite, slower):
    """Job: two boots of the image, of which a reboot ends the first, in the QEMU of a suite."""
    build = base.TOP / f"build/{name}-test"
    output = build / image.OUTPUT.relative_to(base.TOP)
    cache.discard(build)
    output.parent.mkdir(parents=True)
    packages = debs_suite.make(debs_suite.FIRST, build / "packages")
    base.step("making the image", [base.SCRIPTS / "image", "--packages", build / "packages", "--output", output])
    system = (f"host-{suite}", tuple(map(debian.newer, NEWER))) if suite == plugin.BACKPORTS else ()
    root = debs_suite.host(build / "host", debs_suite.of(packages, debs_suite.FOR_HOSTS), *system)
    results = debs_suite.Results()
    results.command("host: install", "chroot", root, "sh", "-c", "dpkg -i /tmp/*.deb")
    debs_suite.use_on_host(results, root, suite)
    machine = debs_suite.inside(root, build / "machine", "env", "-C", build, *image.COMMAND.split())
    with (
        open(jobs.log_of(f"packages-{name}"), "wb", buffering=0) as log,
        base.started([machine], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0) as process,
    ):
        serial = Serial(process, log, slower)
        use(serial)
        results.tell("the first boot", [])
        serial.type("systemctl reboot")
        use(serial)
        results.tell("the boot after systemctl reboot", [])
        serial.type("systemctl poweroff")
        serial.until("poweroff.target", BOOT)
        status = process.wait(timeout=BOOT * slower)
        results.tell("systemctl poweroff", [f"status {status}"] if status else [])
    if not results.count.failed:
        cache.discard(build)
    return results.count
