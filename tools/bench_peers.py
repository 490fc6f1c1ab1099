#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time antigravity and llama.cpp side by side: the same GGUF file and threads, taking turns in one run.

usage: bench_peers.py --antigravity PROGRAM --peer [NAME=]DIR... --gguf FILE [--shape 1b] [--threads 2] [--rounds 5]
                      [--out BASE]

The peer is the library inside the PyPI package llama-cpp-python. A DIR holds its Python bindings (llama_cpp/llama_cpp.py
and llama_cpp/_ctypes_extensions.py) and beside them, or in DIR/lib or llama_cpp/lib, libllama.so with the libraries it
needs; nothing of Python but its standard library is imported, so a folder copied to another machine will do:

  CMAKE_ARGS="-DGGML_NATIVE=ON -DGGML_OPENMP=OFF" pip install --no-deps --target /tmp/peer llama-cpp-python
  tools/make_bench_gguf.py /tmp/1b.gguf
  taskset -c 0,1 tools/bench_peers.py --antigravity build/release/bin/antigravity --peer /tmp/peer --gguf /tmp/1b.gguf --shape 1b

With --shape antigravity makes up weights of that shape in place of reading the file, which has no tokenizer then.
Several --peer are several builds; with NAME=DIR:LIBDIR the libraries lie apart from the bindings. A round runs each row
once with each program; the table shows medians of the rounds. BASE.md and BASE.json are written with --out.
"""
import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time

SHAPES = {"1b": "llama-3.2-1b", "3b": "llama-3.2-3b"}
DEPTH_SPARE = 256  # slots behind the depth
LARGEST_BATCH = 2048


# ---- the peer: a process of its own that keeps the model, and times what it is asked for ----


def import_bindings(folder, libraries):
    """The module llama_cpp.llama_cpp without its package, which asks for more than ctypes."""
    import types
    import typing

    os.environ["LLAMA_CPP_LIB_PATH"] = libraries
    sys.modules.setdefault("typing_extensions", typing)
    package = types.ModuleType("llama_cpp")
    package.__path__ = [os.path.join(folder, "llama_cpp")]
    sys.modules["llama_cpp"] = package
    import importlib

    return importlib.import_module("llama_cpp.llama_cpp")


class Peer:
    def __init__(self, folder, libraries, gguf, threads):
        self.lib = import_bindings(folder, libraries)
        self.quiet = self.lib.llama_log_callback(lambda level, text, user: None)
        self.lib.llama_log_set(self.quiet, None)
        self.lib.llama_backend_init()
        params = self.lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = self.lib.llama_model_load_from_file(gguf.encode(), params)
        if not self.model:
            sys.exit(f"the peer cannot load {gguf}")
        self.n_vocab = self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model))
        self.threads = threads
        self.contexts = {}

    def context(self, depth):
        """A context whose cache holds `depth` tokens."""
        if depth in self.contexts:
            return self.contexts[depth]
        params = self.lib.llama_context_default_params()
        params.n_ctx = depth + (DEPTH_SPARE if depth else LARGEST_BATCH)
        params.n_batch, params.n_ubatch = LARGEST_BATCH, 512
        params.n_threads = params.n_threads_batch = self.threads
        ctx = self.lib.llama_init_from_model(self.model, params)
        if not ctx:
            sys.exit("the peer cannot make a context")
        self.contexts[depth] = ctx
        self.feed(ctx, depth)
        return ctx

    def feed(self, ctx, n):
        while n > 0:
            size = min(n, LARGEST_BATCH)
            ids = (self.lib.llama_token * size)(*[(7 * i + 11) % self.n_vocab for i in range(size)])
            if self.lib.llama_decode(ctx, self.lib.llama_batch_get_one(ids, size)) != 0:
                sys.exit("the peer failed to decode")
            n -= size
        self.lib.llama_synchronize(ctx)

    def run(self, kind, n, depth):
        """Tokens per second of a prompt of n tokens (pp), or of n tokens one by one (tg)."""
        ctx = self.context(depth)
        self.lib.llama_memory_seq_rm(self.lib.llama_get_memory(ctx), 0, depth, -1)
        begin = time.perf_counter()
        if kind == "pp":
            self.feed(ctx, n)
        else:
            for _ in range(n):
                self.feed(ctx, 1)
        return n / (time.perf_counter() - begin)


def serve(args):
    peer = Peer(*args.serve, args.gguf, args.threads)
    print(json.dumps({"system": peer.lib.llama_print_system_info().decode()}), flush=True)
    for line in sys.stdin:
        kind, n, depth = line.split()
        print(json.dumps(peer.run(kind, int(n), int(depth))), flush=True)


# ---- the table ----


class PeerProcess:
    def __init__(self, spec, args):
        name, _, place = spec.rpartition("=")
        self.name = name or "llama.cpp"
        folder, _, libraries = place.partition(":")
        folder = os.path.abspath(folder)
        choices = [libraries] if libraries else [os.path.join(folder, d) for d in ("llama_cpp/lib", "lib", "")]
        found = [d for d in choices if os.path.exists(os.path.join(d, "libllama.so"))]
        if not found:
            sys.exit(f"no libllama.so in {', '.join(choices)}")
        command = [sys.executable, os.path.abspath(__file__), "--serve", folder, os.path.abspath(found[0])]
        command += ["--gguf", os.path.abspath(args.gguf), "--threads", str(args.threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.alive = True
        self.system = (self.answer() or {}).get("system")

    def answer(self):
        """None: the process has ended; the others go on without it."""
        line = self.process.stdout.readline() if self.alive else ""
        if line:
            return json.loads(line)
        if self.alive:
            print(f"{self.name}: ended with {self.process.wait()}, left out", file=sys.stderr)
        self.alive = False
        return None

    def run(self, row):
        if not self.alive:
            return None
        self.process.stdin.write("{} {} {}\n".format(*row))
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        if self.alive:
            self.process.stdin.close()
            self.process.wait()


def run_ours(args, rows, depth):
    """The rows of one depth, in one call of the program: [(row, tok/s, share of the read rate or None)]."""
    model = ["--shape", SHAPES[args.shape]] if args.shape else ["-m", args.gguf]
    command = [args.antigravity, "bench", *model, "-t", str(args.threads), "-r", "1", "-o", "json"]
    for option, kind in (("-p", "pp"), ("-n", "tg")):
        command += [option, ",".join(str(n) for k, n, d in rows if k == kind and d == depth) or "0"]
    command += ["-d", str(depth)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return [
        (("tg", r["n_gen"], depth) if r["n_gen"] else ("pp", r["n_prompt"], depth), r["tok_per_s"], r["bandwidth_share"])
        for r in json.loads(done.stdout)
    ]


def parse_row(text):
    found = re.fullmatch(r"(pp|tg)([1-9]\d*)(?:@(\d+))?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text}: not pp512, tg128 or tg64@4096")
    kind, n, depth = found[1], int(found[2]), int(found[3] or 0)
    if depth and n > DEPTH_SPARE:
        raise argparse.ArgumentTypeError(f"{text}: at most {DEPTH_SPARE} tokens at a depth")
    if n > LARGEST_BATCH:
        raise argparse.ArgumentTypeError(f"{text}: at most {LARGEST_BATCH} tokens")
    return kind, n, depth


def row_name(row):
    return f"{row[0]}{row[1]}" + (f" @ d{row[2]}" if row[2] else "")


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            return re.search(r"model name\s*:\s*(.*)", f.read())[1]
    except (OSError, TypeError):
        return platform.processor() or "unknown"


def measure(args):
    peers = [PeerProcess(spec, args) for spec in args.peer]
    samples = {row: {"antigravity": [], **{p.name: [] for p in peers}} for row in args.rows}
    shares = {row: [] for row in args.rows}
    for row in args.rows:
        for peer in peers:
            peer.run((row[0], min(row[1], 16), row[2]))  # warms up, and fills the depth
    for n in range(args.rounds):
        for depth in sorted({row[2] for row in args.rows}):
            for row, speed, share in run_ours(args, args.rows, depth):
                samples[row]["antigravity"].append(speed)
                if share:
                    shares[row].append(share)
            for peer in peers:
                for row in (r for r in args.rows if r[2] == depth):
                    speed = peer.run(row)
                    if speed:
                        samples[row][peer.name].append(speed)
        print(f"round {n + 1} of {args.rounds}", file=sys.stderr)
    for peer in peers:
        peer.close()
    version = subprocess.run([args.antigravity, "--version"], capture_output=True, text=True).stdout.strip()
    return {
        "date": datetime.date.today().isoformat(),
        "processor": processor(),
        "threads": args.threads,
        "rounds": args.rounds,
        "model": SHAPES[args.shape] + " q4_0" if args.shape else os.path.basename(args.gguf),
        "version": version,
        "peers": {p.name: p.system for p in peers if p.alive},
        "rows": [
            {"test": row_name(row), "samples": samples[row], "bandwidth_shares": shares[row]} for row in args.rows
        ],
    }


def table(result):
    names = ["antigravity", *result["peers"]]
    lines = [
        f"{result['processor']}, {result['threads']} threads, {result['model']}, medians of "
        f"{result['rounds']} rounds, {result['date']}, tokens/s:",
        "",
        "| test | " + " | ".join(names) + " | " + " | ".join(f"against {n}" for n in names[1:]) + " |",
        "|---|" + "---:|" * (2 * len(names) - 1),
    ]
    for row in result["rows"]:
        medians = [statistics.median(row["samples"][n]) for n in names]
        cells = [f"{m:.1f}" for m in medians] + [f"{medians[0] / m:.2f}x" for m in medians[1:]]
        lines.append(f"| {row['test']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--antigravity", help="the program")
    args.add_argument("--peer", action="append", metavar="[NAME=]DIR[:LIBDIR]", help="a build of llama-cpp-python")
    args.add_argument("--gguf", required=True, help="a model, or what tools/make_bench_gguf.py wrote")
    args.add_argument("--shape", choices=SHAPES, help="of the GGUF, for weights that are made up")
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--rows", type=lambda s: [parse_row(r) for r in s.split(",")], default="pp512,pp16,tg128,tg64@4096")
    args.add_argument("--out", metavar="BASE", help="write BASE.md and BASE.json")
    args.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    args = args.parse_args()
    if args.serve:
        serve(args)
        return
    if not args.antigravity or not args.peer:
        sys.exit("--antigravity and --peer are needed; see --help")
    result = measure(args)
    print(table(result), end="")
    if args.out:
        with open(args.out + ".json", "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
        with open(args.out + ".md", "w", encoding="utf-8") as f:
            f.write(table(result))


if __name__ == "__main__":
    main()
