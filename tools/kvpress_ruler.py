#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RULER's scores here and in kvpress, on the same prompts and the same weights in float32.

  (an environment as for tools/kvpress_parity.py)
  /tmp/kvpress/bin/python tools/kvpress_ruler.py build/release/bin/antigravity MODEL.gguf \
      --tasks niah_single_2,niah_multivalue --length 700 --samples 20 --out docs/measured/kvpress-ruler.jsonl

The prompts are those that `eval ruler --print-prompts` writes, token for token, the question unseen.
There kvpress's pipeline answers them greedily (a context is read once for all presses), here `eval
ruler` does, with nothing protected that the method does not protect; both answers are scored as RULER
scores them. What was answered is kept in --work, so that an interrupted run goes on where it was.

For each press and share removed: the mean scores in percent, their difference, the standard error of
the paired differences, and how many prompts have the same score. "none" is the full cache. Exit
status 1 if a difference is beyond max(2 points, 2 standard errors). --page FILE writes the table
into a page, in the place of the one that is there."""

import argparse
import copy
import json
import math
import os
import pathlib
import re
import subprocess
import sys

import kvpress_parity

PRESSES = ["keydiff", "snapkv", "kvzip"]
SHARED = ["--weights", "f32", "--kv-type", "f32", "--protected-prefix", "0", "--kv-recent", "0",
          "--snapkv-window", "64", "--snapkv-kernel", "5", "--snapkv-pool", "avg"]


def ruler(o, options):
    args = [o.antigravity, "eval", "ruler", "-q", "-m", str(o.gguf), "--tasks", o.tasks, "--length",
            str(o.length), "--samples", str(o.samples), "--first", str(o.first), "--seed",
            str(o.seed)]
    return subprocess.run(args + options, check=True, stdout=subprocess.PIPE, text=True).stdout


def ours(o):
    """{(task, policy, ratio): score of each prompt}"""
    path = o.work / "ruler-ours.json"
    policies = [p for p in PRESSES if p != "kvzip"]
    key = [o.gguf.stem, o.tasks, o.length, o.first, o.seed, o.ratios]
    known = json.loads(path.read_text()) if path.exists() else {}
    if known.get("key") != key or known["samples"] < o.samples:
        told = ruler(o, ["--eviction-policy", ",".join(policies), "--replay", "1", "--ratios",
                         o.ratios, "-o", "json", *SHARED])
        known = {"key": key, "samples": o.samples, "rows": json.loads(told)["rows"]}
        path.write_text(json.dumps(known))
    return {(r["task"], r["policy"], r["removed"] or 0.0): r["scores"][:o.samples]
            for r in known["rows"] if r["task"] != "all solved"}


class Pipeline:
    """kvpress's, on prompts that are tokens already. A context is read once: the hooks of all presses
    see what the one reading gave, and kvzip's second ratio what its first replay gave."""

    def __init__(self, o):
        import kvpress
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        if not (o.model / "tokenizer.json").exists():
            at = {"pretrained_model_name_or_path": str(o.gguf.parent), "gguf_file": o.gguf.name}
            AutoTokenizer.from_pretrained(**at).save_pretrained(o.model)
        self.model = AutoModelForCausalLM.from_pretrained(o.model, dtype=torch.float32,
                                                          attn_implementation="sdpa").eval()
        self.pipe = kvpress.KVPressTextGenerationPipeline(
            model=self.model, tokenizer=AutoTokenizer.from_pretrained(o.model))

    def read(self, ids):
        """A full cache, and what the hooks of a press are called with."""
        from transformers import DynamicCache
        calls, cache = [], DynamicCache(config=self.model.config)

        def record(module, args, kwargs, output):
            calls.append((module, args, kwargs, output))

        hooks = [layer.self_attn.register_forward_hook(record, with_kwargs=True)
                 for layer in self.model.model.layers]
        self.model.model(input_ids=ids, past_key_values=cache)
        for hook in hooks:
            hook.remove()
        return cache, calls

    def press(self, press, cache, calls):
        """The cache as it is behind a press that looks at one layer after the other."""
        cache = copy.deepcopy(cache)
        press.post_init_from_model(self.model)
        for module, args, kwargs, output in calls:
            module.rotary_emb = self.model.model.rotary_emb
            press.forward_hook(module, args, {**kwargs, "past_key_values": cache}, output)
        return cache

    def replay(self, press, ids, cache, known):
        """Masks what kvzip would remove; `known` holds the scores of a first replay."""
        if known:
            press.score_val = known[0].clone()
            press.compress_post(self.model)
            return
        choose = press.compress_post

        def record(model):
            known.append(press.score_val.clone())
            choose(model)

        press.compress_post = record
        with press(self.model):
            press._context_ids, press._cache = ids, cache

    def answers(self, prompt, settings):
        import torch
        from kvpress_parity import press_of
        ids, n, known = torch.tensor([prompt["ids"]]), prompt["n_context"], []
        context, question = ids[:, :n], ids[:, n:]
        with torch.no_grad():
            full, calls = self.read(context)
            # What kvzip masks stays masked until the next context is read.
            for policy, ratio in sorted(settings, key=lambda setting: setting[0] == "kvzip"):
                cache = full
                if policy == "kvzip":
                    self.replay(press_of(policy, ratio), context, full, known)
                elif policy != "none":
                    cache = self.press(press_of(policy, ratio), full, calls)
                lengths = [cache.get_seq_length(layer) for layer in range(len(cache))]
                yield (policy, ratio), self.pipe.generate_answer(question, cache, n,
                                                                 prompt["max_new_tokens"])
                self.pipe._remove_answer_from_cache(cache, lengths)


def score(prompt, answer):
    found = sum(r.lower() in answer.lower() for r in prompt["references"])
    return found / len(prompt["references"])


def theirs(o, prompts, settings):
    """The same as ours()."""
    path, said, pipe = o.work / "ruler-answers.jsonl", {}, None
    for line in path.read_text().splitlines() if path.exists() else []:
        row = json.loads(line)
        said[tuple(row["key"])] = row["answer"]
    scores = {}
    for prompt in prompts:
        name = (o.gguf.stem, prompt["task"], prompt["length"], prompt["seed"], prompt["prompt"])
        left = [setting for setting in settings if (*name, *setting) not in said]
        if left:
            pipe = pipe or Pipeline(o)
            for setting, answer in pipe.answers(prompt, left):
                said[*name, *setting] = answer
                with open(path, "a") as f:
                    f.write(json.dumps({"key": [*name, *setting], "answer": answer}) + "\n")
        for setting in settings:
            one = score(prompt, said[*name, *setting])
            scores.setdefault((prompt["task"], *setting), []).append(one)
    return scores


def compared(a, b):
    """Scores of the same prompts, ours and theirs, in percent."""
    n, differences = len(a), [100 * (x - y) for x, y in zip(a, b, strict=True)]
    mean = sum(differences) / n
    error = math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1) / n) if n > 1 else 0.0
    return {"ours": 100 * sum(a) / n, "theirs": 100 * sum(b) / n, "difference": mean,
            "standard_error": error, "within": abs(mean) <= max(2, 2 * error),
            "prompts_alike": sum(d == 0 for d in differences), "prompts": n}


def table(rows):
    yield ("| press | removed | task | prompts | here | kvpress | difference | its standard error |"
           " same score |")
    yield "|---|---:|---|---:|---:|---:|---:|---:|---:|"
    for r in rows:
        yield (f"| {r['policy']} | {100 * r['ratio']:g} % | {r['task']} | {r['prompts']} |"
               f" {r['ours']:.1f} | {r['theirs']:.1f} | {r['difference']:+.1f} |"
               f" {r['standard_error']:.1f} | {r['prompts_alike']} |")


def write_page(path, rows):
    page, mark = pathlib.Path(path), r"(<!-- table kvpress -->\n).*?(<!-- end -->)"
    body = "\n".join(table(rows)) + "\n"
    text, n = re.subn(mark, lambda m: m.group(1) + body + m.group(2), page.read_text(), flags=re.S)
    if not n:
        sys.exit(f"{path}: has no mark for the table")
    page.write_text(text)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("antigravity")
    p.add_argument("gguf", type=pathlib.Path)
    p.add_argument("--tasks", default="niah_single_2,niah_multivalue")
    p.add_argument("--length", type=int, default=700, help="tokens of a prompt and its answer")
    p.add_argument("--samples", type=int, default=20, help="prompts of each task")
    p.add_argument("--first", type=int, default=100, help="number of the first prompt")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--ratios", default="0.5,0.75", help="shares removed")
    p.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/kvpress-parity"))
    p.add_argument("--out", help="JSON lines are written to this file")
    p.add_argument("--page", help="a page with a mark for the table")
    o = p.parse_args()
    os.environ.update(HF_HUB_DISABLE_PROGRESS_BARS="1", TQDM_DISABLE="1")
    o.model = o.work / o.gguf.stem
    os.makedirs(o.model, exist_ok=True)
    kvpress_parity.write_model(o)
    ratios = [float(r) for r in o.ratios.split(",")]
    settings = [("none", 0.0)] + [(press, r) for press in PRESSES for r in ratios]
    prompts = [json.loads(line) for line in ruler(o, ["--print-prompts"]).splitlines()]
    other, mine = theirs(o, prompts, settings), ours(o)
    tasks, rows = list(dict.fromkeys(prompt["task"] for prompt in prompts)), []
    for policy, ratio in settings:
        for some in [[t] for t in tasks] + ([tasks] if len(tasks) > 1 else []):
            a, b = ([x for t in some for x in side[t, policy, ratio]] for side in (mine, other))
            rows.append({"model": o.gguf.stem, "length": o.length, "seed": o.seed, "first": o.first,
                         "policy": policy, "ratio": ratio,
                         "task": some[0] if len(some) == 1 else "all", **compared(a, b),
                         "ours_scores": a, "theirs_scores": b})
    print("\n".join(table(rows)))
    if o.out:
        pathlib.Path(o.out).write_text("".join(json.dumps(r) + "\n" for r in rows))
    if o.page:
        write_page(o.page, rows)
    return 0 if all(r["within"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
