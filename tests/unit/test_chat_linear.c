/* SPDX-License-Identifier: Apache-2.0 */
/* Time to normalise and to render is linear in the size of the conversation, for each form and
 * template; an interrupt function cancels it. */
#include "chat/template/normalise.h"
#include "support/chat_formats.h"
#include "support/sanitized.h"

#include <antigravity/interrupt.h>
#include <time.h>

enum { N_SIZES = 3, MAX_TRIES = 12 };
static size_t size_of(size_t k) { return (size_t)(SANITIZED ? 1000 : 5000) << k; }

/* ---- conversations ---- */

typedef void (*write_fn)(ag_text *messages, ag_text *tools, size_t n);

static void add(ag_text *to, const char *text) {
    assert_int_equal(ag_text_append(to, text, strlen(text), NULL), AG_OK);
}

#define ADD(to, ...)                                \
    do {                                            \
        char item_[512];                            \
        snprintf(item_, sizeof item_, __VA_ARGS__); \
        add(to, item_);                             \
    } while (0)

static const char user_message[] = "{\"role\": \"user\", \"content\": \"hello\"}";

static void add_calls(ag_text *m, size_t n) {
    add(m, "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [");
    for (size_t i = 0; i < n; i++) {
        ADD(m,
            "%s{\"id\": \"c%zu\", \"type\": \"function\", \"function\": {\"name\": \"f\", "
            "\"arguments\": \"{\\\"a\\\": 1}\"}}",
            i ? ", " : "", i);
    }
    add(m, "]}");
}

static void add_results(ag_text *m, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ADD(m, ", {\"role\": \"tool\", \"tool_call_id\": \"c%zu\", \"content\": \"x\"}", i);
    }
}

static void results(ag_text *m, ag_text *tools, size_t n) {
    (void)tools;
    add(m, user_message);
    add_results(m, n);
}

static void calls(ag_text *m, ag_text *tools, size_t n) {
    (void)tools;
    add(m, user_message);
    add(m, ", ");
    add_calls(m, n);
    ADD(m, ", %s", user_message);
}

static void calls_and_results(ag_text *m, ag_text *tools, size_t n) {
    calls(m, tools, n / 2);
    m->len -= strlen(user_message) + 2;
    m->data[m->len] = '\0';
    add_results(m, n / 2);
}

static void results_without_ids(ag_text *m, ag_text *tools, size_t n) {
    calls(m, tools, n / 2);
    m->len -= strlen(user_message) + 2;
    m->data[m->len] = '\0';
    for (size_t i = 0; i < n / 2; i++) add(m, ", {\"role\": \"tool\", \"content\": \"x\"}");
}

static void turns_of_one_call(ag_text *m, ag_text *tools, size_t n) {
    (void)tools;
    add(m, user_message);
    for (size_t i = 0; i < n / 2; i++) {
        add(m, ", ");
        add_calls(m, 1);
        add_results(m, 1);
    }
}

static void add_systems(ag_text *m, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ADD(m, "%s{\"role\": \"system\", \"content\": \"rule %zu\"}", m->len ? ", " : "", i);
    }
}

static void systems_first(ag_text *m, ag_text *tools, size_t n) {
    (void)tools;
    add_systems(m, n);
    ADD(m, ", %s", user_message);
}

static void systems_in_the_middle(ag_text *m, ag_text *tools, size_t n) {
    (void)tools;
    add(m, user_message);
    add(m, ", {\"role\": \"assistant\", \"content\": \"yes\"}");
    add_systems(m, n);
    ADD(m, ", %s", user_message);
}

static void systems_at_the_end(ag_text *m, ag_text *tools, size_t n) {
    (void)tools;
    add(m, user_message);
    add_systems(m, n);
}

static void users(ag_text *m, ag_text *tools, size_t n) {
    (void)tools;
    for (size_t i = 0; i < n; i++) {
        ADD(m, "%s{\"role\": \"%s\", \"content\": \"x\"}", i ? ", " : "",
            i % 2 ? "assistant" : "user");
    }
}

static void add_parts(ag_text *m, size_t n, const char *type) {
    add(m, "{\"role\": \"user\", \"content\": [");
    for (size_t i = 0; i < n; i++) {
        ADD(m, "%s{\"type\": \"%s\", \"text\": \"x\"}", i ? ", " : "", type);
    }
    add(m, "]}");
}

static void parts(ag_text *m, ag_text *tools, size_t n) {
    (void)tools;
    add_parts(m, n, "text");
}

static void parts_of_another_type(ag_text *m, ag_text *tools, size_t n) {
    (void)tools;
    add_parts(m, n, "input_text");
}

static void many_tools(ag_text *m, ag_text *tools, size_t n) {
    add(m, user_message);
    for (size_t i = 0; i < n; i++) {
        ADD(tools,
            "%s{\"type\": \"function\", \"function\": {\"name\": \"f%zu\", \"parameters\": "
            "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"string\"}}}}}",
            i ? ", " : "", i);
    }
}

static void properties(ag_text *m, ag_text *tools, size_t n) {
    add(m, user_message);
    add(tools, "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": "
               "{\"type\": \"object\", \"properties\": {");
    for (size_t i = 0; i < n; i++)
        ADD(tools, "%s\"p%zu\": {\"type\": \"string\"}", i ? ", " : "", i);
    add(tools, "}}}}");
}

typedef struct form {
    const char *name;
    write_fn write;
} form;

/* Checked with each template. */
static const form forms[] = {
    {"results", results},
    {"calls", calls},
    {"calls and results", calls_and_results},
    {"systems first", systems_first},
    {"systems in the middle", systems_in_the_middle},
    {"parts", parts},
    {"tools", many_tools},
};

/* Checked with the template that accepts both roles and content parts. */
static const form other_forms[] = {
    {"results without ids", results_without_ids},     {"turns of one call", turns_of_one_call},
    {"systems at the end", systems_at_the_end},       {"users", users},
    {"parts of another type", parts_of_another_type}, {"properties", properties},
};

/* ---- time ---- */

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Work of one form, for each size. */
typedef struct work {
    void (*run)(const struct work *w, size_t k);
    ag_chat *chats[N_SIZES];
    size_t n_sizes;
    char name[80];
} work;

static double seconds_of(const work *w, size_t k) {
    const double begin = cpu_seconds();
    w->run(w, k);
    return cpu_seconds() - begin;
}

/* Measures a copy of the same size. Copying twice the memory takes more than twice the time, since
 * large data exceeds the processor's caches. */
static double seconds_of_copy(const work *w, size_t k) {
    const double begin = cpu_seconds();
    json_t *messages = json_deep_copy(w->chats[k]->messages);
    json_t *tools = json_deep_copy(w->chats[k]->tools);
    json_decref(messages);
    json_decref(tools);
    return cpu_seconds() - begin;
}

typedef struct times {
    double work[N_SIZES], copy[N_SIZES];
} times;

/* Twice the size takes at most 2.3 times as long; 0.5 ms is noise. */
static bool is_linear(const times *t, size_t n) {
    for (size_t k = 0; k + 1 < n; k++) {
        const double by_memory = t->copy[k + 1] / (2 * t->copy[k]);
        const double max = by_memory > 1 ? 2.3 * by_memory : 2.3;
        if (t->work[k + 1] > max * t->work[k] + 0.5e-3) return false;
    }
    return true;
}

static void keep_min(double *min, double s) {
    if (*min == 0 || s < *min) *min = s;
}

/* Other processes empty the caches too: one try must be linear, or the minimum of all tries. */
static void check_doublings(const work *w) {
    times min = {.work = {0}};
    for (int i = 0; i < MAX_TRIES; i++) {
        times now;
        for (size_t k = 0; k < w->n_sizes; k++) {
            now.work[k] = seconds_of(w, k);
            now.copy[k] = i ? seconds_of_copy(w, k) : 1;
            keep_min(&min.work[k], now.work[k]);
            if (i) keep_min(&min.copy[k], now.copy[k]);
        }
        if (is_linear(&now, w->n_sizes) || (i && is_linear(&min, w->n_sizes))) return;
    }
    fail_msg("%s: %zu, %zu and %zu items take %.1f, %.1f and %.1f ms", w->name, size_of(0),
             size_of(1), size_of(2), 1e3 * min.work[0], 1e3 * min.work[1], 1e3 * min.work[2]);
}

/* ---- the templates ---- */

static const char *const templates[] = {"objects", "parts", "strict", "tags", "text_arguments"};
enum { N_TEMPLATES = sizeof templates / sizeof *templates };

static ag_chat_format *formats[N_TEMPLATES];
static ag_tokenizer *tokenizer;

static int open_formats(void **state) {
    (void)state;
    tokenizer = small_tokenizer();
    for (size_t i = 0; i < N_TEMPLATES; i++) {
        char path[512];
        snprintf(path, sizeof path, DATA "%s.jinja", templates[i]);
        formats[i] = format_of(path, tokenizer);
    }
    return 0;
}

static int close_formats(void **state) {
    (void)state;
    for (size_t i = 0; i < N_TEMPLATES; i++) ag_chat_format_destroy(formats[i]);
    ag_tokenizer_destroy(tokenizer);
    return 0;
}

static void write_list(ag_text *out, const ag_text *items) {
    add(out, "[");
    if (items->len) add(out, items->data);
    add(out, "]");
}

static ag_chat *chat_with(const ag_chat_format *f, write_fn write, size_t n) {
    ag_text messages = {0}, tools = {0}, list = {0}, offered = {0};
    ag_error err = {0};
    ag_chat *c;
    write(&messages, &tools, n);
    write_list(&list, &messages);
    write_list(&offered, &tools);
    assert_int_equal(ag_chat_create(f, &c, &err), AG_OK);
    if (ag_chat_set_messages(c, list.data, list.len, &err) != AG_OK) fail_msg("%s", err.msg);
    if (ag_chat_set_tools(c, offered.data, offered.len, &err) != AG_OK) fail_msg("%s", err.msg);
    ag_text_free(&messages);
    ag_text_free(&tools);
    ag_text_free(&list);
    ag_text_free(&offered);
    return c;
}

static void normalise(const work *w, size_t k) {
    json_t *messages, *tools;
    ag_error err = {0};
    if (ag_chat_normalise(w->chats[k], &messages, &tools, &err) != AG_OK) fail_msg("%s", err.msg);
    json_decref(messages);
    json_decref(tools);
}

/* A template can fail or reach a limit, but must do so in time. */
static void render(const work *w, size_t k) {
    ag_ids ids = {0};
    ag_error err = {0};
    const ag_status st = ag_chat_render(w->chats[k], 0, &ids, NULL, &err);
    if (st != AG_OK) assert_true(err.msg[0] && st != AG_NOMEM);
    ag_ids_free(&ids);
}

/* Checks all sizes with the first template, and two with the others. */
static void check_form(const form *x, size_t n_templates) {
    work w = {.run = render};
    for (size_t k = 0; k < N_SIZES; k++) w.chats[k] = chat_with(formats[0], x->write, size_of(k));
    for (size_t t = 0; t < n_templates; t++) {
        for (size_t k = 0; k < N_SIZES; k++) w.chats[k]->format = formats[t];
        snprintf(w.name, sizeof w.name, "%s, %s", templates[t], x->name);
        w.n_sizes = t ? N_SIZES - 1 : N_SIZES;
        check_doublings(&w);
    }
    for (size_t k = 0; k < N_SIZES; k++) ag_chat_destroy(w.chats[k]);
}

static void is_linear_for_every_form_and_template(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) check_form(&forms[i], N_TEMPLATES);
}

static void is_linear_for_other_forms(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof other_forms / sizeof *other_forms; i++)
        check_form(&other_forms[i], 1);
}

/* ---- the interrupt function ---- */

typedef struct interrupts {
    size_t n, max; /* true from call `max` on */
} interrupts;

static bool is_over(void *user) {
    interrupts *a = user;
    return a->n++ >= a->max;
}

static void check_interrupts(const form *x, size_t template) {
    ag_chat *c = chat_with(formats[template], x->write, 3000);
    interrupts all = {.max = SIZE_MAX}, some;
    json_t *messages, *tools;
    ag_error err = {0};
    ag_set_thread_interrupt(is_over, &all);
    assert_int_equal(ag_chat_normalise(c, &messages, &tools, &err), AG_OK);
    json_decref(messages);
    json_decref(tools);
    if (all.n < 60) fail_msg("%s, %s: %zu", templates[template], x->name, all.n);
    for (size_t i = 0; i < 5; i++) {
        some = (interrupts){.max = (all.n - 2) * i / 4};
        ag_set_thread_interrupt(is_over, &some);
        assert_int_equal(ag_chat_normalise(c, &messages, &tools, &err), AG_CANCELLED);
        assert_null(messages);
        assert_int_equal(some.n, some.max + 1);
        if (!strstr(err.msg, ": interrupted")) fail_msg("%s", err.msg);
        assert_int_equal(ag_chat_render(c, 0, &(ag_ids){0}, NULL, &err), AG_CANCELLED);
    }
    ag_set_thread_interrupt(NULL, NULL);
    ag_chat_destroy(c);
}

static void interrupt_cancels_normalisation(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (size_t t = 0; t < N_TEMPLATES; t++) check_interrupts(&forms[i], t);
    formats[0]->accepts &= ~(uint32_t)AG_ACCEPTS_BARE_TOOLS; /* each property gets a description */
    for (size_t i = 0; i < sizeof other_forms / sizeof *other_forms; i++)
        check_interrupts(&other_forms[i], 0);
    formats[0]->accepts |= AG_ACCEPTS_BARE_TOOLS;
}

static void adds_descriptions_to_copies_of_tools(void **state) {
    (void)state;
    static const char offered[] =
        "[{'type': 'function', 'function': {'name': 'f', 'parameters': {'type': 'object', "
        "'properties': {'a': {'type': 'string'}, 'b': {'description': 'd'}, 'c': true}}}}, "
        "{'name': 'g'}]";
    static const char wanted[] =
        "[{'type': 'function', 'function': {'name': 'f', 'parameters': {'type': 'object', "
        "'properties': {'a': {'type': 'string', 'description': ''}, 'b': {'description': 'd'}, "
        "'c': true}}, 'description': ''}}, {'type': 'function', 'function': {'name': 'g', "
        "'description': '', 'parameters': {'type': 'object', 'properties': {}}}}]";
    char json[1024];
    json_t *messages, *tools;
    ag_error err = {0};
    quoted(offered, json, sizeof json);
    ag_chat *c = chat_of(formats[0], "[{'role': 'user', 'content': 'a'}]", json);
    json_t *before = json_deep_copy(c->tools);
    formats[0]->accepts &= ~(uint32_t)AG_ACCEPTS_BARE_TOOLS;
    assert_int_equal(ag_chat_normalise(c, &messages, &tools, &err), AG_OK);
    formats[0]->accepts |= AG_ACCEPTS_BARE_TOOLS;
    quoted(wanted, json, sizeof json);
    char *text = json_dumps(tools, 0);
    assert_string_equal(text, json);
    assert_true(json_equal(c->tools, before));
    free(text);
    json_decref(before);
    json_decref(messages);
    json_decref(tools);
    ag_chat_destroy(c);
}

static double least_seconds(const work *w, double enough) {
    double min = seconds_of(w, 0);
    for (int i = 0; i < MAX_TRIES && min >= enough; i++) {
        const double s = seconds_of(w, 0);
        if (s < min) min = s;
    }
    return min;
}

static void normalises_60000_items_in_time(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        work w = {.run = normalise, .chats = {chat_with(formats[0], forms[i].write, 60000)}};
        const double limit = (forms[i].write == many_tools ? 1 : 0.3) * (SANITIZED ? 20 : 1);
        for (size_t t = 0; t < N_TEMPLATES; t += N_TEMPLATES - 1) { /* all take the same path */
            w.chats[0]->format = formats[t];
            const double s = least_seconds(&w, limit);
            if (s >= limit) fail_msg("%s, %s: %.2f s", templates[t], forms[i].name, s);
        }
        ag_chat_destroy(w.chats[0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_linear_for_every_form_and_template),
        cmocka_unit_test(is_linear_for_other_forms),
        cmocka_unit_test(interrupt_cancels_normalisation),
        cmocka_unit_test(adds_descriptions_to_copies_of_tools),
        cmocka_unit_test(normalises_60000_items_in_time),
    };
    return cmocka_run_group_tests(tests, open_formats, close_formats);
}
