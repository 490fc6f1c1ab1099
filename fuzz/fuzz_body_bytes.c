/* SPDX-License-Identifier: Apache-2.0 */
/* Request bodies that need much memory. The first byte selects a protocol, the rest is a body: it
 * is parsed, converted to a request and rendered on an account. The score is the bytes counted for
 * each byte of the body. libFuzzer keeps an input with a higher score as it keeps one that reaches
 * new code. At the end nothing may be left on the account. AG_FUZZ_SCORES=1 prints the score of
 * each input, so `fuzz_replay_body_bytes DIR` lists those of a corpus. */
#include "fuzz.h"

#include "../programs/antigravity/serve/anthropic/anthropic.h"
#include "../programs/antigravity/serve/openai/openai.h"
#include "../programs/antigravity/serve/openai/responses.h"
#include "../programs/antigravity/serve/threads/account.h"
#include "../programs/antigravity/support/json_out.h"
#include "../programs/antigravity/terminal/output.h"

#include <antigravity/chat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PROTOCOLS = 3, LIMIT = 1 << 30, MAX_SCORE = 4096, STEPS = 4, SMALLEST = 64 };

static const char template_text[] =
    "{%- if tools -%}{{ tools | tojson }}{%- endif -%}{%- for m in messages -%}{{ m.role }}: "
    "{{ m.content }}{%- for c in m.tool_calls or [] -%}{{ c.function.arguments | tojson }}"
    "{%- endfor -%}\n{%- endfor -%}";

#ifdef __linux__
__attribute__((section("__libfuzzer_extra_counters"), used))
#endif
static uint8_t reached[MAX_SCORE];

static ag_chat_format *format;
static account_pool pool = {.limit = LIMIT};
static size_t peak, least; /* least: for an empty body */

/* json_out.c calls these functions of the program. They print nothing here. */
int complain_no_memory(void) { return 1; }
bool output_write(const char *text, size_t len) { return text && len; }

static void must(bool ok) {
    if (!ok) abort();
}

static void look(account *a) {
    const size_t bytes = account_bytes(a), taken = atomic_load(&pool.taken);
    const size_t coarse = taken > 2 * ACCOUNT_STEP ? taken - 2 * ACCOUNT_STEP : 0;
    if (bytes > peak) peak = bytes;
    if (coarse > peak) peak = coarse;
}

static bool read_request(int protocol, const json_t *body, serve_request *r) {
    serve_error e;
    if (protocol == 0) return openai_chat_parse(body, r, &e);
    if (protocol == 1) return anthropic_parse(body, r, &e);
    r->messages = json_array();
    return r->messages && responses_read_input(json_object_get(body, "input"), r, &e);
}

static void set_text(ag_status (*set)(ag_chat *, const char *, size_t, ag_error *), ag_chat *chat,
                     const json_t *value, account *a) {
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    look(a);
    if (text) (void)set(chat, text, strlen(text), NULL);
    look(a);
    account_free(text);
}

static void render(const serve_request *r, account *a) {
    ag_chat *chat = NULL;
    ag_text text = {0};
    if (!json_array_size(r->messages) || ag_chat_create(format, &chat, NULL) != AG_OK) return;
    set_text(ag_chat_set_messages, chat, r->messages, a);
    set_text(ag_chat_set_tools, chat, r->tools, a);
    (void)ag_chat_render(chat, 0, NULL, &text, NULL);
    look(a);
    ag_text_free(&text);
    ag_chat_destroy(chat);
}

/* Returns the maximum number of bytes that a body needs. */
static size_t measure(int protocol, const uint8_t *data, size_t n) {
    account *a = account_create(&pool);
    must(a);
    peak = 0;
    account *const before = account_enter(a);
    char *text = account_malloc(n + 1);
    must(text);
    memcpy(text, data, n);
    serve_request r;
    serve_request_init(&r);
    json_t *body = json_loadb(text, n, 0, NULL);
    look(a);
    if (json_is_object(body) && read_request(protocol, body, &r)) {
        look(a);
        render(&r, a);
    }
    serve_request_free(&r);
    json_decref(body);
    account_free(text);
    must(account_bytes(a) == 0);
    account_enter(before);
    account_release(a);
    must(atomic_load(&pool.taken) == 0);
    return peak;
}

static void set_up(void) {
    static const char empty[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}";
    account_install();
    must(ag_chat_format_create(template_text, sizeof template_text - 1, "", "", NULL, &format,
                               NULL) == AG_OK);
    least = measure(0, (const uint8_t *)empty, sizeof empty - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!format) set_up();
    if (n < 1) return 0;
    const size_t bytes = measure(data[0] % N_PROTOCOLS, data + 1, n - 1);
    const size_t more = bytes > least ? bytes - least : 0;
    const size_t score = STEPS * more / (n < SMALLEST ? SMALLEST : n);
    reached[score < MAX_SCORE ? score : MAX_SCORE - 1] = 1;
    if (getenv("AG_FUZZ_SCORES"))
        printf("%zu bytes of body: %zu bytes, %.2f a byte\n", n - 1, bytes,
               (double)score / (double)STEPS);
    return 0;
}
