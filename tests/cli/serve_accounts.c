/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the server's own files: its allocator, installed before main() as the server does.
 */
#include "serve/work/account.h"

__attribute__((constructor)) static void install(void) { account_install(); }
