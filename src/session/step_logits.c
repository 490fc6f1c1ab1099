/* SPDX-License-Identifier: Apache-2.0 */
#include "session/session_impl.h"

#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"

/* Row of a pass that needs logits. */
typedef struct output_row {
    const ag_step_item *item;
    size_t i; /* index of its token in the item */
} output_row;

/* Iterator over the output rows, item after item. */
typedef struct row_walk {
    const ag_step_item *items;
    size_t n, at; /* number of items, current item */
    size_t row;   /* current token of that item */
} row_walk;

static bool is_output(const ag_step_item *item, size_t row) {
    return item->logits == AG_LOGITS_ALL || (item->logits == AG_LOGITS_LAST && row + 1 == item->n);
}

/* Gives the next output row and its index among the results of the pass. Returns false after the
 * last. */
static bool next_row(row_walk *w, output_row *out, size_t *result) {
    const ag_model *m = w->items[0].session->model;
    for (; w->at < w->n; w->at++, w->row = 0) {
        const ag_step_item *item = &w->items[w->at];
        while (w->row < item->n && !is_output(item, w->row)) w->row++;
        if (w->row == item->n) continue;
        *out = (output_row){item, w->row};
        *result = ag_sequence_result(&m->sequences[w->at], w->row++);
        return true;
    }
    return false;
}

/* Returns whether token i was chosen from the row before it. */
static bool is_chosen(const ag_step_item *item, size_t i) {
    return i == 0 || (!item->session->choice_ended && item->chosen[i - 1] == item->ids[i]);
}

/* Returns whether the row is not needed, since its token was rejected. */
static bool is_rejected(const ag_step_item *item, size_t i) {
    return item->sampler && !item->row && item->logits == AG_LOGITS_ALL && !is_chosen(item, i);
}

/* Reports or accepts the token chosen from row i, before the next choice. */
static void accept_choice(const ag_step_item *item, size_t i, int32_t id) {
    if (item->on_chosen && item->logits == AG_LOGITS_ALL) {
        if (!item->on_chosen(item->on_chosen_user, i, id)) item->session->choice_ended = true;
    } else if (i + 1 < item->n && is_chosen(item, i + 1)) {
        ag_sampler_accept(item->sampler, id);
    }
}

/* Delivers the session's logits to the item's callback and sampler. Rows of rejected tokens are
 * skipped. */
static ag_status deliver_row(const output_row *r, ag_error *err) {
    const ag_step_item *item = r->item;
    const bool all = item->logits == AG_LOGITS_ALL;
    if (item->row) {
        AG_TRY(ag_session_fetch_logits(item->session, err));
        if (!item->row(item->row_user, r->i, item->session->logits.host)) {
            return AG_FAIL(err, CANCELLED, "cancelled at token %zu", r->i);
        }
    }
    if (!item->sampler) return AG_OK;
    int32_t *chosen = all ? &item->chosen[r->i] : item->chosen;
    *chosen = -1;
    if (all && !is_chosen(item, r->i)) return AG_OK;
    AG_TRY(ag_session_choose(item->session, item->sampler, chosen, err));
    accept_choice(item, r->i, *chosen);
    return AG_OK;
}

static size_t max_rows(const ag_backend *be) {
    return be && ag_has_top_k(be) ? AG_LOGIT_ROWS_DEVICE : AG_LOGIT_ROWS;
}

size_t ag_logit_rows_bytes(const ag_backend *be, const ag_model_info *info) {
    return max_rows(be) * info->n_vocab * sizeof(float);
}

ag_status ag_session_make_logit_rows(ag_session *s, ag_error *err) {
    ag_model *m = s->model;
    const size_t n = max_rows(m->backend);
    if (m->logit_rows_owner) return AG_OK;
    if (!m->logit_row_users) m->logit_row_users = ag_calloc(n, sizeof(ag_session *));
    if (!m->logit_row_users) return AG_FAIL(err, NOMEM, "users of %zu rows of logits", n);
    return ag_tensor_alloc(&m->logit_rows, &m->logit_rows_owner, ag_backend_memory(m->backend),
                           AG_USAGE_SCRATCH, AG_F32, ag_shape_2d(n, m->info.n_vocab), err);
}

void ag_session_leave_logit_rows(const ag_session *s) {
    const ag_model *m = s->model;
    const size_t n = m->logit_rows_owner ? ag_shape_rows(&m->logit_rows.shape) : 0;
    for (size_t i = 0; i < n; i++)
        if (m->logit_row_users[i] == s) m->logit_row_users[i] = NULL;
}

/* Copies logits that are only in the model's first n rows to their sessions' own rows. */
static ag_status vacate_rows(const ag_model *m, size_t n, ag_error *err) {
    for (size_t i = 0; i < n; i++) {
        ag_session *s = m->logit_row_users[i];
        ag_tensor row;
        AG_TRY(ag_tensor_rows(&row, &m->logit_rows, i, 1, err));
        const bool is_used = s && s->logits.location == AG_LOGITS_ON_DEVICE &&
                             s->logits.on_device.buffer == row.buffer &&
                             s->logits.on_device.offset == row.offset;
        if (is_used) {
            AG_TRY(ag_take_error(
                m->backend, ag_copy_slice(m->backend, &s->logits.row, 0, &row, 0, m->info.n_vocab),
                err));
            s->logits.on_device = s->logits.row;
        }
        m->logit_row_users[i] = NULL;
    }
    return AG_OK;
}

bool ag_step_keeps_on_device(const ag_step_item *item) {
    const ag_session *s = item->session;
    return (item->sampler || s->logits.chosen_later) && !item->row &&
           ag_session_chooses_on_device(s);
}

/* tops [n]: of the model's first rows; NULL: the row has no query */
static ag_status query_rows(ag_model *m, ag_top_k *const tops[], size_t n, ag_error *err) {
    ag_tensor rows;
    bool any = false;
    for (size_t i = 0; i < n; i++) any = any || tops[i];
    if (!any) return AG_OK;
    AG_TRY(ag_tensor_rows(&rows, &m->logit_rows, 0, n, err));
    return ag_take_error(m->backend, ag_find_top_k(m->backend, &rows, tops), err);
}

/* Finds what the samplers of all items need in one query. Rows of AG_LOGITS_ALL have queries of
 * their own, which depend on earlier choices. */
static ag_status find_tops(ag_model *m, const output_row *outputs, size_t n, ag_error *err) {
    ag_top_k *tops[AG_LOGIT_ROWS_DEVICE];
    for (size_t i = 0; i < n; i++) {
        const ag_step_item *item = outputs[i].item;
        tops[i] = item->sampler && item->logits == AG_LOGITS_LAST &&
                          ag_step_keeps_on_device(item) &&
                          ag_session_request_top(item->session, item->sampler)
                      ? &item->session->logits.top
                      : NULL;
    }
    return query_rows(m, tops, n, err);
}

ag_status ag_session_find_tops(ag_session *const sessions[], ag_sampler *const samplers[], size_t n,
                               ag_error *err) {
    ag_top_k *tops[AG_LOGIT_ROWS_DEVICE] = {NULL};
    ag_model *m = n ? sessions[0]->model : NULL;
    size_t n_rows = 0;
    for (size_t i = 0; i < n; i++) {
        ag_session *s = sessions[i];
        const ag_tensor *row = &s->logits.on_device;
        if (s->logits.location != AG_LOGITS_ON_DEVICE || row->buffer != m->logit_rows.buffer ||
            !ag_session_request_top(s, samplers[i]))
            continue;
        const size_t r = (row->offset - m->logit_rows.offset) / ag_tensor_bytes(row);
        tops[r] = &s->logits.top;
        if (n_rows <= r) n_rows = r + 1;
    }
    return query_rows(m, tops, n_rows, err);
}

/* Makes row `row` of the group its session's logits and delivers them. */
static ag_status store_row(ag_model *m, const output_row *r, size_t row, ag_error *err) {
    ag_session *s = r->item->session;
    const size_t bytes = ag_tensor_bytes(&s->logits.row);
    if (is_rejected(r->item, r->i)) {
        r->item->chosen[r->i] = -1;
        return AG_OK;
    }
    if (r->item->logits == AG_LOGITS_ALL) s->logits.top.known = false;
    s->logits.location = AG_LOGITS_ABSENT;
    if (ag_step_keeps_on_device(r->item)) {
        AG_TRY(ag_tensor_rows(&s->logits.on_device, &m->logit_rows, row, 1, err));
        m->logit_row_users[row] = s;
        s->logits.location = AG_LOGITS_ON_DEVICE;
    } else {
        AG_TRY(ag_buffer_download(s->logits.host, m->logit_rows_owner, row * bytes, bytes, err));
        s->logits.location = AG_LOGITS_ON_HOST;
    }
    return deliver_row(r, err);
}

/* Copies the rows' hidden states side by side into the stream. */
static ag_status gather_rows(ag_model *m, const size_t *rows, size_t n, ag_error *err) {
    const size_t dim = m->info.hidden_size;
    for (size_t i = 0; i < n; i++) {
        AG_TRY(ag_take_error(
            m->backend,
            ag_copy_slice(m->backend, &m->stream, i * dim, &m->hidden, rows[i] * dim, dim), err));
    }
    return AG_OK;
}

static ag_status compute_group(ag_model *m, const output_row *outputs, const size_t *rows, size_t n,
                               ag_error *err) {
    const bool adjacent = rows[n - 1] - rows[0] == n - 1;
    ag_tensor logits;
    AG_TRY(ag_tensor_rows(&logits, &m->logit_rows, 0, n, err));
    AG_TRY(vacate_rows(m, n, err));
    if (!adjacent) AG_TRY(gather_rows(m, rows, n, err));
    const ag_tensor *hidden = adjacent ? &m->hidden : &m->stream;
    AG_TRY(ag_model_logits(m, hidden, adjacent ? rows[0] : 0, n, &logits, err));
    AG_TRY(find_tops(m, outputs, n, err));
    for (size_t i = 0; i < n; i++) AG_TRY(store_row(m, &outputs[i], i, err));
    return AG_OK;
}

/* Returns whether rows of both items may be computed in one group. The rows of an item with
 * AG_LOGITS_ALL are grouped in the same way whatever else is in the pass. */
static bool may_share_group(const ag_step_item *a, const ag_step_item *b) {
    return a == b || (a->logits == AG_LOGITS_LAST && b->logits == AG_LOGITS_LAST);
}

static ag_status compute_groups(ag_model *m, const ag_step_item *items, size_t n, ag_error *err) {
    row_walk walk = {.items = items, .n = n};
    output_row outputs[AG_LOGIT_ROWS_DEVICE];
    size_t rows[AG_LOGIT_ROWS_DEVICE], n_rows = 0;
    AG_TRY(ag_session_make_logit_rows(items[0].session, err));
    const size_t n_group = ag_shape_rows(&items[0].session->model->logit_rows.shape);
    while (next_row(&walk, &outputs[n_rows], &rows[n_rows])) {
        if (n_rows && !may_share_group(outputs[0].item, outputs[n_rows].item)) {
            AG_TRY(compute_group(m, outputs, rows, n_rows, err));
            outputs[0] = outputs[n_rows];
            rows[0] = rows[n_rows];
            n_rows = 0;
        }
        if (++n_rows < n_group) continue;
        AG_TRY(compute_group(m, outputs, rows, n_rows, err));
        n_rows = 0;
    }
    return n_rows ? compute_group(m, outputs, rows, n_rows, err) : AG_OK;
}

ag_status ag_step_compute_row(const ag_step_item *item, const ag_sequence *seq, ag_error *err) {
    ag_session *s = item->session;
    AG_TRY(ag_model_logits(s->model, &s->model->hidden, ag_sequence_result(seq, item->n - 1), 1,
                           &s->logits.row, err));
    s->logits.location = s->logits.copied ? AG_LOGITS_ON_DEVICE : AG_LOGITS_ON_HOST;
    s->logits.on_device = s->logits.row;
    if (!s->logits.copied) AG_TRY(ag_buffer_sync(s->logits.owner, err));
    return ag_step_keeps_on_device(item) ? AG_OK : ag_session_fetch_logits(s, err);
}

static ag_status deliver_logits(const ag_step_item *items, size_t n, bool computed, ag_error *err) {
    const bool one = n == 1 && (items[0].n == 1 || items[0].logits == AG_LOGITS_LAST);
    const ag_model *m = items[0].session->model;
    size_t n_outputs = 0;
    for (size_t i = 0; i < n; i++) n_outputs += items[i].logits != AG_LOGITS_NONE;
    if (!n_outputs) return AG_OK;
    if (!one && !computed) return compute_groups(items[0].session->model, items, n, err);
    /* without a copy through the shared rows */
    if (!computed) AG_TRY(ag_step_compute_row(&items[0], &m->sequences[0], err));
    for (size_t i = 0; i < n; i++)
        AG_TRY(deliver_row(&(output_row){&items[i], items[i].n - 1}, err));
    return AG_OK;
}

ag_status ag_step_deliver_logits(const ag_step_item *items, size_t n, bool computed,
                                 ag_error *err) {
    ag_backend *be = items[0].session->model->backend;
    bool waits = false;
    AG_TRY(deliver_logits(items, n, computed, err));
    for (size_t i = 0; i < n; i++) waits = waits || items[i].session->logits.chosen_later;
    return waits ? ag_take_error(be, ag_sync(be), err) : AG_OK;
}

/* ---- hidden states ---- */

/* Uses the buffer of embedding rows for the download. */
static ag_status deliver_hidden_rows(const ag_step_item *item, const ag_sequence *seq,
                                     ag_error *err) {
    ag_model *m = item->session->model;
    const size_t bytes = m->info.hidden_size * sizeof(float);
    const float *row = m->workspace.host_rows;
    AG_TRY(ag_buffer_download(m->workspace.host_rows, m->hidden.buffer,
                              m->hidden.offset + ag_sequence_result(seq, 0) * bytes,
                              item->n * bytes, err));
    for (size_t k = 0; k < item->n; k++, row += m->info.hidden_size) {
        if (!item->hidden(item->hidden_user, k, row))
            return AG_FAIL(err, CANCELLED, "cancelled at token %zu", k);
    }
    return AG_OK;
}

ag_status ag_step_deliver_hidden(const ag_step_item *items, size_t n, ag_error *err) {
    const ag_model *m = items[0].session->model;
    for (size_t i = 0; i < n; i++)
        if (items[i].hidden) AG_TRY(deliver_hidden_rows(&items[i], &m->sequences[i], err));
    return AG_OK;
}
