/*
 * vroce RDMA network card: management commands of a QEMU without the card
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-vroce.h"

static void no_vroce(Error **errp)
{
    error_setg(errp, "this QEMU was built without the vroce device");
}

#define VROCE_QUERY_STUB(name, list)                            \
    list *name(const char *path, bool has_number,               \
               uint32_t number, Error **errp)                   \
    {                                                           \
        no_vroce(errp);                                         \
        return NULL;                                            \
    }

VROCE_QUERY_STUB(qmp_x_query_vroce_qp, VroceQpList)
VROCE_QUERY_STUB(qmp_x_query_vroce_cq, VroceCqList)
VROCE_QUERY_STUB(qmp_x_query_vroce_srq, VroceSrqList)
VROCE_QUERY_STUB(qmp_x_query_vroce_eq, VroceEqList)
VROCE_QUERY_STUB(qmp_x_query_vroce_mr, VroceMrList)
VROCE_QUERY_STUB(qmp_x_query_vroce_gid, VroceGidList)
VROCE_QUERY_STUB(qmp_x_query_vroce_history, VroceStepList)

VroceInfoList *qmp_x_query_vroce(const char *path, Error **errp)
{
    no_vroce(errp);
    return NULL;
}

VroceRingEntryList *qmp_x_query_vroce_ring(const char *path, VroceRing ring,
                                           bool has_number, uint32_t number,
                                           bool has_first, uint32_t first,
                                           bool has_count, uint32_t count,
                                           Error **errp)
{
    no_vroce(errp);
    return NULL;
}

VroceFault *qmp_x_vroce_fault_add(const char *path, VroceFaultRule *rule,
                                  Error **errp)
{
    no_vroce(errp);
    return NULL;
}

void qmp_x_vroce_fault_remove(const char *path, bool has_id, uint32_t id,
                              Error **errp)
{
    no_vroce(errp);
}

VroceFaultList *qmp_x_vroce_fault_query(const char *path, Error **errp)
{
    no_vroce(errp);
    return NULL;
}

void qmp_x_vroce_set_misuse_policy(const char *path, VroceMisusePolicy policy,
                                   Error **errp)
{
    no_vroce(errp);
}
