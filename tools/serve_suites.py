#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run test suites of other projects against `antigravity serve`, unchanged, and print what passed.

    tools/serve_suites.py build/release/bin/antigravity MODEL [--suite NAME]... [--environment FOLDER] [--llama-cpp SDIST]

The suites: llm-comply in three formats, the API tests in the sdists of openai and anthropic, llama.cpp's server tests
in the sdist of llama-cpp-python, lm_eval, which must get from the bundled model's server the log likelihoods that it
computes by transformers, and a part of BFCL v4 (serve_bfcl.py). What they need is installed with pip into FOLDER, once; a suite that cannot be had is
skipped, and says so. tools/serve_suites.json names the files, the tests that are chosen from them, and those that are
excluded, each with its reason: they run, too, and an exclusion all of whose tests pass is reported as stale ("may_pass":
is not; "exact": the test asserts what another model says, so it is left out of the share that passes). Exit status:
0 if nothing failed but what is excluded, 1 if something did, 77 if no suite could be had."""
import argparse
import collections
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))


class Unavailable(Exception):
    """A suite, or what it needs, is not here and cannot be fetched."""


# ---- the server ----


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """`antigravity serve` on a port of its own, from __enter__ to __exit__."""

    def __init__(self, program, model, options, log):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = [program, "serve", "-m", model, "--port", str(self.port), *options]
        self.log = log

    def __enter__(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        for _ in range(600):
            if self.process.poll() is not None:
                raise SystemExit(f"{' '.join(self.command)} ended with {self.process.returncode}; see {self.log}")
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        self.process.kill()
        raise SystemExit(f"{' '.join(self.command)} does not answer after a minute; see {self.log}")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise SystemExit("the server did not end within a minute of SIGTERM") from None
        if code != 0:
            raise SystemExit(f"the server ended with {code}; see {self.log}")


# ---- what suites need ----


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)


def make_environment(folder, packages):
    python = os.path.join(folder, "bin", "python")
    marker = os.path.join(folder, "packages.txt")
    wanted = "\n".join(packages)
    if os.path.exists(marker):
        with open(marker, encoding="utf-8") as f:
            if f.read() == wanted:
                return python
    made = run([sys.executable, "-m", "venv", folder])
    if made.returncode == 0:
        made = run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages])
    if made.returncode:
        raise Unavailable("pip cannot install what the suites need: " + made.stdout.strip()[-300:])
    with open(marker, "w", encoding="utf-8") as f:
        f.write(wanted)
    return python


def unpack(archive, folder, parts):
    """The members of an archive below one of the parts; returns the folder that the archive holds."""
    with tarfile.open(archive) as tar:
        top = tar.getnames()[0].split("/")[0]
        if not os.path.isdir(os.path.join(folder, top)):
            members = [m for m in tar.getmembers() if any(part in m.name for part in parts)]
            tar.extractall(folder, members, filter="data") if hasattr(tarfile, "data_filter") else tar.extractall(folder, members)
    return os.path.join(folder, top)


def fetch_sdist(python, folder, package, version, parts):
    archives = glob.glob(os.path.join(folder, f"{package}-{version}.tar.gz"))
    if not archives:
        command = [python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", package, "-d", folder, f"{package}=={version}"]
        done = run(command)
        archives = glob.glob(os.path.join(folder, f"{package}-{version}.tar.gz"))
        if not archives:
            raise Unavailable(f"no sdist of {package} {version}: " + done.stdout.strip()[-200:])
    return unpack(archives[0], folder, parts)


# ---- results ----

Result = collections.namedtuple("Result", "name outcome message")  # outcome: passed, failed, skipped


def run_pytest(python, folder, files, environment, select=None, timeout=1200):
    with tempfile.TemporaryDirectory() as place:
        report = os.path.join(place, "report.xml")
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "--junitxml", report, *files]
        command += ["-k", select] if select else []
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        done = run(command, cwd=folder, env={**env, **environment}, timeout=timeout)
        if not os.path.exists(report):
            raise Unavailable("pytest gave no report: " + done.stdout.strip()[-400:])
        cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
        return [pytest_result(case) for case in cases]


def pytest_result(case):
    place = case.get("classname", "").split(".")
    file = next((p for p in place if p.startswith("test_")), place[-1])
    if "chat" in place:  # two files have one name
        file = "chat." + file
    name = "::".join([file] + [p for p in place if p.startswith("Test")] + [case.get("name")])
    for outcome in ("failure", "error", "skipped"):
        found = case.find(outcome)
        if found is not None:
            message = (found.get("message") or "").strip().split("\n")[0]
            return Result(name, "skipped" if outcome == "skipped" else "failed", message)
    return Result(name, "passed", "")


def run_llm_comply(python, url, style, model):
    program = os.path.join(os.path.dirname(python), "llm-comply")
    command = [program, "--format", style, "-u", url + "/v1", "-k", "none", "-m", model, "--json", "--timeout", "300"]
    done = run(command)
    report = json.loads(done.stdout[done.stdout.index("{") :])
    return [Result(t["id"], t["status"], "; ".join(t.get("errors", []))) for t in report["results"]]


def matches(pattern, name):
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), name) is not None


def classify(results, excluded):
    """Counts, the failures, and the exclusions that nothing justifies any more."""
    counts, failures, stale, reasons = collections.Counter(), [], [], collections.Counter()
    hits = collections.defaultdict(list)
    for r in results:
        rule = next((i for i, x in enumerate(excluded) if any(matches(p, r.name) for p in x["tests"])), None)
        if rule is not None:
            hits[rule].append(r)
            counts["excluded"] += 1
            counts["exact"] += excluded[rule].get("exact", False)
            reasons[excluded[rule]["reason"]] += 1
        else:
            counts[r.outcome] += 1
            failures += [r] if r.outcome == "failed" else []
    for i, rule in enumerate(excluded):
        if hits[i] and not rule.get("may_pass") and all(r.outcome == "passed" for r in hits[i]):
            stale.append(rule)
    return counts, failures, stale, reasons


# ---- the suites ----


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def check_images(url, model):
    """That images are refused with the reason, in each protocol."""
    data = "data:image/png;base64,iVBORw0KGgo="
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    bodies = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": data}}]}]},
        "/v1/responses": {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": data}]}]},
        "/v1/messages": {"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]},
    }
    for path, body in bodies.items():
        status, text = post(url + path, {"model": model, **body})
        right = status == 400 and "images are not supported" in text
        yield Result("image " + path, "passed" if right else "failed", "" if right else f"{status} {text[:200]}")


def llm_comply(context):
    data = context.data["llm-comply"]
    names = sorted({style["model"] for style in data["formats"]})
    with context.serve([x for name in names for x in ("--alias", name)]) as server:
        for style in data["formats"]:
            results = run_llm_comply(context.python, server.url, style["format"], style["model"])
            yield f"llm-comply {style['format']}", results, data["excluded"]
        yield "images are refused", list(check_images(server.url, names[0])), []


def sdist(name):
    def suite(context):
        data = context.data[name]
        folder = fetch_sdist(context.python, context.folder, name, data["version"], data["unpack"])
        with context.serve(data["options"] + context.infill_options(data)) as server:
            for base in data["bases"]:
                environment = {"TEST_API_BASE_URL": server.url + base["path"]}
                results = run_pytest(context.python, folder, base["files"], environment, data["select"])
                yield f"{name} {data['version']} {base['title']}", results, context.exclusions(data)

    return suite


def llama_cpp_run(context, folder, run, options):
    """The tests of one file that `run` selects, on a server of their own."""
    with tempfile.TemporaryDirectory() as place:
        if run.get("keys"):
            path = os.path.join(place, "keys")
            with open(path, "w", encoding="utf-8") as f:
                f.write("\n".join(run["keys"]) + "\n")
            os.chmod(path, 0o600)
            options = options + ["--api-key-file", path]
        model = os.path.join(place, context.data["llama.cpp"]["model_name"] + ".gguf")
        os.symlink(os.path.abspath(context.args.model), model)
        with context.serve(options, model) as server:
            environment = {"DEBUG_EXTERNAL": "1", "PORT": str(server.port)}
            return run_pytest(context.python, folder, [f"unit/{run['file']}.py"], environment, run["select"])


def llama_cpp_runs(entry):
    """A run for each way in which a file's tests want the server to be started; the first has what the others leave."""
    variants = entry.get("variants", [])
    rest = " and ".join(["not slow"] + [f"not ({v['select']})" for v in variants])
    yield {"options": [], **entry, "select": rest}
    for variant in variants:
        yield {**variant, "file": entry["file"]}


def llama_cpp(context):
    data = context.data["llama.cpp"]
    if context.llama_cpp:
        root = unpack(context.llama_cpp, context.folder, data["unpack"])
    else:
        root = fetch_sdist(context.python, context.folder, "llama_cpp_python", data["version"], data["unpack"])
    folder = os.path.join(root, "vendor/llama.cpp/tools/server/tests")
    templates = os.path.join(root, "vendor/llama.cpp/models/templates")
    for entry in data["files"]:
        results = []
        for run in llama_cpp_runs(entry):
            options = data["options"] + [o.replace("TEMPLATES", templates) for o in run["options"]]
            results += llama_cpp_run(context, folder, run, options)
        yield f"llama.cpp {entry['file']}", results, data["excluded"]


def lm_eval(context):
    data = context.data["lm_eval"]
    python = make_environment(os.path.join(context.folder, "lm_eval"), data["packages"])
    model = os.path.join(os.path.dirname(HERE), "models", "demo")
    with context.serve(["--weights", "f32", "--kv-type", "f32"], model) as server:
        done = run([python, os.path.join(HERE, "serve_lm_eval.py"), server.url, model, "demo"], env={**os.environ, "HF_HUB_OFFLINE": "1"})
    last = done.stdout.strip().split("\n")[-1]
    if done.returncode:
        yield "lm_eval", [Result("compares", "failed", last)], []
        return
    found = json.loads(last)
    right = {
        "all choices are answered": found["choices"] == found["answered"] == data["choices"],
        "log likelihoods": found["difference"] <= data["tolerance"],
        "greedy flags": found["flags"] == 0 and found["greedy"] >= data["greedy"],
    }
    yield "lm_eval", [Result(name, "passed" if ok else "failed", last) for name, ok in right.items()], []


def bfcl(context):
    """A part of BFCL v4: each call of an answer that ended is valid, and as many cases are right as were recorded."""
    data = context.data["bfcl"]
    if not context.args.infill_model:
        raise Unavailable("bfcl: it needs Qwen2.5-Coder-0.5B-Instruct, see --infill-model")
    folder = os.path.join(context.folder, "bfcl")
    python = make_environment(folder, data["packages"])
    package = run([python, "-m", "pip", "install", "-q", "--no-deps", data["benchmark"]])
    if package.returncode:
        raise Unavailable("bfcl: " + package.stdout.strip()[-200:])
    with context.serve(["--any-model", "--max-seq-len", "4096"], context.args.infill_model) as server:
        results = os.path.join(folder, "results.jsonl")
        command = [python, os.path.join(HERE, "serve_bfcl.py"), "ask", server.url, "model", results, "--cases", str(data["cases"])]
        done = run(command)
    last = done.stdout.strip().split("\n")[-1]
    try:
        found = json.loads(last)["all"]
    except ValueError:
        yield "bfcl", [Result("runs", "failed", done.stdout[-300:])], []
        return
    right = {
        "all cases are answered": found["failed"] == 0,
        "calls are valid": found["invalid"] == 0,
        "cases that are right": found["right"] >= data["right"],
    }
    yield "bfcl", [Result(name, "passed" if ok else "failed", last) for name, ok in right.items()], []


SUITES = {
    "llm-comply": llm_comply,
    "openai": sdist("openai"),
    "anthropic": sdist("anthropic"),
    "llama.cpp": llama_cpp,
    "lm_eval": lm_eval,
    "bfcl": bfcl,
}


class Context:
    """What every suite is given."""

    def __init__(self, args, data, python):
        self.args, self.data, self.python = args, data, python
        self.folder, self.llama_cpp = args.environment, args.llama_cpp

    def exclusions(self, data):
        return [x for x in data["excluded"] if not (x.get("without_infill_model") and self.args.infill_model)]

    def infill_options(self, data):
        """Serves the model that fills gaps by the name that the tests ask for a text before a suffix."""
        name = data.get("infill_name")
        if not name:
            return []
        if not self.args.infill_model:
            return ["--alias", name]
        link = os.path.join(self.folder, name + ".gguf")
        if os.path.lexists(link):
            os.unlink(link)
        os.symlink(os.path.abspath(self.args.infill_model), link)
        return ["-m", link]

    def serve(self, options, model=None):
        return Server(self.args.program, model or self.args.model, options + self.args.option, self.args.log)


def print_row(title, counts):
    row = [counts["passed"], counts["excluded"], counts["skipped"], counts["failed"]]
    print(f"| {title} | " + " | ".join(str(n) for n in row) + " |", flush=True)


def run_suite(name, context, totals, details):
    for title, results, excluded in SUITES[name](context):
        counts, failures, stale, reasons = classify(results, excluded)
        print_row(title, counts)
        totals[name].update(counts)
        details["reasons"][name].update(reasons)
        details["failures"] += [(title, r) for r in failures]
        details["stale"] += [(title, rule) for rule in stale]


def print_details(totals, details):
    for name, reasons in details["reasons"].items():
        for reason, n in reasons.most_common():
            print(f"{name}: {n} excluded: {reason}")
    sdists = totals["openai"] + totals["anthropic"]
    if sdists:
        n = sum(sdists[outcome] for outcome in ("passed", "excluded", "skipped", "failed"))
        print(f"of the sdists' {n} tests {100 * sdists['excluded'] / n:.1f} % are excluded")
    theirs = totals["llama.cpp"]
    if theirs:
        asserted = sum(theirs[outcome] for outcome in ("passed", "excluded", "failed")) - theirs["exact"]
        share = 100 * theirs["passed"] / asserted
        print(f"of the {asserted} tests of llama.cpp's server that assert no exact text {theirs['passed']} pass: {share:.1f} %")
    for title, rule in details["stale"]:
        print(f"stale exclusion in {title}: {', '.join(rule['tests'])}")
    for title, r in details["failures"]:
        print(f"FAILED {title}: {r.name}: {r.message[:300]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the program antigravity")
    parser.add_argument("model", help="an instruction model, such as SmolLM2-135M-Instruct")
    parser.add_argument("--infill-model", help="one with tokens for a gap, such as Qwen2.5-Coder; else tests of them are excluded")
    parser.add_argument("--suite", action="append", choices=SUITES, help="only this one (any number)")
    parser.add_argument("--environment", default=os.path.join(tempfile.gettempdir(), "antigravity-serve-suites"))
    parser.add_argument("--llama-cpp", help="an sdist of llama-cpp-python that is here already")
    parser.add_argument("--option", action="append", default=[], help="of the server, besides (any number)")
    parser.add_argument("--log", default="serve_suites.log", help="what the server prints")
    args = parser.parse_args()
    if not shutil.which(args.program):
        sys.exit(f"there is no program {args.program}")
    with open(os.path.join(HERE, "serve_suites.json"), encoding="utf-8") as f:
        data = json.load(f)
    args.environment = os.path.abspath(args.environment)  # pytest runs elsewhere
    os.makedirs(args.environment, exist_ok=True)
    try:
        python = make_environment(os.path.join(args.environment, "python"), data["packages"])
    except Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    totals = collections.defaultdict(collections.Counter)
    details = {"reasons": collections.defaultdict(collections.Counter), "failures": [], "stale": []}
    print("| suite | passed | excluded | skipped by itself | failed |\n|---|---|---|---|---|")
    for name in args.suite or SUITES:
        try:
            run_suite(name, Context(args, data, python), totals, details)
        except Unavailable as reason:
            print(f"| {name}: skipped: {reason} | | | | |")
    print_details(totals, details)
    sys.exit(1 if details["failures"] or details["stale"] else 0 if totals else 77)


if __name__ == "__main__":
    main()
