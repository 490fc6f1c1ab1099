# SPDX-License-Identifier: Apache-2.0
# OpenSSL and the part of libevent that speaks it, by which `antigravity serve` has TLS. AG_TLS_LIBRARIES is empty where one
# of them is missing: then --tls-cert says so.
set(AG_TLS_LIBRARIES "")
if(AG_EVENT_LIBRARY AND AG_TLS)
  include(CheckCSourceCompiles)
  find_path(AG_TLS_INCLUDE_DIR openssl/ssl.h DOC "Folder that holds openssl/ssl.h")
  set(parts event_openssl ssl crypto)
  set(found TRUE)
  foreach(part IN LISTS parts)
    set(names ${part})
    if(AG_STATIC_DEPS)
      set(names lib${part}.a)
    endif()
    find_library(AG_TLS_${part} NAMES ${names} DOC "lib${part}")
    if(NOT AG_TLS_${part})
      set(found FALSE)
    endif()
  endforeach()
  if(AG_TLS_INCLUDE_DIR AND found)
    # Archives may want others that nobody names here, and headers may be those of another version.
    find_package(Threads REQUIRED)
    set(CMAKE_REQUIRED_INCLUDES ${AG_EVENT_INCLUDE_DIR} ${AG_TLS_INCLUDE_DIR})
    set(CMAKE_REQUIRED_LIBRARIES ${AG_TLS_event_openssl} ${AG_TLS_ssl} ${AG_TLS_crypto} ${AG_EVENT_LIBRARY}
      Threads::Threads ${CMAKE_DL_LIBS})
    check_c_source_compiles("
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/ssl.h>
#if OPENSSL_VERSION_NUMBER < 0x30000000L
#error older than OpenSSL 3
#endif
int main(void) {
    return !bufferevent_openssl_socket_new(NULL, -1, SSL_new(SSL_CTX_new(TLS_server_method())), BUFFEREVENT_SSL_ACCEPTING, 0);
}" AG_TLS_LINKS)
    unset(CMAKE_REQUIRED_INCLUDES)
    if(AG_TLS_LINKS)
      set(AG_TLS_LIBRARIES ${CMAKE_REQUIRED_LIBRARIES})
    endif()
    unset(CMAKE_REQUIRED_LIBRARIES)
  endif()
  if(NOT AG_TLS_LIBRARIES)
    message(STATUS "OpenSSL 3 or libevent's part for it is missing: 'antigravity serve' will have no TLS \
(scripts/setup.sh installs them; Debian: libssl-dev, libevent-dev)")
  endif()
endif()
