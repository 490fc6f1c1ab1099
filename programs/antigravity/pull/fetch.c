/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch.h"

#include "../command.h"
#include "../model/store.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"
#include "clock.h"
#include "fetch_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a model that is there ---- */

/* Sets *same if the file at the path has the size and hash of the plan. Returns an exit code. */
static int compare_file(const char *path, const pull_file *f, bool *same) {
    char hex[SHA256_HEX];
    struct stat info;
    int error = 0;
    sha256 sum;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *same = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
            (f->size < 0 || info.st_size == f->size);
    if (*same && f->sha256[0]) {
        sha256_begin(&sum);
        progress_begin("checking");
        *same = fetch_hash(fd, &sum, (uint64_t)info.st_size, &error);
        progress_end();
        sha256_hex(&sum, hex);
        *same = *same && !strcmp(hex, f->sha256);
    }
    if (fd >= 0) close(fd);
    return interrupted() ? EXIT_INTERRUPTED : EXIT_DONE;
}

/* Sets *exists if the planned model is in the store. Returns an exit code; another model of that
 * name is an error. */
static int find_present(const fetch *k, const char *store, bool *exists) {
    struct stat info;
    char path[PATH_MAX + NAME_MAX + 2];
    /* -m cannot distinguish a directory and a file of the same name. */
    snprintf(path, sizeof path, "%s/%s%s", store, k->plan->name,
             k->plan->is_directory ? ".gguf" : "");
    const bool same_name = lstat(path, &info) == 0;
    *exists = same_name || lstat(k->path, &info) == 0;
    bool same = *exists && !same_name;
    int code = EXIT_DONE;
    for (size_t i = 0; same && code == EXIT_DONE && i < k->plan->n; i++) {
        const pull_file *f = &k->plan->files[i];
        if (k->plan->is_directory) snprintf(path, sizeof path, "%s/%s", k->path, f->name);
        else snprintf(path, sizeof path, "%s", k->path);
        code = compare_file(path, f, &same);
    }
    if (code != EXIT_DONE || same == *exists) return code;
    return complain_failure("%s: another model of that name exists; choose a name with --name, or "
                            "remove it with 'antigravity rm %s'",
                            k->path, k->plan->name);
}

/* ---- all files ---- */

/* Sums up the sizes; saturates on overflow. */
static void add_sizes(fetch *k) {
    bool known = true;
    k->min_total = 0;
    for (size_t i = 0; i < k->plan->n; i++) {
        const int64_t size = k->plan->files[i].size;
        known = known && size >= 0;
        if (size > 0 && k->min_total > UINT64_MAX - (uint64_t)size) k->min_total = UINT64_MAX;
        else if (size > 0) k->min_total += (uint64_t)size;
    }
    k->total = known ? k->min_total : 0;
}

static int fetch_files(fetch *k, char *message) {
    add_sizes(k);
    const uint64_t fetched = part_bytes(&k->part, k->plan);
    const uint64_t missing = k->min_total > fetched ? k->min_total - fetched : 0;
    int code = part_has_space(&k->part, missing, message) ? EXIT_DONE : EXIT_FAILED;
    for (size_t i = 0; i < k->plan->n && code == EXIT_DONE; i++)
        code = fetch_file(k, &k->plan->files[i], message);
    return code;
}

/* Reports the failure and how much a later run can resume. */
static int report_failure(const fetch *k, int code, const char *message) {
    char size[32], hint[128] = "";
    const uint64_t bytes = part_bytes(&k->part, k->plan);
    if (bytes)
        snprintf(hint, sizeof hint, "; %s are kept, and the same command resumes",
                 format_bytes((double)bytes, size, sizeof size));
    if (code == EXIT_INTERRUPTED) complain("interrupted%s", hint);
    else if (message[0]) complain("%s%s", message, hint);
    return code;
}

int fetch_model(http *client, const pull_plan *plan, const fetch_settings *o, char *path) {
    const char *store = o->store;
    const bool quiet = o->quiet;
    char message[HTTP_MESSAGE] = "", size[32];
    const double begin = clock_s();
    bool exists = false;
    fetch k = {.client = client, .plan = plan, .path = path, .quiet = quiet};
    int n =
        snprintf(path, PATH_MAX, "%s/%s%s", store, plan->name, plan->is_directory ? "" : ".gguf");
    if (n < 0 || n >= PATH_MAX - 64)
        return complain_failure("%s: %s", store, strerror(ENAMETOOLONG));
    int code = part_open(&k.part, store, plan->name, quiet);
    if (code == EXIT_DONE) code = find_present(&k, store, &exists);
    if (code == EXIT_DONE && exists && !quiet) complain("%s: already in the store", plan->name);
    if (code == EXIT_DONE) part_limit_store(&k.part, store, o->store_limit);
    if (code == EXIT_DONE && !exists) {
        progress_digest(plan->n == 1 ? plan->files[0].sha256 : "");
        code = fetch_files(&k, message);
        if (code == EXIT_DONE) code = part_commit(&k.part, plan, path, message);
        if (code != EXIT_DONE) report_failure(&k, code, message);
        else if (!quiet)
            complain("%s: %s in %.1f s; use it with -m %s", path,
                     format_bytes((double)k.received, size, sizeof size), clock_s() - begin,
                     plan->name);
    }
    if (code == EXIT_DONE && !plan->is_directory && plan->files[0].sha256[0])
        store_record_hash(path, plan->files[0].sha256);
    part_close(&k.part, exists);
    return code;
}
