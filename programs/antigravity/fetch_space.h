/* SPDX-License-Identifier: Apache-2.0 */
/* Free space of the store's file system. */
#ifndef ANTIGRAVITY_FETCH_SPACE_H
#define ANTIGRAVITY_FETCH_SPACE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether the file system of `path` has room for `needed` more bytes, also where the file
 * system does not report it. On false the reason is in why[HTTP_WHY]. */
bool fetch_has_space(const char *path, uint64_t needed, char *why);

#endif
