#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which slots a policy keeps, here and in kvpress, on the same text and the same weights in float32.

  python3 -m venv /tmp/kvpress
  /tmp/kvpress/bin/pip install torch "transformers>=5.0,<5.3" kvpress==0.5.5 gguf sentencepiece
  /tmp/kvpress/bin/python tools/kvpress_parity.py build/release/bin/antigravity MODEL.gguf \
      --text FILE --tokens 1000 --ratios 0.25,0.5,0.75,0.875

The weights of the GGUF file are dequantised by each side (transformers' are kept in --work). This
side's kept slots are read from a saved cache. A ratio r is the share
removed: max(1, int(tokens * (1 - r))) slots stay.

A policy with "-adaptive" behind its name has adaptive heads on both sides (AdaKVPress, a safeguard of
0.2): a layer's heads keep as many slots together.

compactor: kvpress draws its sketch anew for each head of each layer and leaves the scale out of
products inside chunks. Here one sketch is drawn with a seed and takes the place of all of them, and
compactor_slots, which lies beside the program, is told both. Of the text so many tokens are taken
that chunks are whole (12 + 256 k), since the two differ in a chunk that is cut off.

kvzip: kvpress neither repeats nor keeps what a chat template puts before a message. Here the text
stands alone: its press sees the model's template with nothing before the message. A text of more
than 2,048 tokens is read in several chunks, which the two do differently.

A head's slots count as equal if they are the same, or if all that differ (with adaptive heads: in all
of the layer's; kvzip: in the whole model) have scores within 1e-4 of one another, relatively, by
kvpress's own scores. Exit status 1 if any head's are neither."""

import argparse
import contextlib
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
from unittest import mock

NEAR = 1e-4
SHARED = ["--kv-prefill", "whole", "--kv-slack", "0"]
POLICIES = {
    "streaming": ["--protected-prefix", "4", "--kv-recent", "0"],
    "snapkv": ["--protected-prefix", "0", "--kv-recent", "0", "--snapkv-window", "64",
               "--snapkv-kernel", "5", "--snapkv-pool", "avg"],
    "tova": ["--protected-prefix", "0", "--kv-recent", "1"],
    "keydiff": ["--protected-prefix", "0", "--kv-recent", "0"],
    "compactor": [],  # compactor_slots says the same by itself
    "kvzip": ["--replay", "1"],
}
SKETCH, CHUNK, OUTSIDE_CHUNKS = 48, 256, 12
ADAPTIVE = "-adaptive"
for name in ("snapkv", "keydiff"):
    POLICIES[name + ADAPTIVE] = POLICIES[name] + ["--head-budget", "adaptive"]


def press_of(policy, ratio):
    import kvpress
    if policy.endswith(ADAPTIVE):
        return kvpress.AdaKVPress(press_of(policy.removesuffix(ADAPTIVE), ratio),
                                  alpha_safeguard=0.2)
    return {
        "streaming": lambda: kvpress.StreamingLLMPress(compression_ratio=ratio, n_sink=4),
        "snapkv": lambda: kvpress.SnapKVPress(compression_ratio=ratio, window_size=64,
                                              kernel_size=5),
        "tova": lambda: kvpress.TOVAPress(compression_ratio=ratio),
        "keydiff": lambda: kvpress.KeyDiffPress(compression_ratio=ratio),
        "compactor": lambda: kvpress.CompactorPress(compression_ratio=ratio),
        "kvzip": lambda: kvpress.KVzipPress(compression_ratio=ratio),
    }[policy]()


# ---- this side ----


class SavedCache:
    """Ids and kept positions of a file as docs/reference/saved-cache-format.md describes it."""

    def __init__(self, path, head_dim):
        self.data = pathlib.Path(path).read_bytes()
        self.at = 0
        if self.take(8) != b"AGCACHE\n" or self.u32() != 1:
            sys.exit(f"{path}: is no saved cache of version 1")
        n_facts = self.u32()
        self.take(8)
        facts = dict(line.split("=", 1) for line in self.take(n_facts).decode().splitlines())
        n_layers, n_heads = int(facts["layers"]), int(facts["kv_heads"])
        self.take(8)
        self.u32()  # tokens consumed
        n_ids, flags = self.u32(), self.u32()
        self.u32()
        held = struct.unpack(f"<{n_layers * n_heads}I", self.take(4 * n_layers * n_heads))
        if flags & 12:
            sys.exit(f"{path}: has turns or a state, which this script does not read")
        self.ids = list(struct.unpack(f"<{n_ids}i", self.take(4 * n_ids)))
        if flags & 1:
            self.take(4 * int(facts["vocabulary"]))
        row = 2 * 4 * head_dim  # keys and values, F32
        self.kept = [[[] for _ in range(n_heads)] for _ in range(n_layers)]
        for layer in range(n_layers):
            counts = held[layer * n_heads:(layer + 1) * n_heads]
            for first in range(0, max(counts), 128):
                for head, n in enumerate(counts):
                    here = min(max(n - first, 0), 128)
                    self.kept[layer][head] += struct.unpack(f"<{here}I", self.take(4 * here))
                    self.take(here * row)

    def take(self, n):
        part = self.data[self.at:self.at + n]
        if len(part) != n:
            sys.exit("the saved cache ends early")
        self.at += n
        return part

    def u32(self):
        return struct.unpack("<I", self.take(4))[0]


def saved_by(o, args, path, head_dim, stdin=None):
    path.unlink(missing_ok=True)
    done = subprocess.run(args, input=stdin, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(args)}\n{done.stderr}")
    return SavedCache(path, head_dim)


def ours(o, text, options, head_dim, n_context):
    path = o.work / "kept.agcache"
    args = [o.antigravity, "generate", "--model", str(o.gguf), "-f", str(text), "-n", "0",
            "--weights", "f32", "--kv-type", "f32", "--backend", "cpu",
            "-c", str(n_context), "--save-cache", str(path)]
    return saved_by(o, args + options, path, head_dim)


def our_compactor(o, ids, n_kept, head_dim):
    path, sketch = o.work / "kept.agcache", o.work / "sketch.f32"
    sketch.write_bytes((o.sketch * (1 / math.sqrt(SKETCH))).numpy().tobytes())
    program = pathlib.Path(o.antigravity).with_name("compactor_slots")
    return saved_by(o, [str(program), str(o.gguf), str(n_kept), str(sketch), "1", str(path)], path,
                    head_dim, stdin=" ".join(map(str, ids)))


def ours_of(o, policy, ratio, n_kept, text, ids, head_dim):
    if policy == "compactor":
        return our_compactor(o, ids, n_kept, head_dim)
    if policy == "kvzip":
        options = POLICIES[policy] + ["--replay-keep", f"{100 * (1 - ratio):g}%"]
        return ours(o, text, options, head_dim, 2 * len(ids) + 256)
    options = ["--eviction-policy", policy.removesuffix(ADAPTIVE), "--kv-budget", str(n_kept)]
    return ours(o, text, options + SHARED + POLICIES[policy], head_dim, len(ids) + 256)


def text_of(o, head_dim):
    """The beginning of the text that has about so many tokens, and its ids."""
    whole = pathlib.Path(o.text).read_text(errors="ignore")
    path, n_chars = o.work / "text.txt", 3 * o.tokens
    for _ in range(8):
        path.write_text(whole[:n_chars])
        # Without a budget the file holds the ids of all tokens.
        ids = ours(o, path, [], head_dim, 4 * o.tokens).ids
        if abs(len(ids) - o.tokens) <= o.tokens // 50 or n_chars >= len(whole):
            return path, ids
        n_chars = n_chars * o.tokens // len(ids)
    return path, ids


# ---- that side ----


def write_model(o):
    """Into a directory, with weights as they are in float32."""
    import torch
    from transformers import AutoModelForCausalLM
    if (o.model / "config.json").exists():
        return
    at = {"pretrained_model_name_or_path": str(o.gguf.parent), "gguf_file": o.gguf.name}
    AutoModelForCausalLM.from_pretrained(**at, dtype=torch.float32).save_pretrained(o.model)


def template_of_suffix(tokenizer):
    """The model's chat template, of which only what follows a message is left."""
    mark = "a message's end"
    whole = tokenizer.apply_chat_template([{"role": "user", "content": mark}], tokenize=False,
                                          add_generation_prompt=True)
    return "{{ messages[0]['content'] + %s }}" % json.dumps(whole.split(mark)[1])


def press_tokenizer(o):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(str(o.gguf.parent), gguf_file=o.gguf.name)
    if tokenizer.chat_template:
        tokenizer.chat_template = template_of_suffix(tokenizer)
    return tokenizer


@contextlib.contextmanager
def made_ready(o, policy, press, scores):
    """What the press needs to be comparable; its scores of each layer [heads, slots] are appended."""
    import transformers
    scorer = press.press if policy.endswith(ADAPTIVE) else press
    method = "compress_post" if policy == "kvzip" else "score"
    do = getattr(scorer, method)

    def record(*args, **kwargs):
        done = do(*args, **kwargs)
        found = scorer.score_val[:, 0] if policy == "kvzip" else done
        scores.extend(s.detach().clone() for s in found)  # AdaKVPress writes on them
        return done

    def sketch(batch, heads, dim, k, **_):
        return o.sketch.reshape(1, 1, dim, k).expand(batch, heads, dim, k)

    setattr(scorer, method, record)
    with contextlib.ExitStack() as patches:
        if policy == "compactor":
            patches.enter_context(mock.patch("torch.randn", sketch))
        if policy == "kvzip":
            patches.enter_context(mock.patch.object(transformers.AutoTokenizer, "from_pretrained",
                                                    return_value=press_tokenizer(o)))
        yield


def theirs(o, model, ids, policy, ratio):
    """Per layer: scores [heads, slots], and the kept slots of each head."""
    import torch
    from kvpress.presses.scorer_press import compute_n_kept
    from transformers import DynamicCache
    press, scores = press_of(policy, ratio), []
    with torch.no_grad(), made_ready(o, policy, press, scores), press(model):
        model.model(input_ids=torch.tensor([ids]), past_key_values=DynamicCache(config=model.config))
    n_kept = compute_n_kept(len(ids), ratio)
    if scope_of(policy) == "head":
        return n_kept, [(s, s.topk(n_kept, dim=-1).indices.tolist()) for s in scores]
    layers = []
    for s, layer in zip(scores, model.model.layers, strict=True):
        # It masks what it would remove.
        stays = torch.ones_like(s, dtype=torch.bool)
        _, heads, slots = layer.self_attn.masked_key_indices
        stays[heads, slots] = False
        layers.append((s, [of_head.nonzero().flatten().tolist() for of_head in stays]))
    return n_kept, layers


def gap_between(scores, ours, theirs):
    """The widest relative gap of a score between slots that only one side keeps."""
    if not len(ours) == len(theirs) > 0:
        return float("inf")
    best = max(scores[at].item() for at in theirs)
    worst = min(scores[at].item() for at in ours)
    return abs(best - worst) / max(abs(best), abs(worst), 1e-30)


def scope_of(policy):
    """What slots are chosen among."""
    return "model" if policy == "kvzip" else "layer" if policy.endswith(ADAPTIVE) else "head"


def compare(kept, layers, scope):
    """How many heads keep the same, how many the same but for near ties, the widest gap of a score
    between what only one side keeps."""
    import torch
    scores = torch.stack([of_layer for of_layer, _ in layers])
    groups = {}
    for layer, (_, slots) in enumerate(layers):
        for head, (a, b) in enumerate(zip(kept[layer], slots, strict=True)):
            group = {"head": (layer, head), "layer": layer, "model": None}[scope]
            groups.setdefault(group, []).append(({(layer, head, s) for s in a},
                                                 {(layer, head, s) for s in b}))
    counts, widest = {"equal": 0, "near_ties": 0, "apart": 0}, 0.0
    for heads in groups.values():
        a, b = (set().union(*side) for side in zip(*heads))
        gap = gap_between(scores, a - b, b - a) if a != b else 0.0
        widest = max(widest, gap)
        for of_ours, of_theirs in heads:
            same = of_ours == of_theirs
            counts["equal" if same else "near_ties" if gap <= NEAR else "apart"] += 1
    return {**counts, "widest_gap": widest}


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("antigravity")
    p.add_argument("gguf", type=pathlib.Path)
    p.add_argument("--text", required=True, help="a text file")
    p.add_argument("--tokens", type=int, default=1000, help="about so many of its beginning")
    p.add_argument("--ratios", default="0.25,0.5,0.75,0.875", help="shares removed")
    p.add_argument("--policies", default=",".join(POLICIES))
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/kvpress-parity"))
    p.add_argument("--out", help="JSON lines are appended to this file")
    o = p.parse_args()
    os.environ.update(HF_HUB_DISABLE_PROGRESS_BARS="1", TQDM_DISABLE="1")
    import torch
    from transformers import AutoModelForCausalLM, logging
    logging.disable_progress_bar()
    o.model = o.work / o.gguf.stem
    os.makedirs(o.model, exist_ok=True)
    write_model(o)
    model = AutoModelForCausalLM.from_pretrained(o.model, dtype=torch.float32,
                                                 attn_implementation="sdpa").eval()
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    o.sketch = torch.randn(head_dim, SKETCH, generator=torch.Generator().manual_seed(1))
    text, ids = text_of(o, head_dim)
    failed = False
    print(f"{o.gguf.stem}: {len(ids)} tokens of {os.path.basename(o.text)}")
    print(f"{'policy':16} {'ratio':>6} {'kept':>6} {'heads':>6} {'equal':>6} {'near':>5} {'apart':>6}"
          f" {'widest':>9}")
    for policy in o.policies.split(","):
        for ratio in map(float, o.ratios.split(",")):
            some = ids
            if policy == "compactor":
                some = ids[:len(ids) - (len(ids) - OUTSIDE_CHUNKS) % CHUNK]
            n_kept, layers = theirs(o, model, some, policy, ratio)
            cache = ours_of(o, policy, ratio, n_kept, text, some, head_dim)
            if cache.ids != some:
                sys.exit("the ids of two runs differ")
            row = {"model": o.gguf.stem, "tokens": len(some), "policy": policy, "ratio": ratio,
                   "kept": n_kept, **compare(cache.kept, layers, scope_of(policy))}
            failed = failed or row["apart"] > 0
            heads = row["equal"] + row["near_ties"] + row["apart"]
            print(f"{policy:16} {ratio:6} {n_kept:6} {heads:6} {row['equal']:6}"
                  f" {row['near_ties']:5} {row['apart']:6} {row['widest_gap']:9.2g}", flush=True)
            if o.out:
                with open(o.out, "a") as f:
                    f.write(json.dumps(row) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
