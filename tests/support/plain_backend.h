/* SPDX-License-Identifier: Apache-2.0 */
/* A backend that fills only the required slots, in the plainest way: whatever else works on it is
 * composed by core. Its memory can hide from the host, as a device's does. */
#ifndef AG_TESTS_SUPPORT_PLAIN_BACKEND_H
#define AG_TESTS_SUPPORT_PLAIN_BACKEND_H

#include <antigravity/backend.h>

/* Returns NULL if out of memory. Free it with ag_backend_destroy(), after its buffers. */
ag_backend *plain_backend_create(bool host_visible);

#endif
