#!/bin/bash
# Makes build/venv with the Python reference implementations (tools/requirements-reference.txt) and
# prints its interpreter. Does nothing when the list is the one that the folder was made from.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
readonly list=tools/requirements-reference.txt venv=build/venv
readonly stamp=$venv/requirements.txt

if ! cmp -s "$list" "$stamp"; then
  rm -rf "$venv"
  mkdir -p build
  /usr/bin/python3 -m venv "$venv"
  if ! "$venv/bin/python" -m pip install --quiet --no-deps --only-binary=:all: -r "$list" >&2; then
    echo "set-up: pip could not install $list; check that it reaches PyPI (pip config list)" >&2
    exit 1
  fi
  cp "$list" "$stamp"
fi
echo "$PWD/$venv/bin/python"
