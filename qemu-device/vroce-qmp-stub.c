/*
 * vroce RDMA network card: management commands of a QEMU without the card
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-vroce.h"

static void *no_vroce(Error **errp)
{
    error_setg(errp, "this QEMU was built without the vroce device");
    return NULL;
}

VroceQpList *qmp_x_query_vroce_qp(const char *path, bool has_qpn,
                                  uint32_t qpn, Error **errp)
{
    return no_vroce(errp);
}

VroceCqList *qmp_x_query_vroce_cq(const char *path, bool has_cqn,
                                  uint32_t cqn, Error **errp)
{
    return no_vroce(errp);
}

VroceSrqList *qmp_x_query_vroce_srq(const char *path, bool has_srqn,
                                    uint32_t srqn, Error **errp)
{
    return no_vroce(errp);
}

VroceEqList *qmp_x_query_vroce_eq(const char *path, bool has_eqn,
                                  uint32_t eqn, Error **errp)
{
    return no_vroce(errp);
}

VroceMrList *qmp_x_query_vroce_mr(const char *path, bool has_key,
                                  uint32_t key, Error **errp)
{
    return no_vroce(errp);
}

VroceGidList *qmp_x_query_vroce_gid(const char *path, bool has_index,
                                    uint32_t index, Error **errp)
{
    return no_vroce(errp);
}

VroceStepList *qmp_x_query_vroce_history(const char *path, bool has_qpn,
                                         uint32_t qpn, Error **errp)
{
    return no_vroce(errp);
}

VroceInfoList *qmp_x_query_vroce(const char *path, Error **errp)
{
    return no_vroce(errp);
}

VroceRingEntryList *qmp_x_query_vroce_ring(const char *path, VroceRing ring,
                                           bool has_number, uint32_t number,
                                           bool has_first, uint32_t first,
                                           bool has_count, uint32_t count,
                                           Error **errp)
{
    return no_vroce(errp);
}

VroceFault *qmp_x_vroce_fault_add(const char *path, VroceFaultRule *rule,
                                  Error **errp)
{
    return no_vroce(errp);
}

void qmp_x_vroce_fault_remove(const char *path, bool has_id, uint32_t id,
                              Error **errp)
{
    no_vroce(errp);
}

VroceFaultList *qmp_x_vroce_fault_query(const char *path, Error **errp)
{
    return no_vroce(errp);
}

void qmp_x_vroce_set_misuse_policy(const char *path, VroceMisusePolicy policy,
                                   Error **errp)
{
    no_vroce(errp);
}
