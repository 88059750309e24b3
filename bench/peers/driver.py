"""One library as a child of engines.py. Takes lines of JSON, [prompts, tokens of each], and answers
"MADE N" when all are generated; "MADE 0" says that the model is loaded."""

import argparse
import json
import os
import sys


def openvino(model, threads, precision=""):
    import numpy
    import openvino as ov
    import openvino_genai as genai

    properties = {"INFERENCE_NUM_THREADS": threads}
    if precision:
        properties["INFERENCE_PRECISION_HINT"] = precision
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 2
    scheduler.max_num_seqs = 256
    scheduler.max_num_batched_tokens = 2048
    scheduler.enable_prefix_caching = False
    pipeline = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)

    def config(tokens):
        made = genai.GenerationConfig()
        made.max_new_tokens = made.min_new_tokens = tokens
        made.ignore_eos, made.do_sample = True, False
        return made

    def generate(prompts, outs):
        tensors = [ov.Tensor(numpy.array([ids], dtype=numpy.int64)) for ids in prompts]
        results = pipeline.generate(tensors, [config(n) for n in outs])
        return sum(len(result.m_generation_ids[0]) for result in results)

    return generate


def onnx(model, threads):
    import numpy
    import onnxruntime_genai as genai

    path = os.path.join(model, "genai_config.json")
    with open(path) as file:
        config = json.load(file)
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = threads
    # It cannot ignore an end of sequence.
    config["model"]["eos_token_id"] = [config["model"]["vocab_size"] - 1]
    with open(path, "w") as file:
        json.dump(config, file, indent=1)
    loaded = genai.Model(model)

    def generate(prompts, outs):
        parameters = genai.GeneratorParams(loaded)
        length = len(prompts[0]) + outs[0]
        parameters.set_search_options(
            max_length=length, min_length=length, do_sample=False, batch_size=len(prompts)
        )
        generator = genai.Generator(loaded, parameters)
        generator.append_tokens(numpy.array(prompts, dtype=numpy.int32))
        made = 0
        while made < outs[0] and not generator.is_done():
            generator.generate_next_token()
            made += 1
        return made * len(prompts)

    return generate


def vllm(model, threads):
    os.environ.update(
        VLLM_CPU_KVCACHE_SPACE="2",
        VLLM_CPU_OMP_THREADS_BIND=f"0-{threads - 1}",
        HF_HUB_OFFLINE="1",
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_LOGGING_LEVEL="ERROR",
        VLLM_NO_USAGE_STATS="1",
    )
    from vllm import LLM, SamplingParams

    llm = LLM(model=model, dtype="bfloat16", enable_prefix_caching=False, max_model_len=2048)

    def generate(prompts, outs):
        asked = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in outs]
        results = llm.generate(
            [{"prompt_token_ids": ids} for ids in prompts], asked, use_tqdm=False
        )
        return sum(len(result.outputs[0].token_ids) for result in results)

    return generate


def main():
    libraries = {"openvino": openvino, "onnx": onnx, "vllm": vllm}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=libraries)
    parser.add_argument("model", help="as that library reads it")
    parser.add_argument("threads", type=int)
    parser.add_argument("option", nargs="*", help="openvino: the precision")
    args = parser.parse_args()
    generate = libraries[args.kind](args.model, args.threads, *args.option)
    print("MADE 0", flush=True)
    for line in sys.stdin:
        prompts, outs = json.loads(line)
        print("MADE", generate(prompts, outs), flush=True)
    os._exit(0)  # some libraries hang when they end


if __name__ == "__main__":
    main()
