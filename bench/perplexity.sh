#!/bin/bash
# perplexity.sh MODEL.gguf: what the fast paths of a quantised model cost in perplexity, beside the
# same weights dequantised to f32. The text is the license and the documentation of this project.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
[ $# -eq 1 ] || { sed -n '2,3s/^# //p' "$0"; exit 2; }
text=$(mktemp)
trap 'rm -f "$text"' EXIT
cat LICENSE docs/architecture.md docs/server.md docs/models.md >"$text"

perplexity() {
  build/release/spry bench perplexity "$model" --file "$text" "$@" 2>/dev/null |
    sed -n 's/^Perplexity: \([0-9.]*\).*/\1/p'
}

model=$1
exact=$(perplexity --dtype float32)
echo "float32: $exact"
for isa in avx2 avx512 amx; do
  found=$(perplexity --isa "$isa") || { echo "$isa: not on this machine"; continue; }
  awk -v isa="$isa" -v found="$found" -v exact="$exact" \
    'BEGIN {printf "%s: %s (%+.2f %%)\n", isa, found, 100 * (found / exact - 1)}'
done
