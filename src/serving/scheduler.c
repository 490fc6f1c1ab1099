/* SPDX-License-Identifier: Apache-2.0 */
/* Scheduler: one step runs the next token of every answer, then prompt chunks in the remaining
 * rows.
 *
 * Requests share a pass only as far as each gets the bits that it gets alone. A pass of short items
 * has at most batch_invariant_rows() rows. Another has any number of long chunks, of which at most
 * batch_invariant_rows() end a prompt: the last layer computes only their last rows. Long chunks
 * whose rows are all needed have a pass of their own. Prompts are cut into the same chunks whatever
 * else runs. */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "serving/logprobs.h"
#include "serving/serving_impl.h"
#include "session/session_impl.h"

/* Items of a pass with their requests. */
typedef struct step_pass {
    ag_step_item items[AG_SERVING_MAX_RUNNING];
    ag_answer *answers[AG_SERVING_MAX_RUNNING]; /* NULL: a prompt chunk */
    ag_served_request *requests[AG_SERVING_MAX_RUNNING];
    size_t n, n_rows;
} step_pass;

/* Returns the maximum number of rows of different requests in a pass: each row has the same bits as
 * when computed alone. */
static size_t batch_invariant_rows(const ag_serving *s) {
    const uint32_t rows = ag_batch_invariant_rows(s->backend);
    return s->params.wide_steps ? SIZE_MAX : rows ? rows : 1;
}

static void fail_request(ag_served_request *r, ag_status st, const ag_error *err) {
    if (r->status != AG_OK) return;
    r->status = st;
    r->error = *err;
}

/* ---- after a pass ---- */

static void after_chunk(ag_serving *s, ag_served_request *r, size_t n) {
    ag_request_event e = {.kind = AG_REQUEST_READ, .id = -1};
    ag_error err;
    ag_status st = AG_OK;
    r->n_read += n;
    r->served = ++s->n_chunks;
    ag_request_send_event(r, &e);
    if (r->n_read == r->p.n_prompt) st = ag_request_prompt_read(s, r, &err);
    if (st != AG_OK) fail_request(r, st, &err);
}

/* Finds in one query what the answers whose masks are made need. Answers after a late one are late,
 * too. If the query fails, each choice has its own, which reports the error. */
static void find_masked(const step_pass *p) {
    const ag_served_request *late = NULL;
    ag_session *sessions[AG_SERVING_MAX_RUNNING];
    ag_sampler *samplers[AG_SERVING_MAX_RUNNING];
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) {
        const ag_served_request *r = p->requests[i];
        ag_answer *a = p->answers[i];
        if (!a || !r->masks || r->status != AG_OK || r->n_late) continue;
        if (r == late || !ag_mask_group_is_ready(r->masks, a->index)) {
            late = r;
            continue;
        }
        sessions[n] = a->session;
        samplers[n++] = a->sampler;
    }
    (void)ag_session_find_tops(sessions, samplers, n, NULL);
}

/* Counts the pass, advances prompts and chooses tokens of answers. */
static void after_pass(ag_serving *s, const step_pass *p) {
    ag_served_model *m = p->requests[0]->p.model;
    s->now.n_steps++;
    s->now.n_rows += p->n_rows;
    if (p->n_rows > m->touched_rows) m->touched_rows = p->n_rows;
    find_masked(p);
    for (size_t i = 0; i < p->n; i++) {
        ag_served_request *r = p->requests[i];
        ag_error err;
        if (!p->answers[i]) {
            after_chunk(s, r, p->items[i].n);
            continue;
        }
        if (r->status != AG_OK) continue;
        const ag_status st = ag_answer_choose_or_wait(s, p->answers[i], &err);
        if (st != AG_OK) fail_request(r, st, &err);
    }
}

/* ---- passes ---- */

static void add_item(step_pass *p, ag_served_request *r, ag_answer *a, ag_step_item item) {
    p->items[p->n] = item;
    p->answers[p->n] = a;
    p->requests[p->n++] = r;
    p->n_rows += item.n;
}

static void run_alone(ag_serving *s, const step_pass *one) {
    ag_error err;
    const ag_status st = ag_session_step(one->items, 1, &err);
    if (st == AG_OK) after_pass(s, one);
    else fail_request(one->requests[0], st, &err);
}

/* Repeats a failed step item by item: a step fails as a whole, and the fault may be one request's.
 */
static void run_one_by_one(ag_serving *s, const step_pass *p) {
    for (size_t i = 0; i < p->n; i++) {
        ag_served_request *r = p->requests[i];
        step_pass one = {.n = 0};
        ag_error err;
        ag_status st = AG_OK;
        if (!p->answers[i]) /* the failed step ended the prompt */
            st = ag_session_begin_prompt(r->session, r->p.n_prompt - r->n_read, &err);
        add_item(&one, r, p->answers[i], p->items[i]);
        if (st == AG_OK) run_alone(s, &one);
        else fail_request(r, st, &err);
    }
}

static void run_items(ag_serving *s, step_pass *p) {
    ag_error err;
    if (!p->n) return;
    if (p->n == 1) run_alone(s, p);
    else if (ag_session_step(p->items, p->n, &err) == AG_OK) after_pass(s, p);
    else run_one_by_one(s, p);
    p->n = p->n_rows = 0;
}

/* ---- next tokens ---- */

/* Returns whether the request's tokens are chosen on a device: no logprobs need all logits. Without
 * masks the step chooses. */
static bool chooses_on_device(const ag_serving *s, const ag_served_request *r) {
    return ag_has_top_k(s->backend) && !r->p.logprobs;
}

/* Runs the next token of every answer of a model. Returns the number of rows. */
static size_t decode(ag_serving *s, const ag_served_model *m) {
    const size_t max = batch_invariant_rows(s);
    step_pass p = {.n = 0};
    size_t n_rows = 0;
    for (ag_served_request *r = s->queue.running; r; r = r->next) {
        if (r->n_late) continue; /* all its answers run or none: see masks.h */
        for (size_t i = 0; r->p.model == m && !r->session && i < r->p.n_answers; i++) {
            ag_answer *a = &r->answers[i];
            if (a->ended || r->status != AG_OK) continue;
            const bool on_device = chooses_on_device(s, r);
            ag_session_choose_later(a->session, on_device && r->masks);
            add_item(&p, r, a,
                     (ag_step_item){.session = a->session,
                                    .ids = &a->ids.data[a->ids.n - 1],
                                    .n = 1,
                                    .phase = AG_PHASE_DECODE,
                                    .logits = AG_LOGITS_LAST,
                                    .sampler = on_device && !r->masks ? a->sampler : NULL,
                                    .chosen = &a->chosen});
            n_rows++;
            if (p.n == max || p.n == AG_SERVING_MAX_RUNNING) run_items(s, &p);
        }
    }
    run_items(s, &p);
    return n_rows;
}

/* ---- prompts ---- */

/* Returns whether a's next chunk comes before b's. Clients take turns. Within a client, rounds
 * alternate between the first request, so that it finishes early, and the one that waited longest,
 * so that none starves. */
static bool reads_before(const ag_served_request *a, const ag_served_request *b, bool oldest) {
    if (a->client != b->client) return a->client->served < b->client->served;
    return !oldest && a->served < b->served;
}

static ag_served_request *next_reader(const ag_serving *s, const ag_served_model *m, bool oldest) {
    ag_served_request *best = NULL;
    for (ag_served_request *r = s->queue.running; r; r = r->next) {
        if (r->p.model != m || !r->session || r->round == s->round || r->status != AG_OK) continue;
        if (!best || reads_before(r, best, oldest)) best = r;
    }
    return best;
}

static bool ends_prompt(const ag_served_request *r, size_t n) {
    return r->n_read + n == r->p.n_prompt;
}

static bool needs_all_rows(const ag_served_request *r) { return r->pooled || r->p.prompt_logprobs; }

static void add_chunk(step_pass *p, ag_served_request *r, size_t n) {
    const bool scores = r->p.prompt_logprobs;
    add_item(p, r, NULL,
             (ag_step_item){.session = r->session,
                            .ids = r->p.prompt + r->n_read,
                            .n = n,
                            .phase = AG_PHASE_PROMPT,
                            .logits = scores                            ? AG_LOGITS_ALL
                                      : ends_prompt(r, n) && !r->pooled ? AG_LOGITS_LAST
                                                                        : AG_LOGITS_NONE,
                            .row = scores ? ag_request_score_row : NULL,
                            .row_user = r,
                            .hidden = r->pooled ? ag_embedding_add_row : NULL,
                            .hidden_user = r});
}

/* Reads one chunk of every prompt that fits. Returns false if none did. */
static bool read_round(ag_serving *s, const ag_served_model *m, size_t *n_left) {
    const size_t max = batch_invariant_rows(s), n_readers = ag_client_count_readers(&s->queue, m);
    step_pass few = {.n = 0}, many = {.n = 0}, full = {.n = 0};
    size_t n_ends = 0; /* chunks of `many` that end a prompt */
    ag_served_request *r;
    bool any = false;
    s->round++;
    for (bool oldest = s->round % 2; (r = next_reader(s, m, oldest)); oldest = false) {
        const size_t n = ag_session_prompt_rows(r->session);
        step_pass *pass = n <= max ? &few : needs_all_rows(r) ? &full : &many;
        const bool ends = pass == &many && ends_prompt(r, n);
        r->round = s->round;
        if (n > *n_left || (pass == &few && max - few.n_rows < n) || (ends && n_ends == max))
            continue;
        if (!ag_client_reserve_rows(&s->queue, r, n_readers, n)) continue;
        *n_left -= n;
        any = true;
        n_ends += ends;
        add_chunk(pass, r, n);
    }
    run_items(s, &few);
    run_items(s, &many);
    run_items(s, &full);
    return any;
}

static void read_prompts(ag_serving *s, const ag_served_model *m, size_t n_left) {
    ag_client_begin_step(&s->queue);
    while (read_round(s, m, &n_left)) {}
}

/* ---- the step ---- */

static bool is_done(const ag_served_request *r) {
    return r->status != AG_OK || (!r->session && !r->n_open);
}

static void end_done(ag_serving *s) {
    for (ag_served_request *r = s->queue.running, *next; r; r = next) {
        next = r->next;
        if (!is_done(r)) continue;
        ag_request_queue_remove(&s->queue, &s->queue.running, r);
        ag_request_end(s, r, r->status, &r->error);
    }
}

/* Chooses for answers whose masks were late and are made now. */
static void choose_late(ag_serving *s) {
    for (ag_served_request *r = s->queue.running; r; r = r->next) {
        ag_error err;
        if (!r->masks || r->status != AG_OK) continue;
        const ag_status st = ag_request_choose_late(s, r, &err);
        if (st != AG_OK) fail_request(r, st, &err);
    }
}

void ag_serving_step(ag_serving *s) {
    choose_late(s);
    for (const ag_served_model *m = s->models.first; m; m = m->next) {
        if (!m->n_requests) continue;
        const size_t n_rows = decode(s, m), half = s->params.step_rows / 2;
        /* Prompts get at least half of the rows. */
        read_prompts(s, m, s->params.step_rows - (n_rows < half ? n_rows : half));
    }
    end_done(s);
}
