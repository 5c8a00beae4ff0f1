# SPDX-License-Identifier: GPL-2.0
"""Frames of the port, on the network of a network device in QEMU: cases of device.py."""

import fcntl
import os
import socket
import struct
import tempfile
import threading
import time
import unittest
import zlib

import driver
import machine
from driver import BELL, LOG, PORT, QEMU, READY, REG, Driver, device, run
from machine import Function, Machine

MAC, PEER_MAC = "52:54:00:00:00:01", "52:54:00:00:00:02"
OWN, PEER = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
ROCE, UD_SEND = 4791, 0x64
Q_KEY = 0x1234
# Addresses in guest memory.
QUEUE, RQ, ENTRIES, FROM, TO = 0x200000, 0x280000, 0x290000, 0x2A0000, 0x2B0000
LOG_SQ = 12
SIGNALED = 1 << 8


def address(mac):
    return bytes.fromhex(mac.replace(":", ""))


def icrc(packet):
    """The invariant CRC of an IPv4 packet, without it."""
    masked = bytearray(b"\xff" * 8 + packet)
    for at in (1, 8, 10, 11, 26, 27, 32):
        masked[8 + at] = 0xFF
    return struct.pack("<I", zlib.crc32(masked))


def datagram(dest, payload, source=77):
    """A frame from the peer to a queue pair."""
    assert len(payload) % 4 == 0
    transport = struct.pack(">BBHIIII", UD_SEND, 0x40, 0xFFFF, dest, 0, Q_KEY, source) + payload
    udp = struct.pack(">HHHH", 0xC000, ROCE, 8 + len(transport) + 4, 0) + transport
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp) + 4, 0, 0x4000, 64, 17, 0) + PEER + OWN
    return address(MAC) + address(PEER_MAC) + b"\x08\x00" + ip + udp + icrc(ip + udp)


def nic(mac, bus):
    """The arguments of a network device at the backend."""
    return ["-device", f"virtio-net-pci,id=nic,netdev=n0,mac={mac},romfile=,bus={bus}"]


class Network:
    """The other end of a network, and the arguments of its backend and of a network device."""

    def __init__(self, mac=MAC, bus="pcie.0,addr=7"):
        self.folder = tempfile.TemporaryDirectory(prefix="qpair-")
        self.theirs, own = (os.path.join(self.folder.name, name) for name in ("qemu", "test"))
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(own)
        self.socket.settimeout(machine.TIMEOUT)
        ends = f"local.type=unix,local.path={self.theirs},remote.type=unix,remote.path={own}"
        self.words = ["-netdev", f"dgram,id=n0,{ends}"]
        self.words += nic(mac, bus)

    def send(self, frame):
        self.socket.sendto(frame, self.theirs)

    def receive(self):
        return self.socket.recv(65536)

    def is_silent(self):
        self.socket.settimeout(0.2)
        try:
            self.socket.recv(65536)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(machine.TIMEOUT)
        return False


class Tap:
    """A tap of the host, which QEMU gets open, in a network namespace of its own. A network device
    has a header before each of its frames."""

    NAME, UP, OUTGOING = b"n0", 1, 4
    # TUNSETIFF, and IFF_TAP | IFF_NO_PI | IFF_VNET_HDR; SIOCSIFFLAGS; ETH_P_ALL.
    SET_INTERFACE, FLAGS = 0x400454CA, 0x0002 | 0x1000 | 0x4000
    SET_FLAGS, ALL = 0x8914, 3

    def __init__(self):
        self.failed = None
        # The namespace is one of the thread, and then of what it has opened.
        thread = threading.Thread(target=self.open)
        thread.start()
        thread.join()
        if self.failed:
            raise unittest.SkipTest(f"no tap can be made here: {self.failed}")
        self.words = ["-netdev", f"tap,id=n0,fd={self.file}", *nic(MAC, "pcie.0,addr=7")]

    def open(self):
        try:
            os.unshare(os.CLONE_NEWNET)
            self.file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(self.file, self.SET_INTERFACE, struct.pack("16sH22x", self.NAME, self.FLAGS))
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(self.ALL))
            fcntl.ioctl(self.socket, self.SET_FLAGS, struct.pack("16sH22x", self.NAME, self.UP))
            self.socket.bind((self.NAME.decode(), self.ALL))
            self.socket.settimeout(machine.TIMEOUT)
        except OSError as error:
            self.failed = error

    def receive(self):
        """The next frame to the peer."""
        while True:
            frame, (_, _, kind, *_) = self.socket.recvfrom(65536)
            if kind != self.OUTGOING and frame.startswith(address(PEER_MAC)):
                return frame


def take_all_features(m):
    """Takes what the network device offers, as a driver does."""
    select, features, status = 0x0, 0x4, 0x14
    taken, own = 0x8, 0xC2000000
    Function(m, 7, bars={4: own}).enable()
    m.write(own + status, 1 | 2, "b")
    # 128 of them, in 11.1; 10.0 has 64, and offers none of the rest.
    for word in range(4):
        m.write(own + select, word)
        m.write(own + taken, word)
        m.write(own + taken + 4, m.read(own + features))


class Talker(Driver):
    """A queue pair of UD, and the GID of an address in entry 0."""

    sent = received = completed = 0

    def talk(self):
        create, modify = 1, 2
        cq, qp, mr, pd, gid = 2, 3, 4, 5, 10
        self.command(gid, modify, 0, context=[0, struct.unpack("<Q", b"\0\0\xff\xff" + OWN)[0]])
        domain = self.command(pd, create)
        ring = self.command(cq, create, context=[LOG << 48, 0, ENTRIES, 32 << LOG, 0, 0, 0, 0])
        queues = [QUEUE, 64 << LOG_SQ, 0, RQ, 64 << LOG, 0]
        logs = LOG << 40 | LOG_SQ << 32
        context = [domain | 1 << 48, ring | ring << 32, logs, 0, Q_KEY, 0, 0, 0, *queues, 0, 0]
        self.qp = self.command(qp, create, context=context)
        region = [driver.LOCAL_WRITE << 32 | domain, FROM, FROM, TO + 0x1000 - FROM, 0, 0, 0, 0]
        self.key = self.command(mr, create, context=region)
        for state, mask in ((1, 1 | 16), (2, 1), (3, 1)):
            self.command(qp, modify, self.qp, mask, [state << 56, 0, 0, 0, Q_KEY, *[0] * 11])

    def write(self, addr, words):
        data = struct.pack(f"<{len(words)}Q", *words).hex()
        self.machine.line("write", addr, len(words) * 8, "0x" + data)

    def send(self, count=1, size=0, flags=0):
        """Posts datagrams to the peer."""
        to = struct.unpack("<Q", b"\0\0\xff\xff" + PEER)[0]
        mac = struct.unpack("<Q", address(PEER_MAC) + b"\0\0")[0]
        blocks, sges = (2, 1) if size else (1, 0)
        words = [1 | flags | blocks << 16 | sges << 24, 5, 9 | Q_KEY << 32, 64 << 16, 0, to, mac, 0]
        words += [FROM, size | self.key << 32, *[0] * 6] if size else []
        for _ in range(count):
            self.write(QUEUE + 64 * (self.sent % (1 << LOG_SQ)), words)
            self.sent += blocks
        self.doorbell(BELL["SQ"], self.sent << 32 | self.qp)

    def recv(self):
        self.write(RQ + 64 * (self.received % (1 << LOG)), [1, 6, TO, 0x1000 | self.key << 32, 0, 0, 0, 0])
        self.received += 1
        self.doorbell(BELL["RQ"], self.received << 32 | self.qp)

    def completion(self):
        """The next CQE."""
        at = ENTRIES + 32 * (self.completed % (1 << LOG))
        self.completed += 1
        self.until(lambda: self.machine.words(at, 4)[3] >> 63)
        return self.machine.words(at, 4)


def talker(m):
    f = Talker(m, 4)
    f.up()
    assert f.register(REG["MAC_HI"]) >> 16 == 1, "not wired"
    f.talk()
    return f


def on(network, **more):
    return [*QEMU, *network.words, *device(mac=MAC, netdev="n0", **more)]


def a_network_needs_a_backend_and_an_address():
    base = ("-machine", "q35", "-accel", "qtest", "-S")
    for words, parts in (
        (["qpair,id=q,netdev=n0"], ("q: netdev= goes with mac=", "network device at n0")),
        ([f"qpair,id=q,netdev=n0,mac={MAC}"], ("q: no network backend has the id 'n0'", "-netdev with id=n0")),
    ):
        result = run(*base, "-device", *words)
        assert result.returncode == 1, f"status {result.returncode}"
        for part in parts:
            assert part in result.stderr, result.stderr


def datagrams_go_and_come():
    network = Network()
    with Machine(*on(network)) as m:
        f = talker(m)
        payload = bytes(range(40))
        f.write(FROM, struct.unpack("<5Q", payload))
        f.send(size=40, flags=SIGNALED)
        frame = network.receive()
        assert frame[:14] == address(PEER_MAC) + address(MAC) + b"\x08\x00", frame.hex()
        assert frame[14:15] + frame[26:34] == b"\x45" + OWN + PEER, frame.hex()
        assert frame[62:-4] == payload, frame.hex()
        assert frame[-4:] == icrc(frame[14:-4]), "the checksum"
        assert driver.status(f.completion()) == 0
        assert m.get("frames-out") == 1
        for size in (0, 4, 1000):
            f.recv()
            payload = bytes(i % 251 for i in range(size))
            network.send(datagram(f.qp, payload))
            entry = f.completion()
            assert driver.status(entry) == 0, entry
            assert entry[0] == 6, entry
            words = m.words(TO, 5 + size // 8)
            data = struct.pack(f"<{len(words)}Q", *words)
            assert data[20:21] + data[32:40] == b"\x45" + PEER + OWN, data.hex()
            assert data[40 : 40 + size // 8 * 8] == payload[: size // 8 * 8]
        assert m.get("frames-in") == 3
        # To no queue pair, and with a wrong bit.
        network.send(datagram(0x4242, b""))
        wrong = bytearray(datagram(f.qp, b"wrong!!!"))
        wrong[-6] ^= 1
        network.send(wrong)
        f.until(lambda: m.get("frames-corrupt") == 1)
        assert m.get("frames-foreign") == 1


def senders_wait_for_the_network():
    network = Network()
    count = 1300
    with Machine(*on(network)) as m:
        f = talker(m)
        f.send(count - 1)
        f.send(flags=SIGNALED)
        f.until(lambda: m.get("frames-out") >= 1024)
        time.sleep(0.1)
        m.step(100_000_000)
        assert m.get("frames-out") < count, "sent past a full socket"
        numbers = []
        while len(numbers) < count:
            m.step(1_000_000)
            network.socket.setblocking(False)
            try:
                while True:
                    frame = network.socket.recv(65536)
                    numbers.append(struct.unpack(">I", frame[50:54])[0])
            except BlockingIOError:
                pass
        assert numbers == list(range(count)), "lost, or in another order"
        assert driver.status(f.completion()) == 0
        assert m.get("dropped") == 0


def a_reset_drops_frames_that_wait():
    network = Network()
    with Machine(*on(network)) as m:
        f = talker(m)
        f.send(1300)
        f.until(lambda: m.get("frames-out") >= 1024)
        m.qmp("system_reset")
        m.event("RESET")
        count = 0
        while not network.is_silent():
            m.step(1_000_000)
            count += 1
        assert count < 1024, f"{count} frames"
        f = talker(m)
        f.send(flags=SIGNALED)
        network.receive()


def a_link_that_is_down_loses_frames():
    network = Network()
    with Machine(*on(network)) as m:
        f = talker(m)
        m.set("link-down", True)
        f.send(flags=SIGNALED)
        assert driver.status(f.completion()) == 0
        m.set("link-down", False)
        # That of the network device.
        m.qmp("set_link", name="nic", up=False)
        f.send(flags=SIGNALED)
        assert driver.status(f.completion()) == 0
        assert network.is_silent()
        network.send(datagram(f.qp, b"lost"))
        m.qmp("set_link", name="nic", up=True)
        f.send(flags=SIGNALED)
        network.receive()
        f.recv()
        network.send(datagram(f.qp, b"come"))
        assert driver.status(f.completion()) == 0
        assert driver.status(f.completion()) == 0
        assert m.get("frames-in") == 1


def unplug(m, name):
    m.qmp("device_del", id=name)
    for bus in range(2):
        m.line("outl", 0xCC0 + 0x10, bus)
        m.line("outl", 0xCC0 + 0x08, 1)
    m.event("DEVICE_DELETED")


def without_the_network_device_frames_are_lost():
    network = Network(bus="rp")
    with Machine(*QEMU, *PORT, *network.words, *device(mac=MAC, netdev="n0")) as m:
        f = talker(m)
        f.send()
        network.receive()
        unplug(m, "nic")
        f.send(3, flags=SIGNALED)
        assert driver.status(f.completion()) == 0
        assert network.is_silent()
        m.qmp("netdev_del", id="n0")
        f.send(2, flags=SIGNALED)
        assert driver.status(f.completion()) == 0
        assert f.register(REG["STATUS"]) & READY


def a_backend_that_is_removed_takes_no_frames():
    network = Network()
    with Machine(*on(network)) as m:
        f = talker(m)
        f.send(40)
        m.qmp("netdev_del", id="n0")
        f.send(flags=SIGNALED)
        assert driver.status(f.completion()) == 0
        m.step(10_000_000)
        assert f.register(REG["STATUS"]) & READY


def a_function_is_unplugged_while_frames_wait():
    network = Network()
    words = device(mac=MAC, netdev="n0", bus="rp")
    words = [word.replace("addr=4", "addr=0") for word in words]
    with Machine(*QEMU, *PORT, *network.words, *words) as m:
        driver.open_port(m)
        f = Talker(m, 0, bus=1)
        f.up()
        f.talk()
        f.send(1300)
        f.until(lambda: m.get("frames-out") >= 1000)
        unplug(m, "q")
        network.send(datagram(f.qp, b"late"))
        m.step(100_000_000)
        assert len(network.receive()) > 50
        more = {"iothread": "core"} if driver.IOTHREAD else {}
        m.qmp("device_add", driver="qpair", id="q", bus="rp", addr="0", mac=MAC, netdev="n0", **more)
        f = Talker(m, 0, bus=1)
        f.up()
        f.talk()
        f.send(flags=SIGNALED)
        assert driver.status(f.completion()) == 0


def an_address_that_is_not_the_network_devices():
    network = Network(mac=PEER_MAC)
    m = Machine(*on(network))
    with m:
        f = talker(m)
        f.send(2)
        network.receive()
        network.receive()
    assert m.errors.count("q: mac= is not the address of the network device at netdev n0") == 1, m.errors


def each_frame_has_the_header_of_the_network_device():
    tap = Tap()
    with Machine(*on(tap), files=[tap.file]) as m:
        f = talker(m)
        take_all_features(m)
        f.write(FROM, [0x1122334455667788])
        f.send(size=8)
        frame = tap.receive()
        assert frame[12:14] == b"\x08\x00" and bytes.fromhex("8877665544332211") in frame, frame.hex()
        assert frame[-4:] == icrc(frame[14:-4])


WORDS = [a_network_needs_a_backend_and_an_address]
TESTS = [
    datagrams_go_and_come,
    senders_wait_for_the_network,
    a_reset_drops_frames_that_wait,
    a_link_that_is_down_loses_frames,
    without_the_network_device_frames_are_lost,
    a_backend_that_is_removed_takes_no_frames,
    a_function_is_unplugged_while_frames_wait,
    an_address_that_is_not_the_network_devices,
    each_frame_has_the_header_of_the_network_device,
]
