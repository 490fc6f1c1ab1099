/* SPDX-License-Identifier: Apache-2.0 */
/* Device addresses of memory objects. A launch takes NVIDIA's driver 0.3 us longer for each memory
 * object among its arguments, so kernels get a null pointer and an address as the offset. */
#include "backend/opencl/opencl.h"
#include "core/fail.h"

/* Writes the address that a kernel sees. Waits for the queue. */
static ag_status read_address(ag_cl_backend *cl, cl_mem mem, uint64_t *out) {
    ag_error *err = &cl->base.err;
    cl_ulong address = 0;
    if (!cl->address_result) {
        AG_TRY(ag_cl_new_mem(cl, CL_MEM_READ_WRITE, sizeof address, "for an address",
                             &cl->address_result, err));
    }
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "address.cl", "address_of", NULL));
    ag_cl_arg_mem(&l, mem);
    ag_cl_arg_mem(&l, cl->address_result);
    AG_TRY(ag_cl_enqueue(&l, 1, (size_t[]){1}, (size_t[]){1}));
    AG_TRY(ag_cl_read(cl, cl->address_result, 0, sizeof address, &address, err));
    *out = address;
    return AG_OK;
}

ag_status ag_cl_buffer_address(ag_cl_backend *cl, ag_buffer *buf, uint64_t *out) {
    ag_cl_buffer *b = ag_cl_buffer_of(cl, buf);
    if (!b) return AG_FAIL(&cl->base.err, INVALID, "a buffer that is not on this device");
    if (!b->address) AG_TRY(read_address(cl, b->mem, &b->address));
    *out = b->address;
    return AG_OK;
}

ag_status ag_cl_part_address(ag_cl_backend *cl, cl_mem mem, uint64_t *out) {
    for (size_t i = 0; i < AG_CL_PARTS; i++) {
        if (cl->parts[i].mem == mem) {
            *out = cl->parts[i].address;
            return AG_OK;
        }
    }
    AG_TRY(read_address(cl, mem, out));
    cl->parts[cl->next_part] = (ag_cl_part){mem, *out};
    cl->next_part = (cl->next_part + 1) % AG_CL_PARTS;
    return AG_OK;
}

void ag_cl_release_part(ag_cl_backend *cl, cl_mem mem) {
    for (size_t i = 0; i < AG_CL_PARTS; i++) {
        if (cl->parts[i].mem == mem) cl->parts[i] = (ag_cl_part){0};
    }
    ag_cl_release_mem(cl, mem);
}
