# SPDX-License-Identifier: Apache-2.0
# 64-bit Android through the NDK's own toolchain file. Untested: no NDK was at hand.
if(NOT DEFINED ENV{ANDROID_NDK})
  message(FATAL_ERROR "set ANDROID_NDK to the folder of the Android NDK")
endif()
set(ANDROID_ABI arm64-v8a)
set(ANDROID_PLATFORM android-28)
include($ENV{ANDROID_NDK}/build/cmake/android.toolchain.cmake)
