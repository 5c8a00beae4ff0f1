# SPDX-License-Identifier: GPL-2.0
"""Runs a command in a guest.

    scripts/guest OPTIONS -- CMD ARGS...

The exit status is CMD's own, or
    124 on a timeout,
    125 when the guest could not run CMD (the end of its log is shown),
    126 when the kernel warned or oopsed, or a detector reported a bug (shown),
    130 when it was interrupted.
CMD's output is passed through unchanged; everything else goes to stderr.

Without CMD the guest boots, loads the module, removes it and powers off.
Programs of tools/ are in the guest's PATH, beside busybox; `qmp COMMAND NAME=VALUE...` sends a
command to QEMU's monitor (`qmp device_del id=qpair0`). A guest that suspends to RAM is woken at
once; CMD needs --sleeps for that, so that the console's ports work afterwards. CMD's stdin is that
of scripts/guest if it is a pipe or a file.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import selectors
import shlex
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

from qp import base, console as consoles, initramfs, kernel as kernels, machine as machines, network, payload, qemu, verbs

TIMED_OUT = 124
KERNEL_REPORTED = 126
# The meaning of the statuses that are not CMD's, for callers that start a guest.
WHY = {
    TIMED_OUT: "ran out of time",
    base.OWN_FAILURE: "the guest could not run it",
    KERNEL_REPORTED: "the kernel reported something",
}

# A kernel that prints nothing for so long before its init hangs: under TCG, on a busy host, one
# boot in hundreds does, long before the module is loaded.
SILENCE = 90.0

# After CMD's end: removing the module, the leak detector's scans, power off. A debug kernel on a busy
# machine takes more than a minute.
CLEANUP = 240.0

# What QEMU is asked about a guest that does not end, and how many seconds an answer may take.
STATE, ANSWERS_IN = ("info status", "info registers -a"), 5.0


def number(least, most=None):
    """The type of an option: a number from `least` on, to `most` if there is one."""

    def read(text):
        if not text.isascii() or not text.isdigit() or int(text) < least or (most is not None and int(text) > most):
            raise argparse.ArgumentTypeError(f"{text} is not a number from {least}" + (f" to {most}" if most is not None else ""))
        return int(text)

    return read


positive, of_1000 = number(1), number(0, 1000)


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/guest",
        description=__doc__.split("\n\n")[0],
        epilog=__doc__.split("\n\n", 2)[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--kernel", default="stock", metavar="stock|test|debug|PATH", help="the kernel to boot; PATH is a bzImage, with KDIR= for its module")
    add("--qemu", type=pathlib.Path, metavar="PATH|distribution|backports|patched", help="distribution: Debian's own with the device as a plugin (the default); backports: that of its backports; patched: with qemu/patches, and the device linked into it, also by QPAIR_QEMU=NAME in the environment")
    add("--iommu", action="store_true", help="an Intel IOMMU in front of the devices, strict")
    add("--smp", type=positive, metavar="N", help="processors (2)")
    add("--maxcpus", type=positive, metavar="N", help="the maximum number of processors (default: those of --smp)")
    add("--mem", metavar="SIZE", help="memory (1G; 2G with the debug kernel)")
    add("--devices", type=int, default=1, metavar="N", help="qpair devices (1)")
    add("--eqs", type=int, metavar="N", help="event queues of each device")
    add("--device-opt", action="append", default=[], metavar="K=V", help="a property of each device")
    add("--faults", metavar="RULES", help="fault points of each device (Documentation/faults.rst): --faults fail=rem-access,opcode=write,nth=5")
    add("--stream", nargs="?", const="", metavar="K=V,...", help="a qpair-stream function and its module too, with properties: --stream kind=chain,channels=4")
    add("--iothread", action="store_true", help="run the core of each device in a thread of its own")
    add("--icount", action="store_true", help="count instructions, so that each run is the same")
    add("--accel", choices=("auto", "tcg", "kvm"), default="auto", help="KVM where it works, or TCG")
    add("--share", type=pathlib.Path, metavar="DIR", help="mount DIR in the guest, writable, and start CMD in it")
    add("--qmp", type=pathlib.Path, metavar="SOCK", help="the socket of QEMU's monitor")
    add("--gdb", action="store_true", help="wait for a debugger on port 1234")
    add("--trace", action="append", default=[], metavar="PATTERN", help="QEMU trace points, to stderr")
    add("--append", action="append", default=[], metavar="ARGS", help="kernel parameters, also those of a module that is loaded: --append ib_core.force_mr=1")
    add("--qemu-opt", action="append", default=[], metavar="WORDS", help="additional words of QEMU's command line")
    add("--load", action="append", default=[], metavar="NAME", help="load a module of the kernel, and what it needs")
    add("--timeout", type=float, metavar="S", help="timeout in seconds (300; none with --shell or --gdb)")
    add("--sleeps", action="store_true", help="CMD suspends the guest: its output is printed at its end, and after the suspend it has no stdin and no monitor")
    add("--verbs", action="store_true", help="the provider of rdma-core, Debian's programs of verbs, and the modules of soft-RoCE: `pair ib_write_bw -d qpair0` runs both sides of a program, `sides SERVER -- CLIENT` two programs; `roce CMD`, `faults RULE CMD` and `ucx` are explained in Documentation/verbs.rst, `storage nvme` in storage.rst (2G of memory)")
    add("--wire", type=network.Wire.parse, metavar="a|b[,rxe][,K=V...]", help="side a or b of a network of two guests, with a network device whose MAC qpair0 has; `wire up` gives it its address, with rxe a device of soft-RoCE is on it; net=NAME another network, mtu=N, loss=N, dup=N and reorder=N of 1000 frames that are sent, delay=MICROSECONDS, seed=N of these choices, pcap=FILE, third a network with a third station (scripts/wire --forge), tap=NAME an interface of the host in place of the socket")
    add("--package", metavar="NAME", help="build only the programs of this Cargo package, and put only them in PATH; '' builds none")
    add("--log", type=pathlib.Path, metavar="PATH", help="store the kernel's log, also of a run that passes")
    add("--no-insmod", action="store_true", help="load none of the modules")
    add("--shell", action="store_true", help="run a shell on the console, after CMD")
    add("--verbose", action="store_true", help="show the kernel's log on stderr")
    add("command", nargs="*", metavar="-- CMD", help="the command to run; without it the guest boots, loads the module, removes it and powers off")
    args = parser.parse_args(argv)
    if args.share:
        args.share = args.share.resolve()
        if not args.share.is_dir():
            raise base.Fail(f"--share {args.share} is not a folder", "name a directory that exists")
    if args.timeout is None and not (args.shell or args.gdb):
        args.timeout = 300.0
    return args


def choose_kernel(args):
    if args.kernel in kernels.NAMES:
        return kernels.get(args.kernel)
    image = pathlib.Path(args.kernel).resolve()
    if not image.is_file():
        raise base.Fail(f"--kernel {args.kernel} is no kernel", f"use {', '.join(kernels.NAMES)} or the path of a bzImage")
    return payload.own_tree(image)


def choose_emulator(args):
    if args.qemu is None:
        return qemu.binary()
    if str(args.qemu) in qemu.NAMES:
        return qemu.binary(str(args.qemu))
    if not args.qemu.is_file():
        raise base.Fail(f"--qemu {args.qemu} is no emulator", f"use {', '.join(qemu.NAMES)} or the path of a file")
    return args.qemu.resolve()


def module_of(args, kernel):
    if args.no_insmod:
        return None
    if kernel.tree is None:
        raise base.Fail(f"no tree to build the module for {kernel.image}", "set KDIR=, or give --no-insmod")
    return payload.module(kernel)


def start_folder(args):
    here = pathlib.Path.cwd()
    if args.share:
        return here if args.share == here or args.share in here.parents else args.share
    return pathlib.Path("/root")


def has_input(args):
    if args.shell:
        return False
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def has_disk(args):
    return any("virtio-blk" in words for words in args.qemu_opt)


def options(file, parameters):
    """The options of a module that are among parameters of the kernel, as modprobe finds them."""
    name = file.removesuffix(".ko").replace("-", "_")
    words = (word.partition(".") for text in parameters for word in text.split())
    return [option for module, _, option in words if option and module.replace("-", "_") == name]


def make_initramfs(args, kernel):
    files, ours = {}, []
    # Another guest may be about to build the same.
    with base.locked(payload.BUILD / "payload.lock"):
        module = module_of(args, kernel)
        if module:
            ours = [module] + [module.with_name(payload.STREAM)] * (args.stream is not None)
            keeper = [module.parent / payload.COVERAGE] * (payload.coverage() is not None)
            files.update((f"qpair/{path.name}", (path.read_bytes(), 0o644)) for path in [*ours, *keeper])
        for name, path in payload.programs(args.package).items():
            files[name] = (path.read_bytes(), 0o755)
    if args.verbs:
        files.update(verbs.files(kernel))
    names = [(initramfs.SHARE, args.share), (initramfs.DISK, has_disk(args)), (verbs.MODULES, args.verbs), (args.wire and args.wire.modules, args.wire), (args.load, True)]
    modules, lacking = initramfs.modules(kernel, [*initramfs.ALWAYS, *(name for these, needed in names if needed for name in these)])
    files.update(lacking)
    settings = {
        "modules": shlex.quote(" ".join(",".join([name, *options(name, args.append)]) for name in modules)),
        "programs": verbs.SERIAL if args.verbs else "",
        "ours": shlex.quote(" ".join(path.stem for path in ours)),
        "coverage": "yes" if ours and payload.coverage() else "",
        "share": shlex.quote(str(args.share or "")),
        "folder": shlex.quote(str(start_folder(args))),
        "shell": "yes" if args.shell else "",
        "input": "yes" if has_input(args) else "",
        "leaks": "yes" if kernel.name == "debug" else "",
        "sleeps": "yes" if args.sleeps else "",
    }
    environment = {
        # For tests that depend on them.
        "QPAIR_KERNEL": kernel.name,
        "QPAIR_DEVICES": args.devices,
        "QPAIR_IOMMU": int(args.iommu),
        "QPAIR_STREAM": int(args.stream is not None),
        # All processes of a program, or with the provider, have one file, which init writes to the host.
        **({"LLVM_PROFILE_FILE": "/tmp/counters-%m%c"} if payload.coverage() else {}),
        **(args.wire.settings() if args.wire else {}),
    }
    exported = f"export {' '.join(f'{name}={shlex.quote(str(value))}' for name, value in environment.items())}\n"
    command = exported + f"exec {shlex.join(args.command)}\n" if args.command else ""
    return initramfs.build(kernel, files, settings, command, verbs.ON_DEMAND if args.verbs else ())


def each_line(call):
    """A handler of a stream that passes each whole line to `call`."""
    rest = b""

    def handle(data):
        nonlocal rest
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            call(line.decode(errors="replace"))

    return handle


class Run:
    """A running guest, until its QEMU has ended."""

    def __init__(self, args, machine, silence=None):
        self.args, self.machine, self.silence = args, machine, silence
        self.console = consoles.Console(sys.stderr if args.verbose else None)
        self.hangs = self.ended = False
        self.status = self.why = self.stuck = None
        self.deadline = time.monotonic() + args.timeout if args.timeout else None

    def run(self):
        """Runs QEMU to its end; returns whether it ended in time."""
        command = [
            # Kill QEMU if this process is killed.
            "setpriv", "--pdeathsig", "KILL", "--", *self.machine.words,
        ]  # fmt: skip
        self.errors = tempfile.TemporaryFile()
        plain = self.args.shell or self.args.trace
        self.process = subprocess.Popen(
            command,
            stdin=None if self.args.shell else subprocess.DEVNULL,
            stdout=None if self.args.shell else self.errors,
            stderr=None if plain else self.errors,
            pass_fds=self.machine.descriptors(),
            # Ctrl-C ends this process, which then ends QEMU.
            process_group=None if self.args.shell else 0,
        )
        self.machine.handed_over()
        try:
            return self.loop()
        finally:
            self.process.kill()
            self.process.wait()

    def loop(self):
        """Reads the channels until QEMU, which ends, closes them."""
        handlers = {
            "console": self.console.feed,
            "control": each_line(self.on_control),
            "monitor": each_line(self.on_monitor),
            "stdout": lambda data: self.write_all(1, data),
            "stderr": lambda data: self.write_all(2, data),
        }
        select = selectors.DefaultSelector()
        for name in handlers.keys() & self.machine.ours.keys():
            select.register(self.machine.ours[name], selectors.EVENT_READ, handlers[name])
        if has_input(self.args):
            threading.Thread(target=self.send_input, daemon=True).start()
        while select.get_map():
            left = self.left()
            if left is not None and left <= 0:
                self.stuck = self.state()
                return False
            for key, _ in select.select(left):
                try:
                    data = key.fileobj.recv(1 << 16)
                except ConnectionError:
                    data = b""
                if data:
                    key.data(data)
                else:
                    select.unregister(key.fileobj)
        self.process.wait()
        self.console.close()
        return True

    def left(self):
        """Seconds until the timeout, or until the boot counts as hung; None if there is no
        limit."""
        now = time.monotonic()
        left = [] if self.deadline is None else [self.deadline - now]
        if self.silence and not self.console.in_init:
            left.append(self.console.heard + self.silence - now)
            self.hangs = left[-1] <= 0
        return min(left, default=None)

    @staticmethod
    def write_all(descriptor, data):
        while data:
            data = data[os.write(descriptor, data) :]

    def send_input(self):
        """Passes stdin on, in a thread: it may never be ready, and the guest may never read it."""
        port = self.machine.ours["stdin"]
        # QEMU may end first.
        with contextlib.suppress(ConnectionError):
            while data := os.read(0, 1 << 16):
                port.sendall(data)
            # Not closed: data that the guest has not read yet would be lost.
            port.shutdown(socket.SHUT_WR)

    def on_control(self, line):
        word, _, rest = line.partition(" ")
        if word == "status":
            self.status = int(rest)
            if self.deadline is not None:
                self.deadline = time.monotonic() + CLEANUP
        elif word == "failed":
            self.why = rest
        elif word == "end":
            self.ended = True

    def on_monitor(self, line):
        """Wakes a suspended guest at once: an RTC alarm could expire before the guest sleeps."""
        message = json.loads(line)
        if "QMP" in message:
            self.ask("qmp_capabilities")
        elif message.get("event") == "SUSPEND":
            self.ask("system_wakeup")

    def ask(self, command, **arguments):
        words = {"execute": command, "arguments": arguments}
        self.machine.ours["monitor"].sendall(json.dumps(words).encode() + b"\n")

    def state(self):
        """Where a guest is that does not end: whether it is suspended, and each processor's instruction
        pointer. A QEMU that does not answer hangs itself."""
        said, rest = [], b""
        # The first line may be the rest of one.
        with contextlib.suppress(OSError, ValueError):
            self.machine.ours["monitor"].settimeout(ANSWERS_IN)
            for command in STATE:
                self.ask("human-monitor-command", **{"command-line": command})
            while len(said) < len(STATE) and (data := self.machine.ours["monitor"].recv(1 << 16)):
                *lines, rest = (rest + data).split(b"\n")
                answers = [json.loads(line).get("return") for line in lines]
                said += [answer for answer in answers if isinstance(answer, str)]
        found = re.findall(r"^(?:VM status|CPU#|.*\b[ER]IP=).*", "\n".join(said).replace("\r", ""), re.MULTILINE)
        return "\n".join(found) or "QEMU's monitor does not answer"

    def qemu_says(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip()


def documents(text):
    """The JSON values in a text, one after the other."""
    found, decoder, text = [], json.JSONDecoder(), text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].lstrip()
    return found


def output(what, options, script, remedy=None):
    """What a script prints in a guest of its own."""
    with tempfile.TemporaryFile() as out:
        base.step(what, [base.SCRIPTS / "guest", *options, "--", "sh", "-c", script], stdout=out, remedy=remedy)
        out.seek(0)
        return out.read().decode()


def reports(what, options, script, remedy=None):
    """The JSON values that a script prints in a guest of its own."""
    return documents(output(what, options, script, remedy))


def show(title, text):
    base.say(title)
    print(text, file=sys.stderr, flush=True)


def keep_log(run):
    """Stores the whole kernel log of a failed run."""
    folder = payload.BUILD / "log"
    folder.mkdir(parents=True, exist_ok=True)
    path = run.args.log or folder / f"guest-{time.strftime('%H%M%S')}-{os.getpid()}"
    path.write_text("\n".join(run.console.lines) + "\n")
    base.say(f"the guest's whole log: {path}")


def verdict(run, in_time):
    """The exit status of a run; prints the reason if it is not CMD's."""
    report = run.console.report()
    if report:
        show("the guest's kernel reported:", report)
        keep_log(run)
        return KERNEL_REPORTED
    if not in_time:
        what = f"after CMD ended with {run.status}" if run.status is not None else "in CMD or before"
        show(f"the guest did not end in time ({what}); the end of its log:", run.console.tail())
        show("QEMU says of it:", run.stuck)
        keep_log(run)
        return TIMED_OUT
    if run.status is None or not run.ended:
        said = run.qemu_says()
        if said:
            show("QEMU said:", said)
        if run.console.lines:
            show("the end of the guest's log:", run.console.tail())
            keep_log(run)
        why, remedy = run.why, None
        if not (why or said or run.console.lines):
            why = f"QEMU ended with status {run.process.returncode} and said nothing"
            remedy = f"see that {run.machine.words[0]} is a QEMU with the device: it lists qpair with -device help"
        raise base.Fail(f"the guest ended {'after CMD, too early' if run.status is not None else 'without running CMD'}" + (f": {why}" if why else ""), remedy)
    return run.status


def is_heard(append):
    """Whether the console shows that the kernel starts its init: kernel parameters may suppress
    that."""
    return not any(word == "quiet" or word.startswith("loglevel=") for words in append for word in words.split())


def not_ours(run):
    """A known failure of the boot before the module was loaded, which the module did not cause; None if there was none."""
    if run.hangs and not run.console.found():
        return "the kernel hangs in its boot"
    if run.console.misread():
        return "the processor hit a breakpoint that the kernel had just removed from its own code"
    return None


def run(argv):
    args = parse(argv)
    if args.verbs and (text := verbs.help_of(args.command)):
        print(text)
        return 0
    kernel = choose_kernel(args)
    emulator = choose_emulator(args)
    image = make_initramfs(args, kernel)
    # Input that one boot has read is lost for the next; and a guest whose console is silent may
    # already be in its init.
    may_repeat = is_heard(args.append) and not (args.gdb or args.shell or has_input(args))
    guest = Run(args, machines.build(args, emulator, kernel, image), SILENCE if may_repeat else None)
    in_time = guest.run()
    why = not_ours(guest) if may_repeat else None
    if why:
        base.say(f"{why}, before its init; once more, after: {guest.console.tail(1)}")
        keep_log(guest)
        guest = Run(args, machines.build(args, emulator, kernel, image))
        in_time = guest.run()
    if args.log:
        args.log.write_text("\n".join(guest.console.lines) + "\n")
    if args.shell:
        return guest.status or 0
    return verdict(guest, in_time)


if __name__ == "__main__":
    base.main(run)
