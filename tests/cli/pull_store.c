/* SPDX-License-Identifier: Apache-2.0 */
#include "pull_store.h"

#include "cli.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char store[64];

static int remove_any(const char *path, const struct stat *s, int type, struct FTW *at) {
    (void)s, (void)type, (void)at;
    return remove(path);
}

void remove_store(void) { nftw(store, remove_any, 8, FTW_DEPTH | FTW_PHYS); }

void empty_store(void) {
    remove_store();
    assert_int_equal(mkdir(store, 0777), 0);
}

const char *in_store(const char *name) {
    static char path[4][300];
    static unsigned next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", store, name);
    return p;
}

bool is_there(const char *name) { return access(in_store(name), F_OK) == 0; }

void assert_file_is(const char *name, const void *bytes, size_t n) {
    char *have = malloc(n + 1);
    FILE *f = fopen(in_store(name), "rb");
    if (!f || !have) fail_msg("%s: %s", name, strerror(errno));
    const size_t got = fread(have, 1, n + 1, f);
    fclose(f);
    assert_int_equal(got, n);
    assert_memory_equal(have, bytes, n);
    free(have);
}

bool lacks_libcurl(void) {
    cli_result r = CLI("pull", "http://127.0.0.1:1/x.gguf");
    const bool lacks =
        strstr(r.err, "libcurl: not found") || strstr(r.err, "was built without libcurl");
    if (lacks) printf("skipped: %s", r.err);
    cli_free(&r);
    return lacks;
}
