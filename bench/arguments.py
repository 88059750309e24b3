"""The command line of the scripts of bench/: --help shows a script's own text, and what is needed
and not there is said in one line."""

import argparse
import os
import pathlib
import shutil

SPRY = pathlib.Path(__file__).resolve().parents[1] / "build/release/spry"


class Arguments(argparse.ArgumentParser):
    def __init__(self, text):
        super().__init__(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)

    def need(self, path, what_to_do):
        if not os.path.exists(path) and shutil.which(path) is None:
            self.exit(2, f"{self.prog}: there is no {path}; {what_to_do}\n")

    def need_spry(self, program):
        self.need(program, "build it: cmake --preset release && ninja -C build/release spry")
