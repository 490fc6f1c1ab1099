/* SPDX-License-Identifier: Apache-2.0 */
/* Parsed template: a tree of nodes in an arena of its own. Immutable after parsing. */
#ifndef AG_JINJA_PARSE_TEMPLATE_H
#define AG_JINJA_PARSE_TEMPLATE_H

#include "jinja/value/value.h"

/* The comment of a kind lists the members of ag_jnode that it uses. */
typedef enum ag_jnode_kind {
    /* expressions */
    AG_JN_CONST,   /* value */
    AG_JN_NAME,    /* id, name */
    AG_JN_LIST,    /* items */
    AG_JN_TUPLE,   /* items */
    AG_JN_DICT,    /* items: key, value, key, value ... */
    AG_JN_ATTR,    /* a, name, op: method number of that name, or -1 */
    AG_JN_ITEM,    /* a[b] */
    AG_JN_SLICE,   /* a, items: start, stop, step; each may be NULL */
    AG_JN_CALL,    /* a, items (positional), keys */
    AG_JN_FILTER,  /* a (NULL: the text of the block), name, op: filter number or -1, items, keys */
    AG_JN_TEST,    /* a, name, op: test number or -1, items, keys */
    AG_JN_NOT,     /* a */
    AG_JN_NEG,     /* a */
    AG_JN_POS,     /* a */
    AG_JN_AND,     /* a, b */
    AG_JN_OR,      /* a, b */
    AG_JN_BINARY,  /* a, b, op: ag_jop */
    AG_JN_COMPARE, /* items: operands; ops */
    AG_JN_CONCAT,  /* items */
    AG_JN_COND,    /* a if b else c; c NULL: undefined */
    AG_JN_NSREF,   /* assignment target: id of the namespace, name of the attribute */
    /* statements */
    AG_JN_DATA,  /* value */
    AG_JN_PRINT, /* a */
    AG_JN_FOR,   /* a: target, b: iterable, c: condition or NULL, body, orelse; op: 1 if the body
                    reads `loop` */
    AG_JN_IF,  /* items: conditions; branches: one body each; op: 1 if another body for else follows
                */
    AG_JN_SET, /* a: target, b */
    AG_JN_SET_BLOCK,    /* a: target, b: filters or NULL, body */
    AG_JN_MACRO,        /* id, name, macro */
    AG_JN_CALL_BLOCK,   /* a: call, macro: caller() */
    AG_JN_FILTER_BLOCK, /* a: filters, body */
    AG_JN_WITH,         /* items: targets and values alternate; body */
    AG_JN_SCOPE,        /* body; of {% generation %} */
    AG_JN_BREAK,
    AG_JN_CONTINUE,
} ag_jnode_kind;

typedef enum ag_jop {
    AG_JOP_ADD,
    AG_JOP_SUB,
    AG_JOP_MUL,
    AG_JOP_DIV,
    AG_JOP_FLOORDIV,
    AG_JOP_MOD,
    AG_JOP_POW,
    AG_JOP_EQ,
    AG_JOP_NE,
    AG_JOP_LT,
    AG_JOP_LE,
    AG_JOP_GT,
    AG_JOP_GE,
    AG_JOP_IN,
    AG_JOP_NOT_IN,
} ag_jop;

typedef struct ag_jbody {
    ag_jnode **items;
    size_t n;
} ag_jbody;

/* Keyword arguments, *list and **dict of a call. */
typedef struct ag_jkeys {
    ag_jstr **names;
    ag_jnode **values;
    size_t n;
    ag_jnode *star, *star_star;
} ag_jkeys;

typedef struct ag_jmacro_def {
    ag_jstr *name; /* NULL: the caller of a call block */
    uint32_t *params;
    ag_jstr **param_names;
    ag_jnode **defaults; /* for the last n_defaults parameters */
    size_t n_params, n_defaults;
    ag_jbody body;
    bool reads_caller, reads_kwargs, reads_varargs;
} ag_jmacro_def;

struct ag_jnode {
    uint8_t kind; /* ag_jnode_kind */
    int16_t op;
    uint32_t line;
    uint32_t id;
    ag_jnode *a, *b, *c;
    ag_jnode **items;
    size_t n_items;
    union {
        ag_jv value;
        ag_jstr *name;
        uint8_t *ops;
        ag_jbody *branches;
        ag_jmacro_def *macro;
    } u;
    ag_jkeys *keys;
    ag_jbody body, orelse;
};

struct ag_jinja {
    ag_jinja_memory memory;
    ag_jinja_arena arena;
    const char *name;
    ag_jbody body;
    ag_jstr **names; /* variable names by number */
    bool *is_read;
    size_t n_names, cap_names;
    uint32_t loop, caller, varargs, kwargs; /* numbers of these names */
};

/* Returns "{% for %}", "{{ }}" and so on, for messages. statement may be NULL. */
const char *ag_jnode_construct(const ag_jnode *statement);

#endif
