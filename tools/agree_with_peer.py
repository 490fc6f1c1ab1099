#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the greedy tokens of antigravity and llama.cpp on the same GGUF file.

usage: agree_with_peer.py --antigravity PROGRAM --peer DIR[:LIBDIR] --gguf FILE [--tokens 64] [--threads 2] [--json]

The peer is as in bench_peers.py. Each of 20 prompts is tokenized by both, which must agree, and continued greedily three
times: by antigravity with the weights as they are in the file, by the peer likewise, and by antigravity with the weights
and the cache in float32, which stands for what the file says exactly (tests/golden/test_real.c holds it to a record).
The table counts how many tokens of each continuation are the reference's before the first that differs.
"""
import argparse
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bench_peers import Peer

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def quicksort(items):\n",
    "The three laws of thermodynamics are",
    "In 1969, the first humans",
    "Water boils at 100 degrees Celsius because",
    "Dear Sir or Madam,\n\nI am writing to",
    "To make a good cup of tea, first",
    "#include <stdio.h>\n\nint main(void) {\n",
    "The main difference between a virus and a bacterium is",
    "SELECT name, COUNT(*) FROM orders",
    "My favourite season is autumn, because",
    "The train left the station at",
    "A prime number is",
    "Question: How many legs does a spider have?\nAnswer:",
    "The history of the Roman Empire begins",
    "Ingredients:\n- 2 eggs\n- 200 g flour\n",
    "La capitale de l'Italie est",
    "1, 1, 2, 3, 5, 8,",
    "It was a dark and stormy night;",
]


class GreedyPeer(Peer):
    def encode(self, text):
        vocab, raw = self.lib.llama_model_get_vocab(self.model), text.encode()
        ids = (self.lib.llama_token * (len(raw) + 8))()
        n = self.lib.llama_tokenize(vocab, raw, len(raw), ids, len(ids), True, False)
        return list(ids[:n])

    def generate(self, ids, n):
        ctx = self.context(0)
        self.lib.llama_memory_clear(self.lib.llama_get_memory(ctx), True)
        out = []
        for _ in range(n):
            batch = (self.lib.llama_token * len(ids))(*ids)
            if self.lib.llama_decode(ctx, self.lib.llama_batch_get_one(batch, len(ids))) != 0:
                sys.exit("the peer failed to decode")
            logits = self.lib.llama_get_logits_ith(ctx, -1)
            ids = [max(range(self.n_vocab), key=logits.__getitem__)]
            out += ids
        return out


def ours(args, prompt, more):
    command = [args.antigravity, "generate", "-m", args.gguf, "-p", prompt, "-n", str(args.tokens), "--ignore-eos"]
    command += ["--temperature", "0", "-t", str(args.threads), "--json", "-q", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    result = json.loads(done.stdout[done.stdout.rindex('{"') :] if not done.stdout.startswith("{") else done.stdout)
    return result["prompt_ids"], result["ids"]


def common(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--antigravity", required=True, help="the program")
    args.add_argument("--peer", required=True, metavar="DIR[:LIBDIR]", help="a build of llama-cpp-python")
    args.add_argument("--gguf", required=True)
    args.add_argument("--tokens", type=int, default=64)
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--json", action="store_true")
    args = args.parse_args()
    folder, _, libraries = args.peer.partition(":")
    peer = GreedyPeer(folder, libraries or os.path.join(folder, "lib"), args.gguf, args.threads)
    rows = []
    for prompt in PROMPTS:
        prompt_ids, as_is = ours(args, prompt, [])
        _, exact = ours(args, prompt, ["--weights", "f32", "--kv-type", "f32"])
        theirs_ids = peer.encode(prompt)
        if theirs_ids != prompt_ids:
            sys.exit(f"{prompt!r}: tokens {prompt_ids}, the peer's {theirs_ids}")
        theirs = peer.generate(theirs_ids, args.tokens)
        rows.append((prompt, common(as_is, exact), common(theirs, exact), common(as_is, theirs)))
    sums = [sum(r[i] for r in rows) for i in (1, 2, 3)]
    if args.json:
        print(json.dumps({"tokens": args.tokens * len(rows), "ours": sums[0], "peer": sums[1], "both": sums[2]}))
        return
    print("| prompt | antigravity | peer | both alike |\n|---|---:|---:|---:|")
    for prompt, *counts in rows:
        print(f"| {json.dumps(prompt)[1:33]} | " + " | ".join(map(str, counts)) + " |")
    print(f"| of {args.tokens * len(rows)} | " + " | ".join(map(str, sums)) + " |")


if __name__ == "__main__":
    main()
