# SPDX-License-Identifier: Apache-2.0
# Linux with glibc 2.17 and later, or with musl, for the toolchain files that include this one after they set ag_arch and
# ag_libc. The compiler is zig, which brings the headers and stubs of each C library: ZIG is the program, ZIG_BIN a directory
# with zig-ar and zig-ranlib (scripts/zig.sh makes it).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${ag_arch})
set(CMAKE_C_COMPILER $ENV{ZIG} cc -target ${ag_arch}-linux-${ag_libc})
set(CMAKE_AR $ENV{ZIG_BIN}/zig-ar CACHE FILEPATH "")
set(CMAKE_RANLIB $ENV{ZIG_BIN}/zig-ranlib CACHE FILEPATH "")

# A static program runs here: as it is, or under an emulator that needs nothing else. CMake runs programs that it has built
# for another system only if one is named, so the trivial one is env.
if(ag_libc STREQUAL "musl")
  set(CMAKE_C_FLAGS_INIT -D_UINTPTR_T) # tells cmocka.h that musl has uintptr_t
  if(ag_arch STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)
    set(CMAKE_CROSSCOMPILING_EMULATOR env)
  else()
    find_program(AG_QEMU NAMES qemu-${ag_arch}-static qemu-${ag_arch})
    if(AG_QEMU)
      set(CMAKE_CROSSCOMPILING_EMULATOR ${AG_QEMU})
    endif()
  endif()
endif()

# Libraries and headers of this system are not for the other C library.
set(CMAKE_FIND_ROOT_PATH /nonexistent)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
