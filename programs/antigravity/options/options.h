/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines as tables: one row an option, from which it is parsed and its help is printed. */
#ifndef ANTIGRAVITY_OPTIONS_H
#define ANTIGRAVITY_OPTIONS_H

#include "numbers.h"

#include <antigravity/model.h>
#include <stdio.h>

/* What the field at `offset` of the group's target is, and so how its value is read. */
typedef enum option_kind {
    OPTION_FLAG,  /* bool, becomes true */
    OPTION_TEXT,  /* const char *, borrowed from argv */
    OPTION_NAME,  /* the same, of a file or a thing: not empty */
    OPTION_U32,   /* uint32_t between low and high */
    OPTION_I64,   /* int64_t between low and high */
    OPTION_REAL,  /* double between low and high */
    OPTION_LIST,  /* number_list, each between low and high */
    OPTION_WORD,  /* an enum: one of the words of `value`, "csv|json"; the first one is `low` */
    OPTION_DTYPE, /* ag_dtype, one that has the role `dtypes`, or DTYPE_AS_IS */
    OPTION_CALL,  /* whatever call() does with the target */
} option_kind;

/* value is NULL for an option without one. On failure the reason is in why[MESSAGE_SIZE]. */
typedef bool (*option_call)(void *target, const char *value, char *message);

enum { OPTION_ALIASES = 4, DTYPE_AS_IS = AG_DTYPE_COUNT };

typedef struct option_def {
    const char *name; /* long, without dashes */
    char letter;      /* 0: none */
    option_kind kind;
    const char *value; /* its name in the help; NULL: the option takes none */
    const char *help;
    size_t offset;
    double low, high;
    unsigned dtypes; /* AG_DTYPE_WEIGHT...; behind a help that ends in a colon they are listed */
    bool as_is;      /* OPTION_DTYPE: may also be "as-is", which is listed, too */
    option_call call;
    bool no_default; /* the help does not mention the field's value */
    /* Further long names. One written "--ngl" is also accepted as "-ngl". */
    const char *aliases[OPTION_ALIASES];
} option_def;

/* Rows that fill one structure; its values at parsing are the defaults. Groups of the same title
 * that follow each other stand under one heading. */
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
    const char *description;         /* lines of at most 100 columns, without the last newline */
    const char *examples;            /* the same */
    option_group groups[MAX_GROUPS]; /* up to one without rows */
    size_t max_operands;             /* words that are no options */
    const char *operands[MAX_OPERANDS];
    size_t n_operands;
    const char *hint; /* after "unexpected word 'x'", where there are too many; NULL: none */
} command_line;

enum { OPTIONS_RUN = -1 };

/* OPTIONS_RUN, or the exit code after --help, --version or an error, which has been said. */
int options_parse(command_line *line, int argc, char **argv);

/* Behind the groups that are there. */
void command_line_add(command_line *line, option_group group);

/* Reads a value as the row says, into its field. */
bool option_set(const option_def *def, void *target, const char *value, char *message);

/* The field as a value would be typed; "" where there is none to tell. */
void option_value(const option_def *def, const void *target, char *buf, size_t cap);

void options_help(const command_line *line, FILE *out);

#endif
