# SPDX-License-Identifier: Apache-2.0
# Linux with glibc 2.17 and later, for the toolchain files that include this one after they set ag_arch. The compiler is zig,
# which brings the headers and stubs of each glibc: ZIG is the program, ZIG_BIN a directory with zig-ar and zig-ranlib
# (scripts/wheel.sh makes it).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${ag_arch})
set(CMAKE_C_COMPILER $ENV{ZIG} cc -target ${ag_arch}-linux-gnu.2.17)
set(CMAKE_AR $ENV{ZIG_BIN}/zig-ar CACHE FILEPATH "")
set(CMAKE_RANLIB $ENV{ZIG_BIN}/zig-ranlib CACHE FILEPATH "")

# Libraries and headers of this system are not for the other glibc.
set(CMAKE_FIND_ROOT_PATH /nonexistent)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
