/* SPDX-License-Identifier: Apache-2.0 */
/* Exchange between the lanes of an NVIDIA warp, and between work-groups. Other devices emulate the
 * exchange through local memory. Included by kernels. */
#ifndef WARP_CL
#define WARP_CL

#include "nvidia.cl"

enum { WARP = 32 };

/* Returns v of lane (own lane ^ mask), mask < WARP. All work-items of the work-group must call it.
 * scratch: a local float for each work-item, only used by the emulation. */
static inline float from_lane(float v, uint mask, __local float *scratch) {
#ifdef __NV_CL_C_VERSION
    return shuffle_xor(v, mask);
#else
    scratch[get_local_id(0)] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    v = scratch[get_local_id(0) ^ mask];
    barrier(CLK_LOCAL_MEM_FENCE);
    return v;
#endif
}

/* Orders accesses to global memory before and after it for all work-groups. */
static inline void fence_device(void) {
#ifdef __NV_CL_C_VERSION
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
    mem_fence(CLK_GLOBAL_MEM_FENCE);
#endif
}

/* Returns true in the last of n work-groups that call it with this count, which is 0 before and
 * after. That group then sees what the others stored before. */
static inline bool is_last_group(volatile __global uint *count, uint n, __local uint *finished) {
    fence_device();
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        *finished = atomic_inc(count) + 1;
        if (*finished == n) *count = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (*finished != n) return false;
    fence_device();
    return true;
}

#endif
