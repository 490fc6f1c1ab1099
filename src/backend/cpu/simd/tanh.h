/* SPDX-License-Identifier: Apache-2.0 */
/* tanh. Include a vec.h first. Near 0 it is an odd polynomial, interpolated at the Chebyshev points
 * of [0, 0.6]; elsewhere (1 - t) / (1 + t) with t = exp(-2 |x|). The error is at most 2 units in
 * the last place. NaN gives NaN. */
#ifndef AG_BACKEND_CPU_SIMD_TANH_H
#define AG_BACKEND_CPU_SIMD_TANH_H

INLINE vec v_tanh(vec x) {
    const vec one = v_set(1), square = v_mul(x, x);
    vec p = v_set(0x1.36bdb2p-9f);
    p = v_fma(p, square, v_set(-0x1.1394cap-7f));
    p = v_fma(p, square, v_set(0x1.64fad8p-6f));
    p = v_fma(p, square, v_set(-0x1.ba0d94p-5f));
    p = v_fma(p, square, v_set(0x1.1110f6p-3f));
    p = v_fma(p, square, v_set(-0x1.555556p-2f));
    const vec near_0 = v_fma(v_mul(square, p), x, x);
    const vec t = v_exp(v_mul(v_abs(x), v_set(-2)));
    const vec far = v_div(v_sub(one, t), v_add(one, t));
    const vec signed_far = v_if_less(x, v_zero(), v_sub(v_zero(), far), far);
    return v_if_less(v_abs(x), v_set(0.6f), near_0, signed_far);
}

#endif
