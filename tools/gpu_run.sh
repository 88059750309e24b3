#!/bin/bash
# Runs the packed checks on this machine's card and prints one report. Packed as `run` by
# tools/gpu_check.
#   run [GROUP ...]     groups of checks, see spry_cuda_check; default: all, then the latency
#                       benchmark, then the small groups under compute-sanitizer where that is
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")" || exit 1

readonly sanitizer_seconds=60
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
./spry_cuda_check "$(nproc)" "$@"
status=$?
if [ $# -eq 0 ]; then
  for dtype in float32 bfloat16; do
    printf '== bench latency, opt-125m in %s\n' $dtype
    LD_LIBRARY_PATH=$PWD ./spry bench latency opt-125m --load-format dummy --device cuda \
      --dtype $dtype --num-iters-warmup 2 --num-iters 5 || status=1
  done
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
  if [ -n "$sanitizer" ]; then
    # racecheck follows every access to shared memory, so it gets what is small.
    for tool in 'memcheck sampling half' 'racecheck half'; do
      read -r -a words <<<"$tool"
      printf '== %s\n' "$tool"
      timeout $sanitizer_seconds "$sanitizer" --tool "${words[0]}" --error-exitcode 9 \
        ./spry_cuda_check "$(nproc)" "${words[@]:1}" >sanitizer.log 2>&1
      code=$?
      tail -n 3 sanitizer.log
      printf '%s exit %d\n' "${words[0]}" $code
      [ $code -eq 0 ] || status=1
    done
  else
    printf 'no compute-sanitizer here\n'
  fi
fi
exit $status
