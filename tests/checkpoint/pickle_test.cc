// The restricted pickle machine against pickles that want to run code, nest, grow or lie.
#include "checkpoint/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/heap_meter.h"

namespace spry {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using namespace std::string_literals;

constexpr uint64_t kOffset = 100;  // of the pickle in its file

std::string Error(std::string_view text) {
  const auto tensors = ReadTensorPickle({.file = "m.bin", .offset = kOffset, .text = text});
  if (tensors.ok()) return "accepted";
  EXPECT_THAT(tensors.status().message(), HasSubstr("m.bin: byte "));
  EXPECT_LT(tensors.status().message().size(), 400u);
  return tensors.status().message();
}

TEST(Pickle, AnEmptyDictionaryIsAccepted) {
  EXPECT_EQ(Error("\x80\x02}."), "accepted");
  EXPECT_EQ(Error("\x80\x02"
                  "ccollections\nOrderedDict\n)R}b."),
            "accepted");
}

TEST(Pickle, GlobalsThatAreNotTensorsAreNamed) {
  EXPECT_THAT(Error("\x80\x02"
                    "cos\nsystem\n(X\x04\0\0\0exit"s
                    "tR."),
              AllOf(HasSubstr("byte 102: pickle: global 'os.system' is not among those"),
                    HasSubstr("spry runs no code from files")));
  for (const char* global :
       {"posix\nsystem", "nt\nsystem", "builtins\neval", "__builtin__\nexec", "subprocess\nPopen",
        "torch._utils\n_rebuild_tensor_v3", "torch.storage\nUntypedStorage", "torch\nload",
        "torch.serialization\n_load", "numpy.core.multiarray\n_reconstruct", "collections\ndeque",
        "operator\nattrgetter", "torch._utils\n", "\n", "collections.OrderedDict\n__init__"}) {
    const std::string pickle = std::string("\x80\x02}c") + global + "\n)Rb.";
    EXPECT_THAT(Error(pickle), HasSubstr("byte 103: pickle: global '")) << global;
  }
}

TEST(Pickle, OpcodesThatFindOrRunCodeAreNamed) {
  const std::pair<std::string, const char*> refused[] = {
      {"(ios\nsystem\n.", "INST"},
      {"(cos\n", "GLOBAL"},
      {"\x8c\x02os\x8c\x06system\x93", "SHORT_BINUNICODE"},
      {"X\x02\0\0\0osX\x06\0\0\0system\x93."s, "STACK_GLOBAL"},
      {"(o.", "OBJ"},
      {")\x81.", "NEWOBJ"},
      {"))}\x92.", "NEWOBJ_EX"},
      {"\x82\x01.", "EXT1"},
      {"Pid\n.", "PERSID"},
      {"S'os'\n.", "STRING"},
      {"\x95\x04\0\0\0\0\0\0\0N."s, "FRAME"},
      {"N\x94.", "MEMOIZE"},
      {"N0N.", "POP"},
      {"N2.", "DUP"},
      {"\xff.", "0xff"}};
  for (const auto& [pickle, name] : refused) {
    EXPECT_THAT(Error("\x80\x02" + pickle), HasSubstr(name));
  }
}

TEST(Pickle, OnlyKnownGlobalsAreReduced) {
  EXPECT_THAT(Error("}NR."), HasSubstr("REDUCE of a dict with None"));
  EXPECT_THAT(Error("ctorch\nFloatStorage\n)R."), HasSubstr("REDUCE of a storage type"));
  EXPECT_THAT(Error("ccollections\nOrderedDict\n(NtR."), HasSubstr("OrderedDict with arguments"));
  EXPECT_THAT(Error("ctorch._utils\n_rebuild_tensor_v2\n)R."), HasSubstr("needs a storage"));
  EXPECT_THAT(Error("ctorch._utils\n_rebuild_parameter\n(NNNtR."), HasSubstr("needs a tensor"));
  EXPECT_THAT(Error("NQ."), HasSubstr("a persistent id is None, expected a tuple"));
  EXPECT_THAT(Error(")Q."), HasSubstr("a persistent id that is no storage"));
  EXPECT_THAT(Error("N}b."), HasSubstr("what BUILD changes is None, expected a dict"));
  EXPECT_THAT(Error("}Nb."), HasSubstr("the state of BUILD is None, expected a dict"));
}

TEST(Pickle, TheStackIsNeverReadBelowItsMarks) {
  for (const char* pickle :
       {"t.",       "\x85.",   "N\x86.",   "NN\x87.", "a.", "e.",      "s.",      "u.",   "R.",
        "b.",       "Q.",      "q.",       ".",       "(.", "}(\x85.", "}(NN(u.", "N(e.", "(}NNu.",
        "}NN(NNu.", "}(NNNu.", "(((tttt.", "NN.",     "N.", "].",      ")."}) {
    EXPECT_NE(Error(pickle), "accepted") << pickle;
  }
}

TEST(Pickle, EveryCutIsRefused) {
  const std::string whole =
      "\x80\x02}q\0X\1\0\0\0wq\1ctorch._utils\n_rebuild_tensor_v2\nq\2((X\7\0\0\0storagectorch\n"
      "HalfStorage\nX\1\0\0\0000X\3\0\0\0cpuJ\4\0\0\0tQK\0M\2\0K\2\x86K\2\x8a\1\1\x86\x89"
      "ccollections\nOrderedDict\n)RtRs."s;
  ASSERT_EQ(Error(whole), "accepted");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(Error(whole.substr(0, size)),
                AnyOf(HasSubstr("the text ends inside "), HasSubstr("BINUNICODE claims ")))
        << size;
  }
  EXPECT_THAT(Error(whole + "N"), HasSubstr("1 bytes are left over after STOP"));
}

TEST(Pickle, NumbersThatLieAreRefused) {
  EXPECT_THAT(Error("X\xff\xff\xff\xff!"), HasSubstr("BINUNICODE claims 4294967295 bytes"));
  EXPECT_THAT(Error("\x8a\xff!"), HasSubstr("LONG1 of 255 bytes, supported: at most 8"));
  EXPECT_THAT(Error("Nr\xff\xff\xff\xff."), HasSubstr("memo 4294967295 follows 0"));
  EXPECT_THAT(Error("j\xff\xff\xff\xff."), HasSubstr("memo 4294967295 of 0"));
  EXPECT_THAT(Error("\x80\x05N."), HasSubstr("protocol 5, supported: 2 and 3"));
}

TEST(Pickle, EntriesMustBeNamedTensors) {
  EXPECT_THAT(Error("}X\5\0\0\0epochK\3s."s),
              HasSubstr("entry 'epoch' is a number, expected names with tensors"));
  EXPECT_THAT(Error("}K\1Ns."), HasSubstr("expected names with tensors"));
}

// Nothing recurses and nothing is copied, so that these cost what their text costs.
TEST(Pickle, NestingAndSharingCostLittle) {
  constexpr int64_t kMaxBytes = 96 << 20;
  const std::string deep_marks(3 << 20, '(');
  const std::string deep_tuples = "N" + std::string(3 << 20, '\x85');
  const std::string lists(3 << 20, ']');
  std::string doubling = "N";  // a tuple of 2^20000 leaves
  for (int i = 0; i < 20000; ++i) {
    doubling += "r";
    doubling.append(reinterpret_cast<const char*>(&i), sizeof(i));
    doubling += "j";
    doubling.append(reinterpret_cast<const char*>(&i), sizeof(i));
    doubling += "\x86";
  }
  ResetHeapMeter();
  EXPECT_THAT(Error(deep_marks), HasSubstr("more than 1048576 operations"));
  EXPECT_THAT(Error(deep_tuples), HasSubstr("more than 1048576 operations"));
  EXPECT_THAT(Error(lists), HasSubstr("more than 1048576 operations"));
  EXPECT_THAT(Error(doubling + "."), HasSubstr("is not one dictionary"));
  EXPECT_LT(HeapPeakBytes(), kMaxBytes);
}

}  // namespace
}  // namespace spry
