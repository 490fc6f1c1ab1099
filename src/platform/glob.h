/* SPDX-License-Identifier: Apache-2.0 */
/* Shell patterns: *, ? and [...]. */
#ifndef AG_PLATFORM_GLOB_H
#define AG_PLATFORM_GLOB_H

#include <stdbool.h>

/* Returns whether the pattern matches the entire text. */
bool ag_glob_matches(const char *pattern, const char *text);

#endif
