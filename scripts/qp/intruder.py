# SPDX-License-Identifier: GPL-2.0
"""A third station of a network of two guests, which forges frames of RoCEv2.

It stands between the guests, and forwards their frames. With each frame of RoCEv2 it sends a copy of
it, with one thing changed: what a station can do that hears everything. A packet with the addresses
of the peer and the next PSN cannot be told from the peer's by any receiver. So a copy that keeps
both goes behind the frame, and is a duplicate. All others go before it, with another last byte: a
receiver that accepts one has wrong data.
"""

import collections
import contextlib
import random
import socket
import struct
import threading

from qp import base, frames

# A stream netdev sends the length of a frame before it.
LENGTH = struct.Struct("!I")

# The offset of the BTH behind the UDP header, and of what follows it.
BTH, BEHIND = 8, 20
CNP = 0x81
# Requests with a virtual address and its key behind the BTH: WRITE, READ, atomics.
WITH_KEY = (0x06, 0x0A, 0x0B, 0x0C, 0x13, 0x14)
RESPONSES, UNRELIABLE, DATAGRAMS = range(0x0D, 0x13), range(0x20, 0x40), range(0x60, 0x80)
# PSNs beyond those of all requests that are in flight.
FAR = 1 << 16, 1 << 22


def sealed(ip, at):
    """A packet with the checksums of its contents."""
    ip = bytearray(ip)
    if at != 40:
        ip[10:12] = b"\0\0"
        total = sum(struct.unpack(f"!{at // 2}H", ip[:at]))
        total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into("!H", ip, 10, ~(total + (total >> 16)) & 0xFFFF)
    # Below that a packet has no ICRC.
    if len(ip) >= at + BEHIND + frames.ICRC:
        ip[-frames.ICRC :] = frames.icrc(bytes(ip), at)
    return bytes(ip)


def put(ip, place, value):
    return ip[:place] + value + ip[place + len(value) :]


def moved(ip, at, distance):
    place = at + BTH + 8
    (word,) = struct.unpack_from("!I", ip, place)
    return put(ip, place, struct.pack("!I", word & 0xFF000000 | (word + distance) & 0xFFFFFF))


# A forgery has a generator of numbers, a packet, and the offset of its UDP header. It returns the packet,
# whose checksums are computed anew.


def queue_pair(chance, ip, at):
    return put(ip, at + BTH + 5, chance.randbytes(3))


def destination(_, ip, at):
    return put(ip, at - 1, bytes([ip[at - 1] ^ 0x80]))


def partition(_, ip, at):
    return put(ip, at + BTH + 2, b"\x7f\xfe")


def version(chance, ip, at):
    return put(ip, at + BTH + 1, bytes([ip[at + BTH + 1] | chance.randrange(1, 16)]))


def congestion(_, ip, at):
    return put(ip, at + BTH, bytes([CNP]))


def fragment(_, ip, at):
    # IPv6 has a header for it, and then no UDP header behind its own.
    return put(ip, 6, b"\x20\x00" if at != 40 else b"\x2c")


def icrc(chance, ip, at):
    # What the ICRC covers, so without the byte of congestion.
    place = chance.choice([place for place in range(at + BTH + 1, len(ip)) if place != at + BTH + 4])
    return put(ip, place, bytes([ip[place] ^ 1 << chance.randrange(8)]))


def psn_ahead(chance, ip, at):
    return moved(ip, at, chance.randrange(*FAR))


def psn_behind(chance, ip, at):
    return moved(ip, at, -chance.randrange(1, FAR[1]))


def source(_, ip, at):
    place = at - 1 - (16 if at == 40 else 4)
    return put(ip, place, bytes([ip[place] ^ 0x80]))


def opcode(chance, ip, at):
    # A response stays one, and a request: the PSNs of both directions may be equal.
    old = ip[at + BTH]
    others = RESPONSES if old in RESPONSES else [new for new in range(DATAGRAMS.start) if new not in RESPONSES]
    return put(ip, at + BTH, bytes([chance.choice([new for new in others if new != old])]))


def length(chance, ip, at):
    size = chance.randrange(BTH + 1, len(ip) - at)
    ip = bytearray(ip[: at + size])
    struct.pack_into("!H", ip, at + 4, size)
    struct.pack_into("!H", ip, *((2, at + size) if at != 40 else (4, size)))
    return bytes(ip)


def key(chance, ip, at):
    return put(ip, at + BEHIND + 8, chance.randbytes(4))


def address(chance, ip, at):
    return put(ip, at + BEHIND, chance.randbytes(8))


def q_key(chance, ip, at):
    return put(ip, at + BEHIND, chance.randbytes(4))


ANY = (queue_pair, destination, partition, version, congestion, fragment, icrc)
# A station that knows the Q_Key may send datagrams, with any PSN.
OF_A_DATAGRAM = (*ANY, q_key)
# UC takes what is ahead, as after a loss.
OF_UC = (*ANY, source, opcode, length)
OF_A_CONNECTION = (*OF_UC, psn_ahead, psn_behind)
OF_A_REQUEST = (*OF_A_CONNECTION, key, address)
ALL = (*OF_A_REQUEST, q_key)
DUPLICATES = (opcode, length, key, address)


def forged(chance, frame):
    """The name of a forgery, the frame, and whether it goes behind the original; None of one that is
    not of RoCEv2."""
    if (found := frames.packet(frame)) is None:
        return None
    ip, at = found
    code = ip[at + BTH]
    if code in DATAGRAMS:
        forgeries = OF_A_DATAGRAM
    elif code in UNRELIABLE:
        forgeries = OF_UC
    else:
        forgeries = OF_A_REQUEST if code in WITH_KEY else OF_A_CONNECTION
    forgery = chance.choice(forgeries)
    is_duplicate = forgery in DUPLICATES
    if not is_duplicate:
        last = len(ip) - frames.ICRC - 1
        ip = put(ip, last, bytes([ip[last] ^ 0xFF]))
    changed = forgery(chance, ip, at)
    return forgery.__name__, frame[:14] + (changed if forgery is icrc else sealed(changed, at)), is_duplicate


class Intruder:
    """The station; both guests connect to it."""

    def __init__(self, wires, seed):
        self.sent = collections.Counter()
        self.ends = [listening(wire.socket) for wire in wires]
        self.seed = seed
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            guests = [end.accept()[0] for end in self.ends]
            for here, there in (guests, guests[::-1]):
                chance = random.Random(f"{self.seed} {guests.index(here)}")
                threading.Thread(target=self.forward, args=(here, there, chance), daemon=True).start()

    def forward(self, here, there, chance):
        """Until a guest ends."""
        with contextlib.suppress(OSError), here.makefile("rb") as stream:
            while len(header := stream.read(LENGTH.size)) == LENGTH.size:
                frame = stream.read(LENGTH.unpack(header)[0])
                parts = [header + frame]
                if (found := forged(chance, frame)) is not None:
                    name, other, is_duplicate = found
                    parts.insert(is_duplicate, LENGTH.pack(len(other)) + other)
                    self.sent[name] += 1
                there.sendall(b"".join(parts))
        with contextlib.suppress(OSError):
            there.shutdown(socket.SHUT_WR)

    def close(self):
        for end in self.ends:
            end.close()


@contextlib.contextmanager
def between(wires, seed):
    """The station between two guests; None without a seed."""
    if seed is None:
        yield None
        return
    base.say(f"frames are forged with seed {seed}")
    station = Intruder(wires, seed)
    with contextlib.closing(station):
        yield station
    base.say("forged " + ", ".join(f"{count} {name}" for name, count in sorted(station.sent.items())))


def listening(path):
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    end.bind(f"\0{path}")
    end.listen(1)
    return end
