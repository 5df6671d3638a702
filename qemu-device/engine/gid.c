/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The GID table (RoCEv2 only: IBA annex A17.4.4) and the routes from it.
 */
#include <endian.h>
#include <string.h>

#include "vr_internal.h"

struct vr_gid *vr_gid_get(struct vr_engine *e, uint32_t index)
{
    return index < e->cfg.num_gids && e->gids[index].valid ? &e->gids[index] :
                                                             NULL;
}

static bool gid_matches(const struct vr_gid *entry, const uint8_t gid[16],
                        uint16_t vlan)
{
    return entry->valid && entry->vlan == vlan &&
           !memcmp(entry->gid, gid, sizeof(entry->gid));
}

int vr_gid_find(struct vr_engine *e, const uint8_t gid[16], uint16_t vlan)
{
    if (gid_matches(&e->gids[e->gid_hint], gid, vlan)) {
        return e->gid_hint;
    }
    for (uint32_t i = 0; i < e->gids_end; i++) {
        if (gid_matches(&e->gids[i], gid, vlan)) {
            e->gid_hint = i;
            return i;
        }
    }
    return -1;
}

bool vr_gid_is_ipv4(const uint8_t gid[16])
{
    static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

    return !memcmp(gid, prefix, sizeof(prefix));
}

/*
 * UDP source port, for switches to spread flows by: from the flow label, or
 * from the QP numbers, folded as Linux' rdma_flow_label_to_udp_sport() and
 * rdma_calc_flow_label() do.
 */
static uint16_t route_sport(uint32_t flow_label, uint32_t sqpn, uint32_t dqpn)
{
    if (!flow_label) {
        uint64_t mix = (uint64_t)sqpn * dqpn;

        mix ^= mix >> 20;
        mix ^= mix >> 40;
        flow_label = mix & 0xfffff;
    }
    return ((flow_label ^ flow_label >> 14) & 0x3fff) | 0xc000;
}

bool vr_route_from_av(struct vr_engine *e, const struct vroce_av *av,
                      uint32_t sqpn, uint32_t dqpn, struct vr_route *route)
{
    const struct vr_gid *sgid = vr_gid_get(e, le16toh(av->sgid_index));

    /* One packet has one IP version. */
    if (!sgid || vr_gid_is_ipv4(sgid->gid) != vr_gid_is_ipv4(av->dgid)) {
        return false;
    }
    memset(route, 0, sizeof(*route));
    memcpy(route->sgid, sgid->gid, sizeof(route->sgid));
    memcpy(route->dgid, av->dgid, sizeof(route->dgid));
    memcpy(route->smac, sgid->mac, sizeof(route->smac));
    memcpy(route->dmac, av->dmac, sizeof(route->dmac));
    route->vlan = sgid->vlan;
    route->flow_label = le32toh(av->flow_label) & 0xfffff;
    route->udp_sport = le16toh(av->udp_sport);
    if (!route->udp_sport) {
        route->udp_sport = route_sport(route->flow_label, sqpn, dqpn);
    }
    route->traffic_class = av->traffic_class;
    route->hop_limit = av->hop_limit;
    route->sl = av->sl;
    return true;
}

int vr_cmd_set_gid(struct vr_engine *e, struct vr_cmd_ctx *c)
{
    static const uint8_t zero[16];
    const struct vroce_set_gid_in *in = c->in;
    uint32_t index = le32toh(in->index);
    uint16_t vlan = le16toh(in->vlan);
    struct vr_gid *entry;

    if (index >= e->cfg.num_gids || in->valid > 1) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    entry = &e->gids[index];
    if (!in->valid) {
        memset(entry, 0, sizeof(*entry));
        while (e->gids_end && !e->gids[e->gids_end - 1].valid) {
            e->gids_end--;
        }
        return VROCE_OK;
    }
    if (!memcmp(in->gid, zero, sizeof(zero)) || in->mac[0] & 1 ||
        (vlan > 4095 && vlan != VROCE_NO_VLAN)) {
        return vr_refuse(c, VROCE_ERR_PARAM, VROCE_RULE_CMD_PARAM);
    }
    if (index >= e->gids_end) {
        e->gids_end = index + 1;
    }
    entry->valid = true;
    memcpy(entry->gid, in->gid, sizeof(entry->gid));
    memcpy(entry->mac, in->mac, sizeof(entry->mac));
    /* VLAN 0 is a priority tag: on the wire it is as good as no VLAN. */
    entry->vlan = vlan ? vlan : VROCE_NO_VLAN;
    return VROCE_OK;
}

bool vr_query_gid(const struct vr_engine *e, uint32_t index,
                  struct vr_gid_info *out)
{
    if (index >= e->cfg.num_gids || !e->gids[index].valid) {
        return false;
    }
    memcpy(out->gid, e->gids[index].gid, sizeof(out->gid));
    memcpy(out->mac, e->gids[index].mac, sizeof(out->mac));
    out->vlan = e->gids[index].vlan;
    return true;
}
