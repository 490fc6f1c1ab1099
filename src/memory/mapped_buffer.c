/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/mapped_buffer.h"

#include "core/alloc.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "platform/file.h"
#include "platform/map.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

typedef struct mapped_buffer {
    ag_buffer base;
    void *data;
} mapped_buffer;

static void mapped_destroy(ag_buffer *buf) {
    ag_unmap(((mapped_buffer *)buf)->data, buf->size);
    ag_free(buf);
}

static void *mapped_map(ag_buffer *buf) { return ((mapped_buffer *)buf)->data; }

static ag_status mapped_upload(ag_buffer *dst, size_t offset, const void *src, size_t n,
                               ag_error *err) {
    (void)src;
    return AG_FAIL(
        err, UNSUPPORTED,
        "cannot write %zu bytes at offset %zu of a mapped file of %zu bytes: it is read-only", n,
        offset, dst->size);
}

static size_t mapped_discard(ag_buffer *buf, size_t offset, size_t n) {
    return ag_pages_discard(((mapped_buffer *)buf)->data, buf->size, offset, n);
}

static const ag_buffer_ops mapped_ops = {
    .destroy = mapped_destroy,
    .map = mapped_map,
    .upload = mapped_upload,
    .discard = mapped_discard,
};

ag_status ag_mapped_buffer_open(int fd, size_t size, const char *path, ag_buffer **out,
                                ag_error *err) {
    *out = NULL;
    if (size == 0) return AG_FAIL(err, FORMAT, "%s: the file is empty", path);
    ag_file_info info;
    if (!ag_fd_stat(fd, &info)) return AG_FAIL(err, IO, "%s: %s", path, strerror(errno));
    if (info.kind != AG_FILE_REGULAR) return AG_FAIL(err, IO, "%s: not a regular file", path);
    if (info.bytes < size) {
        return AG_FAIL(err, IO, "%s: the file has %" PRIu64 " bytes, not %zu", path, info.bytes,
                       size);
    }
    mapped_buffer *m = ag_malloc(sizeof *m);
    if (!m) return AG_FAIL(err, NOMEM, "%s: buffer header of %zu bytes", path, sizeof *m);
    m->data = ag_map_file(fd, size);
    if (!m->data) {
        int e = errno;
        ag_free(m);
        return AG_FAIL(err, IO, "%s: cannot map %zu bytes: %s", path, size, strerror(e));
    }
    ag_buffer_init(&m->base, &mapped_ops, size);
    *out = &m->base;
    return AG_OK;
}
