/* SPDX-License-Identifier: Apache-2.0 */
#include "text/pretokenizer.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "text/byte_level.h"
#include "text/json_get.h"
#include "text/utf8.h"

#include <string.h>

/* Components are taken apart into these: ByteLevel is PREFIX, SPLIT, BYTES; Metaspace is SPACES,
 * PREFIX, SPLIT. */
enum kind {
    SPLIT,  /* at the splitter's matches */
    PREFIX, /* puts str before a piece that does not begin with it */
    SPACES, /* ' ' becomes str */
    BYTES,  /* each byte becomes its character of the byte-level alphabet */
};

struct ag_pretokenizer_step {
    enum kind kind;
    ag_splitter splitter;
    char str[4];
    size_t len;
    bool first_only; /* PREFIX: only the piece at the very start */
};
typedef struct ag_pretokenizer_step step;

enum { MAX_NESTING = 16, MAX_STEPS = 64 };

/* The split of GPT-2, which ByteLevel means by use_regex. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
/* Rust's regex crate: a run of word characters, or one of what is neither word nor space. */
static const char whitespace_pattern[] = "[" AG_REGEX_WORD "]+|[^" AG_REGEX_WORD "\\s]+";

static ag_status append_step(ag_pretokenizer *pt, step s, ag_error *err) {
    void *p = pt->steps;
    ag_status st = pt->n < MAX_STEPS
                       ? ag_array_grow(&p, &pt->cap, pt->n + 1, sizeof *pt->steps, err)
                       : AG_FAIL(err, FORMAT, "pre_tokenizer: more than %d steps", MAX_STEPS);
    pt->steps = p;
    if (st == AG_OK) pt->steps[pt->n++] = s;
    else ag_pattern_destroy(s.splitter.pattern);
    return st;
}

static ag_status add_cut(ag_pretokenizer *pt, ag_pattern *pattern, ag_split_behavior behavior,
                         bool invert, ag_error *err) {
    return append_step(
        pt, (step){.kind = SPLIT, .splitter = {pattern, AG_CLASS_NONE, behavior, invert}}, err);
}

static ag_status add_regex(ag_pretokenizer *pt, const char *regex, size_t n, const char *place,
                           ag_split_behavior behavior, bool invert, ag_error *err) {
    ag_pattern *pattern;
    AG_TRY(ag_pattern_regex(regex, n, place, &pattern, err));
    return add_cut(pt, pattern, behavior, invert, err);
}

static ag_status add_class(ag_pretokenizer *pt, ag_char_class c, ag_split_behavior behavior,
                           ag_error *err) {
    return append_step(pt, (step){.kind = SPLIT, .splitter = {NULL, c, behavior, false}}, err);
}

static ag_status parse_behavior(const json_t *v, const char *place, ag_split_behavior *out,
                                ag_error *err) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    json_t *name;
    AG_TRY(ag_json_required(v, place, "behavior", JSON_STRING, &name, err));
    for (int i = 0; i < 5; i++) {
        if (strcmp(json_string_value(name), names[i]) == 0) {
            *out = (ag_split_behavior)i;
            return AG_OK;
        }
    }
    return AG_FAIL(err, UNSUPPORTED, "%s.behavior: \"%.60s\" is not supported", place,
                   json_string_value(name));
}

static ag_status parse_split(ag_pretokenizer *pt, const json_t *v, const char *place,
                             ag_error *err) {
    ag_split_behavior behavior = AG_SPLIT_ISOLATED;
    ag_pattern *pattern;
    bool invert;
    char where[AG_JSON_PLACE];
    snprintf(where, sizeof where, "%.140s.pattern", place);
    AG_TRY(parse_behavior(v, place, &behavior, err));
    AG_TRY(ag_json_bool(v, place, "invert", false, &invert, err));
    AG_TRY(ag_pattern_parse(json_object_get(v, "pattern"), where, &pattern, err));
    return add_cut(pt, pattern, behavior, invert, err);
}

static ag_status parse_byte_level(ag_pretokenizer *pt, const json_t *v, const char *place,
                                  ag_error *err) {
    bool prefix, use_regex;
    AG_TRY(ag_json_bool(v, place, "add_prefix_space", true, &prefix, err));
    AG_TRY(ag_json_bool(v, place, "use_regex", true, &use_regex, err));
    if (prefix) AG_TRY(append_step(pt, (step){.kind = PREFIX, .str = " ", .len = 1}, err));
    if (use_regex) {
        AG_TRY(add_regex(pt, gpt2_pattern, sizeof gpt2_pattern - 1, place, AG_SPLIT_ISOLATED, false,
                         err));
    }
    return append_step(pt, (step){.kind = BYTES}, err);
}

/* The newer key prepend_scheme wins; files from before it have only add_prefix_space. */
static ag_status parse_scheme(const json_t *v, const char *place, const char **scheme,
                              ag_error *err) {
    bool prefix;
    json_t *name;
    AG_TRY(ag_json_bool(v, place, "add_prefix_space", true, &prefix, err));
    AG_TRY(ag_json_optional(v, place, "prepend_scheme", JSON_STRING, &name, err));
    *scheme = name ? json_string_value(name) : prefix ? "always" : "never";
    if (strcmp(*scheme, "always") && strcmp(*scheme, "first") && strcmp(*scheme, "never")) {
        return AG_FAIL(err, UNSUPPORTED, "%s.prepend_scheme: \"%.60s\" is not supported", place,
                       *scheme);
    }
    return AG_OK;
}

static ag_status parse_metaspace(ag_pretokenizer *pt, const json_t *v, const char *place,
                                 ag_error *err) {
    json_t *replacement;
    const char *scheme;
    bool split;
    AG_TRY(ag_json_required(v, place, "replacement", JSON_STRING, &replacement, err));
    AG_TRY(parse_scheme(v, place, &scheme, err));
    AG_TRY(ag_json_bool(v, place, "split", true, &split, err));
    const char *s = json_string_value(replacement);
    size_t n = json_string_length(replacement);
    if (n == 0 || n != ag_utf8_len(s[0])) {
        return AG_FAIL(err, FORMAT, "%s.replacement is not one character", place);
    }
    step spaces = {.kind = SPACES, .len = n};
    memcpy(spaces.str, s, n);
    AG_TRY(append_step(pt, spaces, err));
    if (strcmp(scheme, "never") != 0) {
        step prefix = spaces;
        prefix.kind = PREFIX;
        prefix.first_only = strcmp(scheme, "first") == 0;
        AG_TRY(append_step(pt, prefix, err));
    }
    if (!split) return AG_OK;
    ag_pattern *pattern;
    AG_TRY(ag_pattern_parse(replacement, place, &pattern, err));
    return add_cut(pt, pattern, AG_SPLIT_MERGED_WITH_NEXT, false, err);
}

static ag_status parse_component(ag_pretokenizer *pt, const json_t *v, const char *place,
                                 const char *type, ag_error *err) {
    if (strcmp(type, "Split") == 0) return parse_split(pt, v, place, err);
    if (strcmp(type, "ByteLevel") == 0) return parse_byte_level(pt, v, place, err);
    if (strcmp(type, "Metaspace") == 0) return parse_metaspace(pt, v, place, err);
    if (strcmp(type, "Digits") == 0) {
        bool individual;
        AG_TRY(ag_json_bool(v, place, "individual_digits", false, &individual, err));
        return add_class(pt, AG_CLASS_NUMERIC, individual ? AG_SPLIT_ISOLATED : AG_SPLIT_CONTIGUOUS,
                         err);
    }
    if (strcmp(type, "WhitespaceSplit") == 0) {
        return add_class(pt, AG_CLASS_WHITE_SPACE, AG_SPLIT_REMOVED, err);
    }
    if (strcmp(type, "Whitespace") == 0) {
        return add_regex(pt, whitespace_pattern, sizeof whitespace_pattern - 1, place,
                         AG_SPLIT_REMOVED, true, err);
    }
    return ag_json_unsupported(place, type, err);
}

static ag_status add_pretokenizer(ag_pretokenizer *pt, const json_t *v, const char *place,
                                  int depth, ag_error *err) {
    const char *type;
    AG_TRY(ag_json_component(v, place, &type, err));
    if (strcmp(type, "Sequence") != 0) return parse_component(pt, v, place, type, err);
    if (depth == MAX_NESTING) return AG_FAIL(err, FORMAT, "%s: nested too deeply", place);
    json_t *list, *item;
    size_t i;
    AG_TRY(ag_json_required(v, place, "pretokenizers", JSON_ARRAY, &list, err));
    json_array_foreach(list, i, item) {
        char inner[AG_JSON_PLACE];
        snprintf(inner, sizeof inner, "%.100s.pretokenizers[%zu]", place, i);
        AG_TRY(add_pretokenizer(pt, item, inner, depth + 1, err));
    }
    return AG_OK;
}

ag_status ag_pretokenizer_init(ag_pretokenizer *pt, const json_t *v, ag_error *err) {
    *pt = (ag_pretokenizer){0};
    if (!v || json_is_null(v)) return AG_OK;
    return add_pretokenizer(pt, v, "pre_tokenizer", 0, err);
}

void ag_pretokenizer_free(ag_pretokenizer *pt) {
    for (size_t i = 0; i < pt->n; i++) ag_pattern_destroy(pt->steps[i].splitter.pattern);
    ag_free(pt->steps);
    *pt = (ag_pretokenizer){0};
}

void ag_pieces_free(ag_pieces *p) {
    ag_free(p->list.data);
    ag_free(p->list_spare.data);
    ag_text_free(&p->own);
    ag_text_free(&p->own_spare);
    *p = (ag_pieces){0};
}

static ag_status rewrite_spaces(const step *s, const char *text, size_t len, ag_text *out,
                                ag_error *err) {
    size_t done = 0;
    for (const char *hit; (hit = memchr(text + done, ' ', len - done)) != NULL;) {
        AG_TRY(ag_text_append(out, text + done, (size_t)(hit - text) - done, err));
        AG_TRY(ag_text_append(out, s->str, s->len, err));
        done = (size_t)(hit - text) + 1;
        if (done == len) break;
    }
    return ag_text_append(out, text + done, len - done, err);
}

static ag_status rewrite_piece(const step *s, const char *text, size_t len, bool at_start,
                               ag_text *out, ag_error *err) {
    if (s->kind == SPACES) return rewrite_spaces(s, text, len, out, err);
    if (s->kind == BYTES) {
        AG_TRY(ag_text_reserve(out, 2 * len, err));
        out->len += ag_byte_level_write(out->data + out->len, text, len);
        return AG_OK;
    }
    bool has = len >= s->len && memcmp(text, s->str, s->len) == 0;
    if (!has && (at_start || !s->first_only)) AG_TRY(ag_text_append(out, s->str, s->len, err));
    return ag_text_append(out, text, len, err);
}

/* Writes all pieces anew, one behind the other. */
static ag_status rewrite_pieces(const step *s, ag_pieces *p, size_t limit, ag_error *err) {
    ag_text *out = &p->own_spare;
    out->len = 0;
    for (size_t i = 0; i < p->list.n; i++) {
        ag_piece *piece = &p->list.data[i];
        size_t start = out->len;
        AG_TRY(
            rewrite_piece(s, p->text + piece->start, piece->len, i == 0 && p->at_start, out, err));
        AG_TRY(ag_growth_check(out->len, limit, "pre_tokenizer", err));
        *piece = (ag_piece){start, out->len - start};
    }
    ag_text swap = p->own;
    p->own = *out;
    *out = swap;
    p->text = p->own.data;
    return AG_OK;
}

ag_status ag_pretokenize(const ag_pretokenizer *pt, const char *text, size_t len, bool at_start,
                         ag_pieces *p, ag_error *err) {
    void *list = p->list.data;
    ag_status st = ag_array_grow(&list, &p->list.cap, 1, sizeof *p->list.data, err);
    p->list.data = list;
    if (st != AG_OK) return st;
    p->list.data[0] = (ag_piece){0, len};
    p->list.n = len > 0;
    p->text = text;
    p->at_start = at_start;
    size_t limit = ag_growth_limit(len);
    for (size_t i = 0; i < pt->n && p->list.n; i++) {
        const step *s = &pt->steps[i];
        AG_TRY(s->kind == SPLIT ? ag_split_pieces(&s->splitter, p, err)
                                : rewrite_pieces(s, p, limit, err));
    }
    return AG_OK;
}
