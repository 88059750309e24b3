"""Goldens for vocabularies of SentencePiece's kind, made by tools/tokenizer_goldens.py: those of
the ggml-vocab files, and small ones trained here. The ids are those of the `sentencepiece` library,
or of `tokenizers` where the file is a tokenizer.json. Each gets a folder with

    tokenizer.model or tokenizer.json   unless it is to be read from source/NAME.gguf
    ids.bin                             of the texts
    decoded.bin, cases.bin ...          as for the others
"""

import random
import re
import struct

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors)

from gguf_metadata import read_metadata

MARK = "\u2581"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2
DECODED_SEQUENCES = 2_000
TRAINING_LINES = 4_000
SPECIAL = ["<s>", "</s>", "<unk>", "<pad>"]


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """A field of a protocol buffer: an int, a float, or bytes."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def model_bytes(pieces, model_type, prefix=True, remove_spaces=False, byte_fallback=True,
                chars_map=b""):
    """A tokenizer.model; pieces are (text, score, type)."""
    out = b"".join(field(1, field(1, text.encode()) + field(2, float(score)) + field(3, kind))
                   for text, score, kind in pieces)
    out += field(2, field(3, model_type) + field(35, int(byte_fallback)))
    return out + field(3, field(2, chars_map) + field(3, int(prefix)) +
                       field(4, int(remove_spaces)) + field(5, 1))


def read_gguf(path):
    metadata = read_metadata(path)

    def get(name, default=None):
        return metadata.get("tokenizer.ggml." + name, default)

    tokens = get("tokens")
    return {"pieces": list(zip(tokens, get("scores", [0.0] * len(tokens)), get("token_type"))),
            "get": get}


def sentencepiece_pieces(pieces):
    """The same with one unknown token, as SentencePiece wants it."""
    unknown = next((i for i, p in enumerate(pieces) if p[2] == UNKNOWN), 0)
    out = []
    for i, (text, score, kind) in enumerate(pieces):
        if i == unknown:
            kind = UNKNOWN
        elif kind == UNKNOWN:
            kind = CONTROL
        out.append((text, score, kind))
    return out


def merges_of(pieces):
    """The merges that give what SentencePiece's scores give, as transformers derives them."""
    ids = {text: i for i, (text, _, _) in enumerate(pieces)}
    merges = []
    for text, score, kind in pieces:
        if kind not in (NORMAL, USER_DEFINED):
            continue
        parts = [(text[:i], text[i:]) for i in range(1, len(text))]
        parts = [p for p in parts if p[0] in ids and p[1] in ids]
        merges += [(score, p) for p in sorted(parts, key=lambda p: (ids[p[0]], ids[p[1]]))]
    merges.sort(key=lambda m: (m[0], len(m[1][0]), len(m[1][1])), reverse=True)
    return [m[1] for m in merges]


def add_specials(tokenizer, pieces):
    specials = [AddedToken(text, special=True, normalized=False)
                for text, _, kind in pieces if kind in (UNKNOWN, CONTROL)]
    tokenizer.add_special_tokens(specials)
    tokenizer.add_tokens([AddedToken(text, normalized=True)
                          for text, _, kind in pieces if kind == USER_DEFINED])


def llama_tokenizer(pieces, form):
    """A Llama tokenizer.json in one of its forms."""
    tokenizer = Tokenizer(models.BPE(vocab={p[0]: i for i, p in enumerate(pieces)},
                                     merges=merges_of(pieces), unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True))
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if form == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK),
                                                     normalizers.Replace(" ", MARK)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
            prepend_scheme=form, split=form == "always")
    if form != "never":
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    add_specials(tokenizer, pieces)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    return tokenizer


def gemma_tokenizer(vocabulary):
    pieces = vocabulary["pieces"]
    merges = [tuple(m.split(" ")) for m in vocabulary["get"]("merges")]
    tokenizer = Tokenizer(models.BPE(vocab={p[0]: i for i, p in enumerate(pieces)}, merges=merges,
                                     unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", MARK)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    add_specials(tokenizer, pieces)
    return tokenizer


def unigram_tokenizer(pieces, form, chars_map=b""):
    """A Unigram tokenizer.json: T5's and XLM-R's of old ("words"), the one that transformers makes
    now ("text"), or one with byte fallback ("bytes")."""
    unknown = next(i for i, p in enumerate(pieces) if p[2] == UNKNOWN)
    tokenizer = Tokenizer(models.Unigram([(p[0], p[1]) for p in pieces], unknown,
                                         byte_fallback=form == "bytes"))
    mapped = [normalizers.Precompiled(chars_map)] if chars_map else []
    spaces = Regex(" {2,}")
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    if form == "words":
        tokenizer.normalizer = normalizers.Sequence(mapped + [normalizers.Replace(spaces, " ")])
        metaspace = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    elif form == "text":
        tokenizer.normalizer = normalizers.Sequence(
            mapped + [normalizers.Strip(left=False, right=True),
                      normalizers.Replace(spaces, MARK)])
    else:
        metaspace = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        tokenizer.decoder = decoders.Sequence(
            [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")])
    tokenizer.pre_tokenizer = metaspace
    add_specials(tokenizer, pieces)
    return tokenizer


def pieces_of(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    kinds = [(processor.is_unknown, UNKNOWN), (processor.is_control, CONTROL),
             (processor.is_unused, UNUSED), (processor.is_byte, BYTE)]
    return [(processor.id_to_piece(i), processor.get_score(i),
             next((kind for test, kind in kinds if test(i)), NORMAL))
            for i in range(len(processor))]


TINY_CHARACTERS = ["a", "b", MARK, "c", "<", ">", "1", "\u00e9", "\u4e2d", " ", "\n"]


def tiny_model(rng):
    """Made-up BPE or Unigram over characters, with or without byte pieces and unknown token."""
    pieces = rng.sample(TINY_CHARACTERS[3:], 5) + TINY_CHARACTERS[:3]
    fallback = rng.random() < 0.5
    unigram = rng.random() < 0.5
    merges = []
    while len(merges) < 25:
        pool = pieces + [a + b for a, b in merges]
        pair = (rng.choice(pool), rng.choice(pool))
        if pair not in merges and len(pair[0] + pair[1]) < 6:
            merges.append(pair)
    names = list(dict.fromkeys(["<unk>", "<s>"] + pieces + [a + b for a, b in merges]))
    if fallback:
        names += [f"<0x{byte:02X}>" for byte in range(256)]
        if rng.random() < 0.2:
            names.remove("<0xC3>")
    if unigram:
        scores = [(name, -rng.randrange(1, 8) / 2) for name in names]
        return models.Unigram(scores, 0, byte_fallback=fallback)
    known = {} if fallback and rng.random() < 0.3 else {"unk_token": "<unk>"}
    return models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges,
                      byte_fallback=fallback, fuse_unk=rng.random() < 0.5,
                      ignore_merges=rng.random() < 0.2, **known)


def tiny_tokenizer(rng):
    tokenizer = Tokenizer(tiny_model(rng))
    scheme = rng.choice(["always", "first", "never"])
    spaces = normalizers.Replace(" ", MARK)
    tokenizer.normalizer = rng.choice([
        normalizers.Sequence([]), normalizers.NFC(), spaces,
        normalizers.Sequence([normalizers.Prepend(MARK), spaces]),
        normalizers.Sequence([normalizers.Strip(left=False, right=True),
                              normalizers.Replace(Regex(" {2,}"), MARK)]),
        normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " ")])])
    metaspace = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=rng.random() < 0.5)
    behavior = rng.choice(["merged_with_previous", "merged_with_next", "removed", "isolated"])
    cut = pre_tokenizers.Split(rng.choice([" ", "a", MARK]), behavior)
    tokenizer.pre_tokenizer = rng.choice([
        metaspace, cut, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace]),
        pre_tokenizers.Sequence([cut, metaspace]),
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), metaspace])])
    tokenizer.decoder = rng.choice([
        decoders.Metaspace(prepend_scheme=scheme),
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)]),
        decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                           decoders.Strip(" ", 1, 0)]),
        decoders.Sequence([decoders.Replace(MARK, " "), decoders.Replace("a", "A"),
                           decoders.Fuse()])])
    tokenizer.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    for content in rng.sample(["<a>", "ab", "\u00e9", "<a", "b c", "1", MARK + "b"],
                              rng.randrange(4)):
        flags = {flag: rng.random() < 0.3
                 for flag in ("lstrip", "rstrip", "single_word", "normalized")}
        tokenizer.add_tokens([AddedToken(content, **flags)])
    return tokenizer


TINY_TEXT = ["a", "b", "c", " ", "  ", "ab", "\u00e9", "e\u0301", "\u4e2d", "1", "<s>", "<a>", "<",
             MARK, "\n", "\u3000", "\U0001f600", "aaa", "x", "b c"]


def training_lines(texts):
    rng = random.Random(5)
    # Of few characters, each of which has to be a piece.
    lines = [line[:300] for text in texts for line in text.split("\n")
             if len(line) > 10 and (line.isascii() or rng.random() < 0.02)]
    rng.shuffle(lines)
    return lines[:TRAINING_LINES]


def train(path, texts, **options):
    """Trains a SentencePiece model into `path`; the same texts give the same file."""
    with open(path, "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(training_lines(texts)), model_writer=file, num_threads=1,
            character_coverage=0.98, minloglevel=2, **options)


TRAINED = {
    "trained-bpe": dict(model_type="bpe", vocab_size=3000, byte_fallback=True,
                        normalization_rule_name="identity", remove_extra_whitespaces=False,
                        user_defined_symbols=["<|im_start|>", "```", MARK * 2, "ab"]),
    "trained-bpe-unknown": dict(model_type="bpe", vocab_size=3000,
                                normalization_rule_name="identity", add_dummy_prefix=False),
    "trained-bpe-trimmed": dict(model_type="bpe", vocab_size=2000, byte_fallback=True,
                                normalization_rule_name="identity"),
    "trained-bpe-suffix": dict(model_type="bpe", vocab_size=2000, byte_fallback=True,
                               normalization_rule_name="identity",
                               treat_whitespace_as_suffix=True),
    "trained-bpe-nfkc": dict(model_type="bpe", vocab_size=3000, byte_fallback=True,
                             user_defined_symbols=["\ufb01", "```", "ab"]),
    "trained-unigram": dict(model_type="unigram", vocab_size=3000,
                            user_defined_symbols=["<|im_start|>", "\ufb01", "```", "ab"]),
    "trained-unigram-bytes": dict(model_type="unigram", vocab_size=3000, byte_fallback=True,
                                  normalization_rule_name="identity",
                                  remove_extra_whitespaces=False),
    "trained-unigram-folded": dict(model_type="unigram", vocab_size=2000,
                                   normalization_rule_name="nmt_nfkc_cf"),
}


class Writer:
    def __init__(self, out, source, texts, write_records, separator):
        self.out, self.source, self.texts = out, source, texts
        self.write_records, self.separator = write_records, separator

    def folder(self, name):
        folder = self.out / name
        folder.mkdir(parents=True, exist_ok=True)
        print("goldens of", name, flush=True)
        return folder

    def write(self, folder, encode, decode, size, hidden=()):
        """`hidden`: ids that are left out of decoded sequences."""
        self.write_records(folder / "ids.bin", encode(self.texts))
        rng = random.Random(7)
        bytes_at = [i for i in range(size) if i not in hidden][:400]
        decoded = []
        for _ in range(DECODED_SEQUENCES):
            sequence = []
            for _ in range(rng.randrange(20)):
                token = rng.choice(bytes_at) if rng.random() < 0.5 else rng.randrange(size)
                sequence += [] if token in hidden else [token]
            decoded += [sequence, decode(sequence, False), decode(sequence, True)]
        self.write_records(folder / "decoded.bin", decoded)

    def cases(self, folder, name):
        inputs = self.source / (name + ".inp")
        self.write_records(folder / "cases.bin", inputs.read_text("utf-8").split(self.separator))
        lines = (self.source / (name + ".out")).read_text().split("\n")
        self.write_records(folder / "case_ids.bin", [[int(i) for i in x.split()] for x in lines])

    def with_sentencepiece(self, folder, model):
        """What the library does with the file; its own special tokens never match in a text."""
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        hidden = {i for i in range(len(processor))
                  if processor.is_control(i) or processor.is_unknown(i)}
        self.write(folder, lambda texts: processor.encode(texts, num_threads=1),
                   lambda ids, _: processor.decode(ids), len(processor), hidden)

    def with_llama_cpp_rules(self, folder, pieces):
        """As above, but a user-defined piece ends the text before it, and the text behind it has
        no prefix: `sentencepiece` on the parts."""
        first, inside = (sentencepiece.SentencePieceProcessor(
            model_proto=model_bytes(sentencepiece_pieces(pieces), BPE, prefix=prefix))
            for prefix in (True, False))
        own = {p[0]: i for i, p in enumerate(pieces) if p[2] == USER_DEFINED}
        pattern = re.compile("(" + "|".join(map(re.escape, own)) + ")")

        def encode(text):
            ids = []
            for i, part in enumerate(pattern.split(text)):
                ids += [own[part]] if part in own else (inside if i else first).encode(part)
            return ids
        hidden = {i for i, p in enumerate(pieces) if p[2] in (UNKNOWN, CONTROL)}
        self.write(folder, lambda texts: [encode(t) for t in texts],
                   lambda ids, _: first.decode(ids), len(pieces), hidden)

    def with_tokenizers(self, folder, tokenizer, size):
        tokenizer.save(str(folder / "tokenizer.json"))
        self.write(folder,
                   lambda texts: [tokenizer.encode(t, add_special_tokens=False).ids for t in texts],
                   lambda ids, skip: tokenizer.decode(ids, skip_special_tokens=skip), size + 50)


def write(out, source, training_texts, texts, write_records, separator):
    """Models are trained on the first texts, and all vocabularies encode the second."""
    writer = Writer(out, source, texts, write_records, separator)
    for name in ("llama-spm", "phi-3", "baichuan"):
        pieces = read_gguf(source / (name + ".gguf"))["pieces"]
        model = model_bytes(sentencepiece_pieces(pieces), BPE)
        folder = writer.folder(name)
        if name != "baichuan":
            writer.cases(folder, name)
        if name == "phi-3":
            writer.with_llama_cpp_rules(folder, pieces)
        else:
            writer.with_sentencepiece(folder, model)
        if name == "llama-spm":
            folder = writer.folder("llama-spm-model")
            (folder / "tokenizer.model").write_bytes(model)
            writer.with_sentencepiece(folder, model)
            for form in ("prepend", "first", "always", "never"):
                writer.with_tokenizers(writer.folder("llama-spm-" + form),
                                       llama_tokenizer(pieces, form), len(pieces))
    vocabulary = read_gguf(source / "nomic-bert-moe.gguf")
    pieces = sentencepiece_pieces(vocabulary["pieces"])
    chars_map = bytes(x & 0xFF for x in vocabulary["get"]("precompiled_charsmap"))
    model = model_bytes(pieces, UNIGRAM, remove_spaces=True, byte_fallback=False,
                        chars_map=chars_map)
    writer.with_sentencepiece(writer.folder("nomic-bert-moe"), model)
    for form in ("words", "text"):
        writer.with_tokenizers(writer.folder("nomic-bert-moe-" + form),
                               unigram_tokenizer(pieces, form, chars_map), len(pieces))
    vocabulary = read_gguf(source / "gemma-4.gguf")
    folder = writer.folder("gemma-4")
    writer.cases(folder, "gemma-4")
    writer.with_tokenizers(folder, gemma_tokenizer(vocabulary), len(vocabulary["pieces"]))
    for name, options in TRAINED.items():
        folder = writer.folder(name)
        train(folder / "tokenizer.model", training_texts, **options)
        model = (folder / "tokenizer.model").read_bytes()
        writer.with_sentencepiece(folder, model)
        if name == "trained-unigram-bytes":
            pieces = pieces_of(model)
            writer.with_tokenizers(writer.folder(name + "-json"),
                                   unigram_tokenizer(pieces, "bytes"), len(pieces))
