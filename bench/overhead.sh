#!/usr/bin/env bash
# Host cost of a decode step: the table of `spry bench overhead`, checked against its bars
# (median: 8 rows 5 us, 256 rows 50 us, 1,024 rows 200 us; no heap allocation).
# Usage: bench/overhead.sh [SPRY]
# SPRY is the program [build/release/spry]. Takes about a second.
set -euo pipefail
# shellcheck source=bench/usage.sh
. "$(dirname "$0")/usage.sh"
spry=${1:-$built_spry}
need_spry "$spry"
json=$(mktemp)
trap 'rm -f "$json"' EXIT

"$spry" bench overhead --json "$json"
python3 - "$json" <<'PY'
import json, sys
bars_us = {8: 5, 256: 50, 1024: 200}
bad = []
for row in json.load(open(sys.argv[1])):
    p50_us = row["host_ns_per_step"]["p50"] / 1e3
    bar_us = bars_us.get(row["rows"])
    if bar_us is not None and p50_us > bar_us:
        bad.append(f"{row['rows']} rows: {p50_us:.1f} us, the bar is {bar_us} us")
    if row["heap_allocations_per_step"] != 0:
        bad.append(f"{row['rows']} rows: {row['heap_allocations_per_step']} allocations a step")
print("\n".join(bad) or "within the bars")
sys.exit(bool(bad))
PY
