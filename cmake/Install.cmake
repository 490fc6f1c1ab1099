# SPDX-License-Identifier: Apache-2.0
# Headers, library, CMake package, antigravity.pc and the bundled model. The tree may be moved after installing.
include(CMakePackageConfigHelpers)

set(AG_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/antigravity)
set(AG_DATA_DIR ${CMAKE_INSTALL_DATADIR}/antigravity)

install(TARGETS antigravity EXPORT antigravityTargets)
install(DIRECTORY include/antigravity DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY models/demo DESTINATION ${AG_DATA_DIR}/models)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT antigravityTargets NAMESPACE antigravity:: DESTINATION ${AG_PACKAGE_DIR})
configure_package_config_file(cmake/antigravityConfig.cmake.in antigravityConfig.cmake
  INSTALL_DESTINATION ${AG_PACKAGE_DIR})
write_basic_package_version_file(antigravityConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/antigravityConfig.cmake
  ${PROJECT_BINARY_DIR}/antigravityConfigVersion.cmake
  DESTINATION ${AG_PACKAGE_DIR})
if(NOT BUILD_SHARED_LIBS)
  install(FILES cmake/Dependencies.cmake DESTINATION ${AG_PACKAGE_DIR})
endif()

# A shared library brings its own dependencies, so its users need no headers of theirs; the archive leaves them to its users.
set(AG_PC_DEPENDENCIES "")
set(AG_PC_LIBS "-lantigravity")
if(NOT BUILD_SHARED_LIBS)
  set(AG_PC_DEPENDENCIES "Requires: jansson >= 2.13, libpcre2-8 >= 10.40, libutf8proc >= 2.5\n")
  string(APPEND AG_PC_LIBS " -lm -pthread")
endif()
set(AG_PC_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH AG_PC_TO_PREFIX ${CMAKE_INSTALL_PREFIX}/${AG_PC_DIR} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" AG_PC_TO_PREFIX ${AG_PC_TO_PREFIX})
configure_file(cmake/antigravity.pc.in antigravity.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/antigravity.pc DESTINATION ${AG_PC_DIR})

# Units of systemd, which name the program where it is installed.
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND AG_EVENT_LIBRARY)
  install(CODE "
    set(AG_UNIT_PROGRAM \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/antigravity\")
    configure_file(\"${PROJECT_SOURCE_DIR}/packaging/antigravity.service.in\"
      \"${PROJECT_BINARY_DIR}/antigravity.service\" @ONLY)")
  install(FILES ${PROJECT_BINARY_DIR}/antigravity.service packaging/antigravity.socket DESTINATION lib/systemd/system)
endif()
