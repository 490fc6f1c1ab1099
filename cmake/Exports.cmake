# SPDX-License-Identifier: Apache-2.0
# ag_export_only_ours(TARGET): a shared library exports ag_* alone. Symbols of archives that it contains stay hidden.
function(ag_export_only_ours target)
  if(APPLE OR WIN32)
    return()
  endif()
  set(map ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  target_link_options(${target} PRIVATE LINKER:--version-script=${map})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map})
endfunction()

# ag_shared_library(TARGET [SOURCE...]): a shared library of the objects of libantigravity.a and these sources,
# without its dependencies.
function(ag_shared_library target)
  get_property(isa_objects GLOBAL PROPERTY AG_ISA_OBJECTS)
  add_library(${target} SHARED $<TARGET_OBJECTS:antigravity> ${isa_objects} ${ARGN})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
  ag_export_only_ours(${target})
endfunction()
