/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/prefix_files.h"

#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "formats/checksummed_file.h"
#include "formats/file.h"
#include "platform/clock.h"
#include "platform/directory.h"
#include "platform/file.h"
#include "session/session_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    MIN_TOKENS = 64, /* shorter sessions are not written */
    MIN_GAIN = 32    /* tokens that a file must save beyond what memory holds */
};

static void warn(const ag_prefix_files *files, const ag_error *err) {
    ag_backend_log(files->backend, AG_LOG_WARN, "%s", err->msg);
}

/* ---- paths ---- */

static void path_of(const ag_prefix_files *files, const char *name, const char *end,
                    char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%s/%s.%s", files->dir, name, end);
}

/* Returns whether `path` is a regular file of this user, not a link. Adds its size to *bytes. */
static bool is_own_file(const char *path, uint64_t *bytes, double *changed_at) {
    ag_file_info info;
    if (!ag_file_stat_link(path, &info) || info.kind != AG_FILE_REGULAR || !info.is_own)
        return false;
    *bytes += info.bytes;
    *changed_at = info.modified_s;
    return true;
}

/* Creates the directory if need be. It must be this user's own, and closed to others. */
static ag_status check_directory(const char *dir, ag_error *err) {
    ag_file_info info;
    if (!ag_directory_make(dir) || !ag_file_stat_link(dir, &info))
        return AG_FAIL(err, IO, "%s: %s", dir, strerror(errno));
    if (info.kind != AG_FILE_DIRECTORY || !info.is_own || !info.is_private)
        return AG_FAIL(err, IO, "%s: the directory must belong to this user and have mode 0700",
                       dir);
    return AG_OK;
}

/* ---- list of files ---- */

static void unlink_file(ag_prefix_files *files, ag_prefix_file *f) {
    ag_prefix_file **at = &files->first;
    while (*at != f) at = &(*at)->next;
    *at = f->next;
}

static void remove_named(ag_prefix_files *files, const char *name) {
    char path[PATH_MAX];
    ag_engine_lock_release(files->lock);
    path_of(files, name, "prefix", path);
    remove(path);
    path_of(files, name, "session", path);
    remove(path);
    ag_engine_lock_acquire(files->lock);
}

static void remove_file(ag_prefix_files *files, ag_prefix_file *f) {
    unlink_file(files, f);
    remove_named(files, f->name);
    ag_prefix_file_destroy(f);
}

/* Removes the least recently used files, except one that is being reloaded. */
static void enforce_directory_limit(ag_prefix_files *files) {
    for (;;) {
        uint64_t bytes = 0;
        ag_prefix_file *oldest = NULL;
        for (ag_prefix_file *f = files->first; f; f = f->next) {
            bytes += f->bytes;
            if (f != files->fetch.file && (!oldest || f->used_at < oldest->used_at)) oldest = f;
        }
        if (bytes <= files->max_bytes || !oldest) return;
        remove_file(files, oldest);
    }
}

void ag_prefix_files_release(ag_prefix_files *files) {
    while (files->first) {
        ag_prefix_file *f = files->first;
        files->first = f->next;
        ag_prefix_file_destroy(f);
    }
    ag_free(files->dir);
}

/* ---- opening ---- */

/* Removes a session without description: the process was killed between the two writes. */
static void remove_orphan(ag_prefix_files *files, const char *entry) {
    char name[17], path[PATH_MAX];
    ag_file_info metadata;
    snprintf(name, sizeof name, "%.16s", entry);
    path_of(files, name, "prefix", path);
    if (!ag_file_stat_link(path, &metadata) && errno == ENOENT) remove_named(files, name);
}

/* Adds a file to the list. Removes it if it is damaged. */
static void load_file(ag_prefix_files *files, const char *name) {
    char path[PATH_MAX], session[PATH_MAX];
    ag_error err;
    ag_prefix_file *f = ag_calloc(1, sizeof *f);
    if (!f) return;
    snprintf(f->name, sizeof f->name, "%.16s", name);
    path_of(files, f->name, "prefix", path);
    path_of(files, f->name, "session", session);
    const bool is_own =
        is_own_file(path, &f->bytes, &f->used_at) && is_own_file(session, &f->bytes, &f->used_at);
    const ag_status st = is_own ? ag_prefix_file_read(path, f, &err) : AG_OK;
    if (is_own && st == AG_OK) {
        f->next = files->first;
        files->first = f;
        return;
    }
    if (st == AG_FORMAT) {
        warn(files, &err);
        remove_named(files, f->name);
    }
    ag_prefix_file_destroy(f);
}

ag_status ag_prefix_files_open(ag_prefix_files *files, const char *dir, uint64_t max_bytes,
                               ag_error *err) {
    files->dir = ag_strdup(dir);
    files->max_bytes = max_bytes;
    if (!files->dir) return AG_FAIL(err, NOMEM, "path of the prefix directory");
    if (strlen(dir) > PATH_MAX - 64) return AG_FAIL(err, IO, "%s: %s", dir, strerror(ENAMETOOLONG));
    AG_TRY(check_directory(dir, err));
    char **names;
    size_t n;
    if (!ag_directory_list(dir, NULL, &names, &n))
        return AG_FAIL(err, IO, "%s: %s", dir, strerror(errno));
    for (size_t i = 0; i < n; i++) {
        const bool is_name = strspn(names[i], "0123456789abcdef") == 16;
        if (is_name && !strcmp(names[i] + 16, ".prefix")) load_file(files, names[i]);
        if (is_name && !strcmp(names[i] + 16, ".session")) remove_orphan(files, names[i]);
    }
    ag_directory_free(names, n);
    enforce_directory_limit(files);
    return AG_OK;
}

/* ---- writing ---- */

/* Lets the engine run during disk I/O. */
static ag_io_hooks io_hooks_of(ag_prefix_files *files) {
    return (ag_io_hooks){
        .pause = ag_engine_lock_release, .resume = ag_engine_lock_acquire, .user = files->lock};
}

/* Writes the session first, so that a description never exists without its session. */
static ag_status write_file(ag_prefix_files *files, const ag_prefix_entry *k, ag_prefix_file *f,
                            ag_error *err) {
    char path[PATH_MAX], session[PATH_MAX];
    const ag_io_hooks hooks = io_hooks_of(files);
    path_of(files, f->name, "prefix", path);
    path_of(files, f->name, "session", session);
    AG_TRY(ag_session_save_with_hooks(k->session, session, k->model->tokenizer, f->ids.data,
                                      f->ids.n, &hooks, err));
    ag_engine_lock_release(files->lock);
    ag_status st = ag_prefix_file_write(f, path, err);
    if (st == AG_OK && !(is_own_file(path, &f->bytes, &f->used_at) &&
                         is_own_file(session, &f->bytes, &f->used_at)))
        st = AG_FAIL(err, IO, "%s: the file disappeared after it was written", session);
    ag_engine_lock_acquire(files->lock);
    return st;
}

/* Removes files whose tokens the new file begins with. */
static void remove_covered(ag_prefix_files *files, const ag_prefix_file *new, bool can_rewind) {
    for (ag_prefix_file *f = files->first, *next; f; f = next) {
        next = f->next;
        if (f == files->fetch.file || strcmp(f->model, new->model) != 0 ||
            !ag_same_text(f->scope, new->scope) || !ag_prefix_file_same_key(&f->key, &new->key) ||
            f->policy || new->policy || new->has_evicted || f->ids.n >= new->ids.n || !can_rewind ||
            memcmp(f->ids.data, new->ids.data, f->ids.n * sizeof *f->ids.data) != 0)
            continue;
        remove_file(files, f);
    }
}

static ag_prefix_file *find_file(ag_prefix_files *files, const char *name) {
    ag_prefix_file *f = files->first;
    while (f && strcmp(f->name, name) != 0) f = f->next;
    return f;
}

bool ag_prefix_files_should_write(ag_prefix_files *files, const ag_prefix_entry *k) {
    if (!files->dir || k->ids.n < MIN_TOKENS) return false;
    /* A session larger than the directory's limit is not written. */
    const ag_kv_cache *cache = ag_session_kv_cache(k->session);
    if (ag_kv_cache_memory_usage_bytes(cache) > files->max_bytes) return false;
    ag_prefix_file *f = ag_prefix_file_create(k), *same = f ? find_file(files, f->name) : NULL;
    if (same) same->used_at = ag_wall_clock_s(); /* it was reloaded from that file */
    ag_prefix_file_destroy(f);
    return f && !same;
}

/* Logs the first of consecutive failures. */
static void count_write(ag_prefix_files *files, ag_status st, const ag_error *err) {
    if (st == AG_OK) files->n_written++;
    else files->n_failed++;
    if (st != AG_OK && !files->has_failed_writing) warn(files, err);
    files->has_failed_writing = st != AG_OK;
}

/* Writes an entry to a file and adds the file to the list. */
static void write_one(ag_prefix_files *files, ag_prefix_entry *k) {
    ag_error err;
    ag_prefix_file *f = ag_prefix_file_create(k);
    if (!f) return;
    ag_prefix_store_set_state(files->store, k, AG_PREFIX_WRITING);
    const ag_status st = write_file(files, k, f, &err);
    count_write(files, st, &err);
    if (st != AG_OK) {
        remove_named(files, f->name);
        ag_prefix_file_destroy(f);
        return;
    }
    f->used_at = ag_wall_clock_s();
    f->next = files->first;
    files->first = f;
    remove_covered(files, f, !ag_model_needs_prompt_copies(&k->model->info));
    enforce_directory_limit(files);
}

/* ---- reading ---- */

static size_t common_ids(const ag_ids *ids, const ag_served_request *r) {
    size_t n = 0;
    while (n < ids->n && n < r->p.n_prompt && ids->data[n] == r->p.prompt[n]) n++;
    return n;
}

ag_prefix_file *ag_prefix_files_find(ag_prefix_files *files, const ag_served_request *r,
                                     size_t better_than) {
    const ag_session_params *params = &r->p.session;
    const ag_prefix_file_key key = ag_prefix_file_key_of(params);
    bool unknown;
    char *policy = ag_prefix_file_policy(params, &unknown);
    const bool can_rewind = !ag_model_needs_prompt_copies(&r->p.model->info) && !policy;
    ag_prefix_file *best = NULL;
    for (ag_prefix_file *f = files->first; f && !unknown; f = f->next) {
        if (strcmp(f->model, r->p.model->name) != 0 || !ag_same_text(f->scope, r->p.scope) ||
            !ag_same_text(f->policy, policy) || !ag_prefix_file_same_key(&f->key, &key))
            continue;
        const size_t n = common_ids(&f->ids, r);
        const bool rewinds = can_rewind && !f->has_evicted;
        const bool is_prefix = n == f->ids.n ? n < r->p.n_prompt : rewinds;
        if (n < better_than + MIN_GAIN || (!is_prefix && !rewinds)) continue;
        better_than = n - MIN_GAIN + 1;
        best = f;
    }
    ag_free(policy);
    return best;
}

uint64_t ag_prefix_file_memory_bytes(const ag_prefix_file *f) { return f->bytes + (f->bytes >> 3); }

bool ag_prefix_files_begin_fetch(ag_prefix_files *files, const ag_served_request *r,
                                 ag_prefix_file *f, uint64_t id) {
    ag_prefix_fetch *fetch = &files->fetch;
    char *scope = r->p.scope ? ag_strdup(r->p.scope) : NULL;
    if (r->p.scope && !scope) return false;
    fetch->file = f;
    fetch->request = r->id;
    fetch->bytes = ag_prefix_file_memory_bytes(f);
    fetch->as = (ag_prefix_entry){.id = id,
                                  .model = r->p.model,
                                  .scope = scope,
                                  .params = r->p.session,
                                  .has_evicted = f->has_evicted};
    r->p.model->n_requests++; /* keeps the model loaded */
    ag_engine_lock_notify(files->lock);
    return true;
}

static void end_fetch(ag_prefix_files *files) {
    files->fetch.as.model->n_requests--;
    ag_free(files->fetch.as.scope);
    files->fetch.file = NULL;
}

/* Creates a session from the file. Its tokens must be those of the description. */
static ag_status restore_file(ag_prefix_files *files, const ag_prefix_fetch *fetch,
                              ag_session **out, ag_error *err) {
    char path[PATH_MAX];
    uint64_t bytes = 0;
    double at;
    ag_ids ids = {0};
    const ag_prefix_file *f = fetch->file;
    const ag_served_model *m = fetch->as.model;
    const ag_io_hooks hooks = io_hooks_of(files);
    path_of(files, f->name, "session", path);
    if (!is_own_file(path, &bytes, &at))
        return AG_FAIL(err, FORMAT, "%s: not a prefix cache file", path);
    AG_TRY(ag_session_create(m->model, &fetch->as.params, out, err));
    ag_status st = ag_session_restore_with_hooks(*out, path, m->tokenizer, &ids, &hooks, err);
    if (st == AG_OK &&
        (ids.n != f->ids.n || memcmp(ids.data, f->ids.data, ids.n * sizeof *ids.data) != 0))
        st = AG_FAIL(err, FORMAT, "%s: its tokens differ from its description", path);
    ag_ids_free(&ids);
    if (st == AG_OK) return AG_OK;
    ag_session_destroy(*out);
    *out = NULL;
    return st;
}

/* Reloads the session of the current fetch and adds it to the store. */
static void read_one(ag_prefix_files *files) {
    ag_prefix_fetch *fetch = &files->fetch;
    ag_prefix_file *f = fetch->file;
    ag_session *session = NULL;
    ag_error err;
    const ag_status st = restore_file(files, fetch, &session, &err);
    if (st == AG_OK) {
        ag_ids ids = {
            .data = ag_malloc(f->ids.n * sizeof *ids.data), .n = f->ids.n, .cap = f->ids.n};
        if (!ids.data) ids = (ag_ids){0};
        else memcpy(ids.data, f->ids.data, ids.n * sizeof *ids.data);
        f->used_at = ag_wall_clock_s();
        files->n_read++;
        /* Limits do not apply: a request is about to use it. */
        ag_prefix_store_add(files->store, &fetch->as, session, &ids);
    } else {
        files->n_failed++;
        warn(files, &err);
        if (st == AG_FORMAT || st == AG_UNSUPPORTED)
            remove_file(files, f); /* other errors may be temporary */
    }
    end_fetch(files);
}

/* ---- file thread ---- */

static ag_prefix_entry *newest_queued(const ag_prefix_files *files) {
    ag_prefix_entry *newest = NULL;
    for (ag_prefix_entry *k = files->store->entries; k; k = k->next) {
        if (k->state == AG_PREFIX_QUEUED && (!newest || k->used_at > newest->used_at)) newest = k;
    }
    return newest;
}

void ag_prefix_files_queue_all(ag_prefix_files *files) {
    for (ag_prefix_entry *k = files->store->entries; k && files->lock->has_thread; k = k->next) {
        if (k->state == AG_PREFIX_RESIDENT && ag_prefix_files_should_write(files, k))
            ag_prefix_store_set_state(files->store, k, AG_PREFIX_QUEUED);
    }
}

/* Returns whether the time for the last writes is over. */
static bool is_too_late(const ag_prefix_files *files) {
    if (!(files->lock->write_until > 0) || ag_now_s() < files->lock->write_until) return false;
    ag_backend_log(files->backend, AG_LOG_WARN,
                   "%s: %zu sessions were not written: the disk is too slow", files->dir,
                   files->store->n_writing);
    return true;
}

bool ag_prefix_files_run_next(void *user) {
    ag_prefix_files *files = user;
    if (files->fetch.file) {
        read_one(files);
        return true;
    }
    ag_prefix_entry *k = newest_queued(files);
    if (!k || is_too_late(files)) return false;
    write_one(files, k);
    ag_prefix_store_drop(files->store, k);
    return true;
}
