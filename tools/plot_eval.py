#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plots of what `antigravity eval ... -o json` (ppl: --json) has written, as PNG files.

    tools/plot_eval.py OUT.png RESULT.json [RESULT.json ...]

All results of one plot are of one measure, and its kind follows from it:

    needle   accuracy over the budget, a line for each policy; one panel for each --question
    kl       mean divergence over the budget, a line for each policy; without policies, a bar for
             each cache type
    stream   mean negative log-likelihood over the position, a line for each file, with the
             trained length marked; below it the memory

Needs matplotlib."""
import argparse
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MIB = 1 << 20


def share(row, whole):
    """The budget of a row as percent of the tokens that are read at once."""
    tokens = row.get("budget_tokens")
    return 100.0 if not tokens else 100.0 * tokens / whole


def types_of(row):
    same = row["k_type"] == row["v_type"]
    name = row["k_type"] if same else row["k_type"] + "," + row["v_type"]
    return name + (" rotated" if row["k_rotated"] else "")


def label_of(result, policy):
    """snapkv with its parameters, so that several of them can stand in one plot."""
    if policy != "snapkv" or "snapkv_window" not in result:
        return policy
    return "snapkv {snapkv_window}, {snapkv_kernel}, {snapkv_pool}".format(**result)


def lines_of(results, whole, value):
    """{label: [(budget in percent, value)]} over all rows; what none gives is a level of its own."""
    lines, level = {}, None
    for result in results:
        for row in result["rows"]:
            if row["policy"] == "none":
                level = row[value]
                continue
            points = lines.setdefault(label_of(result, row["policy"]), [])
            points.append((share(row, result[whole]), row[value]))
    return lines, level


def draw_lines(ax, lines):
    markers = "osD^v<>P"
    for i, (label, points) in enumerate(lines.items()):
        x, y = zip(*sorted(points))
        # Lines that coincide show as a small mark on a large one.
        ax.plot(x, y, marker=markers[i % len(markers)], markersize=10 - i % 7, label=label)
    ticks = sorted({x for points in lines.values() for x, _ in points})
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [f"{t:g} %" for t in ticks])
    ax.minorticks_off()
    ax.grid(alpha=0.3)


def plot_needle(results):
    regimes = sorted({r["question"] for r in results}, reverse=True)
    fig, axes = plt.subplots(1, len(regimes), figsize=(5.5 * len(regimes), 4.2), sharey=True,
                             squeeze=False)
    for ax, regime in zip(axes[0], regimes):
        lines, full = lines_of([r for r in results if r["question"] == regime], "context",
                               "accuracy")
        draw_lines(ax, lines)
        if full is not None:
            ax.axhline(full, color="black", linestyle=":", label="full cache")
        ax.set_title(f"question {regime}")
        ax.set_xlabel("budget, share of the document")
        ax.set_ylim(-0.03, 1.05)
    axes[0][0].set_ylabel("facts found")
    axes[0][-1].legend(loc="upper left", fontsize=8, bbox_to_anchor=(1.01, 1))
    return fig


def plot_kl(results):
    fig, ax = plt.subplots(figsize=(6.5, 4.2))
    lines, _ = lines_of(results, "window", "kl_mean")
    if lines:
        draw_lines(ax, lines)
        ax.set_xlabel("budget, share of the window")
        ax.legend(fontsize=8)
    else:
        rows = [row for r in results for row in r["rows"] if row["kl_mean"] > 0]
        ax.bar([types_of(row) for row in rows], [row["kl_mean"] for row in rows],
               yerr=[row["kl_stderr"] for row in rows], color="tab:blue")
        plt.setp(ax.get_xticklabels(), rotation=20, ha="right")
        ax.grid(alpha=0.3, axis="y")
    ax.set_yscale("log")
    ax.set_ylabel("mean divergence from the base")
    return fig


def plot_stream(results):
    fig, (top, low) = plt.subplots(2, 1, figsize=(7, 6), sharex=True, height_ratios=[2, 1])
    for r in results:
        x = [b["begin"] + b["tokens"] / 2 for b in r["buckets"]]
        label = f"{r['policy']}, {r['budget_tokens']} tokens"
        top.plot(x, [b["mean_nll"] for b in r["buckets"]], label=label)
        low.plot(x, [b["kv_bytes"] / MIB for b in r["buckets"]], label=label)
    for ax in (top, low):
        ax.axvline(results[0]["max_positions"], color="black", linestyle=":")
        ax.grid(alpha=0.3)
    top.set_ylabel("mean nll")
    top.legend(fontsize=8)
    low.set_ylabel("cache in MiB, at most")
    low.set_ylim(bottom=0)
    low.set_xlabel("position; dotted: trained length")
    return fig


PLOTS = {"needle": plot_needle, "kl": plot_kl, "stream": plot_stream}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ap.add_argument("out", help="PNG file to write")
    ap.add_argument("results", nargs="+", help="JSON files of one measure")
    args = ap.parse_args()
    results = []
    for name in args.results:
        with open(name, encoding="utf-8") as f:
            results.append(json.load(f))
    measures = {r.get("measure") for r in results}
    if len(measures) != 1 or not measures <= set(PLOTS):
        sys.exit(f"{', '.join(args.results)}: of {sorted(map(str, measures))}; one of "
                 f"{sorted(PLOTS)} is drawn at a time")
    fig = PLOTS[measures.pop()](results)
    fig.tight_layout()
    fig.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
