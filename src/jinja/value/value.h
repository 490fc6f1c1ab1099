/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a template while it is rendered. They live in the render's arena, are passed by value
 * and never change, namespaces and iterators excepted (the sandbox forbids what would change lists
 * and dicts), so nothing but a namespace can hold itself. */
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
    AG_JFAIL, /* of a result: the error stands in the context; of an argument: not given */
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
    AG_JFUNCTION, /* a global of the environment */
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

/* A string: UTF-8, and which of its bytes are the conversation's. Several strings may share the
 * bytes and the spans of one buffer: spans count from `origin` bytes before the text. */
struct ag_jstr {
    const char *text; /* not terminated */
    size_t len;
    size_t n_chars;             /* code points; SIZE_MAX: not yet counted */
    const ag_jinja_span *spans; /* ascending; those outside [origin, origin + len) do not count */
    size_t n_spans, origin;
    ag_jbuf *buffer;   /* contains the text; NULL: the text outlives all regions, or is_local */
    uint32_t hash;     /* 0: not yet computed */
    bool markup;       /* |safe: + and % escape what is not */
    bool is_permanent; /* belongs to the template or to the entire render, not to a region */
    bool is_local;     /* text and spans are in the arena of regions */
};

/* A block of the heap that has become too small, but strings refer to it. The record of the one
 * before is stored after its bytes. */
typedef struct ag_jretired {
    void *block;
    size_t bytes;
} ag_jretired;

/* A string that grows. Its bytes and spans are blocks of the heap, so it may grow inside of a
 * region that is newer than itself. They are freed when the region that made it ends. */
struct ag_jbuf {
    char *text;
    size_t len, cap;
    ag_jinja_span *spans;
    size_t n_spans, cap_spans;
    size_t max_len;                 /* bytes it may hold; 0: what the memory's limit allows */
    bool shares_text, shares_spans; /* strings refer to the block: it must not move */
    ag_jretired retired;            /* the newest */
    ag_jbuf *older;                 /* made before this one */
    uint64_t region;                /* the region in which it was made */
};

/* A list that refers to a JSON array has no items; ag_jlist_get() creates them. */
struct ag_jlist {
    ag_jv *items;
    ag_jbuf *buffer;      /* NULL, or contains the items: more may be appended after them */
    const json_t *source; /* NULL, or an array whose elements from `first` on are the items */
    size_t first, n, cap;
    bool is_group; /* what groupby gives: .grouper and .list */
    bool is_slice; /* a slice: not identical to the list that it shares items with */
    bool from_input;
};

typedef struct ag_jentry {
    ag_jv key, value;
    uint32_t hash;
} ag_jentry;

struct ag_jdict {
    ag_jentry *entries;   /* in the order of insertion; see ag_jdict_entries() */
    const json_t *source; /* NULL, or an object that the entries are those of */
    size_t n, cap;
    uint32_t *slots; /* of a larger dict: index + 1 of the entry, or 0; 2^k of them */
    size_t n_slots;
    uint64_t region; /* the region in which it was made */
    bool from_input;
};

/* Why a value is undefined, for the message if it is used. */
struct ag_jundefined {
    const char *hint; /* the whole message, or NULL */
    ag_jv of;         /* the object without that attribute; AG_JFAIL: a variable */
    ag_jv name;       /* string, or the element's number */
    bool unsafe;      /* the sandbox forbids it */
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
    int id; /* of the list in jinja_methods.h */
};

/* next: 1 an item was stored, 0 the end, -1 failed. */
struct ag_jiter {
    int (*next)(ag_jctx *c, ag_jiter *it, ag_jv *item);
    const char *type_name;
    ag_jv source;    /* what `at` counts in */
    ag_jiter *inner; /* or what items are taken from */
    size_t at, end;
    void *state;     /* state of filters */
    uint64_t region; /* the region in which it was made */
};

typedef struct ag_jargs {
    ag_jv *items;
    size_t n;
    ag_jdict *keywords; /* or NULL */
} ag_jargs;

/* Results of a comparison, beside negative, 0 and positive. */
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
/* int or bool, as Python sees it */
static inline bool ag_jis_integer(ag_jv v) { return v.kind == AG_JINT || v.kind == AG_JBOOL; }
static inline int64_t ag_jinteger(ag_jv v) {
    return v.kind == AG_JBOOL ? v.as.boolean : v.as.integer;
}
static inline bool ag_jis_number(ag_jv v) { return ag_jis_integer(v) || v.kind == AG_JFLOAT; }
static inline double ag_jnumber(ag_jv v) {
    return v.kind == AG_JFLOAT ? v.as.number : (double)ag_jinteger(v);
}

#endif
