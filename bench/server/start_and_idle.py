#!/usr/bin/env python3
"""Process start to /health answering 200 with the demo model (page cache warm), and what the server
does while nobody asks for anything. Takes about 25 s."""

import socket
import statistics
import sys
import time

from http_load import ServerArguments, SpryServer, duration, report

RUNS = 5
START_BAR_SECONDS = 0.3
IDLE_BAR = 0.01


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def start_seconds():
    begin = time.perf_counter()
    with SpryServer(port=free_port(), log="bench-start") as server:
        while True:
            try:
                if server.ask("GET", "/health")[0] == 200:
                    return time.perf_counter() - begin
            except ConnectionRefusedError:
                time.sleep(0.001)


def idle_share(seconds):
    """Of one core, after a request and with a connection left open."""
    with SpryServer(log="bench-idle") as server:
        server.complete(prompt="Once upon a time", max_tokens=8)
        with socket.create_connection(("127.0.0.1", server.port)):
            time.sleep(1)
            begin, cpu = time.perf_counter(), server.cpu_seconds()
            time.sleep(seconds)
            return (server.cpu_seconds() - cpu) / (time.perf_counter() - begin)


def main():
    parser = ServerArguments(__doc__)
    parser.add_argument("seconds", type=duration, nargs="?", default=20, help="of idleness [20]")
    seconds = parser.parse_args().seconds
    start_seconds()
    start = statistics.median(start_seconds() for _ in range(RUNS))
    idle = idle_share(seconds)
    return report(
        [
            ("process start to /health 200", f"{start:.3f} s", "0.3 s", start <= START_BAR_SECONDS),
            ("an idle server", f"{idle:.3%} of a core", "1 %", idle < IDLE_BAR),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
