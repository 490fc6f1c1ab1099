#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each kernel file compiles by itself, as OpenCL C 1.2 and for pointers of 32 and of 64 bits.
#   opencl_kernels.sh SOURCE_DIR
set -euo pipefail
include=$1/include/antigravity # dtype_table.h
cd "$1/src/backend/opencl/kernels"
if ! command -v clang >/dev/null; then
    echo "skipped: no clang here"
    exit 77
fi
status=0

# compile TARGET FILES OPTION...: FILES are separated by spaces. The compiler itself takes them in one process, in which
# the time goes into starting it.
compile() {
    local files
    read -ra files <<<"$2"
    clang -cc1 -triple "$1" -fsyntax-only -finclude-default-header -fdeclare-opencl-builtins -fgnuc-version=4.2.1 \
        -Wspir-compat -Wall -Wextra -I "$include" -Wno-unused-function -Wno-unused-parameter -Wno-ignored-pragmas -Werror "${@:3}" \
        -x cl "${files[@]}" || status=1
}

# check FILES OPTION...
check() {
    local target
    for target in spir spir64; do compile $target "$@"; done
}

check "$(echo *.cl)" -cl-std=CL1.2

# What only some models have.
check "attention.cl attention_mma.cl attention_rows.cl" -cl-std=CL1.2 -DWINDOW=1 -DSOFTCAP=1
check token.cl -cl-std=CL1.2 -DWINDOW=1 -DQK_NORM=1 -DGELU=1

# What NVIDIA's compiler alone takes: PTX, in a language that has `asm`.
for set in 32 64 128 256 512 4096 8192 16384 32768 65536 127968; do # bits of ag_dtype, then all
    compile nvptx64 token.cl -cl-std=CL1.2 -D__NV_CL_C_VERSION=300 -Dasm=__asm__ -DLOCAL=256 -DSPLIT_TYPES=$set \
        -DPAIR_TYPES=$set -DROW_TYPES=$set -DLONG_TYPES=$set -DLOGIT_TYPES=$set
done

compile nvptx64 "matmul_mma.cl attention_mma.cl attention_rows.cl pack.cl" -cl-std=CL1.2 -cl-ext=+cl_khr_fp16 -D__NV_CL_C_VERSION=300 -Dasm=__asm__

# What types of weights have of their own.
for type in q4_1 q8_0 iq4_nl mxfp4 q5_0 q5_1 q4_k q5_k q6_k q2_k q3_k; do
    check "matmul_rows.cl matmul_tile.cl matmul_mma.cl matvec.cl" -cl-std=CL1.2 -DWTYPE=WEIGHT_$type -DINT_DOT=1
done

# Paths for extensions, under each language that a device which lists them may have.
for language in CL2.0 CL3.0; do
    subgroups=("-cl-std=$language" -cl-ext=+cl_khr_subgroups -DSUBGROUPS=1)
    with="rows.cl attention.cl matvec.cl vendor_check.cl"
    check "$with" "${subgroups[@]}"
    # clang knows neither this extension of Qualcomm's nor its attribute.
    check "$with" "${subgroups[@]}" -Dcl_qcom_reqd_sub_group_size -Wno-ignored-pragmas -Wno-unknown-attributes
done
for language in CL1.2 CL2.0 CL3.0; do
    with="matvec.cl vendor_check.cl"
    [ $language = CL1.2 ] || check "$with" -cl-std=$language -DINT_DOT=1 -DDOT=1
    check "$with" -cl-std=$language -DINT_DOT=1 -DDOT=2 -Dcl_arm_integer_dot_product_accumulate_int8
    check "$with" -cl-std=$language -DINT_DOT=1 -DDOT=3 -Dcl_arm_integer_dot_product_int8
    check "$with" -cl-std=$language -DINT_DOT=1 -DDOT=4
    for type in q4_0 q4_1 q8_0 q5_1 q6_k q2_k; do
        check matmul_tile.cl -cl-std=$language -cl-ext=+cl_khr_fp16 -DHALF=1 -DWTYPE=WEIGHT_$type
    done
    check vendor_check.cl -cl-std=$language -cl-ext=+cl_khr_fp16 -DHALF=1
done
exit $status
