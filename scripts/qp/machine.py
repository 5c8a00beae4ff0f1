# SPDX-License-Identifier: GPL-2.0
"""The command line of QEMU for a guest."""

import os
import pathlib
import re
import shlex
import socket

from qp import base, payload, provider, qemu, verbs

# Kernel parameters of every guest: one oops ends it, and a panic ends QEMU.
APPEND = [
    "console=ttyS0", "loglevel=7", "panic=-1", "oops=panic", "nmi_watchdog=0",
    "watchdog_thresh=30", "rcupdate.rcu_cpu_stall_timeout=60", "random.trust_cpu=on",
]  # fmt: skip

# Without erms and fsrm the kernel clears and copies memory by words: TCG runs rep stosb and rep movsb
# byte by byte, which takes a third of the processors' time where processes fork.
CPU = "max,la57=off,erms=off,fsrm=off"

# Without owner tracking kmemleak detects no leak of slab objects; without kasan_multi_shot KASAN
# reports only the first error; and the buffer must hold all reports.
APPEND_DEBUG = ["slab_debug=U", "kasan_multi_shot", "log_buf_len=8M", "kmemleak=on", "hung_task_panic=0"]

APPEND_IOMMU = ["intel_iommu=on", "iommu.strict=1", "iommu.passthrough=0"]

# The channels between a guest and us: name, and whether the guest may lack it.
PORTS = ["control", "stdin", "stdout", "stderr"]


def kvm_works():
    """Whether KVM can run a guest.

    /dev/kvm alone is not enough: in some virtual machines it can create guests, but not run them.
    Those have no vmx or svm.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    flags = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return bool(flags) and bool({"vmx", "svm"} & set(flags[1].split()))


class Machine:
    """Collects QEMU's arguments, and its sockets to this process."""

    def __init__(self, emulator):
        self.words = [str(emulator), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
        for folder in qemu.firmware(pathlib.Path(emulator)):
            self.words += ["-L", str(folder)]
        # Descriptors that QEMU inherits: its ends of sockets, and the initramfs.
        self.passed = []
        self.ours = {}

    def add(self, *words):
        self.words += [str(word) for word in words]

    def channel(self, name):
        """A character device of QEMU whose other end this process has."""
        here, there = socket.socketpair()
        self.ours[name] = here
        self.chardev(name, there)

    def chardev(self, name, end):
        self.passed.append(end)
        self.add("-chardev", f"socket,id={name},fd={end.fileno()}")

    def memory_file(self, data):
        """A file that ends with QEMU, by the name under which QEMU opens it."""
        file = os.fdopen(os.memfd_create("initramfs"), "wb")
        file.write(data)
        file.flush()
        self.passed.append(file)
        return f"/proc/self/fd/{file.fileno()}"

    def descriptors(self):
        return [end.fileno() for end in self.passed]

    def handed_over(self):
        """Closes the descriptors that the running QEMU has inherited."""
        for end in self.passed:
            end.close()


def accelerator(args):
    if args.icount:
        if args.accel == "kvm":
            raise base.Fail("--icount counts instructions, which KVM cannot", "leave out --accel kvm")
        if args.smp not in (None, 1):
            raise base.Fail("--icount runs one processor", "leave out --smp")
        if args.iothread:
            raise base.Fail("--icount permits no threads that run at any time", "leave out --iothread")
        return ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-cpu", "max,la57=off", "-smp", "1"]
    smp = ["-smp", f"{args.smp or 2}" + (f",maxcpus={args.maxcpus}" if args.maxcpus else "")]
    if args.accel == "kvm" or (args.accel == "auto" and kvm_works()):
        return ["-accel", "kvm", "-cpu", "host", *smp]
    # With a thread for each processor a suspend may hang (Documentation/testing.rst).
    threads = "single" if args.sleeps else "multi"
    return ["-accel", f"tcg,thread={threads}", "-cpu", CPU, *smp]


def devices(machine, args):
    """Puts each device behind a root port of its own, so that it can be unplugged."""
    for number in range(args.devices):
        options = [f"id=qpair{number}", f"bus=port{number}"]
        if args.eqs is not None:
            options.append(f"eqs={args.eqs}")
        if args.icount:
            # Keys of memory regions are the same in each run.
            options.append("key-seed=1")
        if args.iothread:
            options.append(f"iothread=core{number}")
            machine.add("-object", f"iothread,id=core{number}")
        machine.add("-device", f"pcie-root-port,id=port{number},chassis={number + 1},slot={number + 1}")
        if args.faults is not None:
            # A comma in a value is doubled.
            options.append(f"faults={args.faults.replace(',', ',,')}")
        if args.wire and number == 0:
            options += args.wire.options
        machine.add("-device", ",".join(["qpair", *options, *args.device_opt]))
    if args.stream is not None:
        # Its port comes after those of the devices.
        slot = args.devices + 1
        machine.add("-device", f"pcie-root-port,id=stream-port,chassis={slot},slot={slot}")
        machine.add("-device", ",".join(["qpair-stream", "id=stream0", "bus=stream-port", *filter(None, [args.stream])]))


def counters_of(kernel, with_verbs):
    """The ports to which a guest writes its counters, and their files."""
    tool = payload.OF_LIBQPAIR[-1]
    programs = ("provider", tool, provider.library_of(counts=True)) if with_verbs else ("tools", tool)
    return {"coverage": payload.counters(kernel.name, payload.counted(kernel.name)), "programs": payload.counters(*programs)}


def build(args, emulator, kernel, initramfs):
    """The machine for a run; `initramfs` is the content of its initramfs."""
    debug = kernel.name == "debug"
    machine = Machine(emulator)
    kvm = "kvm" in (words := accelerator(args))[1]
    machine.add("-machine", "q35,kernel-irqchip=split" if kvm and args.iommu else "q35")
    machine.add(*words)
    machine.add("-m", args.mem or ("2G" if debug or args.verbs else "1G"))
    machine.add("-kernel", kernel.image, "-initrd", machine.memory_file(initramfs))
    if args.iommu:
        machine.add("-device", "intel-iommu,intremap=on")
    if args.shell:
        machine.add("-serial", "mon:stdio")
    else:
        machine.channel("console")
        machine.add("-serial", "chardev:console")
    # Port 0 is the bus's own. Of more, each has two queues, which a suspend frees and makes again.
    counters = counters_of(kernel, args.verbs) if payload.coverage() else {}
    machine.add("-device", f"virtio-serial-pci,id=ports,max_ports={len(PORTS) + 2 + len(counters)}")
    for port in PORTS:
        machine.channel(port)
        machine.add("-device", f"virtserialport,bus=ports.0,chardev={port},name=qpair.{port}")
    for name, path in counters.items():
        machine.add("-chardev", f"file,id={name},path={path}")
        machine.add("-device", f"virtserialport,bus=ports.0,chardev={name},name=qpair.{name}")
    # The guest's own connection to the monitor: a socket pair whose both ends QEMU has.
    for name, end in zip(("qmp", "qmpmonitor"), socket.socketpair()):
        machine.chardev(name, end)
    machine.add("-device", "virtserialport,bus=ports.0,chardev=qmp,name=qpair.qmp")
    machine.add("-mon", "chardev=qmpmonitor,mode=control")
    # The monitor of this process, which reports that the guest sleeps.
    machine.channel("monitor")
    machine.add("-mon", "chardev=monitor,mode=control")
    if args.share:
        machine.add("-fsdev", f"local,id=share,path={args.share},security_model=none,multidevs=remap")
        machine.add("-device", "virtio-9p-pci,fsdev=share,mount_tag=share")
    if args.verbs:
        machine.add("-drive", f"file={verbs.image()},if=none,id={verbs.SERIAL},format=raw,readonly=on")
        machine.add("-device", f"virtio-blk-pci,drive={verbs.SERIAL},serial={verbs.SERIAL}")
    if args.wire:
        args.wire.add(machine)
    devices(machine, args)
    for words in args.qemu_opt:
        machine.add(*shlex.split(words))
    if args.qmp:
        machine.add("-qmp", f"unix:{args.qmp},server=on,wait=off")
    if args.gdb:
        machine.add("-gdb", "tcp:127.0.0.1:1234", "-S")
    for pattern in args.trace:
        machine.add("-trace", f"enable={pattern}")
    append = [*APPEND, *(APPEND_DEBUG if debug else []), *(APPEND_IOMMU if args.iommu else [])]
    append += ["nokaslr"] if args.gdb else []
    # The boot counts the timer's ticks in a loop, and panics if a busy machine did not schedule
    # QEMU for them. Not needed under -icount, where time is the guest's own.
    append += [] if args.icount else ["no_timer_check"]
    # A suspend that does not end shows where.
    append += ["no_console_suspend"] if args.sleeps else []
    machine.add("-append", " ".join([*append, *args.append]))
    return machine
