/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over every file of a directory: fuzz_replay_x DIR */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Returns 1 if the input has run, 0 if the path is not a regular file, -1 on failure. */
static int replay(const char *path) {
    struct stat s;
    if (stat(path, &s) != 0) return -1;
    if (!S_ISREG(s.st_mode)) return 0;
    FILE *f = fopen(path, "rb");
    if (!f) return -1;
    size_t n = (size_t)s.st_size;
    uint8_t *data = malloc(n + 1);
    int ok = data && fread(data, 1, n, f) == n;
    fclose(f);
    if (ok) LLVMFuzzerTestOneInput(data, n);
    free(data);
    return ok ? 1 : -1;
}

int main(int argc, char **argv) {
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    if (!dir) {
        fprintf(stderr, "usage: %s DIR\n", argv[0]);
        return 2;
    }
    int n_run = 0, failed = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        int rc = replay(path);
        if (rc < 0) perror(path);
        n_run += rc > 0;
        failed |= rc < 0;
    }
    closedir(dir);
    printf("%d inputs\n", n_run);
    return failed || n_run == 0;
}
