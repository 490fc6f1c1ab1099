#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each kernel file compiles by itself, as OpenCL C 1.2 and for pointers of 32 and of 64 bits.
#   opencl_kernels.sh SOURCE_DIR
set -euo pipefail
cd "$1/src/backend/opencl/kernels"
if ! command -v clang >/dev/null; then
    echo "skipped: no clang here"
    exit 77
fi
status=0
for file in *.cl; do
    for target in spir spir64; do
        clang -x cl -cl-std=CL1.2 -target "$target" -Xclang -finclude-default-header -fsyntax-only -Wall -Wextra \
            -Wno-unused-function -Wno-unused-parameter -Werror "$file" || status=1
    done
done
exit $status
