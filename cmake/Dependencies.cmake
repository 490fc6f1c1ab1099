# SPDX-License-Identifier: Apache-2.0
# ag_dependencies: the three libraries that libantigravity stands on, and threads. This file is also part of the
# installed CMake package, because whoever links libantigravity.a needs the same libraries.
if(BUILD_SHARED_LIBS AND AG_STATIC_DEPS AND NOT AG_DEPS_DIR)
  message(FATAL_ERROR "AG_STATIC_DEPS with BUILD_SHARED_LIBS needs AG_DEPS_DIR: archives of the system are not built for a shared library")
endif()
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
if(AG_DEPS_DIR)
  set(ENV{PKG_CONFIG_LIBDIR} ${AG_DEPS_DIR}/lib/pkgconfig)
  list(APPEND CMAKE_FIND_ROOT_PATH ${AG_DEPS_DIR})
endif()

add_library(ag_dependencies INTERFACE IMPORTED)
set(AG_MISSING "")

macro(ag_dependency name module)
  pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
  if(NOT ${name}_FOUND)
    list(APPEND AG_MISSING ${module})
  elseif(AG_STATIC_DEPS)
    list(GET ${name}_LIBRARIES 0 ag_library)
    find_library(${name}_ARCHIVE lib${ag_library}.a HINTS ${${name}_LIBDIR} REQUIRED)
    target_include_directories(ag_dependencies SYSTEM INTERFACE ${${name}_INCLUDE_DIRS})
    target_link_libraries(ag_dependencies INTERFACE ${${name}_ARCHIVE})
  else()
    target_link_libraries(ag_dependencies INTERFACE PkgConfig::${name})
  endif()
endmacro()

ag_dependency(JANSSON jansson>=2.13)
ag_dependency(PCRE2 libpcre2-8>=10.40)
ag_dependency(UTF8PROC libutf8proc>=2.5)
target_link_libraries(ag_dependencies INTERFACE Threads::Threads m ${CMAKE_DL_LIBS})

if(AG_MISSING AND PROJECT_NAME STREQUAL "antigravity")
  list(JOIN AG_MISSING ", " AG_MISSING)
  message(FATAL_ERROR "missing libraries: ${AG_MISSING}; scripts/setup.sh installs them (cross builds: scripts/deps-cross.sh)")
endif()
