/*
 * QTest of the vroce RDMA network card: a card and its driver's basic moves
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef TESTS_QTEST_VROCE_CARD_H
#define TESTS_QTEST_VROCE_CARD_H

#include "tests/qtest/libqtest.h"
#include "tests/qtest/libqos/pci.h"
#include "hw/net/vroce/vroce_hw.h"

#define CARD_MAC { 0x52, 0x54, 0x00, 0x12, 0x34, 0x56 }

/* A bus address with nothing behind it. */
#define NOWHERE 0x7ffff0000000ull

/* log2 of the entries of the command queue that card_enable() sets up. */
#define CMDQ_LOG 2

typedef struct Card {
    QTestState *qts;
    QPCIBus *bus;
    QPCIDevice *dev;
    QPCIBar regs, doorbells;
    int wire;                   /* a datagram is a frame */
    uint64_t next;              /* free guest memory */
    char *props;

    uint64_t sq, cq;            /* rings of the command queue */
    uint32_t log, produced;
} Card;

/* Start QEMU with a card; props as for -device, from the comma on, or "". */
Card *card_start(const char *props);
void card_stop(Card *c);
/* Move the card to another QEMU; the wire's old end is closed. */
void card_migrate(Card *c);

uint32_t card_get(Card *c, uint32_t reg);
void card_put(Card *c, uint32_t reg, uint32_t value);
uint64_t card_get64(Card *c, uint32_t reg);
void card_put64(Card *c, uint32_t reg, uint64_t value);
void card_bus_master(Card *c, bool on);
void card_doorbell(Card *c, uint32_t page, enum vroce_db_kind kind,
                   uint32_t number, uint32_t value);

/* Zeroed guest memory, page-aligned. */
uint64_t card_alloc(Card *c, uint64_t size);
/* The test DMA of the bring-up block; returns enum vroce_dma_status. */
uint32_t card_dma(Card *c, enum vroce_dma_cmd cmd, uint64_t src, uint64_t dst,
                  uint32_t len);
/* What x-query-vroce says; the caller unrefs it. */
QDict *card_query(Card *c);
/* How often the guest broke the rule since the last reset. */
uint64_t card_misuse(Card *c, enum vroce_rule rule);

/*
 * Let a vector write data to memory instead of raising an interrupt; returns
 * the address of that word. Enables MSI-X.
 */
uint64_t card_catch_irq(Card *c, unsigned int vector, uint32_t data);
/* Did the word change to data? Clears it. */
bool card_irq_came(Card *c, uint64_t where, uint32_t data);

/* Set up a command queue of 1 << log entries, polled, and enable the card. */
void card_enable_log(Card *c, uint32_t log);
void card_enable(Card *c);
/* Put a command in the ring, without the doorbell. */
void card_queue_cmd(Card *c, const struct vroce_cmd *cmd);
void card_ring_cmdq(Card *c);
/* Wait for completion n (free-running). */
struct vroce_cmd_cpl card_wait_cpl(Card *c, uint32_t n);
/* One whole command; returns its status, *rule the broken rule. */
enum vroce_status card_try(Card *c, uint8_t opcode, const void *in,
                           uint32_t in_len, void *out, uint32_t out_len,
                           uint16_t *rule);
/* One whole command that must succeed. */
void card_cmd(Card *c, uint8_t opcode, const void *in, uint32_t in_len,
              void *out, uint32_t out_len);
/* A command that creates something; returns its number. */
uint32_t card_create(Card *c, uint8_t opcode, const void *in, uint32_t in_len);
void card_destroy(Card *c, uint8_t opcode, uint32_t number);

/* One of each file of tests. */
void add_register_tests(void);
void add_queue_tests(void);
void add_host_tests(void);
void add_hostile_command_tests(void);
void add_hostile_ring_tests(void);
void add_hostile_tests(void);

#endif /* TESTS_QTEST_VROCE_CARD_H */
