#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Convert the recorded models to GGUF files with llama.cpp's own converter, without a vocabulary.

usage: convert_golden.py LLAMA_CPP_DIR MODELS_DIR OUT_DIR [NAME ...]
LLAMA_CPP_DIR holds convert_hf_to_gguf.py and conversion/, as vendor/llama.cpp of the sdist of llama-cpp-python does; needs the
PyPI packages torch, transformers, safetensors, numpy and sentencepiece; no network. MODELS_DIR: golden-models of a build directory.
The vocabulary is replaced by the tokenizer model "none" with as many tokens as the configuration says; matrices are BF16, as in the files.
Afterwards: test_golden NAME gguf OUT_DIR/NAME.gguf
"""
import json
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

llama_cpp, models, out = (Path(p) for p in sys.argv[1:4])
sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
import gguf
from conversion import ModelBase, get_model_class


def set_vocab(self):
    self.gguf_writer.add_tokenizer_model("none")
    self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])


def replace_vocabulary(cls):
    for c in cls.__mro__:
        if "set_vocab" in vars(c):
            c.set_vocab = set_vocab


def convert(directory, path):
    hparams = ModelBase.load_hparams(directory, False)
    cls = get_model_class(hparams["architectures"][0])
    replace_vocabulary(cls)
    cls.no_mtp = True
    # Gemma's tables are cut to the size of a tokenizer.json.
    entries = {f"<{i}>": i for i in range(hparams["vocab_size"])}
    (directory / "tokenizer.json").write_text(json.dumps({"model": {"vocab": entries}, "added_tokens": []}))
    model = cls(directory, gguf.LlamaFileType.MOSTLY_BF16, path, eager=True)
    if hasattr(model, "impl"):
        replace_vocabulary(type(model.impl))
    model.write()


names = sys.argv[4:] or sorted(p.name for p in models.iterdir() if (p / "config.json").exists())
out.mkdir(parents=True, exist_ok=True)
for name in names:
    path = out / f"{name}.gguf"
    with tempfile.TemporaryDirectory() as copy:
        try:
            directory = Path(shutil.copytree(models / name, f"{copy}/{name}"))
            convert(directory, path)
            print(f"{name}: {path.stat().st_size} bytes")
        except Exception:
            path.unlink(missing_ok=True)
            print(f"{name}: failed")
            traceback.print_exc()
