#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records how the `tokenizers` library (pip install tokenizers; made with 0.23.3) cuts texts for each pre-tokenizer that
a GGUF file can name -> tests/data/tokenizers/pre.json.

A pipeline is built from the components of a published tokenizer.json of that kind, around one small byte-level BPE
model whose merges cross everything, and encodes 10,000 texts: snippets and random characters, made from a generator
that the test repeats. Of the ids only hashes are kept, one for each 500 texts."""
import json
import pathlib
import sys

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/tokenizers/pre.json"
N_TEXTS, BLOCK = 10000, 500
SNIPPETS = [
    " ", "a", "\n", "1", "!", "'s", "\r\n", "B", "  ", ".", "/", "12", "\u4e2d", "\u0301", "ab", "Ab", "'S", "$", "\t",
    " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\u00a0", "\u3000", "\u2028", "\u180e", "'s", "'S", "'ll", "'LL", "'Re",
    "'t", "'d", "'\u017f", "'", "''", "the", " the", "The", " King", "kingOf", "HTTPServer", "x", "I", " a", "ab", "caf\u00e9",
    "cafe\u0301", "a\u0316\u0301", "\u00c5", "\u212b", "\u01c5", "\u02b0", "\u00aa", "\u0130", "\u0131", "\u00df", "\u1e9e",
    "\u041f\u0440\u0438\u0432\u0435\u0442", " \u043c\u0438\u0440", "\u03b1\u03b2\u03b3\u03a3\u03c2", "\u05e2\u05d1\u05e8\u05d9\u05ea",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e44\u0e17\u0e22", "\u0eaa\u0eb0",
    "\u1780\u17b6", "\u1019\u103c", "\u4e2d\u6587", "\u5b57", "\u9fa6", "\u3402", "\u3072\u3089", "\u30ab\u30bf", "\u30fb", "\uff71",
    "\ud55c\uad6d\uc5b4", "\u1112\u1161\u11ab", "\u3131", "\u3105", "0", "1", "12", "123", "1234", "12345678", "3.14", "1,000",
    "\u0663\u0664", "\u00b2", "\u00bd", "\u2167", "\u2460", "\uff11", "\u0967\u0968", "!", "?", ".", ",", ";", ":", "...", "!!", "--",
    "->", "=", "==", "+", "$", "<", ">", "^", "`", "```", "|", "~", "_", "__", "/", "//", "\\", "*", "&&", "#", "@", "%", "(", ")",
    "[", "]", "{", "}", "\"", "\u201c", "\u201d", "\u2018", "\u2019", "\u2026", "\u2014", "\u3002", "\uff0c", "\uff01", "\uff5e", "\u0964",
    "\u06d4", "\u060c", "\u00a3", "\u20ac", "\u00ac", "\u00b7", "\u2192", "\u2200", "\u00a9", "\U0001f600", "\U0001f44d\U0001f3fd",
    "\U0001f468\u200d\U0001f469", "\u200b", "\u200d", "\ufeff", "\ufffd", "\u0000", "\u0007", "\ue000", "\U00010400", "\U0001d400",
    "\U0001e900", "\U0001e030", "\U00031350", "#include", ".com", " (a)", "[i]", "x=1\n", "    return", "\n\n\n  ", " !", " \u00e9",
]


class Random:
    """Knuth's MMIX generator, the upper bits."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n


def make_text(seed):
    r, text = Random(seed), ""
    for _ in range(1 + r.below(24)):
        kind = r.below(8)
        if kind < 6:
            text += SNIPPETS[r.below(1 + r.below(len(SNIPPETS)))]  # the first ones more often
            continue
        cp = r.below((0x180, 0x3100, 0x10000, 0x110000)[r.below(4)])
        text += "\ufffd" if 0xD800 <= cp < 0xE000 else chr(cp)
    return text


SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BREAKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CL100K = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|" + BREAKS
O200K = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+%s|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER +
         r"*%s|%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + BREAKS)
CJK = "[一-龥\u3040-ゟ゠-ヿ]+"
DEEPSEEK_CJK = "[一-龥\u0800-一가-\ud7ff]+"
DEEPSEEK_LETTERS = (
    r"\s?[A-Za-z"
    r"\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af}"
    r"\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}"
    r"\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}"
    r"\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}"
    r"\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}"
    r"\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}"
    r"\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}"
    r"\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}"
    r"\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}"
    r"\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}"
    r"\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}"
    r"\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}"
    r"\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}"
    r"\x{1e900}-\x{1e943}"
    r"]+")
BLOOM = " ?[^(\\s|.,!?…。，、।۔،)]+"


def splits(*patterns):
    return [Split(Regex(p), "isolated") for p in patterns] + [ByteLevel(add_prefix_space=False, use_regex=False)]


GPT2 = [ByteLevel(add_prefix_space=False)]
GPT2_REGEX = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# name: components, whether text is NFC, whether whole pieces that are tokens need no merges
KINDS = {
    "": (splits(r"[\p{P}$+<=>^~|]+", GPT2_REGEX, r"\p{N}+", "[0-9][0-9][0-9]"), False, False),
    "gpt-2": (GPT2, False, False),
    "mpt": (GPT2, True, False),
    "smollm": ([Digits(individual_digits=True)] + GPT2, False, False),
    "command-r": ([Digits(individual_digits=True)] + GPT2, True, False),
    "llama-bpe": (splits(CL100K % r"\p{N}{1,3}"), False, True),
    "dbrx": (splits(CL100K % r"\p{N}{1,3}"), False, False),
    "glm4": (splits(CL100K % r"\p{N}{1,3}"), False, True),
    "qwen2": (splits(CL100K % r"\p{N}"), True, False),
    "stablelm2": (splits(CL100K % r"\p{N}"), False, False),
    "qwen35": (splits(SHORT + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + BREAKS), False, False),
    "gpt-4o": (splits(O200K % (SHORT + "?", SHORT + "?", r"\p{N}{1,3}")), False, False),
    "tekken": (splits(O200K % ("", "", r"\p{N}")), False, True),
    "minicpm5": (splits(r"\p{N}{1,3}", CL100K % r"\p{N}+"), False, True),
    "falcon": (splits(r"[\p{P}$+<=>^~|`]+", GPT2_REGEX, "[0-9][0-9][0-9]"), False, False),
    "deepseek-llm": (splits("[\r\n]", DEEPSEEK_LETTERS, r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", DEEPSEEK_CJK, r"\p{N}+"),
                     False, False),
    "deepseek-coder": (splits("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"), False, False),
    "deepseek-v3": (splits(r"\p{N}{1,3}", CJK, r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?"
                           r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + BREAKS), False, False),
    "bloom": (splits(BLOOM), False, False),
    "viking": (splits(BLOOM, r"\p{N}"), False, False),
    "seed-coder": (splits(SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + BREAKS), False, False),
}


def hash_ids(h, ids):
    for i in ids + [0xFFFFFFFF]:
        h = (h ^ i) * 0x100000001B3 % 2**64
    return h


def main():
    texts = [make_text(i) for i in range(N_TEXTS)]
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    trained.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=256 + 1000, initial_alphabet=ByteLevel.alphabet(), show_progress=False))
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    merges = [m for i, m in enumerate(merges) if i % 9 != 8]  # so that some tokens are made by no merge
    hashes = {}
    for name, (components, nfc, ignore_merges) in KINDS.items():
        tok = Tokenizer(models.BPE(vocab=model["vocab"], merges=merges, ignore_merges=ignore_merges))
        tok.pre_tokenizer = Sequence(components)
        if nfc:
            tok.normalizer = normalizers.NFC()
        ids = [e.ids for e in tok.encode_batch(texts)]
        hashes[name] = []
        for first in range(0, N_TEXTS, BLOCK):
            h = 0xCBF29CE484222325
            for one in ids[first:first + BLOCK]:
                h = hash_ids(h, one)
            hashes[name].append("%016x" % h)
        if len(sys.argv) > 1:  # one text's ids, to find a difference with
            print(name, ids[int(sys.argv[1])])
    with open(OUT, "w") as f:
        json.dump({"snippets": SNIPPETS, "tokens": tokens, "merges": [" ".join(m) for m in merges], "n_texts": N_TEXTS,
                   "block": BLOCK, "hashes": hashes}, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
