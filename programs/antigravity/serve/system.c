/* SPDX-License-Identifier: Apache-2.0 */
#include "system.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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
    mallopt(M_MXFAST, 0);
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

/* ---- a process ---- */

extern char **environ;

/* Returns the environment with the variable, whose texts are borrowed. NULL: out of memory. */
static char **environment_with(const char *variable) {
    size_t n = 0, n_out = 0;
    const size_t n_name = strcspn(variable, "=") + 1;
    while (environ[n]) n++;
    char **out = calloc(n + 2, sizeof *out);
    for (size_t i = 0; out && i < n; i++)
        if (strncmp(environ[i], variable, n_name) != 0) out[n_out++] = environ[i];
    if (out) out[n_out] = (char *)(uintptr_t)variable;
    return out;
}

/* Starts the program with its standard output and error in `output`. Returns an errno. */
static int spawn_self(const char *const *args, char **environment, int output, pid_t *pid) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int error = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error) error = posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    if (!error) error = posix_spawn_file_actions_adddup2(&files, output, STDERR_FILENO);
    if (!error)
        error = posix_spawn(pid, "/proc/self/exe", &files, &attributes,
                            (char *const *)(uintptr_t)args, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

pid_t system_run_self(const char *const *args, const char *variable, int *output) {
    int ends[2];
    pid_t pid = -1;
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    char **environment = environment_with(variable);
    int error = environment ? spawn_self(args, environment, ends[1], &pid) : ENOMEM;
    free(environment);
    close(ends[1]);
    if (!error && fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) error = errno;
    *output = ends[0];
    if (!error) return pid;
    close(ends[0]);
    errno = error;
    return -1;
}

int system_wait(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
