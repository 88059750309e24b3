#include "checkpoint/pytorch.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/pickle.h"
#include "checkpoint/printable.h"
#include "checkpoint/zip_archive.h"

namespace spry {
namespace {

constexpr std::string_view kPickleName = "/data.pkl";
constexpr char kPickleProtocol = '\x80';  // how every binary pickle starts
constexpr uint64_t kMaxPickleBytes = 64 << 20;

class PytorchReader {
 public:
  PytorchReader(std::shared_ptr<const MappedFile> file, std::vector<ZipEntry> entries)
      : file_(std::move(file)), path_(file_->path().string()), entries_(std::move(entries)) {}

  Result<std::vector<FileTensor>> Read() {
    SPRY_ASSIGN_OR_RETURN(const ZipEntry pickle, FindPickle());
    SPRY_RETURN_IF_ERROR(CheckByteOrder());
    SPRY_ASSIGN_OR_RETURN(
        const std::vector<PickledTensor> pickled,
        ReadTensorPickle({.file = path_, .offset = pickle.offset, .text = TextOf(pickle)}));
    std::vector<FileTensor> tensors;
    tensors.reserve(pickled.size());
    for (const PickledTensor& tensor : pickled) {
      SPRY_ASSIGN_OR_RETURN(FileTensor placed, Place(tensor));
      tensors.push_back(std::move(placed));
    }
    return tensors;
  }

 private:
  std::string_view TextOf(const ZipEntry& entry) const {
    return {reinterpret_cast<const char*>(file_->bytes().data()) + entry.offset,
            static_cast<size_t>(entry.bytes)};
  }

  const ZipEntry* Find(std::string_view name) const {
    const auto found = std::ranges::lower_bound(entries_, name, {}, &ZipEntry::name);
    return found != entries_.end() && found->name == name ? &*found : nullptr;
  }

  // All entries lie in one folder, whose name may be any.
  Result<ZipEntry> FindPickle() {
    const ZipEntry* found = nullptr;
    for (const ZipEntry& entry : entries_) {
      if (!entry.name.ends_with(kPickleName)) continue;
      if (entry.name.find('/') + kPickleName.size() != entry.name.size()) continue;
      if (found != nullptr) {
        return InvalidArgument(fmt::format("{}: zip entries {} and {}, expected one data.pkl",
                                           path_, Printable(found->name), Printable(entry.name)));
      }
      found = &entry;
    }
    if (found == nullptr) {
      return InvalidArgument(
          fmt::format("{}: the zip file has no data.pkl; torch.save did not write it", path_));
    }
    if (found->bytes > kMaxPickleBytes) {
      return InvalidArgument(fmt::format("{}: zip entry {} has {} bytes, supported: at most {}",
                                         path_, Printable(found->name), found->bytes,
                                         kMaxPickleBytes));
    }
    folder_ = found->name.substr(0, found->name.size() - kPickleName.size() + 1);
    return *found;
  }

  // Files of older versions have no such entry: those were little-endian in practice.
  Status CheckByteOrder() const {
    const ZipEntry* order = Find(folder_ + "byteorder");
    if (order == nullptr || TextOf(*order) == "little") return {};
    return Unimplemented(fmt::format("{}: byte {}: byteorder is {}, supported: little", path_,
                                     order->offset, Printable(TextOf(*order))));
  }

  Status Wrong(const PickledTensor& tensor, std::string_view problem) const {
    return InvalidArgument(fmt::format("{}: tensor {} {}", path_, Printable(tensor.name), problem));
  }

  Result<FileTensor> Place(const PickledTensor& tensor) const {
    const PickledStorage& storage = tensor.storage;
    const int64_t element_bytes = storage.type->element_bytes;
    const ZipEntry* entry = Find(fmt::format("{}data/{}", folder_, storage.key));
    if (entry == nullptr) {
      return Wrong(tensor, fmt::format("needs the zip entry data/{}, which is not there",
                                       Printable(storage.key)));
    }
    if (entry->bytes % static_cast<uint64_t>(element_bytes) != 0 ||
        static_cast<int64_t>(entry->bytes / static_cast<uint64_t>(element_bytes)) !=
            storage.elements) {
      return Wrong(tensor,
                   fmt::format("has a storage of {} elements of {}, but {} bytes at byte {}",
                               storage.elements, storage.type->name, entry->bytes, entry->offset));
    }
    const std::optional<int64_t> elements = tensor.shape.elements();
    const std::optional<int64_t> reach = Reach(tensor);
    if (!elements || !reach || tensor.offset < 0 || tensor.offset > storage.elements ||
        *reach > storage.elements - tensor.offset) {
      return Wrong(tensor, fmt::format("of shape {} from element {} on reaches past its storage of "
                                       "{} elements",
                                       tensor.shape.ToString(), tensor.offset, storage.elements));
    }
    // More would be copies of what is there.
    if (*elements > storage.elements) {
      return Wrong(tensor, fmt::format("of shape {} repeats elements of its storage of {}",
                                       tensor.shape.ToString(), storage.elements));
    }
    FileTensor placed = {
        .name = std::string(tensor.name),
        .file_type = std::string(storage.type->name),
        .dtype = storage.type->dtype,
        .shape = tensor.shape,
        .file = file_,
        .offset = entry->offset + static_cast<uint64_t>(tensor.offset * element_bytes),
        .bytes = static_cast<uint64_t>(*reach * element_bytes)};
    if (!IsRowMajor(tensor)) placed.strides = tensor.strides;
    return placed;
  }

  // How many elements of the storage lie between the first and the last of the tensor, both
  // included; nothing when they are too many to count.
  static std::optional<int64_t> Reach(const PickledTensor& tensor) {
    int64_t reach = 1;
    for (int i = 0; i < tensor.shape.rank(); ++i) {
      if (tensor.shape[i] == 0) return 0;
      int64_t part = 0;
      if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &part) ||
          __builtin_add_overflow(reach, part, &reach)) {
        return {};
      }
    }
    return reach;
  }

  static bool IsRowMajor(const PickledTensor& tensor) {
    int64_t expected = 1;
    for (int i = tensor.shape.rank() - 1; i >= 0; --i) {
      if (tensor.shape[i] == 0) return true;
      if (tensor.shape[i] > 1 && tensor.strides[i] != expected) return false;
      expected *= tensor.shape[i];
    }
    return true;
  }

  std::shared_ptr<const MappedFile> file_;
  std::string path_;
  std::vector<ZipEntry> entries_;
  std::string folder_;  // "pytorch_model/"
};

}  // namespace

Result<std::vector<FileTensor>> ReadPytorch(const std::filesystem::path& path) {
  SPRY_ASSIGN_OR_RETURN(std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  if (static_cast<char>(file->bytes()[0]) == kPickleProtocol) {
    return Unimplemented(fmt::format(
        "{}: a pickle without a zip file around it, as torch.save wrote before PyTorch 1.6; "
        "convert it: torch.save(torch.load(file, weights_only=True), file)",
        path.string()));
  }
  SPRY_ASSIGN_OR_RETURN(std::vector<ZipEntry> entries, ReadZip(*file));
  return PytorchReader(std::move(file), std::move(entries)).Read();
}

}  // namespace spry
