# SPDX-License-Identifier: Apache-2.0
# The headers of libcurl, by which `antigravity pull` fetches models; the library is found at run time. They are the same
# for every machine, so a cross build takes those of this system.
set(AG_CURL_HEADERS "")
if(AG_CURL)
  file(GLOB curl_hints /usr/include/*-linux-gnu)
  find_path(AG_CURL_INCLUDE_DIR curl/curl.h PATHS ${curl_hints} NO_CMAKE_FIND_ROOT_PATH
    DOC "Folder that holds curl/curl.h")
  if(AG_CURL_INCLUDE_DIR)
    # A folder with nothing else in it: a cross compiler must not see the other headers of this system.
    set(AG_CURL_HEADERS ${PROJECT_BINARY_DIR}/curl-headers)
    file(MAKE_DIRECTORY ${AG_CURL_HEADERS})
    file(CREATE_LINK ${AG_CURL_INCLUDE_DIR}/curl ${AG_CURL_HEADERS}/curl SYMBOLIC)
  else()
    message(STATUS "curl/curl.h is missing: 'antigravity pull' will say that it was built without libcurl \
(scripts/setup.sh installs it; Debian: libcurl4-openssl-dev)")
  endif()
endif()
