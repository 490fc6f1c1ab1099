/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/out_model.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "formats/json.h"
#include "text/pre_kinds.h"
#include "text/pretokenizer.h"

#include <antigravity/tokenizer.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "tokenizer.ggml."

enum { PADDING_NAME_BYTES = 24 };

typedef struct vocabulary {
    const json_t *root, *model; /* both of tokenizer.json */
    const char *path;
    bool is_byte_level; /* else spaces are escaped, and tokens have scores */
    size_t n;
    ag_source_string *tokens;
    int32_t *types;
    float *scores;
    char *padding_names; /* names of ids without a token */
} vocabulary;

/* ---- kind ---- */

/* Visits each component of a "pre_tokenizer", "normalizer" or the like: the members of a sequence,
 * or the component itself. Returning false ends the iteration. */
typedef bool component_fn(void *user, const char *type, const json_t *component);

static bool for_each_component(const json_t *v, const char *list, component_fn *visit, void *user) {
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *inner = json_object_get(v, list);
    if (!type) return true;
    if (strcmp(type, "Sequence") != 0) return visit(user, type, v);
    for (size_t i = 0; i < json_array_size(inner); i++) {
        if (!for_each_component(json_array_get(inner, i), list, visit, user)) return false;
    }
    return true;
}

static bool is_not(void *user, const char *type, const json_t *component) {
    (void)component;
    return strcmp(type, user) != 0;
}

static bool has_component(const vocabulary *v, const char *part, const char *list,
                          const char *type) {
    char name[32];
    snprintf(name, sizeof name, "%s", type);
    return !for_each_component(json_object_get(v->root, part), list, is_not, name);
}

static ag_status find_kind(vocabulary *v, ag_error *err) {
    const char *type = json_string_value(json_object_get(v->model, "type"));
    v->is_byte_level = has_component(v, "pre_tokenizer", "pretokenizers", "ByteLevel");
    const bool has_bytes = json_is_true(json_object_get(v->model, "byte_fallback"));
    const bool is_bpe = type ? !strcmp(type, "BPE") : json_object_get(v->model, "merges") != NULL;
    if (is_bpe && (v->is_byte_level || has_bytes)) return AG_OK;
    return AG_FAIL(err, UNSUPPORTED,
                   "%s: model.type \"%.40s\" without byte-level steps or byte_fallback cannot be "
                   "written as GGUF",
                   v->path, type ? type : "?");
}

/* ---- tokens ---- */

static ag_status set_token(vocabulary *v, const char *text, size_t n, const json_t *id,
                           int32_t type, ag_error *err) {
    const json_int_t index = json_is_integer(id) ? json_integer_value(id) : -1;
    if (index < 0 || index >= (json_int_t)v->n) {
        return AG_FAIL(err, FORMAT,
                       "%s: token \"%.60s\": id %" JSON_INTEGER_FORMAT
                       " is out of range; the model has %zu",
                       v->path, text, index, v->n);
    }
    v->tokens[index] = (ag_source_string){text, n};
    v->types[index] = type;
    return AG_OK;
}

/* as in "<0x0A>" */
static bool is_byte(const char *text) {
    return strlen(text) == 6 && !strncmp(text, "<0x", 3) && text[5] == '>';
}

static ag_status set_model_tokens(vocabulary *v, ag_error *err) {
    const char *unknown = json_string_value(json_object_get(v->model, "unk_token")), *text;
    json_t *list = json_object_get(v->model, "vocab"), *id;
    json_object_foreach(list, text, id) {
        int32_t type = AG_TOKEN_NORMAL;
        if (!v->is_byte_level && is_byte(text)) type = AG_TOKEN_BYTE;
        if (!v->is_byte_level && unknown && !strcmp(text, unknown)) type = AG_TOKEN_UNKNOWN;
        AG_TRY(set_token(v, text, strlen(text), id, type, err));
    }
    return AG_OK;
}

static ag_status set_added_tokens(vocabulary *v, ag_error *err) {
    const char *unknown = json_string_value(json_object_get(v->model, "unk_token"));
    const json_t *list = json_object_get(v->root, "added_tokens");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *t = json_array_get(list, i), *content = json_object_get(t, "content");
        if (!json_is_string(content)) {
            return AG_FAIL(err, FORMAT, "%s: added_tokens[%zu]: no content", v->path, i);
        }
        int32_t type =
            json_is_true(json_object_get(t, "special")) ? AG_TOKEN_CONTROL : AG_TOKEN_USER_DEFINED;
        const char *text = json_string_value(content);
        if (!v->is_byte_level && unknown && !strcmp(text, unknown)) type = AG_TOKEN_UNKNOWN;
        AG_TRY(
            set_token(v, text, json_string_length(content), json_object_get(t, "id"), type, err));
    }
    return AG_OK;
}

/* Names ids without a token: the model's matrices often have more rows than the tokenizer has
 * ids. */
static void name_missing(vocabulary *v) {
    for (size_t i = 0; i < v->n; i++) {
        if (v->tokens[i].text) continue;
        char *name = v->padding_names + i * PADDING_NAME_BYTES;
        const int n = snprintf(name, PADDING_NAME_BYTES, "[PAD%zu]", i);
        v->tokens[i] = (ag_source_string){name, (size_t)n};
        v->types[i] = AG_TOKEN_UNUSED;
    }
}

static ag_status read_tokens(vocabulary *v, ag_error *err) {
    v->tokens = ag_calloc(v->n, sizeof *v->tokens);
    v->types = ag_calloc(v->n, sizeof *v->types);
    v->padding_names = ag_malloc(v->n * PADDING_NAME_BYTES);
    if (!v->tokens || !v->types || !v->padding_names) {
        return AG_FAIL(err, NOMEM, "%s: %zu tokens", v->path, v->n);
    }
    AG_TRY(set_model_tokens(v, err));
    AG_TRY(set_added_tokens(v, err));
    name_missing(v);
    return AG_OK;
}

/* ---- merges ---- */

/* Accepts "a b" and ["a", "b"]. */
static bool split_merge(const json_t *merge, ag_source_string *left, ag_source_string *right) {
    const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
    if (json_is_string(a) && json_is_string(b)) {
        *left = (ag_source_string){json_string_value(a), json_string_length(a)};
        *right = (ag_source_string){json_string_value(b), json_string_length(b)};
        return true;
    }
    const char *text = json_string_value(merge);
    const size_t n = json_string_length(merge);
    const char *space = text && n > 1 ? memchr(text + 1, ' ', n - 1) : NULL;
    if (!space) return false;
    *left = (ag_source_string){text, (size_t)(space - text)};
    *right = (ag_source_string){space + 1, n - (size_t)(space - text) - 1};
    return true;
}

/* Writes the two strings with `separator` between them to `buffer`. */
static ag_source_string join(const ag_source_string *a, const char *separator,
                             const ag_source_string *b, char *buffer) {
    const size_t n = strlen(separator);
    memcpy(buffer, a->text, a->n);
    memcpy(buffer + a->n, separator, n);
    memcpy(buffer + a->n + n, b->text, b->n);
    buffer[a->n + n + b->n] = '\0';
    return (ag_source_string){buffer, a->n + n + b->n};
}

/* Joins the two tokens of each merge. All results are in *block. */
static ag_status join_merges(const vocabulary *v, const char *separator, ag_source_string **out,
                             char **block, size_t *n, ag_error *err) {
    const json_t *list = json_object_get(v->model, "merges");
    size_t bytes = 1;
    ag_source_string a, b;
    *n = json_array_size(list);
    for (size_t i = 0; i < *n; i++) {
        if (!split_merge(json_array_get(list, i), &a, &b)) {
            return AG_FAIL(err, FORMAT, "%s: merge %zu: expected two tokens", v->path, i);
        }
        bytes += a.n + b.n + 2;
    }
    *out = ag_malloc((*n + 1) * sizeof **out);
    *block = ag_malloc(bytes);
    if (!*out || !*block) return AG_FAIL(err, NOMEM, "%s: merges", v->path);
    char *next = *block;
    for (size_t i = 0; i < *n; i++) {
        split_merge(json_array_get(list, i), &a, &b);
        (*out)[i] = join(&a, separator, &b, next);
        next += (*out)[i].n + 1;
    }
    return AG_OK;
}

static bool is_normal(const vocabulary *v, const json_t *ids, const char *token) {
    const json_t *id = json_object_get(ids, token);
    return json_is_integer(id) && v->types[json_integer_value(id)] == AG_TOKEN_NORMAL;
}

/* Finds two tokens that form `token` but have no merge, and writes them to `pair` as "a b". */
static bool find_unmerged(const vocabulary *v, const json_t *merged, const ag_source_string *token,
                          char *pair) {
    const json_t *ids = json_object_get(v->model, "vocab");
    for (size_t i = 1; i < token->n; i++) {
        memcpy(pair, token->text, i);
        pair[i] = '\0';
        if (!is_normal(v, ids, pair) || !is_normal(v, ids, token->text + i)) continue;
        pair[i] = ' ';
        memcpy(pair + i + 1, token->text + i, token->n - i + 1);
        if (!json_object_get(merged, pair)) return true;
    }
    return false;
}

/* A tokenizer with scores merges any two tokens that form a third. A vocabulary in which some such
 * pair has no merge cannot be written. */
static ag_status check_merges(const vocabulary *v, const json_t *merged, ag_error *err) {
    size_t longest = 0;
    for (size_t i = 0; i < v->n; i++) {
        longest = v->tokens[i].n > longest ? v->tokens[i].n : longest;
    }
    char *pair = ag_malloc(longest + 2);
    if (!pair) return AG_FAIL(err, NOMEM, "%s: text of a token", v->path);
    ag_status st = AG_OK;
    for (size_t i = 0; i < v->n && st == AG_OK; i++) {
        if (v->types[i] != AG_TOKEN_NORMAL || !find_unmerged(v, merged, &v->tokens[i], pair)) {
            continue;
        }
        st =
            AG_FAIL(err, UNSUPPORTED,
                    "%s: \"%.60s\" has no merge although its result is a token: a GGUF file cannot "
                    "describe that",
                    v->path, pair);
    }
    ag_free(pair);
    return st;
}

static ag_status check_all_merges(const vocabulary *v, ag_error *err) {
    ag_source_string *texts = NULL;
    char *block = NULL;
    size_t n = 0;
    json_t *merged = json_object();
    ag_status st = join_merges(v, " ", &texts, &block, &n, err);
    for (size_t i = 0; i < n && st == AG_OK; i++) {
        if (json_object_set_new(merged, texts[i].text, json_true()) == 0) continue;
        st = AG_FAIL(err, NOMEM, "%s: merges", v->path);
    }
    if (st == AG_OK) st = check_merges(v, merged, err);
    json_decref(merged);
    ag_free(texts);
    ag_free(block);
    return st;
}

/* Tokens are merged by the score of the result: an earlier merge gives a higher score. */
static ag_status score_tokens(vocabulary *v, const ag_source_string *merged, size_t n,
                              ag_error *err) {
    const json_t *ids = json_object_get(v->model, "vocab");
    v->scores = ag_calloc(v->n, sizeof *v->scores);
    if (!v->scores) return AG_FAIL(err, NOMEM, "%s: scores", v->path);
    for (size_t i = 0; i < v->n; i++) {
        v->scores[i] = v->types[i] == AG_TOKEN_NORMAL ? -(float)(n + 1) : 0;
    }
    for (size_t i = n; i-- > 0;) {
        const json_t *id = json_object_get(ids, merged[i].text);
        if (!json_is_integer(id)) {
            return AG_FAIL(err, FORMAT, "%s: merge %zu: its result is not a token", v->path, i);
        }
        const size_t index = (size_t)json_integer_value(id);
        if (v->types[index] == AG_TOKEN_NORMAL) v->scores[index] = -(float)i;
    }
    return AG_OK;
}

static ag_status put_merges(vocabulary *v, ag_gguf_writer *w, ag_error *err) {
    ag_source_string *texts = NULL;
    char *block = NULL;
    size_t n = 0;
    ag_status st = join_merges(v, v->is_byte_level ? " " : "", &texts, &block, &n, err);
    if (st == AG_OK && v->is_byte_level) ag_gguf_put_strings(w, PREFIX "merges", texts, n);
    if (st == AG_OK && !v->is_byte_level) st = check_all_merges(v, err);
    if (st == AG_OK && !v->is_byte_level) {
        st = score_tokens(v, texts, n, err);
        if (st == AG_OK) ag_gguf_put_array(w, PREFIX "scores", AG_GGUF_F32, v->scores, v->n);
    }
    ag_free(texts);
    ag_free(block);
    return st;
}

/* ---- pre-tokenizer ---- */

typedef struct pattern_list {
    const char *v[8];
    size_t n;
} pattern_list;

static bool add_pattern(void *user, const char *type, const json_t *c) {
    pattern_list *list = user;
    const char *pattern = NULL;
    if (!strcmp(type, "Split")) {
        const json_t *p = json_object_get(c, "pattern");
        const char *behavior = json_string_value(json_object_get(c, "behavior"));
        pattern = json_string_value(json_object_get(p, "Regex"));
        const bool isolates = behavior && !strcmp(behavior, "Isolated");
        if (!pattern || !isolates || json_is_true(json_object_get(c, "invert"))) return false;
    } else if (!strcmp(type, "Digits")) {
        if (!json_is_true(json_object_get(c, "individual_digits"))) return false;
        pattern = "\\p{N}";
    } else if (!strcmp(type, "ByteLevel")) {
        if (json_is_true(json_object_get(c, "add_prefix_space"))) return false;
        if (json_is_false(json_object_get(c, "use_regex"))) return true;
        pattern = AG_REGEX_GPT2;
    } else return false;
    if (list->n == sizeof list->v / sizeof list->v[0] - 1) return false;
    list->v[list->n++] = pattern;
    return true;
}

static ag_status find_pre_tokenizer(const vocabulary *v, const char *given_name,
                                    ag_source_string *out, ag_error *err) {
    pattern_list list = {.n = 0};
    unsigned flags =
        json_is_true(json_object_get(v->model, "ignore_merges")) ? AG_PRE_IGNORE_MERGES : 0;
    if (has_component(v, "normalizer", "normalizers", "NFC")) flags |= AG_PRE_NFC;
    const char *name = given_name;
    if (!name && for_each_component(json_object_get(v->root, "pre_tokenizer"), "pretokenizers",
                                    add_pattern, &list)) {
        name = ag_pre_name(list.v, flags);
    }
    if (name && !ag_pre_find(name, strlen(name))) {
        return AG_FAIL(err, INVALID, "unknown pre-tokenizer \"%.60s\"", name);
    }
    if (!name) {
        return AG_FAIL(err, UNSUPPORTED,
                       "%s: the pre_tokenizer has no known name; choose one with --pre NAME",
                       v->path);
    }
    *out = (ag_source_string){name, strlen(name)};
    return AG_OK;
}

/* ---- special tokens ---- */

/* Finds out which ids encoding adds to every text. */
static ag_status find_bos_and_eos(const ag_weight_source *source, int32_t bos, bool *add_bos,
                                  bool *add_eos, ag_error *err) {
    ag_tokenizer *t;
    ag_ids ids = {0};
    AG_TRY(ag_tokenizer_load(source->path, &t, err));
    ag_status st = ag_tokenizer_encode(t, "", 0, AG_ENCODE_BOS, &ids, err);
    *add_bos = ids.n > 0 && ids.data[0] == bos;
    *add_eos = ids.n > (*add_bos ? 1 : 0);
    ag_ids_free(&ids);
    ag_tokenizer_destroy(t);
    return st;
}

static void put_id(ag_gguf_writer *w, const char *key, int64_t id) {
    if (id >= 0) ag_gguf_put_u32(w, key, (uint32_t)id);
}

/* The first of several end ids ends a text and the last ends an answer. */
static void put_ids(ag_gguf_writer *w, const vocabulary *v, const ag_model_spec *s) {
    const json_t *unknown =
        json_object_get(json_object_get(v->model, "vocab"),
                        json_is_string(json_object_get(v->model, "unk_token"))
                            ? json_string_value(json_object_get(v->model, "unk_token"))
                            : "");
    put_id(w, PREFIX "bos_token_id", s->bos_id);
    if (s->n_eos) put_id(w, PREFIX "eos_token_id", s->eos_ids[0]);
    if (s->n_eos > 1) put_id(w, PREFIX "eot_token_id", s->eos_ids[s->n_eos - 1]);
    if (s->n_eos > 2) put_id(w, PREFIX "eom_token_id", s->eos_ids[1]);
    if (json_is_integer(unknown)) put_id(w, PREFIX "unknown_token_id", json_integer_value(unknown));
}

static bool escapes_prefix(const vocabulary *v) {
    const json_t *pre = json_object_get(v->root, "pre_tokenizer");
    const char *scheme = json_string_value(json_object_get(pre, "prepend_scheme"));
    if (has_component(v, "normalizer", "normalizers", "Prepend")) return true;
    if (!has_component(v, "pre_tokenizer", "pretokenizers", "Metaspace")) return false;
    return scheme ? strcmp(scheme, "never") != 0
                  : !json_is_false(json_object_get(pre, "add_prefix_space"));
}

static ag_source_string to_string(const char *s) { return (ag_source_string){s, strlen(s)}; }

static ag_status put_all(vocabulary *v, ag_out_model *m, const ag_model_spec *s, const char *pre,
                         ag_error *err) {
    ag_source_string name = {"default", 7};
    bool add_bos, add_eos;
    AG_TRY(find_kind(v, err));
    if (v->is_byte_level) AG_TRY(find_pre_tokenizer(v, pre, &name, err));
    AG_TRY(read_tokens(v, err));
    AG_TRY(find_bos_and_eos(m->source, s->bos_id, &add_bos, &add_eos, err));
    ag_gguf_writer *w = &m->writer;
    ag_gguf_put_string(w, PREFIX "model", to_string(v->is_byte_level ? "gpt2" : "llama"));
    ag_gguf_put_string(w, PREFIX "pre", name);
    ag_gguf_put_strings(w, PREFIX "tokens", v->tokens, v->n);
    ag_gguf_put_array(w, PREFIX "token_type", AG_GGUF_I32, v->types, v->n);
    AG_TRY(put_merges(v, w, err));
    put_ids(w, v, s);
    ag_gguf_put_bool(w, PREFIX "add_bos_token", add_bos);
    ag_gguf_put_bool(w, PREFIX "add_eos_token", add_eos);
    if (!v->is_byte_level) ag_gguf_put_bool(w, PREFIX "add_space_prefix", escapes_prefix(v));
    return AG_OK;
}

static ag_status put_template(ag_out_model *m, ag_error *err) {
    ag_source_text text;
    AG_TRY(ag_source_read_text(m->source, AG_SOURCE_CHAT_TEMPLATE, &text, err));
    if (text.text) {
        ag_gguf_put_string(&m->writer, "tokenizer.chat_template",
                           (ag_source_string){text.text, text.n});
    }
    ag_source_text_free(&text);
    return AG_OK;
}

ag_status ag_put_vocabulary(ag_out_model *m, const ag_model_spec *s, const char *pre,
                            ag_error *err) {
    ag_source_text text;
    json_t *root = NULL;
    AG_TRY(ag_source_read_text(m->source, AG_SOURCE_TOKENIZER, &text, err));
    if (!text.text) {
        ag_gguf_put_string(&m->writer, PREFIX "model", to_string("none"));
        return put_template(m, err);
    }
    ag_status st = ag_json_parse(text.text, text.n, text.name, &root, err);
    vocabulary v = {.root = root, .path = text.name, .n = s->vocab_size};
    v.model = json_object_get(root, "model");
    if (st == AG_OK) st = put_all(&v, m, s, pre, err);
    if (st == AG_OK) st = put_template(m, err);
    ag_free(v.tokens);
    ag_free(v.types);
    ag_free(v.scores);
    ag_free(v.padding_names);
    json_decref(root);
    ag_source_text_free(&text);
    return st;
}
