#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile clients against `antigravity serve` and `pull`: one line for each row and build, then the sum.

    tests/hostile/run.py --build release=build/release/bin/antigravity --build asan=build/asan/bin/antigravity

Exit status: 0 if each row passed, 1 if one failed, 2 for wrong usage. README.md describes the rows."""
import argparse
import importlib
import os
import random
import sys
import tempfile
import threading
import time
import traceback

from checks import Row

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# Row of the table, module, function, seconds of the quick mode.
ROWS = (
    ("1", "row1_workers", "run", 10),
    ("2", "row2_memory", "run", 10),
    ("2g", "row2_memory", "run_in_group", 10),
    ("3", "row3_templates", "run", 8),
    ("4", "row4_grammar", "run", 10),
    ("5", "row5_connections", "run", 10),
    ("6", "row6_hub", "run", 8),
    ("7", "row7_probe", "run", 8),
    ("8", "row8_listen_fds", "run", 5),
    ("9", "row9_keys", "run", 8),
)


def read_arguments():
    p = argparse.ArgumentParser(description="Hostile clients: exit status 1 if a promise is broken.")
    p.add_argument("--build", action="append", metavar="NAME=PROGRAM", help="a program to attack; may be given several times")
    p.add_argument("--row", action="append", metavar="N", help="only this row: 1 to 9, 2g; may be given several times")
    p.add_argument("--seconds", type=float, default=600, help="for each row and build (default 600)")
    p.add_argument("--quick", action="store_true", help="5 to 10 seconds for each row")
    p.add_argument("--seed", default=str(random.SystemRandom().randrange(10**9)), help="of the random bodies (default: random)")
    p.add_argument("--model", default=os.environ.get("MODEL") or os.path.join(ROOT, "models", "demo"))
    p.add_argument("--shared", default=os.path.join(ROOT, "..", "shared"), help="reference files: templates for rows 3 and 7")
    p.add_argument("--logs", help="directory for the logs of servers (default: a new temporary one)")
    o = p.parse_args()
    o.build = o.build or ["release=" + os.path.join(ROOT, "build", "release", "bin", "antigravity")]
    for build in o.build:
        if "=" not in build or not os.access(build.partition("=")[2], os.X_OK):
            p.error("--build %s: NAME=PROGRAM is needed, and a program that can be run" % build)
    known = {r[0] for r in ROWS} | {"2"}
    if any(r not in known for r in o.row or ()):
        p.error("--row: one of %s is needed" % ", ".join(r[0] for r in ROWS))
    return o


def is_sanitized(program):
    with open(program, "rb") as f:
        data = f.read()
    return b"__asan_init" in data or b"__tsan_init" in data


def run_row(definition, name, program, options):
    number, module, function, quick_s = definition
    if options.quick:
        options.seconds = quick_s
    row = Row(number, name, program, is_sanitized(program), options)
    row.begin()
    try:
        getattr(importlib.import_module(module), function)(row)
    except Exception as e:  # A client that fails has not shown that the row holds.
        row.error("%s: %s" % (type(e).__name__, e))
        with open(os.path.join(options.logs, "row-%s-%s.trace" % (number, name)), "w") as f:
            traceback.print_exc(file=f)
    finally:
        row.close()
    if not row.n_requests and not any(n.startswith("skipped") for n in row.notes):
        row.error("no request was made")
    print(row.text(), flush=True)
    return not row.failed()


def main():
    options = read_arguments()
    options.logs = os.path.abspath(options.logs or tempfile.mkdtemp(prefix="antigravity-hostile-"))
    options.model, options.shared = os.path.abspath(options.model), os.path.abspath(options.shared)
    os.makedirs(options.logs, exist_ok=True)
    threading.stack_size(16 << 20)
    duration = "5 to 10 s" if options.quick else "%g s" % options.seconds
    print("seed %s, %s for each row, logs in %s" % (options.seed, duration, options.logs), flush=True)
    start, results = time.monotonic(), []
    for build in options.build:
        name, _, program = build.partition("=")
        for definition in ROWS:
            if not options.row or definition[0] in options.row or (definition[0] == "2g" and "2" in options.row):
                results.append(run_row(definition, name, os.path.abspath(program), options))
    n_failed = results.count(False)
    print("%d passed, %d failed in %.0f s" % (len(results) - n_failed, n_failed, time.monotonic() - start))
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
