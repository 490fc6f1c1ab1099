/* SPDX-License-Identifier: Apache-2.0 */
/* Hexadecimal digits. */
#ifndef AG_CORE_HEX_H
#define AG_CORE_HEX_H

/* Returns the value of a digit of either case, or -1 for another character. */
static inline int ag_hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

#endif
