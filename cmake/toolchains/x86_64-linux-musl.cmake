# SPDX-License-Identifier: Apache-2.0
set(ag_arch x86_64)
set(ag_libc musl)
include(${CMAKE_CURRENT_LIST_DIR}/zig.cmake)
