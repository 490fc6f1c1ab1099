/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous copies to local memory, and fragments of matrices, for kernels on NVIDIA's tensor
 * cores. Other devices copy at once. Included by kernels. */
#ifndef MMA_CL
#define MMA_CL

#define UNROLL _Pragma("unroll")

/* Starts the copy of n bytes from `from` to `to`. */
#ifdef __NV_CL_C_VERSION
#define COPY(type, n, cache)                                           \
    asm volatile("cp.async." cache ".shared.global [%0], [%1], " n ";" \
                 :                                                     \
                 : "r"((uint)(size_t)to), "l"(from)                    \
                 : "memory")
#define END_COPIES asm volatile("cp.async.commit_group;" ::: "memory")
/* Waits until at most n stages are being filled. */
#define WAIT_COPIES(n) asm volatile("cp.async.wait_group %0;" : : "n"(n) : "memory")
#else
#define COPY(type, n, cache) *(__local type *)to = *(__global const type *)from
#define END_COPIES
#define WAIT_COPIES(n)
#endif

static inline void copy16(__local uchar *to, __global const uchar *from) {
    COPY(uint4, "16", "cg");
}

static inline void copy_bytes(__local uchar *to, __global const uchar *from, const uint n) {
    if (n == 16) copy16(to, from);
    else if (n == 8) COPY(uint2, "8", "ca");
    else COPY(uint, "4", "ca");
}

#ifdef __NV_CL_C_VERSION
/* Loads four matrices of 8 x 8 halves. A lane gives the address of a row of 16 bytes. */
static inline uint4 load_matrices(__local const uchar *row) {
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"((uint)(size_t)row)
                 : "memory");
    return v;
}
#endif

#endif
