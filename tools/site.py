#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prepares the site's pages for mkdocs and checks the pages that it wrote.

    tools/site.py prepare DIR    writes DIR/mkdocs.yml and DIR/pages
    tools/site.py check HTML     fails if a page loads something from another host

docs/ is the root of the site. A file of another directory that a page links to is copied, and is a
page if it is Markdown. The pages of functions are made from the public headers, and names of
functions in other pages are links to them. The navigation is the list of pages of docs/README.md, in its order."""
import argparse
import html.parser
import os
import pathlib
import re
import shutil
import sys

import site_api

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
API, INCLUDE = "reference/api", "include/antigravity"
FUNCTION = re.compile(r"(?<!\[)`(ag_[a-z0-9_]+)(?:\(\))?`(?!\])")
# Languages of fenced code that name a file after them: ```c examples/story.c
TITLED = re.compile(r"^```([a-z]+) ([^\s`]+)$")


class Pages:
    """Copies pages from the repository into the site's folder, with what they link to."""

    def __init__(self, out):
        self.out = out
        self.copied = set()
        self.functions = site_api.write(ROOT / INCLUDE, out / API)

    @staticmethod
    def place(path):
        """Returns the path in the site of a file of the repository."""
        if path == INCLUDE:
            return f"{API}/README.md"
        if path.startswith(INCLUDE):
            return f"{API}/{os.path.basename(path)}.md"
        return path.removeprefix("docs/")

    def link_functions(self, line, path):
        def replace(match):
            place = self.functions.get(match[1])
            start = os.path.dirname(self.place(path))
            return f"[{match[0]}]({os.path.relpath(f'{API}/{place}', start)})" if place else match[0]
        return line if line.startswith("#") else FUNCTION.sub(replace, line)

    def rewrite_links(self, line, path):
        def replace(match):
            target = os.path.normpath(os.path.join(os.path.dirname(path), match[2]))
            if not target.startswith(INCLUDE):
                if not (ROOT / target).is_file():
                    sys.exit(f"{path}: the link {match[2]} has no file; link to a file of the repository")
                self.copy(target)
            relative = os.path.relpath(self.place(target), os.path.dirname(self.place(path)))
            return match[1] + relative + match[3]
        return LINK.sub(replace, line)

    def copy(self, path):
        if path in self.copied:
            return
        self.copied.add(path)
        destination = self.out / self.place(path)
        destination.parent.mkdir(parents=True, exist_ok=True)
        if not path.endswith(".md"):
            shutil.copyfile(ROOT / path, destination)
            return
        lines, fenced = [], False
        for line in (ROOT / path).read_text().splitlines():
            if re.match(" *```", line):
                fenced = not fenced
                line = TITLED.sub(r'```\1 title="\2"', line)
            elif not fenced:
                line = self.link_functions(self.rewrite_links(line, path), path)
            lines.append(line)
        destination.write_text("\n".join(lines) + "\n")


def navigation(pages):
    """Returns the navigation as YAML: the sections of docs/README.md and their pages."""
    lines = ["nav:", "  - README.md"]
    listed = {"README.md"}
    for line in (pages.out / "README.md").read_text().splitlines():
        if line.startswith("## "):
            lines.append(f"  - {line[3:]}:")
        for match in LINK.finditer(line):
            if match[2] not in listed:
                listed.add(match[2])
                lines.append(f"    - {match[2]}")
            if match[2] == f"{API}/README.md":
                headers = sorted((pages.out / API).glob("*.h.md"))
                lines[-1:] = ["    - Functions:", f"      - {match[2]}"]
                lines += [f"      - {API}/{header.name}" for header in headers]
    others = sorted(pages.place(path) for path in pages.copied if path.endswith(".md") and not path.startswith("docs/"))
    lines.append("  - Files of the repository:")
    lines += [f"    - {place}" for place in others if place not in listed]
    return "\n".join(lines) + "\n"


def prepare(out):
    shutil.rmtree(out / "pages", ignore_errors=True)
    pages = Pages(out / "pages")
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file():
            pages.copy(str(path.relative_to(ROOT)))
    (out / "mkdocs.yml").write_text((ROOT / "mkdocs.yml").read_text() + navigation(pages))


class Loads(html.parser.HTMLParser):
    """Collects the addresses that a browser loads when it shows a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("src", "srcset", "poster") or (name == "href" and tag in ("link", "use")) or (
                    name == "data" and tag == "object"):
                self.found.append(value or "")
            if name == "class" and "mermaid" in (value or "").split():
                self.found.append("//unpkg.com, for mermaid")  # the theme's script loads it


def check(site):
    foreign, n_loads = [], 0
    for path in sorted(site.rglob("*")):
        if path.suffix == ".html":
            parser = Loads()
            parser.feed(path.read_text())
            loads = parser.found
        elif path.suffix == ".css":
            text = path.read_text()
            loads = re.findall(r"url\(\s*['\"]?([^'\")]+)", text) + re.findall(r"@import\s*['\"]([^'\"]+)", text)
        else:
            continue
        n_loads += len(loads)
        foreign += [f"{path}: loads {load}" for load in loads if re.match(r"(https?:)?//", load)]
    if n_loads == 0:
        sys.exit(f"{site}: no page loads anything; give the folder of a built site")
    if foreign:
        sys.exit("\n".join(foreign))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["prepare", "check"])
    parser.add_argument("dir", type=pathlib.Path)
    args = parser.parse_args()
    {"prepare": prepare, "check": check}[args.action](args.dir)


if __name__ == "__main__":
    main()
