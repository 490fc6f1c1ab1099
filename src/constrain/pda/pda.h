/* SPDX-License-Identifier: Apache-2.0 */
/* A grammar as instructions over bytes: rules that call each other. Each part is written in front
 * of what follows it: the functions take the instruction that comes next and return the first of
 * what they wrote. The first failure sticks (net->status): one check at the end is enough. */
#ifndef AG_CONSTRAIN_PDA_PDA_H
#define AG_CONSTRAIN_PDA_PDA_H

#include "constrain/interner.h"
#include "constrain/regex/text_dfa.h"

typedef enum ag_pda_inst_kind {
    AG_PDA_BYTES, /* one byte of lo..hi, then next */
    AG_PDA_SPLIT, /* next or other */
    AG_PDA_CALL,  /* rule `other`, then next */
    AG_PDA_END,   /* of a rule */
    AG_PDA_SET,   /* members of an object are there, ag_pda.sets[other]; hi: next tells what may
                   * follow, before that ag_pda_open_set() */
} ag_pda_inst_kind;

typedef struct ag_pda_inst {
    uint8_t kind, lo, hi;
    bool live;     /* the rule's end can be reached (ag_pda_finish) */
    bool nullable; /* and without a byte */
    uint32_t next, other;
} ag_pda_inst;

/* Rules and states of the shared part (json_rules.h) carry this bit in their numbers. */
#define AG_PDA_SHARED 0x80000000u
#define AG_PDA_FAIL UINT32_MAX
#define AG_PDA_UNSET UINT32_MAX

typedef enum ag_rule_kind {
    AG_RULE_PLAIN,
    AG_RULE_LENGTH, /* the shared string, with least..most characters */
    AG_RULE_NAME,   /* the shared name, none of names[guard] */
} ag_rule_kind;

typedef struct ag_pda_rule {
    ag_rule_kind kind;
    uint32_t start;    /* PLAIN: an instruction */
    uint32_t min, max; /* LENGTH; UINT32_MAX: no end */
    uint32_t guard;    /* NAME: the root of its tree in ag_pda.names */
    bool live, nullable;
} ag_pda_rule;

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
typedef struct ag_pda_member {
    uint32_t rule; /* name, colon and value */
    bool required;
} ag_pda_member;
typedef struct ag_pda_object {
    ag_pda_member *members; /* [n], owned by the net */
    uint32_t n;
    uint32_t other;    /* a rule of one more property; NOWHERE: there are none */
    uint32_t comma;    /* a rule: what stands between two */
    uint32_t close;    /* an instruction behind the last one */
    uint32_t min, max; /* how many members there are; most 0: no end */
} ag_pda_object;

typedef struct ag_pda_limits {
    size_t insts;
    ag_text_limits text;
} ag_pda_limits;

typedef struct ag_pda {
    ag_pda_inst *insts;
    size_t n_insts, insts_cap;
    uint32_t *slots; /* instructions other than SPLIT are written once: id + 1 by hash */
    size_t n_slots;
    ag_pda_rule *rules;
    size_t n_rules, rules_cap;
    ag_name_node *names; /* [0] is nobody's */
    size_t n_names, names_cap;
    ag_pda_object *objects;
    size_t n_objects, objects_cap;
    ag_interner sets; /* of members of objects, and the instruction of each */
    uint32_t *set_insts;
    size_t set_insts_cap;
    bool finished;                        /* what is written from here on is live */
    size_t finished_insts, finished_sets; /* what there was then: the rest are opened sets */
    uint32_t id_bit;                      /* AG_PDA_SHARED or 0: of the rules' numbers */
    ag_pda_limits limits;
    size_t text_steps; /* of all automata: limits.text.spent */
    ag_status status;
    ag_error error; /* where status is not OK */
} ag_pda;

/* net stays where it is: its limits point into it. */
void ag_pda_init(ag_pda *pda, const ag_pda_limits *limits, uint32_t id_bit);
void ag_pda_free(ag_pda *pda);

/* A rule whose start is set later, or with a start. Returns its number. */
uint32_t ag_pda_rule_add(ag_pda *pda, ag_pda_rule rule);
void ag_pda_rule_set_start(ag_pda *pda, uint32_t rule, uint32_t start);

uint32_t ag_pda_bytes(ag_pda *pda, uint8_t lo, uint8_t hi, uint32_t next);
uint32_t ag_pda_split(ag_pda *pda, uint32_t next, uint32_t other);
void ag_pda_patch(ag_pda *pda, uint32_t split, uint32_t next);
uint32_t ag_pda_call(ag_pda *pda, uint32_t rule, uint32_t next);
uint32_t ag_pda_end(ag_pda *pda);
uint32_t ag_pda_literal(ag_pda *pda, const char *s, size_t n, uint32_t next);
/* One way or the other; NOWHERE is no way. */
uint32_t ag_pda_either(ag_pda *pda, uint32_t a, uint32_t b);

/* One code point of [lo, hi], as UTF-8. */
uint32_t ag_pda_chars(ag_pda *pda, uint32_t lo, uint32_t hi, uint32_t next);

/* How a character stands in the text. */
typedef enum ag_text_form {
    AG_FORM_TEXT, /* as UTF-8 */
    AG_FORM_JSON, /* inside of a JSON string: quotes, backslashes and controls escaped, in the one
                   * way that json.dumps of Python has */
} ag_text_form;
/* A text of the language. */
uint32_t ag_pda_dfa(ag_pda *pda, const ag_text_dfa *d, ag_text_form form, uint32_t next);
/* All of a regular expression, which is ours and right. */
uint32_t ag_pda_regex(ag_pda *pda, const char *regex, uint32_t next);
/* The text as it stands in a JSON string, without the quotes. */
uint32_t ag_pda_json_text(ag_pda *pda, const char *s, size_t n, uint32_t next);

/* A tree for AG_RULE_NAME. Returns its root. */
uint32_t ag_pda_names_new(ag_pda *pda);
void ag_pda_names_add(ag_pda *pda, uint32_t root, const char *name, size_t n);

/* net_objects.c: takes the members over, after a failure, too. Returns its number. */
uint32_t ag_pda_object_add(ag_pda *pda, const ag_pda_object *object);
/* The first member and all that follows it, the closing brace included. */
uint32_t ag_pda_object_start(ag_pda *pda, uint32_t object);
/* Writes what may follow a set of members; net->status tells. */
void ag_pda_open_set(ag_pda *pda, uint32_t inst);
/* The same net as it was when it was finished. Release *to whatever this returns. */
ag_status ag_pda_copy_closed(ag_pda *to, const ag_pda *from, ag_error *err);
/* net.c: the instruction of a set. */
uint32_t ag_pda_set(ag_pda *pda, uint32_t set, uint32_t next);

/* Bytes of s as a JSON string has them between its quotes; returns how many, at most 6 * n. */
size_t ag_json_escape(char *out, const char *s, size_t n);

/* Fails with this message, if nothing failed before. */
void ag_pda_fail(ag_pda *pda, ag_status st, const ag_error *err);

/* Finds out which instructions are live and nullable; `shared`, or NULL, is finished. After a
 * failure the status. */
ag_status ag_pda_finish(ag_pda *pda, const ag_pda *shared, ag_error *err);

#endif
