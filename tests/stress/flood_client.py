"""A hostile client: `flood_client.py PORT SECONDS`; prints one line of JSON.

It holds 1,000 connections at a time: silent ones, half requests, garbage, heads without end, and
clients that ask and do not read; for one that the server ends it opens another. If it did not hold
them all at a time by then, it goes on for longer. A process of its own asks for /healthz up to ten
times a second.
"""

from __future__ import annotations

import json
import random
import resource
import select
import selectors
import socket
import subprocess
import sys
import time
import urllib.request

CONNECTIONS = 1000
OPENED_AT_ONCE = 100
LONGER_S = 60
KINDS = (
    b"",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Part: ",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 nonsense \x00\xff\r\n\r\n",
    b"GET /" + b"a" * 20_000,
    b"GET /metrics HTTP/1.1\r\n\r\n" * 20,
    b"POST /metrics HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n",
)


def health(port):
    """Ask until the input ends: how long each answer took, and what went wrong."""
    seconds, failed = [], []
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        started = time.monotonic()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10) as answer:
                answer.read()
            seconds.append(time.monotonic() - started)
        except OSError as error:
            failed.append(f"{type(error).__name__}: {error}")
    print(json.dumps({"seconds": seconds, "failed": failed}))


def flood(port, until):
    """Hold `CONNECTIONS` connections; answers how many were opened in all, and at a time."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    draw = random.Random(8)
    selector = selectors.DefaultSelector()
    opened = most = 0
    held = set()
    while time.time() < until or (most < CONNECTIONS and time.time() < until + LONGER_S):
        # A burst at a time, so that this process leaves the processor to the one under test.
        for _ in range(min(OPENED_AT_ONCE, CONNECTIONS - len(held))):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
            selector.register(sock, selectors.EVENT_WRITE | selectors.EVENT_READ)
            held.add(sock)
            opened += 1
        most = max(most, len(held))
        for key, events in selector.select(timeout=0.05):
            sock = key.fileobj
            try:
                if events & selectors.EVENT_WRITE:
                    sock.send(draw.choice(KINDS))
                    selector.modify(sock, selectors.EVENT_READ)
                elif draw.random() < 0.5 and not sock.recv(4096):
                    raise ConnectionResetError
            except BlockingIOError:
                continue
            except OSError:
                selector.unregister(sock)
                held.discard(sock)
                sock.close()
        time.sleep(0.05)
    for sock in held:
        sock.close()
    return opened, most


def main(port, seconds):
    """Flood, and ask for health meanwhile."""
    until = time.time() + seconds
    command = [sys.executable, __file__, str(port), str(seconds), "health"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as asking:
        opened, most = flood(port, until)
        told, _ = asking.communicate(timeout=60)  # ends its input, and so the asking
    print(json.dumps({**json.loads(told), "opened": opened, "most": most}))


if __name__ == "__main__":
    if sys.argv[3:]:
        health(int(sys.argv[1]))
    else:
        main(int(sys.argv[1]), float(sys.argv[2]))
