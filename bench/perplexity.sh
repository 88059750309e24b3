#!/bin/bash
# What the fast paths of a quantised model cost in perplexity, beside the same weights dequantised
# to f32. The text is the license and the documentation of this project.
# Usage: bench/perplexity.sh MODEL.gguf
# Takes about 75 s with a model of 135M parameters.
set -euo pipefail
# shellcheck source=bench/usage.sh
. "$(dirname "$0")/usage.sh"
[ $# -eq 1 ] || { usage >&2; exit 2; }
model=$(readlink -m "$1")
cd "$(dirname "$(readlink -f "$0")")/.."
need_spry "$built_spry"
need "$model" 'name a GGUF file'
text=$(mktemp)
trap 'rm -f "$text"' EXIT
cat LICENSE docs/architecture.md docs/server.md docs/models.md >"$text"

perplexity() {
  "$built_spry" bench perplexity "$model" --file "$text" "$@" 2>/dev/null |
    sed -n 's/^Perplexity: \([0-9.]*\).*/\1/p'
}

exact=$(perplexity --dtype float32)
echo "float32: $exact"
for isa in avx2 avx512 amx; do
  found=$(perplexity --isa "$isa") || { echo "$isa: not on this machine"; continue; }
  awk -v isa="$isa" -v found="$found" -v exact="$exact" \
    'BEGIN {printf "%s: %s (%+.2f %%)\n", isa, found, 100 * (found / exact - 1)}'
done
