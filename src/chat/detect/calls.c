/* SPDX-License-Identifier: Apache-2.0 */
/* How calls are written, learnt from what a template makes of known ones. */
#include "chat/detect/detect.h"
#include "chat/detect/probe.h"
#include "chat/json_scan.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

/* A rendered call: the text from the question on, and places in it. */
typedef struct sample {
    char *text;
    size_t body;      /* where the assistant's turn begins */
    size_t name, end; /* of the name */
    size_t begin;     /* of what a call consists of, behind what opens it */
    size_t close;     /* behind its arguments */
    size_t key, value, value_end, key_2, number, number_end;
} sample;

typedef struct learner {
    ag_chat_format *f;
    ag_call_format *c;
    char *plain;     /* the tail with an answer in the place of a call */
    sample one, two; /* two.text == NULL: several calls cannot be rendered */
    size_t second;   /* in two: where the second call's `begin` is; 0: not found */
    ag_error *err;
} learner;

static bool is_blank(const char *s, size_t n) {
    while (n && ag_is_json_space(s[n - 1])) n--;
    return n == 0;
}

static size_t find(const char *s, size_t from, const char *what) {
    const char *at = strstr(s + from, what);
    return at ? (size_t)(at - s) : 0;
}

/* ---- renderings ---- */

static ag_status render_tail(learner *l, json_t *messages, bool prompt, char **out) {
    json_t *tools = l->f->features & AG_CHAT_TOOLS ? ag_probe_tools() : NULL;
    return ag_probe_tail(l->f, messages, tools, prompt, out, l->err);
}

static ag_status render_calls(learner *l, size_t n, const char *id, char **out) {
    const bool as_text = !(l->f->features & AG_CHAT_ARGUMENT_OBJECTS);
    json_t *calls = json_pack("[o]", ag_probe_call(AG_PROBE_TOOL, id, true, as_text));
    if (calls && n > 1) {
        const char *id_2 = strchr(id, '.') ? "functions." AG_PROBE_TOOL_2 ":1" : "q7v000002";
        json_array_append_new(calls, ag_probe_call(AG_PROBE_TOOL_2, id_2, true, as_text));
    }
    return render_tail(l, ag_probe_calls(calls, json_string("")), false, out);
}

static ag_status render_samples(learner *l) {
    const char *id = AG_PROBE_ID;
    json_t *messages =
        json_pack("[o, o]", ag_probe_question(), ag_probe_message("assistant", AG_PROBE_ANSWER));
    AG_TRY(render_tail(l, messages, false, &l->plain));
    AG_TRY(render_calls(l, 1, id, &l->one.text));
    if (l->one.text && !strstr(l->one.text, AG_PROBE_TOOL) && strstr(l->one.text, id)) {
        /* The id alone is written: then models put the name into it. */
        ag_free(l->one.text);
        l->c->id_is_name = true;
        id = "functions." AG_PROBE_TOOL ":0";
        AG_TRY(render_calls(l, 1, id, &l->one.text));
    }
    if (!(l->f->features & AG_CHAT_PARALLEL_CALLS)) return AG_OK;
    return render_calls(l, 2, id, &l->two.text);
}

/* ---- where things are ---- */

/* Behind what a call's turn has in common with one of text. */
static size_t find_body(const learner *l) {
    const char *a = l->one.text;
    size_t n = ag_detect_common_prefix(a, l->plain ? l->plain : "");
    /* What stands between, with no reasoning to tell of, is none of the calls'. */
    const char *close = l->f->reasoning_close;
    const size_t reasoned = close ? find(a, n, close) : 0;
    if (reasoned && reasoned < find(a, 0, AG_PROBE_KEY)) n = reasoned + strlen(close);
    return n;
}

static bool locate(sample *s, const char *tool, size_t from) {
    const char *t = s->text;
    s->key = find(t, from, AG_PROBE_KEY);
    s->value = s->key ? find(t, s->key, AG_PROBE_VALUE) : 0;
    s->key_2 = s->value ? find(t, s->value, AG_PROBE_KEY_2) : 0;
    s->number = s->key_2 ? find(t, s->key_2, AG_PROBE_NUMBER) : 0;
    if (!s->number) return false;
    s->value_end = s->value + strlen(AG_PROBE_VALUE);
    s->number_end = s->number + strlen(AG_PROBE_NUMBER);
    s->name = 0;
    for (size_t i = from; (i = find(t, i, tool)) && i < s->key; i++) s->name = i;
    s->end = s->name + strlen(tool);
    return s->name != 0;
}

static ag_status put(learner *l, const char **to, const char *s, size_t n) {
    *to = ag_strndup(s, n);
    return *to ? AG_OK : AG_FAIL(l->err, NOMEM, "tool call format");
}

/* ---- objects ---- */

static bool holds_arguments(const json_t *v) {
    if (json_is_string(v)) return strstr(json_string_value(v), AG_PROBE_KEY) != NULL;
    return json_object_get(v, AG_PROBE_KEY) != NULL;
}

static ag_status note_keys(learner *l, const json_t *object, const char *tool, bool *fits) {
    const char *key, *name_key = NULL, *arguments_key = NULL;
    json_t *v, *o = json_object_get(object, "function");
    if (!json_is_object(o)) o = NULL;
    json_object_foreach(o ? o : (json_t *)(uintptr_t)object, key, v) {
        if (json_is_string(v) && !strcmp(json_string_value(v), tool)) name_key = key;
        else if (holds_arguments(v)) arguments_key = key;
    }
    *fits = name_key && arguments_key;
    if (!*fits || l->c->name_key) return AG_OK;
    AG_TRY(put(l, &l->c->name_key, name_key, strlen(name_key)));
    return put(l, &l->c->arguments_key, arguments_key, strlen(arguments_key));
}

/* The outermost object that begins in [from, to) and holds the name: its place in *begin and *end;
 * *end is 0 if there is none. */
static ag_status find_object(learner *l, const char *text, size_t from, size_t to, const char *tool,
                             size_t *begin, size_t *end) {
    *end = 0;
    for (size_t i = from; i < to && *end == 0; i++) {
        json_error_t e;
        bool fits = false;
        if (text[i] != '{') continue;
        json_t *o = json_loads(text + i, JSON_DISABLE_EOF_CHECK, &e);
        ag_status st = o ? note_keys(l, o, tool, &fits) : AG_OK;
        json_decref(o);
        AG_TRY(st);
        if (!fits) continue;
        *begin = i;
        *end = i + (size_t)e.position;
    }
    return AG_OK;
}

static bool object_of_arguments(const char *text, size_t begin, size_t *end) {
    json_error_t e;
    json_t *o = json_loads(text + begin, JSON_DISABLE_EOF_CHECK, &e);
    const bool ok = o && json_object_get(o, AG_PROBE_KEY);
    json_decref(o);
    *end = begin + (ok ? (size_t)e.position : 0);
    return ok;
}

/* ---- of what kind ---- */

static ag_status learn_json(learner *l, bool *done) {
    sample *s = &l->one;
    AG_TRY(find_object(l, s->text, s->body, s->key, AG_PROBE_TOOL, &s->begin, &s->close));
    *done = s->close > 0;
    if (!*done) return AG_OK;
    l->c->kind = AG_CALLS_JSON;
    AG_TRY(put(l, &l->c->object, s->text + s->begin, s->close - s->begin));
    if (!l->two.text) return AG_OK;
    size_t end;
    l->two.close = s->close;
    const size_t to = find(l->two.text, s->close, AG_PROBE_KEY);
    return find_object(l, l->two.text, s->close, to, AG_PROBE_TOOL_2, &l->second, &end);
}

/* ID between two marks, or ":0". */
static ag_status split_name_end(learner *l, const char *s, size_t n) {
    static const char id[] = AG_PROBE_ID;
    size_t skip = 0;
    if (n && s[0] == ':') {
        skip = 1;
        l->c->has_index = true;
        while (skip < n && s[skip] >= '0' && s[skip] <= '9') skip++;
    }
    for (size_t i = 0; i + sizeof id - 1 <= n; i++) {
        if (memcmp(s + i, id, sizeof id - 1) != 0) continue;
        AG_TRY(put(l, &l->c->id_mark, s, i));
        skip = i + sizeof id - 1;
    }
    return put(l, &l->c->name_end, s + skip, n - skip);
}

static ag_status learn_named(learner *l, bool *done) {
    sample *s = &l->one;
    const char *open = strchr(s->text + s->end, '{');
    const size_t at = open ? (size_t)(open - s->text) : s->key;
    *done = at < s->key && object_of_arguments(s->text, at, &s->close);
    if (!*done) return AG_OK;
    l->c->kind = AG_CALLS_NAMED;
    s->begin = s->name;
    return split_name_end(l, s->text + s->end, at - s->end);
}

static ag_status learn_code(learner *l, bool *done) {
    sample *s = &l->one;
    const char first = s->text[s->end], equals = s->text[s->key + strlen(AG_PROBE_KEY)];
    *done = (first == '(' && equals == '=') || (first == '{' && equals == ':');
    if (!*done) return AG_OK;
    s->begin = s->name;
    s->close = s->number_end + 1;
    l->c->kind = first == '(' ? AG_CALLS_PYTHON : AG_CALLS_BRACES;
    if (first == '(') return AG_OK;
    const size_t quote = s->key + strlen(AG_PROBE_KEY) + 1;
    *done = quote < s->value;
    return put(l, &l->c->quote, s->text + quote, s->value - quote);
}

/* How long the common end of a[0..n) and b[0..m) is, from the first '<' or '[' in it on; or all of
 * a[0..n), if that may be. */
static size_t common_tail(const char *a, size_t n, const char *b, size_t m, bool may_be_all) {
    size_t k = 0;
    while (k < n && k < m && a[n - 1 - k] == b[m - 1 - k]) k++;
    if (k == n && may_be_all) return k;
    const char *s = a + n - k;
    size_t skip = strcspn(s, "<[");
    return skip < k ? k - skip : 0;
}

static ag_status learn_tags(learner *l, bool *done) {
    const sample *s = &l->one;
    const char *t = s->text;
    const size_t key_end = s->key + strlen(AG_PROBE_KEY),
                 key_2_end = s->key_2 + strlen(AG_PROBE_KEY_2);
    const size_t lead = s->key - s->end, gap = s->key_2 - s->value_end;
    const size_t open = common_tail(t + s->end, lead, t + s->value_end, gap, false);
    *done = open > 0 && gap > open && s->value > key_end && s->number > key_2_end;
    if (!*done) return AG_OK;
    ag_call_format *c = l->c;
    c->kind = AG_CALLS_TAGGED;
    l->one.begin = s->name;
    AG_TRY(put(l, &c->name_end, t + s->end, lead - open));
    AG_TRY(put(l, &c->param_open, t + s->key - open, open));
    AG_TRY(put(l, &c->param_text, t + key_end, s->value - key_end));
    AG_TRY(put(l, &c->param_json, t + key_2_end, s->number - key_2_end));
    /* White space before the next argument's mark is not of what closes this one, unless the last
     * one has it too. */
    size_t n = gap - open;
    while (n && strncmp(t + s->number_end, t + s->value_end, n) != 0) n--;
    AG_TRY(put(l, &c->param_close, t + s->value_end, n));
    AG_TRY(put(l, &c->param_between, t + s->value_end + n, gap - open - n));
    l->one.close = s->number_end + n;
    *done = !is_blank(c->param_close, n) && !is_blank(c->param_text, strlen(c->param_text));
    return AG_OK;
}

static bool is_harmony(const learner *l) {
    const char *body = l->one.text + l->one.body;
    return strstr(body, "<|channel|>") && strstr(body, "<|message|>");
}

/* ---- what stands around and between ---- */

/* The place in `two` where the second call begins: as far behind what opens it as in `one`. */
static void find_second(learner *l) {
    if (!l->two.text || l->second) return;
    sample s = {.text = l->two.text};
    if (locate(&s, AG_PROBE_TOOL_2, l->one.close)) l->second = s.name;
}

/* Brackets of a list are no part of a mark: models put white space before them, or leave them out.
 */
static size_t without_list(const ag_call_format *c, const char *s, size_t n) {
    const bool is_list = c->kind == AG_CALLS_JSON || c->kind == AG_CALLS_PYTHON;
    size_t k = n;
    while (k && is_list && (ag_is_json_space(s[k - 1]) || s[k - 1] == '[')) k--;
    return memchr(s + k, '[', n - k) ? k : n;
}

static bool is_stop(const ag_chat_format *f, const char *s, size_t n) {
    for (size_t i = 0; i < f->n_stops; i++) {
        if (strlen(f->stops[i]) == n && !memcmp(f->stops[i], s, n)) return true;
    }
    return false;
}

/* A mark behind a call's turn ends an answer, too, unless it closes something. */
static ag_status learn_stop(learner *l, const char *rest) {
    size_t space;
    const size_t n = ag_detect_delimiter_len(l->f, rest, &space);
    rest += space;
    if ((rest[0] != '<' && rest[0] != '[') || rest[1] == '/') return AG_OK;
    return ag_detect_add_stop(l->f, rest, n, l->err);
}

/* How far it is to what ends the turn; SIZE_MAX if nothing known does. */
static size_t distance_to_stop(const ag_chat_format *f, const char *rest) {
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < f->n_stops; i++) {
        const char *at = strstr(rest, f->stops[i]);
        if (at && (size_t)(at - rest) < best) best = (size_t)(at - rest);
    }
    return best;
}

/* Behind the last call: what closes the section, if anything opened it, and what ends the turn. */
static ag_status learn_close(learner *l, const char *rest, bool has_section) {
    size_t space, n;
    size_t list = 0, before = 0;
    for (; ag_is_json_space(rest[before]) || rest[before] == ']'; before++) {
        if (rest[before] == ']') list = before + 1;
    }
    const char *begin = rest;
    rest += before;
    n = ag_detect_delimiter_len(l->f, rest, &space);
    const bool closes = n && has_section && !is_stop(l->f, rest, n);
    AG_TRY(put(l, &l->c->list_close, begin, closes ? before : list));
    AG_TRY(put(l, &l->c->section_close, rest, closes ? n : 0));
    if (closes) rest += n;
    return learn_stop(l, rest);
}

static bool is_punctuation(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!ag_is_json_space(s[i]) && s[i] != ',' && s[i] != ';') return false;
    }
    return true;
}

static bool names_tool(const char *s, size_t n) {
    const char *at = strstr(s, AG_PROBE_TOOL_2);
    return at && at + strlen(AG_PROBE_TOOL_2) < s + n;
}

/* What opens the section, and what opens a call behind it; brackets apart. */
static ag_status put_openings(learner *l, const char *lead, size_t n_section, size_t n_call) {
    const char *call = lead + n_section;
    const size_t section = without_list(l->c, lead, n_section),
                 own = without_list(l->c, call, n_call);
    AG_TRY(put(l, &l->c->section_open, lead, section));
    AG_TRY(put(l, &l->c->call_open, call, own));
    if (section < n_section) return put(l, &l->c->list_open, lead + section, n_section - section);
    return put(l, &l->c->list_open, call + own, n_call - own);
}

/* What leads to the tool's name in the header of a message, from the prompt on, and what ends it.
 */
static ag_status put_header(learner *l, const char *named, size_t n) {
    char *prompt;
    AG_TRY(render_tail(l, json_pack("[o]", ag_probe_question()), true, &prompt));
    const size_t from = prompt ? ag_detect_common_prefix(l->one.text, prompt) : l->one.body;
    ag_free(prompt);
    const char *begin = l->one.text + from;
    AG_TRY(put(l, &l->c->head_open, begin, begin < named ? (size_t)(named - begin) : 0));
    return put(l, &l->c->head_close, named + strlen(AG_PROBE_TOOL), n - strlen(AG_PROBE_TOOL));
}

/* The same behind another call. */
static ag_status put_second_header(learner *l) {
    const char *rest = l->two.text ? l->two.text + l->one.close : NULL;
    const char *name = rest ? strstr(rest, AG_PROBE_TOOL_2) : NULL;
    const size_t n = strlen(l->c->call_close);
    if (!name || (size_t)(name - rest) < n || memcmp(rest, l->c->call_close, n) != 0) return AG_OK;
    l->c->is_parallel = true;
    return put(l, &l->c->head_between, rest + n, (size_t)(name - rest) - n);
}

static ag_status learn_around(learner *l) {
    const sample *s = &l->one;
    const char *lead = s->text + s->body, *rest = s->text + s->close;
    size_t n_lead = s->begin - s->body, n_gap = 0, n_open = n_lead;
    const char *gap = "";
    /* A header may name the tool that is called, too. */
    const char *named = l->c->id_is_name ? NULL : strstr(lead, AG_PROBE_TOOL);
    const bool has_header = named && named < lead + n_lead;
    if (has_header) {
        size_t space, n = strlen(AG_PROBE_TOOL);
        n += ag_detect_delimiter_len(l->f, named + n, &space) + space;
        AG_TRY(put_header(l, named, n));
        n_lead -= (size_t)(named - lead) + n;
        lead = named + n;
        n_open = n_lead;
    }
    find_second(l);
    /* Calls in messages of their own are no section. */
    if (l->second && names_tool(l->two.text + s->close, l->second - s->close)) l->second = 0;
    if (l->second) {
        gap = l->two.text + s->close;
        n_gap = l->second - s->close;
        n_open = common_tail(lead, n_lead, gap, n_gap, true);
        if (is_blank(lead + n_lead - n_open, n_open)) n_open = 0;
        l->c->is_parallel = true;
    }
    size_t n_close = n_gap - (l->second ? n_open : 0);
    if (is_punctuation(gap, n_close)) n_close = 0;
    while (n_close && ag_is_json_space(gap[n_close - 1])) n_close--;
    if (l->second) AG_TRY(put(l, &l->c->between, gap + n_close, n_gap - n_open - n_close));
    AG_TRY(put_openings(l, lead, n_lead - n_open, n_open));
    if (!l->second) {
        size_t space, n = ag_detect_delimiter_len(l->f, rest, &space);
        const size_t stop = distance_to_stop(l->f, rest);
        if (!is_blank(lead, n_lead)) n_close = stop != SIZE_MAX ? stop : space + n;
        gap = rest;
    }
    AG_TRY(put(l, &l->c->call_close, gap, n_close));
    if (has_header) AG_TRY(put_second_header(l));
    if (!strncmp(rest, gap, n_close)) rest += n_close;
    return learn_close(l, rest, n_lead > n_open && !is_blank(lead, n_lead - n_open));
}

/* ---- triggers ---- */

static ag_status add_trigger(learner *l, const char *s, size_t n) {
    ag_call_format *c = l->c;
    size_t k = 0;
    ag_json_trim(&s, &n);
    for (; k < AG_CALL_TRIGGERS && c->triggers[k]; k++) {
        if (strlen(c->triggers[k]) == n && !memcmp(c->triggers[k], s, n)) return AG_OK;
    }
    if (n == 0 || k == AG_CALL_TRIGGERS) return AG_OK;
    return put(l, &c->triggers[k], s, n);
}

/* The first line of a mark, or all of it where that is words. */
static size_t trigger_len(const char *s) {
    return *s == '<' || *s == '[' ? strcspn(s, "\n") : strlen(s);
}

/* What opens a section; and what what opens a call, since models leave out the first. */
static ag_status learn_triggers(learner *l) {
    ag_call_format *c = l->c;
    const char *section = c->section_open, *call = c->call_open;
    section += strspn(section, " \n\t\r");
    call += strspn(call, " \n\t\r");
    AG_TRY(add_trigger(l, section, trigger_len(section)));
    AG_TRY(add_trigger(l, call, trigger_len(call)));
    c->bare = !c->triggers[0];
    for (size_t i = 0; c->bare && i < l->f->n_marks; i++) {
        if (!strcmp(l->f->marks[i].spelling, "<|python_tag|>")) {
            AG_TRY(add_trigger(l, "<|python_tag|>", 14));
            ag_free((void *)(uintptr_t)c->section_open);
            AG_TRY(put(l, &c->section_open, "<|python_tag|>", 14));
        }
    }
    return AG_OK;
}

static ag_status learn_kind(learner *l, bool *done) {
    static ag_status (*const kinds[])(learner *, bool *) = {learn_json, learn_named, learn_code,
                                                            learn_tags};
    *done = is_harmony(l);
    if (*done) {
        l->c->kind = AG_CALLS_HARMONY;
        l->c->is_parallel = true;
        return learn_stop(l, l->one.text + l->one.number_end + 1);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !*done; i++) AG_TRY(kinds[i](l, done));
    return AG_OK;
}

static ag_status learn(learner *l, bool *done) {
    *done = false;
    AG_TRY(render_samples(l));
    if (!l->one.text) return AG_OK;
    l->one.body = find_body(l);
    if (!locate(&l->one, AG_PROBE_TOOL, l->one.body)) return AG_OK;
    AG_TRY(learn_kind(l, done));
    if (!*done || l->c->kind == AG_CALLS_HARMONY) return AG_OK;
    AG_TRY(learn_around(l));
    return learn_triggers(l);
}

ag_status ag_detect_calls(ag_chat_format *f, ag_error *err) {
    learner l = {.f = f, .c = &f->calls, .err = err};
    bool done = false;
    ag_status st = f->features & AG_CHAT_CALLS ? learn(&l, &done) : AG_OK;
    ag_free(l.plain);
    ag_free(l.one.text);
    ag_free(l.two.text);
    f->has_learnt_calls = done;
    if (st != AG_OK || done) return st;
    ag_call_format_free(&f->calls);
    return ag_call_format_default(&f->calls, err);
}
