#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare log likelihoods that lm_eval gets from a server with those that it computes by transformers.

    tools/serve_lm_eval.py URL MODEL NAME [TEXT]

URL: a server, such as http://127.0.0.1:8080; with the model's weights and cache in F32 the figures are equal but for rounding.
MODEL: the model's directory, or a GGUF file, which transformers dequantises to F32. NAME: its name in requests. TEXT: a file
whose passages are continued, 500 documents; without it, 125 generated documents. Prints one JSON object: the number of choices, the
largest difference of a log likelihood, the number of choices that are the likeliest text by transformers, the number whose flag
for that differs, the accuracy of both in percent, and seconds. Needs lm_eval, torch and transformers, for a GGUF file also gguf and
accelerate. serve_suites.py runs it."""
import json
import os
import random
import sys
import tempfile
import time
import urllib.request

DOCUMENTS = 125
PASSAGES = 500
CHOICES = 4
TASK = """task: choices
dataset_path: json
dataset_kwargs: {data_files: %s}
test_split: train
output_type: multiple_choice
doc_to_text: "{{context}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list: [{metric: acc}]
"""


def sentence(r):
    animal = r.choice("fox bear girl king dog mouse bird boy".split())
    kind = r.choice("old little happy clever hungry brave".split())
    did = r.choice(["went to the forest", "found a red ball", "saw a big house", "wanted to play", "asked her mother", "ran away"])
    end = r.choice([".", " and smiled.", " because it was late.", ", but no one was there.", " with her friends."])
    return f"The {kind} {animal} {did}{end}"


def complete(url, name, prompt, n):
    body = json.dumps({"model": name, "prompt": prompt, "max_tokens": n, "temperature": 0}).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["choices"][0]["text"]


def documents(url, name):
    """Contexts of one to five sentences, every 25th of 40. The first choice is what the model continues with, so that some choices are greedy."""
    r = random.Random(7)
    for i in range(DOCUMENTS):
        context = " ".join(sentence(r) for _ in range(r.choice([1, 2, 5]) if i % 25 else 40))
        others = [" ".join(sentence(r).split()[: r.randint(1, 9)]) for _ in range(CHOICES - 1)]
        yield {"context": context, "choices": [complete(url, name, context, r.randint(2, 8)).strip() or "The", *others], "answer": 0}


def passages(file):
    """Passages of 40 words, each with the 8 words that follow it and those that follow three others."""
    with open(file, encoding="utf-8") as f:
        words = f.read().split()
    r = random.Random(7)
    starts = [r.randrange(len(words) - 48) for _ in range(PASSAGES)]
    for start in starts:
        follow = [" ".join(words[i + 40 : i + 48]) for i in (start, *r.sample([s for s in starts if s != start], CHOICES - 1))]
        yield {"context": " ".join(words[start : start + 40]), "choices": follow, "answer": 0}


def tokenizer_of(file, folder):
    """A directory with the tokenizer of a GGUF file."""
    from transformers import AutoTokenizer

    path = os.path.join(folder, "tokenizer")
    AutoTokenizer.from_pretrained(os.path.dirname(file), gguf_file=os.path.basename(file)).save_pretrained(path)
    return path


def complete_directory(model, folder):
    """The model with the tokenizer configuration that transformers wants: names of its special tokens."""
    path = os.path.join(folder, "model")
    os.mkdir(path)
    for file in os.listdir(model):
        os.symlink(os.path.abspath(os.path.join(model, file)), os.path.join(path, file))
    configuration = os.path.join(path, "tokenizer_config.json")
    if not os.path.exists(configuration):
        with open(os.path.join(model, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        with open(os.path.join(model, "tokenizer.json"), encoding="utf-8") as f:
            names = {t["id"]: t["content"] for t in json.load(f)["added_tokens"]}
        special = {"bos_token": names[config["bos_token_id"]], "eos_token": names[config["eos_token_id"]]}
        with open(configuration, "w", encoding="utf-8") as f:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **special}, f)
    return path


def likelihoods(kind, arguments, folder):
    import lm_eval
    from lm_eval.tasks import TaskManager

    tasks = TaskManager(include_path=folder, include_defaults=False)
    result = lm_eval.simple_evaluate(model=kind, model_args=arguments, tasks=["choices"], task_manager=tasks, log_samples=True, bootstrap_iters=0)
    samples = sorted(result["samples"]["choices"], key=lambda s: s["doc_id"])
    return [(float(r[0]), str(r[1]) == "True") for s in samples for r in s["filtered_resps"]]


def accuracy(scores):
    """Percentage of documents whose first choice has the largest log likelihood."""
    rows = [[s[0] for s in scores[i : i + CHOICES]] for i in range(0, len(scores), CHOICES)]
    return 100 * sum(row[0] == max(row) for row in rows) / len(rows)


def main():
    url, model, name, *text = sys.argv[1:]
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        rows = os.path.join(folder, "rows.jsonl")
        with open(rows, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(d) + "\n" for d in (passages(*text) if text else documents(url, name)))
        with open(os.path.join(folder, "choices.yaml"), "w", encoding="utf-8") as f:
            f.write(TASK % rows)
        reference = {"dtype": "float32", "device": "cpu", "add_bos_token": True, "batch_size": 8}
        if os.path.isfile(model):
            tokenizer = tokenizer_of(os.path.abspath(model), folder)
            reference |= {"pretrained": os.path.dirname(os.path.abspath(model)), "gguf_file": os.path.basename(model)}
        else:
            tokenizer = reference["pretrained"] = complete_directory(model, folder)
        served = {"model": name, "base_url": url + "/v1/completions", "tokenizer_backend": "huggingface", "tokenizer": tokenizer,
                  "add_bos_token": True, "batch_size": 8, "num_concurrent": 4, "max_length": 2048}
        want = likelihoods("hf", reference, folder)
        have = likelihoods("local-completions", served, folder)
    differs = [abs(a[0] - b[0]) for a, b in zip(have, want)]
    print(json.dumps({"choices": len(want), "answered": len(have), "difference": max(differs), "greedy": sum(w[1] for w in want),
                      "flags": sum(a[1] != b[1] for a, b in zip(have, want)), "accuracy": [accuracy(have), accuracy(want)],
                      "seconds": round(time.time() - began, 1)}))


if __name__ == "__main__":
    main()
