/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/features.h"

#include <stdio.h>
#include <string.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

static const char *const isa_names[] = {
#define AG_CPU_ISA_NAME(name, text) text,
    AG_CPU_ISA_MAP(AG_CPU_ISA_NAME)
#undef AG_CPU_ISA_NAME
};

const char *ag_cpu_isa_name(ag_cpu_isa isa) { return isa_names[isa]; }

bool ag_cpu_isa_known(const char *name) {
    for (unsigned i = 0; i < AG_CPU_ISA_COUNT; i++) {
        if (!strcmp(name, isa_names[i])) return true;
    }
    return false;
}

#if defined(__x86_64__) || defined(__i386__)

/* Registers that the system saves at a context switch: bits of XCR0. */
enum { SAVES_AVX = 0x6, SAVES_AVX512 = 0xe6, SAVES_TILES = 0x60000 };

static uint64_t saved_registers(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* The kernel saves tiles only for processes that requested them. */
static bool may_use_tiles(void) {
#ifdef __linux__
    enum { REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 }; /* arch/x86, uapi/asm/prctl.h */
    return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
    return false;
#endif
}

static bool has(uint32_t reg, uint32_t bits) { return (reg & bits) == bits; }

uint32_t ag_cpu_features(void) {
    uint32_t a, b, c, d, features = 1u << AG_CPU_COMMON;
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, F16C = 1 << 29 };
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, FMA | OSXSAVE | F16C)) return features;
    const uint64_t saved = saved_registers();
    enum { AVX2 = 1 << 5, AVX512_F_DQ = 1 << 16 | 1 << 17, AVX512_BW = 1 << 30 };
    const uint32_t avx512_vl = 1u << 31;
    enum { AVXVNNI = 1 << 4 };                  /* in a of sub-leaf 1 */
    enum { AVX512_VNNI = 1 << 11 };             /* in c */
    enum { AMX_BF16_TILE = 1 << 22 | 1 << 24 }; /* in d */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
    if (!has(b, AVX2) || (saved & SAVES_AVX) != SAVES_AVX) return features;
    features |= 1u << AG_CPU_AVX2;
    uint32_t more[4];
    if (__get_cpuid_count(7, 1, &more[0], &more[1], &more[2], &more[3]) && has(more[0], AVXVNNI)) {
        features |= 1u << AG_CPU_AVXVNNI;
    }
    if (!has(b, AVX512_F_DQ | AVX512_BW | avx512_vl) || !has(c, AVX512_VNNI)) return features;
    if ((saved & SAVES_AVX512) != SAVES_AVX512) return features;
    features |= 1u << AG_CPU_AVX512;
    if (has(d, AMX_BF16_TILE) && (saved & SAVES_TILES) == SAVES_TILES && may_use_tiles()) {
        features |= 1u << AG_CPU_AMX;
    }
    return features;
}

#elif defined(__aarch64__) && defined(__linux__)

uint32_t ag_cpu_features(void) {
    enum { HAS_ASIMD = 1 << 1, HAS_DOTPROD = 1 << 20, HAS_I8MM = 1 << 13 }; /* uapi/asm/hwcap.h */
    const unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
    uint32_t features = 1u << AG_CPU_COMMON;
    if (!(hwcap & HAS_ASIMD)) return features;
    features |= 1u << AG_CPU_NEON;
    if (!(hwcap & HAS_DOTPROD)) return features;
    features |= 1u << AG_CPU_NEON_DOTPROD;
    if (hwcap2 & HAS_I8MM) features |= 1u << AG_CPU_NEON_I8MM;
    return features;
}

#else

uint32_t ag_cpu_features(void) { return 1u << AG_CPU_COMMON; }

#endif

const char *ag_cpu_features_format(uint32_t features, char *buf, size_t cap) {
    size_t used = 0;
    buf[0] = '\0';
    for (unsigned i = 0; i < AG_CPU_ISA_COUNT; i++) {
        if (!(features >> i & 1)) continue;
        int n = snprintf(buf + used, cap - used, "%s%s", used ? " " : "", isa_names[i]);
        if (n < 0 || (size_t)n >= cap - used) break;
        used += (size_t)n;
    }
    return buf;
}
