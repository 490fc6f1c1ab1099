# SPDX-License-Identifier: Apache-2.0
# Flags of three instruction sets of 64-bit ARM. zig takes -march for the name of a processor, and gcc 12 does not know
# "generic+dotprod".
set(AG_ARM_FLAGS -march=armv8-a)
set(AG_ARM_DOTPROD_FLAGS -march=armv8.2-a+dotprod)
set(AG_ARM_I8MM_FLAGS -march=armv8.2-a+dotprod+i8mm)
if(CMAKE_C_COMPILER MATCHES "/zig$")
  set(AG_ARM_FLAGS -mcpu=generic)
  set(AG_ARM_DOTPROD_FLAGS -mcpu=generic+dotprod)
  set(AG_ARM_I8MM_FLAGS -mcpu=generic+dotprod+i8mm)
endif()
