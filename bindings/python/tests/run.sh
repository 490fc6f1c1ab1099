#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of the Python package against a build; mypy and ruff check its code where they are installed.
#   run.sh SOURCE_DIR WORK_DIR LIBRARY GOLDEN_MODELS CC [PYTEST-OPTION...]
set -euo pipefail
source_dir=$1 work=$2 library=$3 cc=$5
export AG_GOLDEN_MODELS=$4
shift 5
package=$source_dir/bindings/python

python=
for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import sys, cffi, numpy, pytest; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "skipped: no python3 >= 3.10 with cffi, numpy and pytest (scripts/setup.sh --tests installs them)"
    exit 77
fi

export PYTHONDONTWRITEBYTECODE=1
"$python" "$package/tools/stage.py" "$work/stage" --library "$library" -- "$cc" >/dev/null
cd "$work"
PYTHONPATH=$work/stage "$python" -m pytest -q -p no:cacheprovider "$package/tests" "$@"
if "$python" -m mypy --version >/dev/null 2>&1; then
    "$python" -m mypy --config-file "$package/pyproject.toml" --cache-dir "$work/mypy" "$package/libantigravity"
fi
if command -v ruff >/dev/null; then ruff check --no-cache "$package"; fi
