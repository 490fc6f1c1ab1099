/* SPDX-License-Identifier: Apache-2.0 */
/* Drives a protocol of the server without a server: bodies go into its parser, made-up answers into
 * its writer, and what it writes is kept. */
#ifndef AG_TESTS_PROTOCOL_BENCH_H
#define AG_TESTS_PROTOCOL_BENCH_H

#include "cli.h"

#include "../../programs/antigravity/serve/request/route.h"

/* What the parser made of a body: status is 0, or that of the refusal. */
typedef struct parsed_body {
    serve_request request;
    serve_error error;
} parsed_body;

extern const serve_route anthropic_routes[], responses_routes[], ollama_routes[];

/* The protocol of a path of these lists; fails the test if there is none. */
const serve_protocol *protocol_at(const serve_route *list, const char *path);

/* The JSON may have ' in place of ". */
json_t *json_of(const char *text);
parsed_body *parse_body(const serve_protocol *p, const char *body);
void parsed_free(parsed_body *parsed);
/* That it is taken, and what messages it becomes. */
void assert_messages(const serve_protocol *p, const char *body, const char *expected);
/* That it is refused with that status and a message that has `part` in it. */
void assert_body_refused(const serve_protocol *p, const char *body, int status, const char *part);
/* That a value equals what the JSON says. Releases the value with `owned`. */
void assert_json(const json_t *value, const char *expected);

/* ---- answers ---- */

typedef struct answer_step {
    serve_event_kind kind;
    const char *text;    /* of CONTENT, REASONING, ARGUMENTS; the name of CALL */
    serve_finish finish; /* of ANSWERED */
    const char *stop;    /* of ANSWERED */
} answer_step;

/* Runs the steps as the answer to the body; "stream" in it decides how. Returns what the client
 * gets: the whole body, or a list of [name of the event, data] (NDJSON and comments: null as the
 * name). 9 tokens of prompt of which 4 were cached, 3 generated. */
json_t *answer_body(const serve_protocol *p, const char *body, const answer_step *steps, size_t n);

void assert_at(const json_t *value, const char *path, const char *expected);

#endif
