/* SPDX-License-Identifier: Apache-2.0 */
/* Detects how calls are written: renders known calls and finds their sentinels in the output. */
#include "chat/detect/detect.h"
#include "chat/detect/probe.h"
#include "chat/json_scan.h"
#include "chat/parse/parser.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

/* Sample: a rendered call, from the question on, and offsets in it. */
typedef struct sample {
    char *text;
    size_t turn; /* start of the assistant's turn */
    size_t name, name_end;
    size_t call_begin; /* start of the call, after its delimiter */
    size_t call_end;   /* end of the call, after its arguments */
    size_t key, value, value_end, key_2, number, number_end;
} sample;

typedef struct call_detector {
    ag_chat_format *f;
    ag_call_format *c;
    char *plain;     /* the tail with an answer in place of a call */
    sample one, two; /* two.text == NULL: the template writes one call only */
    size_t second;   /* offset in two.text: start of the second call; 0: not found */
    ag_error *err;
} call_detector;

static bool is_blank(const char *s, size_t n) {
    while (n && ag_is_json_space(s[n - 1])) n--;
    return n == 0;
}

static size_t position_of(const char *s, size_t from, const char *what) {
    const char *at = strstr(s + from, what);
    return at ? (size_t)(at - s) : 0;
}

/* ---- renderings ---- */

static ag_status render_with_tools(call_detector *d, json_t *messages, bool prompt, char **out) {
    json_t *tools = d->f->features & AG_CHAT_TOOLS ? ag_probe_tools() : NULL;
    return ag_probe_tail(d->f, messages, tools, prompt, out, d->err);
}

static ag_status render_calls(call_detector *d, size_t n, const char *id, char **out) {
    const bool as_text = !(d->f->features & AG_CHAT_ARGUMENT_OBJECTS);
    json_t *calls = json_pack("[o]", ag_probe_call(AG_PROBE_TOOL, id, true, as_text));
    if (calls && n > 1) {
        const char *id_2 = strchr(id, '.') ? "functions." AG_PROBE_TOOL_2 ":1" : "q7v000002";
        json_array_append_new(calls, ag_probe_call(AG_PROBE_TOOL_2, id_2, true, as_text));
    }
    return render_with_tools(d, ag_probe_calls(calls, json_string("")), false, out);
}

/* Renders the answer without a call, one call and, if the template takes several, two. */
static ag_status render_samples(call_detector *d) {
    const char *id = AG_PROBE_ID;
    AG_TRY(render_with_tools(d, ag_probe_answered(), false, &d->plain));
    AG_TRY(render_calls(d, 1, id, &d->one.text));
    if (d->one.text && !strstr(d->one.text, AG_PROBE_TOOL) && strstr(d->one.text, id)) {
        /* The template writes the id and not the name: models put the name into the id. */
        ag_free(d->one.text);
        d->c->id_is_name = true;
        id = "functions." AG_PROBE_TOOL ":0";
        AG_TRY(render_calls(d, 1, id, &d->one.text));
    }
    if (!(d->f->features & AG_CHAT_PARALLEL_CALLS)) return AG_OK;
    return render_calls(d, 2, id, &d->two.text);
}

/* ---- offsets ---- */

/* Returns the length of the prefix that a turn with a call shares with a turn of text. */
static size_t find_turn(const call_detector *d) {
    const char *a = d->one.text;
    size_t n = ag_detect_common_prefix(a, d->plain ? d->plain : "");
    /* A reasoning, which is empty here, does not belong to the calls. */
    const char *close = d->f->reasoning_close;
    const size_t reasoned = close ? position_of(a, n, close) : 0;
    if (reasoned && reasoned < position_of(a, 0, AG_PROBE_KEY)) n = reasoned + strlen(close);
    return n;
}

/* Finds the sentinels of the call of `tool` from `from` on. Returns false if one is missing. */
static bool locate_call(sample *s, const char *tool, size_t from) {
    const char *t = s->text;
    s->key = position_of(t, from, AG_PROBE_KEY);
    s->value = s->key ? position_of(t, s->key, AG_PROBE_VALUE) : 0;
    s->key_2 = s->value ? position_of(t, s->value, AG_PROBE_KEY_2) : 0;
    s->number = s->key_2 ? position_of(t, s->key_2, AG_PROBE_NUMBER) : 0;
    if (!s->number) return false;
    s->value_end = s->value + strlen(AG_PROBE_VALUE);
    s->number_end = s->number + strlen(AG_PROBE_NUMBER);
    s->name = 0;
    for (size_t i = from; (i = position_of(t, i, tool)) && i < s->key; i++) s->name = i;
    s->name_end = s->name + strlen(tool);
    return s->name != 0;
}

static ag_status set_text(call_detector *d, const char **to, const char *s, size_t n) {
    *to = ag_strndup(s, n);
    return *to ? AG_OK : AG_FAIL(d->err, NOMEM, "tool call format");
}

/* ---- objects ---- */

static bool has_arguments(const json_t *v) {
    if (json_is_string(v)) return strstr(json_string_value(v), AG_PROBE_KEY) != NULL;
    return json_object_get(v, AG_PROBE_KEY) != NULL;
}

/* Sets the keys of name and arguments if the object has both. *fits: it has. */
static ag_status find_keys(call_detector *d, const json_t *object, const char *tool, bool *fits) {
    const char *key, *name_key = NULL, *arguments_key = NULL;
    json_t *v, *o = json_object_get(object, "function");
    if (!json_is_object(o)) o = NULL;
    json_object_foreach(o ? o : (json_t *)(uintptr_t)object, key, v) {
        if (json_is_string(v) && !strcmp(json_string_value(v), tool)) name_key = key;
        else if (has_arguments(v)) arguments_key = key;
    }
    *fits = name_key && arguments_key;
    if (!*fits || d->c->name_key) return AG_OK;
    AG_TRY(set_text(d, &d->c->name_key, name_key, strlen(name_key)));
    return set_text(d, &d->c->arguments_key, arguments_key, strlen(arguments_key));
}

/* Finds the outermost object that begins in [from, to) and has the tool's name: *begin, *end; *end
 * is 0 if there is none. Sets the keys of the format. */
static ag_status find_object(call_detector *d, const char *text, size_t from, size_t to,
                             const char *tool, size_t *begin, size_t *end) {
    *end = 0;
    for (size_t i = from; i < to && *end == 0; i++) {
        json_error_t e;
        bool fits = false;
        if (text[i] != '{') continue;
        json_t *o = json_loads(text + i, JSON_DISABLE_EOF_CHECK, &e);
        ag_status st = o ? find_keys(d, o, tool, &fits) : AG_OK;
        json_decref(o);
        AG_TRY(st);
        if (!fits) continue;
        *begin = i;
        *end = i + (size_t)e.position;
    }
    return AG_OK;
}

/* Returns whether the object at text[begin] holds the arguments; *end: its end. */
static bool read_arguments(const char *text, size_t begin, size_t *end) {
    json_error_t e;
    json_t *o = json_loads(text + begin, JSON_DISABLE_EOF_CHECK, &e);
    const bool ok = o && json_object_get(o, AG_PROBE_KEY);
    json_decref(o);
    *end = begin + (ok ? (size_t)e.position : 0);
    return ok;
}

/* ---- kinds ---- */

/* {"name": "f", "arguments": {...}} */
static ag_status detect_json(call_detector *d, bool *done) {
    sample *s = &d->one;
    AG_TRY(find_object(d, s->text, s->turn, s->key, AG_PROBE_TOOL, &s->call_begin, &s->call_end));
    *done = s->call_end > 0;
    if (!*done) return AG_OK;
    d->c->kind = AG_CALLS_JSON;
    AG_TRY(set_text(d, &d->c->object, s->text + s->call_begin, s->call_end - s->call_begin));
    if (!d->two.text) return AG_OK;
    size_t end;
    d->two.call_end = s->call_end;
    const size_t to = position_of(d->two.text, s->call_end, AG_PROBE_KEY);
    return find_object(d, d->two.text, s->call_end, to, AG_PROBE_TOOL_2, &d->second, &end);
}

/* Splits the text between name and arguments: an id between two delimiters, or ":0", and the rest.
 */
static ag_status split_name_end(call_detector *d, const char *s, size_t n) {
    static const char id[] = AG_PROBE_ID;
    size_t skip = 0;
    if (n && s[0] == ':') {
        skip = 1;
        d->c->has_index = true;
        while (skip < n && s[skip] >= '0' && s[skip] <= '9') skip++;
    }
    for (size_t i = 0; i + sizeof id - 1 <= n; i++) {
        if (memcmp(s + i, id, sizeof id - 1) != 0) continue;
        AG_TRY(set_text(d, &d->c->id_open, s, i));
        skip = i + sizeof id - 1;
    }
    return set_text(d, &d->c->name_end, s + skip, n - skip);
}

/* f DELIMITER {...} */
static ag_status detect_named(call_detector *d, bool *done) {
    sample *s = &d->one;
    const char *open = strchr(s->text + s->name_end, '{');
    const size_t at = open ? (size_t)(open - s->text) : s->key;
    *done = at < s->key && read_arguments(s->text, at, &s->call_end);
    if (!*done) return AG_OK;
    d->c->kind = AG_CALLS_NAMED;
    s->call_begin = s->name;
    return split_name_end(d, s->text + s->name_end, at - s->name_end);
}

/* f(a=1) or f{a:1} */
static ag_status detect_code(call_detector *d, bool *done) {
    sample *s = &d->one;
    const char first = s->text[s->name_end], equals = s->text[s->key + strlen(AG_PROBE_KEY)];
    *done = (first == '(' && equals == '=') || (first == '{' && equals == ':');
    if (!*done) return AG_OK;
    s->call_begin = s->name;
    s->call_end = s->number_end + 1;
    d->c->kind = first == '(' ? AG_CALLS_PYTHON : AG_CALLS_BRACES;
    if (first == '(') return AG_OK;
    const size_t quote = s->key + strlen(AG_PROBE_KEY) + 1;
    *done = quote < s->value;
    return set_text(d, &d->c->quote, s->text + quote, s->value - quote);
}

/* Returns the length of the common suffix of a[0..n) and b[0..m), from the first '<' or '[' in it
 * on, or all of it without white space at its start if it counts calls; n if it is all of a and
 * may_be_all. */
static size_t common_tail(const char *a, size_t n, const char *b, size_t m, bool may_be_all) {
    size_t k = 0;
    while (k < n && k < m && a[n - 1 - k] == b[m - 1 - k]) k++;
    if (k == n && may_be_all) return k;
    const char *s = a + n - k;
    for (size_t i = 0; i < k; i++) {
        if (s[i] == '<' || s[i] == '[') return k - i;
        /* The count of a call begins its line. */
        if (ag_is_call_count(s[i])) return k - ag_json_space_len(s, k);
    }
    return 0;
}

/* The same for texts that differ in a word, which may be the type of what follows: <p t='string'
 * n=' and <p t='integer' n='. *n_b: the length in b. */
static size_t common_typed_tail(const char *a, size_t n, const char *b, size_t m, size_t *n_b) {
    size_t i = n, j = m;
    for (; i && j && a[i - 1] == b[j - 1]; i--, j--) {}
    while (i < n && ag_call_name_len(a + i, 1)) i++, j++;
    while (i && ag_call_name_len(a + i - 1, 1)) i--;
    while (j && ag_call_name_len(b + j - 1, 1)) j--;
    const size_t before = common_tail(a, i, b, j, false);
    *n_b = before ? m - j + before : 0;
    return before ? n - i + before : 0;
}

/* f, then DELIMITER a DELIMITER 1 DELIMITER for each argument */
static ag_status detect_tags(call_detector *d, bool *done) {
    const sample *s = &d->one;
    const char *t = s->text;
    const size_t key_end = s->key + strlen(AG_PROBE_KEY),
                 key_2_end = s->key_2 + strlen(AG_PROBE_KEY_2);
    const size_t lead = s->key - s->name_end, gap = s->key_2 - s->value_end;
    size_t open = common_tail(t + s->name_end, lead, t + s->value_end, gap, false);
    size_t open_json = open;
    if (!open) {
        open = common_typed_tail(t + s->name_end, lead, t + s->value_end, gap, &open_json);
    }
    *done = open > 0 && gap > open_json && s->value > key_end && s->number > key_2_end;
    if (!*done) return AG_OK;
    ag_call_format *c = d->c;
    c->kind = AG_CALLS_TAGGED;
    d->one.call_begin = s->name;
    AG_TRY(set_text(d, &c->name_end, t + s->name_end, lead - open));
    AG_TRY(set_text(d, &c->param_open, t + s->key - open, open));
    if (open != open_json || memcmp(t + s->key - open, t + s->key_2 - open, open) != 0)
        AG_TRY(set_text(d, &c->param_open_json, t + s->key_2 - open_json, open_json));
    AG_TRY(set_text(d, &c->param_text, t + key_end, s->value - key_end));
    AG_TRY(set_text(d, &c->param_json, t + key_2_end, s->number - key_2_end));
    /* White space before the next argument's delimiter is not part of param_close, unless the last
     * argument has it too. */
    size_t n = gap - open_json;
    while (n && strncmp(t + s->number_end, t + s->value_end, n) != 0) n--;
    AG_TRY(set_text(d, &c->param_close, t + s->value_end, n));
    AG_TRY(set_text(d, &c->param_between, t + s->value_end + n, gap - open_json - n));
    d->one.call_end = s->number_end + n;
    *done = !is_blank(c->param_close, n) && !is_blank(c->param_text, strlen(c->param_text));
    return AG_OK;
}

static bool is_harmony(const call_detector *d) {
    const char *turn = d->one.text + d->one.turn;
    return strstr(turn, "<|channel|>") && strstr(turn, "<|message|>");
}

/* ---- delimiters ---- */

/* Finds the start of the second call: the name of the tool. For JSON, detect_json() has found it.
 */
static void find_second(call_detector *d) {
    if (!d->two.text || d->second) return;
    sample s = {.text = d->two.text};
    if (locate_call(&s, AG_PROBE_TOOL_2, d->one.call_end)) d->second = s.name;
}

/* Returns n without the brackets of a list at the end of s[0..n): models write white space before
 * them, or leave them out. */
static size_t len_without_list(const ag_call_format *c, const char *s, size_t n) {
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

/* Adds the delimiter after a turn of calls as a stop, unless it closes something. */
static ag_status detect_stop(call_detector *d, const char *rest) {
    size_t space;
    const size_t n = ag_detect_delimiter_len(d->f, rest, &space);
    rest += space;
    if ((rest[0] != '<' && rest[0] != '[') || rest[1] == '/') return AG_OK;
    return ag_detect_add_stop(d->f, rest, n, d->err);
}

/* Returns the distance to the nearest stop; SIZE_MAX if there is none. */
static size_t distance_to_stop(const ag_chat_format *f, const char *rest) {
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < f->n_stops; i++) {
        const char *at = strstr(rest, f->stops[i]);
        if (at && (size_t)(at - rest) < best) best = (size_t)(at - rest);
    }
    return best;
}

/* Sets what closes the list and, if has_section, the section after the last call. Adds what ends
 * the turn as a stop. */
static ag_status detect_close(call_detector *d, const char *rest, bool has_section) {
    size_t space, n;
    size_t list = 0, before = 0;
    for (; ag_is_json_space(rest[before]) || rest[before] == ']'; before++) {
        if (rest[before] == ']') list = before + 1;
    }
    const char *begin = rest;
    rest += before;
    n = ag_detect_delimiter_len(d->f, rest, &space);
    const bool closes = n && has_section && !is_stop(d->f, rest, n);
    AG_TRY(set_text(d, &d->c->list_close, begin, closes ? before : list));
    AG_TRY(set_text(d, &d->c->section_close, rest, closes ? n : 0));
    if (closes) rest += n;
    return detect_stop(d, rest);
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

/* Sets what opens section, list and call. The brackets of a list are part of list_open only. */
static ag_status set_openings(call_detector *d, const char *lead, size_t n_section, size_t n_call) {
    const char *call = lead + n_section;
    const size_t section = len_without_list(d->c, lead, n_section),
                 own = len_without_list(d->c, call, n_call);
    AG_TRY(set_text(d, &d->c->section_open, lead, section));
    AG_TRY(set_text(d, &d->c->call_open, call, own));
    if (section < n_section)
        return set_text(d, &d->c->list_open, lead + section, n_section - section);
    return set_text(d, &d->c->list_open, call + own, n_call - own);
}

/* Sets the parts of a header: the text from the prompt to the tool's name, and the text after the
 * name. */
static ag_status set_header(call_detector *d, const char *named, size_t n) {
    char *prompt;
    AG_TRY(render_with_tools(d, json_pack("[o]", ag_probe_question()), true, &prompt));
    const size_t from = prompt ? ag_detect_common_prefix(d->one.text, prompt) : d->one.turn;
    ag_free(prompt);
    const char *begin = d->one.text + from;
    AG_TRY(set_text(d, &d->c->header_open, begin, begin < named ? (size_t)(named - begin) : 0));
    return set_text(d, &d->c->header_close, named + strlen(AG_PROBE_TOOL),
                    n - strlen(AG_PROBE_TOOL));
}

/* Sets the text between two calls that each have a header. */
static ag_status set_second_header(call_detector *d) {
    const char *rest = d->two.text ? d->two.text + d->one.call_end : NULL;
    const char *name = rest ? strstr(rest, AG_PROBE_TOOL_2) : NULL;
    const size_t n = strlen(d->c->call_close);
    if (!name || (size_t)(name - rest) < n || memcmp(rest, d->c->call_close, n) != 0) return AG_OK;
    d->c->is_parallel = true;
    return set_text(d, &d->c->header_between, rest + n, (size_t)(name - rest) - n);
}

/* Replaces the last number of lead[0..n_lead) by AG_CALL_COUNT_0 or AG_CALL_COUNT_1, and the one
 * after it at the end of gap[0..n_gap). Does nothing if these do not count the calls. */
static void replace_counts(char *lead, size_t n_lead, char *gap, size_t n_gap) {
    for (size_t i = 1; i <= n_lead && i <= n_gap; i++) {
        char *a = lead + n_lead - i, *b = gap + n_gap - i;
        if (*a == *b) continue;
        if (*b != *a + 1 || (*a != '0' && *a != '1')) return;
        *a = *b = *a == '0' ? AG_CALL_COUNT_0 : AG_CALL_COUNT_1;
        return;
    }
}

/* Sets what comes before, between and after calls, from the text around the first call and, if
 * there is one, the second. */
static ag_status set_delimiters(call_detector *d) {
    const sample *s = &d->one;
    const char *lead = s->text + s->turn, *rest = s->text + s->call_end;
    size_t n_lead = s->call_begin - s->turn, n_gap = 0, n_open = n_lead;
    const char *gap = "";
    /* A header can name the tool before the call does. */
    const char *named = d->c->id_is_name ? NULL : strstr(lead, AG_PROBE_TOOL);
    const bool has_header = named && named < lead + n_lead;
    if (has_header) {
        size_t space, n = strlen(AG_PROBE_TOOL);
        n += ag_detect_delimiter_len(d->f, named + n, &space) + space;
        AG_TRY(set_header(d, named, n));
        n_lead -= (size_t)(named - lead) + n;
        lead = named + n;
        n_open = n_lead;
    }
    find_second(d);
    /* Calls in messages of their own are not a section. */
    if (d->second && names_tool(d->two.text + s->call_end, d->second - s->call_end)) d->second = 0;
    if (d->second) {
        gap = d->two.text + s->call_end;
        n_gap = d->second - s->call_end;
        replace_counts(s->text + (lead - s->text), n_lead, d->two.text + s->call_end, n_gap);
        n_open = common_tail(lead, n_lead, gap, n_gap, true);
        if (is_blank(lead + n_lead - n_open, n_open)) n_open = 0;
        d->c->is_parallel = true;
    }
    size_t n_close = n_gap - (d->second ? n_open : 0);
    if (is_punctuation(gap, n_close)) n_close = 0;
    while (n_close && ag_is_json_space(gap[n_close - 1])) n_close--;
    if (d->second) AG_TRY(set_text(d, &d->c->between, gap + n_close, n_gap - n_open - n_close));
    AG_TRY(set_openings(d, lead, n_lead - n_open, n_open));
    if (!d->second) {
        size_t space, n = ag_detect_delimiter_len(d->f, rest, &space);
        const size_t stop = distance_to_stop(d->f, rest);
        if (!is_blank(lead, n_lead)) n_close = stop != SIZE_MAX ? stop : space + n;
        gap = rest;
    }
    AG_TRY(set_text(d, &d->c->call_close, gap, n_close));
    if (has_header) AG_TRY(set_second_header(d));
    if (!strncmp(rest, gap, n_close)) rest += n_close;
    return detect_close(d, rest, n_lead > n_open && !is_blank(lead, n_lead - n_open));
}

/* ---- triggers ---- */

static ag_status add_trigger(call_detector *d, const char *s, size_t n) {
    ag_call_format *c = d->c;
    size_t k = 0;
    ag_json_trim(&s, &n);
    for (; k < AG_CALL_TRIGGERS && c->triggers[k]; k++) {
        if (strlen(c->triggers[k]) == n && !memcmp(c->triggers[k], s, n)) return AG_OK;
    }
    if (n == 0 || k == AG_CALL_TRIGGERS) return AG_OK;
    return set_text(d, &c->triggers[k], s, n);
}

/* Returns the length of the trigger for a delimiter: its first line if that is a tag that a turn of
 * text does not have, else all of it. */
static size_t trigger_len(const call_detector *d, const char *s) {
    const size_t all = strlen(s), line = *s == '<' || *s == '[' ? strcspn(s, "\n") : all;
    char *first = line < all ? ag_strndup(s, line) : NULL;
    const bool is_shared = first && d->plain && strstr(d->plain, first);
    ag_free(first);
    return is_shared ? all : line;
}

/* Sets the triggers: what opens a section, and what opens a call, since models leave out the first.
 */
static ag_status detect_triggers(call_detector *d) {
    ag_call_format *c = d->c;
    const char *section = c->section_open, *call = c->call_open;
    section += strspn(section, " \n\t\r");
    call += strspn(call, " \n\t\r");
    AG_TRY(add_trigger(d, section, trigger_len(d, section)));
    if (*call && !ag_is_call_count(*call) && !ag_is_call_count(call[1]))
        AG_TRY(add_trigger(d, call, trigger_len(d, call)));
    c->is_bare = !c->triggers[0];
    for (size_t i = 0; c->is_bare && i < d->f->n_special_texts; i++) {
        if (!strcmp(d->f->special_texts[i].spelling, "<|python_tag|>")) {
            AG_TRY(add_trigger(d, "<|python_tag|>", 14));
            ag_free((void *)(uintptr_t)c->section_open);
            AG_TRY(set_text(d, &c->section_open, "<|python_tag|>", 14));
        }
    }
    return AG_OK;
}

static ag_status detect_kind(call_detector *d, bool *done) {
    static ag_status (*const kinds[])(call_detector *, bool *) = {detect_json, detect_named,
                                                                  detect_code, detect_tags};
    *done = is_harmony(d);
    if (*done) {
        d->c->kind = AG_CALLS_HARMONY;
        d->c->is_parallel = true;
        return detect_stop(d, d->one.text + d->one.number_end + 1);
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !*done; i++) AG_TRY(kinds[i](d, done));
    return AG_OK;
}

static ag_status detect(call_detector *d, bool *done) {
    *done = false;
    AG_TRY(render_samples(d));
    if (!d->one.text) return AG_OK;
    d->one.turn = find_turn(d);
    if (!locate_call(&d->one, AG_PROBE_TOOL, d->one.turn)) return AG_OK;
    AG_TRY(detect_kind(d, done));
    if (!*done || d->c->kind == AG_CALLS_HARMONY) return AG_OK;
    AG_TRY(set_delimiters(d));
    return detect_triggers(d);
}

ag_status ag_detect_calls(ag_chat_format *f, ag_error *err) {
    call_detector d = {.f = f, .c = &f->calls, .err = err};
    bool done = false;
    ag_status st = f->features & AG_CHAT_CALLS ? detect(&d, &done) : AG_OK;
    ag_free(d.plain);
    ag_free(d.one.text);
    ag_free(d.two.text);
    f->has_detected_calls = done;
    if (st != AG_OK || done) return st;
    ag_call_format_free(&f->calls);
    return ag_call_format_default(&f->calls, err);
}
