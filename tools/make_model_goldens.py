#!/usr/bin/env python3
"""Writes tests/golden/models: tiny random models as Hugging Face folders, with the logits that
transformers computes for them. Needs torch, transformers, safetensors; run from the root:

    python3 tools/make_model_goldens.py

Each folder has config.json, model.safetensors (f32) and golden.safetensors:
  tokens    [2, S]     two sequences: PROMPT random ids, then the greedy continuation in f32
  logits    [2, S, V]  f32 model: logits at every position
  logits16  [2, S, V]  the same weights and tokens in bf16
"""
import os
import shutil
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, OPTConfig, OPTForCausalLM

PROMPT, STEPS, VOCAB = 24, 24, 96
LLAMA = dict(vocab_size=VOCAB, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
             bos_token_id=1, eos_token_id=2, tie_word_embeddings=False)
OPT = dict(vocab_size=VOCAB, hidden_size=24, ffn_dim=40, num_hidden_layers=2,
           num_attention_heads=4, max_position_embeddings=128, word_embed_proj_dim=24, dropout=0.0)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=32)
VARIANTS = {
    "llama-gqa": (LlamaForCausalLM, LlamaConfig(**LLAMA)),
    "llama-mqa-tied": (LlamaForCausalLM, LlamaConfig(
        **{**LLAMA, "num_key_value_heads": 1, "tie_word_embeddings": True})),
    "llama-head-dim": (LlamaForCausalLM, LlamaConfig(**LLAMA, head_dim=8)),
    "llama-biases": (LlamaForCausalLM, LlamaConfig(**LLAMA, attention_bias=True, mlp_bias=True)),
    "llama-rope-llama3": (LlamaForCausalLM, LlamaConfig(**LLAMA, rope_parameters=LLAMA3)),
    "llama-rope-linear": (LlamaForCausalLM, LlamaConfig(
        **LLAMA, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0))),
    "opt": (OPTForCausalLM, OPTConfig(**OPT)),
    "opt-no-final-norm": (OPTForCausalLM, OPTConfig(**OPT, _remove_final_layer_norm=True)),
    "opt-no-bias": (OPTForCausalLM, OPTConfig(**OPT, enable_bias=False)),
    "opt-350m": (OPTForCausalLM, OPTConfig(
        **{**OPT, "hidden_size": 16, "word_embed_proj_dim": 8}, do_layer_norm_before=False)),
    "opt-projected-untied": (OPTForCausalLM, OPTConfig(
        **{**OPT, "word_embed_proj_dim": 40}, enable_bias=False, tie_word_embeddings=False)),
}


def randomise(model, seed):
    """Large enough that attention is far from uniform and every weight shows in the logits."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        p.data = 1 + 0.2 * noise if name.endswith("norm.weight") else 0.3 * noise


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests/golden/models")
    for seed, (name, (cls, config)) in enumerate(VARIANTS.items()):
        config.torch_dtype = "float32"
        model = cls(config).eval()
        randomise(model, seed)
        folder = os.path.join(root, name)
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        for extra in set(os.listdir(folder)) - {"config.json", "model.safetensors"}:
            os.remove(os.path.join(folder, extra))
        ids = torch.randint(3, VOCAB, (2, PROMPT), generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            for _ in range(STEPS):
                ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
            logits = model(ids).logits
            logits16 = model.to(torch.bfloat16)(ids).logits
        save_file({"tokens": ids.float(), "logits": logits.float(), "logits16": logits16.float()},
                  os.path.join(folder, "golden.safetensors"))
        top = logits[:, PROMPT - 1:-1].topk(2).values
        smallest_gap = (top[..., 0] - top[..., 1]).min()
        print(f"{name}: logit range {logits.max() - logits.min():.2f}, "
              f"smallest gap of the top two {smallest_gap:.4f}", file=sys.stderr)


if __name__ == "__main__":
    main()
