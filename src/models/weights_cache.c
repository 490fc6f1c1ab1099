/* SPDX-License-Identifier: Apache-2.0 */
#include "models/weights_cache.h"

#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/checksum.h"
#include "core/directories.h"
#include "core/fail.h"
#include "formats/gguf_writer.h"
#include "quant/quant.h"

#include <antigravity/backend.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* To be raised when a conversion gives other bits. */
enum { CACHE_VERSION = 1, KEY_BYTES = 17, CHUNK_VALUES = 1 << 22, GROUP_VALUES = 1 << 14 };

static const char stamp_key[] = "antigravity.weights.stamp";

/* A matrix that is converted. */
typedef struct cached_matrix {
    const ag_source_tensor *from;
    ag_row_order order;
    size_t rows, cols;
    ag_dtype type;
} cached_matrix;

typedef struct cache_job {
    ag_backend *be;
    const ag_weight_source *source;
    const ag_model_params *params;
    cached_matrix *matrices; /* owned */
    size_t n;
    uint64_t bytes, other_bytes; /* of the source: what is read here, and afterwards */
    uint64_t done;
    char stamp[KEY_BYTES];
    char path[PATH_MAX];
} cache_job;

static void matrix_name(char name[AG_GGUF_MAX_NAME + 1], size_t i) {
    snprintf(name, AG_GGUF_MAX_NAME + 1, "matrix.%zu", i);
}

/* ---- what is converted ---- */

static ag_status list_matrix(cache_job *j, const ag_weight_spec *spec, ag_error *err) {
    const ag_source_tensor *t;
    AG_TRY(ag_model_weights_find(j->source, spec, &t, err));
    const ag_dtype type = ag_weight_type(spec, t->dtype, j->params);
    if (type == t->dtype) return AG_OK;
    j->matrices[j->n++] = (cached_matrix){t, spec->order, spec->rows, spec->cols, type};
    j->bytes += ag_weight_file_bytes(t->dtype, spec);
    return AG_OK;
}

static ag_status list_matrices(cache_job *j, const ag_model_spec *s,
                               const ag_weights_summary *summary, ag_error *err) {
    size_t most = 1;
    for (uint32_t l = 0; l < s->n_layers; l++) most += ag_layer_weight_count(s, l);
    j->matrices = ag_calloc(most, sizeof *j->matrices);
    if (!j->matrices) return AG_FAIL(err, NOMEM, "list of %zu matrices", most);
    for (uint32_t l = 0; l < s->n_layers; l++) {
        for (size_t i = 0; i < ag_layer_weight_count(s, l); i++) {
            const ag_weight_spec spec = ag_layer_weight(s, l, i);
            if (spec.kind == AG_WEIGHT_MATRIX) AG_TRY(list_matrix(j, &spec, err));
        }
    }
    ag_weight_spec head = ag_lm_head_weight(s);
    if (summary->tied) snprintf(head.name, sizeof head.name, "%s", summary->embedding->name);
    return list_matrix(j, &head, err);
}

/* ---- the name and the stamp ---- */

static void add_number(ag_checksum *sum, uint64_t v) { ag_checksum_add(sum, &v, sizeof v); }

static void add_text(ag_checksum *sum, const char *text) {
    ag_checksum_add(sum, text, strlen(text) + 1);
}

/* Of which tensors, in which types. */
static void add_matrices(ag_checksum *sum, const cache_job *j) {
    for (size_t i = 0; i < j->n; i++) {
        const cached_matrix *m = &j->matrices[i];
        add_text(sum, m->from->name);
        const uint64_t numbers[] = {m->from->dtype, m->type,         m->rows,
                                    m->cols,        m->from->offset, m->from->file};
        ag_checksum_add(sum, numbers, sizeof numbers);
        const ag_row_order *o = &m->order;
        add_number(sum, o->file_rows);
        if (!o->file_rows) continue;
        add_number(sum, o->first);
        for (int k = 0; k < 3; k++) add_number(sum, o->count[k]);
        for (int k = 0; k < 3; k++) add_number(sum, o->stride[k]);
    }
}

/* Everything that changes when a file of the source does. */
static ag_status make_stamp(const cache_job *j, char stamp[KEY_BYTES], ag_error *err) {
    ag_checksum sum;
    ag_checksum_begin(&sum);
    add_number(&sum, CACHE_VERSION);
    for (size_t i = 0; i < ag_source_n_files(j->source); i++) {
        struct stat st;
        const char *path = ag_source_file_path(j->source, i);
        if (stat(path, &st) != 0) return AG_FAIL(err, IO, "%s: %s", path, strerror(errno));
        const uint64_t numbers[] = {
            (uint64_t)st.st_dev,          (uint64_t)st.st_ino,          (uint64_t)st.st_size,
            (uint64_t)st.st_mtim.tv_sec,  (uint64_t)st.st_mtim.tv_nsec, (uint64_t)st.st_ctim.tv_sec,
            (uint64_t)st.st_ctim.tv_nsec,
        };
        ag_checksum_add(&sum, numbers, sizeof numbers);
    }
    add_matrices(&sum, j);
    snprintf(stamp, KEY_BYTES, "%016" PRIx64, ag_checksum_value(&sum));
    return AG_OK;
}

/* $XDG_CACHE_HOME/antigravity/weights, else ~/.cache/antigravity/weights. */
static ag_status usual_directory(char *dir, size_t cap, ag_error *err) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (xdg && xdg[0] == '/') n = snprintf(dir, cap, "%s/antigravity/weights", xdg);
    else if (home && home[0]) n = snprintf(dir, cap, "%s/.cache/antigravity/weights", home);
    if (n > 0 && (size_t)n < cap) return AG_OK;
    return AG_FAIL(err, IO, "neither XDG_CACHE_HOME nor HOME says where the cache may be");
}

/* The name says which model it is and which types were asked for, so that a model that has changed
 * takes the place of what it was. */
static ag_status find_path(cache_job *j, ag_error *err) {
    char dir[PATH_MAX], real[PATH_MAX];
    const char *first = ag_source_file_path(j->source, 0);
    if (!realpath(first, real)) return AG_FAIL(err, IO, "%s: %s", first, strerror(errno));
    if (j->params->weights_cache[0]) {
        const int n = snprintf(dir, sizeof dir, "%s", j->params->weights_cache);
        if (n < 0 || (size_t)n >= sizeof dir) return AG_FAIL(err, IO, "the path is too long");
    } else {
        AG_TRY(usual_directory(dir, sizeof dir, err));
    }
    if (!ag_make_directories(dir)) return AG_FAIL(err, IO, "%s: %s", dir, strerror(errno));
    ag_checksum sum;
    ag_checksum_begin(&sum);
    add_text(&sum, real);
    for (size_t i = 0; i < j->n; i++) add_number(&sum, j->matrices[i].type);
    const int n =
        snprintf(j->path, sizeof j->path, "%s/%016" PRIx64 ".gguf", dir, ag_checksum_value(&sum));
    if (n > 0 && (size_t)n < sizeof j->path) return AG_OK;
    return AG_FAIL(err, IO, "%s: the path is too long", dir);
}

/* ---- using it ---- */

/* Nobody else may have put it there. */
static bool is_own_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
           !(st.st_mode & (S_IWGRP | S_IWOTH));
}

static bool holds_matrix(const ag_weight_source *file, const cached_matrix *m, size_t i) {
    char name[AG_GGUF_MAX_NAME + 1];
    matrix_name(name, i);
    const ag_source_tensor *t = ag_source_find(file, name);
    const ag_shape shape = ag_shape_2d(m->rows, m->cols);
    return t && t->dtype == m->type && ag_shape_equal(&t->shape, &shape);
}

/* AG_FORMAT for a file of something else. */
static ag_status check_file(const cache_job *j, ag_weight_source *file, ag_error *err) {
    ag_source_string stamp = {NULL, 0};
    AG_TRY(ag_source_open_tensors(file, err));
    const ag_gguf *header = ag_gguf_source_header(file);
    if (header) AG_TRY(ag_gguf_string(header, stamp_key, &stamp, err));
    bool same = stamp.n == strlen(j->stamp) && !memcmp(stamp.text, j->stamp, stamp.n);
    for (size_t i = 0; i < j->n && same; i++) same = holds_matrix(file, &j->matrices[i], i);
    return same ? AG_OK : AG_FAIL(err, FORMAT, "%s: was made of other files", j->path);
}

static ag_status open_file(const cache_job *j, ag_weight_source **out, ag_error *err) {
    *out = NULL;
    if (!is_own_file(j->path)) return AG_FAIL(err, NOT_FOUND, "%s: there is none", j->path);
    AG_TRY(ag_source_open(j->path, out, err));
    const ag_status st = check_file(j, *out, err);
    if (st == AG_OK) return AG_OK;
    ag_source_destroy(*out);
    *out = NULL;
    return st;
}

/* ---- making it ---- */

typedef struct chunk_job {
    const cached_matrix *matrix;
    const ag_weight_rounding *rounding;
    const unsigned char *source;
    size_t first, n, group; /* rows: of the chunk, and that a thread takes at once */
    size_t from_bytes, to_bytes;
    unsigned char *out; /* of the chunk */
    float *values;      /* [threads][cols] */
    bool *failed;       /* [threads] */
} chunk_job;

static void convert_groups(void *ctx, size_t begin, size_t end, uint32_t thread) {
    const chunk_job *c = ctx;
    const cached_matrix *m = c->matrix;
    float *values = c->values + thread * m->cols;
    const size_t last = end * c->group < c->n ? end * c->group : c->n;
    for (size_t i = begin * c->group; i < last && !c->failed[thread]; i++) {
        const size_t row = ag_row_order_at(&m->order, c->first + i);
        size_t bad;
        c->failed[thread] =
            ag_convert_weights(c->rounding, m->type, c->out + i * c->to_bytes, m->from->dtype,
                               c->source + row * c->from_bytes, values, m->cols, &bad) != AG_OK;
    }
}

static ag_status advance_cache(cache_job *j, const cached_matrix *m, size_t rows, ag_error *err) {
    const ag_model_params *p = j->params;
    j->done += (uint64_t)rows * ag_dtype_row_bytes(m->from->dtype, m->cols);
    if (!p->progress || p->progress(p->progress_user, j->done, j->bytes + j->other_bytes)) {
        return AG_OK;
    }
    return AG_FAIL(err, CANCELLED, "loading was cancelled at %s", m->from->name);
}

static ag_status write_rows(cache_job *j, ag_backend *cpu, ag_gguf_writer *w, chunk_job *c,
                            ag_error *err) {
    const cached_matrix *m = c->matrix;
    const uint32_t threads = ag_backend_threads(cpu);
    const size_t most = CHUNK_VALUES / m->cols + 1;
    for (c->first = 0; c->first < m->rows; c->first += c->n) {
        c->n = m->rows - c->first < most ? m->rows - c->first : most;
        ag_for_each(cpu, (c->n + c->group - 1) / c->group, convert_groups, c);
        for (uint32_t t = 0; t < threads; t++) {
            if (c->failed[t]) {
                return AG_FAIL(err, FORMAT, "tensor %s has values that %s cannot hold",
                               m->from->name, ag_dtype_name(m->type));
            }
        }
        AG_TRY(ag_gguf_write(w, c->out, c->n * c->to_bytes, err));
        AG_TRY(advance_cache(j, m, c->n, err));
    }
    return ag_gguf_end_tensor(w, err);
}

static ag_status write_matrix(cache_job *j, ag_backend *cpu, ag_gguf_writer *w,
                              const cached_matrix *m, ag_error *err) {
    const uint32_t threads = ag_backend_threads(cpu);
    chunk_job c = {.matrix = m, .rounding = ag_backend_rounding(cpu)};
    ag_tensor all;
    AG_TRY(ag_source_map(j->source, m->from, &all, err));
    c.source = ag_tensor_data(&all);
    c.group = GROUP_VALUES / m->cols + 1;
    c.from_bytes = ag_dtype_row_bytes(m->from->dtype, m->cols);
    c.to_bytes = ag_dtype_row_bytes(m->type, m->cols);
    c.out = ag_malloc((CHUNK_VALUES / m->cols + 1) * c.to_bytes);
    c.values = ag_malloc(threads * m->cols * sizeof *c.values);
    c.failed = ag_calloc(threads, sizeof *c.failed);
    ag_status st = c.out && c.values && c.failed
                       ? write_rows(j, cpu, w, &c, err)
                       : AG_FAIL(err, NOMEM, "rows of tensor %s", m->from->name);
    ag_source_drop(j->source, m->from, 0, m->from->n_bytes);
    ag_free(c.failed);
    ag_free(c.values);
    ag_free(c.out);
    return st;
}

static ag_status write_matrices(cache_job *j, ag_backend *cpu, ag_gguf_writer *w, ag_error *err) {
    for (size_t i = 0; i < j->n; i++) {
        const cached_matrix *m = &j->matrices[i];
        const ag_shape shape = ag_shape_2d(m->rows, m->cols);
        char name[AG_GGUF_MAX_NAME + 1];
        matrix_name(name, i);
        ag_gguf_add_tensor(w, name, m->type, &shape);
    }
    w->is_private = true;
    ag_gguf_put_string(w, stamp_key, (ag_source_string){j->stamp, strlen(j->stamp)});
    AG_TRY(ag_gguf_writer_open(w, j->path, err));
    for (size_t i = 0; i < j->n; i++) AG_TRY(write_matrix(j, cpu, w, &j->matrices[i], err));
    char now[KEY_BYTES];
    AG_TRY(make_stamp(j, now, err));
    if (strcmp(now, j->stamp) != 0) {
        return AG_FAIL(err, IO, "%s: changed while it was read", j->source->path);
    }
    return ag_gguf_writer_commit(w, err);
}

static ag_status write_cache_file(cache_job *j, ag_error *err) {
    const ag_backend_params params = {.name = "cpu", .n_threads = ag_backend_threads(j->be)};
    ag_backend *cpu;
    ag_gguf_writer w = {.is_private = true};
    AG_TRY(ag_backend_create(&params, &cpu, err));
    const ag_status st = write_matrices(j, cpu, &w, err);
    ag_gguf_writer_close(&w);
    ag_backend_destroy(cpu);
    return st;
}

/* ---- both ---- */

static ag_status find_or_make(cache_job *j, ag_weights_cache *out, ag_error *err) {
    AG_TRY(find_path(j, err));
    AG_TRY(make_stamp(j, j->stamp, err));
    ag_error none;
    if (open_file(j, &out->file, &none) == AG_OK) {
        out->outcome = AG_CACHE_USED;
        ag_backend_log(j->be, AG_LOG_INFO, "weights are in the cache: %s", j->path);
        return AG_OK;
    }
    AG_TRY(write_cache_file(j, err));
    AG_TRY(open_file(j, &out->file, err));
    out->outcome = AG_CACHE_WRITTEN;
    out->bytes_done = j->done;
    ag_backend_log(j->be, AG_LOG_INFO, "converted weights were put into the cache: %s", j->path);
    return AG_OK;
}

ag_status ag_weights_cache_open(ag_weights_cache *out, ag_backend *be, const ag_model_spec *s,
                                const ag_weight_source *source, const ag_weights_summary *summary,
                                const ag_model_params *params, ag_error *err) {
    *out = (ag_weights_cache){.outcome = AG_CACHE_NONE};
    cache_job *j = ag_calloc(1, sizeof *j); /* paths are large */
    ag_error inner = {0};
    ag_status st = j ? AG_OK : AG_FAIL(&inner, NOMEM, "weights cache");
    if (st == AG_OK) {
        *j = (cache_job){.be = be, .source = source, .params = params};
        j->other_bytes = summary->source_bytes;
        st = list_matrices(j, s, summary, &inner);
    }
    if (st == AG_OK && j->n > 0) st = find_or_make(j, out, &inner);
    if (st != AG_OK && st != AG_CANCELLED) {
        out->outcome = AG_CACHE_FAILED;
        ag_backend_log(be, AG_LOG_WARN, "weights are not kept: %s", inner.msg);
    }
    if (st == AG_CANCELLED && err) *err = inner;
    if (j) ag_free(j->matrices);
    ag_free(j);
    return st == AG_CANCELLED ? st : AG_OK;
}

void ag_weights_cache_close(ag_weights_cache *c) {
    ag_source_destroy(c->file);
    *c = (ag_weights_cache){.outcome = AG_CACHE_NONE};
}

const ag_source_tensor *ag_weights_cache_at(const ag_weights_cache *c, size_t i) {
    char name[AG_GGUF_MAX_NAME + 1];
    matrix_name(name, i);
    return c->file ? ag_source_find(c->file, name) : NULL;
}
