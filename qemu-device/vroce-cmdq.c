/*
 * vroce RDMA network card: the command queue
 *
 * Commands are fetched in order, copied once, executed by the engine, some in
 * several slices, and answered in order with a phase bit.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "migration/vmstate.h"
#include "vroce.h"
#include "trace.h"

/* Commands in one slice. */
#define CMDQ_BURST 16

static const char *command_name(const struct vroce_cmd *cmd)
{
    return vr_command_name(cmd->opcode) ?: "unknown";
}

static uint32_t cmdq_size(VroceState *s)
{
    return 1u << s->regs.cmdq_log_size;
}

/* Fetch the next command; false: the device went fatal. */
static bool vroce_cmdq_fetch(VroceState *s)
{
    VroceCmdq *q = &s->cmdq;
    uint64_t iova = s->regs.cmdq_sq_base +
                    (q->fetched & (cmdq_size(s) - 1)) * sizeof(q->cmd);

    if (vroce_mem_rw(s, iova, &q->cmd, sizeof(q->cmd), false)) {
        vroce_guest_error(s, VROCE_RULE_CMD_DMA,
                          "command %u at 0x%" PRIx64 " cannot be read",
                          q->fetched, iova);
        vr_fatal(s->engine, VROCE_FATAL_CMDQ);
        return false;
    }
    q->fetched++;
    trace_vroce_cmd_fetch(vroce_name(s), q->fetched - 1, command_name(&q->cmd),
                          le16_to_cpu(q->cmd.id), le32_to_cpu(q->cmd.in_len),
                          le32_to_cpu(q->cmd.out_len));
    return true;
}

/*
 * Check the entry, copy the input, and see that the output has a place before
 * anything is done that the driver then would not learn of.
 */
static enum vroce_status vroce_cmdq_accept(VroceState *s, uint16_t *rule)
{
    VroceCmdq *q = &s->cmdq;
    const char *name = command_name(&q->cmd);
    uint32_t in_len = le32_to_cpu(q->cmd.in_len);
    uint32_t out_len = le32_to_cpu(q->cmd.out_len);
    uint64_t in_addr = le64_to_cpu(q->cmd.in_addr);
    uint64_t out_addr = le64_to_cpu(q->cmd.out_addr);

    if (q->cmd.reserved0 || q->cmd.reserved1) {
        *rule = VROCE_RULE_RESERVED;
        vroce_guest_error(s, *rule, "%s: a reserved field of the command is "
                          "not zero", name);
        return VROCE_ERR_PARAM;
    }
    if (in_len > VR_CMD_MAX_LEN) {
        *rule = VROCE_RULE_CMD_LENGTH;
        vroce_guest_error(s, *rule, "%s: %u bytes of input, no command has "
                          "more than %u", name, in_len, VR_CMD_MAX_LEN);
        return VROCE_ERR_LENGTH;
    }
    if (vroce_mem_rw(s, in_addr, q->in, in_len, false)) {
        *rule = VROCE_RULE_CMD_DMA;
        vroce_guest_error(s, *rule, "%s: input of %u bytes at 0x%" PRIx64
                          " cannot be read", name, in_len, in_addr);
        return VROCE_ERR_DMA;
    }
    if (!vroce_mem_writable(s, out_addr, MIN(out_len, VR_CMD_MAX_LEN))) {
        *rule = VROCE_RULE_CMD_DMA;
        vroce_guest_error(s, *rule, "%s: output at 0x%" PRIx64
                          " cannot be written", name, out_addr);
        return VROCE_ERR_DMA;
    }
    return VROCE_OK;
}

/* Execute a slice of the command; may return VR_CMD_AGAIN. */
static int vroce_cmdq_execute(VroceState *s, uint16_t *rule)
{
    VroceCmdq *q = &s->cmdq;
    uint32_t out_len = MIN(le32_to_cpu(q->cmd.out_len), VR_CMD_MAX_LEN);
    uint8_t out[VR_CMD_MAX_LEN] = { 0 };
    uint32_t used = 0;
    int status;

    status = vr_command(s->engine, q->cmd.opcode, q->in,
                        le32_to_cpu(q->cmd.in_len), out, out_len, &used, rule,
                        vroce_now());
    if (status == VROCE_OK &&
        vroce_mem_rw(s, le64_to_cpu(q->cmd.out_addr), out, MIN(used, out_len),
                     true)) {
        *rule = VROCE_RULE_CMD_DMA;
        vroce_guest_error(s, *rule, "%s: output at 0x%" PRIx64
                          " cannot be written", command_name(&q->cmd),
                          (uint64_t)le64_to_cpu(q->cmd.out_addr));
        return VROCE_ERR_DMA;
    }
    return status;
}

static void vroce_cmdq_complete(VroceState *s, uint8_t status, uint16_t rule)
{
    VroceCmdq *q = &s->cmdq;
    uint32_t size = cmdq_size(s);
    struct vroce_cmd_cpl cpl = {
        .id = q->cmd.id,
        .status = status,
        .rule = cpu_to_le16(rule),
        .sq_head = cpu_to_le16(q->fetched),
        .phase = cpu_to_le32(!(q->completed & size)),
    };
    uint64_t iova = s->regs.cmdq_cq_base +
                    (q->completed & (size - 1)) * sizeof(cpl);

    trace_vroce_cmd_complete(vroce_name(s), q->completed,
                             command_name(&q->cmd), le16_to_cpu(cpl.id),
                             status, rule);
    if (vroce_mem_rw(s, iova, &cpl, offsetof(struct vroce_cmd_cpl, phase),
                     true) ||
        vroce_mem_rw(s, iova + offsetof(struct vroce_cmd_cpl, phase),
                     &cpl.phase, sizeof(cpl.phase), true)) {
        vroce_guest_error(s, VROCE_RULE_CMD_DMA,
                          "completion %u at 0x%" PRIx64 " cannot be written",
                          q->completed, iova);
        vr_fatal(s->engine, VROCE_FATAL_CMDQ);
        return;
    }
    q->completed++;
    q->last_completion = vroce_now();
    if (s->regs.cmdq_vector != VROCE_NO_VECTOR) {
        vroce_raise_vector(s, s->regs.cmdq_vector);
    }
}

bool vroce_cmdq_run(VroceState *s)
{
    VroceCmdq *q = &s->cmdq;

    for (int i = 0; i < CMDQ_BURST && vroce_regs_enabled(s); i++) {
        uint16_t rule = VROCE_RULE_NONE;
        int status = VROCE_OK;

        if (!q->running) {
            if (q->fetched == q->producer) {
                return false;
            }
            if (!vroce_cmdq_fetch(s)) {
                return false;
            }
            status = vroce_cmdq_accept(s, &rule);
        }
        if (status == VROCE_OK) {
            status = vroce_cmdq_execute(s, &rule);
            q->running = status == VR_CMD_AGAIN;
            if (q->running) {
                return true;
            }
        }
        vroce_cmdq_complete(s, status, rule);
    }
    return vroce_regs_enabled(s) && q->fetched != q->producer;
}

void vroce_cmdq_doorbell(VroceState *s, uint32_t producer)
{
    VroceCmdq *q = &s->cmdq;
    uint32_t size = cmdq_size(s);

    if (!vroce_regs_enabled(s) || !s->regs.cmdq_log_size) {
        vroce_guest_error(s, VROCE_RULE_DB_STATE,
                          "command doorbell while the %s",
                          s->regs.cmdq_log_size ? "device is not enabled"
                                                : "queue was not set up");
        return;
    }
    if (producer - q->producer > size || producer - q->completed > size) {
        vroce_guest_error(s, VROCE_RULE_CMD_DOORBELL,
                          "command doorbell %u: the ring holds %u, the last "
                          "one was %u and %u are answered", producer, size,
                          q->producer, q->completed);
        return;
    }
    q->producer = producer;
    q->last_doorbell = vroce_now();
    vroce_enter(s);
    if (!q->running && vroce_cmdq_run(s)) {
        qemu_bh_schedule(s->bh);
    }
    vroce_leave(s);
}

bool vroce_cmdq_sane(VroceState *s)
{
    const VroceCmdq *q = &s->cmdq;

    /* Fetched and not answered: it is running, or the answer was fatal. */
    return q->producer - q->completed <= cmdq_size(s) &&
           q->producer - q->fetched <= cmdq_size(s) &&
           q->fetched - q->completed <= 1 &&
           (!q->running || q->fetched != q->completed);
}

void vroce_cmdq_reset(VroceState *s)
{
    memset(&s->cmdq, 0, sizeof(s->cmdq));
}

const VMStateDescription vmstate_vroce_cmdq = {
    .name = "vroce/cmdq",
    .version_id = 1,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_UINT32(producer, VroceCmdq),
        VMSTATE_UINT32(fetched, VroceCmdq),
        VMSTATE_UINT32(completed, VroceCmdq),
        VMSTATE_BOOL(running, VroceCmdq),
        VMSTATE_BUFFER_UNSAFE(cmd, VroceCmdq, 1, sizeof(struct vroce_cmd)),
        VMSTATE_UINT8_ARRAY(in, VroceCmdq, VR_CMD_MAX_LEN),
        VMSTATE_END_OF_LIST()
    }
};
