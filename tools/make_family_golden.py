#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record what Hugging Face transformers computes in float32 with tiny random models of further families.

usage: make_family_golden.py OUT [--only NAME]...
needs: the PyPI packages torch and transformers (made with torch 2.15 and transformers 5.23); no network, no GPU

OUT gets NAME.json and models/NAME/ for each family, as described in make_golden.py. What is saved is bfloat16, what is
computed float32 of the same numbers. Norms, biases and scales are random too: as transformers initialises them (ones and
zeros) a wrong 1 + w or a forgotten bias would not be seen. Texts are longer than the windows.

A model and its record belong together: torch does not promise the same random numbers in another version.
"""
import argparse
import json
import os
import random

import torch
import transformers

ROWS = (0, 1, 23, 24, 25, 63, 95)  # positions whose logits are recorded in full
N_IDS, N_GREEDY = 96, 24
SMALL = dict(vocab_size=512, max_position_embeddings=512, bos_token_id=1, eos_token_id=2, pad_token_id=0, hidden_size=128,
             intermediate_size=256, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2)


def rope(theta, **scaling):
    return dict(rope_type="default", rope_theta=theta, **scaling)


# name: (configuration class, what differs from SMALL)
FAMILIES = {
    "qwen2": ("Qwen2Config", dict(rope_parameters=rope(1e6), tie_word_embeddings=True)),
    "qwen3": ("Qwen3Config", dict(head_dim=64, rope_parameters=rope(1e6), tie_word_embeddings=True)),
    "mistral-window": ("MistralConfig", dict(head_dim=32, sliding_window=24, tie_word_embeddings=False,
                                             rope_parameters=rope(1e6))),
    "gemma2": ("Gemma2Config", dict(head_dim=32, sliding_window=24, query_pre_attn_scalar=24,
                                    final_logit_softcapping=30.0, attn_logit_softcapping=5.0, rope_parameters=rope(1e4),
                                    tie_word_embeddings=True)),
    "gemma3": ("Gemma3TextConfig", dict(
        num_hidden_layers=7, num_key_value_heads=1, head_dim=64, sliding_window=24, query_pre_attn_scalar=48,
        layer_types=["sliding_attention"] * 5 + ["full_attention", "sliding_attention"], tie_word_embeddings=True,
        rope_parameters={"sliding_attention": rope(1e4),
                         "full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1e6)})),
}


@torch.no_grad()
def randomise(model):
    generator = torch.Generator().manual_seed(8)
    for p in model.parameters():
        if p.ndim > 1:
            p.mul_(2.5)  # attention should not be uniform
    for p in model.parameters():
        if p.ndim == 1 or p.std() == 0 or torch.isnan(p.std()):
            p.add_(torch.randn(p.shape, generator=generator) * 0.2)


@torch.no_grad()
def record(model, ids):
    logits = model(torch.tensor([ids])).logits[0].float()
    logp = torch.log_softmax(logits, -1)
    top = torch.topk(logits[-1], 10)
    text, greedy, margins = list(ids), [], []
    for _ in range(N_GREEDY):
        row = model(torch.tensor([text])).logits[0, -1].float()
        best = torch.topk(row, 2).values
        greedy.append(int(row.argmax()))
        margins.append((best[0] - best[1]).item())
        text.append(greedy[-1])
    return dict(ids=ids, nll=[-logp[i, ids[i + 1]].item() for i in range(len(ids) - 1)], last_top_ids=top.indices.tolist(),
                last_top_logits=top.values.tolist(), logits_rows={str(i): logits[i].tolist() for i in ROWS},
                greedy=greedy, greedy_margin=margins)


def make_model(out, name):
    config_class, sizes = FAMILIES[name]
    config = getattr(transformers, config_class)(**{**SMALL, **sizes})
    torch.manual_seed(1000 + len(name))
    make = transformers.AutoModelForCausalLM
    model = make.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    randomise(model)
    directory = f"{out}/models/{name}"
    model.to(torch.bfloat16).save_pretrained(directory)
    model = make.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
    rng = random.Random(12)
    r = record(model, [1] + [rng.randrange(3, config.vocab_size) for _ in range(N_IDS - 1)])
    with open(f"{out}/{name}.json", "w") as f:
        json.dump(r, f)
    print(name, f"least margin {min(r['greedy_margin']):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--only", action="append", choices=FAMILIES)
    args = parser.parse_args()
    os.makedirs(args.out + "/models", exist_ok=True)
    for name in args.only or FAMILIES:
        make_model(args.out, name)


if __name__ == "__main__":
    main()
