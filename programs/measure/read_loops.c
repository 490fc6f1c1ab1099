/* SPDX-License-Identifier: Apache-2.0 */
/* Loops with constant parameters: the number of streams read in parallel, and the prefetch
 * distances. Near prefetches go to the first-level cache, far ones to the second; 0: none. */
#include "read_loops.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

enum { LINE = 64, STEP = 4 * LINE, STEP_WORDS = STEP / sizeof(uint64_t) };

typedef struct read_plan {
    size_t streams, near_bytes, far_bytes;
} read_plan;

INLINE void prefetch_step(const uint64_t *p, read_plan m) {
    for (size_t at = 0; at < STEP; at += LINE) {
        if (m.near_bytes) __builtin_prefetch((const char *)p + m.near_bytes + at, 0, 3);
        if (m.far_bytes) __builtin_prefetch((const char *)p + m.far_bytes + at, 0, 2);
    }
}

/* Defines a loop for one plan. */
#define LOOP(name, target, read, streams, near_bytes, far_bytes)        \
    target static uint64_t name(const uint64_t *p, size_t n) {          \
        return read(p, n, (read_plan){streams, near_bytes, far_bytes}); \
    }

/* ---- what every processor has ---- */

INLINE uint64_t read_words(const uint64_t *p, size_t n, read_plan m) {
    uint64_t s[8] = {0};
    const size_t stream_words = n / m.streams;
    for (size_t i = 0; i < stream_words; i += STEP_WORDS) {
        for (size_t j = 0; j < m.streams; j++) {
            const uint64_t *q = p + j * stream_words + i;
            prefetch_step(q, m);
            for (size_t k = 0; k < STEP_WORDS; k++) s[k % 8] += q[k];
        }
    }
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

LOOP(words_1, , read_words, 1, 0, 0)
LOOP(words_4, , read_words, 4, 0, 0)
LOOP(words_1_near, , read_words, 1, 4096, 0)

#ifdef __x86_64__

/* ---- AVX2 ---- */

#define AVX2 __attribute__((target("avx2")))

AVX2 INLINE __m256i load_256(const uint64_t *p, size_t bytes) {
    return _mm256_load_si256((const __m256i *)(const void *)((const char *)p + bytes));
}

AVX2 INLINE uint64_t read_256(const uint64_t *p, size_t n, read_plan m) {
    __m256i s[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                    _mm256_setzero_si256()};
    const size_t stream_words = n / m.streams;
    for (size_t i = 0; i < stream_words; i += STEP_WORDS) {
        for (size_t j = 0; j < m.streams; j++) {
            const uint64_t *q = p + j * stream_words + i;
            prefetch_step(q, m);
            for (size_t k = 0; k < 8; k++)
                s[k % 4] = _mm256_xor_si256(s[k % 4], load_256(q, 32 * k));
        }
    }
    s[0] = _mm256_xor_si256(_mm256_xor_si256(s[0], s[1]), _mm256_xor_si256(s[2], s[3]));
    return (uint64_t)_mm256_extract_epi64(s[0], 0);
}

LOOP(avx2_1, AVX2, read_256, 1, 0, 0)
LOOP(avx2_4, AVX2, read_256, 4, 0, 0)
LOOP(avx2_1_near, AVX2, read_256, 1, 4096, 0)
LOOP(avx2_4_near, AVX2, read_256, 4, 1024, 0)

/* ---- AVX-512 ---- */

#define AVX512 __attribute__((target("avx512f")))

AVX512 INLINE uint64_t read_512(const uint64_t *p, size_t n, read_plan m) {
    __m512i s[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                    _mm512_setzero_si512()};
    const size_t stream_words = n / m.streams;
    for (size_t i = 0; i < stream_words; i += STEP_WORDS) {
        for (size_t j = 0; j < m.streams; j++) {
            const uint64_t *q = p + j * stream_words + i;
            prefetch_step(q, m);
            for (size_t k = 0; k < 4; k++) {
                s[k] = _mm512_xor_si512(s[k], _mm512_load_si512((const char *)q + LINE * k));
            }
        }
    }
    s[0] = _mm512_xor_si512(_mm512_xor_si512(s[0], s[1]), _mm512_xor_si512(s[2], s[3]));
    return (uint64_t)_mm512_reduce_add_epi64(s[0]);
}

LOOP(avx512_1, AVX512, read_512, 1, 0, 0)
LOOP(avx512_4, AVX512, read_512, 4, 0, 0)
LOOP(avx512_1_near, AVX512, read_512, 1, 4096, 0)
LOOP(avx512_4_near, AVX512, read_512, 4, 1024, 0)
LOOP(avx512_1_both, AVX512, read_512, 1, 2048, 32768)
LOOP(avx512_2_both, AVX512, read_512, 2, 2048, 32768)
#endif

static const struct {
    read_loop read;
    int width; /* bits per load */
} loops[] = {
    {words_1, 64},        {words_4, 64},        {words_1_near, 64},
#ifdef __x86_64__
    {avx2_1, 256},        {avx2_4, 256},        {avx2_1_near, 256},   {avx2_4_near, 256},
    {avx512_1, 512},      {avx512_4, 512},      {avx512_1_near, 512}, {avx512_4_near, 512},
    {avx512_1_both, 512}, {avx512_2_both, 512},
#endif
};
_Static_assert(sizeof loops / sizeof loops[0] <= READ_LOOPS_MAX, "READ_LOOPS_MAX is too small");

static int widest(void) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) return 512;
    if (__builtin_cpu_supports("avx2")) return 256;
#endif
    return 64;
}

size_t read_loops_list(read_loop list[READ_LOOPS_MAX]) {
    const int width = widest(), min_width = width > 64 ? 256 : 64;
    size_t n = 0;
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++) {
        if (loops[i].width >= min_width && loops[i].width <= width) list[n++] = loops[i].read;
    }
    return n;
}
