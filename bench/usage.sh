# shellcheck shell=bash disable=SC2034  # who sources it has the program
# Sourced by the scripts of bench/ with their arguments: --help shows the comment at a script's top,
# and what is needed and not there is said in one line.

built_spry=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/release/spry

usage() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
}

# need FILE-OR-PROGRAM WHAT-TO-DO
need() {
  if [ -e "$1" ] || command -v "$1" >/dev/null; then return; fi
  echo "$(basename "$0"): there is no $1; $2" >&2
  exit 2
}

need_spry() {  # PROGRAM
  need "$1" 'build it: cmake --preset release && ninja -C build/release spry'
}

case "${1-}" in
  -h | --help)
    usage
    exit
    ;;
esac
