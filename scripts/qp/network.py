# SPDX-License-Identifier: GPL-2.0
"""The network of two guests: a network device in each, and a socket between them.

The socket is an abstract one, which ends with the guests. Side a listens, and b connects to it, in
whichever order they start. With a third station (qp/intruder.py) each connects to a socket of its own,
where the station listens.
"""

import dataclasses
import pathlib

from qp import base

# The second half of a MAC and of an address, by side.
SIDES = {"a": 1, "b": 2}
# Where the device of a port is.
QPAIR, RXE = "qpair", "rxe"
DEVICES = {QPAIR: "qpair0", RXE: "rxe0"}
KINDS = tuple(DEVICES)

# The modules that init loads: of the network device, and of a network that loses frames.
MODULES = ["virtio_net", "sch_netem"]


@dataclasses.dataclass
class Wire:
    """A side of the network, as --wire has it: SIDE[,rxe][,net=NAME][,mtu=N][,loss=N][,pcap=FILE][,third]."""

    side: str
    kind: str = QPAIR
    net: str = ""
    mtu: int = 1500
    loss: int = 0
    pcap: pathlib.Path | None = None
    third: bool = False

    @classmethod
    def parse(cls, text):
        side, *words = text.split(",")
        base.known("side", [side], SIDES)
        wire = cls(side)
        for word in words:
            key, _, value = word.partition("=")
            if word == RXE:
                wire.kind = RXE
            elif word == "third":
                wire.third = True
            elif key == "net" and value:
                wire.net = value
            elif key in ("mtu", "loss") and value.isdigit():
                setattr(wire, key, int(value))
            elif key == "pcap" and value:
                wire.pcap = pathlib.Path(value).resolve()
            else:
                raise base.Fail(f"--wire {text}: {word}", "SIDE[,rxe][,net=NAME][,mtu=N][,loss=N][,pcap=FILE][,third]")
        return wire

    def words(self):
        """As an option of scripts/guest."""
        parts = [self.side, *([RXE] if self.kind == RXE else []), f"mtu={self.mtu}", f"loss={self.loss}"]
        parts += [f"net={self.net}"] if self.net else []
        parts += ["third"] if self.third else []
        return ["--wire", ",".join(parts + ([f"pcap={self.pcap}"] if self.pcap else []))]

    @property
    def mac(self):
        return f"52:54:00:71:70:{SIDES[self.side]:02x}"

    @property
    def address(self):
        return f"10.0.0.{SIDES[self.side]}"

    @property
    def device(self):
        return DEVICES[self.kind]

    @property
    def socket(self):
        """Its name; with a third station it has one for each side."""
        name = f"qpair-wire-{base.digest(str(base.TOP), self.net)}"
        return f"{name}-{self.side}" if self.third else name

    @property
    def options(self):
        """The properties of the qpair device whose port is on the network."""
        if self.kind != QPAIR:
            return []
        # A comma in a value is doubled.
        lost = [f"faults=wire=drop,,dir=out,,chance={self.loss / 1000:g}"] if self.loss else []
        return [f"mac={self.mac}", "netdev=net0", *lost]

    def settings(self):
        """What the script `wire` in the guest needs."""
        return {
            "QPAIR_WIRE": self.device,
            "QPAIR_WIRE_ADDRESS": self.address,
            "QPAIR_WIRE_LOSS": self.loss,
        }

    def add(self, machine):
        """Adds the network device to a machine."""
        role = "server=on" if self.side == "a" and not self.third else "server=off,reconnect-ms=200"
        machine.add("-netdev", f"stream,id=net0,{role},addr.type=unix,addr.path={self.socket},addr.abstract=on")
        machine.add("-device", f"virtio-net-pci,netdev=net0,mac={self.mac},host_mtu={self.mtu},romfile=")
        if self.pcap:
            machine.add("-object", f"filter-dump,id=dump0,netdev=net0,file={self.pcap}")
