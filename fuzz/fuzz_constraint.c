/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes constraints. The first byte of the input is the kind, the rest is the text; limits keep an
 * input short. A constraint that compiles is walked: an allowed token must be accepted, another
 * must be rejected, and a clone must have the state of its original. */
#include "constrain/constraint.h"
#include "fuzz.h"

#include <antigravity/antigravity.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 300, EOS = 299, STEPS = 40 };

/* Makes tokens of all bytes by byte fallback, and a few longer ones. */
static ag_tokenizer *make_tokenizer(void) {
    static const char *const words[] = {"{\"",  "\": ",  "\",\"", "ab",  "a\"", "},", "1.",   "00",
                                        "true", "\\u00", "[[",    "]]}", ": {", ", ", "\n  ", "-1"};
    char json[16384], *p = json;
    p += sprintf(p, "{\"decoder\":{\"type\":\"ByteFallback\"},\"model\":{\"type\":\"BPE\","
                    "\"byte_fallback\":true,\"merges\":[],\"vocab\":{");
    for (int b = 0; b < 256; b++) p += sprintf(p, "%s\"<0x%02X>\":%d", b ? "," : "", b, b);
    for (int i = 0; i < 16; i++) {
        p += sprintf(p, ",\"");
        for (const char *c = words[i]; *c; c++) {
            if (*c == '"' || *c == '\\') *p++ = '\\';
            if (*c == '\n') p += sprintf(p, "\\n");
            else *p++ = *c;
        }
        p += sprintf(p, "\":%d", 256 + i);
    }
    sprintf(p, "}},\"added_tokens\":[{\"id\":%d,\"content\":\"<end>\",\"special\":true}]}", EOS);
    ag_tokenizer *t;
    ag_error err;
    if (ag_tokenizer_parse(json, strlen(json), "fuzz", &t, &err) != AG_OK) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    return t;
}

static ag_constraint_vocab *vocabulary(void) {
    static ag_constraint_vocab *v;
    if (v) return v;
    ag_tokenizer *t = make_tokenizer();
    const int32_t eos = EOS;
    if (ag_constraint_vocab_create(t, VOCAB, &eos, 1, &v, NULL) != AG_OK) abort();
    ag_tokenizer_destroy(t);
    return v;
}

/* mask NULL: free text. */
static bool allows(const uint32_t *mask, int32_t id) {
    return !mask || mask[id / 32] >> (id % 32) & 1;
}

/* Returns false at a limit, at the end of the text, and at a token that begins a constrained part
 * wrongly. */
static bool step(ag_constraint *c, uint32_t *seed) {
    const uint32_t *mask;
    ag_error err;
    const ag_status st = ag_constraint_mask(c, &mask, &err);
    if (st == AG_LIMIT) return false;
    if (st != AG_OK) abort(); /* all bytes are tokens, so a live text can continue */
    int32_t ids[VOCAB], n = 0, refused = -1;
    for (int32_t id = 0; id < VOCAB; id++) {
        if (allows(mask, id)) ids[n++] = id;
        else if (refused < 0 || (*seed >> 7) % 5 == 0) refused = id;
    }
    if (refused >= 0) {
        const ag_status no = ag_constraint_accept(c, refused, &err);
        if (no != AG_INVALID && no != AG_LIMIT) abort();
    }
    *seed = *seed * 1664525u + 1013904223u;
    const int32_t id = ids[(*seed >> 8) % (uint32_t)n];
    const bool was_free = ag_constraint_is_free(c);
    const ag_status yes = ag_constraint_accept(c, id, &err);
    if (yes != AG_OK && yes != AG_LIMIT && !(was_free && yes == AG_INVALID)) abort();
    return yes == AG_OK && !ag_constraint_has_ended(c);
}

static void walk(ag_constraint *c, uint32_t seed) {
    for (int i = 0; i < STEPS && step(c, &seed); i++) {
        if (i != STEPS / 2) continue;
        ag_constraint *copy;
        ag_ids ids = {0};
        uint32_t other = seed + 1;
        if (ag_constraint_clone(c, &copy, NULL) != AG_OK) abort();
        if (ag_constraint_may_end(copy) != ag_constraint_may_end(c)) abort();
        const ag_status st = ag_constraint_forced(copy, 8, &ids, NULL);
        for (size_t k = 0; st == AG_OK && k < ids.n; k++) {
            const ag_status taken = ag_constraint_accept(copy, ids.data[k], NULL);
            if (taken != AG_OK && taken != AG_LIMIT) abort();
        }
        step(copy, &other);
        ag_ids_free(&ids);
        ag_constraint_destroy(copy);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!n) return 0;
    static const ag_constraint_kind kinds[] = {AG_CONSTRAINT_JSON_SCHEMA, AG_CONSTRAINT_REGEX,
                                               AG_CONSTRAINT_GRAMMAR};
    ag_constraint_params p = ag_constraint_defaults(kinds[data[0] % 3]);
    char *text = malloc(n);
    if (!text) return 0;
    memcpy(text, data + 1, n - 1);
    p.text = text;
    p.len = n - 1;
    p.spacing = (ag_json_spacing)(data[0] / 3 % 3);
    p.order = data[0] / 9 % 2 ? AG_JSON_ANY_ORDER : AG_JSON_DECLARED_ORDER;
    p.max_instructions = 1 << 13;
    p.max_states = 1 << 10;
    p.max_work = 1 << 17;
    p.max_readings = 100;
    p.max_mask_bytes = 1 << 16;
    p.max_state_bytes = 1 << 20;
    ag_constraint *c;
    ag_error err;
    const ag_status st = ag_constraint_create(vocabulary(), &p, &c, &err);
    free(text);
    if ((st == AG_OK) != (c != NULL)) abort();
    if (c) walk(c, (uint32_t)n * 2654435761u);
    ag_constraint_destroy(c);
    return 0;
}
