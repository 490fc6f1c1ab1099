/* SPDX-License-Identifier: Apache-2.0 */
/* What nibbles of IQ4_NL and MXFP4 stand for, as in src/quant. Included by kernels. */
#ifndef NIBBLE_VALUES
#define NIBBLE_VALUES

__constant char iq4_nl_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
__constant char mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline float mxfp4_scale(uchar e) {
    return as_float(e < 2 ? 0x00200000u << e : (uint)(e - 1) << 23);
}

#endif
