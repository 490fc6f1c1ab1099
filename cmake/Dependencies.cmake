# SPDX-License-Identifier: Apache-2.0
# ag_dependencies: the three libraries of the system that libantigravity stands on, and threads.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson>=2.13)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8>=10.40)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc>=2.5)
add_library(ag_dependencies INTERFACE)
target_link_libraries(ag_dependencies INTERFACE PkgConfig::JANSSON PkgConfig::PCRE2 PkgConfig::UTF8PROC
  Threads::Threads m)
