# SPDX-License-Identifier: Apache-2.0
# libevent's core, by which `antigravity serve` waits for sockets. AG_EVENT_LIBRARY is empty where there is none: then the
# command says so. A cross build looks in the other machine's folders alone, so it usually goes without.
set(AG_EVENT_LIBRARY "")
if(AG_SERVE)
  find_path(AG_EVENT_INCLUDE_DIR event2/event.h DOC "Folder that holds event2/event.h")
  set(names event_core)
  if(AG_STATIC_DEPS)
    set(names libevent_core.a)
  endif()
  find_library(AG_EVENT_CORE NAMES ${names} DOC "libevent's core")
  if(AG_EVENT_INCLUDE_DIR AND AG_EVENT_CORE)
    set(AG_EVENT_LIBRARY ${AG_EVENT_CORE})
  else()
    message(STATUS "libevent is missing: 'antigravity serve' will say that it was built without it \
(scripts/setup.sh installs it; Debian: libevent-dev)")
  endif()
endif()
