#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""bridge.py SOCKET FOLDER: does the QMP commands that a guest writes to FOLDER/request.

The answer goes to FOLDER/response, with the id of the request. Besides QMP's own
commands there is `x-wait-event`, which waits for an event about a device: QEMU
tells only afterwards that a device is gone. Ends when QEMU does. See src/host.rs
for the other side.
"""

import json
import os
import pathlib
import select
import socket
import sys
import time

# How often the folder is looked at, and how long an event may take.
TICK = 0.005
EVENT_TIME = 60


class Qmp:
    """A QMP connection, one command at a time."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.data = b""
        self.events = []
        self.message(EVENT_TIME)  # the greeting
        self.execute({"execute": "qmp_capabilities"})

    def message(self, seconds):
        """The next message, or None when none comes in time."""
        end = time.monotonic() + seconds
        while b"\n" not in self.data:
            if not select.select([self.sock], [], [], max(0, end - time.monotonic()))[0]:
                return None
            more = self.sock.recv(65536)
            if not more:
                raise ConnectionError("QEMU is gone")
            self.data += more
        line, self.data = self.data.split(b"\n", 1)
        return json.loads(line)

    def drain(self, seconds):
        """Takes the events that come within a time."""
        message = self.message(seconds)
        if message is not None:
            self.events.append(message)

    def execute(self, request):
        self.sock.sendall(json.dumps(request).encode() + b"\n")
        while True:
            message = self.message(EVENT_TIME)
            if message is None:
                return {"error": {"desc": f"no answer within {EVENT_TIME} s"}}
            if "event" not in message:
                return message
            self.events.append(message)

    def wait_event(self, name, device):
        end = time.monotonic() + EVENT_TIME
        while time.monotonic() < end:
            for event in self.events:
                if event["event"] == name and event["data"].get("device") == device:
                    self.events.remove(event)
                    return {"return": {}}
            self.drain(end - time.monotonic())
        return {"error": {"desc": f"no {name} of {device} within {EVENT_TIME} s"}}


def answer(qmp, request):
    arguments = request.get("arguments") or {}
    if request["execute"] == "x-wait-event":
        return qmp.wait_event(arguments["event"], arguments["device"])
    reply = qmp.execute({"execute": request["execute"], "arguments": arguments})
    return {key: reply[key] for key in ("return", "error") if key in reply}


def connect(path):
    """Connects as soon as QEMU is there; whoever started us ends us when it never comes."""
    while True:
        try:
            return Qmp(path)
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(TICK)


def main(path, folder):
    folder = pathlib.Path(folder)
    qmp = connect(path)
    last = None
    while True:
        try:
            request = json.loads((folder / "request").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            request = None
        if request is None or request["id"] == last:
            qmp.drain(TICK)
            continue
        last = request["id"]
        draft = folder / "response.new"
        draft.write_text(json.dumps({"id": last, **answer(qmp, request)}))
        os.replace(draft, folder / "response")


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2])
    except (ConnectionError, BrokenPipeError, KeyboardInterrupt):
        pass
