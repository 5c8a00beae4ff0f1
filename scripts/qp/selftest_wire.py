# SPDX-License-Identifier: GPL-2.0
"""Tests of two guests on one network, without guests."""

import contextlib
import io
import pathlib
import queue
import random
import re
import tempfile
import unittest
import unittest.mock

from qp import base, crates, figures, frames, intruder, network, soak, wire, wire_bench, wire_suite


class Side:
    """A side whose commands end with these results."""

    def __init__(self, *results):
        self.results, self.started = list(results), []

    def start(self, _name, command, _peer, _port, _limit):
        self.started.append(command)
        ended = queue.Queue()
        if (result := self.results.pop(0)) is not None:
            ended.put(result)
        return ended


class Wires(unittest.TestCase):
    def test_an_option_is_its_words(self):
        for text in ("a", "b,rxe", "a,net=x,mtu=4200,seed=7", "b,rxe,loss=1000,delay=5000,pcap=/tmp/file", "b,net=x,third", "a,tap=tap0"):
            side = network.Wire.parse(text)
            self.assertEqual(network.Wire.parse(side.words()[1]), side)
        self.assertEqual(network.Wire.parse("b,rxe").device, "rxe0")
        both = ["a,seed=7,loss=10,reorder=25,delay=500", "b,rxe,seed=7,loss=10,reorder=25,delay=500"]
        rules = "seed=7;wire=drop,,dir=out,,chance=0.01;wire=reorder,,dir=out,,chance=0.025;wire=delay:500us,,dir=out"
        self.assertEqual(network.Wire.parse(both[0]).options[-1], f"faults={rules}")
        settings = [network.Wire.parse(text).settings()["QPAIR_WIRE_NETEM"] for text in both]
        # The debug kernel does not have the module.
        self.assertEqual(["sch_netem" in network.Wire.parse(text).modules for text in both], [False, True])
        self.assertEqual(settings, ["", "seed 7 loss 1% delay 1ms reorder 2.5% delay 500us"])
        for text in ("c", "a,roce", "a,mtu=x", "a,loss", "a,loss=1001", "a,net="):
            with self.assertRaises(base.Fail):
                network.Wire.parse(text)

    def test_each_pattern_of_a_network_selects_a_program(self):
        found = wire_suite.table()
        for name, one in found["network"].items():
            for pattern in one.get("programs", []):
                only = {"network": {name: one | {"programs": [pattern]}}, "program": found["program"]}
                self.assertTrue(list(wire_suite.cases(only, name, False)), f"{name}: {pattern}")

    def test_a_client_that_is_refused_is_started_again(self):
        server, client = Side((0, "served")), Side((1, "refused"), (1, "refused"), (0, "done"))
        # The server's result is there only once a client was served.
        served, server.results[0] = server.results[0], None
        both = wire.Wire([server, client])

        def start(*words):
            waiting = Side.start(server, *words)
            client.serve = lambda: waiting.put(served)
            return waiting

        server.start = start
        with unittest.mock.patch.multiple(wire, LATER=0):
            original = client.start
            client.start = lambda *words: (client.serve() if len(client.results) == 1 else None, original(*words))[1]
            self.assertEqual(both.run(0, 1, ("s", "c"), 5), ((0, "served"), (0, "done")))
        self.assertEqual(client.started, ["c"] * 3)

    def test_a_server_may_wait_after_a_lost_disconnect(self):
        found = wire_suite.table()
        waits = {name: [case for case, *_, may in wire_suite.cases(found, name, False) if may] for name in found["network"]}
        self.assertEqual(waits["qpair"], [])
        self.assertEqual(waits["loss"], ["qpair.rping_-s_-v_-V_-C_10", "rxe.rping_-s_-v_-V_-C_10"])
        for served, ended, may, fails in ((0, 0, False, False), (143, 0, True, False), (124, 0, True, False), (1, 0, True, True), (143, 0, False, True), (0, 1, True, True), (base.OWN_FAILURE, 0, True, True)):
            self.assertEqual(wire_suite.fails(served, ended, may), fails, (served, ended, may))

    def test_a_server_that_waits_is_a_failure(self):
        both = wire.Wire([Side(None), Side((0, "done"))])
        with unittest.mock.patch.multiple(wire, LATER=0, REFUSED=0):
            served, ended = both.run(0, 1, ("s", "c"), 0.01)
        self.assertEqual((served[0], ended[0]), (base.OWN_FAILURE, 0))

    def test_a_guest_that_ends_is_told_from_one_without_network(self):
        for shell, why in (
            ("exit 126", "guest b, before it was on the network: the kernel reported something"),
            ("exit 125", "guest b, before it was on the network: the guest could not run it"),
            ("echo up 1; read end; exit 126", "guest b, at its end: the kernel reported something"),
        ):
            script = f"#!/bin/sh\ncase \"$*\" in *\"--wire a\"*) echo up 1; read end; exit 0 ;; esac\necho '[ 1.0] BUG: bad' >&2\n{shell}\n"
            said = io.StringIO()
            with (
                tempfile.TemporaryDirectory() as folder,
                unittest.mock.patch.object(base, "SCRIPTS", pathlib.Path(folder)),
                contextlib.redirect_stderr(said),
                self.assertRaises(base.Fail) as failed,
            ):
                guest = base.SCRIPTS / "guest"
                guest.write_text(script)
                guest.chmod(0o755)
                with wire.connected(wire.wires(["qpair"] * 2, "x", {}), [], lambda side: base.SCRIPTS / f"log-{side}"):
                    pass
            self.assertEqual(str(failed.exception), why)
            self.assertIn("log-b:\n[ 1.0] BUG: bad\n", said.getvalue())

    def test_programs_have_names_and_patterns_programs(self):
        found = wire_suite.table()
        for name, one in found["network"].items():
            cases = list(wire_suite.cases(found, name, False))
            names = [case for case, *_ in cases]
            self.assertEqual(len(names), len(set(names)), name)
            self.assertTrue(list(wire_suite.cases(found, name, True)))
            for kind in one["kinds"]:
                self.assertIn(kind, network.KINDS)


class Soak(unittest.TestCase):
    def test_a_seed_chooses_the_programs(self):
        for seed in range(20):
            first, second = ([soak.drawn(chance) for _ in range(50)] for chance in (random.Random(seed), random.Random(seed)))
            self.assertEqual(first, second)
            for words, commands, messages in first:
                self.assertEqual([command.startswith(words) for command in commands], [True, True])
                self.assertGreater(messages, 4)

    def test_a_program_that_fails_ends_it(self):
        ended = [((0, "served"), (0, "done")), ((0, "served"), (wire.TIMED_OUT, "the queue pairs"))]
        guests = unittest.mock.Mock()
        guests.run.side_effect = ended
        log = io.StringIO()
        log.name = "log"
        with unittest.mock.patch.object(soak, "told"), self.assertRaisesRegex(base.Fail, "client 124"):
            soak.run_all(guests, random.Random(1), 60, "pcap", log)
        self.assertEqual(guests.run.call_count, 2)
        self.assertIn("the queue pairs", log.getvalue())

    def test_a_test_of_the_model_that_is_renamed_is_missed(self):
        def ended(lines):
            with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
                log = pathlib.Path(folder) / "log"

                def step(_name, words, log, env, remedy):
                    self.assertIn("QPAIR_SEED=N", remedy)
                    self.assertEqual((words[-3:], env), (list(soak.OF_THE_MODEL), {"QPAIR_SECONDS": "60", "QPAIR_SEED": "7"}))
                    log.write_text(lines)

                with (
                    unittest.mock.patch.object(base, "step", step),
                    unittest.mock.patch.object(crates, "target", lambda _: contextlib.nullcontext("target")),
                ):
                    soak.of_the_model(60, 7, log)
            return said.getvalue()

        lines = [f"{name}: 12 seeds from 7 on\n" for name in soak.OF_THE_MODEL]
        earlier = lines[0].replace("12", "7")
        self.assertEqual(ended(f"running 3 tests\n{earlier}.{''.join(lines)}test result: ok.\n"), "".join(lines))
        for ran in (lines[:2], []):
            with self.assertRaisesRegex(base.Fail, "were to run, not"):
                ended("".join(ran))

    def test_the_model_takes_no_options_of_guests(self):
        with (
            tempfile.TemporaryDirectory() as folder,
            unittest.mock.patch.multiple(soak, OUT=pathlib.Path(folder), of_the_model=unittest.mock.DEFAULT) as patched,
        ):
            soak.run(["--model", "--time", "60", "--seed", "7"])
            patched["of_the_model"].assert_called_once_with(60, 7, pathlib.Path(folder) / "model.log")
            for words in (["--loss", "5"], ["--kinds", "rxe,rxe"], ["--guest=--iommu"]):
                with self.assertRaisesRegex(base.Fail, "--model has no guests"):
                    soak.run(["--model", *words])


class Frames(unittest.TestCase):
    """With the frames of soft-RoCE and of scapy that the transport is tested with."""

    def setUp(self):
        text = (base.TOP / "proofs/roce/tests/frames.txt").read_text()
        self.frames = [bytes.fromhex(hexadecimal) for hexadecimal in re.findall(r":\n((?:[0-9a-f]+\n)+)", text)]

    def test_an_icrc_is_that_of_the_frame(self):
        self.assertGreater(len(self.frames), 5)
        for frame in self.frames:
            ip, at = frames.packet(frame)
            self.assertEqual(frames.icrc(ip, at), ip[-4:])
            self.assertNotEqual(frames.icrc(intruder.put(ip, at + 9, b"\xee"), at), ip[-4:])
            # A router changes the TTL, or the hop limit.
            self.assertEqual(frames.icrc(intruder.put(ip, 7 if at == 40 else 8, b"\1"), at), ip[-4:])
        self.assertEqual({frames.packet(frame)[1] for frame in self.frames}, {20, 40})

    def test_a_forged_frame_has_its_checksums(self):
        chance, seen = random.Random(1), set()
        for frame in self.frames * 200:
            name, other, _ = intruder.forged(chance, frame)
            seen.add(name)
            self.assertNotEqual(frame.hex(), other.hex(), name)
            # A fragment of IPv6 has no UDP header there.
            if (found := frames.packet(other)) is None:
                self.assertEqual(name, "fragment")
                continue
            ip, at = found
            if len(ip) >= at + 24:
                self.assertEqual(frames.icrc(ip, at) == ip[-4:], name != "icrc", name)
            self.assertEqual(intruder.sealed(ip, at)[:at], ip[:at], name)
        self.assertEqual(seen, {forgery.__name__ for forgery in intruder.ALL})


class Bench(unittest.TestCase):
    def test_a_rate_is_of_transfers(self):
        self.assertAlmostEqual(wire_bench.rate("write64k", " #bytes\n 65536 200 134.08 49.85 0.000798\n"), 798)
        self.assertAlmostEqual(wire_bench.rate("send_latency", " 64 300 56.24 25650.16 2000.0 2385.66\n"), 500)
        with self.assertRaises(base.Fail):
            wire_bench.rate("write64", "Unable to init the socket connection\n")

    def test_each_program_is_a_figure(self):
        found = {f"{kind}_wire_{name}" for kind in network.KINDS for name in wire_bench.PROGRAMS}
        wanted = {name for *pair, _ in figures.TIMED.values() for name in pair if "_wire_" in name}
        self.assertEqual(found, wanted)
