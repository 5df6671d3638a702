/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tables of objects that are named by index. Numbers are given out in turn,
 * so that a number does not name another object soon after its destruction.
 */
#include "vr_internal.h"

uint32_t vr_table_alloc(struct vr_table *t, void *object)
{
    uint32_t index = t->hint;

    for (uint32_t i = t->first; i < t->size; i++, index++) {
        if (index < t->first || index >= t->size) {
            index = t->first;
        }
        if (!t->slot[index]) {
            t->slot[index] = object;
            t->used++;
            t->hint = index + 1;
            return index;
        }
    }
    return VROCE_NONE;
}

bool vr_table_put(struct vr_table *t, uint32_t index, void *object)
{
    if (index >= t->size || t->slot[index]) {
        return false;
    }
    t->slot[index] = object;
    t->used++;
    return true;
}

void *vr_table_get(const struct vr_table *t, uint32_t index)
{
    return index < t->size ? t->slot[index] : NULL;
}

void vr_table_remove(struct vr_table *t, uint32_t index)
{
    if (vr_table_get(t, index)) {
        t->slot[index] = NULL;
        t->used--;
    }
}
