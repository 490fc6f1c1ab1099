#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turn what tools/measure_performance.sh and tools/bench_peers.py measured into tables and plots.

usage: plot_bench.py DIR [--page docs/measured/speed.md --images docs/images]

DIR holds NAME.json of `antigravity bench -o json`, and peers.json if a peer was timed. Without --page the tables go to
the standard output and the plots, speed-context.png and speed-threads.png, to DIR. With it, the part of the page between the lines
<!-- measured --> and <!-- end --> is written anew. Plots need matplotlib, tables do not; --no-plots leaves the plots.
"""
import argparse
import json
import os
import statistics
import sys

SETS = {"isa-avx2": "AVX2", "isa-avx512": "AVX-512"}
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"


def load(folder):
    runs = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                runs[name[:-5]] = json.load(f)
    return runs


def row_of(runs, name, kind, n, depth=0):
    """The row of n tokens read (pp) or decoded (tg), or None if it was not measured."""
    for row in runs.get(name, []):
        if row["n_prompt" if kind == "pp" else "n_gen"] == n and row["depth"] == depth:
            return row
    return None


def best_name(runs):
    sets = runs["machine"]["sets"].split()
    return {"amx": "AMX", "avx512": "AVX-512", "avx2": "AVX2"}.get(sets[-1], sets[-1]) if sets else "best"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    lines += ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join(lines) + "\n"


def percent(x):
    return f"{100 * x:.0f} %"


def read_rate(row):
    return max(row["read_bytes_per_s_before"], row["read_bytes_per_s_after"])


def spread(row):
    return f"{row['tok_per_s_min']:.1f} to {row['tok_per_s_max']:.1f}"


def decode_line(what, row):
    rates = f"{row['read_bytes_per_s_before'] / 1e9:.1f}, {row['read_bytes_per_s_after'] / 1e9:.1f}"
    return [what, f"{row['tok_per_s']:.1f}", spread(row), rates, percent(row["bandwidth_share"])]


def decode_table(runs):
    best = best_name(runs)
    wanted = [(f"Q4_0, {best}", "best", 128, 0)]
    wanted += [(f"Q4_0, {isa}", name, 128, 0) for name, isa in reversed(SETS.items()) if isa != best]
    wanted += [(f"Q4_0 after {d} tokens", "depth", 64, d) for d in (1024, 2048, 4096, 8192, 16384)]
    wanted += [("Q8_0", "weights-q8_0", 64, 0), ("F16", "weights-f16", 64, 0)]
    wanted += [(f"Q4_0, {t} thread{'s' * (t > 1)}", f"threads-{t}", 128, 0) for t in (1, 4, 8, 16)]
    lines = []
    for what, name, n, depth in wanted:
        row = row_of(runs, name, "tg", n, depth)
        if row:
            lines.append(decode_line(what, row))
    alone, together = row_of(runs, "best", "tg", 128), row_of(runs, "parallel", "tg", 32)
    if alone and together:
        line = decode_line("Q4_0, 8 sequences, together", together)
        line[0] += f" ({together['tok_per_s'] / alone['tok_per_s']:.1f}x one)"
        lines.append(line)
    return table(["decode", "tokens/s", "lowest to highest", "read GB/s, before and after", "share"], lines)


def prefill_table(runs):
    best, lines = best_name(runs), []
    full, alone = row_of(runs, "best", "pp", 512), row_of(runs, "best", "tg", 128)
    for what, name, n in [(f"16 tokens, {best}", "best", 16), (f"32 tokens, {best}", "best", 32),
                          (f"512 tokens, {best}", "best", 512), (f"4096 tokens, {best}", "long-prompt", 4096)] + [
                              (f"512 tokens, {isa}", n, 512) for n, isa in reversed(SETS.items()) if isa != best] + [
                                  (f"512 tokens, {best}, {t} thread{'s' * (t > 1)}", f"threads-{t}", 512)
                                  for t in (1, 4, 8, 16)]:
        row = row_of(runs, name, "pp", n)
        if not row:
            continue
        note = ""
        if n < 512 and full and alone:
            limit = min(n * read_rate(alone) / row["weight_bytes"], full["tok_per_s"])
            note = f"{percent(row['tok_per_s'] / limit)} of the smaller of pp512 and one read of the weights"
        if n > 512 and full:
            note = f"{percent(row['tok_per_s'] / full['tok_per_s'])} of pp512"
        lines.append([what, f"{row['tok_per_s']:.1f}", spread(row), note])
    return table(["prefill", "tokens/s", "lowest to highest", ""], lines)


def load_line(runs):
    timings = [r["timings"]["load_s"] for r in runs.get("load", [])]
    if not timings:
        return ""
    peak = max(r["memory"]["peak_bytes"] for r in runs["load"]) / 1e6
    return (
        f"A BF16 directory of this shape (2.5 GB, in the page cache) is converted to Q4_0 in {statistics.median(timings):.1f} s "
        f"({min(timings):.1f} to {max(timings):.1f}) with 2 threads.\nThe process uses at most {peak:.0f} MB.\n"
    )


def peer_table(runs):
    peers = runs.get("peers")
    if not peers:
        return ""
    names = ["antigravity", *peers["peers"]]
    lines = []
    for row in peers["rows"]:
        medians = [statistics.median(row["samples"][n]) for n in names]
        cells = [f"{m:.1f}" for m in medians] + [f"{medians[0] / m:.2f}x" for m in medians[1:]]
        lines.append([row["test"]] + cells)
    head = ["side by side", *names, *(f"against {n}" for n in names[1:])]
    note = f"\nIn turns, {peers['threads']} threads, medians of {peers['rounds']} rounds, {peers['date']}, tokens/s.\n"
    return "\n" + table(head, lines) + note


def plot_context(runs, path, plt):
    rows = [r for r in [row_of(runs, "best", "tg", 128)] if r]
    rows += sorted((r for r in runs.get("depth", []) if r["n_gen"]), key=lambda r: r["depth"])
    if not rows:
        return False
    x = [r["depth"] + r["n_gen"] / 2 for r in rows]
    figure, axes = plt.subplots(figsize=(6, 3.6))
    axes.fill_between(x, [r["tok_per_s_min"] for r in rows], [r["tok_per_s_max"] for r in rows], alpha=0.25, lw=0)
    axes.plot(x, [r["tok_per_s"] for r in rows], marker="o", label="measured: median, lowest to highest")
    axes.plot(x, [read_rate(r) / r["bytes_per_token"] for r in rows], "k--", label="reading weights and cache once")
    axes.set_xlabel("context (tokens in the cache)")
    finish(figure, axes, "decode (tokens/s), 2 threads", path)
    return True


def plot_threads(runs, path, plt):
    names = [(t, "best" if t == 2 else f"threads-{t}") for t in (1, 2, 4, 8, 16)]
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6))
    done = 0
    for axes, kind, n, what in ((left, "pp", 512, "prefill of 512"), (right, "tg", 128, "decode of 128")):
        rows = [(t, row_of(runs, name, kind, n)) for t, name in names]
        rows = [(t, r) for t, r in rows if r]
        if not rows:
            return False
        axes.plot([t for t, _ in rows], [r["tok_per_s"] for _, r in rows], marker="o", label="measured")
        if kind == "tg":
            limit = [read_rate(r) / r["bytes_per_token"] for _, r in rows]
            axes.plot([t for t, _ in rows], limit, "k--", label="reading weights once")
        else:
            axes.plot([t for t, _ in rows], [t * rows[0][1]["tok_per_s"] / rows[0][0] for t, _ in rows], "k--",
                      label="in proportion")
        axes.set_xticks([t for t, _ in rows])
        axes.set_xlabel("threads")
        finish(figure, axes, f"{what} (tokens/s)", path)
        done += 1
    return done == 2


def finish(figure, axes, label, path):
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def plots(runs, folder):
    """The plots that could be made."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    os.makedirs(folder, exist_ok=True)
    made = []
    for name, draw in (("speed-context.png", plot_context), ("speed-threads.png", plot_threads)):
        if draw(runs, os.path.join(folder, name), plt):
            made.append(name)
    return made


def text(runs, images):
    machine = runs["machine"]
    parts = [
        f"{machine['processor']}, {machine['cores']} cores, instruction sets {machine['sets']}; {machine['kernel']}, "
        f"{machine['date']}, {machine['program']}.\n"
        "Two pinned threads unless a row states another number; medians of 5, of 3 for 4096 tokens.\n",
        decode_table(runs),
        prefill_table(runs) + peer_table(runs),
        load_line(runs),
    ]
    parts += [f"![{alt}]({path})\n" for alt, path in images]
    return "\n".join(p for p in parts if p)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("dir")
    args.add_argument("--page", help="the page to write the tables into")
    args.add_argument("--images", help="the folder for the plots")
    args.add_argument("--no-plots", action="store_true")
    args = args.parse_args()
    runs = load(args.dir)
    if "machine" not in runs:
        sys.exit(f"{args.dir} holds no machine.json: tools/measure_performance.sh writes it")
    folder = args.images or args.dir
    made = [] if args.no_plots else plots(runs, folder)
    alt = {"speed-context.png": "Decoding speed against context", "speed-threads.png": "Speed against threads"}
    beside = os.path.dirname(args.page) if args.page else folder
    images = [(alt[n], os.path.relpath(os.path.join(folder, n), beside or ".")) for n in made]
    if not args.page:
        print(text(runs, images), end="")
        return
    with open(args.page, encoding="utf-8") as f:
        page = f.read()
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        sys.exit(f"{args.page} has no lines {BEGIN.strip()} and {END.strip()}")
    with open(args.page, "w", encoding="utf-8") as f:
        f.write(before + BEGIN + text(runs, images) + END + after)


if __name__ == "__main__":
    main()
