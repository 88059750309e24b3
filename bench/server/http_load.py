"""Many HTTP requests at once from one thread: epoll, raw bytes, and the time of each arrival.

A benchmark's client must not be what limits it, so nothing is parsed before the end.
"""

import json
import pathlib
import re
import resource
import select
import socket
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests/clients")]
from arguments import Arguments  # noqa: E402
from spry_server import NAME, SPRY, SpryServer, demo_model  # noqa: E402,F401

RECEIVE_BYTES = 1 << 16


class Exchange:
    """One request for a stream, and what has come of its answer."""

    def __init__(self, key=None, path="/v1/completions", **body):
        text = json.dumps({"stream": True, "return_token_ids": True, **body}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: spry\r\nContent-Type: application/json\r\n"
        self.request = f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text
        self.key = key
        self.raw = bytearray()
        self.arrivals = []  # (time, bytes so far)
        self.begun = None

    def is_whole(self):
        if self.raw.startswith(b"HTTP/1.1 200"):
            return self.raw.endswith(b"\r\n0\r\n\r\n")
        length = re.search(rb"\r\nContent-Length: (\d+)\r\n", self.raw)
        end = self.raw.find(b"\r\n\r\n")
        return length is not None and end >= 0 and len(self.raw) >= end + 4 + int(length.group(1))

    @property
    def status(self):
        return int(self.raw[9:12] or 0)

    def body(self):
        """Of a stream: its chunks put together."""
        at = self.raw.index(b"\r\n\r\n") + 4
        parts = []
        while True:
            line = self.raw.index(b"\r\n", at)
            size = int(self.raw[at:line], 16)
            if size == 0:
                return b"".join(parts)
            parts.append(self.raw[line + 2 : line + 2 + size])
            at = line + 2 + size + 2

    def token_ids(self):
        """Of a whole stream, which must be in order: each event well-formed, [DONE] at its end."""
        events = self.body().decode().split("\n\n")
        if events[-2:] != ["data: [DONE]", ""]:
            raise ValueError(f"a stream that ends with {events[-2:]}")
        ids = []
        for event in events[:-2]:
            for choice in json.loads(event.removeprefix("data: "))["choices"]:
                ids += choice["token_ids"]
        return ids

    def first_event_seconds(self):
        """From the request to the first event: events come with the head's bytes or later."""
        at = self.raw.index(b"data: ")
        return next(when for when, size in self.arrivals if size > at) - self.begun

    def seconds(self):
        return self.arrivals[-1][0] - self.begun

    def gaps(self):
        """Seconds between arrivals that brought events, but for the first."""
        times = [when for when, _ in self.arrivals]
        return [b - a for a, b in zip(times, times[1:])]


class HttpLoad:
    """Connections to a server, kept alive: one exchange each at a time."""

    def __init__(self, server):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self.address = ("127.0.0.1", server.port)
        self.epoll = select.epoll()
        self.free = []
        self.busy = {}  # descriptor -> (socket, exchange)

    def start(self, exchange):
        if self.free:
            connection = self.free.pop()
        else:
            connection = socket.create_connection(self.address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)
            self.epoll.register(connection.fileno(), select.EPOLLIN)
        self.busy[connection.fileno()] = (connection, exchange)
        exchange.begun = time.perf_counter()
        if connection.send(exchange.request) != len(exchange.request):
            raise RuntimeError("a request was too long for one write")

    def turn(self, seconds):
        """Waits that long at most for bytes; returns the exchanges that they completed."""
        done = []
        for descriptor, _ in self.epoll.poll(seconds):
            connection, exchange = self.busy.get(descriptor, (None, None))
            if exchange is None:  # a connection that the server closed while it was free
                raise RuntimeError("bytes or an end on a connection that asked for nothing")
            received = connection.recv(RECEIVE_BYTES)
            exchange.raw += received
            exchange.arrivals.append((time.perf_counter(), len(exchange.raw)))
            if not received and not exchange.is_whole():
                raise RuntimeError(f"the server cut a connection after {len(exchange.raw)} bytes")
            if exchange.is_whole():
                del self.busy[descriptor]
                self.free.append(connection)
                done.append(exchange)
        return done

    def run(self, exchanges, at_once=None, stall_seconds=60):
        """Brings them all to their end, so many in flight at a time; returns them in order of
        their ends."""
        waiting = list(reversed(exchanges))
        done = []
        last = time.perf_counter()
        while waiting or self.busy:
            while waiting and (at_once is None or len(self.busy) < at_once):
                self.start(waiting.pop())
            ended = self.turn(1)
            done += ended
            if ended or any(e.arrivals and e.arrivals[-1][0] > last for _, e in self.busy.values()):
                last = time.perf_counter()
            elif time.perf_counter() - last > stall_seconds:
                raise RuntimeError(f"{len(self.busy)} requests got nothing for {stall_seconds} s")
        return done

    def close(self):
        for connection in [*self.free, *(c for c, _ in self.busy.values())]:
            connection.close()
        self.epoll.close()


class ServerArguments(Arguments):
    """Of a script that starts servers of the demo model."""

    def parse_args(self):
        given = super().parse_args()
        self.need_spry(SPRY)
        self.need(demo_model(), "tools/setup_model.py fetches it")
        return given


def count(text):
    """An argument of a script: a number of things."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def duration(text):
    """An argument of a script: seconds."""
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(rows):
    """Prints (what, figure, bar, held) rows; the exit code tells whether every bar was held."""
    for what, figure, bar, held in rows:
        print(f"| {what} | {figure} | {bar} | {'held' if held else 'MISSED'} |", flush=True)
    return 0 if all(held for *_, held in rows) else 1
