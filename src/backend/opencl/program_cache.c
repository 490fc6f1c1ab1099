/* SPDX-License-Identifier: Apache-2.0 */
/* Cache of binaries on disk: one file each, named after the hashes of its key. */
#include "backend/opencl/hash.h"
#include "backend/opencl/program.h"
#include "core/alloc.h"
#include "core/directories.h"
#include "core/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static unsigned char *read_checked(FILE *f, ag_cl_cache_key key, size_t *len) {
    cache_header h;
    if (fread(&h, sizeof h, 1, f) != 1 || memcmp(h.magic, magic, sizeof magic) != 0) return NULL;
    if (h.key.a != key.a || h.key.b != key.b || h.len == 0 || h.len > BINARY_MAX) return NULL;
    struct stat st;
    if (fstat(fileno(f), &st) != 0 || (uint64_t)st.st_size != sizeof h + h.len) return NULL;
    unsigned char *binary = ag_malloc((size_t)h.len);
    if (!binary) return NULL;
    if (fread(binary, 1, (size_t)h.len, f) == h.len &&
        ag_cl_hash(AG_CL_HASH_START, binary, (size_t)h.len) == h.hash) {
        *len = (size_t)h.len;
        return binary;
    }
    ag_free(binary);
    return NULL;
}

unsigned char *ag_cl_cache_read(const char *dir, ag_cl_cache_key key, size_t *len) {
    char path[PATH_BYTES];
    if (!path_of(path, dir, key)) return NULL;
    /* O_NONBLOCK: the path may be a pipe. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *f = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (!f) {
        if (fd >= 0) (void)close(fd);
        return NULL;
    }
    unsigned char *binary = read_checked(f, key, len);
    (void)fclose(f);
    return binary;
}

/* ---- writing ---- */

static bool write_all(int fd, const void *data, size_t n) {
    const unsigned char *p = data;
    while (n) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        p += done;
        n -= (size_t)done;
    }
    return true;
}

bool ag_cl_cache_write(const char *dir, ag_cl_cache_key key, const unsigned char *binary,
                       size_t len) {
    char path[PATH_BYTES], temporary[PATH_BYTES + 16];
    if (!ag_make_directories(dir) || !path_of(path, dir, key)) return false;
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int fd = mkstemp(temporary);
    if (fd < 0) return false;
    cache_header h = {.key = key, .len = len, .hash = ag_cl_hash(AG_CL_HASH_START, binary, len)};
    memcpy(h.magic, magic, sizeof magic);
    bool ok = write_all(fd, &h, sizeof h) && write_all(fd, binary, len);
    ok = close(fd) == 0 && ok;
    if (ok) ok = rename(temporary, path) == 0;
    if (!ok) (void)unlink(temporary);
    return ok;
}
