#!/usr/bin/env python3
"""The models for run.py that are not on any index: SmolLM2 of the GGUF file dequantised to Hugging
Face folders (bf16, f32), and random weights in the shape of opt-125m, as a Hugging Face folder and
as a GGUF of the gpt2 architecture, the nearest that llama.cpp has. Takes some minutes."""

import argparse
import os
import shutil


def save(model, tokenizer, folder):
    import torch

    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        model.to(dtype).save_pretrained(f"{folder}-hf-{name}")
        tokenizer.save_pretrained(f"{folder}-hf-{name}")


def smollm2(path, folder):
    """As a plain Llama: some converters refuse what the GGUF reader leaves in the config."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    where, name = os.path.split(os.path.abspath(path))
    tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=name)
    read = AutoModelForCausalLM.from_pretrained(where, gguf_file=name, dtype=torch.float32)
    kept = (
        "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
        "num_key_value_heads head_dim rms_norm_eps max_position_embeddings bos_token_id "
        "eos_token_id"
    ).split()
    config = LlamaConfig(
        **{key: getattr(read.config, key) for key in kept},
        rope_theta=100000.0,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
        pad_token_id=2,
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(read.state_dict(), strict=False)
    model.tie_weights()
    save(model, tokenizer, f"{folder}/smol")
    return tokenizer


def opt(tokenizer, folder):
    import torch
    from transformers import OPTConfig, OPTForCausalLM

    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=50272,
        hidden_size=768,
        word_embed_proj_dim=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        ffn_dim=3072,
        max_position_embeddings=2048,
        do_layer_norm_before=True,
        activation_function="relu",
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    tokenizer.add_tokens([f"[PAD{i}]" for i in range(len(tokenizer), config.vocab_size)])
    model = OPTForCausalLM(config)
    model.tie_weights()
    save(model, tokenizer, f"{folder}/opt")


def gpt2(path, folder):
    import gguf
    import numpy as np

    reader = gguf.GGUFReader(path)
    vocab, width, layers, inner, positions = 50272, 768, 12, 3072, 2048
    tokens, types, merges = (
        list(reader.fields[f"tokenizer.ggml.{key}"].contents())
        for key in ("tokens", "token_type", "merges")
    )
    padding = range(len(tokens), vocab)
    writer = gguf.GGUFWriter(f"{folder}/gpt2opt-bf16.gguf", "gpt2")
    writer.add_block_count(layers)
    writer.add_context_length(positions)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(12)
    writer.add_layer_norm_eps(1e-5)
    writer.add_file_type(32)  # bf16
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(reader.fields["tokenizer.ggml.pre"].contents())
    writer.add_token_list(tokens + [f"[PAD{i}]" for i in padding])
    writer.add_token_types(types + [gguf.TokenType.UNUSED for _ in padding])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    draw = np.random.default_rng(0)
    bf16 = gguf.GGMLQuantizationType.BF16

    def matrix(name, *shape):
        writer.add_tensor(
            name,
            gguf.quantize(draw.standard_normal(shape, dtype=np.float32) * 0.02, bf16),
            raw_dtype=bf16,
        )

    def vector(name, size, value=0.0):
        writer.add_tensor(name, np.full(size, value, dtype=np.float32))

    matrix("token_embd.weight", vocab, width)
    writer.add_tensor(
        "position_embd.weight", draw.standard_normal((positions, width), dtype=np.float32) * 0.02
    )
    for layer in range(layers):
        for norm in ("attn_norm", "ffn_norm"):
            vector(f"blk.{layer}.{norm}.weight", width, 1.0)
            vector(f"blk.{layer}.{norm}.bias", width)
        for name, rows, columns in (
            ("attn_qkv", 3 * width, width),
            ("attn_output", width, width),
            ("ffn_up", inner, width),
            ("ffn_down", width, inner),
        ):
            matrix(f"blk.{layer}.{name}.weight", rows, columns)
            vector(f"blk.{layer}.{name}.bias", rows)
    vector("output_norm.weight", width, 1.0)
    vector("output_norm.bias", width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", help="SmolLM2 in Q4_1")
    parser.add_argument("folder", help="where the models go")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    shutil.copyfile(args.gguf, f"{args.folder}/smol-Q4_1.gguf")
    gpt2(args.gguf, args.folder)
    opt(smollm2(args.gguf, args.folder), args.folder)


if __name__ == "__main__":
    main()
