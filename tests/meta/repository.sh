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
while IFS= read -r -d '' file; do
    [ -f "$file" ] || continue
    bytes=$(wc -c <"$file")
    if [ "$bytes" -gt 20000000 ]; then
        echo "$file: $bytes bytes, more than 20000000"
        status=1
    fi
    case $file in
    *.c | *.h | *.cl | *.sh | *.py)
        head -n 3 "$file" | grep -q 'SPDX-License-Identifier: ' || {
            echo "$file: no SPDX line"
            status=1
        }
        ;;
    esac
done < <(git ls-files -z)
exit $status
