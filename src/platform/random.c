/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/random.h"

#include <linux/random.h>
#include <sys/syscall.h>
#include <unistd.h>

/* glibc has getrandom() since 2.25 only. */
bool ag_random_bytes(void *bytes, size_t n) {
    return syscall(SYS_getrandom, bytes, n, GRND_NONBLOCK) == (long)n;
}
