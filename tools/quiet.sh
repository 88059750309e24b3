#!/bin/bash
# quiet.sh LOG COMMAND...: runs a noisy command with its output in LOG, whose end it shows when the
# command fails.
set -u
log=$1
shift
mkdir -p "$(dirname "$log")"
"$@" >"$log" 2>&1
status=$?
if [ $status -ne 0 ]; then
  printf 'failed (exit %d): %s\n' $status "$*"
  # Compilers say what is wrong first, far above the end that a build tool prints.
  grep -n -m 20 -E '(^|[^a-z_])error[: ]|^FAILED' "$log" | cut -c 1-300
  printf -- '--- last lines of %s\n' "$log"
  tail -n 25 "$log" | cut -c 1-300
fi
exit $status
