/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix files. The first byte selects the file to edit and whether its checksum is corrected; the
 * rest are edits of a file that an engine wrote. An engine that finds the files must answer the
 * request that they serve, whatever they contain. */
#include "edits.h"
#include "fuzz.h"

#include "formats/checksummed_file.h"
#include "support/tiny_model.h"

#include <antigravity/serving.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_PROMPT = 96, N_TOKENS = 4, UNSEALED = 128, SESSION = 1, BOTH = 2, HEAD_BYTES = 24 };
enum { PREFIX_PATH, SESSION_PATH, N_PATHS };

static char dir[512], prefix_dir[600], paths[N_PATHS][700];
static edited_file files[N_PATHS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool has_ended;
static ag_status status;
static size_t n_tokens;

static void must(bool ok) {
    if (!ok) abort();
}

static void hear(void *user, const ag_request_event *e) {
    (void)user;
    if (e->kind == AG_REQUEST_TOKEN && e->id >= 0) n_tokens++;
    if (e->kind != AG_REQUEST_ENDED) return;
    pthread_mutex_lock(&lock);
    status = e->status;
    has_ended = true;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void ask(ag_serving *s, ag_served_model *m) {
    int32_t ids[N_PROMPT];
    for (int32_t i = 0; i < N_PROMPT; i++) ids[i] = 1 + i * 7 % 200;
    ag_request_params p = ag_request_defaults(m);
    p.scope = "a";
    p.prompt = ids;
    p.n_prompt = N_PROMPT;
    p.max_tokens = N_TOKENS;
    p.ignore_eos = true;
    p.sampling.temperature = 0;
    p.event = hear;
    ag_request_id id;
    has_ended = false;
    n_tokens = 0;
    must(ag_serving_submit(s, &p, &id, NULL) == AG_OK);
    pthread_mutex_lock(&lock);
    while (!has_ended) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    must(status == AG_OK && n_tokens == N_TOKENS);
}

/* Runs an engine: it finds the files, answers, and writes cached sessions. Returns the number of
 * sessions it read. */
static uint64_t serve(void) {
    ag_serving_stats stats;
    ag_serving_params p = ag_serving_defaults();
    ag_served_model_params mp = {.name = "m", .path = dir, .session = ag_session_defaults()};
    ag_serving *s = NULL;
    ag_served_model *m;
    p.backend.n_threads = 1;
    p.prefix_dir = prefix_dir;
    mp.model = ag_model_defaults();
    mp.session.max_seq_len = 160;
    must(ag_serving_create(&p, &s, NULL) == AG_OK);
    must(ag_serving_add_model(s, &mp, &m, NULL) == AG_OK);
    ask(s, m);
    ag_serving_get_stats(s, &stats);
    ag_serving_destroy(s);
    return stats.n_prefix_read;
}

static void empty_directory(void) {
    DIR *d = opendir(prefix_dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[900];
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", prefix_dir, e->d_name);
        unlink(path);
    }
    if (d) closedir(d);
}

static void clean_up(void) {
    for (int i = 0; i < N_PATHS; i++) free(files[i].data);
    empty_directory();
    rmdir(prefix_dir);
    tiny_model_remove(dir);
}

static void set_up(void) {
    static const char *const ends[N_PATHS] = {".prefix", ".session"};
    const tiny_model tiny = {.dtype = "F32", .with_tokenizer = true};
    must(tiny_model_write(&tiny, dir, sizeof dir));
    snprintf(prefix_dir, sizeof prefix_dir, "%s-parked", dir);
    serve();
    DIR *d = opendir(prefix_dir);
    must(d);
    for (struct dirent *e; (e = readdir(d));) {
        for (int i = 0; i < N_PATHS; i++) {
            if (!strstr(e->d_name, ends[i])) continue;
            snprintf(paths[i], sizeof paths[i], "%s/%.60s", prefix_dir, e->d_name);
            files[i] = edited_file_read(paths[i]);
        }
    }
    closedir(d);
    must(files[PREFIX_PATH].n && files[SESSION_PATH].n);
    atexit(clean_up);
}

static void write_file(int which, const uint8_t *edits, size_t n, bool seals) {
    edited_file f = edited_file_copy(&files[which]);
    edited_file_apply(&f, 0, edits, n);
    if (seals && which == SESSION_PATH && f.n > HEAD_BYTES + 2 * AG_CHECKSUM_BYTES) {
        edited_set_number(f.data + 16, 8, f.n);
        edited_file_seal(&f, HEAD_BYTES + (size_t)edited_number(f.data + 12, 4));
    }
    if (seals && f.n > AG_CHECKSUM_BYTES) edited_file_seal(&f, f.n - AG_CHECKSUM_BYTES);
    edited_file_write(&f, paths[which]);
    free(f.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!files[0].data) set_up();
    if (n < 1) return 0;
    const bool seals = !(data[0] & UNSEALED);
    const bool session = data[0] & (SESSION | BOTH), prefix = !(data[0] & SESSION);
    empty_directory();
    write_file(PREFIX_PATH, data + 1, prefix ? n - 1 : 0, seals);
    write_file(SESSION_PATH, data + 1, session ? n - 1 : 0, seals);
    must(serve() == 1 || n > 1); /* unedited files are valid */
    return 0;
}
