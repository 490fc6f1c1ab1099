#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that show what a managed cache does to memory: a prompt of 16,384 tokens under a budget, 100,000
generated tokens, and a limit on the process's memory that an unmanaged run does not survive.

  tools/long_runs.py OUT_DIR PROGRAM [--large DIR] [--tokens N] [--prompt N] [--cgroup [DIR] [--only-cgroup]]

PROGRAM is the antigravity to run. --large is a model directory for the prompt (tools/make_bench_model.py writes
one of the 1B shape); without it, and for the other runs, the bundled demo model is used. Anonymous resident memory is
read from /proc every 50 ms. --cgroup adds runs in a memory control group, made for each inside DIR, which must be
writable (by default this process's own group; with version 2 one without processes, whose cgroup.subtree_control has
memory): with a budget, without a policy, and with a policy that only watches how much the group has left;
--only-cgroup leaves out the rest. Writes OUT_DIR/long_runs.json and, where matplotlib is installed,
OUT_DIR/long_runs.png. Needs Linux and nothing but Python."""
import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time


def resident_anon(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            for line in f:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


class Group:
    """A memory control group of version 1 or 2 that is there while a command runs."""

    def __init__(self, parent):
        mount, own = "/sys/fs/cgroup", ""
        with open("/proc/self/cgroup", encoding="ascii") as f:
            for line in f:
                _, names, path = line.rstrip("\n").split(":", 2)
                if "memory" in names.split(","):
                    mount, own = "/sys/fs/cgroup/memory", path
                elif not names and not own:
                    own = path
        self.path = os.path.join(parent or mount + own, f"antigravity-{os.getpid()}")
        os.mkdir(self.path)
        self.version2 = os.path.exists(os.path.join(self.path, "memory.max"))

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w", encoding="ascii") as f:
            f.write(str(value))

    def limit(self, n_bytes):
        self.write("memory.max" if self.version2 else "memory.limit_in_bytes", n_bytes)
        for name in ("memory.swap.max",) if self.version2 else ("memory.swappiness",):
            if os.path.exists(os.path.join(self.path, name)):
                self.write(name, 0)

    def peak(self):
        name = "memory.peak" if self.version2 else "memory.max_usage_in_bytes"
        try:
            with open(os.path.join(self.path, name), encoding="ascii") as f:
                return int(f.read())
        except OSError:
            return 0

    def remove(self):
        for _ in range(50):  # a process that has just ended may still be in it
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(0.1)


def run_in_group(command, parent, n_bytes):
    """As run(), in a control group with that limit. A process that passes it is killed: status -9."""
    group = Group(parent)
    try:
        group.limit(n_bytes)
        out = run(command, group=group)
        out["group_peak"] = group.peak()
        return out
    finally:
        group.remove()


def run(command, data_limit=None, group=None):
    """The exit status, the last line of stderr, seconds, [(seconds, bytes resident, bytes of text so far)]."""

    def limited():
        if group:
            group.write("cgroup.procs", os.getpid())
        if data_limit:
            resource.setrlimit(resource.RLIMIT_DATA, (data_limit, data_limit))

    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limited)
    written = [0]
    errors = []

    def count():
        while chunk := os.read(process.stdout.fileno(), 65536):
            written[0] += len(chunk)

    def collect():
        errors.extend(process.stderr.read().decode("utf-8", "replace").strip().split("\n"))

    threads = [threading.Thread(target=count), threading.Thread(target=collect)]
    for t in threads:
        t.start()
    samples = []
    while process.poll() is None:
        rss = resident_anon(process.pid)
        if rss:
            samples.append((round(time.monotonic() - begin, 3), rss, written[0]))
        time.sleep(0.05)
    for t in threads:
        t.join()
    return {
        "command": [os.path.basename(command[0])] + [c if len(c) < 80 else c[:60] + "..." for c in command[1:]],
        "status": process.returncode,
        "seconds": round(time.monotonic() - begin, 2),
        "last_line": errors[-1] if errors else "",
        "report": errors[-8:],
        "peak": max((s[1] for s in samples), default=0),
        "samples": samples,
    }


def mib(n):
    return f"{n / 2**20:.1f} MiB"


def prompts(args):
    """The same prompt with a budget of 1,024 tokens and with room for all of it."""
    ids = ",".join(str(i * 7919 % 4000) for i in range(args.prompt))
    model = ["-m", args.large] if args.large else []
    base = [args.program, "generate", *model, "-q", "-n", "1", "--temperature", "0", "--prompt-ids", ids]
    out = {}
    for policy in ("streaming", "keydiff", "snapkv"):
        out[policy] = run(base + ["--eviction-policy", policy, "--kv-budget", "1024", "--kv-prefill", "bounded"])
    if args.large:
        out["none"] = run(base + ["--max-seq-len", str(args.prompt + 16)])
    for name, r in out.items():
        print(f"prompt of {args.prompt}, {name}: status {r['status']}, peak {mib(r['peak'])}, {r['seconds']} s")
    return out


def marathon(args):
    """Long generations, both policies; speed of each tenth by the text it wrote."""
    out = {}
    for policy in ("streaming", "keydiff"):
        r = run([args.program, "generate", "-n", str(args.tokens), "--ignore-eos", "--seed", "1", "-p",
                 "Once upon a time", "--eviction-policy", policy, "--kv-budget", "512"])
        samples = r["samples"][len(r["samples"]) // 20:]
        tenth = max(len(samples) // 10, 2)
        speeds = []
        for i in range(0, len(samples) - tenth + 1, tenth):
            a, b = samples[i], samples[i + tenth - 1]
            speeds.append(round((b[2] - a[2]) / (b[0] - a[0]), 1))
        r["bytes_of_text_per_s"] = speeds
        r["memory_first_and_last"] = [samples[0][1], samples[-1][1]]
        out[policy] = r
        print(f"{args.tokens} tokens, {policy}: status {r['status']}, memory {mib(samples[0][1])} to "
              f"{mib(samples[-1][1])}, text per second by tenths {speeds}")
    return out


# What both kinds of limit are tried with: a cache that would grow to 1,800 tokens in F32.
def limited_command(args):
    return [args.program, "generate", "-q", "-n", "1800", "--ignore-eos", "--seed", "1", "--weights", "q4_0",
            "--kv-type", "f32", "-t", "1", "-p", "Once upon a time"]


WATCHED_LIMIT = 20 << 20
BUDGET = ["--eviction-policy", "keydiff", "--kv-budget", "256", "--max-seq-len", "384"]


def group_limits(args):
    """The least limit of a control group under which a run with a budget finishes, for it and for runs without."""
    base = limited_command(args)
    low, high = 1 << 20, 1 << 27
    while high - low > 1 << 18:
        middle = (low + high) // 2
        if all(run_in_group(base + BUDGET, args.cgroup, middle)["status"] == 0 for _ in range(2)):
            high = middle
        else:
            low = middle
    high += 1 << 19  # what the system itself takes differs a little from run to run
    out = {"least_for_managed": high}
    for name, more in (("managed", BUDGET), ("unmanaged", [])):
        out[name] = [run_in_group(base + more, args.cgroup, high) for _ in range(3)]
        for r in out[name]:
            print(f"control group of {mib(high)}, {name}: status {r['status']}, {r['seconds']} s, anonymous peak "
                  f"{mib(r['peak'])}, the group's {mib(r['group_peak'])}")
    for name, threshold in (("watched", "6"), ("unwatched", "0")):
        more = ["--eviction-policy", "keydiff", "--memory-threshold-mb", threshold]
        out[name] = [run_in_group(base + more, args.cgroup, WATCHED_LIMIT) for _ in range(3)]
        for r in out[name]:
            print(f"control group of {mib(WATCHED_LIMIT)}, {name}: status {r['status']}, {r['seconds']} s, anonymous "
                  f"peak {mib(r['peak'])}, the group's {mib(r['group_peak'])}")
    roomy = run_in_group(base, args.cgroup, 1 << 30)
    out["unmanaged_with_room"] = roomy
    print(f"control group of 1 GiB, unmanaged: status {roomy['status']}, {roomy['seconds']} s, anonymous peak "
          f"{mib(roomy['peak'])}, the group's {mib(roomy['group_peak'])}")
    return out


def limits(args):
    """A limit on data (heap and private mappings) halfway between a managed and an unmanaged run."""
    base = limited_command(args)
    managed = base + BUDGET
    low, high = 1 << 20, 1 << 30
    while high - low > 1 << 18:  # the least limit under which the managed run finishes
        middle = (low + high) // 2
        if run(managed, middle)["status"] == 0:
            high = middle
        else:
            low = middle
    out = {"least_for_managed": high, "managed": run(managed, high), "unmanaged": run(base, high)}
    print(f"limit {mib(high)}: managed status {out['managed']['status']}, unmanaged status "
          f"{out['unmanaged']['status']}: {out['unmanaged']['last_line']}")
    return out


def draw(results, path):
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("no matplotlib here: no plot")
        return
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), dpi=100)
    for name, r in results["prompt"].items():
        left.plot([s[0] / r["seconds"] * 100 for s in r["samples"]], [s[1] / 2**20 for s in r["samples"]], label=name)
    left.set(title="One long prompt", xlabel="share of the run, %", ylabel="anonymous resident memory, MiB", ylim=0)
    for name, r in results["tokens"].items():
        right.plot([s[0] for s in r["samples"]], [s[1] / 2**20 for s in r["samples"]], label=name)
    right.set(title="A long generation", xlabel="seconds", ylabel="anonymous resident memory, MiB", ylim=0)
    for axes in (left, right):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("program")
    parser.add_argument("--large", metavar="DIR")
    parser.add_argument("--tokens", type=int, default=100000)
    parser.add_argument("--prompt", type=int, default=16384)
    parser.add_argument("--cgroup", nargs="?", const="", metavar="DIR")
    parser.add_argument("--only-cgroup", action="store_true")
    parser.add_argument("--draw-only", action="store_true", help="plot what OUT_DIR/long_runs.json holds")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    path = os.path.join(args.out, "long_runs.json")
    if args.draw_only:
        with open(path, encoding="utf-8") as f:
            results = json.load(f)
    elif args.only_cgroup:
        group_limits(args)
        return 0
    else:
        results = {"prompt": prompts(args), "tokens": marathon(args), "limit": limits(args)}
        if args.cgroup is not None:
            results["group"] = group_limits(args)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(results, f)
    draw(results, os.path.join(args.out, "long_runs.png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
