#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds for 64-bit Android, brings program, oracle and demo model to a phone and runs them there.
# Untested: neither an NDK nor a phone was at hand when this was written.
#   ANDROID_NDK=... scripts/android/run.sh [check|bench|all]     default all; the phone is the one that adb finds
# The phone needs USB debugging; everything goes to /data/local/tmp/antigravity and stays there.
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
cd "$(git rev-parse --show-toplevel)"

what=${1:-all}
there=/data/local/tmp/antigravity
case "$what" in check | bench | all) ;; *) die "usage: scripts/android/run.sh [check|bench|all]" ;; esac
[ -n "${ANDROID_NDK:-}" ] || die "set ANDROID_NDK to the folder of the Android NDK"
command -v adb >/dev/null || die "no adb here (Debian: apt install adb)"
adb get-state >/dev/null || die "adb finds no phone, or more than one"

scripts/deps-cross.sh aarch64-linux-android
quietly configure-android cmake --preset android -DAG_BUILD_TESTS=ON
quietly build-android cmake --build build/android -j "$jobs" --target antigravity_program test_backend

adb shell "mkdir -p $there/bin $there/share/antigravity/models"
adb push build/android/bin/antigravity build/android/bin/test_backend "$there/bin/"
adb push models/demo "$there/share/antigravity/models/"

# on_phone COMMAND...: with the vendor's OpenCL library, where it lies on most phones, and a cache folder of our own.
on_phone() {
    adb shell "cd $there && LD_LIBRARY_PATH=/vendor/lib64:/system/vendor/lib64 AG_OPENCL_CACHE=$there/cache $*"
}

on_phone bin/antigravity devices
if [ "$what" != bench ]; then
    on_phone bin/test_backend
    on_phone bin/test_backend --backends opencl || say "OpenCL: see above; without a device this is no failure"
    on_phone bin/antigravity generate -n 40 --temperature 0 -p "'Once upon a time'"
fi
if [ "$what" != check ]; then
    on_phone bin/antigravity bench --shape llama-3.2-1b -p 16,512 -n 64 -d 0 -r 3
    on_phone bin/antigravity bench --shape llama-3.2-1b -p 0 -n 64 -d 4096 -r 3
    on_phone bin/antigravity bench -b opencl --shape llama-3.2-1b -p 512 -n 64 -r 3 || say "OpenCL: no device, or see above"
fi
