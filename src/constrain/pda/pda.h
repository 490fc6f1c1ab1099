/* SPDX-License-Identifier: Apache-2.0 */
/* A grammar as instructions over bytes: rules that call each other. Each part is written in front
 * of what follows it: the functions take the instruction that comes next and return the first of
 * what they wrote. The first failure sticks (net->status): one check at the end is enough. */
#ifndef AG_CONSTRAIN_PDA_PDA_H
#define AG_CONSTRAIN_PDA_PDA_H

#include "constrain/interner.h"
#include "constrain/regex/text_dfa.h"

typedef enum ag_net_kind {
    AG_NET_BYTES, /* one byte of lo..hi, then next */
    AG_NET_SPLIT, /* next or other */
    AG_NET_CALL,  /* rule `other`, then next */
    AG_NET_END,   /* of a rule */
    AG_NET_SET,   /* members of an object are there, ag_net.sets[other]; hi: next tells what may
                   * follow, before that ag_net_open() */
} ag_net_kind;

typedef struct ag_net_op {
    uint8_t kind, lo, hi;
    bool live;     /* the rule's end can be reached (ag_net_finish) */
    bool nullable; /* and without a byte */
    uint32_t next, other;
} ag_net_op;

/* Rules and states of the shared part (json_rules.h) carry this bit in their numbers. */
#define AG_NET_SHARED 0x80000000u
#define AG_NET_NOWHERE UINT32_MAX

typedef enum ag_rule_kind {
    AG_RULE_PLAIN,
    AG_RULE_LENGTH, /* the shared string, with least..most characters */
    AG_RULE_NAME,   /* the shared name, none of names[guard] */
} ag_rule_kind;

typedef struct ag_net_rule {
    ag_rule_kind kind;
    uint32_t start;       /* PLAIN: an instruction */
    uint32_t least, most; /* LENGTH; UINT32_MAX: no end */
    uint32_t guard;       /* NAME: the root of its tree in ag_net.names */
    bool live, nullable;
} ag_net_rule;

/* Names that are taken, as trees of bytes. */
typedef struct ag_name_node {
    uint32_t child, sibling; /* 0: none */
    uint8_t byte;
    bool ends;
} ag_name_node;

/* Returns the child of names[at] for this byte; 0 if there is none. */
static inline uint32_t ag_name_child(const ag_name_node *names, uint32_t at, uint8_t byte) {
    uint32_t child = names[at].child;
    while (child && names[child].byte != byte) child = names[child].sibling;
    return child;
}

/* An object whose properties come in any order, or a list of values each of which may be there
 * once: net_objects.c. */
enum { AG_OBJECT_MEMBERS = 255 };
typedef struct ag_net_member {
    uint32_t rule; /* name, colon and value */
    bool required;
} ag_net_member;
typedef struct ag_net_object {
    ag_net_member *members; /* [n], owned by the net */
    uint32_t n;
    uint32_t other;       /* a rule of one more property; NOWHERE: there are none */
    uint32_t comma;       /* a rule: what stands between two */
    uint32_t close;       /* an instruction behind the last one */
    uint32_t least, most; /* how many members there are; most 0: no end */
} ag_net_object;

typedef struct ag_net_limits {
    size_t ops;
    ag_text_limits text;
} ag_net_limits;

typedef struct ag_net {
    ag_net_op *ops;
    size_t n_ops, ops_cap;
    uint32_t *slots; /* instructions other than SPLIT are written once: id + 1 by hash */
    size_t n_slots;
    ag_net_rule *rules;
    size_t n_rules, rules_cap;
    ag_name_node *names; /* [0] is nobody's */
    size_t n_names, names_cap;
    ag_net_object *objects;
    size_t n_objects, objects_cap;
    ag_interner sets; /* of members of objects, and the instruction of each */
    uint32_t *set_ops;
    size_t set_ops_cap;
    bool finished;                      /* what is written from here on is live */
    size_t finished_ops, finished_sets; /* what there was then: the rest are opened sets */
    uint32_t id_bit;                    /* AG_NET_SHARED or 0: of the rules' numbers */
    ag_net_limits limits;
    size_t text_steps; /* of all automata: limits.text.spent */
    ag_status status;
    ag_error error; /* where status is not OK */
} ag_net;

/* net stays where it is: its limits point into it. */
void ag_net_init(ag_net *net, const ag_net_limits *limits, uint32_t id_bit);
void ag_net_free(ag_net *net);

/* A rule whose start is set later, or with a start. Returns its number. */
uint32_t ag_net_rule_add(ag_net *net, ag_net_rule rule);
void ag_net_rule_start(ag_net *net, uint32_t rule, uint32_t start);

uint32_t ag_net_bytes(ag_net *net, uint8_t lo, uint8_t hi, uint32_t next);
uint32_t ag_net_split(ag_net *net, uint32_t next, uint32_t other);
void ag_net_patch(ag_net *net, uint32_t split, uint32_t next);
uint32_t ag_net_call(ag_net *net, uint32_t rule, uint32_t next);
uint32_t ag_net_end(ag_net *net);
uint32_t ag_net_literal(ag_net *net, const char *s, size_t n, uint32_t next);
/* One way or the other; NOWHERE is no way. */
uint32_t ag_net_either(ag_net *net, uint32_t a, uint32_t b);

/* One code point of [lo, hi], as UTF-8. */
uint32_t ag_net_chars(ag_net *net, uint32_t lo, uint32_t hi, uint32_t next);

/* How a character stands in the text. */
typedef enum ag_char_form {
    AG_FORM_TEXT, /* as UTF-8 */
    AG_FORM_JSON, /* inside of a JSON string: quotes, backslashes and controls escaped, in the one
                   * way that json.dumps of Python has */
} ag_char_form;
/* A text of the language. */
uint32_t ag_net_dfa(ag_net *net, const ag_text_dfa *d, ag_char_form form, uint32_t next);
/* All of a regular expression, which is ours and right. */
uint32_t ag_net_regex(ag_net *net, const char *regex, uint32_t next);
/* The text as it stands in a JSON string, without the quotes. */
uint32_t ag_net_json_text(ag_net *net, const char *s, size_t n, uint32_t next);

/* A tree for AG_RULE_NAME. Returns its root. */
uint32_t ag_net_names(ag_net *net);
void ag_net_names_add(ag_net *net, uint32_t root, const char *name, size_t n);

/* net_objects.c: takes the members over, after a failure, too. Returns its number. */
uint32_t ag_net_object_add(ag_net *net, const ag_net_object *object);
/* The first member and all that follows it, the closing brace included. */
uint32_t ag_net_object_start(ag_net *net, uint32_t object);
/* Writes what may follow a set of members; net->status tells. */
void ag_net_open(ag_net *net, uint32_t op);
/* The same net as it was when it was finished. Release *to whatever this returns. */
ag_status ag_net_copy_closed(ag_net *to, const ag_net *from, ag_error *err);
/* net.c: the instruction of a set. */
uint32_t ag_net_set_op(ag_net *net, uint32_t set, uint32_t next);

/* Bytes of s as a JSON string has them between its quotes; returns how many, at most 6 * n. */
size_t ag_json_escape(char *out, const char *s, size_t n);

/* Fails with this message, if nothing failed before. */
void ag_net_fail(ag_net *net, ag_status st, const ag_error *err);

/* Finds out which instructions are live and nullable; `shared`, or NULL, is finished. After a
 * failure the status. */
ag_status ag_net_finish(ag_net *net, const ag_net *shared, ag_error *err);

#endif
