/* SPDX-License-Identifier: Apache-2.0 */
/* Reads n vectors, to measure the bandwidth of the device's memory. A work-item reads every
 * get_global_size(0)-th vector, four at a time. */
__kernel void read_all(__global const uint4 *data, ulong n, __global uint *sink) {
    const ulong step = get_global_size(0);
    uint4 a = 0, b = 0, c = 0, d = 0;
    ulong i = get_global_id(0);
    for (; i + 3 * step < n; i += 4 * step) {
        a |= data[i];
        b |= data[i + step];
        c |= data[i + 2 * step];
        d |= data[i + 3 * step];
    }
    for (; i < n; i += step) a |= data[i];
    a |= b | c | d;
    /* The data are zeros, so this never writes; it keeps the loads alive. */
    if (a.x | a.y | a.z | a.w) sink[0] = 1;
}
