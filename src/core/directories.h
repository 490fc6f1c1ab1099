/* SPDX-License-Identifier: Apache-2.0 */
/* Directories on disk. */
#ifndef AG_CORE_DIRECTORIES_H
#define AG_CORE_DIRECTORIES_H

#include <stdbool.h>

/* The directory, and those that it lies in, for their owner alone. False: errno says why not. */
bool ag_make_directories(const char *path);

#endif
