/* SPDX-License-Identifier: Apache-2.0 */
/* Token tree: a vocabulary as a tree of bytes, so that tokens with a common prefix are walked
 * once. */
#ifndef AG_CONSTRAIN_PDA_TOKEN_TREE_H
#define AG_CONSTRAIN_PDA_TOKEN_TREE_H

#include <antigravity/tokenizer.h>

/* Nodes are in preorder: the first child of a node follows it, the next sibling of node i is i +
 * nodes[i].skip, and the subtree of i is [i, i + skip). */
typedef struct ag_token_node {
    uint32_t byte : 8, skip : 24;
    /* Token that ends here, or -1. ag_token_tree.same lists others with the same bytes. */
    int32_t token;
    uint32_t depth; /* bytes from the root */
} ag_token_node;

/* A token's bytes, or its last bytes, as an entry of a tree. */
typedef struct ag_token_text {
    const unsigned char *s; /* [n] borrowed */
    uint32_t n;
    int32_t id;
    uint32_t node; /* node at which it ends; set by ag_token_texts_link() */
    uint8_t chars; /* free for the caller */
} ag_token_text;

/* Sorts the list by bytes, then ids. Returns the number of nodes of its tree. */
size_t ag_token_texts_sort(ag_token_text *list, size_t n);
/* Writes the nodes of a sorted list and sets list[].node. The caller sets nodes[].token, -1 until
 * then. path: scratch of the longest text's length + 1. */
void ag_token_texts_link(ag_token_text *list, size_t n, ag_token_node *nodes, uint32_t *path);

typedef struct ag_token_tree {
    ag_token_node *nodes; /* [0] is the root */
    uint32_t n_nodes;
    uint32_t max_depth;
    size_t n_vocab;
    int32_t *same;     /* [n_vocab] next token with the same bytes, or -1 */
    uint32_t *node_of; /* [n_vocab] node at which a token ends; 0: not in the tree */
    uint32_t *start;   /* [n_vocab + 1] offsets into bytes */
    unsigned char *bytes;
} ag_token_tree;

/* A special token is not text. The tree spells it as this byte, which UTF-8 never contains, and its
 * id in big-endian order. Only a rule that names the token matches it. */
enum { AG_SPECIAL_PREFIX_BYTE = 0xFF, AG_SPECIAL_TEXT_BYTES = 5 };
/* Writes the text of a special token. */
void ag_special_token_text(int32_t id, char out[AG_SPECIAL_TEXT_BYTES]);
bool ag_token_tree_is_special(const ag_token_tree *t, int32_t id);

/* Builds the tree of ids 0 to n_vocab - 1. Leaves out ids in gaps, tokens without bytes and tokens
 * with a byte 0xFF. Release *t with ag_token_tree_free(), after a failure too. */
ag_status ag_token_tree_build(ag_token_tree *t, const ag_tokenizer *tokenizer, size_t n_vocab,
                              ag_error *err);
void ag_token_tree_free(ag_token_tree *t);

#endif
