/* SPDX-License-Identifier: Apache-2.0 */
/* Product of four signed bytes with four others, by the extension DOT. Included by kernels. */

#ifndef DOT
#define DOT 0
#endif
#define DOT_KHR 1      /* cl_khr_integer_dot_product, which needs no pragma, and OpenCL C 2.0 */
#define DOT_ARM_SUM 2  /* cl_arm_integer_dot_product_accumulate_int8 */
#define DOT_ARM 3      /* cl_arm_integer_dot_product_int8 */
#define DOT_EMULATED 4 /* emulated, for tests */

#if DOT == DOT_ARM_SUM
#pragma OPENCL EXTENSION cl_arm_integer_dot_product_accumulate_int8 : enable
#elif DOT == DOT_ARM
#pragma OPENCL EXTENSION cl_arm_integer_dot_product_int8 : enable
#endif

/* Returns sum + the products of four signed bytes each. */
static inline int dot_bytes(uint a, uint b, int sum) {
#if DOT == DOT_KHR
    return sum + dot_4x8packed_ss_int(a, b);
#elif DOT == DOT_ARM_SUM
    return arm_dot_acc(as_char4(a), as_char4(b), sum);
#elif DOT == DOT_ARM
    return sum + arm_dot(as_char4(a), as_char4(b));
#elif DOT == DOT_EMULATED
    for (uint i = 0; i < 4; i++) {
        sum += ((int)(a << (24 - 8 * i)) >> 24) * ((int)(b << (24 - 8 * i)) >> 24);
    }
    return sum;
#elif defined(__NV_CL_C_VERSION)
    int out;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum));
    return out;
#else
    const int4 p = convert_int4(as_char4(a)) * convert_int4(as_char4(b));
    return sum + ((p.x + p.y) + (p.z + p.w));
#endif
}
