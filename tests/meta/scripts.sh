#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shell scripts parse, may be run, and shellcheck (where there is one) finds nothing.
#   scripts.sh SOURCE_DIR
set -euo pipefail
cd "$1"
status=0
scripts=(.ci/run scripts/*.sh scripts/android/*.sh)
while IFS= read -r script; do scripts+=("$script"); done < <(find tests fuzz bindings -name '*.sh' 2>/dev/null)
for script in "${scripts[@]}"; do
    bash -n "$script" || status=1
done
for script in .ci/run scripts/demo.sh scripts/setup.sh scripts/test.sh scripts/deps-cross.sh scripts/models.sh scripts/wheel.sh scripts/site.sh scripts/static.sh scripts/containers.sh scripts/release.sh scripts/deb.sh scripts/trees.sh scripts/android/run.sh; do
    [ -x "$script" ] || {
        echo "$script: may not be run"
        status=1
    }
done
if command -v shellcheck >/dev/null; then
    shellcheck "${scripts[@]}" || status=1
else
    echo "no shellcheck here: the scripts are only parsed"
fi
exit $status
