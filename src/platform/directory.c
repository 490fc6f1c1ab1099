/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/directory.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool ag_directory_make(const char *path) { return mkdir(path, 0700) == 0 || errno == EEXIST; }

bool ag_directory_make_path(const char *path) {
    char prefix[PATH_MAX];
    const size_t n = strlen(path);
    if (n >= sizeof prefix) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(prefix, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        prefix[i] = '\0';
        if (!ag_directory_make(prefix)) return false;
        prefix[i] = path[i];
    }
    return true;
}

static bool add_name(const char *name, char ***names, size_t *n) {
    char **grown = realloc(*names, (*n + 1) * sizeof *grown);
    if (!grown) return false;
    *names = grown;
    grown[*n] = strdup(name);
    return grown[*n] && ++*n;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool ag_directory_list(const char *path, bool (*wants)(const char *name), char ***names,
                       size_t *n) {
    *names = NULL;
    *n = 0;
    DIR *d = opendir(path);
    if (!d) return false;
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(d));) {
        if (!wants || wants(e->d_name)) ok = add_name(e->d_name, names, n);
    }
    closedir(d);
    if (ok && *n) qsort(*names, *n, sizeof **names, by_name);
    if (ok) return true;
    ag_directory_free(*names, *n);
    *names = NULL;
    *n = 0;
    errno = ENOMEM;
    return false;
}

void ag_directory_free(char **names, size_t n) {
    for (size_t i = 0; i < n; i++) free(names[i]);
    free(names);
}
