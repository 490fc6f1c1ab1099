/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/random.h"

#include <sys/random.h>

bool ag_random_bytes(void *bytes, size_t n) {
    return getrandom(bytes, n, GRND_NONBLOCK) == (ssize_t)n;
}
