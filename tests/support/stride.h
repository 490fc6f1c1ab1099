/* SPDX-License-Identifier: Apache-2.0 */
/* Runs fewer cases under a sanitizer or an emulator: one of each $AG_TEST_STRIDE neighbours. */
#ifndef AG_SUPPORT_STRIDE_H
#define AG_SUPPORT_STRIDE_H

#include <stddef.h>
#include <stdlib.h>

/* Returns the stride, 1 if every case is to run. */
static inline size_t test_stride(void) {
    const char *text = getenv("AG_TEST_STRIDE");
    const long stride = text ? strtol(text, NULL, 10) : 1;
    return stride > 0 ? (size_t)stride : 1;
}

/* Returns how many of n rounds to run, at least 1. */
static inline size_t test_rounds(size_t n) {
    const size_t some = n / test_stride();
    return some ? some : 1;
}

#endif
