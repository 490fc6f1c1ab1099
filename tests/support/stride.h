/* SPDX-License-Identifier: Apache-2.0 */
/* Under a sanitizer or an emulator the environment's AG_TEST_STRIDE says that one case of so many
 * stands for its neighbours. */
#ifndef AG_SUPPORT_STRIDE_H
#define AG_SUPPORT_STRIDE_H

#include <stddef.h>
#include <stdlib.h>

/* 1 where every case is wanted. */
static inline size_t test_stride(void) {
    const char *text = getenv("AG_TEST_STRIDE");
    const long stride = text ? strtol(text, NULL, 10) : 1;
    return stride > 0 ? (size_t)stride : 1;
}

/* How many of n rounds are made: one at least. */
static inline size_t test_rounds(size_t n) {
    const size_t some = n / test_stride();
    return some ? some : 1;
}

#endif
