/* SPDX-License-Identifier: Apache-2.0 */
#include "core/ascii.h"

#include <antigravity/dtype.h>
#include <stdint.h>
#include <stdio.h>

typedef struct dtype_info {
    const char *name;
    size_t block, bytes, scales;
    unsigned roles;
} dtype_info;

static const dtype_info infos[AG_DTYPE_COUNT] = {
#define AG_DTYPE_INFO(name, text, block, bytes, halves, roles) \
    [AG_##name] = {text, block, bytes, halves, roles},
    AG_DTYPE_MAP(AG_DTYPE_INFO)
#undef AG_DTYPE_INFO
};

/* Returns NULL for an unknown dtype: values may come from files. */
static const dtype_info *info_of(ag_dtype dtype) {
    return (unsigned)dtype < AG_DTYPE_COUNT ? &infos[dtype] : NULL;
}

const char *ag_dtype_name(ag_dtype dtype) {
    const dtype_info *info = info_of(dtype);
    return info ? info->name : "?";
}

bool ag_dtype_parse(const char *name, ag_dtype *out) {
    for (int i = 0; i < AG_DTYPE_COUNT; i++) {
        if (!ag_ascii_equal(name, infos[i].name)) continue;
        *out = (ag_dtype)i;
        return true;
    }
    return false;
}

size_t ag_dtype_block(ag_dtype dtype) {
    const dtype_info *info = info_of(dtype);
    return info ? info->block : 0;
}

size_t ag_dtype_block_bytes(ag_dtype dtype) {
    const dtype_info *info = info_of(dtype);
    return info ? info->bytes : 0;
}

size_t ag_dtype_scales(ag_dtype dtype) {
    const dtype_info *info = info_of(dtype);
    return info ? info->scales : 0;
}

bool ag_dtype_may_be(ag_dtype dtype, unsigned roles) {
    const dtype_info *info = info_of(dtype);
    return info && (info->roles & roles) == roles;
}

const char *ag_dtype_list(unsigned roles, char *buf, size_t cap) {
    size_t n = 0;
    if (cap) buf[0] = '\0';
    for (int i = 0; i < AG_DTYPE_COUNT && n < cap; i++) {
        if (!ag_dtype_may_be((ag_dtype)i, roles)) continue;
        n += (size_t)snprintf(buf + n, cap - n, "%s%s", n ? ", " : "", infos[i].name);
    }
    return buf;
}

bool ag_dtype_is_quantized(ag_dtype dtype) { return ag_dtype_block(dtype) > 1; }

size_t ag_dtype_row_bytes(ag_dtype dtype, size_t n) {
    const dtype_info *info = info_of(dtype);
    if (!info || n % info->block != 0) return 0;
    size_t blocks = n / info->block;
    return blocks > SIZE_MAX / info->bytes ? 0 : blocks * info->bytes;
}
