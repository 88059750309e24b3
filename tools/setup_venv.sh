#!/bin/bash
# setup_venv.sh NAME: makes build/venv-NAME with what tools/requirements-NAME.txt lists and prints
# its interpreter. Does nothing when the list is the one that the folder was made from.
#   reference   the Python reference implementations
#   clients     the clients that people use with the server, and what drives the chat page
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
readonly list=tools/requirements-$1.txt venv=build/venv-$1
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
