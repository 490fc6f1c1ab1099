/* SPDX-License-Identifier: Apache-2.0 */
/* Weight source of GGUF files, one or several shards. Configuration, vocabulary and chat template
 * are metadata of the first. */
#include "core/alloc.h"
#include "core/fail.h"
#include "formats/gguf.h"
#include "formats/recognise.h"
#include "formats/weight_files.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* Longer arrays are not configuration but, for example, scores of a vocabulary. */
enum { MAX_CONFIG_ARRAY = 4096, MAX_CONFIG_VALUES = 1 << 20 };

typedef struct gguf_source {
    ag_weight_source base;
    ag_gguf header; /* header of the first shard; its list has moved to the file */
    unsigned n_shards;
} gguf_source;

static const ag_gguf *header_of(const ag_weight_source *s) {
    return &((const gguf_source *)(const void *)s)->header;
}

const ag_gguf *ag_gguf_source_header(const ag_weight_source *s) {
    return s->ops == &ag_gguf_ops ? header_of(s) : NULL;
}

/* ---- files ---- */

/* Adds a file and parses its header. Takes ownership of path. The caller frees *header, also after
 * a failure. */
static ag_status add_shard(ag_weight_files *files, char *path, ag_gguf *header, ag_error *err) {
    ag_weight_file *f;
    ag_status st = ag_weight_files_add(files, path, &f, err);
    if (st == AG_NOT_FOUND) {
        return AG_FAIL(err, FORMAT, "%s: is missing; it is one of the files of the model", f->path);
    }
    AG_TRY(st);
    AG_TRY(ag_gguf_parse(ag_buffer_map(f->map), (size_t)f->bytes, f->path, header, err));
    f->list = header->list;
    header->list = (ag_tensor_list){0};
    return AG_OK;
}

/* Checks that the file's keys agree with its name. */
static ag_status check_shard(const ag_gguf *g, unsigned shard, unsigned n_shards, ag_error *err) {
    int64_t no = 0, count = 0;
    AG_TRY(ag_gguf_integer(g, "split.no", &no, err));
    AG_TRY(ag_gguf_integer(g, "split.count", &count, err));
    if (count <= 1 && n_shards == 1) return AG_OK;
    if (count == n_shards && no == (int64_t)shard - 1) return AG_OK;
    return AG_FAIL(err, FORMAT,
                   "%s: keys \"split.no\" and \"split.count\" say %" PRId64 " (counted from 0) of "
                   "%" PRId64 ", its name says part %u of %u; names are NAME-00001-of-00002.gguf",
                   g->path, no, count, shard, n_shards);
}

static ag_status open_first_shard(ag_weight_source *s, ag_error *err) {
    gguf_source *g = (gguf_source *)(void *)s;
    unsigned shard = 1;
    char *path;
    AG_TRY(ag_recognise_gguf_file(s->path, &path, err));
    if (!ag_recognise_gguf_shard(path, &shard, &g->n_shards)) g->n_shards = 1;
    ag_status st = ag_weight_files_create(&s->files, err);
    if (st != AG_OK) {
        ag_free(path);
        return st;
    }
    st = add_shard(s->files, path, &g->header, err);
    return st == AG_OK ? check_shard(&g->header, 1, g->n_shards, err) : st;
}

static void close_header(ag_weight_source *s) { ag_gguf_free(&((gguf_source *)(void *)s)->header); }

static ag_status open_other_shards(ag_weight_source *s, ag_error *err) {
    const gguf_source *g = (const gguf_source *)(const void *)s;
    for (unsigned shard = 2; shard <= g->n_shards; shard++) {
        const char *first = ag_weight_files_path(s->files, 0);
        ag_gguf header = {0};
        ag_status st = add_shard(s->files, ag_recognise_gguf_sibling(first, shard), &header, err);
        if (st == AG_OK) st = check_shard(&header, shard, g->n_shards, err);
        ag_gguf_free(&header);
        AG_TRY(st);
    }
    return AG_OK;
}

static ag_status open_tensors(ag_weight_source *s, ag_error *err) {
    const ag_gguf *g = header_of(s);
    AG_TRY(open_other_shards(s, err));
    AG_TRY(ag_weight_files_sort(s->files, err));
    const size_t n = ag_weight_files_count(s->files);
    if (n == 0) return AG_FAIL(err, NOT_FOUND, "%s: holds no tensors", g->path);
    int64_t count = (int64_t)n;
    AG_TRY(ag_gguf_integer(g, "split.tensors.count", &count, err));
    if (count == (int64_t)n) return AG_OK;
    return AG_FAIL(err, FORMAT,
                   "%s: key \"split.tensors.count\" says %" PRId64 ", the files hold %zu tensors",
                   g->path, count, n);
}

/* ---- configuration ---- */

static json_t *number_of(ag_gguf_type type, const unsigned char *p) {
    if (type == AG_GGUF_F32 || type == AG_GGUF_F64) return json_real(ag_gguf_load_real(type, p));
    if (type == AG_GGUF_BOOL) return json_boolean(*p);
    const int64_t v = ag_gguf_load_integer(type, p);
    /* JSON has no integers of 2^63 or more. */
    return type == AG_GGUF_U64 && v < 0 ? json_real((double)(uint64_t)v) : json_integer(v);
}

/* Rejects values that JSON cannot represent: infinities, NaN and invalid UTF-8. */
static ag_status check_value(const ag_gguf *g, const ag_gguf_entry *e, ag_error *err) {
    const int key_chars = e->key.n < 120 ? (int)e->key.n : 120;
    const unsigned char *p = e->first;
    if (e->type == AG_GGUF_STRING) {
        const ag_source_string s = ag_gguf_next_string(&p);
        json_t *any = json_stringn_nocheck(s.text, s.n), *text = json_stringn(s.text, s.n);
        const bool is_bad = any && !text;
        json_decref(any);
        json_decref(text);
        if (!is_bad) return AG_OK;
        return AG_FAIL(err, FORMAT, "%s: key \"%.*s\" is not UTF-8", g->path, key_chars,
                       e->key.text);
    }
    if (e->type != AG_GGUF_F32 && e->type != AG_GGUF_F64) return AG_OK;
    for (uint64_t i = 0; i < e->n; i++, p += ag_gguf_type_bytes(e->type)) {
        if (isfinite(ag_gguf_load_real(e->type, p))) continue;
        return AG_FAIL(err, FORMAT, "%s: key \"%.*s\" is not finite", g->path, key_chars,
                       e->key.text);
    }
    return AG_OK;
}

static json_t *value_of(const ag_gguf_entry *e, const unsigned char *p) {
    if (e->type == AG_GGUF_STRING) {
        const ag_source_string s = ag_gguf_next_string(&p);
        return json_stringn(s.text, s.n);
    }
    if (!e->is_array) return number_of(e->type, p);
    json_t *array = json_array();
    for (uint64_t i = 0; array && i < e->n; i++, p += ag_gguf_type_bytes(e->type)) {
        if (json_array_append_new(array, number_of(e->type, p)) == 0) continue;
        json_decref(array);
        return NULL;
    }
    return array;
}

static ag_status put_entry(json_t *config, const ag_gguf *g, const ag_gguf_entry *e,
                           ag_error *err) {
    AG_TRY(check_value(g, e, err));
    char *key = ag_strndup(e->key.text, e->key.n);
    const bool is_put = key && json_object_set_new(config, key, value_of(e, e->first)) == 0;
    ag_free(key);
    return is_put ? AG_OK : AG_FAIL(err, NOMEM, "%s: keys", g->path);
}

static ag_status put_entries(json_t *config, const ag_gguf *g, ag_error *err) {
    uint64_t n_values = 0;
    for (size_t i = 0; i < g->n_entries; i++) {
        const ag_gguf_entry *e = &g->entries[i];
        if (e->is_array && (e->type == AG_GGUF_STRING || e->n > MAX_CONFIG_ARRAY)) continue;
        if ((n_values += e->n) > MAX_CONFIG_VALUES) {
            return AG_FAIL(err, LIMIT, "%s: its metadata have more than %d values", g->path,
                           MAX_CONFIG_VALUES);
        }
        AG_TRY(put_entry(config, g, e, err));
    }
    return AG_OK;
}

static ag_status read_config(const ag_gguf *g, ag_source_text *out, ag_error *err) {
    json_t *config = json_object();
    ag_status st = config ? put_entries(config, g, err) : AG_NOMEM;
    if (st == AG_OK) {
        out->n = json_dumpb(config, NULL, 0, JSON_COMPACT);
        out->text = out->n ? ag_calloc(out->n + 1, 1) : NULL;
        const bool is_done =
            out->text && json_dumpb(config, out->text, out->n, JSON_COMPACT) == out->n;
        if (!is_done) st = AG_NOMEM;
    }
    json_decref(config);
    return st == AG_NOMEM ? AG_FAIL(err, NOMEM, "%s: metadata", g->path) : st;
}

/* Reads the template without a name or, if there is none, the first that has one. */
static ag_status read_template(const ag_gguf *g, ag_source_text *out, ag_error *err) {
    static const char key[] = "tokenizer.chat_template", named[] = "tokenizer.chat_template.";
    ag_source_string jinja = {0};
    AG_TRY(ag_gguf_string(g, key, &jinja, err));
    for (size_t i = 0; i < g->n_entries && !jinja.text; i++) {
        const ag_gguf_entry *e = &g->entries[i];
        const unsigned char *p = e->first;
        if (e->type != AG_GGUF_STRING || e->is_array || e->key.n < sizeof named) continue;
        if (!memcmp(e->key.text, named, sizeof named - 1)) jinja = ag_gguf_next_string(&p);
    }
    if (!jinja.text) return AG_OK;
    *out = (ag_source_text){ag_malloc(jinja.n + 1), jinja.n, NULL};
    if (!out->text) return AG_FAIL(err, NOMEM, "%s: chat template", g->path);
    memcpy(out->text, jinja.text, jinja.n);
    out->text[jinja.n] = '\0';
    return AG_OK;
}

static ag_status read_text(const ag_weight_source *s, ag_source_text_kind shard,
                           ag_source_text *out, ag_error *err) {
    const ag_gguf *g = header_of(s);
    if (shard == AG_SOURCE_CONFIG) AG_TRY(read_config(g, out, err));
    if (shard == AG_SOURCE_CHAT_TEMPLATE) AG_TRY(read_template(g, out, err));
    if (!out->text) return AG_OK;
    out->name = ag_strdup(g->path);
    return out->name ? AG_OK : AG_FAIL(err, NOMEM, "path");
}

/* ---- vocabulary ---- */

static ag_status read_strings(const ag_gguf *g, const char *key, ag_source_string **out, size_t *n,
                              ag_error *err) {
    const ag_gguf_entry *e;
    AG_TRY(ag_gguf_array(g, key, AG_GGUF_STRING, &e, err));
    if (!e || e->n == 0) return AG_OK;
    *n = (size_t)e->n;
    *out = ag_calloc(*n, sizeof **out);
    if (!*out) return AG_FAIL(err, NOMEM, "%s: %zu strings", g->path, *n);
    const unsigned char *p = e->first;
    for (size_t i = 0; i < *n; i++) (*out)[i] = ag_gguf_next_string(&p);
    return AG_OK;
}

/* Reads an array of 4-byte numbers, one for each token. *out does not change without the key. */
static ag_status read_numbers(const ag_gguf *g, const char *key, ag_gguf_type type, size_t n_tokens,
                              void **out, ag_error *err) {
    const ag_gguf_entry *e;
    AG_TRY(ag_gguf_array(g, key, type, &e, err));
    if (!e) return AG_OK;
    if (e->n != n_tokens) {
        return AG_FAIL(err, FORMAT, "%s: key \"%s\" has %" PRIu64 " elements for %zu tokens",
                       g->path, key, e->n, n_tokens);
    }
    *out = ag_malloc(n_tokens * 4);
    if (!*out) return AG_FAIL(err, NOMEM, "%s: %zu numbers", g->path, n_tokens);
    memcpy(*out, e->first, n_tokens * 4);
    return AG_OK;
}

static const struct vocabulary_key {
    const char *key;
    size_t member;
    bool is_id;
} vocabulary_keys[] = {
    {"tokenizer.ggml.bos_token_id", offsetof(ag_source_vocabulary, bos), true},
    {"tokenizer.ggml.eos_token_id", offsetof(ag_source_vocabulary, eos), true},
    {"tokenizer.ggml.eot_token_id", offsetof(ag_source_vocabulary, eot), true},
    {"tokenizer.ggml.eom_token_id", offsetof(ag_source_vocabulary, eom), true},
    {"tokenizer.ggml.unknown_token_id", offsetof(ag_source_vocabulary, unk), true},
    {"tokenizer.ggml.seperator_token_id", offsetof(ag_source_vocabulary, sep), true},
    {"tokenizer.ggml.padding_token_id", offsetof(ag_source_vocabulary, pad), true},
    {"tokenizer.ggml.mask_token_id", offsetof(ag_source_vocabulary, mask), true},
    {"tokenizer.ggml.add_bos_token", offsetof(ag_source_vocabulary, add_bos), false},
    {"tokenizer.ggml.add_eos_token", offsetof(ag_source_vocabulary, add_eos), false},
    {"tokenizer.ggml.add_space_prefix", offsetof(ag_source_vocabulary, add_space_prefix), false},
};

static ag_status read_key(const ag_gguf *g, const struct vocabulary_key *k,
                          ag_source_vocabulary *out, ag_error *err) {
    int64_t *to = (int64_t *)(void *)((char *)out + k->member);
    *to = -1;
    AG_TRY(ag_gguf_integer(g, k->key, to, err));
    if (*to == UINT32_MAX) *to = -1; /* -1, written as unsigned */
    if (!k->is_id && *to > 1) *to = 1;
    if (*to < (int64_t)out->n_tokens && *to >= -1) return AG_OK;
    return AG_FAIL(err, FORMAT, "%s: key \"%s\": %" PRId64 " is outside the %zu tokens", g->path,
                   k->key, *to, out->n_tokens);
}

static ag_status read_vocabulary(const ag_weight_source *s, ag_source_vocabulary *out,
                                 ag_error *err) {
    const ag_gguf *g = header_of(s);
    AG_TRY(read_strings(g, "tokenizer.ggml.tokens", &out->tokens, &out->n_tokens, err));
    if (out->n_tokens == 0) return AG_OK;
    AG_TRY(read_strings(g, "tokenizer.ggml.merges", &out->merges, &out->n_merges, err));
    void *scores = NULL, *types = NULL;
    ag_status st =
        read_numbers(g, "tokenizer.ggml.scores", AG_GGUF_F32, out->n_tokens, &scores, err);
    out->scores = scores;
    AG_TRY(st);
    st = read_numbers(g, "tokenizer.ggml.token_type", AG_GGUF_I32, out->n_tokens, &types, err);
    out->types = types;
    AG_TRY(st);
    AG_TRY(ag_gguf_string(g, "tokenizer.ggml.model", &out->model, err));
    AG_TRY(ag_gguf_string(g, "tokenizer.ggml.pre", &out->pre, err));
    for (size_t i = 0; i < sizeof vocabulary_keys / sizeof vocabulary_keys[0]; i++) {
        AG_TRY(read_key(g, &vocabulary_keys[i], out, err));
    }
    return AG_OK;
}

const ag_weight_source_ops ag_gguf_ops = {
    .name = "gguf",
    .size_bytes = sizeof(gguf_source),
    .recognises = ag_recognise_gguf,
    .read_text = read_text,
    .open_tensors = open_tensors,
    .open = open_first_shard,
    .close = close_header,
    .read_vocabulary = read_vocabulary,
};
