#!/usr/bin/env python3
"""2,000 streams at once on the null device at 50 ms a step: each complete, in order and with the
tokens that the same request gets alone; the memory of one; and that of the server over 20,000
requests. Takes about 20 s."""

import sys

from http_load import Exchange, HttpLoad, ServerArguments, SpryServer, count, report

STEP_US = 50_000
TOKENS = 200
# What the null device says depends on a prompt's length and its last id: so many differ, and all
# the rest of a prompt is the request's own, so that the prefix cache has to keep and to forget.
KINDS = 50
PROMPT_TOKENS = 40
STREAM_BYTES_BAR = 64 << 10
AT_ONCE = 64
KV_BYTES = "4M"  # 4,096 blocks of the null device: the first tenth of the requests fills them
GROWTH_BAR = 1 << 20
FLAGS = ["--device", "null", "--max-num-batched-tokens", 4096, "--max-model-len", 1024]


def prompt(number):
    own = [1000 + number // 256 % 256, 2000 + number % 256] * (PROMPT_TOKENS // 2)
    return own[:-1] + [number % KINDS + 100]


def request(number, tokens):
    fields = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    return Exchange(key=number, prompt=prompt(number), **fields)


def wanted(tokens):
    with SpryServer(*FLAGS, log="bench-alone") as server:
        return [
            server.complete(
                prompt=prompt(kind), max_tokens=tokens, ignore_eos=True, return_token_ids=True
            )["choices"][0]["token_ids"]
            for kind in range(KINDS)
        ]


def count_whole(exchanges, alone):
    return sum(e.status == 200 and e.token_ids() == alone[e.key % KINDS] for e in exchanges)


def many_streams(streams):
    alone = wanted(TOKENS)
    flags = [*FLAGS, "--null-step-us", STEP_US, "--max-num-seqs", max(2048, streams)]
    with SpryServer(*flags, log="bench-streams") as server:
        load = HttpLoad(server)
        load.run([request(0, 2)])
        before = server.resident_bytes()
        exchanges = [request(i, TOKENS) for i in range(streams)]
        for exchange in exchanges:
            load.start(exchange)
        peak = before
        while load.busy:
            load.turn(1)
            peak = max(peak, server.resident_bytes() if len(load.busy) == streams else 0)
        load.close()
    each = (peak - before) / streams
    whole = count_whole(exchanges, alone)
    pace = sum(e.seconds() - e.first_event_seconds() for e in exchanges) / streams / (TOKENS - 1)
    return [
        (f"{streams} streams: whole, in order", f"{whole}", f"{streams}", whole == streams),
        ("memory of a stream", f"{each / 1024:.1f} KiB", "64 KiB", each <= STREAM_BYTES_BAR),
        ("pace at 50 ms a step", f"{pace * 1e3:.1f} ms a token", "", True),
    ]


def many_requests(requests):
    tokens = 8
    alone = wanted(tokens)
    flags = [*FLAGS, "--max-num-seqs", AT_ONCE, "--kv-cache-memory-bytes", KV_BYTES]
    with SpryServer(*flags, log="bench-requests") as server:
        load = HttpLoad(server)
        whole, sizes = 0, []
        for part in range(10):
            first = part * (requests // 10)
            exchanges = [request(i, tokens) for i in range(first, first + requests // 10)]
            whole += count_whole(load.run(exchanges, AT_ONCE), alone)
            sizes.append(server.resident_bytes())
        load.close()
    growth = sizes[-1] - sizes[1]
    text = f"{growth / 1024:.0f} KiB ({sizes[1] >> 10} -> {sizes[-1] >> 10})"
    return [
        (f"{requests} requests: whole", f"{whole}", f"{requests}", whole == requests),
        ("resident memory, last 8/10 of them", text, "1 MiB more", growth <= GROWTH_BAR),
    ]


def main():
    parser = ServerArguments(__doc__)
    parser.add_argument("streams", type=count, nargs="?", default=2000, help="at once [2000]")
    parser.add_argument(
        "requests", type=count, nargs="?", default=20_000, help="to watch memory over [20000]"
    )
    given = parser.parse_args()
    streams, requests = given.streams, given.requests
    return report(many_streams(streams) + many_requests(requests))


if __name__ == "__main__":
    sys.exit(main())
