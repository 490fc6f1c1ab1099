/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on connections: which one is closed for a new one, and how many an address may have.
 *
 * A connection waits while no complete request has arrived on it. The list of waiting connections
 * is in the order in which they began to wait; its first is closed. */
#include "connection_impl.h"

enum { ADDRESS_SHARE = 4 }; /* an address may have 1 / ADDRESS_SHARE of max_connections */

static bool waits_for_request(connection_state state) {
    return state == CONNECTION_HEAD || state == CONNECTION_BODY || state == CONNECTION_LINGERING;
}

static void append_waiting(connection *c) {
    connection_set *set = c->set;
    c->is_waiting = true;
    c->previous_waiting = set->last_waiting;
    if (set->last_waiting) set->last_waiting->next_waiting = c;
    else set->first_waiting = c;
    set->last_waiting = c;
}

void connection_stop_waiting(connection *c) {
    connection_set *set = c->set;
    if (!c->is_waiting) return;
    if (c->previous_waiting) c->previous_waiting->next_waiting = c->next_waiting;
    else set->first_waiting = c->next_waiting;
    if (c->next_waiting) c->next_waiting->previous_waiting = c->previous_waiting;
    else set->last_waiting = c->previous_waiting;
    c->next_waiting = c->previous_waiting = NULL;
    c->is_waiting = false;
}

void connection_enter(connection *c, connection_state state) {
    connection_stop_waiting(c);
    c->state = state;
    if (waits_for_request(state)) append_waiting(c);
}

/* ---- capacity for a new connection ---- */

/* Closes a connection. If its request has begun, sends an error as far as the socket takes it
 * without waiting. */
static void evict(connection *c) {
    bool is_sent = false;
    c->set->n_evicted++;
    if (connection_has_begun(c)) {
        connection_reject(c, 408,
                          "the connection was closed for a new one: all are in use, and it had "
                          "waited longest for the rest of its request");
        is_sent = connection_write_now(c);
    }
    connection_close(c, is_sent);
}

bool connection_ensure_capacity(connection_set *set) {
    if (set->n < set->limits.max_connections) return true;
    if (!set->first_waiting) return false;
    evict(set->first_waiting);
    return true;
}

/* ---- connections of one address ---- */

static bool has_no_limit(const connection_limits *limits, const peer_address *a) {
    for (size_t i = 0; i < limits->n_trusted; i++)
        if (peer_range_contains(&limits->trusted[i], a)) return true;
    return false;
}

bool connection_count_peer(connection_set *set, const peer_address *from, peer_count **out) {
    *out = NULL;
    if (!from || peer_address_is_loopback(from) || has_no_limit(&set->limits, from)) return true;
    const uint32_t share = set->limits.max_connections / ADDRESS_SHARE;
    const peer_address network = peer_address_network(from);
    *out = peer_counts_add(&set->peers, &network, share ? share : 1);
    return *out != NULL;
}
