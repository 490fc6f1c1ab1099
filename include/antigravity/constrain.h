/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints: restrict generation to texts that match a JSON schema, a regular expression, a
 * grammar or a list of choices. A constraint computes the mask of tokens that may follow;
 * ag_sampler_constrain() (sampler.h) attaches it to a sampler. docs/guide/constraints.md lists what
 * is supported. */
#ifndef ANTIGRAVITY_CONSTRAIN_H
#define ANTIGRAVITY_CONSTRAIN_H

#include <antigravity/sampler.h>
#include <antigravity/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A vocabulary prepared for constraints. It is created once for a tokenizer and shared. Any number
 * of threads may create constraints with it at the same time. */
typedef struct ag_constraint_vocab ag_constraint_vocab;

/* Creates a vocabulary. n_vocab is ag_model_info.n_vocab, the number of bits of a mask. eos_ids are
 * the ids that may end a text, at least one. Special tokens are never part of a text. Copies what
 * it needs of t. Fails with AG_INVALID for ids outside the vocabulary. */
AG_API ag_status ag_constraint_vocab_create(const ag_tokenizer *t, size_t n_vocab,
                                            const int32_t *eos_ids, size_t n_eos,
                                            ag_constraint_vocab **out, ag_error *err);
/* Destroys a vocabulary. Every constraint created with it must be destroyed before. */
AG_API void ag_constraint_vocab_destroy(ag_constraint_vocab *v);

typedef enum ag_constraint_kind {
    AG_CONSTRAINT_JSON_SCHEMA, /* JSON that matches a schema: draft 2020-12, and drafts 4 to 7 */
    AG_CONSTRAINT_JSON_OBJECT, /* any JSON object */
    AG_CONSTRAINT_REGEX,       /* the whole text matches: ECMAScript's syntax with flag u */
    AG_CONSTRAINT_CHOICES,     /* one of the choices */
    AG_CONSTRAINT_GRAMMAR,     /* the text matches rule "root" of a GBNF grammar */
} ag_constraint_kind;

/* White space in JSON. There is never white space before "," and ":" or around the value. */
typedef enum ag_json_spacing {
    AG_JSON_NEAT,      /* none, one space, or a line break and up to 40 spaces or tabs */
    AG_JSON_COMPACT,   /* none */
    AG_JSON_ANY_SPACE, /* any number of spaces, tabs and line breaks */
} ag_json_spacing;

/* Order of the properties that a schema names. With DECLARED_ORDER other properties follow them;
 * with ANY_ORDER they may be anywhere. */
typedef enum ag_json_order {
    AG_JSON_DECLARED_ORDER, /* the schema's order, which makes the text predictable */
    AG_JSON_ANY_ORDER,      /* objects with minProperties or maxProperties keep DECLARED_ORDER */
} ag_json_order;

typedef struct ag_constraint_params {
    ag_constraint_kind kind;
    const char *text; /* [len] the schema, the regular expression or the grammar, UTF-8 */
    size_t len;
    const char *const *choices; /* [n_choices] UTF-8 */
    size_t n_choices;
    ag_json_spacing spacing; /* NEAT */
    ag_json_order order;     /* DECLARED_ORDER */
    /* Objects have declared properties only, if their schema has "properties" and says nothing
     * about others ("additionalProperties", "unevaluatedProperties", "patternProperties"); false.
     * Names in "required" are declared, and so are the properties of all schemas that hold for the
     * object. */
    bool closed_objects;
    /* Limits. A constraint that exceeds one fails with AG_LIMIT; hostile input fails within a
     * second. */
    size_t max_instructions; /* instructions of the compiled grammar; 2^20 */
    size_t max_states; /* states of one automaton; 2^16; the lazy DFA may have 16 times that */
    /* Steps to build one automaton, and steps of one token: to accept it and to compute the next
     * mask; 2^24. All tokens of a constraint and its clones together may take 8 times that number
     * until one is reset. Steps depend neither on the machine nor on other threads. */
    size_t max_work;
    size_t max_readings;    /* parses of a text that are followed at the same time; 1024 */
    size_t max_mask_bytes;  /* cached masks; 64 MiB; beyond it the cache is cleared */
    size_t max_state_bytes; /* states of the text; 128 MiB, and as much for its open rules */
    uint64_t reserved[3];   /* must be 0 */
} ag_constraint_params;
AG_API ag_constraint_params ag_constraint_defaults(ag_constraint_kind kind);

/* Creates a constraint: the state of matching one text. A constraint and its clones are used by one
 * thread at a time. The vocabulary is borrowed and must outlive it; params are not used afterwards.
 * AG_FORMAT and AG_UNSUPPORTED name what is wrong and where. Fails with AG_INVALID if no text
 * matches. */
AG_API ag_status ag_constraint_create(const ag_constraint_vocab *v,
                                      const ag_constraint_params *params, ag_constraint **out,
                                      ag_error *err);
/* Creates a constraint in the state of c, for another answer. The compiled grammar is shared. */
AG_API ag_status ag_constraint_clone(const ag_constraint *c, ag_constraint **out, ag_error *err);
AG_API void ag_constraint_destroy(ag_constraint *c);
/* Resets a constraint to the start of a text. */
AG_API ag_status ag_constraint_reset(ag_constraint *c, ag_error *err);

/* Computes the mask (*mask)[(n_vocab + 31) / 32], valid until the next call. Bit id % 32 of word
 * id / 32 is set if the token may follow. EOS ids are set where the text may end. Fails with
 * AG_INVALID if no token of the vocabulary may follow. A grammar with a trigger has text that is
 * free: *mask is then NULL, for every token, or has all tokens but those that
 * ag_constraint_accept() has rejected here. */
AG_API ag_status ag_constraint_mask(ag_constraint *c, const uint32_t **mask, ag_error *err);
/* Advances by one token. Fails with AG_INVALID, and changes nothing but the mask of free text, if
 * it may not follow, and with AG_LIMIT if too many tokens were rejected in a row. */
AG_API ag_status ag_constraint_accept(ag_constraint *c, int32_t id, ag_error *err);
/* Return whether the text may end here, and whether it has ended with an EOS id. */
AG_API bool ag_constraint_may_end(const ag_constraint *c);
AG_API bool ag_constraint_has_ended(const ag_constraint *c);

/* Appends the forced bytes, at most `most`: those that follow in every matching text. Appends
 * nothing if several bytes are possible or the text may end. */
AG_API ag_status ag_constraint_forced_text(ag_constraint *c, size_t most, ag_text *out,
                                           ag_error *err);
/* Appends the forced bytes as tokens, for a draft. Other tokens may produce the same text, so the
 * model must verify them, but in one step. Bytes at the end that could start a longer token are
 * omitted. */
AG_API ag_status ag_constraint_forced(ag_constraint *c, size_t most, ag_ids *out, ag_error *err);

#ifdef __cplusplus
}
#endif
#endif
