/* SPDX-License-Identifier: Apache-2.0 */
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Closes fd if that fails. */
static FILE *open_stream(int fd, const char *mode) {
    FILE *f = fd < 0 ? NULL : fdopen(fd, mode);
    const int failure = errno;
    if (!f && fd >= 0) close(fd);
    errno = failure;
    return f;
}

FILE *system_append_file(const char *path) {
    return open_stream(open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600), "a");
}

FILE *system_open_own_file(const char *path) {
    struct stat s;
    FILE *f = open_stream(open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), "r");
    if (!f) return NULL;
    if (fstat(fileno(f), &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid()) return f;
    fclose(f);
    errno = EPERM;
    return NULL;
}

bool system_is_directory(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool system_file_mode(const char *path, unsigned *mode) {
    struct stat s;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    const bool ok = fd >= 0 && fstat(fd, &s) == 0;
    const int failure = errno;
    if (fd >= 0) close(fd);
    errno = failure;
    if (ok) *mode = s.st_mode & 07777;
    return ok;
}

double system_change_time(const char *path) {
    struct stat s;
    if (stat(path, &s) != 0) return 0;
    return (double)s.st_mtim.tv_sec + 1e-9 * (double)s.st_mtim.tv_nsec;
}

double system_wall_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void system_format_time(char *text, size_t cap, const char *format, double seconds) {
    const time_t t = (time_t)seconds;
    struct tm utc;
    text[0] = '\0';
    if (gmtime_r(&t, &utc)) strftime(text, cap, format, &utc);
}

/* glibc has getrandom() since 2.25 only. */
bool system_random(void *bytes, size_t n) { return syscall(SYS_getrandom, bytes, n, 0) == (long)n; }

uint64_t system_memory_bytes(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

size_t system_raise_file_limit(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0) return SIZE_MAX;
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
    return (size_t)r.rlim_cur;
}

void system_limit_heap(void) {
#ifdef __GLIBC__
    enum { HEAPS = 2, LARGE = 1 << 17 };
    mallopt(M_ARENA_MAX, HEAPS);
    mallopt(M_MMAP_THRESHOLD, LARGE);
    mallopt(M_TRIM_THRESHOLD, LARGE);
#endif
}

void system_trim_heap(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void *system_map_pages(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void *system_remap_pages(void *pages, size_t old_bytes, size_t bytes) {
#ifdef __linux__
    void *p = mremap(pages, old_bytes, bytes, MREMAP_MAYMOVE);
    return p == MAP_FAILED ? NULL : p;
#else
    (void)pages, (void)old_bytes, (void)bytes;
    return NULL;
#endif
}

void system_unmap_pages(void *pages, size_t bytes) { munmap(pages, bytes); }
