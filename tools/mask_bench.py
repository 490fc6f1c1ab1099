#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs mask_bench on MaskBench (guidance-ai/jsonschemabench, maskbench/data) or on JSON-Schema-Test-Suite (tests/draft*).

    tools/mask_bench.py build/release/bin/mask_bench TOKENIZER FOLDER_OR_FILES... [--json OUT] [--limit N]

TOKENIZER is a tokenizer.json or a model. Texts are what json.dumps makes of the instances. Prints how many valid instances
were refused, how many invalid ones accepted, which keywords were refused, and the times; --json keeps a line per schema."""
import argparse
import collections
import glob
import json
import os
import re
import subprocess
import sys
import tempfile


def load_cases(paths):
    for path in paths:
        files = sorted(glob.glob(os.path.join(path, "**", "*.json"), recursive=True)) if os.path.isdir(path) else [path]
        for file in files:
            with open(file, encoding="utf-8") as f:
                data = json.load(f)
            groups = data if isinstance(data, list) else [data]  # the test suite has lists
            for i, group in enumerate(groups):
                tests = [{"text": json.dumps(t["data"], ensure_ascii=False), "valid": t["valid"]} for t in group["tests"]]
                tests = [t for t in tests if not re.search("[\ud800-\udfff]", t["text"])]
                name = os.path.basename(file) + (f"[{i}]" if len(groups) > 1 else "")
                yield {"id": name, "schema": json.dumps(group["schema"], ensure_ascii=False), "tests": tests}


def keyword_of(error):
    place = re.match(r"schema: (\S+?):? ", error)
    return (place.group(1).rstrip(":").rsplit("/", 1)[-1] if place else "") + ": " + re.sub(r"^schema: \S+ ", "", error)[:50]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("tokenizer")
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--json", help="write a line for each schema here")
    parser.add_argument("--limit", type=int, help="only so many schemas, evenly chosen")
    parser.add_argument("--any-order", action="store_true", help="properties in any order")
    parser.add_argument("--closed", action="store_true", help="closed objects")
    parser.add_argument("--show", type=int, default=10, help="so many examples of each mistake")
    args = parser.parse_args()
    cases = list(load_cases(args.paths))
    if args.limit:
        cases = cases[:: max(1, len(cases) // args.limit)]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as f:
        for case in cases:
            f.write(json.dumps(case, ensure_ascii=False) + "\n")
        f.seek(0)
        run = subprocess.run([args.program, args.tokenizer] + ["--any-order"] * args.any_order + ["--closed"] * args.closed, stdin=f, stdout=subprocess.PIPE, check=False)
    lines = run.stdout.decode().splitlines()
    if run.returncode or len(lines) != len(cases) + 1:
        last = json.loads(lines[-1])["id"] if lines else None
        sys.exit(f"{args.program} ended with {run.returncode} after {len(lines)} lines, the last {last}")
    times = json.loads(lines.pop())
    results = [json.loads(line) for line in lines]
    count = collections.Counter()
    errors = collections.Counter()
    shown = collections.Counter()
    for case, result in zip(cases, results):
        n_valid = sum(t["valid"] for t in case["tests"])
        count["schemas"] += 1
        if "error" in result:
            count["schemas refused"] += 1
            errors[result["status"] + " " + keyword_of(result["error"])] += 1
            count["instances of refused schemas"] += len(case["tests"])
            continue
        count["valid instances"] += n_valid
        count["invalid instances"] += len(case["tests"]) - n_valid
        for wrong in result["wrong"]:
            kind = "valid instances refused" if wrong["valid"] else "invalid instances accepted"
            count[kind] += 1
            shown[kind] += 1
            if shown[kind] <= args.show:
                print(f"{kind}: {result['id']} test {wrong['test']}, token {wrong['token']}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            for result in results:
                f.write(json.dumps(result) + "\n")
    for name, n in count.items():
        print(f"{n:8} {name}")
    for name, n in errors.most_common(60):
        print(f"{n:8} {name}")
    for name, values in times.items():
        print(name, " ".join(f"{k}={v:.6g}" for k, v in values.items()))


if __name__ == "__main__":
    main()
