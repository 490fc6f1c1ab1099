#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A project that takes this one in with add_subdirectory() gets the library and nothing else.
#   embed.sh SOURCE_DIR WORK_DIR CC LAUNCHER_OF_CC CMAKE-OPTION...
set -euo pipefail
source_dir=$1 work=$2 cc=$3 launcher=$4
shift 4

fail() {
    echo "embed: $*" >&2
    exit 1
}

rm -rf "$work"
mkdir -p "$work/project/app"
cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.21)
project(embedder LANGUAGES C)
find_package(Threads REQUIRED)
add_subdirectory("$source_dir" antigravity)
add_subdirectory(app)
END
# In a directory of its own, which sees global targets only.
cat >"$work/project/app/CMakeLists.txt" <<'END'
add_executable(app app.c)
target_link_libraries(app PRIVATE antigravity::antigravity)
END
cat >"$work/project/app/app.c" <<'END'
#include <antigravity/antigravity.h>
#include <stdio.h>
#include <string.h>

#if AG_VERSION_MAJOR * 10000 + AG_VERSION_MINOR * 100 + AG_VERSION_PATCH < 100
#error "older than 0.1.0"
#endif

int main(int argc, char **argv) {
    char text[32];
    ag_model_info info;
    ag_error err;
    snprintf(text, sizeof text, "%d.%d.%d", AG_VERSION_MAJOR, AG_VERSION_MINOR, AG_VERSION_PATCH);
    if (strcmp(text, AG_VERSION_STRING) != 0 || strcmp(text, ag_version()) != 0) return 2;
    if (argc < 2 || ag_model_inspect(argv[1], NULL, &info, &err) != AG_OK) return 3;
    printf("%u layers\n", (unsigned)info.n_layers);
    return 0;
}
END

# The OpenCL backend is the same to the build as the rest.
cmake -S "$work/project" -B "$work" -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_COMPILER_LAUNCHER="$launcher" \
    -DAG_OPENCL=OFF "$@" >"$work/configure.log"
if cmake --build "$work" --target help | grep -E '(test_|fuzz_|antigravity_program|micro_bench)'; then
    fail "targets that an embedding project did not ask for"
fi
cmake --build "$work" >"$work/build.log" || {
    tail -n 20 "$work/build.log" >&2
    fail "it does not build"
}
[ "$("$work/app/app" "$source_dir/models/demo")" = "10 layers" ] || fail "the embedding program does not run"
