#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write _ffi.py, cffi's compiled form of the public headers.

usage: make_ffi.py HEADERS OUT CC...     HEADERS: the directory "include"; CC: a C compiler with its options
needs: cffi
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import cffi

# cffi knows the types of these headers.
STANDARD = ("stdbool.h", "stddef.h", "stdint.h")
SOURCE = "#include <antigravity/expert.h>\n"
CONSTANT = re.compile(r"#define (AG_[A-Z0-9_]+) \(*(?:\(\w+\))?(0x[0-9a-f]+|[0-9]+)\)*$", re.MULTILINE)


def preprocess(headers: pathlib.Path, compiler: list[str], *options: str) -> str:
    with tempfile.TemporaryDirectory() as empty:
        for name in STANDARD:
            pathlib.Path(empty, name).touch()
        command = [*compiler, "-E", "-P", "-nostdinc", "-U__GNUC__", *options, f"-I{empty}", f"-I{headers}"]
        result = subprocess.run([*command, "-x", "c", "-"], input=SOURCE, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"make_ffi.py: the compiler rejects the headers: {result.stderr}")
    return result.stdout


def main() -> None:
    if len(sys.argv) < 4:
        sys.exit("usage: make_ffi.py HEADERS OUT CC...")
    headers, out, compiler = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    macros = preprocess(headers, compiler, "-dM")
    constants = "".join(f"#define {name} {value}\n" for name, value in CONSTANT.findall(macros))
    ffi = cffi.FFI()
    ffi.set_source("libantigravity._ffi", None)
    ffi.cdef(constants + preprocess(headers, compiler))
    ffi.emit_python_code(out)
    text = pathlib.Path(out).read_text(encoding="utf-8")
    pathlib.Path(out).write_text("# SPDX-License-Identifier: Apache-2.0\n" + text, encoding="utf-8")


main()
