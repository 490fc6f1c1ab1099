/* SPDX-License-Identifier: Apache-2.0 */
/* Random bytes of the system. */
#ifndef AG_PLATFORM_RANDOM_H
#define AG_PLATFORM_RANDOM_H

#include <stdbool.h>
#include <stddef.h>

/* Fills bytes[0..n), n <= 256, with unpredictable bytes. Never waits: returns false while the
 * system has collected too little entropy. */
bool ag_random_bytes(void *bytes, size_t n);

#endif
