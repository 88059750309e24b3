"""Writes tests/golden/checkpoint with the reference libraries: safetensors, torch, gguf and
transformers.

Needs: pip install torch transformers safetensors gguf. Beside each checkpoint lies a .f32 file: the
values that the reference library reads from it, as raw little-endian floats, one tensor after
another, ordered by tensor name (GGUF: in the order of the file).
"""

import json
import pathlib
import shutil

import gguf
import numpy as np
import safetensors.torch
import torch
import transformers

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "checkpoint"
SERVED = (torch.float32, torch.float16, torch.bfloat16)


def write_values(path, tensors):
    with open(path, "wb") as out:
        for name in sorted(tensors):
            out.write(tensors[name].detach().to(torch.float32).contiguous().numpy().tobytes())


def safetensors_types():
    """One tensor of each type that is served, of two that are not, and the odd shapes."""
    torch.manual_seed(1)
    tensors = {
        "plain.f32": torch.randn(3, 5),
        "plain.f16": torch.randn(4, 4).to(torch.float16),
        "plain.bf16": torch.randn(2, 3, 4).to(torch.bfloat16),
        "scalar": torch.tensor(0.5),
        "nothing": torch.zeros(0, 4),
        "fp8": torch.randn(8, 8).to(torch.float8_e4m3fn),
        "whole": torch.arange(4, dtype=torch.int64),
    }
    path = FOLDER / "types.safetensors"
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    served = {k: v for k, v in safetensors.torch.load_file(path).items() if v.dtype in SERVED}
    write_values(FOLDER / "types-safetensors.f32", served)


def transformers_model(name, model, eos, dtype, **saving):
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    model.generation_config.eos_token_id = eos
    model.to(dtype).save_pretrained(folder, **saving)
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(safetensors.torch.load_file(path))
    write_values(FOLDER / f"{name}.f32", tensors)


def transformers_models():
    torch.manual_seed(2)
    llama = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=256,
        rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 64}))
    llama.generation_config.do_sample = True
    llama.generation_config.temperature = 0.6
    llama.generation_config.top_p = 0.9
    transformers_model("tiny-llama", llama, [2, 7], torch.bfloat16, max_shard_size="6KB")
    opt = transformers.OPTForCausalLM(transformers.OPTConfig(
        vocab_size=32, hidden_size=16, ffn_dim=32, num_hidden_layers=1, num_attention_heads=4,
        max_position_embeddings=16, word_embed_proj_dim=16))
    transformers_model("tiny-opt", opt, 2, torch.float16)


def pytorch_types():
    """Each storage type that is served and two that are not; strides, offsets, shared storages."""
    torch.manual_seed(6)
    base = torch.randn(6, 5)
    cube = torch.randn(2, 3, 4).to(torch.bfloat16)
    tensors = {
        "whole": base,
        "tied": base,
        "transposed": base.t(),
        "columns": base[1:5, 1:4],
        "every.other": base.flatten()[3::2],
        "rows": base[2:4],
        "half": torch.randn(4, 4).to(torch.float16),
        "turned": cube.permute(2, 0, 1),
        "parameter": torch.nn.Parameter(cube),
        "scalar": torch.tensor(0.5),
        "nothing": torch.zeros(0, 4),
        "count": torch.arange(4, dtype=torch.int64),
        "mask": torch.ones(2, 2, dtype=torch.bool).tril(),
    }
    torch.save(tensors, FOLDER / "types.bin")
    torch.save({"whole": base}, FOLDER / "old.bin", _use_new_zipfile_serialization=False)
    read = torch.load(FOLDER / "types.bin", weights_only=True)
    write_values(FOLDER / "types-bin.f32", {k: v for k, v in read.items() if v.dtype in SERVED})


def pytorch_models():
    """The goldens of transformers again, as folders of older versions: state_dict() in one file,
    and parameters in two by an index."""
    for name in ("tiny-llama", "tiny-opt"):
        folder = FOLDER / f"{name}-bin"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copy(FOLDER / name / "config.json", folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER / name, dtype="auto")
        if name == "tiny-opt":
            torch.save(model.state_dict(), folder / "pytorch_model.bin")
            continue
        state = dict(model.named_parameters())
        names = sorted(state)
        shards = {f"pytorch_model-0000{i + 1}-of-00002.bin": names[i::2] for i in range(2)}
        for file, part in shards.items():
            torch.save({n: state[n] for n in part}, folder / file)
        weight_map = {n: file for file, part in shards.items() for n in part}
        index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=1))


# Tensors of types.gguf: GGUF name, rows, columns (0: a vector), type.
GGUF_TENSORS = [
    ("token_embd.weight", 24, 64, "Q8_0"),
    ("output_norm.weight", 64, 0, "F32"),
    ("rope_freqs.weight", 8, 0, "F32"),
    ("blk.0.attn_norm.weight", 64, 0, "F32"),
    ("blk.0.attn_q.weight", 64, 64, "Q4_0"),
    ("blk.0.attn_k.weight", 32, 64, "Q4_1"),
    ("blk.0.attn_v.weight", 32, 64, "BF16"),
    ("blk.0.attn_output.weight", 64, 64, "F16"),
    ("blk.0.ffn_norm.weight", 64, 0, "F32"),
    ("blk.0.ffn_gate.weight", 32, 64, "Q8_0"),
    ("blk.0.ffn_up.weight", 32, 64, "Q4_1"),
    ("blk.0.ffn_down.weight", 64, 32, "Q4_0"),
]


def gguf_metadata(writer):
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(16)
    writer.add_rope_freq_base(50000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>", "a", "b", "c", "\u0120",
              "ab", "\u0120a", "\u0120ab", "abc"] + [chr(ord("d") + i) for i in range(12)]
    types = [3, 3, 3, 4] + [1] * (len(tokens) - 4)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["a b", "\u0120 a", "\u0120a b", "ab c"])
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(0)
    writer.add_chat_template("{{ messages[0].content }}")
    writer.add_array("test.nested", [[1, 2], [3]])


def write_gguf(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_gguf_values(path, values_path):
    with open(values_path, "wb") as out:
        for tensor in gguf.GGUFReader(path).tensors:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
            out.write(np.ascontiguousarray(values, dtype=np.float32).tobytes())


def gguf_types(path, **splitting):
    rng = np.random.default_rng(3)
    writer = gguf.GGUFWriter(path, "llama", **splitting)
    gguf_metadata(writer)
    for name, rows, columns, kind in GGUF_TENSORS:
        values = rng.standard_normal((rows, columns) if columns else rows).astype(np.float32)
        values.flat[:32] = 0.0  # a block without a scale
        quantization = gguf.GGMLQuantizationType[kind]
        if kind == "F32":
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quantize(values, quantization), raw_dtype=quantization)
    write_gguf(writer)


# Blocks of each type: bytes of a block, where its f16 scales are, rows of 256 elements.
BLOCK_TYPES = {
    "Q4_0": (18, [0], 2), "Q4_1": (20, [0, 2], 2), "Q8_0": (34, [0], 2), "Q5_0": (22, [0], 2),
    "Q5_1": (24, [0, 2], 2), "IQ4_NL": (18, [0], 2), "Q2_K": (84, [80, 82], 6),
    "Q3_K": (110, [108], 6), "Q4_K": (144, [0, 2], 6), "Q5_K": (176, [0, 2], 6),
    "Q6_K": (210, [208], 6), "IQ4_XS": (136, [0], 6),
}
# Zeros of both signs, subnormals, the largest, and what models have.
SCALES = [0.0, -0.0, 2.0**-24, -(2.0**-15), 65504.0, -65504.0, 0.01, -0.0003, 1.0, 0.02]


def gguf_blocks():
    """Random blocks of every block type: all codes and sub-scales, extreme scales."""
    rng = np.random.default_rng(4)
    path = FOLDER / "block-types.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    gguf_metadata(writer)
    tensors = {"token_embd.weight": ("Q4_0", BLOCK_TYPES["Q4_0"])}
    tensors |= {kind.lower(): (kind, facts) for kind, facts in BLOCK_TYPES.items()}
    for name, (kind, (block_bytes, places, rows)) in tensors.items():
        blocks_per_row = 1 if kind.endswith("_K") or kind == "IQ4_XS" else 8
        if name == "token_embd.weight":
            rows, blocks_per_row = 24, 2  # the embedding that the metadata speaks of
        blocks = rng.integers(0, 256, (rows * blocks_per_row, block_bytes), dtype=np.uint8)
        for column, place in enumerate(places):
            scales = np.array([SCALES[(7 * column + i) % len(SCALES)] for i in range(len(blocks))])
            blocks[:, place:place + 2] = scales.astype(np.float16).view(np.uint8).reshape(-1, 2)
        data = blocks.reshape(rows, -1)
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    write_gguf(writer)
    write_gguf_values(path, FOLDER / "block-types-gguf.f32")


def quantized_rows():
    """Rows of 32 and what gguf rounds them to: every size, ties of magnitude, halves, zeros."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((72, 32)).astype(np.float32)
    rows[:48] *= (10.0 ** rng.uniform(-7, 5, (48, 1))).astype(np.float32)
    rows[48] = 0.0
    rows[49, 1:] = 0.0
    rows[50:54] = rng.choice([-3.0, 3.0], (4, 32))  # the first of the largest decides
    rows[54:64] = rng.integers(-254, 255, (10, 32)) / 2.0  # halves of Q8_0's step
    rows[54:64, 7] = 127.0
    rows[64:70] = rng.integers(-16, 17, (6, 32)) / 2.0  # halves of Q4_0's step
    rows[64:70, 9] = -8.0
    rows[70:] = np.abs(rows[70:])
    rows.tofile(FOLDER / "rows.f32")
    for kind in ("Q4_0", "Q8_0"):
        gguf.quantize(rows, gguf.GGMLQuantizationType[kind]).tofile(FOLDER / f"rows.{kind.lower()}")


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    safetensors_types()
    transformers_models()
    pytorch_types()
    pytorch_models()
    gguf_types(FOLDER / "types.gguf")
    write_gguf_values(FOLDER / "types.gguf", FOLDER / "types-gguf.f32")
    (FOLDER / "split").mkdir(exist_ok=True)
    gguf_types(FOLDER / "split" / "types.gguf", split_max_tensors=5)  # types-0000N-of-00003.gguf
    gguf_blocks()
    quantized_rows()


if __name__ == "__main__":
    main()
