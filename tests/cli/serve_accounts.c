/* SPDX-License-Identifier: Apache-2.0 */
/* Installs the server's allocator before main(), as the server does. For tests of the server's
 * files. */
#include "serve/threads/account.h"

__attribute__((constructor)) static void install(void) { account_install(); }
