"""The five workloads on which engines are compared, and how each is measured."""

import random
import statistics
import time

# In and out tokens of W4, drawn once: 16..250 in, 16..128 out.
W4_IN = [int(n) for n in """
210 51 165 30 101 240 105 92 39 201 185 230 204 184 239 179 221 188 59 95 242 16 185 68 41
246 206 182 233 76 103 177 247 112 83 34 223 230 164 147 162 175 22 34 67 117 216 99 67 63
32 235 71 67 104 218 39 82 241 239 214 223 221 166
""".split()]
W4_OUT = [int(n) for n in """
106 124 55 51 88 32 24 95 128 101 51 73 84 57 123 32 52 21 109 62 22 86 75 86 41 69 106 39
128 81 35 108 101 29 123 69 45 25 16 105 117 24 109 114 67 77 95 96 34 49 43 93 75 58 121 97
41 24 82 52 112 41 39 22
""".split()]


def prompt(tokens, seed):
    """Token ids that every vocabulary here has, and no special ones."""
    draw = random.Random(seed)
    return [draw.randrange(100, 10000) for _ in range(tokens)]


def seconds(engine, prompts, outs):
    begin = time.perf_counter()
    made = engine.generate(prompts, outs)
    taken = time.perf_counter() - begin
    if made != sum(outs):
        raise RuntimeError(f"{engine.name} made {made} tokens of {sum(outs)}")
    return taken


def median_seconds(engine, prompts, outs, repeats):
    seconds(engine, prompts, outs)  # the first one warms up
    return statistics.median(seconds(engine, prompts, outs) for _ in range(repeats))


def prefill(engine, repeats):
    return 512 / median_seconds(engine, [prompt(512, 1)], [1], repeats)


def decode(engine, repeats):
    one = [prompt(32, 2)]
    first = median_seconds(engine, one, [1], repeats)
    return (median_seconds(engine, one, [128], repeats) - first) / 127 * 1e3


def eight_streams(engine, repeats):
    return median_seconds(engine, [prompt(32, 30 + i) for i in range(8)], [128] * 8, repeats)


def mixed(engine, repeats):
    prompts = [prompt(n, 400 + i) for i, n in enumerate(W4_IN)]
    return len(prompts) / median_seconds(engine, prompts, W4_OUT, max(1, repeats // 2))


# name: (what is measured, its unit, whether more is better)
WORKLOADS = {
    "W1": (prefill, "tokens/s", True),
    "W2": (decode, "ms a token", False),
    "W3": (eight_streams, "s", False),
    "W4": (mixed, "requests/s", True),
}
