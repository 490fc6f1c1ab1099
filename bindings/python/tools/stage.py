#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Assemble the package libantigravity: Python files, the library, and for a wheel also the program and metadata.

usage: stage.py OUT --library FILE [--program FILE --tag TAG...] -- CC...
    OUT is replaced. CC is a C compiler with its options, which preprocesses the headers.
    Without --tag, OUT is a directory for PYTHONPATH; with it, one for `wheel pack`.
needs: cffi
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
ROOT = HERE.parent.parent
NAME = "libantigravity"
MODEL = pathlib.Path("share/antigravity/models/demo")
EXAMPLES = pathlib.Path("share/doc/libantigravity/examples")


def version() -> str:
    text = (ROOT / "include/antigravity/status.h").read_text(encoding="utf-8")
    match = re.search(r'AG_VERSION_STRING "(.*)"', text)
    if not match:
        sys.exit("stage.py: status.h has no AG_VERSION_STRING")
    return match.group(1)


def metadata() -> str:
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    return f"""Metadata-Version: 2.1
Name: {NAME}
Version: {version()}
Summary: Large language models on this machine, with a managed KV cache
License: Apache-2.0
Requires-Python: >=3.10
Requires-Dist: cffi>=1.15
Requires-Dist: numpy>=1.23
Description-Content-Type: text/markdown

{readme}"""


ENTRY_POINTS = f"""[llm]
antigravity = {NAME}.llm_plugin
"""


def wheel_file(tags: list[str]) -> str:
    lines = ["Wheel-Version: 1.0", "Generator: stage.py", "Root-Is-Purelib: false"]
    return "\n".join(lines + [f"Tag: {tag}" for tag in tags]) + "\n"


def copy_package(out: pathlib.Path, library: str, compiler: list[str]) -> None:
    package = out / NAME
    shutil.copytree(HERE / NAME, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(library, package / "libantigravity.so")
    make_ffi = [sys.executable, str(HERE / "tools/make_ffi.py"), str(ROOT / "include")]
    subprocess.run([*make_ffi, str(package / "_ffi.py"), *compiler], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--library", required=True)
    parser.add_argument("--program")
    parser.add_argument("--tag", action="append", default=[])
    parser.add_argument("compiler", nargs="+")
    o = parser.parse_args()
    shutil.rmtree(o.out, ignore_errors=True)
    o.out.mkdir(parents=True)
    copy_package(o.out, o.library, o.compiler)
    data = o.out
    if o.tag:
        info = o.out / f"{NAME}-{version()}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(metadata(), encoding="utf-8")
        (info / "WHEEL").write_text(wheel_file(o.tag), encoding="utf-8")
        (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
        shutil.copy(ROOT / "LICENSE", info / "LICENSE")
        data = o.out / f"{NAME}-{version()}.data" / "data"
    shutil.copytree(ROOT / "models/demo", data / MODEL)
    shutil.copytree(HERE / "examples", data / EXAMPLES, ignore=shutil.ignore_patterns("__pycache__"))
    if o.program:
        scripts = data.parent / "scripts"
        scripts.mkdir()
        shutil.copy(o.program, scripts / "antigravity")


main()
