#!/bin/bash
# setup_packages.sh [LIST]: installs the Debian packages of a list, packaging/apt-bookworm.txt where
# none is named, that are missing. Needs root only when one is; a second run changes nothing and
# takes milliseconds.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
readonly list=${1:-packaging/apt-bookworm.txt}
readonly options=(-y --no-install-recommends -o DPkg::Lock::Timeout=300)

if ! command -v dpkg-query >/dev/null; then
  echo "set-up: this is not a Debian system; install the equivalents of $list by hand" >&2
  exit 1
fi

missing_packages() {
  local installed
  installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null |
    awk '$1 == "ii" {print $2}' | sort -u)
  comm -23 <(sort -u "$list") <(printf '%s\n' "$installed")
}

mapfile -t missing < <(missing_packages)
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  # Without a terminal sudo could only fail or hang on its question for a password.
  if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=(sudo)
  else
    echo "set-up: ${#missing[@]} Debian packages are missing and this user may not install them;" \
      "run this as root, then start again:" >&2
    echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "$@"
}

# Package lists that are absent or out of date show as a failed installation, so only then are they
# fetched.
echo "set-up: installing ${#missing[@]} Debian packages"
if apt install "${options[@]}" "${missing[@]}" >/dev/null 2>&1; then
  exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt update && apt install "${options[@]}" "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "set-up: apt-get could not install: ${missing[*]}" >&2
  exit 1
fi
