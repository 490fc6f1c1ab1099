#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/measured/ruler.md: runs the commands behind them, and writes them into the page.

    tools/ruler_tables.py list
    tools/ruler_tables.py run RESULTS --program build/release/bin/antigravity --models DIR [NAME ...]
    tools/ruler_tables.py page RESULTS docs/measured/ruler.md

`run` leaves one RESULTS/NAME.json for each command, and does again only what is not there; DIR holds
the models' GGUF files. With --prompts FIRST:N it asks those prompts alone, into NAME.FIRST.json, so
that several cores or machines can share a task (`task-...`). `page` replaces what stands between the
page's marks of a table, and takes the parts of a task together."""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys

SMOL = "SmolLM2-135M-Instruct.Q4_1.gguf"
QWEN = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
GEMMA = "gemma-3-270m-q4_k_m.gguf"
DEMO = None  # the bundled model
FULL = ["--eviction-policy", "none", "-n", "30"]
POLICIES = ["--eviction-policy", "streaming,snapkv,tova,keydiff", "--ratios", "0.5,0.75", "--first",
            "100"]
REPLAYS = ["--eviction-policy", "none", "--replay", "1,0.2", "--ratios", "0.75", "--first", "100"]
TASKS = ["niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2",
         "niah_multikey_3", "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe"]

# name: model, its name on the page, arguments
RUNS = {
    "full-smol": (SMOL, "SmolLM2-135M-Instruct", FULL + ["--length", "700,1024"]),
    "full-qwen": (QWEN, "Qwen2.5-Coder-0.5B-Instruct",
                  FULL + ["--tasks", ",".join(TASKS[:5] + TASKS[6:8]), "--length", "512"]),
    "full-qwen-2048": (QWEN, "Qwen2.5-Coder-0.5B-Instruct", FULL + ["--length", "2048"]),
    "full-gemma": (GEMMA, "Gemma-3-270M", FULL + ["--length", "1024"]),
    "full-demo": (DEMO, "the bundled model", FULL + ["--length", "512,700,1024"]),
    "table-smol": (SMOL, "", POLICIES + ["-n", "50", "--tasks", "niah_single_2", "--length",
                                         "1024"]),
    "table-smol-replay": (SMOL, "", REPLAYS + ["-n", "50", "--tasks", "niah_single_2", "--length",
                                               "1024"]),
    "table-qwen": (QWEN, "", POLICIES + ["-n", "20", "--tasks", "niah_multikey_2", "--length",
                                         "512"]),
}
# Several tasks, of which each has a command of its own: a table may be made before all have run.
MOST = ["--eviction-policy", "snapkv,keydiff,compactor", "--ratios", "0.75", "--first", "100", "-n",
        "50"]
REPLAYED = ["--replay", "1,0.2"]
SEVERAL = {
    "smol": (SMOL, "1024", ["niah_single_2", "niah_single_3", "niah_multivalue"], REPLAYED),
    "qwen": (QWEN, "2048", TASKS[:5] + TASKS[6:8], REPLAYED),
    "qwen-short": (QWEN, "1024", ["niah_multikey_1", "niah_multivalue", "niah_multiquery"],
                   REPLAYED),
    "qwen-4096": (QWEN, "4096", TASKS[:5] + TASKS[6:8], REPLAYED + ["-n", "20"]),
    "qwen-seen": (QWEN, "2048", TASKS[2:5] + TASKS[6:8], ["--question", "seen", "-n", "20"]),
    "gemma": (GEMMA, "1024", TASKS[:3], REPLAYED),
}
ADAPTIVE = "-adaptive"
for several, (model, length, tasks, more) in SEVERAL.items():
    for task in tasks:
        one = MOST + ["--tasks", task, "--length", length]
        RUNS["task-%s-%s" % (several, task)] = (model, "", one + more)
        RUNS["task-%s-%s%s" % (several, task, ADAPTIVE)] = (
            model, "", one + [m for m in more if m not in REPLAYED] + ["--head-budget", "adaptive"])


def command(program, models, name):
    model, _, arguments = RUNS[name]
    chosen = ["-m", str(pathlib.Path(models) / model)] if model else []
    return [program, "eval", "ruler", *chosen, *arguments, "-q", "-o", "json"]


def run(options):
    results = pathlib.Path(options.results)
    results.mkdir(parents=True, exist_ok=True)
    first, _, n = options.prompts.partition(":") if options.prompts else ("", "", "")
    for name in options.names or RUNS:
        out = results / ((name + "." + first if first else name) + ".json")
        if out.exists():
            continue
        words = command(options.program, options.models, name)
        if first:  # an option that is given again takes the place of the one before
            words += ["--first", first, "-n", n]
        print(" ".join(words), file=sys.stderr)
        text = subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout
        json.loads(text)
        out.write_bytes(text)


def percent(x):
    return "" if x is None else "%.1f" % (100 * x)


def full_table(results):
    """Scores of the full cache: a line for each task, a column for each model and length."""
    columns = []
    for name in (n for n in RUNS if n.startswith("full-")):
        if name not in results:
            continue
        rows = results[name]["rows"]
        for length in sorted({r["length"] for r in rows}):
            scores = {r["task"]: r["score"] for r in rows if r["length"] == length}
            columns.append(("%s, %d" % (RUNS[name][1], length), scores))
    yield "| task | " + " | ".join(title for title, _ in columns) + " |"
    yield "|---|" + "---:|" * len(columns)
    for task in (t for t in TASKS if any(t in scores for _, scores in columns)):
        cells = []
        for _, scores in columns:
            score = scores.get(task)
            cells.append("" if score is None else
                         "**%s**" % percent(score) if score >= 0.8 else percent(score))
        yield "| %s | %s |" % (task, " | ".join(cells))


def by_setting(rows):
    """{(policy, removed): {task: row}}, in their order."""
    settings = {}
    for row in rows:
        settings.setdefault((row["policy"], row["removed"]), {})[row["task"]] = row
    return settings


def policy_table(result):
    """A line for each policy and share removed: what it leaves of each task, and of all."""
    rows = result["rows"]
    tasks = list(dict.fromkeys(r["task"] for r in rows if r["task"] != "all solved"))
    yield "| policy | removed | " + " | ".join(tasks) + " | kept / full | 95 % | cache | freed |"
    yield "|---|---:|" + "---:|" * len(tasks) + "---:|---|---:|---:|"
    for (policy, removed), found in by_setting(rows).items():
        every = found.get("all solved") or next(iter(found.values()))
        cells = [percent(found[t]["score"]) for t in tasks]
        mib = "%.1f MiB"
        last = ["", "", mib % (every["kv_bytes"] / 2**20), ""]
        if removed is not None:
            last = ["%.3f" % every["ratio"],
                    "%.3f to %.3f" % (every["ratio_low"], every["ratio_high"]),
                    mib % (every["kv_bytes"] / 2**20), mib % (every["freed_bytes"] / 2**20)]
        share = "" if removed is None else "%g %%" % (100 * removed)
        yield "| %s | %s | %s | %s |" % (policy, share, " | ".join(cells), " | ".join(last))


def share_with_interval(full, kept):
    """Mean of kept / mean of full, and the middle 95 % of it over samples of the prompts: paired,
    each task's among themselves. full, kept: {task: scores}."""
    def share(picks):
        whole = sum(full[t][i] for t, p in picks.items() for i in p)
        return sum(kept[t][i] for t, p in picks.items() for i in p) / whole if whole else 0.0

    chance = random.Random(1)
    every = {t: range(len(s)) for t, s in full.items()}
    samples = sorted(share({t: [chance.randrange(len(p)) for _ in p] for t, p in every.items()})
                     for _ in range(2000))
    return "%.2f (%.2f to %.2f)" % (share(every), samples[50], samples[1949])


def several_table(results, several):
    """A line for each policy, a column for each task that was run: kept / full."""
    rules, full = {}, {}
    for task in SEVERAL[several][2]:
        name = "task-%s-%s" % (several, task)
        for suffix in ("", ADAPTIVE):
            for row in results.get(name + suffix, {"rows": []})["rows"]:
                if row["policy"] == "none":
                    full[task] = row["scores"]
                else:
                    rules.setdefault(row["policy"], {})[task] = row["scores"]
    yield "| policy | " + " | ".join(full) + " | all of them |"
    yield "|---|" + "---:|" * len(full) + "---:|"
    for rule, kept in rules.items():
        for task in (t for t in kept if len(kept[t]) != len(full[t])):
            sys.exit("%s, %s: %d prompts of %d" % (rule, task, len(kept[task]), len(full[task])))
    means = [percent(sum(s) / len(s)) for s in full.values()]
    yield "| none, score in percent | %s |  |" % " | ".join(means)
    for rule, kept in sorted(rules.items()):
        cells = [share_with_interval({t: full[t]}, {t: kept[t]}) if t in kept else "" for t in full]
        cells.append(share_with_interval(full, kept) if len(kept) == len(full) else "")
        yield "| %s | %s |" % (rule, " | ".join(cells))


def taken_together(parts):
    """Rows of several parts of one task, with the scores of all their prompts in order."""
    rows = {}
    for part in sorted(parts, key=lambda p: p["first_prompt"]):
        for row in part["rows"]:
            key = (row["task"], row["policy"], row["removed"])
            have = rows.setdefault(key, {**row, "scores": []})
            have["scores"] = have["scores"] + row["scores"]
    return {"rows": list(rows.values())}


def read_results(folder):
    results, parts = {}, {}
    for path in pathlib.Path(folder).glob("*.json"):
        name, _, first = path.stem.partition(".")
        if name in RUNS and first:
            parts.setdefault(name, []).append(json.loads(path.read_text()))
        elif name in RUNS:
            results[name] = json.loads(path.read_text())
    return {**{n: taken_together(p) for n, p in parts.items()}, **results}


def page(options):
    results = read_results(options.results)
    text = pathlib.Path(options.page).read_text()
    tables = {n: policy_table(r) for n, r in results.items() if n.startswith("table-")}
    for several in SEVERAL:
        if any(n.startswith("task-%s-niah" % several) for n in results):
            tables[several] = several_table(results, several)
    if any(n.startswith("full-") for n in results):
        tables["full"] = full_table(results)
    for name, lines in tables.items():
        mark = re.compile(r"(<!-- table %s -->\n).*?(<!-- end -->)" % re.escape(name), re.S)
        body = "\n".join(lines) + "\n"
        text, n = mark.subn(lambda m, body=body: m.group(1) + body + m.group(2), text)
        print("%s: %s" % (name, "written" if n else "the page has no mark for it"))
    pathlib.Path(options.page).write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("list")
    one.set_defaults(call=lambda o: [print(" ".join(command("antigravity", "DIR", n))) for n in RUNS])
    one = commands.add_parser("run")
    one.add_argument("results")
    one.add_argument("names", nargs="*", metavar="NAME", help="default: all of `list`")
    one.add_argument("--program", default="antigravity")
    one.add_argument("--models", required=True)
    one.add_argument("--prompts", metavar="FIRST:N")
    one.set_defaults(call=run)
    one = commands.add_parser("page")
    one.add_argument("results")
    one.add_argument("page")
    one.set_defaults(call=page)
    options = parser.parse_args()
    unknown = [n for n in getattr(options, "names", []) if n not in RUNS]
    if unknown:
        parser.error("no command is called " + ", ".join(unknown))
    options.call(options)


if __name__ == "__main__":
    main()
