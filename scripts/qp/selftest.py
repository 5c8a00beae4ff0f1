# SPDX-License-Identifier: GPL-2.0
"""Tests of the test scripts themselves: run by `scripts/check scripts`."""

import argparse
import contextlib
import errno
import io
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from qp import (
    barriers, base, console, figures, guest, imports, initramfs, ktap, lines, peers,
    plots, profile, sweeps, threads,
)

REPORTS = """\
WARNING: kernel/softirq.c:430 at __local_bh_enable_ip+0x5c/0x70, CPU#1: sh/124
WARNING: possible circular locking dependency detected
WARNING: suspicious RCU usage
BUG: KASAN: slab-out-of-bounds in _RNvCsf_3foo+0x10/0x20 [qpair]
BUG: sleeping function called from invalid context at kernel/locking/mutex.c:591
BUG: unable to handle page fault for address: ffffffffc0000000
watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [cat:123]
Oops: general protection fault, probably for non-canonical address
Kernel panic - not syncing: Fatal exception
UBSAN: array-index-out-of-bounds in drivers/foo.c:12:3
DMA-API: qpair 0000:01:00.0: device driver frees DMA memory with different size
DMA-API: exceeded 7 overlapping mappings of cacheline 0x0000000000123
DMAR: [DMA Read NO_PASID] Request device [01:00.0] fault addr 0x1000
refcount_t: underflow; use-after-free.
INFO: task qpair:123 blocked for more than 120 seconds.
rcu: INFO: rcu_preempt self-detected stall on CPU
rcu: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-... }
kmemleak: 2 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
unreferenced object 0xffff888003a0b000 (size 32):
irq 25: nobody cared (try booting with the "irqpoll" option)
rust_kernel: panicked at rust/hw/ring.rs:12:5:
workqueue: work func f::relay [qpair] enqueued on deprecated workqueue. Use system_{percpu|dfl}_wq instead.
qpair-init: failed to remove the module: rmmod: can't unload
""".splitlines()

QUIET = """\
Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on
DMA-API: preallocated 65536 debug entries
DMA-API: debugging enabled by kernel config
DMAR: DRHD base: 0x000000fed90000 flags: 0x0
DMAR: IOMMU enabled
rcu: Preemptible hierarchical RCU implementation.
rcu: RCU restricting CPUs from NR_CPUS=8 to nr_cpu_ids=2    0.000000] RCU CPU stall warnings timeout set to 60
kmemleak: Kernel memory leak detector initialized
qpair: module verification failed: signature and/or required key missing
clocksource: Watchdog remote CPU 1 read timed out
""".splitlines()

NESTED = """\
KTAP version 1
1..2
    KTAP version 1
    1..3
    ok 1 one
    not ok 2 two
    ok 3 three # SKIP no reason
not ok 1 suite
ok 2 alone # 0.1 s
"""


def found(line):
    watched = console.Console()
    watched.feed(f"[    1.0] {line}\r\n".encode())
    return watched.report() is not None


# A run without a guest, with a timeout of two seconds.
NO_GUEST = {"log": None, "verbose": False, "timeout": 2.0, "shell": False, "trace": [], "gdb": False}


class Bindings(unittest.TestCase):
    def test_helpers_lose_their_prefix_in_a_system_without_rustfmt(self):
        with tempfile.TemporaryDirectory(dir="/tmp") as name:
            folder = pathlib.Path(name)
            line = "".join(f'unsafe extern "C" {{ pub fn rust_helper_rdma_{helper} () ; }} ' for helper in "ab")
            tool, saved, out = folder / "tool", folder / "rust/bindings/.bindings_generated.rs.cmd", folder / "out/bindings.rs"
            tool.write_text(f"#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\necho '{line}' >\"$2\"\n")
            tool.chmod(0o755)
            saved.parent.mkdir(parents=True)
            saved.write_text(f"savedcmd_x := {tool} header.h -a -o out.rs -- -b ; sed\n")
            subprocess.run([base.SCRIPTS / "bindgen-rdma", folder, "header.h", out], check=True)
            self.assertEqual(re.findall(r'#\[link_name="rust_helper_rdma_(\w)"\]\s+pub fn rdma_\1 ', out.read_text()), ["a", "b"])


class Machine:
    """A shell that replaces QEMU; its output is the guest's console."""

    def __init__(self, shell):
        here, self.there = socket.socketpair()
        # sh supports no descriptor above 9, and the number may be larger.
        self.words = ["bash", "-c", f"exec >&{self.there.fileno()}; {shell}"]
        # QEMU's monitor, which has ended.
        monitor, end = socket.socketpair()
        end.close()
        self.ours = {"console": here, "monitor": monitor}

    def descriptors(self):
        return [self.there.fileno()]

    def handed_over(self):
        self.there.close()


class Judges(unittest.TestCase):
    def test_reports_are_found(self):
        for line in REPORTS:
            self.assertTrue(found(line), line)

    def test_a_healthy_boot_is_quiet(self):
        for line in QUIET:
            self.assertFalse(found(line), line)

    def test_a_report_cut_off_by_the_end_counts(self):
        watched = console.Console()
        watched.feed(b"[ 1.0] Kernel panic - not syncing")
        watched.close()
        self.assertIsNotNone(watched.report())

    def test_a_boot_that_hangs_is_told_from_one_that_is_slow(self):
        for shell, hangs in (
            ("exec sleep 60", True),
            ("while sleep 0.1; do echo '[ 1.0] some driver'; done", False),
            ("echo '[ 2.0] Run /init as init process'; exec sleep 60", False),
        ):
            run = guest.Run(argparse.Namespace(**NO_GUEST), Machine(shell), silence=1.5)
            self.assertFalse(run.run(), shell)
            self.assertEqual(run.hangs, hangs, shell)
            self.assertEqual(run.stuck, "QEMU's monitor does not answer", shell)

    def test_where_a_guest_is_that_does_not_end(self):
        says = "VM status: running", "CPU#0\r\nRAX=1 RBX=2\r\nRIP=ffff1 RFL=2 HLT=1\r\nCPU#1\r\nEIP=ffff2 EFL=2 HLT=0\r\n"
        machine = Machine("exit")
        machine.ours["monitor"], qemu = socket.socketpair()
        answers = [{"event": "SUSPEND"}, {"return": {}}, *({"return": text} for text in says)]
        qemu.sendall(b"".join(json.dumps(answer).encode() + b"\r\n" for answer in answers))
        run = guest.Run(argparse.Namespace(**NO_GUEST), machine)
        self.assertEqual(run.state().split("\n"), ["VM status: running", "CPU#0", "RIP=ffff1 RFL=2 HLT=1", "CPU#1", "EIP=ffff2 EFL=2 HLT=0"])
        self.assertIn(b"info registers -a", qemu.recv(1 << 16))
        qemu.close()
        self.assertIn("does not answer", run.state())

    def test_code_that_was_misread_on_the_way_to_init_is_told_from_a_fault(self):
        oops, panic, init = (
            b"[ 3.1] Oops: int3: 0000 [#1] SMP NOPTI\n",
            b"[ 3.2] Kernel panic - not syncing: Fatal exception in interrupt\n",
            b"[ 3.0] Run /init as init process\n",
        )
        other = b"[ 3.0] BUG: unable to handle page fault for address: 0\n"
        for lines, misread in (
            ([oops, panic], True),
            ([panic], False),
            ([other, oops, panic], False),
            # After the start of init it may be the module's.
            ([init, oops, panic], False),
        ):
            watched = console.Console()
            for line in lines:
                watched.feed(line)
            self.assertEqual(watched.misread(), misread, lines)
            self.assertEqual(watched.report() is None, False, lines)

    def test_a_boot_is_tried_again_only_for_what_is_not_ours(self):
        init = b"[ 3.0] Run /init as init process\n"
        misread = b"[ 3.1] Oops: int3: 0000 [#1] SMP NOPTI\n"
        oops = b"[ 3.1] BUG: unable to handle page fault for address: 0\n"
        for hangs, lines, why in (
            (True, [], "hangs"),
            (True, [oops], None),
            (False, [misread], "breakpoint"),
            (True, [misread], "breakpoint"),
            (False, [oops], None),
            (False, [], None),
            (False, [init, misread], None),
            (False, [init], None),
        ):
            run = argparse.Namespace(hangs=hangs, console=console.Console())
            for line in lines:
                run.console.feed(line)
            found = guest.not_ours(run)
            self.assertTrue(why in found if why else found is None, (hangs, lines, found))

    def test_a_kernel_that_is_told_to_be_quiet_is_not_heard(self):
        for append, heard in (([], True), (["quietly kasan.fault=panic"], True), (["a quiet b"], False), (["a", "loglevel=3"], False)):
            self.assertEqual(guest.is_heard(append), heard, append)

    def test_a_qemu_that_says_nothing_is_named(self):
        for shell, says in (("exit 3", True), ("echo '[ 1.0] a line'; exit 3", False)):
            run = guest.Run(argparse.Namespace(**NO_GUEST), Machine(shell))
            with self.assertRaises(base.Fail) as failed, contextlib.redirect_stderr(io.StringIO()):
                guest.verdict(run, run.run())
            self.assertEqual("QEMU ended with status 3" in str(failed.exception), says)
            self.assertEqual(failed.exception.remedy is not None, says)

    def test_no_processors_are_refused(self):
        self.assertEqual(guest.parse(["--smp", "4"]).smp, 4)
        for words in (["--smp", "0"], ["--smp", "-1"], ["--maxcpus", "0"], ["--smp", "two"]):
            with self.assertRaises(SystemExit) as refused, contextlib.redirect_stderr(io.StringIO()):
                guest.parse(words)
            self.assertEqual(refused.exception.code, 2)

    def test_input_arrives_whole_and_late_and_a_silent_writer_holds_nobody_up(self):
        for kind in ("file", "pipe", "silent"):
            with self.subTest(kind), tempfile.TemporaryFile() as file:
                ours, guests = socket.socketpair()
                machine = Machine(f"sleep 0.3; cat <&{guests.fileno()}; echo; echo end")
                machine.ours["stdin"] = ours
                machine.descriptors = lambda: [machine.there.fileno(), guests.fileno()]
                reading, writing = os.pipe()
                if kind != "silent":
                    os.write(writing, b"short")
                    os.close(writing)
                file.write(b"short")
                file.seek(0)
                kept = os.dup(0)
                os.dup2(file.fileno() if kind == "file" else reading, 0)
                try:
                    run = guest.Run(argparse.Namespace(**NO_GUEST), machine)
                    machine.handed_over = lambda: (machine.there.close(), guests.close())
                    start = time.monotonic()
                    in_time = run.run()
                finally:
                    os.dup2(kept, 0)
                    os.close(kept)
                self.assertEqual(in_time, kind != "silent")
                self.assertLess(time.monotonic() - start, 10)
                if in_time:
                    self.assertEqual(run.console.lines[-2:], ["short", "end"])

    def test_ktap_counts_leaves(self):
        count = ktap.of_ktap(NESTED)
        self.assertEqual((count.passed, count.failed, count.skipped), (2, 1, 1))
        self.assertEqual(count.bad, ["two"])

    def test_cargo_counts_all_binaries(self):
        text = "test a::b ... FAILED\n" + "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured\n" * 2
        count = ktap.of_cargo(text)
        self.assertEqual((count.passed, count.failed, count.skipped), (6, 2, 4))
        self.assertEqual(count.bad, ["a::b"])

    def test_causes_are_named(self):
        for text, cause in (
            ("tar: write error: No space left on device", "disk"),
            ("E: Failed to fetch http://mirror/x  Could not connect", "download"),
            ("E: Unable to locate package foo", base.LACKS),
            ("E: Failed to fetch http://mirror/x  404  Not Found [IP: 192.0.2.1 80]", base.GONE),
        ):
            self.assertIn(cause, base.explain(text)[0])
        self.assertEqual(base.explain("error[E0308]: mismatched types"), (None, None))

    def test_a_missing_program_is_named(self):
        with self.assertRaises(base.Fail) as failure, base.started(["/nonexistent/mkfs.ext4"]):
            pass
        self.assertIn("/nonexistent/mkfs.ext4", str(failure.exception))
        self.assertIn("scripts/packages", failure.exception.remedy)
        with self.assertRaises(FileNotFoundError), base.started(["true"], cwd="/nonexistent"):
            pass

    def test_what_the_system_refuses_has_a_remedy(self):
        def refused(entry):
            said = io.StringIO()
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(said):
                base.main(entry)
            self.assertEqual(ended.exception.code, base.OWN_FAILURE)
            return said.getvalue()

        with tempfile.NamedTemporaryFile() as file:
            path = pathlib.Path(file.name)
            for entry in (lambda _: path.mkdir(parents=True, exist_ok=True), lambda _: (path / "log").mkdir()):
                said = refused(entry)
                self.assertIn(file.name, said)
                self.assertIn(f"remedy: {base.IN_THE_WAY}", said)

        def full(_):
            raise OSError(errno.ENOSPC, "No space left on device")

        self.assertIn(base.MORE_SPACE, refused(full))

    def test_who_waits_for_a_lock_says_so_again_and_again(self):
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "lock"
            with (
                base.started(["flock", path, "sh", "-c", "echo; exec sleep 2"], stdout=subprocess.PIPE) as holder,
                unittest.mock.patch.object(base, "REPORT_EVERY", 0.2),
                contextlib.redirect_stderr(said),
            ):
                holder.stdout.readline()
                with base.locked(path):
                    pass
                with base.locked(path):
                    pass
        self.assertGreaterEqual(said.getvalue().count("waiting for another command"), 2)

    def test_an_import_upwards_is_named(self):
        below = """\
//! [`Device`](crate::life::device::Device) is in a comment.
use super::{
    cq::{Body, PolledCq}, //
    qp,
};
pub(crate) use crate::{abi::Number, queue::{index::{Depth, Index as At}, poll::*}, kernel, LocalModule};
pub(super) fn f<'a>(x: &'a str) -> char { let _ = "crate::life"; crate::abi::g(x); '"' }
mod tests { use super::*; mod more { use super::super::super::qp; } }
"""
        self.assertEqual(imports.upwards({"hw/eq.rs": below, "qpair.rs": "mod hw;"}), [])
        for text, line in (
            ("use crate::life::device::Device;", 9),
            ("use crate::{\n    abi::Number,\n    queue::{index::Index, poll},\n    life::{self, watch},\n};", 12),
            ("use crate::{hw::{cq, eq as life}, driver as abi};", 9),
            ("fn f() { crate::debugfs::show(); }", 9),
            ("use super::super::object::device::RdmaDevice;", 9),
            ("mod tests { use super::super::super::loopback; }", 9),
        ):
            first, *_, last = imports.upwards({"hw/eq.rs": below + text})
            self.assertIn(f"rust/hw/eq.rs:{line}: ", first)
            self.assertEqual(last, imports.text_of_order())
        # Modules on one line, a module without a place, and a directory's own file.
        for name, text, what in (
            ("object/mod.rs", "use crate::loopback::Loopback;", "rust/object/mod.rs:1: loopback::Loopback, but loopback stands beside"),
            ("context/mod.rs", "", "rust/context has no place in ORDER"),
            ("life/mod.rs", "use super::driver;", "rust/life/mod.rs:1: driver, but driver stands above life"),
        ):
            self.assertIn(what, imports.upwards({name: text})[0])

    def test_an_import_against_the_table_of_a_crate_is_named(self):
        root = """\
//! | file | has |
//! |---|---|
//! | `host` | the machine |
//! | [`cq`] | completion queues |
pub use crate::cq::Cq;
"""
        crate = {"lib.rs": root, "host.rs": "", "cq.rs": "use crate::host::Host;\npub(crate) fn f() {}"}
        self.assertEqual(imports.upwards_in_crate(crate, "model"), [])
        for more, what in (
            ({"host.rs": "use crate::cq::Cq;"}, "model/host.rs:1: cq::Cq, but cq stands above host"),
            ({"host.rs": "\nuse crate::Cq;"}, "model/host.rs:2: Cq, but lib stands above host"),
            ({"qp.rs": ""}, "model/qp has no place in the table of model/lib.rs"),
            ({"lib.rs": root + "//! | `eq` | event queues |"}, "model/lib.rs: the table has eq, which is no file"),
        ):
            self.assertEqual(imports.upwards_in_crate(crate | more, "model")[0], what)
        # A root of another name, and a file of another directory.
        elsewhere = {"ring.rs": '//! | [`wait`] | |\n#[path = "../wait.rs"]\npub mod wait;\n'}
        self.assertEqual(imports.upwards_in_crate(elsewhere, "stream", "ring"), [])

    def test_a_circle_of_imports_is_named(self):
        files = {
            "mod.rs": "pub(crate) fn f() {}",
            "eq.rs": "use super::cq::Cq;",
            "cq.rs": "pub(super) struct Cq;\nuse crate::hw::ring::Ring;",
            "ring/mod.rs": "",
            # It is one with its directory, whose files may import it.
            "ring/index.rs": "use super::super::eq::Eq;\nuse super::Ring;\nuse super::super::f;",
        }
        sources = {f"hw/{name}": text for name, text in files.items()}
        line = "rust/hw/cq.rs:2: a circle in rust/hw: cq -> ring -> eq -> cq"
        found = imports.circles(sources, "rust")
        self.assertEqual((found[0], len(found)), (line, 3))
        sources["hw/ring/index.rs"] = "use super::Ring;"
        self.assertEqual(imports.circles(sources, "rust"), [])

    def test_lines_of_code_are_counted_from_the_root_on(self):
        root = "//! The module.\nmod eq;\n#[cfg(not(MODULE))]\nmod cq;\n#[path = \"../queue/far.rs\"]\npub mod far;\n"
        files = {"rust/m.rs": root, "rust/eq/mod.rs": "mod more;\n/* c */ fn f() {\n\n}\n", "rust/eq/more.rs": "const A: u8 = 1; // one\n", "rust/cq.rs": "fn g() {}\n", "queue/far.rs": "fn h() {}\n#[cfg(test)]\nmod tests {\n}\n"}
        with tempfile.TemporaryDirectory() as top, unittest.mock.patch.object(base, "TOP", pathlib.Path(top).resolve()):
            for name, text in files.items():
                (pathlib.Path(top) / name).parent.mkdir(parents=True, exist_ok=True)
                (pathlib.Path(top) / name).write_text(text)
            self.assertEqual(lines.table("rust/m.rs"), {"rust": 5, "rust/eq": 4, "queue": 1})

    def test_a_missing_barrier_is_named(self):
        ops = "qpair::kernel::rdma::object::Ops<qpair::object::file::Verbs>"
        operations = "qpair::object::cq::Cq as qpair::kernel::rdma::cq::Operations<qpair::object::file::Verbs>"
        functions = {
            "<<qpair::hw::eq::Eq as qpair::kernel::poller::Handler>::poll>": ["dma_rmb"],
            "<<qpair::queue::poll::Poller<qpair::hw::ring::Ring>>::publish::<<qpair::hw::eq::Eq>::run::{closure#0}>>": ["dma_mb"],
            "<<qpair::hw::cq::PolledCq>::consume>": ["dma_rmb"],
            "<<qpair::hw::cq::PolledCq>::publish>": ["dma_mb"],
            "<<qpair::hw::cq::Queues>::ring>": ["dma_wmb", "dma_wmb"],
            f"<<{operations}>::poll>": ["dma_rmb"],
            f"<<{operations}>::notify>": ["mb"],
            "<<qpair::object::ulp::held::Inner<C, qpair::object::ulp::cq::CqState<qpair::object::ulp::qp::UlpQp>>>::publish>": ["dma_mb"],
            f"<<{ops}>::post_send>": ["dma_wmb"],
            f"<<{ops}>::post_recv>": ["dma_wmb"],
            "<<qpair::hw::admin::Admin>::execute::<qpair::hw::command::QueryCounters>>": ["dma_rmb"],
            # A command that was inlined into its caller.
            "<<qpair::life::device::Device>::settle>": ["dma_rmb"],
        }
        waits = ("Admin", "settle", "Completion")

        def code(without=None):
            lines = []
            for name, calls in (functions | {"<<qpair::kernel::sync::completion::Completion>::wait_timeout>": []}).items():
                lines.append(f"0000000000001000 {name}:")
                left = [f"rust_helper_{call}" for call in (calls[1:] if name == without else calls)]
                left += ["wait_for_completion_timeout"] * any(part in name for part in waits)
                lines += [f"\t\t\t1004: R_X86_64_PLT32\t{call}-0x4" for call in left]
            return "\n".join(lines)

        self.assertEqual(barriers.missing(code()), [])
        for name, calls in functions.items():
            [line] = barriers.missing(code(name))
            self.assertIn(calls[0], line)
        for points in (barriers.POINTS, barriers.STREAM):
            self.assertEqual(len(barriers.missing("", points)), len(points))

    def test_a_worse_figure_is_named(self):
        kept = {"a": 100, "b": 0, "c": 1 / 32}
        self.assertEqual(figures.worse(kept, {"a": 104.9, "b": 0, "c": 1 / 32}), [])
        (line,) = figures.worse(kept, {"a": 105.1, "b": 0, "c": 1 / 32})
        self.assertIn("a: 105.1 instead of 100", line)
        self.assertEqual(len(figures.worse(kept, {"a": 100, "b": 0.01})), 2)
        self.assertEqual(figures.worse({figures.CONTROL: 1}, {figures.CONTROL: 1.5}), [])
        self.assertEqual(len(figures.worse({figures.CONTROL: 1}, {figures.CONTROL: 1 / 65})), 1)

    def test_runs_that_differ_are_named(self):
        self.assertEqual(figures.differing({"a": 100, "b": 0}, {"a": 100.9, "b": 0}), [])
        self.assertEqual(figures.differing({"a": 100}, {"a": 102}), ["a: 100 and 102"])

    def test_time_that_is_not_instructions_is_refused(self):
        few, many = figures.WORKLOADS["process"][1:]

        def runs(slept=0, again=1.0):
            times = ((few * 1e-7, 0), (many * 1e-7, slept), (few * 1e-7 * again, 0))
            return {"process": [({"seconds": time}, {"idle": idle}) for time, idle in times]}

        self.assertAlmostEqual(figures.instructions("process", runs()), 100)
        for bad in (runs(slept=100), runs(again=0.5)):
            with self.assertRaises(base.Fail):
                figures.instructions("process", bad)
        figures.calibrate({"nanoseconds": 1002, "instructions": 1000})
        with self.assertRaises(base.Fail):
            figures.calibrate({"nanoseconds": 2054, "instructions": 1000})

    def test_instructions_that_do_not_agree_are_refused(self):
        few, many = figures.WORKLOADS["fast"][1:]

        def runs(again):
            return {"fast": [({}, {"instructions": count * 256 * 300}) for count in (few, many, few + again)]}

        self.assertAlmostEqual(figures.executed("fast", runs(0)), 300)
        with self.assertRaises(base.Fail):
            figures.executed("fast", runs((many - few) // 50))

    def test_an_address_is_found_in_what_lies_below_it(self):
        said = ["symbol ffffffff81000000 startup", "symbol ffffffff81000100 schedule", "section .text 0xffffffffc0400000", "map 7ffff7f00000 1000 /bin/qpair", "map 7ffff7e00000 0 /bin/sh"]
        places = profile.Places(said, {"bin/qpair": "program"}, "qpair.ko")
        self.assertEqual(places.of(0xFFFFFFFF81000123), ("kernel", "schedule"))
        self.assertEqual(places.of(0xFFFFFFFFC0400010), ("qpair.ko", ".text", 0x10))
        self.assertEqual(places.of(0x7FFFF7F00020), ("program", 0x1020))
        self.assertIsNone(places.of(0x1000))

    def test_a_name_is_without_what_it_is_generic_over(self):
        self.assertEqual(profile.short("core::mem::take::<Vec<u8, Global>>"), "core::mem::take")
        self.assertEqual(profile.short("qpair::post::h0123456789abcdef"), "qpair::post")

    def test_a_profile_counts_more_where_boots_differ(self):
        self.assertEqual(profile.times_longer(0, 1000), 1)
        self.assertEqual(profile.times_longer(20, 1000), 1)
        # 0.02 * 3 * 1000 is 60.
        self.assertEqual(profile.times_longer(60, 1000), 3)
        for noise, counted in ((2000, 1000), (0, 0), (5, -100)):
            with self.assertRaises(base.Fail):
                profile.times_longer(noise, counted)

    def test_an_archive_is_what_the_kernel_reads(self):
        archive = initramfs.Cpio()
        archive.file("a", b"12345")
        data = archive.end()
        self.assertEqual(data[:6], b"070701")
        self.assertEqual(int(data[54:62], 16), 5)
        self.assertEqual(data[112:117], b"12345")
        self.assertEqual(len(data) % 4, 0)
        self.assertIn(b"TRAILER!!!", data)

    def test_modprobe_finds_what_a_module_needs(self):
        text = "kernel/a/one.ko.xz: kernel/b/two.ko.xz kernel/c/three.ko\nkernel/b/two.ko.xz:\nkernel/d/other.ko: kernel/b/two.ko.xz\n"
        self.assertEqual(initramfs.dependencies(text, {"one.ko", "two.ko"}), "one.ko: two.ko three.ko\ntwo.ko: \n")

    def test_a_module_has_its_options_from_the_parameters_of_the_kernel(self):
        parameters = ["quiet ib_core.force_mr=1", "ib-core.send_queue_size=9 ib_core ib_cm.x=1"]
        self.assertEqual(guest.options("ib_core.ko", parameters), ["force_mr=1", "send_queue_size=9"])
        self.assertEqual(guest.options("ib-core.ko", parameters[:1]), ["force_mr=1"])
        self.assertEqual(guest.options("core.ko", parameters), [])


class Ends(unittest.TestCase):
    """A process ends with the process that started it."""

    # A child and a grandchild, which prints their numbers.
    FAMILY = 'sleep 60 & echo $$ $! >"$0.new" && mv "$0.new" "$0"; wait'

    def pids(self, path):
        until = time.monotonic() + 20
        while not path.exists():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        return [int(word) for word in path.read_text().split()]

    def assert_gone(self, pids):
        for pid in pids:
            with contextlib.suppress(OSError):
                # The parent may not have reaped it yet.
                self.assertRegex(pathlib.Path(f"/proc/{pid}/stat").read_text(), r"\) [ZX] ")

    def test_a_program_that_is_ended_leaves_nobody(self):
        program = "import sys; from qp import base; base.LOGS = base.pathlib.Path(sys.argv[2]); base.main(lambda _: base.step('step', ['sh', '-c', sys.argv[1], base.LOGS / 'pids']))"
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            with self.subTest(number), tempfile.TemporaryDirectory() as folder:
                # In the background of a shell without job control SIGINT is ignored.
                words = ["env", "--default-signal=INT", sys.executable, "-c", program, self.FAMILY, folder]
                process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
                pids = self.pids(pathlib.Path(folder) / "pids")
                process.send_signal(number)
                self.assertEqual(process.wait(20), 128 + number)
                self.assert_gone(pids)

    def test_who_does_not_listen_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "pids"
            process = subprocess.Popen(["sh", "-c", f"trap '' TERM; {self.FAMILY}", path])
            pids = self.pids(path)
            base.end(base.family(process.pid), patience=0.3)
            self.assertEqual(process.wait(), -signal.SIGKILL)
            self.assert_gone(pids)

    def test_a_block_that_fails_leaves_nobody(self):
        with self.assertRaises(ZeroDivisionError), base.started(["sleep", "60"]) as process:
            1 / 0
        self.assertEqual(process.returncode, -signal.SIGTERM)


def report(seconds, **counters):
    """The guest's report of a run, whose counters continue those of the run before."""
    names = ("interrupts", "eqes", "eq-head-doorbells", "eq-masked-doorbells", "cq-head-doorbells", "cq-arm-doorbells")
    values = {name: counters.get(name.replace("-", "_"), 0) for name in names}
    return {"seconds": [10.0, 10.0 + seconds], "device": {"counters": values}}


class Plots(unittest.TestCase):
    def test_what_a_run_begins_and_ends_with_cancels(self):
        # Creating the queue pairs: 0.5 s and 70 interrupts. An operation: 0.001 s and half an
        # interrupt.
        reports = [
            report(0.5, interrupts=1000),
            report(0.5 + 0.1, interrupts=1000 + 70 + 50),
            report(0.5 + 0.3, interrupts=1000 + 2 * 70 + 50 + 150, eq_masked_doorbells=20),
        ]
        point = sweeps.each(reports, 200)
        self.assertAlmostEqual(point["interrupts"], 0.5)
        self.assertAlmostEqual(point["EQ head updates"], 0.1)
        self.assertAlmostEqual(point["operations a second"], 1000)

    def test_what_never_happens_is_no_line(self):
        values = sweeps.SWEEPS["by-n"][1]
        nothing = {"EQ head updates": 0, "CQ head updates": 1e-6, "interrupts": 0, "operations a second": 1}
        points = {"fast": [{**nothing, "EQ head updates": 1 / value} for value in values], "slow": [nothing] * len(values)}
        plot = sweeps.by_knob("by-n", points)
        self.assertEqual(list(plot["series"]), ["EQ head updates, fast device"])
        plots.check(plot)

    def test_looks_become_rates(self):
        looks = ["1.0 0 10 20 0", "1.5 0 110 520 8", "2.0 0 110 520 0", ""]
        plot = sweeps.load({"names": "time eq interrupts events count", "looks": looks})
        self.assertEqual(plot["at"], [0.5, 1.0])
        interrupts, events, chosen = plot["series"].values()
        self.assertEqual((interrupts, events, chosen), ([200, None], [1000, None], [8, 1]))

    def test_data_that_cannot_be_drawn_are_refused(self):
        plot = {"title": "a", "at": [1, 2], "series": {"b": [1, None]}}
        plots.check(plot)
        for bad in ({"b": [1]}, {"b": [None, None]}, {"b": [0, 1]}, {}):
            with self.assertRaises(base.Fail):
                plots.check({**plot, "log": True, "series": bad})

    def test_an_axis_covers_all_values(self):
        self.assertEqual(plots.decades([0.02, 1]), [0.01, 0.1, 1])
        self.assertEqual(plots.decades([1, 1]), [1, 10])

    def test_numbers_are_readable(self):
        for value, text in ((None, ""), (0, "0"), (0.03125, "0.0312"), (0.0001, "0.0001"), (57.9, "57.9"), (200000, "200 000")):
            self.assertEqual(plots.shown(value), text)


def reports(**values):
    """A guest's reports about qpair and soft-RoCE, round by round."""
    rounds = zip(values["write64"], values["rxe"])
    return [
        word
        for ours, theirs in rounds
        for word in ("write64", {"messages_per_second": ours}, "rxe", {"rate": theirs})
    ]


class Timed(unittest.TestCase):
    def test_a_ratio_is_of_a_round_and_a_figure_their_median(self):
        # The first round is discarded; in the third the machine was busy for both.
        ours, theirs = [1, 100, 10, 120, 90, 400], [1000, 10, 1, 10, 10, 10]
        rates = peers.rates(reports(write64=ours, rxe=theirs))
        self.assertEqual(rates["write64"], ours[1:])
        others = {name: ours[1:] for *pair, _ in figures.TIMED.values() for name in pair if name not in rates}
        ratio = peers.ratios({**others, **rates})["timed_write64_vs_rxe"]
        for name, value in (("median", 10), ("least", 9), ("largest", 40)):
            self.assertAlmostEqual(ratio[name], value)

    def test_a_round_that_is_missing_or_did_nothing_is_refused(self):
        peers.rates(reports(write64=[1] * 6, rxe=[1] * 6))
        for bad in ([1] * 5, [1, 1, 1, 0, 1, 1]):
            with self.assertRaises(base.Fail):
                peers.rates(reports(write64=bad, rxe=[1] * len(bad)))

    def test_the_scripts_of_guests_are_scripts(self):
        for script in (peers.PEERS, peers.IOMMU, peers.PERFTEST_THREAD, peers.PERFTEST_MAIN):
            subprocess.run(["busybox", "sh", "-n", "-c", script], check=True)

    def test_a_mode_keeps_the_figures_of_the_others(self):
        before = {"timed_a": 1, "timed_b": 2, "count": 3}
        self.assertEqual(list(figures.merged(before, {"count": 4, "more": 5}).items()), [("count", 4), ("more", 5), ("timed_a", 1), ("timed_b", 2)])
        self.assertEqual(figures.merged(before, {"timed_a": 9}), {"count": 3, "timed_a": 9})

    def test_the_table_judges_what_has_a_goal(self):
        table = figures.table({"timed_write64_vs_rxe": 51.0, "timed_write64_vs_nvme": 49.0, "timed_write1m_vs_memcpy": 2.0})
        for line in (
            "| `timed_write64_vs_rxe` | >= 50 | 51 | met |",
            "| `timed_write64_vs_nvme` | >= 50 | 49 | missed |",
            "| `timed_write1m_vs_memcpy` | reported | 2 |  |",
            "| `timed_write1m_iommu_cost` | reported | | not measured |",
        ):
            self.assertIn(line, table)


class Threads(unittest.TestCase):
    """Ratios of the device to itself."""

    def test_a_ratio_is_of_two_settings(self):
        told = []
        for _ in range(peers.ROUNDS + 1):
            for key, (command, _, times) in enumerate(threads.WORKLOADS.values()):
                for name in threads.SETTINGS:
                    count = 150 if name == "thread" else 100
                    report = {"sends": count, "usecs": 1_000_000} if command.startswith("loopback") else {"count": count, "seconds": 1.0}
                    for process in range(times):
                        told += [f"{key}/{name}/{process + 1}", report]
        found = threads.rates(told)
        self.assertEqual(found["bench, batch 1, two processes"]["main"], [200] * peers.ROUNDS)
        for by in threads.ratios(found).values():
            self.assertEqual(by["IOThread : main loop"]["median"], 1.5)
            self.assertEqual(by["mapped : unmapped"]["largest"], 1)
        with self.assertRaises(base.Fail):
            threads.rates([*told, "0/main/1", {"count": 1, "seconds": 1}])

    def test_the_script_of_the_guest_is_one(self):
        subprocess.run(["busybox", "sh", "-n", "-c", threads.SCRIPT], check=True)
        self.assertEqual(threads.qemu_options().count("-device qpair,"), len(threads.SETTINGS) - 1)


def load_tests(loader, own, _):
    """The tests here, and those of each file beside this."""
    names = sorted(path.stem for path in pathlib.Path(__file__).parent.glob("selftest_*.py"))
    return unittest.TestSuite([own, *(loader.loadTestsFromName(f"qp.{name}") for name in names)])


if __name__ == "__main__":
    unittest.main()
