/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a template during a render. They are stored in the render's arena, passed by value and
 * immutable, except namespaces and iterators: the sandbox forbids changes to lists and dicts.
 * Therefore only a namespace can contain itself. */
#ifndef AG_JINJA_VALUE_VALUE_H
#define AG_JINJA_VALUE_VALUE_H

#include "jinja/arena.h"
#include "jinja/jinja.h"

typedef struct ag_jctx ag_jctx;
typedef struct ag_jnode ag_jnode;
typedef struct ag_jscope ag_jscope;
typedef struct ag_jstr ag_jstr;
typedef struct ag_jbuf ag_jbuf;
typedef struct ag_jlist ag_jlist;
typedef struct ag_jdict ag_jdict;
typedef struct ag_jiter ag_jiter;
typedef struct ag_jundefined ag_jundefined;
typedef struct ag_jmacro ag_jmacro;
typedef struct ag_jloop ag_jloop;
typedef struct ag_jmethod ag_jmethod;
typedef struct ag_jrange ag_jrange;
typedef struct ag_jview ag_jview;

typedef enum ag_jkind {
    AG_JFAIL, /* result: an error is in the context; argument: not given */
    AG_JUNDEFINED,
    AG_JNONE,
    AG_JBOOL,
    AG_JINT,
    AG_JFLOAT,
    AG_JSTRING,
    AG_JLIST,
    AG_JTUPLE,
    AG_JDICT,
    AG_JRANGE,
    AG_JVIEW, /* keys(), values() or items() of a dict */
    AG_JITERATOR,
    AG_JNAMESPACE,
    AG_JMACRO,
    AG_JFUNCTION, /* function of the environment */
    AG_JMETHOD,   /* bound to its object */
    AG_JLOOP,
} ag_jkind;

typedef struct ag_jv {
    ag_jkind kind;
    union {
        bool boolean;
        int64_t integer;
        double number;
        ag_jstr *string;
        ag_jlist *list; /* and tuple */
        ag_jdict *dict; /* and namespace */
        const ag_jundefined *undefined;
        const ag_jrange *range;
        const ag_jview *view;
        ag_jiter *iterator;
        const ag_jmacro *macro;
        const ag_jmethod *method;
        ag_jloop *loop;
    } as;
} ag_jv;

/* UTF-8 string that records which bytes are input. Strings may share text and spans of a buffer:
 * span offsets count from `origin` bytes before the text. */
struct ag_jstr {
    const char *text; /* not NUL-terminated */
    size_t len;
    size_t n_chars;             /* code points; SIZE_MAX: not counted yet */
    const ag_jinja_span *spans; /* ascending; only those within [origin, origin + len) apply */
    size_t n_spans, origin;
    ag_jbuf *buffer;   /* contains the text; NULL: not in a buffer of a region */
    uint32_t hash;     /* 0: not computed yet */
    bool markup;       /* safe HTML: + and % escape other operands */
    bool is_permanent; /* belongs to the template or the entire render, not to a region */
    bool is_local;     /* text and spans are in the regions' arena */
};

/* Outgrown heap block that strings still refer to. The record of the previous one is stored after
 * its bytes. */
typedef struct ag_jretired {
    void *block;
    size_t bytes;
} ag_jretired;

/* Growing string. Text and spans are heap blocks, so it may grow inside a region newer than itself.
 * The end of its own region frees them. */
struct ag_jbuf {
    char *text;
    size_t len, cap;
    ag_jinja_span *spans;
    size_t n_spans, cap_spans;
    size_t max_len;                 /* maximum length in bytes; 0: only the memory limit applies */
    bool shares_text, shares_spans; /* strings refer to the block: it must not move */
    ag_jretired retired;            /* newest */
    ag_jbuf *older;                 /* previously created buffer */
    uint64_t region;                /* number of the region that created it */
};

/* List or tuple. One that refers to a JSON array has no items; ag_jlist_get() creates them. */
struct ag_jlist {
    ag_jv *items;
    ag_jbuf *buffer;      /* contains the items, more may be appended; NULL: none */
    const json_t *source; /* JSON array whose elements from `first` on are the items; NULL: none */
    size_t first, n, cap;
    bool is_group; /* item of groupby: has .grouper and .list */
    bool is_slice; /* `is sameas` distinguishes it from the list whose items it shares */
    bool from_input;
};

typedef struct ag_jentry {
    ag_jv key, value;
    uint32_t hash;
} ag_jentry;

struct ag_jdict {
    ag_jentry *entries;   /* in insertion order; see ag_jdict_entries() */
    const json_t *source; /* JSON object of the entries; NULL: none */
    size_t n, cap;
    uint32_t *slots; /* hash table if n > 8: entry index + 1, or 0; 2^k slots */
    size_t n_slots;
    uint64_t region; /* number of the region that created it */
    bool from_input;
};

/* Reason why a value is undefined, for the message when it is used. */
struct ag_jundefined {
    const char *hint; /* full message, or NULL */
    ag_jv of;         /* object that lacks the attribute; AG_JFAIL: a variable */
    ag_jv name;       /* attribute (string) or index */
    bool unsafe;      /* forbidden by the sandbox */
};

struct ag_jrange {
    int64_t start, stop, step;
    size_t n;
};

typedef enum ag_jview_kind { AG_JVIEW_KEYS, AG_JVIEW_VALUES, AG_JVIEW_ITEMS } ag_jview_kind;
struct ag_jview {
    ag_jdict *dict;
    ag_jview_kind kind;
};

struct ag_jmethod {
    ag_jv self;
    int id; /* index in the table of methods.c */
};

/* next() returns 1 and stores an item, 0 at the end, -1 on failure. */
struct ag_jiter {
    int (*next)(ag_jctx *c, ag_jiter *it, ag_jv *item);
    const char *type_name;
    ag_jv source;    /* indexed by `at` */
    ag_jiter *inner; /* or the iterator that items come from */
    size_t at, end;
    void *state;     /* private to `next` */
    uint64_t region; /* number of the region that created it */
};

typedef struct ag_jargs {
    ag_jv *items;
    size_t n;
    ag_jdict *keywords; /* or NULL */
} ag_jargs;

/* Further results of ag_jcompare(). */
enum { AG_JCOMPARE_FAILED = 99, AG_JCOMPARE_UNORDERED = 98 /* NaN */ };

const char *ag_jtype_name(ag_jv v); /* "str", "NoneType", "dict" ... */
bool ag_jtruth(ag_jv v);

static inline ag_jv ag_jfail_value(void) { return (ag_jv){.kind = AG_JFAIL}; }
static inline bool ag_jfailed(ag_jv v) { return v.kind == AG_JFAIL; }
static inline ag_jv ag_jnone(void) { return (ag_jv){.kind = AG_JNONE}; }
static inline ag_jv ag_jbool(bool b) { return (ag_jv){AG_JBOOL, {.boolean = b}}; }
static inline ag_jv ag_jint(int64_t i) { return (ag_jv){AG_JINT, {.integer = i}}; }
static inline ag_jv ag_jfloat(double d) { return (ag_jv){AG_JFLOAT, {.number = d}}; }
static inline ag_jv ag_jstring(ag_jstr *s) {
    return s ? (ag_jv){AG_JSTRING, {.string = s}} : ag_jfail_value();
}
static inline ag_jv ag_jlist_value(ag_jlist *l) {
    return l ? (ag_jv){AG_JLIST, {.list = l}} : ag_jfail_value();
}
static inline ag_jv ag_jtuple_value(ag_jlist *l) {
    return l ? (ag_jv){AG_JTUPLE, {.list = l}} : ag_jfail_value();
}
static inline ag_jv ag_jdict_value(ag_jdict *d) {
    return d ? (ag_jv){AG_JDICT, {.dict = d}} : ag_jfail_value();
}
static inline ag_jv ag_jiter_value(ag_jiter *it) {
    return it ? (ag_jv){AG_JITERATOR, {.iterator = it}} : ag_jfail_value();
}
static inline bool ag_jis_sequence(ag_jv v) { return v.kind == AG_JLIST || v.kind == AG_JTUPLE; }
/* Returns whether v is an int or a bool, which Python treats as an int. */
static inline bool ag_jis_integer(ag_jv v) { return v.kind == AG_JINT || v.kind == AG_JBOOL; }
static inline int64_t ag_jinteger(ag_jv v) {
    return v.kind == AG_JBOOL ? v.as.boolean : v.as.integer;
}
static inline bool ag_jis_number(ag_jv v) { return ag_jis_integer(v) || v.kind == AG_JFLOAT; }
static inline double ag_jnumber(ag_jv v) {
    return v.kind == AG_JFLOAT ? v.as.number : (double)ag_jinteger(v);
}

#endif
