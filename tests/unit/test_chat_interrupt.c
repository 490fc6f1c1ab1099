/* SPDX-License-Identifier: Apache-2.0 */
/* Reading, normalising, rendering and tokenising a large conversation notices within 50 ms that it
 * must end. A server ends it at an allocation, which fails, or at a check of the interrupt
 * function: the test measures the processor time between two of them. jansson and pcre2 work on a
 * text of 32 MiB without either: on a slow or loaded machine the bound is reference_s(). */
#include "support/chat_formats.h"
#include "support/sanitized.h"

#include <antigravity/interrupt.h>
#include <time.h>

#if SANITIZED
static const double max_s = 0.2;
#elif defined(__OPTIMIZE__)
static const double max_s = 0.05;
#else
static const double max_s = 0.5;
#endif

/* ---- the points where work can end ---- */

static struct { double last, longest; } checks;

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool check(void *user) {
    const double now = cpu_seconds();
    (void)user;
    if (now - checks.last > checks.longest) checks.longest = now - checks.last;
    checks.last = now;
    return false;
}

/* A clock at every allocation would double the time. */
static void check_allocation(size_t bytes) {
    static unsigned n;
    if (bytes > 4096 || ++n % 16 == 0) check(NULL);
}

static void *alloc(void *user, size_t n) {
    (void)user;
    check_allocation(n);
    return malloc(n);
}

static void *resize(void *user, void *p, size_t n) {
    (void)user;
    check_allocation(n);
    return realloc(p, n);
}

static void release(void *user, void *p) {
    (void)user;
    free(p);
}

static void *json_alloc(size_t n) { return alloc(NULL, n); }

static const ag_allocator allocator = {.alloc = alloc, .resize = resize, .release = release};

static ag_tokenizer *tokenizer;
static ag_chat_format *format;

static int open_format(void **state) {
    (void)state;
    ag_set_allocator(&allocator);
    json_set_alloc_funcs(json_alloc, free);
    assert_int_equal(ag_tokenizer_load(AG_SOURCE_DIR "/models/demo", &tokenizer, NULL), AG_OK);
    format = format_of(DATA "parts.jinja", tokenizer);
    return 0;
}

static int close_format(void **state) {
    (void)state;
    ag_chat_format_destroy(format);
    ag_tokenizer_destroy(tokenizer);
    return 0;
}

/* ---- bodies ---- */

typedef struct form {
    const char *name, *before, *item, *between, *after; /* # in the item is its number */
    bool is_tools;                                      /* the text is "tools", not "messages" */
    size_t mib;
} form;

/* TEXT: the largest body that the server allows. Many items are freed without a check, at about
 * 1.3 us each. */
enum { ITEMS = 1, TEXT = 32, MAX_TRIES = 5 };

static const form forms[] = {
    {"results", "[", "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"x\"}", ",", "]",
     false, ITEMS},
    {"systems", "[", "{\"role\":\"system\",\"content\":\"rule\"}", ",", "]", false, ITEMS},
    {"parts", "[{\"role\":\"user\",\"content\":[", "{\"type\":\"text\",\"text\":\"x\"}", ",", "]}]",
     false, ITEMS},
    {"empty objects", "[{\"role\":\"user\",\"content\":\"a\",\"x\":[", "{}", ",", "]}]", false,
     ITEMS},
    {"names", "[{\"role\":\"user\",\"content\":\"a\",\"x\":{", "\"#\":1", ",", "}}]", false, ITEMS},
    {"words", "[{\"role\":\"user\",\"content\":\"", "word and ", "", "\"}]", false, TEXT},
    {"one word", "[{\"role\":\"user\",\"content\":\"", "abcdefgh", "", "\"}]", false, TEXT},
    {"escapes", "[{\"role\":\"user\",\"content\":\"", "\\u00e9", "", "\"}]", false, TEXT},
    {"tools", "[",
     "{\"type\":\"function\",\"function\":{\"name\":\"f#\",\"parameters\":"
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}}}}}",
     ",", "]", true, ITEMS},
    {"properties",
     "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":"
     "{\"type\":\"object\",\"properties\":{",
     "\"p#\":{\"type\":\"string\"}", ",", "}}}}]", true, ITEMS},
};

static char *text_of(const form *f, size_t *n) {
    const size_t cap = (f->mib << 20) / (SANITIZED ? 16 : 1);
    char *text = malloc(cap + 512), *at = text;
    assert_non_null(text);
    at += sprintf(at, "%s", f->before);
    for (size_t i = 0; (size_t)(at - text) + strlen(f->after) + strlen(f->item) + 32 < cap; i++) {
        if (i) at += sprintf(at, "%s", f->between);
        for (const char *c = f->item; *c; c++) {
            if (*c == '#') at += sprintf(at, "%zu", i);
            else *at++ = *c;
        }
    }
    at += sprintf(at, "%s", f->after);
    *n = (size_t)(at - text);
    return text;
}

/* Returns the processor time that jansson takes to read 6 MiB of escapes now. */
static double reference_s(void) {
    static const char escape[] = "\\u00e9";
    const size_t len = sizeof escape - 1, n = (6 << 20) / len / (SANITIZED ? 16 : 1);
    char *text = malloc(n * len + 2);
    assert_non_null(text);
    text[0] = text[n * len + 1] = '"';
    for (size_t i = 0; i < n; i++) memcpy(text + 1 + i * len, escape, len);
    const double begin = cpu_seconds();
    json_t *string = json_loadb(text, n * len + 2, JSON_DECODE_ANY, NULL);
    const double s = cpu_seconds() - begin;
    assert_non_null(string);
    json_decref(string);
    free(text);
    return s;
}

static double bound_s;

static void begin(void) {
    const double reference = reference_s();
    bound_s = reference > max_s ? reference : max_s;
    checks.last = cpu_seconds();
    checks.longest = 0;
}

/* Returns whether the checks since begin() were frequent enough. */
static bool is_fast(void) {
    check(NULL);
    return checks.longest <= bound_s;
}

static bool read_fast(const form *f, ag_chat *c, const char *text, size_t n) {
    static const char message[] = "[{\"role\":\"user\",\"content\":\"a\"}]";
    ag_error err = {0};
    begin();
    const ag_status st =
        f->is_tools ? ag_chat_set_tools(c, text, n, &err) : ag_chat_set_messages(c, text, n, &err);
    const bool fast = is_fast();
    if (st != AG_OK) fail_msg("%s: %s", f->name, err.msg);
    if (f->is_tools)
        assert_int_equal(ag_chat_set_messages(c, message, sizeof message - 1, &err), AG_OK);
    return fast;
}

static bool render_fast(const form *f, ag_chat *c) {
    ag_ids ids = {0};
    ag_error err = {0};
    begin();
    const ag_status st = ag_chat_render(c, 0, &ids, NULL, &err);
    const bool fast = is_fast();
    if (st != AG_OK) fail_msg("%s: %s", f->name, err.msg);
    ag_ids_free(&ids);
    return fast;
}

/* Other processes empty the processor's caches: one of several tries must hold. */
static void check_form(const form *f) {
    size_t n;
    char *text = text_of(f, &n);
    bool reads = false, renders = false;
    double reading = 0, rendering = 0;
    for (int i = 0; i < MAX_TRIES && !(reads && renders); i++) {
        ag_chat *c;
        assert_int_equal(ag_chat_create(format, &c, NULL), AG_OK);
        ag_set_thread_interrupt(check, NULL);
        reads = read_fast(f, c, text, n) || reads;
        reading = checks.longest;
        renders = render_fast(f, c) || renders;
        rendering = checks.longest;
        ag_set_thread_interrupt(NULL, NULL);
        ag_chat_destroy(c);
    }
    free(text);
    if (!reads) fail_msg("%s: reading continues for %.3f s", f->name, reading);
    if (!renders) fail_msg("%s: rendering continues for %.3f s", f->name, rendering);
}

static void work_can_end_within_50_ms(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) check_form(&forms[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(work_can_end_within_50_ms)};
    return cmocka_run_group_tests(tests, open_format, close_format);
}
