/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/json.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "core/interrupt.h"
#include "formats/file.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_VALUES = 1 << 22 };

/* Limits nesting and the number of values, and so the memory of the parser. Every value but the
 * first follows a '[', '{' or ',' outside strings. */
static ag_status check_bounds(const char *text, size_t n, const char *where, ag_error *err) {
    size_t depth = 0, values = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') i++;
            else if (c == '"') in_string = false;
            continue;
        }
        if (c == '"') in_string = true;
        if (c == ']' || c == '}') depth -= depth > 0;
        if (c == '[' || c == '{') depth++;
        if (c == '[' || c == '{' || c == ',') values++;
        if (depth > MAX_DEPTH) {
            return AG_FAIL(err, FORMAT, "%s, byte %zu: JSON nested deeper than %d levels", where, i,
                           MAX_DEPTH);
        }
        if (values > MAX_VALUES) {
            return AG_FAIL(err, LIMIT, "%s, byte %zu: more than %d JSON values", where, i,
                           MAX_VALUES);
        }
    }
    return AG_OK;
}

/* Returns whether the parser ran out of memory. It reports this by its code or by an empty text.
 * Inside a token it reports a syntax error, which looks like a malformed file. */
static bool is_out_of_memory(const json_error_t *e) {
    return e->text[0] == '\0' || json_error_code(e) == json_error_out_of_memory;
}

/* Position of the parser in a text. */
typedef struct reader {
    const char *at, *end;
    size_t n_pieces;
    bool is_interrupted;
} reader;

/* Copies the parser's next piece of at most n bytes. Returns its length; 0 ends the text. */
static size_t read_piece(void *to, size_t n, void *user) {
    enum { PIECES = 64 }; /* pieces of 1 KiB between two checks */
    reader *r = user;
    const size_t remaining = (size_t)(r->end - r->at), k = remaining < n ? remaining : n;
    if (++r->n_pieces % PIECES == 0) r->is_interrupted = ag_interrupted();
    if (r->is_interrupted) return (size_t)-1;
    memcpy(to, r->at, k);
    r->at += k;
    return k;
}

ag_status ag_json_parse_value(const char *text, size_t n, const char *where, json_t **out,
                              ag_error *err) {
    *out = NULL;
    AG_TRY(check_bounds(text, n, where, err));
    json_error_t e = {.text = ""};
    reader r = {.at = text, .end = text + n};
    *out = json_load_callback(read_piece, &r,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
    if (*out) return AG_OK;
    if (r.is_interrupted) return AG_FAIL(err, CANCELLED, "parsing %s: interrupted", where);
    if (is_out_of_memory(&e)) return AG_FAIL(err, NOMEM, "%s: JSON values", where);
    return AG_FAIL(err, FORMAT, "%s, byte %d: %s", where, e.position, e.text);
}

ag_status ag_json_parse(const char *text, size_t n, const char *where, json_t **out,
                        ag_error *err) {
    json_t *root;
    *out = NULL;
    AG_TRY(ag_json_parse_value(text, n, where, &root, err));
    if (!json_is_object(root)) {
        json_decref(root);
        return AG_FAIL(err, FORMAT, "%s: the top level must be a JSON object", where);
    }
    *out = root;
    return AG_OK;
}

ag_status ag_json_load(const char *path, size_t max_bytes, json_t **out, ag_error *err) {
    *out = NULL;
    char *text = NULL;
    size_t n = 0;
    AG_TRY(ag_file_read_all(path, max_bytes, &text, &n, err));
    ag_status st = ag_json_parse(text, n, path, out, err);
    ag_free(text);
    return st;
}
