/* SPDX-License-Identifier: Apache-2.0 */
/* Chat formats of template files for tests, and tokenizers that have their delimiters as tokens. */
#ifndef AG_TESTS_SUPPORT_CHAT_FORMATS_H
#define AG_TESTS_SUPPORT_CHAT_FORMATS_H

#include "chat/conversation.h"
#include "core/alloc.h"
#include "formats/file.h"
#include "text/byte_level.h"
#include "text/bytes.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DATA AG_SOURCE_DIR "/tests/data/chat/"
#define SHARED AG_SHARED_DIR "/golden/chat/templates/"

static inline char *read_template(const char *path, size_t *n) {
    char *text = NULL;
    ag_error err = {0};
    if (ag_file_read_all(path, 1 << 24, &text, n, &err) != AG_OK) fail_msg("%s", err.msg);
    return text;
}

static inline ag_chat_format *format_of(const char *path, const ag_tokenizer *t) {
    size_t n;
    char *jinja = read_template(path, &n);
    ag_chat_format *f;
    ag_error err = {0};
    if (ag_chat_format_create(jinja, n, "<BOS>", "<EOS>", t, &f, &err) != AG_OK) {
        fail_msg("%s: %s", path, err.msg);
    }
    ag_free(jinja);
    return f;
}

/* Checks each template file of a directory. Returns how many there are, 0 without a directory. */
static inline size_t check_templates_in(const char *dir,
                                        void (*check)(const char *path, const char *name)) {
    DIR *d = opendir(dir);
    size_t n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[1024];
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".jinja") != 0) continue;
        snprintf(path, sizeof path, "%s%s", dir, e->d_name);
        check(path, e->d_name);
        n++;
    }
    if (d) closedir(d);
    return n;
}

#define TOOLS "[{\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}]"
#define CALL(id, args) \
    "{\"id\": \"" id   \
    "\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": " args "}}"

/* Copies JSON that is written with ' in place of quotation marks. */
static inline void quoted(const char *s, char *out, size_t size) {
    size_t n = 0;
    for (; *s && n + 1 < size; s++) out[n++] = *s == '\'' ? '"' : *s;
    out[n] = '\0';
}

static inline ag_chat *chat_of(const ag_chat_format *f, const char *messages, const char *offered) {
    ag_chat *c;
    char json[4096];
    ag_error err = {0};
    quoted(messages, json, sizeof json);
    assert_int_equal(ag_chat_create(f, &c, &err), AG_OK);
    if (ag_chat_set_messages(c, json, strlen(json), &err) != AG_OK)
        fail_msg("%s\n%s", err.msg, json);
    if (offered) assert_int_equal(ag_chat_set_tools(c, offered, strlen(offered), &err), AG_OK);
    return c;
}

/* ---- tokenizers ---- */

enum { MAX_SPELLINGS = 400, FIRST_ADDED_ID = 1000 };

typedef struct spelling_list {
    char *s[MAX_SPELLINGS];
    size_t n;
} spelling_list;

static inline void add_spelling(spelling_list *l, const char *s, size_t n) {
    for (size_t i = 0; i < l->n; i++) {
        if (strlen(l->s[i]) == n && !memcmp(l->s[i], s, n)) return;
    }
    if (l->n < MAX_SPELLINGS) l->s[l->n++] = ag_strndup(s, n);
}

/* Adds all text between < and >, or [ and ], that can be a token. */
static inline void collect_spellings(spelling_list *l, const char *s) {
    for (; *s; s++) {
        const char close = *s == '<' ? '>' : *s == '[' ? ']' : '\0';
        if (!close) continue;
        size_t n = 1;
        while (n < 48 && s[n] && s[n] != close && !strchr(" \n'\"\\<[{}", s[n])) n++;
        if (n > 2 && s[n] == close) add_spelling(l, s, n + 1);
    }
}

static inline void free_spellings(spelling_list *l) {
    for (size_t i = 0; i < l->n; i++) ag_free(l->s[i]);
    l->n = 0;
}

/* Returns a tokenizer with a token for every byte and one for every spelling. All spellings are
 * special but every third one in the template's text. */
static inline ag_tokenizer *tokenizer_with(const spelling_list *l, const char *jinja) {
    json_t *vocab = json_object(), *added = json_array();
    for (unsigned b = 0; b < 256; b++) {
        char key[8];
        const uint32_t cp = ag_byte_level_char((unsigned char)b);
        const int n = cp < 0x80 ? 1 : 2;
        key[0] = n == 1 ? (char)cp : (char)(0xc0 | (cp >> 6));
        key[1] = n == 1 ? '\0' : (char)(0x80 | (cp & 63));
        key[2] = '\0';
        json_object_set_new(vocab, key, json_integer((json_int_t)b));
    }
    for (size_t i = 0; i < l->n; i++) {
        json_array_append_new(
            added,
            json_pack("{s:i, s:s, s:b, s:b}", "id", FIRST_ADDED_ID + (int)i, "content", l->s[i],
                      "special", !jinja || !strstr(jinja, l->s[i]) || i % 3 != 0, "normalized", 0));
    }
    json_t *root =
        json_pack("{s:o, s:{s:s, s:b}, s:{s:s}, s:{s:s, s:o, s:[]}}", "added_tokens", added,
                  "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "decoder", "type",
                  "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges");
    char *text = json_dumps(root, 0);
    ag_tokenizer *t;
    ag_error err = {0};
    if (ag_tokenizer_parse(text, strlen(text), "built in", &t, &err) != AG_OK)
        fail_msg("%s", err.msg);
    free(text);
    json_decref(root);
    return t;
}

static inline ag_tokenizer *small_tokenizer(void) {
    static const char *const spellings[] = {"<BOS>",   "<|open|>", "<|close|>",
                                            "<think>", "</think>", "<call>",
                                            "</call>", "answer",   "\n\n"};
    spelling_list l = {0};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        add_spelling(&l, spellings[i], strlen(spellings[i]));
    }
    ag_tokenizer *t = tokenizer_with(&l, NULL);
    free_spellings(&l);
    return t;
}

#endif
