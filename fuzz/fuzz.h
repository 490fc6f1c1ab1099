/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points that libFuzzer and replay_main.c call. A target copies the parts of its input to
 * blocks of exactly their size, so that the address sanitizer sees a read one byte too far. */
#ifndef AG_FUZZ_H
#define AG_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#endif
