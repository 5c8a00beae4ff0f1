# SPDX-License-Identifier: GPL-2.0
"""Judges the frames of RoCEv2 in a capture, by code that is not the device's.

    scripts/py frames FILE

tshark, of Debian's archive, has to dissect each of them. It does not check the ICRC, so that is
computed here, with zlib's CRC. Prints the number of frames by opcode.
"""

import argparse
import collections
import pathlib
import struct
import sys
import zlib

from qp import archive, base, cache

PORT = 4791
# The link type of a capture of Ethernet.
ETHERNET = 1
IPV4, IPV6, UDP = 0x0800, 0x86DD, 17
ICRC = 4

# tshark guesses at the payload of a message; these guesses fail.
HEURISTICS = ("rpcordma", "infiniband_sdp", "lapbether", "nvme-rdma")


def captured(path):
    """The frames of a capture."""
    with open(path, "rb") as file:
        header = file.read(24)
        if len(header) < 24 or struct.unpack("<I", header[:4])[0] != 0xA1B2C3D4 or struct.unpack("<I", header[20:])[0] != ETHERNET:
            raise base.Fail(f"{path} is no capture of Ethernet", "scripts/wire --pcap FILE makes one")
        # A guest that ends leaves its last frame in parts.
        while len(header := file.read(16)) == 16:
            _, _, kept, length = struct.unpack("<4I", header)
            frame = file.read(kept)
            if len(frame) == kept == length:
                yield frame


def packet(frame):
    """The IP packet of a frame of RoCEv2 without the padding behind it, and the offset of its UDP
    header; or None."""
    (kind,) = struct.unpack_from("!H", frame, 12)
    ip = frame[14:]
    if kind == IPV4 and len(ip) >= 28:
        at, protocol, length = (ip[0] & 15) * 4, ip[9], struct.unpack_from("!H", ip, 2)[0]
    elif kind == IPV6 and len(ip) >= 48:
        at, protocol, length = 40, ip[6], 40 + struct.unpack_from("!H", ip, 4)[0]
    else:
        return None
    if protocol != UDP or struct.unpack_from("!H", ip, at + 2)[0] != PORT:
        return None
    return ip[:length], at


def icrc(ip, at):
    """That of a packet: the CRC of its bytes, behind those of a header that RoCEv2 has not, with all
    ones for what a router changes."""
    masked = bytearray(ip[:-ICRC])
    if at == 40:
        masked[0] |= 0x0F
        masked[1:4] = b"\xff" * 3
        masked[7] = 0xFF
    else:
        masked[1] = masked[8] = masked[10] = masked[11] = 0xFF
    masked[at + 6 : at + 8] = b"\xff" * 2
    # Behind the UDP header: opcode, flags, P_Key, and a byte with the bits of congestion.
    masked[at + 12] = 0xFF
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + masked))


def build_tshark(folder):
    cache.need_space((base.CACHE, 1))
    archive.unpack_all(("tshark",), folder)


def tshark(*words):
    """What tshark prints, which runs from its unpacked packages."""
    tree = cache.entry(base.CACHE / "tshark" / base.digest(1), build_tshark) / "tree"
    environment = [f"WIRESHARK_DATA_DIR={tree}/usr/share/wireshark", "HOME=/nonexistent"]
    return base.output("env", *environment, *archive.program(tree, "usr/bin/tshark"), *words)


def judge(path):
    """The number of frames of each opcode, and a line for each frame that is refused."""
    opcodes, refused, count = collections.Counter(), [], 0
    for number, frame in enumerate(captured(path), 1):
        if (found := packet(frame)) is None:
            continue
        ip, at = found
        count += 1
        if len(ip) < at + 8 + 12 + ICRC or struct.unpack_from("!H", ip, at + 4)[0] != len(ip) - at:
            refused.append(f"frame {number}: the lengths of IP and UDP differ, or there is no BTH")
            continue
        opcodes[ip[at + 8]] += 1
        if ip[-ICRC:] != icrc(ip, at):
            refused.append(f"frame {number}: opcode {ip[at + 8]:#04x}, ICRC {ip[-ICRC:].hex()}, not {icrc(ip, at).hex()}")
    # While the device is away its guest has no such port, and says so by ICMP, with the frame in it.
    mine = f"udp.dstport == {PORT} && !icmp && !icmpv6"
    words = [word for name in HEURISTICS for word in ("--disable-protocol", name)]
    lines = tshark("-n", "-r", path, *words, "-Y", mine, "-T", "fields", "-e", "frame.number", "-e", "infiniband.bth.opcode", "-e", "_ws.malformed").splitlines()
    for line in lines:
        number, opcode, *malformed = line.split("\t")
        if not opcode or any(malformed):
            refused.append(f"frame {number}: not dissected: {line}")
    if len(lines) != count:
        refused.append(f"tshark sees {len(lines)} frames of {count}")
    return opcodes, refused


def run(argv):
    parser = argparse.ArgumentParser(prog="scripts/py frames", description=__doc__.split("\n\n")[0])
    parser.add_argument("file", type=pathlib.Path, help="a capture, of scripts/wire --pcap")
    opcodes, refused = judge(parser.parse_args(argv).file)
    for opcode, count in sorted(opcodes.items()):
        print(f"opcode {opcode:#04x}: {count}")
    for line in refused[:20]:
        print(line, file=sys.stderr)
    print(f"{opcodes.total()} frames, {len(refused)} refused")
    return bool(refused)


if __name__ == "__main__":
    base.main(run)
