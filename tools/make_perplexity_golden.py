#!/usr/bin/env python3
"""Writes tests/golden/perplexity.json: the perplexity of tests/golden/perplexity.txt by transformers
(f32) on the dequantised weights of the demo model, with the windows of src/app/perplexity.h. Needs
torch, transformers, gguf; run from the root:

    python3 tools/make_perplexity_golden.py PATH/SmolLM2-135M-Instruct.Q4_1.gguf
"""
import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

WINDOW = 128


def main(path):
    folder, name = os.path.split(os.path.abspath(path))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests/golden")
    with open(os.path.join(root, "perplexity.txt")) as f:
        ids = tokenizer(f.read(), return_tensors="pt", add_special_tokens=False).input_ids[0]
    windows = len(ids) // WINDOW
    scores = []
    with torch.no_grad():
        for window in ids[: windows * WINDOW].view(windows, WINDOW):
            logprobs = model(window[None]).logits[0].double().log_softmax(-1)
            for i in range(WINDOW // 2 + 1, WINDOW):
                scores.append(-logprobs[i - 1, window[i]].item())
    scores = torch.tensor(scores, dtype=torch.float64)
    nll = scores.mean().item()
    value = torch.tensor(nll, dtype=torch.float64).exp().item()
    variance = (scores.square().mean() - nll * nll).item()
    golden = {"window": WINDOW, "tokens": len(ids), "windows": windows,
              "scored_tokens": len(scores), "nll": nll, "perplexity": value,
              "error": value * (variance / (len(scores) - 1)) ** 0.5}
    with open(os.path.join(root, "perplexity.json"), "w") as f:
        f.write(json.dumps(golden) + "\n")
    print(golden)


if __name__ == "__main__":
    main(sys.argv[1])
