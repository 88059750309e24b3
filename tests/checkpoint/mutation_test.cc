// Spoilt files of every format are opened, listed and read to the end: each either works or gives
// an error that names a file; nothing crashes (the asan build looks closer) and no count in a file
// makes anybody allocate much. SPRY_MUTATION_CASES is 1,000, and 10,000 in the slow program.
#include <gtest/gtest.h>

#include "checkpoint/hf_config.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/heap_meter.h"
#include "tests/checkpoint/mutations.h"

namespace spry {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxHeldBytes = 64 << 20;

struct Format {
  std::string name;       // of the test
  std::string model;      // a golden: a folder, or a file
  std::string file;       // the file in it that is spoilt
  std::string open = "";  // the file in it to open; empty: the whole folder
};

void PrintTo(const Format& format, std::ostream* out) { *out << format.name; }

class Mutation : public ::testing::TestWithParam<Format> {};

// One line that names a file under `folder`.
void ExpectGoodMessage(const Status& status, const fs::path& folder) {
  EXPECT_NE(status.message().find(folder.string()), std::string::npos) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  EXPECT_LT(status.message().size(), 1000u) << status.message();
}

// Opens and reads everything; true when nothing was wrong.
bool ReadAll(const fs::path& model, const fs::path& folder) {
  const Result<Checkpoint> opened = OpenCheckpoint(model, {});
  if (!opened.ok()) {
    ExpectGoodMessage(opened.status(), folder);
    return false;
  }
  bool all_read = true;
  uint64_t sum = 0;
  for (const WeightHandle& listed : opened->weights->List()) {
    const Result<WeightHandle> weight = opened->weights->Get(listed.name, listed.shape);
    const Result<HostTensor> tensor = weight.ok() ? weight->read() : weight.status();
    if (!tensor.ok()) {
      ExpectGoodMessage(tensor.status(), folder);
      all_read = false;
      continue;
    }
    EXPECT_EQ(static_cast<int64_t>(tensor->data.size()),
              RowBytes(tensor->dtype, *tensor->shape.elements()));
    for (const std::byte b : tensor->data) sum += static_cast<uint64_t>(b);
  }
  EXPECT_GE(sum, 0u);
  return all_read;
}

TEST_P(Mutation, EitherWorksOrNamesTheFile) {
  const Format& format = GetParam();
  const TemporaryFolder folder;
  const fs::path copy = folder.path() / fs::path(format.model).filename();
  fs::copy(Golden(format.model), copy, fs::copy_options::recursive);
  const fs::path spoilt = fs::is_directory(copy) ? copy / format.file : copy;
  const fs::path model = format.open.empty() ? copy : copy / format.open;
  const std::string original = ReadBytes(spoilt);
  ASSERT_TRUE(ReadAll(model, folder.path()));
  int refused = 0;
  for (uint64_t seed = 0; seed < SPRY_MUTATION_CASES; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::string bytes = Mutate(original, seed);
    folder.Write(fs::relative(spoilt, folder.path()).string(), bytes);
    ResetHeapMeter();
    refused += ReadAll(model, folder.path()) ? 0 : 1;
    ASSERT_LT(HeapPeakBytes(), kMaxHeldBytes);
    if (HasFailure()) return;
  }
  // Damage in numbers and text that stays plausible is not an error; most damage is.
  EXPECT_GT(refused, SPRY_MUTATION_CASES / 4);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Mutation,
    ::testing::Values(Format{"safetensors", "tiny-opt", "model.safetensors"},
                      Format{"pytorch", "tiny-opt-bin", "pytorch_model.bin"},
                      Format{"pytorch_shard", "tiny-llama-bin", "pytorch_model-00002-of-00002.bin"},
                      Format{"pytorch_index", "tiny-llama-bin", "pytorch_model.bin.index.json"},
                      Format{"gguf", "types.gguf", ""},
                      Format{"gguf_blocks", "block-types.gguf", ""},
                      Format{"gguf_split_first", "split", "types-00001-of-00003.gguf",
                             "types-00003-of-00003.gguf"},
                      Format{"gguf_split_second", "split", "types-00002-of-00003.gguf",
                             "types-00001-of-00003.gguf"},
                      Format{"config", "tiny-llama", "config.json"},
                      Format{"generation_config", "tiny-llama", "generation_config.json"},
                      Format{"index", "tiny-llama", "model.safetensors.index.json"}),
    [](const ::testing::TestParamInfo<Format>& format) { return format.param.name; });

}  // namespace
}  // namespace spry
