/* SPDX-License-Identifier: Apache-2.0 */
/* Pushdown automaton: a compiled grammar. Rules are programs over bytes that call each other. A
 * program is written back to front: each function takes the instruction that comes next and returns
 * the first of those it wrote. The first failure sticks (pda->status), so one check at the end is
 * enough. */
#ifndef AG_CONSTRAIN_PDA_PDA_H
#define AG_CONSTRAIN_PDA_PDA_H

#include "constrain/interner.h"
#include "constrain/regex/text_dfa.h"

typedef enum ag_pda_inst_kind {
    AG_PDA_BYTES, /* matches one byte of lo..hi, then next */
    AG_PDA_SPLIT, /* next or other */
    AG_PDA_CALL,  /* calls the rule `other`, then next */
    AG_PDA_END,   /* ends the rule */
    /* pda.sets[other] are the members seen so far. hi 1: opened, next is what may follow. hi 0:
     * next only tells whether the end can be reached. */
    AG_PDA_SET,
} ag_pda_inst_kind;

typedef struct ag_pda_inst {
    uint8_t kind, lo, hi;
    bool live;     /* the end of the rule can be reached (set by ag_pda_finish()) */
    bool nullable; /* the end can be reached without a byte */
    uint32_t next, other;
} ag_pda_inst;

/* Numbers of shared rules and states (json_rules.h) carry this bit. */
#define AG_PDA_SHARED 0x80000000u
/* The instruction that never matches. */
#define AG_PDA_FAIL UINT32_MAX
/* An instruction that is not written yet. If it stays so, it never matches. */
#define AG_PDA_UNSET UINT32_MAX

typedef enum ag_rule_kind {
    AG_RULE_PLAIN,
    AG_RULE_LENGTH, /* the shared `string` with min..max characters */
    AG_RULE_NAME,   /* the shared `name`, except the names in names[guard] */
} ag_rule_kind;

typedef struct ag_pda_rule {
    ag_rule_kind kind;
    uint32_t start;    /* PLAIN: the first instruction */
    uint32_t min, max; /* LENGTH: characters; UINT32_MAX: unlimited */
    uint32_t guard;    /* NAME: root of a tree in ag_pda.names */
    bool live, nullable;
} ag_pda_rule;

/* A tree of excluded names, byte by byte, as JSON strings spell them. */
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

/* unordered.c: members in any order, each at most once: the properties of an object, or the values
 * of an array with unique items. */
enum { AG_OBJECT_MEMBERS = 255 };
typedef struct ag_pda_member {
    uint32_t rule; /* a whole member; in objects: name, colon and value */
    bool required;
} ag_pda_member;
typedef struct ag_pda_object {
    ag_pda_member *members; /* [n] owned by the PDA */
    uint32_t n;
    uint32_t other;    /* rule of an undeclared member; AG_PDA_FAIL: not allowed */
    uint32_t comma;    /* rule between two members */
    uint32_t close;    /* instruction after the last member */
    uint32_t min, max; /* number of members; max 0: unlimited */
} ag_pda_object;

typedef struct ag_pda_limits {
    size_t insts;
    ag_text_limits text;
} ag_pda_limits;

typedef struct ag_pda {
    ag_pda_inst *insts;
    size_t n_insts, insts_cap;
    uint32_t *slots; /* id + 1 by hash. Instructions other than SPLIT and SET are written once */
    size_t n_slots;
    ag_pda_rule *rules;
    size_t n_rules, rules_cap;
    ag_name_node *names; /* [0] is unused */
    size_t n_names, names_cap;
    ag_pda_object *objects;
    size_t n_objects, objects_cap;
    /* An object's number and its members seen so far, as bits; and the instruction of each set. */
    ag_interner sets;
    uint32_t *set_insts;
    size_t set_insts_cap;
    bool finished; /* new instructions are live */
    /* Counts when it was finished. Later ones come from opened sets. */
    size_t finished_insts, finished_sets;
    uint32_t id_bit; /* bit of its rule numbers: AG_PDA_SHARED or 0 */
    ag_pda_limits limits;
    size_t n_nodes;    /* nodes of grammars written so far, empty ones included */
    size_t n_parts;    /* parts that begin with %, of all grammars */
    size_t text_steps; /* steps of all text automata: limits.text.spent points here */
    ag_status status;
    ag_error error; /* valid if status is not AG_OK */
} ag_pda;

/* Initialises a PDA. It must not move: limits.text.spent points into it. */
void ag_pda_init(ag_pda *pda, const ag_pda_limits *limits, uint32_t id_bit);
void ag_pda_free(ag_pda *pda);

/* Add a rule, with its start or AG_PDA_UNSET, and return its number. */
uint32_t ag_pda_rule_add(ag_pda *pda, ag_pda_rule rule);
uint32_t ag_pda_rule_plain(ag_pda *pda, uint32_t start);
void ag_pda_rule_set_start(ag_pda *pda, uint32_t rule, uint32_t start);

/* Write one instruction and return it. */
uint32_t ag_pda_bytes(ag_pda *pda, uint8_t lo, uint8_t hi, uint32_t next);
static inline uint32_t ag_pda_byte(ag_pda *pda, char c, uint32_t next) {
    return ag_pda_bytes(pda, (uint8_t)c, (uint8_t)c, next);
}
uint32_t ag_pda_split(ag_pda *pda, uint32_t next, uint32_t other);
/* Sets `next` of a SPLIT instruction. */
void ag_pda_patch(ag_pda *pda, uint32_t split, uint32_t next);
uint32_t ag_pda_call(ag_pda *pda, uint32_t rule, uint32_t next);
uint32_t ag_pda_end(ag_pda *pda);
/* Writes the bytes of s, then next. */
uint32_t ag_pda_literal(ag_pda *pda, const char *s, size_t n, uint32_t next);
/* Writes a choice between a and b. AG_PDA_FAIL for one of them returns the other. */
uint32_t ag_pda_either(ag_pda *pda, uint32_t a, uint32_t b);

/* Writes one code point of [lo, hi] as UTF-8, then next. Surrogates are left out. */
uint32_t ag_pda_chars(ag_pda *pda, uint32_t lo, uint32_t hi, uint32_t next);

/* Spellings of a character. */
typedef enum ag_text_form {
    AG_FORM_TEXT, /* as UTF-8 */
    /* In a JSON string: quotes, backslashes and controls escaped as by Python's json.dumps. */
    AG_FORM_JSON,
} ag_text_form;
/* Writes a text of the automaton, then next. Returns AG_PDA_FAIL if it accepts none. */
uint32_t ag_pda_dfa(ag_pda *pda, const ag_text_dfa *d, ag_text_form form, uint32_t next);
/* Writes a match of the whole expression, then next. The expression must be valid. */
uint32_t ag_pda_regex(ag_pda *pda, const char *regex, uint32_t next);
/* Writes s as JSON spells it between quotes, then next. */
uint32_t ag_pda_json_text(ag_pda *pda, const char *s, size_t n, uint32_t next);

/* Adds an empty tree of names for AG_RULE_NAME. Returns its root. */
uint32_t ag_pda_names_new(ag_pda *pda);
/* Adds a name to a tree. */
void ag_pda_names_add(ag_pda *pda, uint32_t root, const char *name, size_t n);

/* unordered.c: adds an object and takes its members over, after a failure too. Returns its
 * number. */
uint32_t ag_pda_object_add(ag_pda *pda, const ag_pda_object *object);
/* Writes one or more members in any order, then object->close. The caller writes the empty
 * object. */
uint32_t ag_pda_object_start(ag_pda *pda, uint32_t object);
/* Writes what may follow a SET instruction, if it is not open yet. pda->status holds a failure. */
void ag_pda_open_set(ag_pda *pda, uint32_t inst);
/* Copies a finished PDA without the sets that texts have opened. Release *to with ag_pda_free(),
 * after a failure too. */
ag_status ag_pda_copy_closed(ag_pda *to, const ag_pda *from, ag_error *err);
/* pda.c: writes a SET instruction. next: tells whether the end can be reached. */
uint32_t ag_pda_set(ag_pda *pda, uint32_t set, uint32_t next);

/* Sets status and error, if nothing failed before. Does nothing for AG_OK. */
void ag_pda_fail(ag_pda *pda, ag_status st, const ag_error *err);

/* Sets `live` and `nullable` of all instructions and rules. shared: the finished PDA of JSON, or
 * NULL. Returns pda->status if something failed before. */
ag_status ag_pda_finish(ag_pda *pda, const ag_pda *shared, ag_error *err);

#endif
