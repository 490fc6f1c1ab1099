#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates texts with random JSON schemas at temperature 1, and lets jsonschema judge them.

    pip install 'jsonschema[format]'
    tools/check_schemas.py build/release/bin/antigravity -m MODEL [-m MODEL...] -n 500 [--seed S] [--options "-t 2"]

Every text that the model ended must parse and validate; what --max-tokens cut off is counted apart. Exit status 1 if one is
wrong. A schema and its text are the same for the same seed."""
import argparse
import collections
import json
import random
import shlex
import subprocess
import sys
import tempfile

import jsonschema

WORDS = "name age city kind items price tags note x y id value first last colour size".split()
PATTERNS = ["^[A-Z][a-z]{2,8}$", "^\\d{3}-\\d{4}$", "^(red|green|blue)+$", "a.c", "^[^\"\\\\]{0,10}$", "[0-9]$", "^\\S+@x$"]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "uri", "hostname", "duration", "json-pointer"]


def scalar(r):
    kind = r.randrange(9)
    if kind == 0:
        return {"type": "boolean"}
    if kind == 1:
        return {"enum": r.sample([1, 2.5, "red", "a \"b\"", None, True, [1, 2], {"k": "v"}, "é", -7], r.randint(1, 4))}
    if kind == 2:
        low = r.randint(-50, 50)
        return {"type": "integer", "minimum": low, "maximum": low + r.choice([0, 3, 40, 1000])}
    if kind == 3:
        low = round(r.uniform(-5, 5), r.randint(0, 2))
        return {"type": "number", r.choice(["minimum", "exclusiveMinimum"]): low, "maximum": low + r.choice([1, 0.25, 20])}
    if kind == 4:
        return {"type": "integer", "multipleOf": r.choice([2, 3, 5, 10]), "minimum": 0, "maximum": 500}
    if kind == 5:
        least = r.randint(0, 4)
        return {"type": "string", "minLength": least, "maxLength": least + r.randint(0, 12)}
    if kind == 6:
        return {"type": "string", "pattern": r.choice(PATTERNS), "maxLength": 20}
    if kind == 7:
        return {"type": "string", "format": r.choice(FORMATS), "maxLength": 60}
    return {"type": ["null", "integer"], "maximum": 9, "minimum": -9}


def obj(r, depth):
    names = r.sample(WORDS, r.randint(1, 4))
    schema = {"type": "object", "properties": {n: any_schema(r, depth - 1) for n in names}}
    schema["required"] = [n for n in names if r.random() < 0.7]
    kind = r.randrange(5)
    if kind < 3:
        schema["additionalProperties"] = False
    elif kind == 3:
        schema["additionalProperties"] = {"type": "integer", "minimum": 0, "maximum": 9}
        schema["maxProperties"] = len(names) + 2
    else:
        schema["patternProperties"] = {"^z_": {"type": "boolean"}}
        schema["additionalProperties"] = False
        schema["maxProperties"] = len(names) + 1
    if r.random() < 0.2 and len(names) > 1 and kind < 3:
        schema["dependentRequired"] = {names[0]: [names[1]]}
    return schema


def any_schema(r, depth):
    kind = r.random()
    if depth <= 0 or kind < 0.35:
        return scalar(r)
    if kind < 0.65:
        return obj(r, depth)
    if kind < 0.8:
        least = r.randint(0, 2)
        return {"type": "array", "items": any_schema(r, depth - 1), "minItems": least, "maxItems": least + r.randint(0, 3)}
    if kind < 0.86:
        return {"type": "array", "prefixItems": [scalar(r), scalar(r)], "items": False, "minItems": 1}
    if kind < 0.92:
        return {"anyOf": [any_schema(r, depth - 1), scalar(r)]}
    if kind < 0.96:
        tag = r.choice(WORDS)
        one = {"type": "object", "properties": {tag: {"const": "one"}, "n": scalar(r)}, "required": [tag, "n"],
               "additionalProperties": False}
        two = {"type": "object", "properties": {tag: {"const": "two"}}, "required": [tag], "additionalProperties": False}
        return {"oneOf": [one, two]}
    return {"allOf": [obj(r, depth - 1), {"type": "object", "required": [r.choice(WORDS)]}]}


def random_schema(seed):
    r = random.Random(seed)
    if r.random() < 0.08:
        node = {"type": "object", "properties": {"value": scalar(r), "next": {"$ref": "#/$defs/node"}}, "required": ["value"],
                "additionalProperties": False}
        return {"$defs": {"node": node}, "type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 1, "maxItems": 2}
    return obj(r, 3) if r.random() < 0.8 else any_schema(r, 3)


def generate(args, model, schema, seed):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(schema, f)
        f.flush()
        prompt = "A JSON object for the schema " + json.dumps(schema) + " is:\n"
        command = [args.program, "generate", "-p", prompt, "--json", "-q", "-n", str(args.max_tokens), "--temp", "1",
                   "--top-k", "0", "--top-p", "1", "--seed", str(seed), "--json-schema", f.name,
                   "--json-spacing", ["neat", "compact"][seed % 2]]
        command += (["-m", model] if model else []) + shlex.split(args.options)
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            return None, run.stderr
        return json.loads(run.stdout), ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("-m", "--model", action="append")
    parser.add_argument("-n", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--options", default="")
    args = parser.parse_args()
    models = args.model or [None]
    count = collections.Counter()
    for i in range(args.n):
        seed = args.seed + i
        schema = random_schema(seed)
        model = models[i % len(models)]
        out, error = generate(args, model, schema, seed)
        if out is None:
            refused = "no text obeys" in error or "schema: #" in error
            count["schemas refused" if refused else "failed"] += 1
            print(f"seed {seed}: {error.strip()}")
            if not refused:
                print(json.dumps(schema))
            continue
        if out["finish_reason"] == "length":
            count["cut off"] += 1
            continue
        try:
            jsonschema.validate(json.loads(out["text"]), schema, cls=jsonschema.Draft202012Validator,
                                format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
            count["valid"] += 1
        except (json.JSONDecodeError, jsonschema.ValidationError) as e:
            count["wrong"] += 1
            print(f"seed {seed}: {str(e).splitlines()[0]}\n  {json.dumps(schema)}\n  {out['text']}")
    print(", ".join(f"{n} {what}" for what, n in count.items()))
    sys.exit(1 if count["wrong"] or count["failed"] else 0)


if __name__ == "__main__":
    main()
