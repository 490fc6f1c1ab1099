/* SPDX-License-Identifier: Apache-2.0 */
/* Device functions of token.cl: warps, loads that bypass L1, and packets. NVIDIA's compiler accepts
 * PTX; on other devices a "warp" is one work-item.
 *
 * A packet is 32 bits of data and the 32-bit tag of the stage that wrote it, stored and loaded as
 * one 64-bit word. A reader that finds the tag has the data, without a barrier. */
#ifndef TOKEN_DEVICE
#define TOKEN_DEVICE

#include "dot_bytes.cl"
#include "nvidia.cl"

#ifndef LOCAL
#define LOCAL 32 /* work-items of a group */
#endif
/* Arrays stay in registers only if loops over them are unrolled. Processors use a stack. */
#ifdef __NV_CL_C_VERSION
#define WARP 32
#define UNROLL _Pragma("unroll")
#else
#define WARP 1
#define UNROLL
#endif
#define WARPS (LOCAL / WARP)

#ifdef __NV_CL_C_VERSION

/* Loads weights, which are read once and never written while a kernel runs. */
static inline uint4 load_stream(ulong a) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(a));
    return v;
}

/* Loads from the KV cache, which this kernel writes at other addresses only. Parts of a sector stay
 * in L1 for the loads of its other parts. */
static inline uint4 load_once(ulong a) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(a));
    return v;
}

/* Loads two scales of weights. */
static inline uint load_scales(ulong a) {
    uint v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(a));
    return v;
}

static inline uint2 load_stream2(ulong a) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(a));
    return v;
}

/* Returns the value of lane `from`. */
static inline uint shuffle(uint v, uint from) {
    uint r;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(r) : "r"(v), "r"(from));
    return r;
}

/* Returns c + the products of four unsigned bytes of a with four signed bytes of b. */
static inline int dot4u(uint a, uint b, int c) {
    int r;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}

static inline void put(ulong mailbox, uint i, uint value, uint tag) {
    const ulong packet = (ulong)tag << 32 | value;
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(mailbox + (ulong)i * 8), "l"(packet)
                 : "memory");
}

/* Loads packets i and i + 1, i even. */
static inline ulong2 peek2(ulong mailbox, uint i) {
    ulong2 v;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];"
                 : "=l"(v.x), "=l"(v.y)
                 : "l"(mailbox + (ulong)i * 8)
                 : "memory");
    return v;
}

/* d += a * b with a [16,16] and b [16,8] in F16. With r = lane / 4 and c = lane % 4 * 2, a lane has
 * d[r][c], d[r][c + 1] in x, y and d[r + 8][c], d[r + 8][c + 1] in z, w; a[r][c..], a[r + 8][c..],
 * a[r][c + 8..], a[r + 8][c + 8..] and b[c..][r], b[c + 8..][r], two values each. */
static inline void multiply_tile(float4 *d, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d->x), "+f"(d->y), "+f"(d->z), "+f"(d->w)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Return the low, or the high, halves of two words in one word. */
static inline uint low_halves(uint a, uint b) { return permute(a, b, 0x5410); }
static inline uint high_halves(uint a, uint b) { return permute(a, b, 0x7632); }

/* Return F16 values 1024 + byte, for the low or the high two bytes of a word. */
static inline uint low_bytes(uint w) { return permute(w, 0x64646464u, 0x4140); }
static inline uint high_bytes(uint w) { return permute(w, 0x64646464u, 0x4342); }

/* Returns (a - b) * d for two F16 values each, rounded after each step. */
static inline uint scaled_difference(uint a, uint b, uint d) {
    uint r;
    asm("{.reg .b32 t; sub.rn.f16x2 t, %1, %2; mul.rn.f16x2 %0, t, %3;}"
        : "=r"(r)
        : "r"(a), "r"(b), "r"(d));
    return r;
}

#else

static inline uint4 load_stream(ulong a) { return *(__global const uint4 *)a; }
static inline uint2 load_stream2(ulong a) { return *(__global const uint2 *)a; }
static inline uint load_scales(ulong a) { return *(__global const uint *)a; }
static inline uint shuffle(uint v, uint from) { return v; }
static inline float shuffle_xor(float v, uint mask) { return v; }

static inline int dot4u(uint a, uint b, int c) {
    const uchar4 x = as_uchar4(a);
    const char4 y = as_char4(b);
    return c + x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
}

static inline void put(ulong mailbox, uint i, uint value, uint tag) {
    ((volatile __global ulong *)mailbox)[i] = (ulong)tag << 32 | value;
}

static inline ulong2 peek2(ulong mailbox, uint i) {
    volatile __global ulong *p = (volatile __global ulong *)mailbox + i;
    return (ulong2)(p[0], p[1]);
}

#endif

static inline uint load_word(ulong a) { return *(__global const uint *)a; }
static inline uint load_short(ulong a) { return *(__global const ushort *)a; }

static inline float warp_sum(float v) {
    for (int m = WARP / 2; m > 0; m /= 2) v += shuffle_xor(v, m);
    return v;
}

static inline float warp_max(float v) {
    for (int m = WARP / 2; m > 0; m /= 2) v = fmax(v, shuffle_xor(v, m));
    return v;
}

/* ---- packets ---- */

#ifndef MAX_POLLS
#define MAX_POLLS 200000 /* at least 0.1 s, which only a fault exceeds */
#endif

static inline bool is_late(ulong2 v, uint tag) {
    return (uint)(v.x >> 32) != tag || (uint)(v.y >> 32) != tag;
}

/* Polls until n pairs of packets have the tag; at: the first of each pair. All that are late are
 * loaded at once. After MAX_POLLS, or if another group gave up, *aborted is 1 and the data are
 * undefined: a kernel that hangs could not be stopped. */
static inline void await_pairs(ulong2 *v, const int n, ulong mailbox, const uint *at, uint tag,
                               volatile __global uint *aborted) {
    for (uint polls = 1;; polls++) {
        bool any = false;
        UNROLL
        for (int j = 0; j < n; j++) any = any || is_late(v[j], tag);
        if (!any) return;
        if (polls >= MAX_POLLS || ((polls & 4095) == 0 && *aborted)) {
            *aborted = 1;
            return;
        }
        UNROLL
        for (int j = 0; j < n; j++)
            if (is_late(v[j], tag)) v[j] = peek2(mailbox, at[j]);
    }
}

static inline float packet_float(ulong packet) { return as_float((uint)packet); }

/* ---- blocks of 32 values in eight bits ---- */

static inline uint pack4(float4 v, float inverse) {
    const int4 q = convert_int4_rte(v * inverse);
    return (uint)(q.x & 255) | (uint)(q.y & 255) << 8 | (uint)(q.z & 255) << 16 | (uint)q.w << 24;
}

static inline float most4(float4 v) {
    const float4 a = fabs(v);
    return fmax(fmax(a.x, a.y), fmax(a.z, a.w));
}

/* Returns the scale of a block, and the correction for levels that are stored plus 8. */
static inline float2 block_scale(float largest, float sum) {
    const float d = largest / 127.0f;
    return (float2)(d, -8.0f * sum * d);
}

enum { BLOCK_PACKETS = 10 }; /* 8 of data, 2 of scale */

/* Sends n blocks of values in local memory to `mailbox` as blocks first, first + 1, ..., or as
 * floats. */
static inline void send_blocks(__local const float *v, uint n, ulong mailbox, uint first, uint tag,
                               uint item, bool as_floats) {
    if (as_floats) {
        for (uint i = item; i < n * 32; i += LOCAL)
            put(mailbox, first * 32 + i, as_uint(v[i]), tag);
        return;
    }
    for (uint i = item; i < n * 8; i += LOCAL) {
        __local const float *x = v + i / 8 * 32;
        float largest = 0;
        for (int j = 0; j < 8; j++) largest = fmax(largest, most4(vload4(j, x)));
        const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
        const uint at = (first + i / 8) * BLOCK_PACKETS;
        put(mailbox, at + i % 8, pack4(vload4(i % 8, x), inverse), tag);
        if (i % 8) continue;
        int total = 0;
        for (int j = 0; j < 8; j++)
            total = dot_bytes(pack4(vload4(j, x), inverse), 0x01010101u, total);
        const float2 scale = block_scale(largest, (float)total);
        put(mailbox, at + 8, as_uint(scale.x), tag);
        put(mailbox, at + 9, as_uint(scale.y), tag);
    }
}

#endif
