#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the template interpreter with jinja2 3.1.6, set up as Hugging Face transformers does.

usage: jinja_differential.py PROGRAM [--templates DIR]... [--conversations N] [--table-step N] [--seed N]
       jinja_differential.py --record FILE

PROGRAM is the test program jinja_lines. Three things are compared: the lines of tests/data/chat/snippets.txt, every
operator, filter, test and method with values of each type, and each template with N random conversations. Where jinja2
raises an error, the interpreter must too; messages may differ. --record writes what jinja2 makes of the snippets, for
the unit test. Another jinja2 3.1 from 3.1.2 on serves too, less the snippets whose recorded result it does not give.
Exits with 77 without one.
"""
import argparse, datetime, glob, itertools, json, os, random, re, subprocess, sys

try:
    import jinja2, jinja2.ext, jinja2.sandbox
except ImportError:
    print("skipped: no jinja2 here")
    sys.exit(77)
VERSION = tuple(int(n) for n in jinja2.__version__.split(".")[:3])
if not (3, 1, 2) <= VERSION < (3, 2):
    print(f"skipped: jinja2 {jinja2.__version__} is here, not 3.1.2 to 3.1.6")
    sys.exit(77)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
SNIPPETS = os.path.join(ROOT, "tests/data/chat/snippets.txt")
RECORD = os.path.join(ROOT, "tests/data/chat/rendered.json")
NOW = datetime.datetime(2026, 11, 22, 12, 0, 0)

VARIABLES = {
    "n": 42, "neg": -7, "big": 9007199254740993, "zero": 0, "f": 2.5, "f2": 1e22, "tiny": 1.5e-7, "huge": 1.2345e300,
    "t": True, "no": False, "nil": None, "s": "hello", "uni": "aé你🦊b\u0301c", "pad": "  \t padded text \n ",
    "quotes": "it's \"quoted\" \\ <b>&</b>\n\ttab", "l": ["x", "Yb", "z"], "d": {"a": 1, "b": "two", "c": None},
    "nested": [{"k": "v", "list": [1, 2.5, None, True]}, ["in", ["deep"]]],
    "nan_text": "nan", "inf_text": "inf", "items_d": {"items": "own", "keys": 1},
    "users": [{"name": "bob", "age": 30, "admin": True, "tags": ["x"]}, {"name": "Al", "age": 25, "admin": False, "tags": ["y"]},
              {"name": "eve", "age": 30, "admin": True, "tags": ["x", "y"]}, {"name": "dan", "age": 41, "admin": False, "tags": []}],
    "tree": [{"name": "r", "kids": [{"name": "a", "kids": []}, {"name": "b", "kids": [{"name": "c"}]}]}, {"name": "q"}],
}


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


ENV = environment()


def compiled(source):
    """The template, or what is wrong with it."""
    try:
        return ENV.from_string(source)
    except Exception as e:
        return e


def expected(template, variables):
    """{"text": ...} or {"error": ...}"""
    try:
        if isinstance(template, Exception):
            raise template
        text = template.render(**variables)
        text.encode()
        return {"text": text}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}


class Program:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, source, variables):
        line = {"variables": variables} if source is None else {"template": source, "variables": variables}
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"the program died of: {json.dumps(line)}")
        return json.loads(answer)


class Tally:
    def __init__(self, name):
        self.name, self.n, self.errors, self.wrong = name, 0, 0, 0

    def check(self, label, want, got):
        self.n += 1
        self.errors += "error" in want
        if re.search(" at 0x|'a', 't', ' ', '0', 'x'", want.get("text", ""), re.I) or got.get("status") == "UNSUPPORTED":
            return  # an address of Python's; what the interpreter says it does not do
        if ("error" in want) == ("error" in got) and want.get("text") == got.get("text"):
            return
        self.wrong += 1
        if self.wrong <= 60:
            print(f"{label}\n    jinja2: {json.dumps(want, ensure_ascii=False)[:300]}\n    here:   {json.dumps(got, ensure_ascii=False)[:300]}")

    def report(self):
        print(f"{self.name}: {self.n} compared, {self.errors} of them errors, {self.wrong} differ")
        return self.wrong


def snippets():
    with open(SNIPPETS, encoding="utf-8", newline="\n") as f:
        lines = f.read().split("\n")
    return [s.replace("⏎", "\n") for s in lines if s and not s.startswith("## ")]


SNIPPET_VARIABLES = {**VARIABLES}
# JSON has neither; the templates make them.
PRELUDE = "{%- set nan = nan_text|float %}{%- set inf = inf_text|float %}"


def with_prelude(s):
    return PRELUDE + s if "nan" in s or "inf" in s else s


VALUES = ["none", "true", "0", "3", "-2", "1.5", "2.0", "''", "'ab'", "'2'", "uni", "[]", "[1, 'a']", "(1, 2)", "{}", "d",
          "missing", "range(3)", "d.items()", "(l|map('upper'))", "namespace(a=1)", "('<b>'|safe)"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
METHODS = ("capitalize copy count endswith find format index isdigit items join lower lstrip partition replace rsplit rstrip split "
           "splitlines startswith strip title upper keys values get append update pop").split()
# Filters of jinja2 that the interpreter does not have.
ABSENT = {"attr", "center", "filesizeformat", "forceescape", "pprint", "random", "striptags", "urlencode", "urlize", "wordwrap", "xmlattr"}


def table():
    """Every operator, filter, test and method with values of each type."""
    for a, op, b in itertools.product(VALUES, OPERATORS, VALUES):
        yield f"{{{{ {a} {op} {b} }}}}"
    for name, v in itertools.product(sorted(set(ENV.filters) - ABSENT - {"wordcount"}), VALUES):
        yield f"{{{{ {v}|{name} }}}}"
        yield f"{{{{ {v}|{name}|list }}}}"
        for arg in ("2", "'a'", "none"):
            # From Python 3.12 on any value is a truth value for sort's `reverse`; before, an integer is required.
            if name != "sort" or arg == "2":
                yield f"{{{{ ({v}|{name}({arg}))|string }}}}"
    for name, v in itertools.product(sorted(n for n in ENV.tests if n.isalpha()), VALUES):
        yield f"{{{{ {v} is {name} }}}}"
        yield f"{{{{ {v} is {name}(2) }}}}"
    for name, v in itertools.product(METHODS, VALUES):
        for args in ("", "'a'", "2", "'a', 'b'", "5, 'x'", "['q']", "none"):
            yield f"{{{{ {v}.{name}({args}) }}}}"
    # Not of literals: slices of those are undefined when jinja2 computes them beforehand.
    for v, index in itertools.product(["nil", "t", "zero", "f", "s", "d"] + [v for v in VALUES[7:] if v != "{}"], ["0", "-1", "5", "'a'", "none", "1.0", "true", "[]", ":", "1:", ":1", "::-1", "::2", "-2:"]):
        yield f"{{{{ {v}[{index}] }}}}"


WORDS = ("hello world Привет мир как дела 你好 世界 🦊 naïve café <think> </think> <tool_call> </tool_call> <|im_end|> [INST] {{ x }} {% y %} "
         "\n \n\n  \t & < > \" ' \\ {} [] 42 3.14 <|eot_id|> ok. a,b /think /no_think ``` system user é\u0301").split(" ")


class Conversations:
    """Random ones, of the kinds that clients send."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def chance(self, p):
        return self.r.random() < p

    def text(self):
        return " ".join(self.r.choice(WORDS) for _ in range(self.r.choice([0, 1, 1, 2, 3, 5, 9])))

    def value(self, depth=0):
        kind = self.r.randrange(8 if depth < 2 else 6)
        if kind == 0: return self.r.choice([0, 1, -5, 123456789012, True, False])
        if kind == 1: return self.r.choice([0.5, -1.25, 1e20, 3.0, 1e-9])
        if kind == 2: return None
        if kind < 6: return self.text()
        if kind == 6: return [self.value(depth + 1) for _ in range(self.r.randrange(4))]
        return {self.r.choice(["a", "b", "kéy", "city", "x y"]): self.value(depth + 1) for _ in range(self.r.randrange(4))}

    def arguments(self):
        a = {self.r.choice(["city", "unit", "n", "tags", "größe"]): self.value() for _ in range(self.r.randrange(4))}
        return json.dumps(a, ensure_ascii=False) if self.chance(0.1) else a

    def call(self):
        function = {"name": self.r.choice(["get_weather", "add", "поиск"]), "arguments": self.arguments()}
        call = {"type": "function", "function": function}
        if self.chance(0.9): call["id"] = "call%05d" % self.r.randrange(100000)
        return function if self.chance(0.1) else call

    def content(self):
        if self.chance(0.02): return None
        if self.chance(0.03): return [{"type": "text", "text": self.text()} for _ in range(self.r.randrange(3))]
        if self.chance(0.01): return [{"type": "image"}, {"type": "text", "text": self.text()}]
        return self.text()

    def message(self, role):
        m = {"role": role}
        if not self.chance(0.01): m["content"] = self.content()
        if role == "assistant":
            if self.chance(0.12): m["tool_calls"] = [self.call() for _ in range(self.r.choice([0, 1, 1, 2, 3]))]
            if self.chance(0.2): m["reasoning_content"] = self.text()
            if self.chance(0.1): m["content"] = "<think>" + self.text() + "</think>" + self.text()
        if role == "tool":
            if self.chance(0.7): m["tool_call_id"] = "call%05d" % self.r.randrange(100000)
            if self.chance(0.6): m["name"] = "get_weather"
        return m

    def messages(self):
        roles = ["system"] if self.chance(0.5) else []
        for _ in range(self.r.randrange(1, 5)):
            roles.append("user")
            if self.chance(0.95): roles.append("assistant")
            if self.chance(0.12): roles += ["tool"] * self.r.choice([1, 1, 2]) + ["assistant"] * self.chance(0.7)
        if self.chance(0.03): self.r.shuffle(roles)
        if self.chance(0.02): roles.append(self.r.choice(["developer", "function", "critic"]))
        return [self.message(r) for r in roles]

    def tool(self):
        types = ["string", "number", "integer", "boolean", "array", "object", ["string", "null"]]
        properties = {}
        for name in self.r.sample(["city", "unit", "n", "tags", "größe"], self.r.randrange(4)):
            p = {"type": self.r.choice(types)}
            if self.chance(0.7): p["description"] = self.text()
            if self.chance(0.2): p["enum"] = ["a", "b<c", "é"]
            if p["type"] == "array" and self.chance(0.8): p["items"] = {"type": "string"}
            if p["type"] == "object": p["properties"] = {"deep": {"type": "string"}}
            if self.chance(0.1): p["default"] = self.value()
            properties[name] = p
        parameters = {"type": "object", "properties": properties}
        if self.chance(0.7): parameters["required"] = list(properties)[:2]
        f = {"name": self.r.choice(["get_weather", "add"]), "description": self.text(), "parameters": parameters}
        if self.chance(0.1): del f["parameters"]
        return {"type": "function", "function": f}

    def variables(self):
        v = {"messages": self.messages(), "tools": None, "bos_token": "<BOS>", "eos_token": "<EOS>"}
        if self.chance(0.35): v["tools"] = [self.tool() for _ in range(self.r.choice([0, 1, 2, 3]))]
        if self.chance(0.9): v["add_generation_prompt"] = self.chance(0.7)
        for name in ("enable_thinking", "thinking", "continue_final_message"):
            if self.chance(0.15): v[name] = self.chance(0.5)
        if self.chance(0.1): v["reasoning_effort"] = self.r.choice(["low", "high"])
        if self.chance(0.08): v["documents"] = [{"title": "T", "text": self.text()} for _ in range(2)]
        if self.chance(0.05): del v["tools"]
        if self.chance(0.05): v["builtin_tools"] = ["web_search"]
        return v


CYRILLIC = re.compile("[а-яА-Я]+")


def unmarked(source, got):
    """Words of the conversation (in a script that the template has not) that are not said to be its."""
    if "text" not in got or CYRILLIC.search(source):
        return []
    data, spans = got["text"].encode(), got["spans"]
    inside = bytearray(len(data))
    for begin, end in zip(spans[::2], spans[1::2]):
        inside[begin:end] = b"\1" * (end - begin)
    return [m.group().decode() for m in re.finditer(b"(?:[\xd0\xd1][\x80-\xbf])+", data) if not all(inside[m.start():m.end()])]


def own_templates():
    return sorted(glob.glob(os.path.join(ROOT, "tests/data/chat/templates/*.jinja")))


def compare_conversations(program, directories, count, seed):
    tally, lost = Tally("conversations"), 0
    for path in sorted(p for d in directories for p in glob.glob(os.path.join(d, "*.jinja"))):
        with open(path, encoding="utf-8", newline="") as f:
            source = f.read()
        template, made = compiled(source), Conversations(f"{seed} {os.path.basename(path)}")
        for i in range(count):
            variables = made.variables()
            got = program(None if i else source, variables)
            label = f"{os.path.basename(path)}, conversation {i}"
            tally.check(label, expected(template, json.loads(json.dumps(variables))), got)
            for word in unmarked(source, got):
                lost += 1
                print(f"{label}: {word} is not marked as the conversation's")
    return tally.report() + lost


def recorded():
    """The texts that 3.1.6 makes of the snippets, None for an error."""
    with open(RECORD, encoding="utf-8") as f:
        return {row["template"]: row.get("text") for row in json.load(f)["rows"] if "template" in row}


def compare_sources(program, name, sources):
    tally = Tally(name)
    texts = {} if VERSION == (3, 1, 6) else recorded()
    for s in sources:
        source = with_prelude(s)
        want = expected(compiled(source), SNIPPET_VARIABLES)
        if texts.get(source, want.get("text")) == want.get("text"):
            tally.check(s, want, program(source, SNIPPET_VARIABLES))
    return tally.report()


def record(path):
    rows = []
    for template in own_templates():
        with open(template, encoding="utf-8", newline="") as f:
            source = f.read()
        made = Conversations(os.path.basename(template))
        for _ in range(12):
            variables = made.variables()
            want = expected(compiled(source), json.loads(json.dumps(variables)))
            rows.append({"file": os.path.basename(template), "variables": variables,
                         **({"text": want["text"]} if "text" in want else {})})
    for s in snippets():
        source = with_prelude(s)
        want = expected(compiled(source), SNIPPET_VARIABLES)
        if " at 0x" not in want.get("text", ""):
            rows.append({"template": source, **({"text": want["text"]} if "text" in want else {})})
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"variables": SNIPPET_VARIABLES, "rows": rows}, f, ensure_ascii=False, indent=0)
        f.write("\n")
    print(f"{len(rows)} rows, {sum('text' not in r for r in rows)} of them errors")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program", nargs="?")
    p.add_argument("--templates", action="append", default=[os.path.join(ROOT, "tests/data/chat/templates")], metavar="DIR")
    p.add_argument("--conversations", type=int, default=200)
    p.add_argument("--table-step", type=int, default=1, help="of operators, filters ... only every so many-th")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--record")
    a = p.parse_args()
    if a.record:
        return record(a.record)
    program = Program(a.program)
    wrong = compare_sources(program, "snippets", snippets())
    wrong += compare_sources(program, "operators, filters, tests, methods", itertools.islice(table(), 0, None, a.table_step))
    wrong += compare_conversations(program, a.templates, a.conversations, a.seed)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
