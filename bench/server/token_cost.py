#!/usr/bin/env python3
"""The server's own CPU for a streamed token: detokenising, JSON, events, and the kernel's sending,
as the I/O thread's time of 256 streams over their tokens. The engine's thread is not in it.
Takes about 30 s."""

import sys

from http_load import Exchange, HttpLoad, ServerArguments, SpryServer, count, report

BAR_US = 15
TOKENS = 400
MESSAGES = [{"role": "user", "content": "hi"}]


def cost_us(streams, **fields):
    flags = ["--device", "null", "--null-step-us", 20_000, "--max-num-seqs", streams]
    with SpryServer(*flags, log="bench-token-cost") as server:
        load = HttpLoad(server)
        body = {"messages": MESSAGES, "max_tokens": TOKENS, "return_token_ids": False, **fields}
        exchanges = [Exchange(path="/v1/chat/completions", **body) for _ in range(streams)]
        for exchange in exchanges:
            load.start(exchange)
        while not all(exchange.arrivals for exchange in exchanges):
            load.turn(1)
        tokens = server.metric("generation_tokens_total")
        before = server.thread_cpu_seconds()[server.pid]
        load.run([])
        spent = server.thread_cpu_seconds()[server.pid] - before
        tokens = server.metric("generation_tokens_total") - tokens
        load.close()
    if any(e.status != 200 or not e.is_whole() for e in exchanges):
        raise RuntimeError("a stream failed")
    return spent / tokens * 1e6


def main():
    parser = ServerArguments(__doc__)
    parser.add_argument("streams", type=count, nargs="?", default=256, help="at once [256]")
    streams = parser.parse_args().streams
    rows = []
    for what, fields in [
        ("text", {}),
        ("with stop strings", {"stop": ["###", "\n\nUser:"]}),
        ("with 5 logprobs", {"logprobs": True, "top_logprobs": 5}),
    ]:
        us = cost_us(streams, **fields)
        name = f"CPU of a streamed token, {streams} streams, {what}"
        rows.append((name, f"{us:.1f} us", f"{BAR_US} us", us <= BAR_US))
    return report(rows)


if __name__ == "__main__":
    sys.exit(main())
