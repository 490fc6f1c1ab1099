/* SPDX-License-Identifier: Apache-2.0 */
/* Twelve independent chains hide the latency of every instruction. */
#include "peak_loops.h"

#include <immintrin.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CHAINS = 12 };

/* Keep the compiler from dropping v or moving it out of a loop. */
#define KEEP(v) __asm__ volatile("" : "+v"(v))
#define KEEP_SSE(v) __asm__ volatile("" : "+x"(v))

static void floats_common(size_t n) {
    __m128 s[CHAINS], a = _mm_set1_ps(0.5f);
    for (int i = 0; i < CHAINS; i++) s[i] = a;
    for (; n; n--) {
        for (int i = 0; i < CHAINS; i++) {
            s[i] = _mm_add_ps(_mm_mul_ps(s[i], a), a);
            KEEP_SSE(s[i]);
        }
    }
}

__attribute__((target("avx2,fma"))) static void floats_avx2(size_t n) {
    __m256 s[CHAINS], a = _mm256_set1_ps(0.5f);
    for (int i = 0; i < CHAINS; i++) s[i] = a;
    for (; n; n--) {
        for (int i = 0; i < CHAINS; i++) {
            s[i] = _mm256_fmadd_ps(s[i], a, a);
            KEEP_SSE(s[i]);
        }
    }
}

/* Sums pairs of products in 16 bits. */
__attribute__((target("avx2"))) static void bytes_avx2(size_t n) {
    __m256i s[CHAINS], a = _mm256_set1_epi8(1);
    for (int i = 0; i < CHAINS; i++) s[i] = a;
    for (; n; n--) {
        for (int i = 0; i < CHAINS; i++) {
            KEEP_SSE(a);
            s[i] = _mm256_add_epi16(s[i], _mm256_maddubs_epi16(a, a));
            KEEP_SSE(s[i]);
        }
    }
}

__attribute__((target("avx2,avxvnni"))) static void bytes_avxvnni(size_t n) {
    __m256i s[CHAINS], a = _mm256_set1_epi8(1);
    for (int i = 0; i < CHAINS; i++) s[i] = a;
    for (; n; n--) {
        for (int i = 0; i < CHAINS; i++) {
            s[i] = _mm256_dpbusd_avx_epi32(s[i], a, a);
            KEEP_SSE(s[i]);
        }
    }
}

__attribute__((target("avx512f"))) static void floats_avx512(size_t n) {
    __m512 s[CHAINS], a = _mm512_set1_ps(0.5f);
    for (int i = 0; i < CHAINS; i++) s[i] = a;
    for (; n; n--) {
        for (int i = 0; i < CHAINS; i++) {
            s[i] = _mm512_fmadd_ps(s[i], a, a);
            KEEP(s[i]);
        }
    }
}

__attribute__((target("avx512f,avx512vnni"))) static void bytes_avx512(size_t n) {
    __m512i s[CHAINS], a = _mm512_set1_epi8(1);
    for (int i = 0; i < CHAINS; i++) s[i] = a;
    for (; n; n--) {
        for (int i = 0; i < CHAINS; i++) {
            s[i] = _mm512_dpbusd_epi32(s[i], a, a);
            KEEP(s[i]);
        }
    }
}

/* Configures eight tiles of 16 rows of 64 bytes. Passes the entire structure to the assembly: gcc's
 * intrinsic declares only 8 bytes as read, so other stores would be dropped. */
__attribute__((target("amx-tile"))) static bool prepare_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) != 0) return false;
    for (int i = 0; i < 8; i++) config.bytes[i] = 64, config.rows[i] = 16;
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
    return true;
}

/* Computes two by two tiles of sums. */
__attribute__((target("amx-tile,amx-int8"))) static void bytes_amx(size_t n) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (; n; n--) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
}

const peak_loop peak_loops[] = {
    {"common", ARITHMETIC_FLOATS, 2.0 * 4 * CHAINS, NULL, floats_common},
    {"avx2", ARITHMETIC_FLOATS, 2.0 * 8 * CHAINS, NULL, floats_avx2},
    {"avx2", ARITHMETIC_BYTES, 2.0 * 32 * CHAINS, NULL, bytes_avx2},
    {"avxvnni", ARITHMETIC_FLOATS, 2.0 * 8 * CHAINS, NULL, floats_avx2},
    {"avxvnni", ARITHMETIC_BYTES, 2.0 * 32 * CHAINS, NULL, bytes_avxvnni},
    {"avx512", ARITHMETIC_FLOATS, 2.0 * 16 * CHAINS, NULL, floats_avx512},
    {"avx512", ARITHMETIC_BYTES, 2.0 * 64 * CHAINS, NULL, bytes_avx512},
    {"amx", ARITHMETIC_FLOATS, 2.0 * 16 * CHAINS, NULL, floats_avx512},
    {"amx", ARITHMETIC_BYTES, 2.0 * 16 * 16 * 64 * 4, prepare_tiles, bytes_amx},
};
const size_t n_peak_loops = sizeof peak_loops / sizeof peak_loops[0];
