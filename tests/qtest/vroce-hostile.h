/*
 * QTest of the vroce RDMA network card: what tests of hostile guests share
 *
 * Each case is a request that works, with some of its bytes changed. The card
 * must refuse it with the right status and rule, say so in the guest-error
 * log, and go on; a refused request may leave nothing behind.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef TESTS_QTEST_VROCE_HOSTILE_H
#define TESTS_QTEST_VROCE_HOSTILE_H

#include "vroce-driver.h"

/* Few, so that what a refused command leaves behind is found by its lack. */
#define MAX_PAGES 1024
#define REGION_PAGES 64
#define NO_SUCH 0x00abcdef

/* The places in memory that requests name. */
enum place {
    AT_NONE,                    /* the value itself */
    AT_REGISTERS,               /* the card's BAR 0 */
    AT_DOORBELLS,               /* the card's BAR 2 */
    AT_MEM,                     /* REGION_PAGES pages */
    AT_LIST,                    /* page entries of them */
    AT_SELF_POINTER,            /* a page of pointers to itself */
    AT_JUNK_LIST,               /* entries that are not valid */
    AT_UNALIGNED_LIST,          /* entries of pages that are not aligned */
    AT_READ_ONLY_LIST,          /* entries without WRITE */
    AT_REGISTERS_LIST,          /* entries that name BAR 0 */
    NUM_PLACES
};

/* Overwrite size bytes at off of a request; 0 ends a list. */
typedef struct Poke {
    uint16_t off;
    uint8_t size;
    uint64_t value;
    enum place place;
} Poke;

#define POKE(type, field, value) \
    { offsetof(struct type, field), sizeof(((struct type *)0)->field), value }
#define POKE_AT(type, field, place) \
    { offsetof(struct type, field), sizeof(((struct type *)0)->field), 0, \
      place }

typedef struct Hostile {
    Driver d;
    uint64_t place[NUM_PLACES];
    char *log;                  /* name of QEMU's log */
    Qp qp, peer;                /* which stay well all the time */
    Cq idle;                    /* to be resized */
} Hostile;

/* What one case changes in counters and log. */
typedef struct Before {
    uint64_t misuse;
    unsigned int lines;
} Before;

/* props as for driver_start(); the card keeps MAX_PAGES page entries. */
Hostile hostile_start(const char *props);
/* Checks that the card is well, and ends it. */
void hostile_stop(Hostile *h);
/* The card works as if nothing had happened. */
void expect_well(Hostile *h);

void apply(const Hostile *h, uint8_t *request, const Poke *poke);
/*
 * A request of each kind that works, with a page list and all rings well
 * apart; returns its length.
 */
uint32_t make_request(Hostile *h, uint8_t opcode, void *request);

Before take_before(Hostile *h, uint16_t rule);
/* Since then, the rule was counted and logged; name is of the case. */
void expect_told(Hostile *h, const char *name, uint16_t rule, Before b);

#endif /* TESTS_QTEST_VROCE_HOSTILE_H */
