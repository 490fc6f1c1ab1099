# SPDX-License-Identifier: Apache-2.0
# ag_flags: language level, warnings and floating-point rules that every target of ours is built with.
add_library(ag_flags INTERFACE)
target_compile_features(ag_flags INTERFACE c_std_11)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
target_compile_definitions(ag_flags INTERFACE _GNU_SOURCE)
target_compile_options(ag_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wundef -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wcast-qual
  -Wpointer-arith -Wwrite-strings -ffp-contract=off)
if(AG_WERROR)
  target_compile_options(ag_flags INTERFACE -Werror)
endif()
