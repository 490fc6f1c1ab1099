# SPDX-License-Identifier: Apache-2.0
"""The examples run, from where the package installs them."""

import os
import pathlib
import subprocess
import sys

import pytest

import libantigravity as ag

INSTALLED = pathlib.Path(ag.__file__).parents[1]
EXAMPLES = INSTALLED / "share/doc/libantigravity/examples"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("story.py", "' sons' 6"),
        ("policy.py", "slots are equal: True"),
        ("notebook.py", "keys ("),
        ("tasks.py", "two texts"),
        ("llama.py", "stop"),
    ],
)
def test_example_runs(name, line, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(INSTALLED)}
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert line in result.stdout
    if name == "notebook.py":
        values = dict(text.split(": ") for text in result.stdout.splitlines() if text.count(": ") == 1)
        assert values["KeyDiff in NumPy"] == values["keydiff"] > values["all slots"]
