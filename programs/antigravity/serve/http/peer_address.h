/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of clients, and ranges of addresses. An IPv4 address is stored as the IPv6 address
 * ::ffff:a.b.c.d, so that both kinds compare alike. */
#ifndef ANTIGRAVITY_SERVE_HTTP_PEER_ADDRESS_H
#define ANTIGRAVITY_SERVE_HTTP_PEER_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct peer_address {
    uint8_t bytes[16]; /* network order */
} peer_address;

typedef struct peer_range {
    peer_address first;
    unsigned n_bits; /* leading bits that an address has in common with `first` */
} peer_range;

/* Reads the address of an IPv4 or IPv6 socket. Fails for other families. */
bool peer_address_of(const struct sockaddr_storage *from, peer_address *out);
/* Returns the address that connections are counted by: IPv6 addresses of one /64 network count as
 * one, because one client usually has all of them. */
peer_address peer_address_network(const peer_address *a);
bool peer_address_is_loopback(const peer_address *a);

/* Parses "10.0.0.1", "10.0.0.0/8", "2001:db8::1" or "2001:db8::/32"; text[n] needs no NUL. Fails if
 * bits after the prefix length are set. */
bool peer_range_parse(const char *text, size_t n, peer_range *out);
bool peer_range_contains(const peer_range *r, const peer_address *a);

#endif
