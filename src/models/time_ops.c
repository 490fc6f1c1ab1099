/* SPDX-License-Identifier: Apache-2.0 */
/* Observes a model's forward pass: times of operations, choices of experts. */
#include "core/backend_ops.h"
#include "core/fail.h"
#include "models/model_impl.h"
#include "platform/clock.h"

/* Adds the time since the last operation to operation `first`. */
static ag_status add_seconds(void *user, uint32_t first, uint32_t next, ag_error *err) {
    ag_model *m = user;
    AG_TRY(ag_take_error(m->backend, ag_sync(m->backend), err));
    const double now = ag_now_s();
    if (next > first) m->times.seconds[first] += now - m->times.last;
    m->times.last = now;
    return AG_OK;
}

void ag_model_observe_experts(ag_model *m, ag_chosen_fn fn, void *user) {
    m->chosen = fn;
    m->chosen_user = user;
}

void ag_model_time_ops(ag_model *m, double *seconds) {
    m->times.hook = (ag_op_hook){add_seconds, m};
    m->times.seconds = seconds;
    m->hook = seconds ? &m->times.hook : NULL;
}
