/* SPDX-License-Identifier: Apache-2.0 */
/* Parked sessions that leave memory, in files: a saved cache, and beside it what it is of, so that
 * it is found again without being read. The directory is its owner's alone. */
#include "core/alloc.h"
#include "core/checksum.h"
#include "core/fail.h"
#include "core/little_endian.h"
#include "formats/file.h"
#include "formats/sealed_file.h"
#include "serving/serving_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    N_NUMBERS = 10,
    HEAD_BYTES = 8 + 4 * N_NUMBERS,
    VERSION = 1,
    NO_SCOPE = -1,
    LEAST = 64,       /* tokens that are worth a file */
    LEAST_BETTER = 32 /* tokens more than there are in memory, that are worth reading one */
};
static const char magic[8] = "AGPREFIX";

/* What a session must have in common with a request, besides tokens. */
typedef struct file_key {
    uint32_t max_seq_len, prefill_chunk, k_type, v_type, k_rotation;
} file_key;

struct ag_prefix_file {
    struct ag_prefix_file *next;
    char name[24];       /* 16 digits */
    char *model, *scope; /* scope NULL: of requests without one */
    file_key key;
    ag_ids ids;
    uint64_t bytes;
    double used_at; /* by the clock on the wall, as the files' own times are */
};

static file_key key_of(const ag_session_params *p) {
    return (file_key){p->max_seq_len, p->prefill_chunk, (uint32_t)p->k_type, (uint32_t)p->v_type,
                      (uint32_t)p->k_rotation};
}

static bool same_key(const file_key *a, const file_key *b) {
    return a->max_seq_len == b->max_seq_len && a->prefill_chunk == b->prefill_chunk &&
           a->k_type == b->k_type && a->v_type == b->v_type && a->k_rotation == b->k_rotation;
}

static bool equal_texts(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

static double wall_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void warn(const ag_serving *s, const ag_error *err) {
    const ag_backend_params *p = &s->params.backend;
    if (p->log) p->log(p->log_user, AG_LOG_WARN, err->msg);
}

/* ---- paths ---- */

static void path_of(const ag_serving *s, const char *name, const char *end, char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%s/%s.%s", s->params.prefix_dir, name, end);
}

/* A file of ours: no link, nobody else's. *bytes of it. */
static bool is_ours(const char *path, uint64_t *bytes, double *changed_at) {
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) return false;
    *bytes += (uint64_t)st.st_size;
    *changed_at = (double)st.st_mtime;
    return true;
}

static ag_status check_directory(const char *dir, ag_error *err) {
    struct stat st;
    if (mkdir(dir, S_IRWXU) != 0 && errno != EEXIST)
        return AG_FAIL(err, IO, "%s: %s", dir, strerror(errno));
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return AG_FAIL(err, IO, "%s: %s", dir, strerror(errno));
    const int failed = fstat(fd, &st);
    close(fd);
    if (failed || st.st_uid != geteuid() || (st.st_mode & (S_IRWXG | S_IRWXO)))
        return AG_FAIL(err, IO, "%s: must belong to this user, and be closed to others (0700)",
                       dir);
    return AG_OK;
}

/* ---- the list ---- */

static void release_file(ag_prefix_file *f) {
    if (!f) return;
    ag_ids_free(&f->ids);
    ag_free(f->model);
    ag_free(f->scope);
    ag_free(f);
}

static void unlink_file(ag_serving *s, ag_prefix_file *f) {
    ag_prefix_file **at = &s->files;
    while (*at != f) at = &(*at)->next;
    *at = f->next;
}

static void remove_named(const ag_serving *s, const char *name) {
    char path[PATH_MAX];
    path_of(s, name, "prefix", path);
    unlink(path);
    path_of(s, name, "session", path);
    unlink(path);
}

static void remove_file(ag_serving *s, ag_prefix_file *f) {
    unlink_file(s, f);
    remove_named(s, f->name);
    release_file(f);
}

/* The longest unused go. */
static void keep_files_limit(ag_serving *s) {
    for (;;) {
        uint64_t bytes = 0;
        ag_prefix_file *oldest = s->files;
        for (ag_prefix_file *f = s->files; f; f = f->next) {
            bytes += f->bytes;
            if (f->used_at < oldest->used_at) oldest = f;
        }
        if (bytes <= s->params.prefix_dir_bytes || !oldest) return;
        remove_file(s, oldest);
    }
}

void ag_prefix_files_release(ag_serving *s) {
    while (s->files) {
        ag_prefix_file *f = s->files;
        s->files = f->next;
        release_file(f);
    }
}

/* ---- what a file is of ---- */

static ag_status put_facts(ag_sealed_writer *w, const ag_prefix_file *f, ag_error *err) {
    const uint32_t scope = f->scope ? (uint32_t)strlen(f->scope) : (uint32_t)NO_SCOPE;
    const uint32_t numbers[N_NUMBERS] = {VERSION,
                                         f->key.max_seq_len,
                                         f->key.prefill_chunk,
                                         f->key.k_type,
                                         f->key.v_type,
                                         f->key.k_rotation,
                                         (uint32_t)strlen(f->model),
                                         scope,
                                         (uint32_t)f->ids.n,
                                         0};
    unsigned char head[HEAD_BYTES];
    memcpy(head, magic, sizeof magic);
    for (int i = 0; i < N_NUMBERS; i++) ag_put_number(head + 8 + 4 * i, numbers[i], 4);
    AG_TRY(ag_sealed_put(w, head, sizeof head, err));
    AG_TRY(ag_sealed_put(w, f->model, strlen(f->model), err));
    if (f->scope) AG_TRY(ag_sealed_put(w, f->scope, strlen(f->scope), err));
    for (size_t i = 0; i < f->ids.n; i++) {
        unsigned char id[4];
        ag_put_number(id, (uint32_t)f->ids.data[i], 4);
        AG_TRY(ag_sealed_put(w, id, sizeof id, err));
    }
    return AG_OK;
}

static ag_status write_facts(const ag_prefix_file *f, const char *path, ag_error *err) {
    ag_sealed_writer w = {.fd = -1};
    ag_status st = ag_sealed_writer_open(&w, path, err);
    if (st == AG_OK) st = put_facts(&w, f, err);
    if (st == AG_OK) st = ag_sealed_writer_commit(&w, err);
    ag_sealed_writer_close(&w);
    return st;
}

static ag_status get_text(ag_sealed_reader *r, uint32_t n, char **out, ag_error *err) {
    *out = ag_calloc(1, (size_t)n + 1);
    if (!*out) return AG_FAIL(err, NOMEM, "%u bytes of text", n);
    return ag_sealed_get(r, *out, n, err);
}

static ag_status get_facts(ag_sealed_reader *r, ag_prefix_file *f, ag_error *err) {
    unsigned char head[HEAD_BYTES];
    uint32_t n[N_NUMBERS];
    AG_TRY(ag_sealed_get(r, head, sizeof head, err));
    for (int i = 0; i < N_NUMBERS; i++) n[i] = (uint32_t)ag_get_number(head + 8 + 4 * i, 4);
    const bool scoped = n[7] != (uint32_t)NO_SCOPE;
    const uint64_t bytes =
        HEAD_BYTES + (uint64_t)n[6] + (scoped ? n[7] : 0) + 4 * (uint64_t)n[8] + AG_SEAL_BYTES;
    if (memcmp(head, magic, sizeof magic) != 0 || n[0] != VERSION || bytes != r->size)
        return AG_FAIL(err, FORMAT, "%s: damaged, or of another version", r->path);
    f->key = (file_key){n[1], n[2], n[3], n[4], n[5]};
    AG_TRY(get_text(r, n[6], &f->model, err));
    if (scoped) AG_TRY(get_text(r, n[7], &f->scope, err));
    f->ids = (ag_ids){.data = ag_calloc((size_t)n[8] + 1, sizeof *f->ids.data), .cap = n[8]};
    if (!f->ids.data) return AG_FAIL(err, NOMEM, "%u ids", n[8]);
    for (; f->ids.n < n[8]; f->ids.n++) {
        unsigned char id[4];
        AG_TRY(ag_sealed_get(r, id, sizeof id, err));
        f->ids.data[f->ids.n] = (int32_t)ag_get_number(id, 4);
    }
    return ag_sealed_reader_check(r, err);
}

static ag_status read_facts(const char *path, ag_prefix_file *f, ag_error *err) {
    ag_sealed_reader r = {.fd = -1};
    ag_status st = ag_sealed_reader_open(&r, path, err);
    if (st == AG_OK) st = get_facts(&r, f, err);
    ag_sealed_reader_close(&r);
    return st;
}

/* ---- when the engine begins ---- */

static void list_file(ag_serving *s, const char *name) {
    char path[PATH_MAX], session[PATH_MAX];
    ag_error err;
    ag_prefix_file *f = ag_calloc(1, sizeof *f);
    if (!f) return;
    snprintf(f->name, sizeof f->name, "%.16s", name);
    path_of(s, f->name, "prefix", path);
    path_of(s, f->name, "session", session);
    const bool ours =
        is_ours(path, &f->bytes, &f->used_at) && is_ours(session, &f->bytes, &f->used_at);
    const ag_status st = ours ? read_facts(path, f, &err) : AG_OK;
    if (ours && st == AG_OK) {
        f->next = s->files;
        s->files = f;
        return;
    }
    if (st == AG_FORMAT) {
        warn(s, &err);
        remove_named(s, f->name);
    }
    release_file(f);
}

ag_status ag_prefix_files_open(ag_serving *s, ag_error *err) {
    const char *dir = s->params.prefix_dir;
    if (!dir) return AG_OK;
    if (strlen(dir) > PATH_MAX - 64) return AG_FAIL(err, IO, "%s: %s", dir, strerror(ENAMETOOLONG));
    AG_TRY(check_directory(dir, err));
    DIR *d = opendir(dir);
    if (!d) return AG_FAIL(err, IO, "%s: %s", dir, strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        const bool named = strspn(e->d_name, "0123456789abcdef") == 16;
        if (named && !strcmp(e->d_name + 16, ".prefix")) list_file(s, e->d_name);
    }
    closedir(d);
    keep_files_limit(s);
    return AG_OK;
}

/* ---- writing ---- */

static void name_file(ag_prefix_file *f) {
    ag_checksum sum;
    ag_checksum_begin(&sum);
    ag_checksum_add(&sum, f->model, strlen(f->model) + 1);
    if (f->scope) ag_checksum_add(&sum, f->scope, strlen(f->scope) + 1);
    ag_checksum_add(&sum, &f->key, sizeof f->key);
    ag_checksum_add(&sum, f->ids.data, f->ids.n * sizeof *f->ids.data);
    snprintf(f->name, sizeof f->name, "%016" PRIx64, ag_checksum_value(&sum));
}

static ag_prefix_file *describe(const ag_parked *k) {
    ag_prefix_file *f = ag_calloc(1, sizeof *f);
    if (!f) return NULL;
    f->key = key_of(&k->params);
    f->model = ag_strdup(k->model->name);
    f->scope = k->scope ? ag_strdup(k->scope) : NULL;
    f->ids.data = ag_malloc(k->ids.n * sizeof *f->ids.data);
    if (!f->model || (k->scope && !f->scope) || !f->ids.data) {
        release_file(f);
        return NULL;
    }
    f->ids.n = f->ids.cap = k->ids.n;
    memcpy(f->ids.data, k->ids.data, k->ids.n * sizeof *f->ids.data);
    name_file(f);
    return f;
}

/* The session first: what names it is never there without it. */
static ag_status write_file(ag_serving *s, const ag_parked *k, ag_prefix_file *f, ag_error *err) {
    char path[PATH_MAX], session[PATH_MAX];
    path_of(s, f->name, "prefix", path);
    path_of(s, f->name, "session", session);
    AG_TRY(ag_session_save(k->session, session, k->model->tokenizer, f->ids.data, f->ids.n, err));
    AG_TRY(write_facts(f, path, err));
    if (is_ours(path, &f->bytes, &f->used_at) && is_ours(session, &f->bytes, &f->used_at))
        return AG_OK;
    return AG_FAIL(err, IO, "%s: is not there after it was written", session);
}

/* The file of the same, or one of which the new one holds all. */
static void remove_within(ag_serving *s, const ag_prefix_file *new, bool goes_back) {
    for (ag_prefix_file *f = s->files, *next; f; f = next) {
        next = f->next;
        if (strcmp(f->model, new->model) != 0 || !equal_texts(f->scope, new->scope) ||
            !same_key(&f->key, &new->key) || f->ids.n >= new->ids.n || !goes_back ||
            memcmp(f->ids.data, new->ids.data, f->ids.n * sizeof *f->ids.data) != 0)
            continue;
        remove_file(s, f);
    }
}

static ag_prefix_file *find_file(ag_serving *s, const char *name) {
    ag_prefix_file *f = s->files;
    while (f && strcmp(f->name, name) != 0) f = f->next;
    return f;
}

void ag_prefix_files_keep(ag_serving *s, const ag_parked *k) {
    ag_error err;
    const ag_eviction_params *e = &k->params.eviction;
    if (!s->params.prefix_dir || e->policy || e->memory.threshold_bytes || k->ids.n < LEAST) return;
    ag_prefix_file *f = describe(k), *same = f ? find_file(s, f->name) : NULL;
    if (!f || same) { /* it came from there */
        if (same) same->used_at = wall_clock();
        release_file(f);
        return;
    }
    if (write_file(s, k, f, &err) != AG_OK) {
        warn(s, &err);
        remove_named(s, f->name);
        release_file(f);
        return;
    }
    f->used_at = wall_clock();
    f->next = s->files;
    s->files = f;
    remove_within(s, f, !ag_model_leaves_copies(&k->model->info));
    keep_files_limit(s);
}

/* ---- reading ---- */

static size_t common_ids(const ag_ids *ids, const ag_served_request *r) {
    size_t n = 0;
    while (n < ids->n && n < r->p.n_prompt && ids->data[n] == r->p.prompt[n]) n++;
    return n;
}

static ag_prefix_file *find_longest(ag_serving *s, const ag_served_request *r,
                                    const ag_session_params *params, size_t better_than) {
    const file_key key = key_of(params);
    const bool goes_back = !ag_model_leaves_copies(&r->p.model->info);
    ag_prefix_file *best = NULL;
    for (ag_prefix_file *f = s->files; f; f = f->next) {
        if (strcmp(f->model, r->p.model->name) != 0 || !equal_texts(f->scope, r->p.scope) ||
            !same_key(&f->key, &key))
            continue;
        const size_t n = common_ids(&f->ids, r);
        if (n < better_than + LEAST_BETTER || (n < f->ids.n && !goes_back)) continue;
        better_than = n - LEAST_BETTER + 1;
        best = f;
    }
    return best;
}

static ag_status restore_file(ag_serving *s, const ag_served_request *r, const ag_prefix_file *f,
                              const ag_session_params *params, ag_session **out, ag_error *err) {
    char path[PATH_MAX];
    uint64_t bytes = 0;
    double at;
    ag_ids ids = {0};
    path_of(s, f->name, "session", path);
    if (!is_ours(path, &bytes, &at)) return AG_FAIL(err, FORMAT, "%s: is no file of ours", path);
    AG_TRY(ag_governor_ask(s, bytes + (bytes >> 3), r->p.model, "a saved session", err));
    AG_TRY(ag_session_create(r->p.model->model, params, out, err));
    ag_status st = ag_session_restore(*out, path, r->p.model->tokenizer, &ids, err);
    if (st == AG_OK &&
        (ids.n != f->ids.n || memcmp(ids.data, f->ids.data, ids.n * sizeof *ids.data) != 0))
        st = AG_FAIL(err, FORMAT, "%s: holds other tokens than it is named for", path);
    ag_ids_free(&ids);
    if (st == AG_OK) return AG_OK;
    ag_session_destroy(*out);
    *out = NULL;
    return st;
}

bool ag_prefix_files_fetch(ag_serving *s, ag_served_request *r, size_t better_than) {
    const ag_session_params params = ag_request_session_params(s, r);
    const ag_eviction_params *e = &params.eviction;
    ag_session *session = NULL;
    ag_error err;
    if (!s->files || e->policy || e->memory.threshold_bytes) return false;
    ag_prefix_file *f = find_longest(s, r, &params, better_than);
    if (!f || r->has_fetched) return false;
    r->has_fetched = true;
    const ag_status st = restore_file(s, r, f, &params, &session, &err);
    if (st != AG_OK) {
        warn(s, &err);
        if (st == AG_FORMAT || st == AG_UNSUPPORTED) remove_file(s, f); /* else it may pass */
        return false;
    }
    ag_ids ids = {.data = ag_malloc(f->ids.n * sizeof *ids.data), .n = f->ids.n, .cap = f->ids.n};
    if (!ids.data) ids = (ag_ids){0};
    else memcpy(ids.data, f->ids.data, ids.n * sizeof *ids.data);
    f->used_at = wall_clock();
    s->is_fetching = true; /* it is about to be used, whatever the store's limit */
    ag_prefix_park(s, r, session, &ids);
    s->is_fetching = false;
    return true;
}
