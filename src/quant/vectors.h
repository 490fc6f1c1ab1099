/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of 4 floats by compiler extension, available on every machine. Their operations have
 * the names that the vectors of the backends use. */
#ifndef AG_QUANT_VECTORS_H
#define AG_QUANT_VECTORS_H

#include <stdint.h>
#include <string.h>

enum { LANES = 4 };
#define INLINE static inline

typedef float vec __attribute__((vector_size(16)));
typedef int32_t mask __attribute__((vector_size(16)));

INLINE vec v_set(float x) { return (vec){x, x, x, x}; }
INLINE vec v_halves(float x, float y) { return (vec){x, x, y, y}; }
INLINE vec v_load(const float *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void v_store(float *p, vec v) { memcpy(p, &v, sizeof v); }
INLINE vec v_add(vec a, vec b) { return a + b; }
INLINE vec v_sub(vec a, vec b) { return a - b; }
INLINE vec v_mul(vec a, vec b) { return a * b; }
INLINE vec v_fma(vec a, vec b, vec c) { return a * b + c; }
INLINE vec v_div(vec a, vec b) { return a / b; }
INLINE vec v_if(mask m, vec yes, vec no) { return (vec)((m & (mask)yes) | (~m & (mask)no)); }
/* Return b if either is NaN. */
INLINE vec v_min(vec a, vec b) { return v_if(a < b, a, b); }
INLINE vec v_max(vec a, vec b) { return v_if(a > b, a, b); }
INLINE vec v_if_less(vec a, vec b, vec yes, vec no) { return v_if(a < b, yes, no); }

#endif
