/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "../command.h"
#include "../support/input.h"
#include "../support/version.h"
#include "../terminal/output.h"
#include "compat_options.h"
#include "suggest.h"

#include <antigravity/status.h>
#include <assert.h>
#include <getopt.h>
#include <string.h>

/* getopt_long() returns ROW_BASE plus the row's index over all groups for a long name. */
enum { ROW_BASE = 256, ROW_HELP = 1000, ROW_VERSION, MAX_NAMES = 256, MAX_LETTERS = 64 };

typedef struct names {
    struct option longs[MAX_NAMES + 1];
    size_t n_longs;
    char letters[4 + 2 * MAX_LETTERS];
} names;

static void add_long(names *t, const char *name, bool has_value, int row) {
    if (name[0] == '-') name += 2;
    assert(t->n_longs < MAX_NAMES);
    t->longs[t->n_longs++] =
        (struct option){name, has_value ? required_argument : no_argument, NULL, row};
}

static void collect_names(names *t, const command_line *line) {
    /* "-" reports operands in order; ":" distinguishes a missing value from an unknown option. */
    char *letter = t->letters;
    *letter++ = '-';
    *letter++ = ':';
    *letter++ = 'h';
    *letter++ = 'V';
    int row = ROW_BASE;
    for (size_t g = 0; g < MAX_GROUPS && line->groups[g].defs; g++) {
        for (size_t i = 0; i < line->groups[g].n; i++, row++) {
            const option_def *def = &line->groups[g].defs[i];
            add_long(t, def->name, def->value != NULL, row);
            for (size_t a = 0; a < OPTION_ALIASES && def->aliases[a]; a++)
                add_long(t, def->aliases[a], def->value != NULL, row);
            if (!def->letter) continue;
            *letter++ = def->letter;
            if (def->value) *letter++ = ':';
        }
    }
    add_long(t, "help", false, ROW_HELP);
    t->longs[t->n_longs - 1].has_arg = optional_argument;
    add_long(t, "version", false, ROW_VERSION);
}

static const option_def *find_row(const command_line *line, int code, void **target) {
    int row = ROW_BASE;
    for (size_t g = 0; g < MAX_GROUPS && line->groups[g].defs; g++) {
        for (size_t i = 0; i < line->groups[g].n; i++, row++) {
            const option_def *def = &line->groups[g].defs[i];
            *target = line->groups[g].target;
            if (code == row || (code < ROW_BASE && def->letter == code)) return def;
        }
    }
    return NULL;
}

/* Replaces "-ngl", which getopt reads as a cluster of letters, by the alias "--ngl". */
static void respell(const command_line *line, char **word) {
    for (size_t g = 0; g < MAX_GROUPS && line->groups[g].defs; g++) {
        for (size_t i = 0; i < line->groups[g].n; i++) {
            const option_def *def = &line->groups[g].defs[i];
            for (size_t a = 0; a < OPTION_ALIASES && def->aliases[a]; a++) {
                /* getopt does not write to the word. */
                if (def->aliases[a][0] == '-' && !strcmp(def->aliases[a] + 1, *word))
                    *word = (char *)(uintptr_t)def->aliases[a];
            }
        }
    }
}

/* Returns whether the word is a letter or a full long name, not a prefix of one. */
static bool is_known(const names *t, const char *word) {
    size_t n = strcspn(word, "=");
    if (word[1] != '-') return !word[2] && word[1] != ':' && strchr(t->letters + 2, word[1]);
    for (size_t i = 0; i < t->n_longs; i++) {
        const char *name = t->longs[i].name;
        if (strlen(name) == n - 2 && !strncmp(name, word + 2, n - 2)) return true;
    }
    return false;
}

/* Handles options of other programs, which getopt would read as letters or as prefixes of ours.
 * Skips those that ask for the default behaviour; rejects others. */
static int handle_compat_options(const command_line *line, const names *t, int argc, char **argv) {
    while (optind < argc) {
        respell(line, &argv[optind]);
        const char *word = argv[optind];
        if (word[0] != '-' || !word[1] || !strcmp(word, "--") || is_known(t, word)) break;
        size_t n = compat_option_words(argv + optind);
        const char *answer = n ? NULL : compat_option_message(word, line->is_server);
        if (answer) return complain_usage("%s: %s", word, answer);
        if (!n) break;
        optind += (int)n;
    }
    return OPTIONS_RUN;
}

/* Returns whether the word is an abbreviated or unknown long option. getopt accepts the former. */
static bool is_unknown_long(const names *t, const char *word) {
    return !strncmp(word, "--", 2) && word[2] && !is_known(t, word);
}

static int refuse_unknown_long(const names *t, const char *typed) {
    const char *word = typed + 2;
    const size_t length = strcspn(word, "=");
    const char *longer = NULL;
    suggestion s = suggestion_for(word);
    for (size_t i = 0; i < t->n_longs; i++) {
        const char *name = t->longs[i].name;
        suggestion_try(&s, name);
        if (!longer && length && !strncmp(name, word, length)) longer = name;
    }
    const char *best = s.best ? s.best : longer;
    if (longer && longer != best)
        return complain_usage("unknown option '%s'; did you mean '--%s' or '--%s'?", typed, best,
                              longer);
    if (best) return complain_usage("unknown option '%s'; did you mean '--%s'?", typed, best);
    return complain_usage("unknown option '%s'; --help lists them", typed);
}

static int refuse_option(const command_line *line, int code, char **argv) {
    const char *word = argv[optind - 1];
    void *target = NULL;
    if (code == ':' && optopt < ROW_BASE)
        return complain_usage("option '-%c' needs a value", optopt);
    if (code == ':') return complain_usage("option '%s' needs a value", word);
    if (optopt >= ROW_HELP || find_row(line, optopt, &target))
        return complain_usage("option '%s' takes no value", word);
    return complain_usage("unknown option '-%c'; --help lists them", optopt);
}

static int add_operand(command_line *line, const char *word) {
    if (line->n_operands == line->max_operands)
        return complain_usage("unexpected word '%s'%s", word,
                              line->hint            ? line->hint
                              : !line->max_operands ? ": this command takes options only"
                                                    : "");
    line->operands[line->n_operands++] = word;
    return OPTIONS_RUN;
}

static int take_option(const command_line *line, const names *t, int code, int index) {
    if (code == ROW_HELP || code == 'h') return options_write_help(line, optarg);
    if (code == ROW_VERSION || code == 'V') {
        version_print();
        return EXIT_DONE;
    }
    void *target = NULL;
    const option_def *def = find_row(line, code, &target);
    char message[MESSAGE_SIZE];
    if (option_set(def, target, optarg, message)) return OPTIONS_RUN;
    if (code < ROW_BASE) return complain_usage("-%c: %s", code, message);
    return complain_usage("--%s: %s", t->longs[index].name, message);
}

void command_line_add(command_line *line, option_group group) {
    size_t n = 0;
    while (n < MAX_GROUPS && line->groups[n].defs) n++;
    assert(n < MAX_GROUPS);
    line->groups[n] = group;
}

/* Reads the file of an option, or does nothing for another option. */
static int apply_file(const command_line *line, const names *t, int code, int index) {
    void *target = NULL;
    char path[PATH_MAX], message[MESSAGE_SIZE];
    const option_def *def = find_row(line, code, &target);
    if (!def || def->kind != OPTION_FILE) return OPTIONS_RUN;
    if (def->find && !def->find(optarg, path, message))
        return complain_usage("--%s: %s", t->longs[index].name, message);
    const char *file = def->find ? path : optarg;
    const int checked = input_check(t->longs[index].name, file, NULL);
    return checked == EXIT_DONE ? options_read_file(line, file) : checked;
}

/* Applies the files of options. The second pass applies the others, which take precedence, and
 * reports faults. */
static int apply_files(const command_line *line, const names *t, int argc, char **argv) {
    int result = OPTIONS_RUN;
    bool wants_help = false;
    optind = 1;
    while (result == OPTIONS_RUN) {
        int index = 0;
        while (optind < argc && argv[optind][0] == '-' && !is_known(t, argv[optind]) &&
               compat_option_words(argv + optind))
            optind += (int)compat_option_words(argv + optind);
        if (optind < argc) respell(line, &argv[optind]);
        if (optind < argc && is_unknown_long(t, argv[optind])) break;
        const int code = getopt_long(argc, argv, t->letters, t->longs, &index);
        if (code == -1) break;
        /* Continues to the end: the second pass must not begin within a word such as -hq. */
        if (code == 'h' || code == ROW_HELP) wants_help = true;
        else if (code >= ROW_BASE && !wants_help) result = apply_file(line, t, code, index);
    }
    return result;
}

int options_parse(command_line *line, int argc, char **argv) {
    names t = {.n_longs = 0};
    collect_names(&t, line);
    opterr = 0;
    int result = apply_files(line, &t, argc, argv);
    optind = 1;
    while (result == OPTIONS_RUN) {
        int index = 0;
        result = handle_compat_options(line, &t, argc, argv);
        if (result != OPTIONS_RUN) break;
        if (optind < argc && is_unknown_long(&t, argv[optind]))
            return refuse_unknown_long(&t, argv[optind]);
        int code = getopt_long(argc, argv, t.letters, t.longs, &index);
        if (code == -1) break;
        if (code == '?' || code == ':') result = refuse_option(line, code, argv);
        else if (code == 1) result = add_operand(line, optarg);
        else result = take_option(line, &t, code, index);
    }
    /* Words after "--" are operands. */
    for (; result == OPTIONS_RUN && optind < argc; optind++)
        result = add_operand(line, argv[optind]);
    return result;
}

/* Compares option names; '-' and '_' are equal. */
static bool same_name(const char *a, const char *b) {
    if (!strncmp(a, "--", 2)) return false;
    for (; *a && *b; a++, b++)
        if (*a != *b && !(strchr("-_", *a) && strchr("-_", *b))) return false;
    return *a == *b;
}

bool option_is_called(const option_def *def, const char *name) {
    if (same_name(def->name, name)) return true;
    for (size_t a = 0; a < OPTION_ALIASES && def->aliases[a]; a++)
        if (same_name(def->aliases[a], name)) return true;
    return false;
}

static bool set_dtype(const option_def *def, ag_dtype *field, const char *value, char *message) {
    ag_dtype type;
    if (def->as_is && !strcmp(value, "as-is")) {
        *field = (ag_dtype)DTYPE_AS_IS;
        return true;
    }
    if (def->as_is && !strcmp(value, "mix")) {
        *field = AG_WEIGHTS_MIX;
        return true;
    }
    if (def->as_is && !strcmp(value, "auto")) {
        *field = AG_WEIGHTS_AUTO;
        return true;
    }
    if (ag_dtype_parse(value, &type) && ag_dtype_may_be(type, def->dtypes)) {
        *field = type;
        return true;
    }
    char known[AG_DTYPE_LIST];
    return reject(message, "'%.60s' is not one of %s%s", value,
                  ag_dtype_list(def->dtypes, known, sizeof known),
                  def->as_is ? ", as-is, mix, auto" : "");
}

/* Stores the index of the value in the words "a|b|c". */
static bool set_word(const option_def *def, void *field, const char *value, char *message) {
    unsigned word = (unsigned)def->low;
    for (const char *at = def->value; *at; word++) {
        size_t n = strcspn(at, "|");
        if (strlen(value) == n && !strncmp(at, value, n)) {
            memcpy(field, &word, sizeof word);
            return true;
        }
        at += n + (at[n] == '|');
    }
    size_t n = (size_t)snprintf(message, MESSAGE_SIZE, "'%.60s' is not one of ", value);
    for (const char *c = def->value; *c && n + 3 < MESSAGE_SIZE; c++)
        n += (size_t)snprintf(message + n, MESSAGE_SIZE - n, *c == '|' ? ", " : "%c", *c);
    return false;
}

bool option_set(const option_def *def, void *target, const char *value, char *message) {
    void *field = (char *)target + def->offset;
    int64_t integer;
    switch (def->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return true;
    case OPTION_NAME:
        if (!value[0]) return reject(message, "the name is empty");
        *(const char **)field = value;
        return true;
    case OPTION_TEXT:
        *(const char **)field = value;
        return true;
    case OPTION_REAL:
        return parse_real(value, def->low, def->high, field, message);
    case OPTION_SIZE:
        return parse_size(value, field, message);
    case OPTION_LIST:
        return parse_list(value, (int32_t)def->low, (int32_t)def->high, field, message);
    case OPTION_WORD:
        return set_word(def, field, value, message);
    case OPTION_DTYPE:
        return set_dtype(def, field, value, message);
    case OPTION_CALL:
        return def->call(target, value, message);
    case OPTION_FILE: /* its options were set before */
        *(const char **)field = value;
        return true;
    case OPTION_U32:
    case OPTION_I64:
        break;
    }
    int64_t high = def->high >= 9e18 ? INT64_MAX : (int64_t)def->high;
    if (!parse_integer(value, (int64_t)def->low, high, &integer, message)) return false;
    if (def->kind == OPTION_U32) *(uint32_t *)field = (uint32_t)integer;
    else *(int64_t *)field = integer;
    return true;
}
