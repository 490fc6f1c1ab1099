/* SPDX-License-Identifier: Apache-2.0 */
/* Cache of binaries on disk: one file each, named after the hashes of its key. */
#include "backend/opencl/program.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "platform/atomic_file.h"
#include "platform/directory.h"
#include "platform/file.h"

#include <stdio.h>
#include <string.h>

/* Header of a file, in the machine's byte order: files are local to a machine. */
typedef struct cache_header {
    char magic[8];
    ag_cl_cache_key key;
    uint64_t len, hash; /* length and hash of the binary */
} cache_header;

static const char magic[8] = {'A', 'G', 'C', 'L', 'B', 'I', 'N', '1'};

enum { PATH_BYTES = 4096 };
#define BINARY_MAX ((uint64_t)1 << 30)

ag_cl_cache_key ag_cl_cache_key_of(const ag_cl_device *device, const char *source, size_t len,
                                   const char *options) {
    const char *const texts[] = {device->platform_name, device->vendor, device->name,
                                 device->version,       device->driver, options};
    ag_cl_cache_key key = {AG_CL_HASH_START, ~AG_CL_HASH_START};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        key.a = ag_cl_hash_text(key.a, texts[i]);
        key.b = ag_cl_hash_text(key.b, texts[i]);
    }
    key.a = ag_cl_hash(key.a, source, len);
    key.b = ag_cl_hash(key.b, source, len);
    return key;
}

static bool path_of(char out[PATH_BYTES], const char *dir, ag_cl_cache_key key) {
    int n = snprintf(out, PATH_BYTES, "%s/%016llx%016llx.bin", dir, (unsigned long long)key.a,
                     (unsigned long long)key.b);
    return n > 0 && n < PATH_BYTES;
}

/* ---- reading ---- */

/* Returns the binary of a file whose header is h, or NULL. */
static unsigned char *read_binary(int fd, const cache_header *h) {
    unsigned char *binary = ag_malloc((size_t)h->len);
    size_t n;
    if (!binary) return NULL;
    if (ag_fd_read_at(fd, sizeof *h, binary, (size_t)h->len, &n) && n == h->len &&
        ag_cl_hash(AG_CL_HASH_START, binary, n) == h->hash) {
        return binary;
    }
    ag_free(binary);
    return NULL;
}

static bool read_header(int fd, ag_cl_cache_key key, cache_header *h) {
    ag_file_info info;
    size_t n;
    return ag_fd_read_at(fd, 0, h, sizeof *h, &n) && n == sizeof *h &&
           memcmp(h->magic, magic, sizeof magic) == 0 && h->key.a == key.a && h->key.b == key.b &&
           h->len && h->len <= BINARY_MAX && ag_fd_stat(fd, &info) &&
           info.bytes == sizeof *h + h->len;
}

unsigned char *ag_cl_cache_read(const char *dir, ag_cl_cache_key key, size_t *len) {
    char path[PATH_BYTES];
    cache_header h;
    if (!path_of(path, dir, key)) return NULL;
    const int fd = ag_fd_open(path);
    if (fd < 0) return NULL;
    unsigned char *binary = read_header(fd, key, &h) ? read_binary(fd, &h) : NULL;
    ag_fd_close(fd);
    if (binary) *len = (size_t)h.len;
    return binary;
}

/* ---- writing ---- */

bool ag_cl_cache_write(const char *dir, ag_cl_cache_key key, const unsigned char *binary,
                       size_t len) {
    char path[PATH_BYTES];
    ag_atomic_file file;
    if (!ag_directory_make_path(dir) || !path_of(path, dir, key)) return false;
    if (ag_atomic_file_open(&file, path, false)) return false;
    cache_header h = {.key = key, .len = len, .hash = ag_cl_hash(AG_CL_HASH_START, binary, len)};
    memcpy(h.magic, magic, sizeof magic);
    const bool ok = ag_fd_write(file.fd, &h, sizeof h) && ag_fd_write(file.fd, binary, len) &&
                    !ag_atomic_file_commit(&file);
    ag_atomic_file_close(&file);
    return ok;
}
