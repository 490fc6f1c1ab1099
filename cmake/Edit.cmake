# SPDX-License-Identifier: Apache-2.0
# The header of libedit, by which `antigravity chat` edits lines; the library is found at run time. It is the same for every
# machine, so a cross build takes that of this system.
set(AG_EDIT_HEADERS "")
if(AG_EDIT)
  find_path(AG_EDIT_INCLUDE_DIR histedit.h PATHS /usr/include /usr/local/include NO_CMAKE_FIND_ROOT_PATH
    DOC "Folder that holds histedit.h")
  if(AG_EDIT_INCLUDE_DIR)
    # A folder with nothing else in it: a cross compiler must not see the other headers of this system.
    set(AG_EDIT_HEADERS ${PROJECT_BINARY_DIR}/edit-headers)
    file(MAKE_DIRECTORY ${AG_EDIT_HEADERS})
    file(CREATE_LINK ${AG_EDIT_INCLUDE_DIR}/histedit.h ${AG_EDIT_HEADERS}/histedit.h SYMBOLIC)
  else()
    message(STATUS "histedit.h is missing: 'antigravity chat' will read lines without history and editing keys \
(scripts/setup.sh installs it; Debian: libedit-dev)")
  endif()
endif()
