#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/samplers/llama.cpp.json: what samplers of llama.cpp leave of random rows of logits.

    make_sampler_golden.py LIBLLAMA.so MODEL.gguf [ROWS] >tests/data/samplers/llama.cpp.json

LIBLLAMA.so is a build of the sources that the sdist of llama-cpp-python 0.3.36 contains. MODEL.gguf is the bundled model:
`antigravity quantize models/demo MODEL.gguf`. Only its vocabulary is loaded. test_sampler_golden.c makes the same rows."""
import ctypes
import json
import math
import sys

f32, i32, size, u32 = ctypes.c_float, ctypes.c_int32, ctypes.c_size_t, ctypes.c_uint32
pointer = ctypes.c_void_p


class TokenData(ctypes.Structure):
    _fields_ = [("id", i32), ("logit", f32), ("p", f32)]


class TokenArray(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(TokenData)), ("size", size), ("selected", ctypes.c_int64), ("sorted", ctypes.c_bool)]


class Random:
    """A linear congruential generator, as in the test."""

    def __init__(self, seed):
        self.x = seed

    def next(self, n):
        self.x = (self.x * 1664525 + 1013904223) % 2**32
        return (self.x >> 8) * n >> 24

    def unit(self):
        return self.next(1 << 24) / (1 << 24)


def load(path):
    lib = ctypes.CDLL(path)
    for name, arguments in {
        "penalties": (i32, i32, f32, f32, f32),
        "dry": (pointer, f32, f32, i32, i32, ctypes.POINTER(ctypes.c_char_p), size),
        "top_n_sigma": (f32,),
        "top_k": (i32,),
        "typical": (f32, size),
        "top_p": (f32, size),
        "min_p": (f32, size),
        "xtc": (f32, f32, size, u32),
        "temp_ext": (f32, f32, f32),
    }.items():
        f = getattr(lib, "llama_sampler_init_" + name)
        f.argtypes, f.restype = arguments, pointer
    lib.llama_sampler_apply.argtypes = (pointer, ctypes.POINTER(TokenArray))
    lib.llama_sampler_accept.argtypes = (pointer, i32)
    lib.llama_sampler_free.argtypes = (pointer,)
    for name in ("llama_model_load_from_file", "llama_model_get_vocab"):
        getattr(lib, name).restype = pointer
    lib.llama_model_get_vocab.argtypes = (pointer,)
    return lib


def vocabulary(lib, path):
    # llama_model_params by value: only vocab_only matters; the library fills the defaults.
    class Params(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_uint8 * PARAMS_BYTES)]

    lib.llama_model_default_params.restype = Params
    lib.llama_model_load_from_file.argtypes = (ctypes.c_char_p, Params)
    params = lib.llama_model_default_params()
    params.bytes[VOCAB_ONLY] = 1
    model = lib.llama_model_load_from_file(path.encode(), params)
    if not model:
        sys.exit("%s: cannot be loaded" % path)
    return lib.llama_model_get_vocab(model)


# sizeof(llama_model_params) and the offset of vocab_only, of this version.
PARAMS_BYTES, VOCAB_ONLY = 80, 72
# The first tokens of the vocabulary, since sums of float in another order put a token on the other side of a limit now and then.
N_VOCAB = 300
BREAKERS = ["\n", ":", '"', "*", ". The"]


def draw_params(r, i):
    """Row i: each sampler alone, then all by chance."""
    params = {"temperature": 1.0}
    choices = {
        "penalties": {"repetition_penalty": 1 + r.next(8) / 8, "presence_penalty": r.next(5) / 4, "frequency_penalty": r.next(5) / 8},
        "dry": {"dry_multiplier": 0.5 + r.next(4) / 4, "dry_base": 1 + r.next(8) / 8, "dry_allowed_length": 1 + r.next(3)},
        "top_n_sigma": {"top_n_sigma": 0.25 + r.next(12) / 8},
        "top_k": {"top_k": 1 + r.next(40)},
        "typical": {"typical_p": 0.05 + r.next(15) / 16},
        "top_p": {"top_p": 0.05 + r.next(15) / 16},
        "min_p": {"min_p": r.next(16) / 32},
        "xtc": {"xtc_probability": 1.0, "xtc_threshold": (1 + r.next(10)) / 32},
        "temperature": {"temperature": 0.25 + r.next(16) / 8},
        "dynamic": {"temperature": 0.25 + r.next(16) / 8, "dynamic_range": r.next(12) / 8, "dynamic_exponent": 0.5 + r.next(4) / 4},
    }
    names = list(choices)
    for k, name in enumerate(names):
        if i % 3 == 0 and (i // 3) % len(names) == k or i % 3 and r.next(2):
            params.update(choices[name])
    if "top_n_sigma" in params:
        # llama.cpp keeps what top_n_sigma removed with a probability of 0: typical_p takes its entropy for NaN, and the
        # dynamic temperature counts it among the candidates. Both are left out.
        params.pop("typical_p", None)
        params.pop("dynamic_range", None)
    return params


def samplers(lib, vocab, p, window):
    breakers = (ctypes.c_char_p * len(BREAKERS))(*[b.encode() for b in BREAKERS])
    yield lib.llama_sampler_init_penalties(
        N_VOCAB, window, p.get("repetition_penalty", 1), p.get("frequency_penalty", 0), p.get("presence_penalty", 0))
    yield lib.llama_sampler_init_dry(vocab, p.get("dry_multiplier", 0), p.get("dry_base", 1), p.get("dry_allowed_length", 2),
                                     window, breakers, len(BREAKERS))
    yield lib.llama_sampler_init_top_n_sigma(p.get("top_n_sigma", -1))
    yield lib.llama_sampler_init_top_k(p.get("top_k", 0))
    yield lib.llama_sampler_init_typical(p.get("typical_p", 1), 0)
    yield lib.llama_sampler_init_top_p(p.get("top_p", 1), 0)
    yield lib.llama_sampler_init_min_p(p.get("min_p", 0), 0)
    yield lib.llama_sampler_init_xtc(p.get("xtc_probability", 0), p.get("xtc_threshold", 1), 0, 1)
    yield lib.llama_sampler_init_temp_ext(p["temperature"], p.get("dynamic_range", 0), p.get("dynamic_exponent", 1))


def row(lib, vocab, n_vocab, i):
    r = Random(i)
    spread, n_words = 4 + r.next(16), 2 + r.next(12)
    words = [r.next(n_vocab) for _ in range(n_words)]
    text = [words[r.next(n_words)] for _ in range(r.next(120))]
    logits = [float(f32(r.unit() * spread + (r.unit() - 0.5) * spread).value) for _ in range(n_vocab)]
    params = draw_params(r, i)
    window = 16 + r.next(100)
    data = (TokenData * n_vocab)(*[TokenData(k, x, 0) for k, x in enumerate(logits)])
    tokens = TokenArray(data, n_vocab, -1, False)
    for s in samplers(lib, vocab, params, window):
        for t in text:
            lib.llama_sampler_accept(s, t)
        lib.llama_sampler_apply(s, ctypes.byref(tokens))
        lib.llama_sampler_free(s)
    left = [(tokens.data[k].id, tokens.data[k].logit) for k in range(tokens.size) if tokens.data[k].logit > -math.inf]
    if not left:
        sys.exit("row %d: no token is left: %s" % (i, params))
    best = max(x for _, x in left)
    total = sum(math.exp(x - best) for _, x in left)
    left = sorted((-math.exp(x - best) / total, t) for t, x in left)
    # The rest of a long tail is known by its number.
    return {"params": params, "window": window, "n": len(left), "ids": [t for _, t in left[:MOST]],
            "p": [round(-p, 7) for p, _ in left[:MOST]]}


MOST = 8


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    lib = load(sys.argv[1])
    vocab = vocabulary(lib, sys.argv[2])
    n_rows = int((sys.argv + ["1000"])[3])
    print('{"n_vocab": %d, "breakers": %s, "rows": [' % (N_VOCAB, json.dumps(BREAKERS)))
    for i in range(n_rows):
        print(json.dumps(row(lib, vocab, N_VOCAB, i)) + ("," if i + 1 < n_rows else ""))
    print("]}")


main()
