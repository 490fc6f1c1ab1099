/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions of NVIDIA's devices. Included by kernels. */
#ifndef NVIDIA_CL
#define NVIDIA_CL

#ifdef __NV_CL_C_VERSION

/* Returns bytes of a (0 to 3) and b (4 to 7) that the selector's nibbles choose. */
static inline uint permute(uint a, uint b, uint selector) {
    uint r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
    return r;
}

/* Returns two values in F16, `low` in the lower half. */
static inline uint pack_halves(float low, float high) {
    uint r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* Returns v of lane (own lane ^ mask). */
static inline float shuffle_xor(float v, uint mask) {
    uint r;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                 : "=r"(r)
                 : "r"(as_uint(v)), "r"(mask));
    return as_float(r);
}

#endif

#endif
