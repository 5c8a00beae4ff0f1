# SPDX-License-Identifier: GPL-2.0
"""Tests of two guests on one network, without guests."""

import queue
import unittest
import unittest.mock

from qp import base, network, wire, wire_suite


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
        for text in ("a", "b,rxe", "a,net=x,mtu=4200", "b,rxe,loss=10,pcap=/tmp/file"):
            side = network.Wire.parse(text)
            self.assertEqual(network.Wire.parse(side.words()[1]), side)
        self.assertEqual(network.Wire.parse("b,rxe").device, "rxe0")
        for text in ("c", "a,roce", "a,mtu=x", "a,loss", "a,net="):
            with self.assertRaises(base.Fail):
                network.Wire.parse(text)

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

    def test_a_server_that_waits_is_a_failure(self):
        both = wire.Wire([Side(None), Side((0, "done"))])
        with unittest.mock.patch.multiple(wire, LATER=0, REFUSED=0):
            served, ended = both.run(0, 1, ("s", "c"), 0.01)
        self.assertEqual((served[0], ended[0]), (wire.TIMED_OUT, 0))

    def test_programs_have_names_and_patterns_programs(self):
        found = wire_suite.table()
        for name, one in found["network"].items():
            cases = list(wire_suite.cases(found, name, False))
            names = [case for case, *_ in cases]
            self.assertEqual(len(names), len(set(names)), name)
            self.assertTrue(list(wire_suite.cases(found, name, True)))
            for kind in one["kinds"]:
                self.assertIn(kind, network.KINDS)
