/* SPDX-License-Identifier: Apache-2.0 */
/* Drives a protocol without a server: passes bodies to its parser and invented answers to its
 * writer, and records the output. */
#ifndef AG_TESTS_PROTOCOL_BENCH_H
#define AG_TESTS_PROTOCOL_BENCH_H

#include "cli.h"

#include "../../programs/antigravity/serve/request/route.h"

enum { BENCH_STORE_BYTES = 64 << 10 }; /* limit of the store of responses */

/* Result of a parser. error.status: 0, or the status of the rejection. */
typedef struct parsed_body {
    serve_request request;
    serve_error error;
} parsed_body;

extern const serve_route anthropic_routes[], responses_routes[], ollama_routes[];

/* Returns the protocol of a path in the list; fails the test if there is none. */
const serve_protocol *protocol_at(const serve_route *list, const char *path);

/* Parses JSON; ' may replace ". */
json_t *json_of(const char *text);
parsed_body *parse_body(const serve_protocol *p, const char *body);
void parsed_free(parsed_body *parsed);
/* Asserts that a body is accepted and becomes these messages. */
void assert_messages(const serve_protocol *p, const char *body, const char *expected);
/* Asserts that a body is rejected with this status and a message that contains `part`. */
void assert_body_refused(const serve_protocol *p, const char *body, int status, const char *part);
/* Asserts that a value equals the JSON. */
void assert_json(const json_t *value, const char *expected);

/* ---- answers ---- */

typedef struct answer_step {
    serve_event_kind kind;
    const char *text;    /* CONTENT, REASONING, ARGUMENTS: text; CALL: name */
    serve_finish finish; /* ANSWERED */
    const char *stop;    /* ANSWERED */
} answer_step;

/* Runs the steps as the answer to a body, whose "stream" selects the form. Returns the reply: the
 * body, or a list of [event name, data] (null as the name of NDJSON and comments). The prompt has 9
 * tokens, of which 4 are cached; 3 are generated. */
json_t *answer_body(const serve_protocol *p, const char *body, const answer_step *steps, size_t n);

void assert_at(const json_t *value, const char *path, const char *expected);

#endif
