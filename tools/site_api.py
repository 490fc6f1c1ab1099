# SPDX-License-Identifier: Apache-2.0
"""Writes a page of the site for each public header: declarations with the text of their comments. Used by site.py."""
import re

# A comment, a directive with its continuation lines, a declaration up to a semicolon outside braces, or a blank line.
TOKEN = re.compile(r"""
    (?P<comment>/\*.*?\*/[ ]*\n) |
    (?P<directive>\#(?:[^\n]*\\\n)*[^\n]*\n) |
    (?P<blank>\n) |
    (?P<declaration>(?:/\*.*?\*/|"[^"]*"|\{(?:[^{}]|\{[^{}]*\})*\}|[^;{}"/]|/(?!\*))*;[^\n]*?(?:/\*.*?\*/[^\n]*)?\n)
    """, re.X | re.S)
IGNORED = re.compile(r"#(ifdef|ifndef|if|else|endif|undef|include|define AG_API)\b|#define ANTIGRAVITY_")
SECTION = re.compile(r"/\* ---- (.*?) ---- \*/")
NAME = re.compile(r"`[^`]+`|\bag_[a-z0-9_]+\b(?:\(\))?|\bAG_[A-Z0-9_]+\b")


def comment_text(comment):
    """Returns a comment's lines without its stars."""
    body = re.sub(r"^/\*+ ?|\s*\*/\s*$", "", comment)
    return re.sub(r"(?m)^[ \t]*\* ?", "", body).rstrip()


def names_of(code):
    """Returns the names that a declaration or a macro introduces."""
    code = re.sub(r"/\*.*?\*/", "", code, flags=re.S)
    macro = re.match(r"#define (\w+)", code)
    if macro:
        return [macro[1]]
    flat = re.sub(r"\{.*\}", "{}", code, flags=re.S)
    pointer = re.search(r"\(\*(ag_\w+)\)", flat)
    function = re.search(r"\b(ag_\w+)\(", flat)
    if pointer or function:
        return [pointer[1]] if pointer else [function[1] + "()"]
    last = re.search(r"\b(ag_\w+)\s*;", flat) or re.search(r"\b(?:struct|enum|union) (ag_\w+)", flat)
    return [last[1]] if last else re.findall(r"\bAG_[A-Z0-9_]+\b", code)[:1]


def without_export(code):
    """Returns a declaration without AG_API, its later lines aligned again."""
    return re.sub(r"(?m)^ {7}", "", code.removeprefix("AG_API ")) if code.startswith("AG_API ") else code


class Header:
    """The title, the introduction and the groups of a header. A comment and the declarations after it are a group."""

    def __init__(self, path):
        self.name = path.name
        text = path.read_text().split("*/\n", 1)[1]  # the licence
        introduction = re.match(r"\s*/\*.*?\*/\n", text, re.S)[0]
        self.introduction = comment_text(introduction.strip())
        self.groups = []  # (section or None, text, [code])
        self.parse(text[len(introduction):])

    def parse(self, text):
        at, section, comment, is_open = 0, None, "", False
        while at < len(text):
            ignored = re.match(r'extern "C" \{\n|\}\n', text[at:])
            token = None if ignored else TOKEN.match(text, at)
            if not ignored and not token:
                raise ValueError(f"{self.name}: cannot parse: {text[at:at + 80]!r}")
            at += len(ignored[0]) if ignored else len(token[0])
            if ignored or (token["directive"] and IGNORED.match(token[0])):
                continue
            if token["comment"]:
                heading = SECTION.match(token[0])
                section, comment = (heading[1], "") if heading else (section, comment_text(token[0]))
                is_open = False
            elif token["blank"]:
                comment, is_open = "", False
            elif not names_of(token[0]):
                raise ValueError(f"{self.name}: a declaration without a name: {token[0]!r}")
            else:
                if not is_open:
                    self.groups.append((section, comment, []))
                self.groups[-1][2].append(without_export(token[0]))
                is_open = True


def anchor(code):
    return names_of(code[0])[0].removesuffix("()").lower()


def escaped(text):
    return re.sub(r"([\\`*_<>\[\]{}|#])", r"\\\1", text)


def prose(text, places):
    """Returns a comment as Markdown. Indented lines stay as they are; names become links to their declarations."""
    blocks = []
    for paragraph in re.split(r"\n\s*\n", text):
        for is_code, lines in split_indented(paragraph.split("\n")):
            if is_code:
                blocks.append("```text\n" + "\n".join(lines) + "\n```")
            else:
                blocks.append(inline(" ".join(lines), places))
    return "\n\n".join(blocks)


def split_indented(lines):
    """Yields runs of lines: lists as one paragraph each, tables of indented lines as code."""
    run, was_code = [], False
    for line in lines:
        is_item = re.match(r" *- ", line) is not None
        is_code = not is_item and line.startswith("  ") and not (run and run[0].startswith("- "))
        if run and (is_item or is_code != was_code):
            yield was_code, run
            run = []
        run.append(line if is_code else line.strip())
        was_code = is_code
    if run:
        yield was_code, run


def inline(text, places):
    item = text.startswith("- ")
    parts, at = [], 0
    text = text.removeprefix("- ")
    for match in NAME.finditer(text):
        if match[0][0] == "`":
            parts += [escaped(text[at:match.start()]), match[0]]
            at = match.end()
            continue
        place = places.get(match[0].removesuffix("()"))
        parts += [escaped(text[at:match.start()]), f"[`{match[0]}`]({place})" if place else f"`{match[0]}`"]
        at = match.end()
    return ("- " if item else "") + "".join(parts) + escaped(text[at:])


def page(header, places):
    lines = [f"# {header.name}", "", prose(header.introduction, places), "",
             "```c", f"#include <antigravity/{header.name}>", "```"]
    last = None
    level = "###" if any(section for section, _, _ in header.groups) else "##"
    for section, text, code in header.groups:
        if section != last:
            lines += ["", f"## {section[0].upper()}{section[1:]}"]
            last = section
        names = ", ".join(name for declaration in code for name in names_of(declaration))
        lines += ["", f"{level} {escaped(names)} {{#{anchor(code)}}}", "", "```c", "".join(code).rstrip(), "```"]
        if text:
            lines += ["", prose(text, places)]
    return "\n".join(lines) + "\n"


def write(include, out):
    """Writes the pages into the directory `out`, and README.md with their list. Returns where names are declared, as
    NAME: PAGE#ANCHOR."""
    headers = [Header(path) for path in sorted(include.glob("*.h"))]
    places = {}
    for header in headers:
        for _, _, code in header.groups:
            for declaration in code:
                for name in names_of(declaration) + re.findall(r"(?m)^ +(AG_[A-Z0-9_]+)\b(?=[ ,])", declaration):
                    places.setdefault(name.removesuffix("()"), f"{header.name}.md#{anchor(code)}")
    out.mkdir(parents=True)
    index = ["# Functions", "", "Each page shows a public header: declarations and their comments.",
             "A program includes `<antigravity/antigravity.h>`; the guide [explains the library](../../guide/embedding.md).",
             "", "| Header | Contents |", "|---|---|"]
    for header in headers:
        (out / f"{header.name}.md").write_text(page(header, places))
        summary = re.split(r"(?<=\.)\s", header.introduction, 1)[0].replace("\n", " ")
        index.append(f"| [{header.name}]({header.name}.md) | {inline(summary.rstrip('.'), places)} |")
    (out / "README.md").write_text("\n".join(index) + "\n")
    return places
