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

A head's slots count as equal if they are the same, or if all that differ (with adaptive heads: in all
of the layer's) have scores within 1e-4 of one another, relatively, by kvpress's own scores. Exit
status 1 if any head's are neither."""

import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys

NEAR = 1e-4
SHARED = ["--kv-prefill", "whole", "--kv-slack", "0"]
POLICIES = {
    "streaming": ["--protected-prefix", "4", "--kv-recent", "0"],
    "snapkv": ["--protected-prefix", "0", "--kv-recent", "0", "--snapkv-window", "64",
               "--snapkv-kernel", "5", "--snapkv-pool", "avg"],
    "tova": ["--protected-prefix", "0", "--kv-recent", "1"],
    "keydiff": ["--protected-prefix", "0", "--kv-recent", "0"],
}
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
    }[policy]()


# ---- this side ----


class SavedCache:
    """Ids and kept positions of a file as docs/saved-cache.md describes it."""

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


def ours(o, text, options, head_dim, n_context):
    path = o.work / "kept.agcache"
    path.unlink(missing_ok=True)
    args = [o.antigravity, "generate", "--model", str(o.gguf), "-f", str(text), "-n", "0",
            "--weights", "f32", "--kv-type", "f32", "--backend", "cpu",
            "-c", str(n_context), "--save-cache", str(path)]
    done = subprocess.run(args + options, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(args + options)}\n{done.stderr}")
    return SavedCache(path, head_dim)


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


def theirs(model, ids, policy, ratio):
    """Per layer: scores [heads, slots], and the kept slots of each head."""
    import torch
    from kvpress.presses.scorer_press import compute_n_kept
    from transformers import DynamicCache
    press, scores = press_of(policy, ratio), []
    adaptive = policy.endswith(ADAPTIVE)
    scorer = press.press if adaptive else press
    score = scorer.score

    def record(*args, **kwargs):
        of_layer = score(*args, **kwargs)
        scores.append(of_layer[0].detach().clone())  # AdaKVPress writes on them
        return of_layer

    scorer.score = record
    with torch.no_grad(), press(model):
        model.model(input_ids=torch.tensor([ids]), past_key_values=DynamicCache(config=model.config))
    n_kept = compute_n_kept(len(ids), ratio)
    if not adaptive:
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
    """The widest relative gap of a score between slots, (head, slot), that only one side keeps."""
    if not len(ours) == len(theirs) > 0:
        return float("inf")
    best = max(scores[at].item() for at in theirs)
    worst = min(scores[at].item() for at in ours)
    return abs(best - worst) / max(abs(best), abs(worst), 1e-30)


def compare(kept, layers, adaptive):
    """How many heads keep the same, how many the same but for near ties, the widest gap of a score
    between what only one side keeps."""
    same, near, apart, widest = 0, 0, 0, 0.0
    for layer, (scores, slots) in enumerate(layers):
        ours = [{(head, s) for s in of_head} for head, of_head in enumerate(kept[layer])]
        them = [{(head, s) for s in of_head} for head, of_head in enumerate(slots)]
        of_layer = gap_between(scores, set().union(*ours) - set().union(*them),
                               set().union(*them) - set().union(*ours)) if adaptive else None
        for a, b in zip(ours, them, strict=True):
            if a == b:
                same += 1
                continue
            gap = of_layer if adaptive else gap_between(scores, a - b, b - a)
            widest = max(widest, gap)
            near, apart = near + (gap <= NEAR), apart + (gap > NEAR)
    return {"equal": same, "near_ties": near, "apart": apart, "widest_gap": widest}


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
    text, ids = text_of(o, head_dim)
    failed = False
    print(f"{o.gguf.stem}: {len(ids)} tokens of {os.path.basename(o.text)}")
    print(f"{'policy':16} {'ratio':>6} {'kept':>6} {'heads':>6} {'equal':>6} {'near':>5} {'apart':>6}"
          f" {'widest':>9}")
    for policy in o.policies.split(","):
        for ratio in map(float, o.ratios.split(",")):
            n_kept, layers = theirs(model, ids, policy, ratio)
            adaptive = policy.endswith(ADAPTIVE)
            options = ["--eviction-policy", policy.removesuffix(ADAPTIVE), "--kv-budget",
                       str(n_kept)]
            cache = ours(o, text, options + SHARED + POLICIES[policy], head_dim, len(ids) + 256)
            if cache.ids != ids:
                sys.exit("the ids of two runs differ")
            row = {"model": o.gguf.stem, "tokens": len(ids), "policy": policy, "ratio": ratio,
                   "kept": n_kept, **compare(cache.kept, layers, adaptive)}
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
