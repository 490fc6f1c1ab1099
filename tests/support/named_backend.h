/* SPDX-License-Identifier: Apache-2.0 */
/* The backend that a test is run on, or a message why it is skipped. */
#ifndef AG_TESTS_SUPPORT_NAMED_BACKEND_H
#define AG_TESTS_SUPPORT_NAMED_BACKEND_H

#include <antigravity/backend.h>
#include <stdio.h>

enum { EXIT_SKIPPED = 77 };

/* name NULL: the CPU; n_threads 0: the backend's default. Prints why and returns NULL
 * if the backend cannot be created. */
static inline ag_backend *open_backend(const char *name, uint32_t n_threads) {
    const ag_backend_params params = {.name = name, .n_threads = n_threads};
    ag_backend *be;
    ag_error err;
    if (ag_backend_create(&params, &be, &err) == AG_OK) return be;
    printf("skipped: %s\n", err.msg);
    return NULL;
}

#endif
