/* SPDX-License-Identifier: Apache-2.0 */
#include "served_models.h"

#include "../../chat/transcript.h"
#include "../../chat/transcript_options.h"
#include "../../command.h"
#include "../../model/head_file.h"
#include "../../model/store.h"
#include "../../support/user_files.h"
#include "../../terminal/output.h"
#include "../system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_SIZE = 256, REASON_SIZE = 256 };

/* Splits off the last part of a path, without slashes at the end. Returns its start. */
static const char *last_part(const char *path, size_t *n) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin && path[begin - 1] != '/') begin--;
    *n = end - begin;
    return path + begin;
}

/* Writes "Qwen3-0.6B-Q8_0" for ".../Qwen3-0.6B-Q8_0.gguf". */
static void name_model(const char *path, char name[NAME_SIZE]) {
    size_t n;
    const char *part = last_part(path, &n);
    if (n > 5 && !strncmp(part + n - 5, ".gguf", 5)) n -= 5;
    snprintf(name, NAME_SIZE, "%.*s", (int)n, part);
}

/* Returns whether the model is in the store, and writes its name there. */
static bool is_stored(const served_models *s, const char *path, char file[NAME_SIZE]) {
    size_t n;
    char parent[PATH_MAX], real_parent[PATH_MAX], real_store[PATH_MAX];
    const char *part = last_part(path, &n);
    snprintf(file, NAME_SIZE, "%.*s", (int)n, part);
    snprintf(parent, sizeof parent, "%.*s", (int)(part - path), path);
    if (!s->store[0] || !n || file[0] == '.') return false;
    if (!realpath(parent[0] ? parent : ".", real_parent) || !realpath(s->store, real_store))
        return false;
    return !strcmp(real_parent, real_store);
}

/* Finds a template to use instead of the model's own. *out NULL: the model's own. */
static int find_template(const char *file, const char *dir, bool quiet, char **out) {
    ag_error err;
    ag_text own = {0};
    *out = NULL;
    if (file) return transcript_template_read(file, out);
    const ag_status st = ag_chat_template_load(dir, &own, &err);
    ag_text_free(&own);
    if (st != AG_NOT_FOUND) return EXIT_DONE;
    if (!quiet) complain("%s: no chat template found; chats use a plain text template", dir);
    *out = strdup(transcript_plain_template());
    return *out ? EXIT_DONE : complain_no_memory();
}

static void report_unprobed(const ag_served_model *m, const char *name) {
    const ag_chat_format *f = ag_served_model_format(m);
    const char *reason = f ? ag_chat_format_not_probed(f) : NULL;
    if (reason) complain("%s: chat template: not probed: %s", name, reason);
}

/* Writes the SHA-256 that `pull` recorded; otherwise a digest that changes with the file: of path,
 * size and time of change. The file itself is not read. */
static void make_digest(const char *path, uint64_t n_bytes, char digest[SHA256_HEX]) {
    char stamp[64];
    sha256 sum;
    if (store_find_hash(path, digest)) return;
    snprintf(stamp, sizeof stamp, "\n%llu\n%.9f", (unsigned long long)n_bytes,
             system_change_time(path));
    sha256_begin(&sum);
    sha256_add(&sum, path, strlen(path));
    sha256_add(&sum, stamp, strlen(stamp));
    sha256_hex(&sum, digest);
}

/* Adds the model to the list, or removes it from the engine. */
static int list_model(served_models *s, ag_served_model *m, const char *path,
                      const model_entry **out) {
    char file[NAME_SIZE], reason[REASON_SIZE];
    model_entry e = {.kind = MODEL_FILE,
                     .name = ag_served_model_name(m),
                     .model = m,
                     .changed_at = system_change_time(path)};
    if (is_stored(s, path, file)) e.file = file;
    make_digest(path, ag_served_model_info(m)->file_bytes, e.digest);
    if (!model_list_add(s->list, &e, out, reason)) {
        ag_serving_remove_model(s->engine, m);
        return complain_failure("%s", reason);
    }
    report_unprobed(m, e.name);
    return EXIT_DONE;
}

int served_models_add(served_models *s, const char *path, const char *template_file,
                      double keep_alive_s, const model_entry **out) {
    char name[NAME_SIZE];
    char *jinja = NULL;
    ag_error err;
    ag_model_info info;
    ag_served_model *m;
    const ag_model_params params = model_params(s->options);
    if (ag_model_inspect(path, &params, &info, &err) != AG_OK) return complain_error(&err);
    int code = head_file_fits(&s->options->eviction.params, &info);
    if (code == EXIT_DONE) code = find_template(template_file, path, s->options->quiet, &jinja);
    if (code != EXIT_DONE) return code;
    name_model(path, name);
    const ag_served_model_params served = {
        .name = name,
        .path = path,
        .model = params,
        .session = session_params(s->options, context_length(s->options, &info)),
        .chat_template = jinja,
        .keep_alive_s = keep_alive_s,
    };
    context_report(s->options, &info, path);
    ag_status st = budget_check(s->options, &served.session, &err);
    if (st == AG_OK) st = ag_serving_add_model(s->engine, &served, &m, &err);
    code = st == AG_OK ? list_model(s, m, path, out) : complain_settings(&err);
    free(jinja);
    return code;
}

void served_models_refresh(served_models *s, const model_entry *m, const char *path) {
    char digest[SHA256_HEX];
    make_digest(path, ag_served_model_info(m->model)->file_bytes, digest);
    pthread_mutex_lock(&s->changing);
    model_list_set_version(s->list, m, digest, system_change_time(path));
    pthread_mutex_unlock(&s->changing);
}

int served_models_add_alias(served_models *s, const model_entry *of, const char *name) {
    char reason[REASON_SIZE];
    model_entry e = *of;
    e.kind = MODEL_ALIAS;
    e.name = name;
    e.file = NULL;
    return model_list_add(s->list, &e, NULL, reason) ? EXIT_DONE : complain_usage("%s", reason);
}

/* ---- directories ---- */

/* Returns whether the file is "x-00002-of-00003.gguf", a part of another one's model. */
static bool is_later_part(const char *file) {
    int part, n, used = 0;
    const char *at = strrchr(file, '.');
    const size_t tail = strlen("-00002-of-00003");
    if (!at || (size_t)(at - file) <= tail) return false;
    return sscanf(at - tail, "-%5d-of-%5d%n", &part, &n, &used) == 2 && used == (int)tail &&
           part > 1;
}

bool served_models_is_directory(const served_models *s, const char *path) {
    struct stat info;
    char config[PATH_MAX];
    model_store dir;
    ag_model_info model;
    const ag_model_params params = model_params(s->options);
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return false;
    if (path_join(config, path, "config.json") && stat(config, &info) == 0) return false;
    if (ag_model_inspect(path, &params, &model, NULL) == AG_OK) return false;
    const bool any = store_open_at(&dir, path) == EXIT_DONE && dir.n;
    store_close(&dir);
    return any;
}

int served_models_add_directory(served_models *s, const char *path) {
    model_store dir;
    char at[PATH_MAX];
    size_t n_failed = 0;
    int code = store_open_at(&dir, path);
    for (size_t i = 0; i < dir.n && code == EXIT_DONE; i++) {
        const store_entry *e = &dir.entries[i];
        if (e->is_part || is_later_part(e->file) || !store_model_path(&dir, e, at)) continue;
        n_failed += served_models_add(s, at, NULL, s->keep_alive_s, NULL) != EXIT_DONE;
    }
    store_close(&dir);
    if (n_failed)
        complain("%s: models that are not served because they do not load: %zu", path, n_failed);
    return code;
}
