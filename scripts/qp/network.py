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

# What may happen to the frames that a side sends: the action of a device of qpair (Documentation/faults.rst),
# and the words of netem, below soft-RoCE. Chances are of 1000 frames, a delay is in microseconds, and a seed
# chooses the frames. netem reorders frames by a delay of all others.
FAULTS = {
    "seed": ("seed={}", "seed {}"),
    "loss": ("wire=drop,,dir=out,,chance={:g}", "loss {:g}%"),
    "dup": ("wire=dup,,dir=out,,chance={:g}", "duplicate {:g}%"),
    "reorder": ("wire=reorder,,dir=out,,chance={:g}", "delay 1ms reorder {:g}%"),
    "delay": ("wire=delay:{}us,,dir=out", "delay {}us"),
}
# Not chances.
WHOLE = ("seed", "delay")


@dataclasses.dataclass
class Wire:
    """A side of the network, as --wire has it: SIDE[,rxe][,net=NAME][,mtu=N][,FAULT=N...][,pcap=FILE][,third][,tap=NAME]."""

    side: str
    kind: str = QPAIR
    net: str = ""
    mtu: int = 1500
    faults: dict[str, int] = dataclasses.field(default_factory=dict)
    pcap: pathlib.Path | None = None
    third: bool = False
    # An interface of the host in place of a socket.
    tap: str = ""

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
            elif key == "mtu" and value.isdigit():
                wire.mtu = int(value)
            elif key in FAULTS and value.isdigit() and (key in WHOLE or int(value) <= 1000):
                wire.faults[key] = int(value)
            elif key == "pcap" and value:
                wire.pcap = pathlib.Path(value).resolve()
            elif key == "tap" and value:
                wire.tap = value
            else:
                raise base.Fail(f"--wire {text}: {word}", f"SIDE[,rxe][,net=NAME][,mtu=N][,FAULT=N...][,pcap=FILE][,third][,tap=NAME]; FAULT is {', '.join(FAULTS)}, of 1000 frames but for {', '.join(WHOLE)}")
        return wire

    def words(self):
        """As an option of scripts/guest."""
        parts = [self.side, *([RXE] if self.kind == RXE else []), f"mtu={self.mtu}"]
        parts += [f"{name}={value}" for name, value in self.faults.items()]
        parts += [f"net={self.net}"] if self.net else []
        parts += ["third"] if self.third else []
        parts += [f"tap={self.tap}"] if self.tap else []
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
        rules = ";".join(self.of_faults(0, 1))
        return [f"mac={self.mac}", "netdev=net0", *([f"faults={rules}"] if rules else [])]

    def of_faults(self, which, whole):
        """The words of each fault, for a device of qpair or for netem, with chances of `whole`."""
        return [FAULTS[name][which].format(value if name in WHOLE else value * whole / 1000) for name, value in self.faults.items() if value]

    @property
    def netem(self):
        """The words of netem, which the debug kernel does not have, for soft-RoCE's side."""
        return " ".join(self.of_faults(1, 100)) if self.kind == RXE else ""

    @property
    def modules(self):
        """What init loads."""
        return ["virtio_net", *(["sch_netem"] if self.netem else [])]

    def settings(self):
        """What the script `wire` in the guest needs."""
        return {
            "QPAIR_WIRE": self.device,
            "QPAIR_WIRE_ADDRESS": self.address,
            "QPAIR_WIRE_NETEM": self.netem,
        }

    @property
    def backend(self):
        if self.tap:
            return f"tap,id=net0,ifname={self.tap},script=no,downscript=no,vhost=off"
        role = "server=on" if self.side == "a" and not self.third else "server=off,reconnect-ms=200"
        return f"stream,id=net0,{role},addr.type=unix,addr.path={self.socket},addr.abstract=on"

    def add(self, machine):
        """Adds the network device to a machine."""
        machine.add("-netdev", self.backend)
        # At a port of its own it can be unplugged.
        machine.add("-device", "pcie-root-port,id=network,chassis=64,slot=64")
        machine.add("-device", f"virtio-net-pci,id=nic0,bus=network,netdev=net0,mac={self.mac},host_mtu={self.mtu},romfile=")
        if self.pcap:
            machine.add("-object", f"filter-dump,id=dump0,netdev=net0,file={self.pcap}")
