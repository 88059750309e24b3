#!/usr/bin/env python3
"""Writes tests/golden/smollm2.json: greedy continuations of 20 prompts by transformers (f32) on the
dequantised weights of the demo model. Needs torch, transformers, gguf; run from the root:

    python3 tools/make_smollm2_golden.py PATH/SmolLM2-135M-Instruct.Q4_1.gguf

For each prompt: its ids, 64 greedy ids, and the gap in nats between the two most likely ids at each
step, so that a test can tell a wrong engine from a coin toss.
"""
import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = [
    "The capital of France is", "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n", "The three primary colours are", "Water boils at a temperature of",
    "Dear Sir or Madam,\n\nI am writing to", "In 1969, astronauts", "The recipe needs two eggs,",
    "import numpy as np\n\n", "Der schnelle braune Fuchs", "La vie est",
    "Q: What is photosynthesis?\nA:", "The mitochondria is", "SELECT name, age FROM",
    "To be, or not to be,",
    "The stock market fell today because", "A haiku about autumn:\n", "1, 1, 2, 3, 5, 8,",
    "<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite a short poem about the sea.<|im_end|>\n<|im_start|>assistant\n",
]
STEPS = 64


def main(path):
    folder, name = os.path.split(os.path.abspath(path))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    cases = []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids
        start = ids.shape[1]
        gaps, cache, feed = [], None, ids
        with torch.no_grad():
            for _ in range(STEPS):
                out = model(feed, past_key_values=cache, use_cache=True)
                cache = out.past_key_values
                top = out.logits[0, -1].topk(2)
                gaps.append(round(float(top.values[0] - top.values[1]), 4))
                feed = top.indices[:1].view(1, 1)
                ids = torch.cat([ids, feed], 1)
        cases.append({"prompt": prompt, "prompt_ids": ids[0, :start].tolist(),
                      "ids": ids[0, start:].tolist(), "gaps": gaps})
        print(repr(tokenizer.decode(ids[0])), file=sys.stderr)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    with open(os.path.join(root, "tests/golden/smollm2.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main(sys.argv[1])
