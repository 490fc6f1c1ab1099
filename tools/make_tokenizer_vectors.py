#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what the `tokenizers` library (pip install tokenizers; made with 0.23.3) answers, for the tests:

  tools/make_tokenizer_vectors.py demo     models/demo -> tests/data/tokenizers/demo.json
  tools/make_tokenizer_vectors.py cases    small tokenizers of all kinds -> tests/data/tokenizers/cases.json

A row is a text with `ids` (what the post-processor adds, special tokens in the text parsed), `plain` (neither), and
`decoded` / `skipped` (of ids: special tokens kept / left out); or only `decode` (ids) with its `decoded` and `skipped`."""
import base64
import json
import pathlib
import random
import struct
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/data/tokenizers"

TEXTS = [
    "", " ", "  ", "\n", "\r\n\r\n", "\t x", "Hello world", " Hello  world ", "The old king had three sons.",
    "it's we'll I'VE they'd 'ſ 'S", "a" * 70, "ab" * 40, " " * 50 + "x", "1 12 123 1234 12345678", "3.14e-10, $5!?",
    "안녕하세요 세계, 한국어 문장입니다.", "\u1112\u1161\u11ab\u1100\u1173\u11af", "\uac00\u11a7\u11a8", "日本語とカタカナ、中文字符。",
    "Привет, мир! Ελληνικά עברית العربية हिन्दी ไทย", "café cafe\u0301 a\u0316\u0301b\u0301\u0316", "\ufb01\ufb02 ① ² ½ Å \u212b",
    "👍🏽 👨‍👩‍👧‍👦 🇰🇷 😀", "\u0000a\u0000\u0000b", "\ufeffBOM \u200b\u200d\u00a0\u2028\u3000\u180e.", "ß ẞ İ ı ſ Σς",
    "\U0001e030\U00031350\U000105c9 \U0001d2c0\u0c3c", "\ue000\U0010ffff\ufffd", "if (x == 0) {\n\treturn -1;\n}\n", "▁ ▁▁a▁b",
    "<0x41><0xff> <unk> <s> </s>", "<|begin_of_text|>Hi<|eot_id|> <|end_of_text|", "x<|eot_id|><|eot_id|>\n y",
    "<a> <b>x<b> b.<b> _<b>", "  <a>  <a>  <c>\n <c> end <d>e", "Lower UPPER Mixed", "tab\tnew\nline\rreturn",
]


def rows_of(tok, decode):
    rows = []
    for text in TEXTS:
        tok.encode_special_tokens = True
        plain = tok.encode(text, add_special_tokens=False).ids
        tok.encode_special_tokens = False
        ids = tok.encode(text).ids
        rows.append({"text": text, "ids": ids, "plain": plain})
        if decode:
            rows[-1].update(decoded=tok.decode(ids, skip_special_tokens=False), skipped=tok.decode(ids))
    r = random.Random(1)
    known = sorted(tok.get_vocab().values())
    for n in range(40 if decode else 0):
        ids = [r.choice(known) for _ in range(n % 20 + 1)]
        rows.append({"decode": ids, "decoded": tok.decode(ids, skip_special_tokens=False), "skipped": tok.decode(ids)})
    return rows


def write(name, value):
    with open(OUT / name, "w") as f:
        json.dump(value, f, ensure_ascii=True, indent=None, separators=(",", ":"))
        f.write("\n")


def train(byte_level):
    tok = Tokenizer(models.BPE(unk_token=None if byte_level else "<unk>", byte_fallback=not byte_level, fuse_unk=True))
    corpus = [t for t in TEXTS if t.isprintable()] + (ROOT / "models/demo/README.md").read_text().split("\n")
    if byte_level:
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        tok.pre_tokenizer = pre_tokenizers.Metaspace()
        alphabet = list("▁abcdefghijklmnopqrstuvwxyzABCDEFGH0123456789.,!?'<>|_é한")
    special = [] if byte_level else ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    tok.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=len(special) + 420, initial_alphabet=alphabet,
                                                        limit_alphabet=len(alphabet), special_tokens=special))
    return json.loads(tok.to_str())["model"]


def train_unigram():
    tok = Tokenizer(models.Unigram())
    corpus = [t for t in TEXTS if t.isprintable()] + (ROOT / "models/demo/README.md").read_text().split("\n")
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    tok.train_from_iterator(corpus, trainers.UnigramTrainer(vocab_size=len(special) + 420, special_tokens=special,
                                                            unk_token="<unk>", show_progress=False))
    return json.loads(tok.to_str())["model"]


def charsmap(table):
    """A "precompiled_charsmap": the double array of Darts, then the strings that its values point to."""
    strings, trie = b"", {}
    for key, value in table.items():
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = len(strings)  # a key ends here
        strings += value.encode() + b"\0"
    units, free, pending = {0: 0}, 1, [(0, trie)]
    while pending:
        at, node = pending.pop()
        bytes_ = [0 if b is None else b for b in node]
        base = next(b for b in range(free, 1 << 20) if all(b ^ c not in units for c in bytes_))
        units[at] |= (at ^ base) << 10 | (256 if None in node else 0)
        for byte, child in node.items():
            units[base ^ (byte or 0)] = 1 << 31 | child if byte is None else byte
            if byte is not None:
                pending.append((base ^ byte, child))
    size = (max(units) // 256 + 1) * 256  # so that no step leads out of it
    array = struct.pack(f"<{size}I", *(units.get(i, 0) for i in range(size)))
    return base64.b64encode(struct.pack("<I", len(array)) + array + strings).decode()


def split(pattern, behavior="Isolated", invert=False):
    kind = "Regex" if "\\" in pattern or "[" in pattern else "String"
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def seq(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def replace(old, new):
    return {"type": "Replace", "pattern": {"Regex" if "\\" in old else "String": old}, "content": new}


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def metaspace(scheme, cut=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}


def added(content, **flags):
    token = {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    token.update(flags)
    return token


def cases():
    bytes_, pieces = "bytes", "pieces"
    spm_decoder = seq("decoders", replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                      {"type": "Strip", "content": " ", "start": 1, "stop": 0})
    tokens = [added("<a>", lstrip=True, rstrip=True), added("<b>", single_word=True), added("<c>", lstrip=True, special=True),
              added("<d>", special=True)]
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<c>", "type_id": 0}}, {"Sequence": {
        "id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<d>", "type_id": 0}}], "pair": [{"Sequence": {
            "id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {}}
    yield bytes_, dict(pre_tokenizer=byte_level(regex=True), decoder=byte_level(), post_processor=byte_level())
    yield bytes_, dict(pre_tokenizer=byte_level(prefix=True, regex=True), decoder=byte_level(), added=tokens)
    yield bytes_, dict(pre_tokenizer=byte_level(), decoder=byte_level(), model={"ignore_merges": True})
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield bytes_, dict(normalizer={"type": form}, pre_tokenizer=byte_level(regex=True), decoder=byte_level())
    yield bytes_, dict(normalizer=seq("normalizers", {"type": "Lowercase"}, {"type": "Strip", "strip_left": True,
                       "strip_right": True}), pre_tokenizer=byte_level(regex=True), decoder=byte_level(),
                       added=[added("<A>", normalized=True), added("ab", normalized=True, single_word=True)])
    for individual in (False, True):
        yield bytes_, dict(pre_tokenizer=seq("pretokenizers", {"type": "Digits", "individual_digits": individual},
                                             byte_level(regex=True)), decoder=byte_level())
    yield bytes_, dict(pre_tokenizer=seq("pretokenizers", split("\\p{N}{1,3}"), split("[\\p{L}\\p{M}]+|\\s+(?!\\S)|\\s"),
                                         byte_level()), decoder=byte_level(), added=tokens, template=template)
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield bytes_, dict(pre_tokenizer=seq("pretokenizers", split("\\s|\\d", behavior, invert), byte_level()),
                               decoder=byte_level())
    yield bytes_, dict(pre_tokenizer=seq("pretokenizers", split("ab"), {"type": "Whitespace"}, byte_level()), decoder=None)
    yield bytes_, dict(pre_tokenizer=seq("pretokenizers", split("\\b\\w+\\b|\\W", "Contiguous"), {"type": "WhitespaceSplit"},
                                         byte_level()), decoder=None)
    spm_normalizer = seq("normalizers", {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
    yield pieces, dict(normalizer=spm_normalizer, decoder=spm_decoder, added=tokens, template=template)
    yield pieces, dict(normalizer=spm_normalizer, decoder=spm_decoder, model={"byte_fallback": False})
    yield pieces, dict(normalizer=spm_normalizer, decoder=spm_decoder, model={"byte_fallback": False, "fuse_unk": False})
    yield pieces, dict(normalizer=spm_normalizer, decoder=spm_decoder, model={"byte_fallback": False, "unk_token": None})
    for scheme in ("always", "first", "never"):
        for cut in (True, False):
            yield pieces, dict(pre_tokenizer=metaspace(scheme, cut), decoder=seq(
                "decoders", {"type": "ByteFallback"}, metaspace(scheme)), added=tokens)
    yield pieces, dict(normalizer=replace("\\s+", " "), pre_tokenizer=metaspace("first"), decoder=seq(
        "decoders", replace("▁", " "), {"type": "Strip", "content": " ", "start": 0, "stop": 1}, {"type": "ByteFallback"}))
    yield pieces, dict(normalizer=replace("\\d", ""), pre_tokenizer=metaspace("always"), decoder=seq(
        "decoders", {"type": "ByteFallback"}, {"type": "Fuse"}, metaspace("never"),
        {"type": "Strip", "content": " ", "start": 2, "stop": 0}))
    table = {"\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ", "\u200b": "", "\ufb01": "fi", "\u2460": "1", "\u00b2": "2",
             "\u00bd": "1\u20442", "\u212b": "\u00c5", "e\u0301": "\u00e9", "a\u0316": "A", "\u1112": "H", "\u0132": "IJ"}
    smooth = {"type": "Precompiled", "precompiled_charsmap": charsmap(table)}
    yield "unigram", dict(normalizer=smooth, pre_tokenizer=metaspace("always"), decoder=metaspace("always"))
    yield "unigram", dict(normalizer=seq("normalizers", smooth, replace("\\s{2,}", " ")), pre_tokenizer=metaspace("first", False),
                          decoder=seq("decoders", {"type": "ByteFallback"}, metaspace("first")), added=tokens,
                          template=template, model={"byte_fallback": True})
    yield "unigram", dict(decoder=spm_decoder)


def build(model, parts):
    spec = {"version": "1.0", "truncation": None, "padding": None}
    for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        spec[key] = parts.get(key)
    known = [v if isinstance(v, str) else v[0] for v in model["vocab"]]
    next_id = len(known)
    spec["added_tokens"] = []
    for token in parts.get("added", []):
        if token["content"] not in known:
            spec["added_tokens"].append(dict(id=next_id, **token))
            next_id += 1
    if "template" in parts:
        spec["post_processor"] = json.loads(json.dumps(parts["template"]))
        ids = {t["content"]: t["id"] for t in spec["added_tokens"]}
        spec["post_processor"]["special_tokens"] = {
            name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in ("<c>", "<d>")}
    return spec


def make_cases():
    trained = {"bytes": train(True), "pieces": train(False), "unigram": train_unigram()}
    out = {"models": trained, "cases": []}
    for name, parts in cases():
        spec, changes = build(trained[name], parts), parts.get("model", {})
        tok = Tokenizer.from_str(json.dumps(dict(spec, model=dict(trained[name], **changes))))
        # 0.23 decodes a *normalized* added token as its normal form and does not know it as special then.
        decode = not any(t["normalized"] for t in spec["added_tokens"])
        out["cases"].append({"model": name, "changes": changes, "tokenizer": spec, "rows": rows_of(tok, decode)})
    write("cases.json", out)


def main():
    if sys.argv[1:] == ["demo"]:
        write("demo.json", rows_of(Tokenizer.from_file(str(ROOT / "models/demo/tokenizer.json")), True))
    elif sys.argv[1:] == ["cases"]:
        make_cases()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
