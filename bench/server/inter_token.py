#!/usr/bin/env python3
"""The gaps between tokens of streams that run while long prompts arrive: the demo model on the CPU,
default settings. The bar is on their 99th percentile: twice a decode step (the median gap of the
same streams alone) or 100 ms, whichever is more. Takes about 40 s."""

import shlex
import statistics
import sys
import time

from http_load import (
    Exchange,
    HttpLoad,
    ServerArguments,
    SpryServer,
    count,
    duration,
    percentile,
    report,
)

BAR_SECONDS = 0.1
PROMPT_TOKENS = 1500
EVERY_SECONDS = 2.0


def stream(number, tokens):
    prompt = [1000 + number, 2000, 3000, 4000]
    return Exchange("stream", prompt=prompt, max_tokens=tokens, ignore_eos=True, temperature=0)


def long_prompt(number):
    """No two share a block."""
    prompt = [3000 + (7 * i + 31 * number) % 20011 for i in range(PROMPT_TOKENS)]
    return Exchange("prompt", prompt=prompt, max_tokens=1, temperature=0)


def gaps(load, streams, seconds, prompts):
    """Those of `streams` streams that run for so long, and the number of long prompts served."""
    running = [stream(i, 7000) for i in range(streams)]
    for exchange in running:
        load.start(exchange)
    while not all(exchange.arrivals for exchange in running):
        load.turn(1)
    begin = time.perf_counter()
    served = asked = 0
    while time.perf_counter() < begin + seconds:
        if prompts and time.perf_counter() >= begin + asked * EVERY_SECONDS:
            load.start(long_prompt(asked))
            asked += 1
        served += sum(exchange.key == "prompt" for exchange in load.turn(0.01))
    end = time.perf_counter()
    inside = []
    for exchange in running:
        times = [when for when, _ in exchange.arrivals if begin <= when <= end]
        inside += [b - a for a, b in zip(times, times[1:])]
    load.close()  # the server drops them
    return inside, served


def main():
    parser = ServerArguments(__doc__)
    parser.add_argument("streams", type=count, nargs="?", default=4, help="at once [4]")
    parser.add_argument(
        "seconds", type=duration, nargs="?", default=30, help="beside prompts, after a third [30]"
    )
    parser.add_argument(
        "--flags", type=shlex.split, default=[], help="of `spry serve`: --flags='--max-num-seqs 8'"
    )
    given = parser.parse_args()
    streams, seconds = given.streams, given.seconds
    with SpryServer(*given.flags, log="bench-inter-token") as server:
        alone, _ = gaps(HttpLoad(server), streams, seconds / 3, prompts=False)
        server.await_idle()
        beside, served = gaps(HttpLoad(server), streams, seconds, prompts=True)
        server.await_idle()
    step = statistics.median(alone)
    bar = max(2 * step, BAR_SECONDS)
    p50, p99 = statistics.median(beside), percentile(beside, 0.99)
    figure = f"p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f}, most {max(beside) * 1e3:.1f}"
    alone_text = f"alone {step * 1e3:.1f} ms, p99 {percentile(alone, 0.99) * 1e3:.1f}"
    return report(
        [
            (f"between tokens, {streams} streams alone", alone_text, "", True),
            (
                f"beside {served} prompts of {PROMPT_TOKENS} tokens",
                f"{figure} ({len(beside)} gaps)",
                f"p99 {bar * 1e3:.0f} ms",
                p99 <= bar and served > 0,
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
