/* SPDX-License-Identifier: Apache-2.0 */
#include "peer_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

enum { V4_OFFSET = 12, V4_BITS = 32, ALL_BITS = 128, NETWORK_BITS = 64 };

static const uint8_t v4_prefix[V4_OFFSET] = {[10] = 0xff, [11] = 0xff};

static bool is_v4(const peer_address *a) { return !memcmp(a->bytes, v4_prefix, V4_OFFSET); }

static void set_v4(peer_address *a, const struct in_addr *from) {
    memcpy(a->bytes, v4_prefix, V4_OFFSET);
    memcpy(a->bytes + V4_OFFSET, from, sizeof *from);
}

bool peer_address_of(const struct sockaddr_storage *from, peer_address *out) {
    if (from->ss_family == AF_INET) {
        set_v4(out, &((const struct sockaddr_in *)from)->sin_addr);
        return true;
    }
    if (from->ss_family != AF_INET6) return false;
    memcpy(out->bytes, &((const struct sockaddr_in6 *)from)->sin6_addr, sizeof out->bytes);
    return true;
}

/* Clears all bits after the first n. */
static peer_address leading_bits(const peer_address *a, unsigned n) {
    peer_address out = {{0}};
    memcpy(out.bytes, a->bytes, n / 8);
    if (n % 8) out.bytes[n / 8] = (uint8_t)(a->bytes[n / 8] & (0xff00 >> n % 8));
    return out;
}

peer_address peer_address_network(const peer_address *a) {
    return is_v4(a) ? *a : leading_bits(a, NETWORK_BITS);
}

bool peer_address_is_loopback(const peer_address *a) {
    static const peer_address v6 = {{[15] = 1}};
    return is_v4(a) ? a->bytes[V4_OFFSET] == 127 : !memcmp(a, &v6, sizeof v6);
}

/* Parses the decimal digits text[0..n), at most three. */
static bool parse_bits(const char *text, size_t n, unsigned max, unsigned *out) {
    *out = 0;
    if (!n || n > 3) return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *out = *out * 10 + (unsigned)(text[i] - '0');
    }
    return *out <= max;
}

bool peer_range_parse(const char *text, size_t n, peer_range *out) {
    char address[INET6_ADDRSTRLEN];
    struct in_addr v4;
    const char *slash = memchr(text, '/', n);
    const size_t n_address = slash ? (size_t)(slash - text) : n;
    if (n_address >= sizeof address) return false;
    memcpy(address, text, n_address);
    address[n_address] = '\0';
    const bool from_v4 = inet_pton(AF_INET, address, &v4) == 1;
    if (from_v4) set_v4(&out->first, &v4);
    else if (inet_pton(AF_INET6, address, out->first.bytes) != 1) return false;
    const unsigned max = from_v4 ? V4_BITS : ALL_BITS;
    out->n_bits = max;
    if (slash && !parse_bits(slash + 1, n - n_address - 1, max, &out->n_bits)) return false;
    out->n_bits += ALL_BITS - max;
    const peer_address first = leading_bits(&out->first, out->n_bits);
    return !memcmp(&first, &out->first, sizeof first);
}

bool peer_range_contains(const peer_range *r, const peer_address *a) {
    const peer_address first = leading_bits(a, r->n_bits);
    return !memcmp(&first, &r->first, sizeof first);
}
