#!/usr/bin/env python3
"""Four times what the server can do, for a minute: 429 with Retry-After for the surplus, what is
accepted runs as it would alone, and afterwards all is as it was. On the null device, so that what
it can do is known: 16 rows, 10 ms a step, 50 tokens a request. Takes about 75 s."""

import statistics
import sys
import time

from http_load import Exchange, HttpLoad, ServerArguments, SpryServer, duration, percentile, report

ROWS, QUEUE, STEP_SECONDS, TOKENS = 16, 64, 0.01, 50
CAPACITY = ROWS / (TOKENS * STEP_SECONDS)  # requests a second, at best
OVER = 4
KINDS = 50
FLAGS = ["--device", "null", "--max-num-seqs", ROWS, "--max-queue", QUEUE]


def request(number):
    prompt = [number % KINDS + 100]
    return Exchange(key=number, prompt=prompt, max_tokens=TOKENS, ignore_eos=True, temperature=0)


def tokens_alone():
    with SpryServer(*FLAGS, log="bench-alone") as server:
        load = HttpLoad(server)
        done = load.run([request(kind) for kind in range(KINDS)], at_once=1)
        load.close()
    return {exchange.key: exchange.token_ids() for exchange in done}


def paced(server):
    """The gaps between tokens and the time to the first one where nobody waits for a row."""
    load = HttpLoad(server)
    done = load.run([request(i) for i in range(8 * ROWS)], at_once=ROWS)
    load.close()
    first = statistics.median(exchange.first_event_seconds() for exchange in done)
    return [gap for exchange in done for gap in exchange.gaps()], first


def overload(server, seconds, rate):
    """Requests begin at their times, whatever becomes of the earlier ones."""
    load = HttpLoad(server)
    done, number = [], 0
    begin = time.perf_counter()
    while time.perf_counter() < begin + seconds or load.busy:
        now = time.perf_counter() - begin
        while now < seconds and number < now * rate:
            load.start(request(number))
            number += 1
        done += load.turn(0.002)
    took = time.perf_counter() - begin
    load.close()
    return done, took


def main():
    parser = ServerArguments(__doc__)
    parser.add_argument("seconds", type=duration, nargs="?", default=60, help="of overload [60]")
    seconds = parser.parse_args().seconds
    alone = tokens_alone()
    flags = [*FLAGS, "--null-step-us", int(STEP_SECONDS * 1e6)]
    with SpryServer(*flags, log="bench-overload") as server:
        gaps_before, first_before = paced(server)
        size_before = server.resident_bytes()
        done, took = overload(server, seconds, OVER * CAPACITY)
        idle = server.await_idle(seconds=2)
        gaps_after, first_after = paced(server)
        growth = server.resident_bytes() - size_before
    accepted = [e for e in done if e.status == 200]
    refused = [e for e in done if e.status == 429]
    told = sum(b"\r\nRetry-After: " in e.raw for e in refused)
    whole = sum(e.token_ids() == alone[e.key % KINDS] for e in accepted)
    mean = statistics.mean(gap for e in accepted for gap in e.gaps())
    slower = mean / statistics.mean(gaps_before)
    # What a machine whose steps take longer can do.
    capacity = ROWS / (TOKENS * statistics.mean(gaps_before) + first_before)
    served = len(accepted) / (took * capacity)
    quickest = percentile([e.seconds() for e in refused], 0.5)
    after = statistics.mean(gaps_after) / statistics.mean(gaps_before)
    later = first_after - first_before
    return report(
        [
            (
                f"{OVER}x capacity ({CAPACITY:.0f} requests/s) for {seconds:.0f} s: answers",
                f"{len(accepted)} x 200, {len(refused)} x 429 of {len(done)}",
                "no other; Retry-After",
                len(accepted) + len(refused) == len(done) and told == len(refused) > 0,
            ),
            ("accepted: whole, in order", f"{whole}", f"{len(accepted)}", whole == len(accepted)),
            ("accepted: time of a token", f"{slower:.2f}x", "1.1x", slower <= 1.1),
            ("served of what can be", f"{served:.2f}", "0.9", served >= 0.9),
            ("a refusal takes", f"p50 {quickest * 1e3:.1f} ms", "10 ms", quickest <= 0.01),
            (
                "afterwards: idle, tokens and first token as before, memory",
                f"{after:.2f}x, {later * 1e3:+.1f} ms, {growth >> 10} KiB more",
                "1.1x, 20 ms, 4 MiB",
                idle and after <= 1.1 and later <= 2 * STEP_SECONDS and growth <= 4 << 20,
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
