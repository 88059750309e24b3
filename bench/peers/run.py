#!/usr/bin/env python3
"""spry and its peers on the same work, and a table of it.

In every round each engine of a row is started, measured and ended, in turn, so that all of them
meet the same moods of the machine; the median over rounds counts. Leave the machine alone
meanwhile. A round of one row takes from half a minute to a few, all of it about half an hour."""

import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from arguments import SPRY, Arguments  # noqa: E402
from engines import Library, LlamaCpp, Spry, peak_mib
from workloads import WORKLOADS, prompt

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rows(peers, spry_program):
    """name: (workload, spry, its peers), each engine not started yet."""
    models = peers / "models"

    def spry(kind, model, *flags):
        return Spry(f"spry {kind}", spry_program, model, *flags)

    def llama(model, slots=1):
        return LlamaCpp(
            f"llama.cpp {model}",
            peers / "lcpp-build/bin/llama-server",
            models / f"{model}.gguf",
            slots,
        )

    def openvino(model, *precision):
        return Library(
            " ".join([f"OpenVINO {model}", *precision]),
            peers / "venv/ov/bin/python",
            "openvino",
            models / f"ov-{model}",
            *precision,
        )

    def onnx(model):
        return Library(
            f"ONNX Runtime GenAI {model}",
            peers / "venv/oga/bin/python",
            "onnx",
            models / f"oga-{model}",
        )

    bf16 = ("--dtype", "bfloat16")
    opt = ROOT / "bench/models/opt-125m"
    smol = ("Q4_1", models / "smol-Q4_1.gguf")
    smol_bf16 = ("bf16", models / "smol-hf-bf16", *bf16)
    opt_bf16 = ("opt bf16", opt, "--load-format", "dummy", *bf16)
    opt_q8 = ("opt q8_0", opt, "--load-format", "dummy", *bf16, "--quantization", "q8_0")
    quantised = [openvino("smol-int8"), openvino("smol-int4"), llama("smol-Q4_0")]
    return {
        "W1": ("W1", spry(*smol), quantised),
        "W1 opt": ("W1", spry(*opt_bf16), [openvino("opt-fp32", "bf16"), llama("gpt2opt-bf16")]),
        "W2": ("W2", spry(*smol), [onnx("smol-int4"), llama("smol-Q4_0"), llama("smol-Q4_1")]),
        "W2 bf16": ("W2", spry(*smol_bf16), [llama("smol-BF16")]),
        "W2 opt": ("W2", spry(*opt_bf16), [llama("gpt2opt-bf16")]),
        "W3": (
            "W3",
            spry(*smol),
            [openvino("smol-int4"), openvino("smol-int8"), llama("smol-Q4_0", 8)],
        ),
        "W3 opt": ("W3", spry(*opt_bf16), [openvino("opt-fp32", "bf16"), llama("gpt2opt-bf16", 8)]),
        "W3 opt q8_0": ("W3", spry(*opt_q8), [openvino("opt-int8")]),
        "W4": (
            "W4",
            spry(*smol),
            [openvino("smol-int4"), openvino("smol-int8"), llama("smol-Q4_0", 64)],
        ),
        "W4 opt": ("W4", spry(*opt_bf16), [openvino("opt-fp32", "bf16")]),
        "W4 opt q8_0": ("W4", spry(*opt_q8), [openvino("opt-int8")]),
        "W5": ("W5", spry(*smol), [llama("smol-Q4_0"), llama("smol-Q4_1")]),
    }


def start_to_first_token(engine):
    """Seconds from the process's start to one token of 16 in hand, and peak MiB until then."""
    begin = time.perf_counter()
    engine.start()
    engine.generate([prompt(16, 5)], [1])
    seconds, mib = time.perf_counter() - begin, peak_mib(engine.process.pid)
    engine.stop()
    return seconds, mib


def measure(workload, engine, repeats):
    if workload == "W5":
        return start_to_first_token(engine)[0]
    engine.start()
    try:
        return WORKLOADS[workload][0](engine, repeats)
    finally:
        engine.stop()


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown"


def run_row(name, workload, engines, options):
    unit, more = WORKLOADS[workload][1:] if workload in WORKLOADS else ("s", False)
    figures = {engine.name: [] for engine in engines}
    for _ in range(options.rounds):
        for engine in engines:
            figures[engine.name].append(measure(workload, engine, options.repeats))
    medians = {engine: statistics.median(values) for engine, values in figures.items()}
    own, *others = medians.values()
    best = max(others) if more else min(others)
    ratio = own / best if more else best / own
    for engine, value in medians.items():
        shown = f"{ratio:.2f}" if engine == engines[0].name else ""
        print(f"| {name} | {engine} | {value:.4g} {unit} | {shown} |", flush=True)
    if workload == "W5":
        for engine in engines:
            peak = start_to_first_token(engine)[1]
            print(f"| {name} | {engine.name} | {peak:.0f} MiB at most | |", flush=True)
    return {"row": name, "unit": unit, "ratio": ratio, "figures": figures}


def main():
    parser = Arguments(__doc__)
    add = parser.add_argument
    add("--peers", type=pathlib.Path, required=True, help="the folder that install.sh filled")
    add("--spry", default=str(SPRY), help="the program [build/release/spry]")
    add("--rows", default="", help="names of rows by commas [all]; a wrong one lists them")
    add("--rounds", type=int, default=3, help="[3]")
    add("--repeats", type=int, default=5, help="of the work in a round, after one to warm up [5]")
    add("--json", type=pathlib.Path, help="write the figures of every round there")
    options = parser.parse_args()
    parser.need_spry(options.spry)
    parser.need(options.peers, "bench/peers/install.sh makes it")
    table = rows(options.peers.resolve(), options.spry)
    names = options.rows.split(",") if options.rows else list(table)
    unknown = [name for name in names if name not in table]
    if unknown:
        sys.exit(f"no row {unknown[0]!r}; there are {', '.join(table)}")
    print(f"{cpu_name()}, {os.cpu_count()} cores, {time.strftime('%F')}\n")
    print("| row | engine | median | spry against the best peer |\n|---|---|---|---|")
    results = [
        run_row(name, table[name][0], [table[name][1], *table[name][2]], options) for name in names
    ]
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
