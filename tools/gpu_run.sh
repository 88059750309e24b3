#!/bin/bash
# Runs the packed checks on this machine's card and prints one report. Packed as `run` by
# tools/gpu_check.
#   run [GROUP ...]     groups of checks, see spry_cuda_check; default: all, then the benchmarks,
#                       then the small groups under compute-sanitizer where that is
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")" || exit 1

readonly sanitizer_seconds=120
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
./spry_cuda_check "$(nproc)" "$@"
status=$?
if [ $# -eq 0 ]; then
  packed_spry() { LD_LIBRARY_PATH=$PWD ./spry "$@"; }
  for words in 'float32 full' 'bfloat16 full' 'bfloat16 piecewise' 'bfloat16 none'; do
    read -r dtype mode <<<"$words"
    printf '== bench latency, opt-125m in %s, graphs %s\n' "$dtype" "$mode"
    packed_spry bench latency opt-125m --load-format dummy --device cuda --dtype "$dtype" \
      --graph-mode "$mode" --num-iters-warmup 2 --num-iters 5 || status=1
  done
  for bench in 'overhead --device cuda --run-ahead 2 --steps 1000 --rows 1,8,64,256' \
    'attention --device cuda' 'attention --device cuda --heads 12 --kv-heads 12 --head-dim 64' \
    'gemm --device cuda'; do
    printf '== bench %s\n' "$bench"
    read -r -a words <<<"$bench"
    packed_spry bench "${words[@]}" || status=1
  done
  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
  if [ -n "$sanitizer" ]; then
    # Groups whose programs differ most in shapes; racecheck follows every access to shared memory,
    # so it gets what is small.
    for tool in 'memcheck sampling half attention draws' 'racecheck half'; do
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
