/* SPDX-License-Identifier: Apache-2.0 */
/* Values of the nibbles of IQ4_NL and MXFP4, as in src/quant. Included by kernels. */
#ifndef NIBBLE_VALUES
#define NIBBLE_VALUES

__constant char iq4_nl_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
__constant char mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Returns values 4 i to 4 i + 3 in a word. */
static inline uint iq4_nl_word(const int i) {
    return i < 2 ? i < 1 ? 0xbfad9881u : 0xf6eaddcfu : i < 3 ? 0x26190d01u : 0x71594535u;
}

static inline uint mxfp4_word(const int i) {
    return i < 2 ? i < 1 ? 0x03020100u : 0x0c080604u : i < 3 ? 0xfdfeff00u : 0xf4f8fafcu;
}

static inline float mxfp4_scale(uchar e) {
    return as_float(e == 255 ? 0x7fc00000u : e < 2 ? 0x00200000u << e : (uint)(e - 1) << 23);
}

#endif
