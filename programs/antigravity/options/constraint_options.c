/* SPDX-License-Identifier: Apache-2.0 */
#include "constraint_options.h"

#include "../command.h"
#include "../support/input.h"
#include "../terminal/output.h"

#include <stdlib.h>
#include <string.h>

#define OPTION_STRUCT constraint_options

static bool add_choice(constraint_options *o, const char *text, size_t n, char *message) {
    char **grown = realloc(o->choices, (o->n_choices + 1) * sizeof *grown);
    if (grown) o->choices = grown;
    char *copy = grown ? malloc(n + 1) : NULL;
    if (!copy) return reject(message, "out of memory");
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\\' && i + 1 < n && (text[i + 1] == ',' || text[i + 1] == '\\')) i++;
        copy[len++] = text[i];
    }
    copy[len] = '\0';
    o->choices[o->n_choices++] = copy;
    return true;
}

/* Adds the choices of "a,b"; "\," is a comma. */
static bool add_choices(void *target, const char *value, char *message) {
    for (;;) {
        size_t n = 0;
        while (value[n] && value[n] != ',') n += value[n] == '\\' && value[n + 1] ? 2 : 1;
        if (!n) return reject(message, "a choice is empty");
        if (!add_choice(target, value, n, message)) return false;
        if (!value[n]) return true;
        value += n + 1;
    }
}

static const option_def defs[] = {
    {.name = "json-schema",
     SETS_NAME("FILE", schema),
     .aliases = {"json-schema-file"},
     .help = "the text is JSON that matches this schema, without properties that it does not name: "
             "a file, or the schema itself"},
    {.name = "json-object", SETS_FLAG(json_object), .help = "the text is a JSON object"},
    {.name = "grammar",
     SETS_NAME("FILE", grammar),
     .aliases = {"grammar-file"},
     .help =
         "the text matches the rule root of this grammar (GBNF): a file, or the rules themselves"},
    {.name = "regex",
     SETS_NAME("EXPRESSION", regex),
     .help = "the text matches this regular expression, from start to end"},
    {.name = "choice",
     CALLS("TEXT,TEXT", add_choices),
     .help = "the text is one of these (\\, is a comma); may be given several times"},
    {.name = "json-spacing",
     SETS_WORD("neat|compact|any", spacing, AG_JSON_NEAT),
     .help = "white space in JSON. neat: none, one space, or a line break and an indent; compact: "
             "none; any: as JSON allows"},
    {.name = "json-order",
     SETS_WORD("declared|any", order, AG_JSON_DECLARED_ORDER),
     .help = "order of the properties that a schema names"},
};

option_group constraint_group(constraint_options *o) {
    return OPTION_GROUP("Constraints", defs, o);
}

static int count_constraints(const constraint_options *o) {
    return !!o->schema + !!o->grammar + !!o->regex + o->json_object + !!o->n_choices;
}

bool constraint_is_set(const constraint_options *o) { return count_constraints(o) > 0; }

int constraint_check(const constraint_options *o) {
    if (count_constraints(o) <= 1) return EXIT_DONE;
    return complain_usage(
        "--json-schema, --json-object, --grammar, --regex and --choice exclude each other");
}

void constraint_options_free(constraint_options *o) {
    for (size_t i = 0; i < o->n_choices; i++) free(o->choices[i]);
    free(o->choices);
}

/* Sets the text to the value of an option. */
static int set_text(ag_constraint_params *p, const char *value) {
    p->text = value;
    p->len = strlen(value);
    return EXIT_DONE;
}

/* Sets the text to the content of an option's file. */
static int read_text(ag_constraint_params *p, const char *option, const char *path,
                     const char *advice, char **owned) {
    int code = input_check(option, path, advice);
    if (code == EXIT_DONE) code = input_read(path, owned, &p->len);
    p->text = *owned;
    return code;
}

static int make_params(ag_constraint_params *p, const constraint_options *o, char **owned) {
    *p = ag_constraint_defaults(AG_CONSTRAINT_JSON_OBJECT);
    p->spacing = o->spacing;
    p->order = o->order;
    p->closed_objects = true;
    if (o->schema) {
        p->kind = AG_CONSTRAINT_JSON_SCHEMA;
        const bool is_text =
            o->schema[0] == '{' || !strcmp(o->schema, "true") || !strcmp(o->schema, "false");
        return is_text ? set_text(p, o->schema)
                       : read_text(p, "json-schema", o->schema,
                                   "a schema in place of a file begins with '{'", owned);
    }
    if (o->grammar) {
        p->kind = AG_CONSTRAINT_GRAMMAR;
        return strstr(o->grammar, "::=") ? set_text(p, o->grammar)
                                         : read_text(p, "grammar", o->grammar,
                                                     "rules in place of a file have '::='", owned);
    }
    if (o->regex) {
        p->kind = AG_CONSTRAINT_REGEX;
        return set_text(p, o->regex);
    }
    if (o->n_choices) p->kind = AG_CONSTRAINT_CHOICES;
    p->choices = (const char *const *)o->choices;
    p->n_choices = o->n_choices;
    return EXIT_DONE;
}

/* Reports a failed constraint. Faults in a schema or an expression are EXIT_USAGE. */
static int complain_constraint(const constraint_options *o, const ag_error *err) {
    const char *file = o->schema && o->schema[0] != '{'           ? o->schema
                       : o->grammar && !strstr(o->grammar, "::=") ? o->grammar
                                                                  : NULL;
    if (file) complain("%s: %s", file, err->msg);
    else complain("%s", err->msg);
    return err->status == AG_NOMEM ? EXIT_FAILED : EXIT_USAGE;
}

static ag_status open_vocab(constraint *c, const engine *e, ag_error *err) {
    if (c->vocab) return AG_OK;
    return ag_constraint_vocab_create(e->tokenizer, e->info.n_vocab, e->info.eos_ids, e->info.n_eos,
                                      &c->vocab, err);
}

int constraint_open_calls(constraint *c, const constraint_options *o, const ag_chat *chat,
                          const engine *e, ag_sampler *sampler) {
    ag_error err;
    ag_constraint_params p = ag_constraint_defaults(AG_CONSTRAINT_GRAMMAR);
    p.spacing = o->spacing;
    p.order = o->order;
    p.closed_objects = true;
    ag_constraint_destroy(c->text);
    c->text = NULL;
    ag_status st = open_vocab(c, e, &err);
    if (st == AG_OK)
        st = ag_chat_constrain_calls(chat, c->vocab, &p, AG_CHAT_SEVERAL_CALLS, &c->text, &err);
    if (st == AG_OK && c->text) st = ag_sampler_constrain(sampler, c->text, &err);
    return st == AG_OK ? EXIT_DONE : complain_error(&err);
}

int constraint_open(constraint *c, const constraint_options *o, const engine *e,
                    ag_sampler *sampler) {
    if (!count_constraints(o)) return EXIT_DONE;
    char *owned = NULL;
    ag_constraint_params params;
    ag_error err;
    int code = engine_need_tokenizer(e, "a constraint needs one");
    if (code == EXIT_DONE) code = make_params(&params, o, &owned);
    ag_status st = AG_OK;
    if (code == EXIT_DONE) {
        st = open_vocab(c, e, &err);
        if (st == AG_OK) st = ag_constraint_create(c->vocab, &params, &c->text, &err);
        if (st == AG_OK) st = ag_sampler_constrain(sampler, c->text, &err);
        if (st != AG_OK) code = complain_constraint(o, &err);
    }
    free(owned);
    return code;
}

bool constraint_is_unmet(const constraint *c, ag_finish finish) {
    return c->text && finish != AG_FINISH_EOS && !ag_constraint_may_end(c->text);
}

void constraint_close(constraint *c) {
    ag_constraint_destroy(c->text);
    ag_constraint_vocab_destroy(c->vocab);
    *c = (constraint){0};
}
