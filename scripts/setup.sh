#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing to build and test, through apt: Debian 12, Ubuntu 24.04 and later.
#   scripts/setup.sh          the compiler, the build tools and the libraries
#   scripts/setup.sh --tests  also the programs that the native tests run: PoCL, Chromium, nginx, tmux, clang, ...
#   scripts/setup.sh --all    also the tools of scripts/test.sh --all: the ARM cross compiler, qemu, ...
#   scripts/setup.sh --packages  also the tools of scripts/deb.sh and scripts/trees.sh: debhelper, lintian, mmdebstrap, ...
# What is there already, from whatever source, is left alone.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

missing=()

# need PACKAGE TEST...: the package is wanted unless the test succeeds.
need() {
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

has() { command -v "$1"; }
has_module() { has pkg-config && pkg-config --exists "$1"; }
has_nginx() { has nginx || [ -x /usr/sbin/nginx ]; }
has_any() { has "$1" || has "$2"; }
has_clang_format() { grep -q 'version 14\.' <<<"$(clang-format-14 --version || clang-format --version)"; }
# The tests take the first of these that has all modules.
has_python_modules() { python3 -c "import $1" || /usr/bin/python3 -c "import $1"; }
has_library() { grep -q "$1" <<<"$(ldconfig -p || /sbin/ldconfig -p)"; }
has_opencl_driver() { compgen -G '/etc/OpenCL/vendors/*.icd'; }
compiles() { printf '%s\n' "$2" | "$1" -x c -fsyntax-only -; }
# shellcheck disable=SC2086 # The flags are words.
links() { echo 'int main(void) { return 0; }' | $1 -x c -o /dev/null -; }
available() { grep -q '^Filename:' <<<"$(apt-cache show --no-all-versions "$1" 2>/dev/null)"; }

need_basics() {
    need gcc has cc
    need libc6-dev compiles cc '#include <pthread.h>'
    need make has make
    need cmake has cmake
    need ninja-build has ninja
    need pkg-config has pkg-config
    need libjansson-dev has_module 'jansson >= 2.13'
    need libpcre2-dev has_module 'libpcre2-8 >= 10.40'
    need libutf8proc-dev has_module 'libutf8proc >= 2.5'
    need libcmocka-dev has_module cmocka
    need opencl-c-headers compiles cc '#include <CL/cl.h>'
    need libcurl4-openssl-dev compiles cc '#include <curl/curl.h>'
    need libevent-dev compiles cc '#include <event2/event.h>'
    need libssl-dev compiles cc '#include <openssl/ssl.h>'
    need libedit-dev compiles cc '#include <histedit.h>'
}

# Without one of these, native tests are skipped or left out of the build.
need_tests() {
    need ccache has ccache
    need g++ has c++
    need clang has clang
    need clang-format-14 has_clang_format
    need shellcheck has shellcheck
    [ ! -e .git ] || need git has git
    need tmux has tmux
    need man-db has man
    need zsh has zsh
    need fish has fish
    need curl has curl
    need python3 has python3
    need python3-jinja2 python3 -c 'import jinja2'
    local package
    for package in python3-cffi python3-numpy python3-pytest; do
        need "$package" has_python_modules cffi,numpy,pytest
    done
    need nginx-light has_nginx
    need chromium has_any chromium chromium-browser
    need ocl-icd-libopencl1 has_library libOpenCL.so.1
    need pocl-opencl-icd has_opencl_driver
    need oclgrind has oclgrind
}

need_extras() {
    need gcc-aarch64-linux-gnu has aarch64-linux-gnu-gcc
    need libc6-dev-arm64-cross compiles aarch64-linux-gnu-gcc '#include <pthread.h>'
    need qemu-user-static has_any qemu-aarch64-static qemu-aarch64
    need dpkg-dev has dpkg-source
    need python3-venv python3 -c 'import ensurepip' # for packages from PyPI
}

need_packaging() {
    need debhelper has dh
    need lintian has lintian
    need abigail-tools has abidw
    need mmdebstrap has mmdebstrap
    need autopkgtest has autopkgtest
    need piuparts has piuparts
    need apt-utils has apt-ftparchive
    need gpg has gpg
}

# The sanitizers' run-time library and OpenCL's functions carry clang's major version in their names.
need_clang_runtime() {
    has clang >/dev/null || return 0
    local major
    major=$(clang -dumpversion)
    need "libclang-rt-${major%%.*}-dev" links 'clang -fsanitize=fuzzer-no-link,address'
    need "libclc-${major%%.*}" test -e /usr/lib/clc/nvptx64--nvidiacl.bc
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo DEBIAN_FRONTEND=noninteractive "$@"
    fi
}

can_install() {
    if ! has apt-get >/dev/null; then
        say "This system has no apt-get. Please install what these Debian packages hold: ${missing[*]}"
    elif [ "$(id -u)" -ne 0 ] && ! has sudo >/dev/null; then
        say "Installing needs root and there is no sudo. Please run as root:"
        say "    apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    else
        return 0
    fi
    return 1
}

install_missing() {
    [ ${#missing[@]} -gt 0 ] || return 0
    can_install || exit 1
    quietly apt-update as_root apt-get update -q || say "apt-get update failed; going on with the lists at hand"
    local i
    for i in "${!missing[@]}"; do
        available "${missing[i]}" && continue
        case "${missing[i]}" in
        qemu-user-static) missing[i]=qemu-user ;; # newer distributions have the static emulators there
        chromium | clang-format-14 | oclgrind)
            say "No package ${missing[i]} here: its tests will be skipped"
            unset 'missing[i]'
            ;;
        esac
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "Installing ${missing[*]}"
    quietly apt-install as_root apt-get install -q -y --no-install-recommends "${missing[@]}" ||
        die "apt-get could not install them"
    missing=()
}

case "${1:-}" in
'') need_basics ;;
--tests)
    need_basics
    need_tests
    ;;
--all)
    need_basics
    need_tests
    need_extras
    ;;
--packages)
    need_basics
    need_tests
    need_extras
    need_packaging
    ;;
*) die "usage: scripts/setup.sh [--tests | --all | --packages]" ;;
esac
install_missing
if [[ ${1:-} =~ ^--(all|packages)$ ]]; then
    need_clang_runtime
    install_missing
fi
