#!/usr/bin/env bash
# Start: the time from exec to the first byte of generated text, and peak resident memory, with a
# warm page cache. One run to warm up, then 5; medians.
# Usage: bench/start.sh MODEL [SPRY] [more flags of `spry generate`]
# SPRY is the program [build/release/spry]. Takes about a second with a small model.
set -euo pipefail
# shellcheck source=bench/usage.sh
. "$(dirname "$0")/usage.sh"
if [ $# -lt 1 ]; then
  usage >&2
  exit 2
fi
model=$1
spry=${2:-$built_spry}
need_spry "$spry"
python3 - "$spry" "$model" "${@:3}" <<'PY'
import os, statistics, subprocess, sys, time
spry, model, *flags = sys.argv[1:]
command = [spry, "generate", model, "--prompt", "Once upon a time", "--max-tokens", "8",
           "--temperature", "0", "--ignore-eos", *flags]
RUNS = 5


def run():
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = os.read(child.stdout.fileno(), 1)
    first_s = time.perf_counter() - start
    child.stdout.read()
    plan = child.stderr.read().decode().strip()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0 or not first:
        sys.exit(f"spry failed: {plan}")
    return first_s, usage.ru_maxrss / 1024, plan


run()
runs = [run() for _ in range(RUNS)]
print(runs[0][2])
print(f"start to first token: {statistics.median(r[0] for r in runs):.3f} s "
      f"(of {', '.join(f'{r[0]:.3f}' for r in runs)})")
print(f"peak resident memory: {statistics.median(r[1] for r in runs):.1f} MiB")
PY
