/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines as tables: each row describes one option, for parsing and for --help. */
#ifndef ANTIGRAVITY_OPTIONS_H
#define ANTIGRAVITY_OPTIONS_H

#include "numbers.h"

#include <antigravity/model.h>
#include <limits.h>
#include <stdio.h>

/* Type of the field at `offset` of the group's target. */
typedef enum option_kind {
    OPTION_FLAG,  /* bool, set to true */
    OPTION_TEXT,  /* const char *, borrowed from argv */
    OPTION_NAME,  /* the same, must not be empty */
    OPTION_U32,   /* uint32_t from low to high */
    OPTION_I64,   /* int64_t from low to high; high >= 9e18: no upper limit */
    OPTION_REAL,  /* double from low to high */
    OPTION_SIZE,  /* uint64_t of bytes: "2G"; the help omits the default */
    OPTION_LIST,  /* number_list, each from low to high */
    OPTION_WORD,  /* enum: one word of `value`, "csv|json"; the first word has the value `low` */
    OPTION_DTYPE, /* ag_dtype with a role of `dtypes`, or DTYPE_AS_IS */
    OPTION_CALL,  /* parsed by call(), which gets the target */
    OPTION_FILE,  /* const char *: names a file of options, which are set before the others */
} option_kind;

/* value is NULL for an option without a value. On false the reason is in message[MESSAGE_SIZE]. */
typedef bool (*option_call)(void *target, const char *value, char *message);

/* Writes the field's value to buf as it would be typed; nothing if there is none. */
typedef void (*option_show)(const void *target, char *buf, size_t cap);

/* Writes the path of the file that the value names. On false the reason is in
 * message[MESSAGE_SIZE]. */
typedef bool (*option_find)(const char *value, char path[PATH_MAX], char *message);

enum { OPTION_ALIASES = 4, DTYPE_AS_IS = AG_DTYPE_COUNT };

typedef struct option_def {
    const char *name; /* long name, without dashes */
    char letter;      /* 0: none */
    option_kind kind;
    const char *value; /* name of the value in the help; NULL: no value */
    const char *help;
    size_t offset;
    double low, high;
    unsigned dtypes; /* AG_DTYPE_WEIGHT...; listed after a help that ends in a colon */
    bool as_is;      /* OPTION_DTYPE: also accept and list "as-is", "mix" and "auto" */
    option_call call;
    option_find find; /* for OPTION_FILE; NULL: the value is the path */
    option_show show; /* for OPTION_CALL; NULL: no such form */
    bool no_default;  /* the help omits the default */
    /* More long names. A name written "--ngl" is also accepted as "-ngl". */
    const char *aliases[OPTION_ALIASES];
} option_def;

/* Fields of a row that belong together: kind, name of the value, field and range. The file defines
 * OPTION_STRUCT as the structure of its fields; a field of another type does not compile. */
#define OPTION_FIELD(type, field) \
    .offset = _Generic(((OPTION_STRUCT *)0)->field, type : offsetof(OPTION_STRUCT, field))
#define OPTION_RANGE(min, max) .low = min, .high = max
#define SETS_FLAG(field) .kind = OPTION_FLAG, OPTION_FIELD(bool, field)
#define SETS_TEXT(name, field) .kind = OPTION_TEXT, .value = name, OPTION_FIELD(const char *, field)
#define SETS_NAME(name, field) .kind = OPTION_NAME, .value = name, OPTION_FIELD(const char *, field)
#define SETS_FILE(name, field, finds) \
    .kind = OPTION_FILE, .value = name, OPTION_FIELD(const char *, field), .find = finds
#define SETS_U32(name, field, min, max) \
    .kind = OPTION_U32, .value = name, OPTION_FIELD(uint32_t, field), OPTION_RANGE(min, max)
#define SETS_I64(name, field, min, max) \
    .kind = OPTION_I64, .value = name, OPTION_FIELD(int64_t, field), OPTION_RANGE(min, max)
#define SETS_REAL(name, field, min, max) \
    .kind = OPTION_REAL, .value = name, OPTION_FIELD(double, field), OPTION_RANGE(min, max)
#define SETS_SIZE(field) .kind = OPTION_SIZE, .value = "SIZE", OPTION_FIELD(uint64_t, field)
#define SETS_LIST(name, field, min, max) \
    .kind = OPTION_LIST, .value = name, OPTION_FIELD(number_list, field), OPTION_RANGE(min, max)
#define SETS_WORD(words, field, first) \
    .kind = OPTION_WORD, .value = words, .offset = offsetof(OPTION_STRUCT, field), .low = first
#define SETS_DTYPE(name, field, roles) \
    .kind = OPTION_DTYPE, .value = name, OPTION_FIELD(ag_dtype, field), .dtypes = roles
#define CALLS(name, function) .kind = OPTION_CALL, .value = name, .call = function

/* Options that fill one structure; its values before parsing are the defaults. Adjacent groups of
 * the same title share a heading. */
typedef struct option_group {
    const char *title;
    const option_def *defs;
    size_t n;
    void *target;
} option_group;

#define OPTION_GROUP(title, defs, target) \
    ((option_group){title, defs, sizeof(defs) / sizeof *(defs), target})

enum { MAX_OPERANDS = 4, MAX_GROUPS = 20 };

typedef struct command_line {
    const char *usage;               /* after "antigravity ": "generate [OPTION]..." */
    const char *description;         /* lines of at most 100 columns, without a final newline */
    const char *examples;            /* the same */
    const struct command *commands;  /* first words that choose a command; NULL: none */
    option_group groups[MAX_GROUPS]; /* ends at the first group without rows */
    size_t max_operands;             /* maximum number of non-option words */
    const char *operands[MAX_OPERANDS];
    size_t n_operands;
    bool is_server;   /* advice on options of other programs is that for a server */
    const char *hint; /* after "unexpected word 'x'" if there are too many; NULL: none */
} command_line;

enum { OPTIONS_RUN = -1 };

/* Parses the command line. Returns OPTIONS_RUN, or an exit code after --help, --version or a
 * reported error. */
int options_parse(command_line *line, int argc, char **argv);

/* Appends a group. */
void command_line_add(command_line *line, option_group group);

/* Parses a value and stores it in the row's field. On false the reason is in
 * message[MESSAGE_SIZE]. */
bool option_set(const option_def *def, void *target, const char *value, char *message);

/* Returns whether a name without dashes is one of the row's long names; '-' and '_' are equal. */
bool option_is_called(const option_def *def, const char *name);

/* Writes the field as it would be typed; "" if it has no such form. */
void option_value(const option_def *def, const void *target, char *buf, size_t cap);

void options_help(const command_line *line, FILE *out);

/* Writes the help in a form, such as "man", to standard output; NULL: as a text. Returns an exit
 * code, after reporting an unknown form. */
int options_write_help(const command_line *line, const char *form);

/* Sets the summary of the command that runs next, for its manual page. Borrowed. */
void options_set_summary(const char *summary);
const char *options_summary(void);

/* Sets the options of the line from a JSON object whose keys are long names. Texts of the file live
 * as long as the process, since options borrow them. Returns OPTIONS_RUN, or an exit code after
 * reporting file, line, key and reason. */
int options_read_file(const command_line *line, const char *path);

#endif
