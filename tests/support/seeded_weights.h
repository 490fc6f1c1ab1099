/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded weights: writes the model.safetensors of a test model from its weights.json.
 *
 * weights.json is {"seed": S, "dtype": "BF16", "tensors": {NAME: {"shape": [...], ...}, ...}} with
 * tensors in file order. A tensor's own "dtype" replaces the common one: BF16, F32 or U8. BF16 and
 * F32 tensors have "mean" and "half_range", multiples of 2^-12 below 2^16; U8 tensors have "min"
 * and "max". "zero": [FIRST, COUNT], where present, sets elements to 0.
 *
 * The state of splitmix64 starts at S XOR FNV-1a of the tensor's name. n is the upper 24 bits of a
 * step, one step for each element. BF16 and F32: mean + half_range * ((n - 2^23) / 2^23), exact in
 * double and then rounded to float32 and again to BF16. U8: min + (n * (max - min + 1) >> 24). */
#ifndef AG_TESTS_SEEDED_WEIGHTS_H
#define AG_TESTS_SEEDED_WEIGHTS_H

#include <stdbool.h>

/* Writes the file `out` from the weights.json `manifest`. Returns false after a message on stderr.
 * Equal manifests give equal bytes on every machine. */
bool write_seeded_weights(const char *manifest, const char *out);

#endif
