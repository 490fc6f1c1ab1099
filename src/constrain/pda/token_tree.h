/* SPDX-License-Identifier: Apache-2.0 */
/* A vocabulary as a tree of bytes, for walking all tokens with shared beginnings once. */
#ifndef AG_CONSTRAIN_PDA_TOKEN_TREE_H
#define AG_CONSTRAIN_PDA_TOKEN_TREE_H

#include <antigravity/tokenizer.h>

/* Nodes stand in preorder: the first child of a node follows it, the next sibling of node i is
 * i + nodes[i].skip, and the subtree of i is [i, i + skip). */
typedef struct ag_token_node {
    uint32_t byte : 8, skip : 24;
    int32_t token;  /* that ends here, or -1; others with the same bytes: ag_token_tree.same */
    uint32_t depth; /* bytes from the root */
} ag_token_node;

/* A token's text, or its end, as an entry of a tree. */
typedef struct ag_token_text {
    const unsigned char *s; /* [n] borrowed */
    uint32_t n;
    int32_t id;
    uint32_t node; /* set by ag_token_texts_link(): the node at which it ends */
    uint8_t chars; /* the caller's */
} ag_token_text;

/* Sorts the list. Returns the number of nodes of its tree. */
size_t ag_token_texts_sort(ag_token_text *list, size_t n);
/* Writes the tree of a sorted list, without tokens. path has room for the longest text and 1. */
void ag_token_texts_link(ag_token_text *list, size_t n, ag_token_node *nodes, uint32_t *path);

typedef struct ag_token_tree {
    ag_token_node *nodes; /* [0] is the root */
    uint32_t n_nodes;
    uint32_t max_depth;
    size_t n_vocab;
    int32_t *same;     /* [n_vocab] the next token of the same bytes, or -1 */
    uint32_t *node_of; /* [n_vocab] where a token ends; 0: it is not in the tree */
    uint32_t *start;   /* [n_vocab + 1] of its bytes */
    unsigned char *bytes;
} ag_token_tree;

/* A special token is no text: it stands in the tree as this byte, which is in no UTF-8, and its id.
 * So only what asks for the token itself allows it. */
enum { AG_SPECIAL_PREFIX_BYTE = 0xFF, AG_SPECIAL_TEXT_BYTES = 5 };
void ag_special_token_text(int32_t id, char out[AG_SPECIAL_TEXT_BYTES]);
bool ag_token_tree_is_special(const ag_token_tree *t, int32_t id);

/* Ids in gaps, tokens without bytes or with a byte 0xFF and ids from n_vocab on are left out.
 * Release with ag_token_tree_free whatever this returns. */
ag_status ag_token_tree_build(ag_token_tree *t, const ag_tokenizer *tokenizer, size_t n_vocab,
                              ag_error *err);
void ag_token_tree_free(ag_token_tree *t);

#endif
