#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ask a server for the function calls of BFCL v4, and check each one with the benchmark's own checker.

    tools/serve_bfcl.py ask URL NAME RESULTS.jsonl [--cases N] [--clients N]
    tools/serve_bfcl.py compare A.jsonl B.jsonl

URL: a server with OpenAI's /v1/chat/completions. NAME: its model. The package bfcl_eval 2026.3.23 must be importable (its data
and its checker are used, its requirements are not), and jsonschema. The categories are simple_python, multiple, parallel,
parallel_multiple and irrelevance: 1,240 cases. --cases N takes every k-th one, so that about N remain; the same N always
chooses the same cases. Each case is one request: temperature 0, at most 512 tokens.

A result is "right" or "wrong" by the checker; where no function fits, an answer without a call is right. An answer that the
limit of tokens ended is "cut". Each call of an answer that ended must have arguments that are valid by the schema of its
function, closed to other names: those that are not are counted as invalid. `compare` counts the cases that only one of two
files has right. Exit status: 1 if a request failed or a call was invalid."""
import argparse
import collections
import concurrent.futures
import copy
import importlib.resources
import json
import re
import sys
import types
import urllib.request

CATEGORIES = ("simple_python", "multiple", "parallel", "parallel_multiple", "irrelevance")
N_CASES = 1240
MAX_TOKENS = 512


def import_checker():
    """The checker asks a table of models for one fact; the real table imports the clients of all of them."""
    config = types.SimpleNamespace(underscore_to_dot=True)
    stub = types.ModuleType("bfcl_eval.constants.model_config")
    stub.MODEL_CONFIG_MAPPING = collections.defaultdict(lambda: config)
    sys.modules[stub.__name__] = stub
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

    return lambda case, calls: ast_checker(case["function"], calls, case["truth"], Language.PYTHON, case["category"], "server")


def read_cases(n):
    data = importlib.resources.files("bfcl_eval") / "data"
    cases = []
    for category in CATEGORIES:
        name = f"BFCL_v4_{category}.json"
        truths = {}
        if category != "irrelevance":
            truths = {t["id"]: t["ground_truth"] for t in map(json.loads, (data / "possible_answer" / name).read_text().splitlines())}
        for case in map(json.loads, (data / name).read_text().splitlines()):
            cases.append({**case, "category": category, "truth": truths.get(case["id"])})
    return cases[:: max(1, round(len(cases) / n))]


# ---- tools ----


def json_schema(schema, kinds, closed):
    """A schema of the benchmark with JSON Schema's names of types. closed: its objects have no other properties."""
    out = dict(schema)
    if "type" in schema:
        out["type"] = kinds.get(schema["type"], "string")
    if isinstance(schema.get("properties"), dict):
        out["properties"] = {k: json_schema(v, kinds, closed) for k, v in schema["properties"].items()}
        if closed:
            out.setdefault("additionalProperties", False)
    if isinstance(schema.get("items"), dict):
        out["items"] = json_schema(schema["items"], kinds, closed)
    return out


def server_name(function):
    return re.sub(r"\.", "_", function["name"])


def tools_of(case, kinds):
    return [
        {"type": "function", "function": {**f, "name": server_name(f), "parameters": json_schema(f["parameters"], kinds, False)}}
        for f in copy.deepcopy(case["function"])
    ]


def is_valid(call, case, kinds):
    import jsonschema

    for f in case["function"]:
        if server_name(f) == call["name"]:
            try:
                jsonschema.validate(json.loads(call["arguments"]), json_schema(f["parameters"], kinds, True))
                return True
            except (ValueError, jsonschema.ValidationError):
                return False
    return False


# ---- one case ----


def ask(url, name, case, kinds):
    body = {
        "model": name,
        "messages": case["question"][0],
        "tools": tools_of(case, kinds),
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
    }
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as answer:
        return json.load(answer)


def judge(case, reply, check, kinds):
    choice = reply["choices"][0]
    calls = [c["function"] for c in choice["message"].get("tool_calls") or []]
    result = {"id": case["id"], "category": case["category"], "calls": calls, "content": choice["message"].get("content")}
    result["prompt_tokens"] = reply["usage"]["prompt_tokens"]
    cut = choice["finish_reason"] == "length"
    result["invalid"] = 0 if cut else sum(not is_valid(c, case, kinds) for c in calls)
    if cut:
        result["verdict"] = "cut"
    elif case["category"] == "irrelevance":
        result["verdict"] = "wrong" if calls else "right"
    else:
        result["verdict"] = "wrong"
        try:
            done = check(case, [{c["name"]: json.loads(c["arguments"])} for c in calls])
            result["verdict"] = "right" if done["valid"] else "wrong"
            result["error"] = done.get("error")
        except (ValueError, AttributeError, TypeError, KeyError) as e:  # arguments that are no object, say
            result["error"] = repr(e)
    return result


def run(args):
    check = import_checker()
    from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI as kinds

    def one(case):
        try:
            return judge(case, ask(args.url, args.name, case, kinds), check, kinds)
        except OSError as e:
            return {"id": case["id"], "category": case["category"], "verdict": "failed", "invalid": 0, "error": str(e)}

    with open(args.results, "w", encoding="utf-8") as out, concurrent.futures.ThreadPoolExecutor(args.clients) as pool:
        results = []
        for result in pool.map(one, read_cases(args.cases)):
            results.append(result)
            out.write(json.dumps(result) + "\n")
            out.flush()
    counts = summarise(results)
    print(json.dumps(counts))
    return 1 if counts["all"]["failed"] or counts["all"]["invalid"] else 0


def summarise(results):
    counts = {}
    for r in results:
        for name in (r["category"], "all"):
            c = counts.setdefault(name, {"cases": 0, "right": 0, "wrong": 0, "cut": 0, "failed": 0, "invalid": 0})
            c["cases"] += 1
            c[r["verdict"]] += 1
            c["invalid"] += r["invalid"]
    return counts


def compare(args):
    a, b = ({r["id"]: r for r in map(json.loads, open(f, encoding="utf-8"))} for f in (args.a, args.b))
    both = [i for i in a if i in b]
    for name in (*CATEGORIES, "all"):
        ids = [i for i in both if name in (a[i]["category"], "all")]
        right_a, right_b = ({i for i in ids if x[i]["verdict"] == "right"} for x in (a, b))
        prompts = sum(a[i].get("prompt_tokens") != b[i].get("prompt_tokens") for i in ids)
        print(
            f"{name}: {len(ids)} cases; right {len(right_a)} and {len(right_b)}; only the first {len(right_a - right_b)}, "
            f"only the second {len(right_b - right_a)}; prompts of another length {prompts}"
        )
    return 0


def main():
    p = argparse.ArgumentParser(description="Function calls of BFCL v4: exit status 1 if a call is invalid.")
    sub = p.add_subparsers(dest="command", required=True)
    q = sub.add_parser("ask")
    q.add_argument("url")
    q.add_argument("name")
    q.add_argument("results")
    q.add_argument("--cases", type=int, default=N_CASES, metavar="N", help=f"about how many (default {N_CASES}, all)")
    q.add_argument("--clients", type=int, default=4, metavar="N", help="requests at a time (default 4)")
    q.set_defaults(run=run)
    q = sub.add_parser("compare")
    q.add_argument("a")
    q.add_argument("b")
    q.set_defaults(run=compare)
    args = p.parse_args()
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
