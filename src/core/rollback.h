/* SPDX-License-Identifier: Apache-2.0 */
/* How far a sequence can always be taken back. */
#ifndef AG_CORE_ROLLBACK_H
#define AG_CORE_ROLLBACK_H

enum { AG_ROLLBACK = 64 }; /* tokens, from the furthest position that it has reached */

#endif
