#!/usr/bin/env python3
"""spry beside llama.cpp's llama-bench on one GGUF file: rounds alternate, medians are compared.

Prefill: 512 prompt tokens. Decode: 128 tokens after 32, (time of 128 - time of 1) / 127 per token.
Exits 1 when decode is slower than llama.cpp or prefill below 1.5 times it.
Takes about 90 s with a model of 135M parameters.
"""
import json
import statistics
import subprocess
import sys
import tempfile

from arguments import SPRY, Arguments

PREFILL_BAR, DECODE_BAR = 1.5, 1.0


def llama(args, *flags):
    out = subprocess.run([args.llama_bench, "-m", args.model, "-t", str(args.threads), "-r", "2",
                          "-o", "json", *flags], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)[0]["avg_ts"]


def spry(args, input_len, output_len):
    """Seconds of one request, the median of a few."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([args.spry, "bench", "latency", args.model, "--threads", str(args.threads),
                        "--isa", args.isa,
                        "--batch-size", "1", "--input-len", str(input_len),
                        "--output-len", str(output_len), "--no-enable-prefix-caching",
                        "--num-iters-warmup", "1", "--num-iters", "3", "--output-json", out.name],
                       capture_output=True, text=True, check=True)
        return json.load(open(out.name))["percentiles"]["50"]


def main():
    parser = Arguments(__doc__)
    parser.add_argument("model", help="a GGUF file that both can read")
    parser.add_argument("--llama-bench", required=True, help="llama.cpp's program")
    parser.add_argument("--spry", default=str(SPRY), help="the program [build/release/spry]")
    parser.add_argument("--threads", type=int, default=2, help="of both [2]")
    parser.add_argument("--isa", default="auto", help="of spry; llama.cpp is built for one [auto]")
    parser.add_argument("--rounds", type=int, default=5, help="[5]")
    args = parser.parse_args()
    parser.need_spry(args.spry)
    parser.need(args.llama_bench, "bench/peers/install.sh builds it in its folder's lcpp-build/bin")
    parser.need(args.model, "name a GGUF file")
    rows = {"prefill, tok/s": ([], []), "decode, tok/s": ([], [])}
    for _ in range(args.rounds):
        rows["prefill, tok/s"][0].append(512 / spry(args, 512, 1))
        rows["prefill, tok/s"][1].append(llama(args, "-p", "512", "-n", "0"))
        rows["decode, tok/s"][0].append(127 / (spry(args, 32, 128) - spry(args, 32, 1)))
        rows["decode, tok/s"][1].append(llama(args, "-p", "0", "-n", "128", "-d", "32"))
    ratios = []
    for name, (ours, theirs) in rows.items():
        ours, theirs = statistics.median(ours), statistics.median(theirs)
        ratios.append(ours / theirs)
        print(f"{name:16} spry {ours:8.1f}   llama.cpp {theirs:8.1f}   ratio {ratios[-1]:.2f}")
    sys.exit(ratios[0] < PREFILL_BAR or ratios[1] < DECODE_BAR)


if __name__ == "__main__":
    main()
