#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The repository carries no file over 20 MB, and each source file names its licence.
#   repository.sh SOURCE_DIR
set -euo pipefail
cd "$1"
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || {
    echo "skipped: not a git checkout"
    exit 77
}
status=0

# Files deleted but not yet committed as deleted have no size.
large=$(git ls-files -z | { xargs -0 stat -c '%s %n' 2>/dev/null || true; } | awk '$1 > 20000000')
if [ -n "$large" ]; then
    printf 'more than 20000000 bytes:\n%s\n' "$large"
    status=1
fi

unlicensed=$(git ls-files -z '*.c' '*.h' '*.cl' '*.sh' '*.py' | xargs -0 grep -sL 'SPDX-License-Identifier: ' || true)
if [ -n "$unlicensed" ]; then
    printf 'no SPDX line:\n%s\n' "$unlicensed"
    status=1
fi
exit $status
