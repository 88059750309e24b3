#!/usr/bin/env python3
"""What HTTP adds to the time to the first token on an idle server: from before the request is sent
to the first event's arrival, less `first_token_ms` of the request's log line, which runs from the
parsed request to its token. And the whole of it on the null device, which computes nothing.
Takes about 6 s."""

import re
import socket
import statistics
import sys
import time

from http_load import Exchange, ServerArguments, SpryServer, count, percentile, report

BAR_MS = 1.0
WARM_UP = 5
MESSAGES = [{"role": "user", "content": "Why is the sky blue?"}]


def connect(server):
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def outer_ms(connection, number):
    """Leaves the answer's rest read."""
    exchange = Exchange(path="/v1/chat/completions", messages=MESSAGES, max_tokens=2, seed=number)
    request = exchange.request.replace(b"\r\n", f"\r\nX-Request-Id: t{number}\r\n".encode(), 1)
    begin = time.perf_counter()
    connection.sendall(request)
    answer, first = b"", None
    while not answer.endswith(b"\r\n0\r\n\r\n"):
        answer += connection.recv(1 << 16)
        if first is None and b"data: " in answer:
            first = time.perf_counter()
    return (first - begin) * 1e3


def measure(requests, keep_alive, *flags):
    """Milliseconds by request: (outer, inner)."""
    with SpryServer(*flags, log="bench-first-token") as server:
        outer = []
        kept = connect(server)
        for number in range(WARM_UP + requests):
            time.sleep(0.005)  # idle again
            connection = kept if keep_alive else connect(server)
            outer.append(outer_ms(connection, number))
            if not keep_alive:
                connection.close()
        kept.close()
        time.sleep(0.1)
        found = dict(re.findall(r" id=chatcmpl-t(\d+) .* first_token_ms=(\S+)", server.log_text()))
    return [(outer[i], float(found[str(i)])) for i in range(WARM_UP, WARM_UP + requests)]


def main():
    parser = ServerArguments(__doc__)
    parser.add_argument(
        "requests", type=count, nargs="?", default=200, help="in each of three runs [200]"
    )
    requests = parser.parse_args().requests
    rows = []
    for what, keep_alive, flags in [
        ("demo model on the CPU", True, []),
        ("null device", True, ["--device", "null"]),
        ("null device, new connections", False, ["--device", "null"]),
    ]:
        times = measure(requests, keep_alive, *flags)
        added = [outer - inner for outer, inner in times]
        p50, p99 = statistics.median(added), percentile(added, 0.99)
        inner = statistics.median(i for _, i in times)
        figure = f"p50 {p50:.2f} ms, p99 {p99:.2f} (the engine: {inner:.2f})"
        rows.append((f"first token over HTTP, {what}", figure, "p50 1 ms", p50 <= BAR_MS))
    return report(rows)


if __name__ == "__main__":
    sys.exit(main())
