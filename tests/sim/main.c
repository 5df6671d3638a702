/* SPDX-License-Identifier: GPL-2.0-or-later */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static const struct scenario *const sets[] = {
    rc_scenarios, fault_scenarios, error_scenarios, ud_scenarios,
    goodput_scenarios, chaos_scenarios,
    recovery_scenarios, slow_scenarios,
};

#define NOT_GIVEN INT_MIN

static char *opt_scenario, *opt_link, *opt_pcap;
static int opt_seed = 1, opt_seeds = 1, opt_nodes = NOT_GIVEN,
           opt_qps = NOT_GIVEN, opt_ops = NOT_GIVEN, opt_max_len = NOT_GIVEN,
           opt_queue = NOT_GIVEN, opt_mtu = NOT_GIVEN;
static double opt_loss = NOT_GIVEN, opt_dup = NOT_GIVEN,
              opt_reorder = NOT_GIVEN, opt_corrupt = NOT_GIVEN,
              opt_rate = NOT_GIVEN, opt_reload = NOT_GIVEN,
              opt_blackout = NOT_GIVEN, opt_limit = NOT_GIVEN;
static gboolean opt_list, opt_trace, opt_tap;

static const GOptionEntry options[] = {
    { "list", 0, 0, G_OPTION_ARG_NONE, &opt_list, "List the scenarios", NULL },
    { "scenario", 0, 0, G_OPTION_ARG_STRING, &opt_scenario,
      "Run this one (default: all)", "NAME" },
    { "link", 0, 0, G_OPTION_ARG_STRING, &opt_link,
      "wire, ref or both (default), whose results must be the same", "LINK" },
    { "seed", 0, 0, G_OPTION_ARG_INT, &opt_seed, "First seed (1)", "S" },
    { "seeds", 0, 0, G_OPTION_ARG_INT, &opt_seeds, "Number of seeds (1)", "N" },
    { "nodes", 0, 0, G_OPTION_ARG_INT, &opt_nodes, "Nodes", "N" },
    { "qps", 0, 0, G_OPTION_ARG_INT, &opt_qps, "Connections in all", "N" },
    { "ops", 0, 0, G_OPTION_ARG_INT, &opt_ops,
      "Work requests each way of a connection", "N" },
    { "max-len", 0, 0, G_OPTION_ARG_INT, &opt_max_len, "Longest message",
      "BYTES" },
    { "loss", 0, 0, G_OPTION_ARG_DOUBLE, &opt_loss, "Packets lost", "P" },
    { "dup", 0, 0, G_OPTION_ARG_DOUBLE, &opt_dup, "Packets doubled", "P" },
    { "reorder", 0, 0, G_OPTION_ARG_DOUBLE, &opt_reorder, "Packets held up",
      "P" },
    { "corrupt", 0, 0, G_OPTION_ARG_DOUBLE, &opt_corrupt,
      "Packets with a bit flipped", "P" },
    { "rate", 0, 0, G_OPTION_ARG_DOUBLE, &opt_rate, "Of a port, in Gb/s", "R" },
    { "queue", 0, 0, G_OPTION_ARG_INT, &opt_queue, "Frames that a port holds",
      "N" },
    { "mtu", 0, 0, G_OPTION_ARG_INT, &opt_mtu,
      "Path MTU: 256, 512, 1024, 2048 or 4096 (default: mixed)", "BYTES" },
    { "pcap", 0, 0, G_OPTION_ARG_FILENAME, &opt_pcap,
      "Write the wire's frames here", "FILE" },
    { "reload", 0, 0, G_OPTION_ARG_DOUBLE, &opt_reload,
      "Save and load an engine this often", "US" },
    { "blackout", 0, 0, G_OPTION_ARG_DOUBLE, &opt_blackout,
      "Darken a node for a while this often", "US" },
    { "limit", 0, 0, G_OPTION_ARG_DOUBLE, &opt_limit,
      "Fail a run that takes longer, in simulated time", "US" },
    { "trace", 0, 0, G_OPTION_ARG_NONE, &opt_trace,
      "Print every packet and step", NULL },
    { "tap", 0, 0, G_OPTION_ARG_NONE, &opt_tap,
      "Print the results as TAP; needs --scenario", NULL },
    G_OPTION_ENTRY_NULL
};

static G_GNUC_PRINTF(1, 2) G_GNUC_NORETURN
void usage_error(const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "sim: ");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\n");
    exit(2);
}

/* Not a number is out of every range. */
static void check_range(const char *name, double value, double least,
                        double most)
{
    if (value == NOT_GIVEN || (value >= least && value <= most)) {
        return;
    }
    if (most == INT_MAX) {
        usage_error("--%s must be %g or more", name, least);
    }
    usage_error("--%s must be %.15g to %.15g", name, least, most);
}

static uint8_t mtu_code(int mtu)
{
    for (int code = 1; code <= 5; code++) {
        if (mtu == 128 << code) {
            return code;
        }
    }
    usage_error("--mtu must be 256, 512, 1024, 2048 or 4096");
}

static void check_options(void)
{
    check_range("seed", opt_seed, 0, INT_MAX);
    check_range("seeds", opt_seeds, 1, INT_MAX);
    check_range("nodes", opt_nodes, 2, 250);
    check_range("qps", opt_qps, 1, 1000);
    check_range("ops", opt_ops, 1, INT_MAX);
    check_range("max-len", opt_max_len, 0, INT_MAX);
    check_range("queue", opt_queue, 1, INT_MAX);
    check_range("loss", opt_loss, 0, 1);
    check_range("dup", opt_dup, 0, 1);
    check_range("reorder", opt_reorder, 0, 1);
    check_range("corrupt", opt_corrupt, 0, 1);
    check_range("rate", opt_rate, 0.001, 100000);
    check_range("reload", opt_reload, 0, 1e9);
    check_range("blackout", opt_blackout, 0, 1e9);
    check_range("limit", opt_limit, 0.001, 1e12);
    if (opt_tap && !opt_scenario) {
        usage_error("--tap needs --scenario: a plan is of one scenario");
    }
    if (opt_mtu != NOT_GIVEN) {
        mtu_code(opt_mtu);
    }
    if (opt_link && strcmp(opt_link, "wire") && strcmp(opt_link, "ref") &&
        strcmp(opt_link, "both")) {
        usage_error("--link must be wire, ref or both, not %s", opt_link);
    }
}

/* An option in a unit, when it was given. */
static uint64_t pick(double option, double unit, uint64_t otherwise)
{
    return option == NOT_GIVEN ? otherwise : (uint64_t)(option * unit + 0.5);
}

static double pick_chance(double option, double otherwise)
{
    return option == NOT_GIVEN ? otherwise : option;
}

static struct sim_params params(const struct scenario *sc, uint32_t seed)
{
    struct sim_params p = {
        .seed = seed, .nodes = 2, .qps = 4, .ops = 40, .max_len = 65536,
        .delay = 5 * US, .rate = 100 * SEC, .queue = 256, .timeout = 12,
        .retry_cnt = 7, .psn = VROCE_NONE, .verbose = opt_trace,
        .pcap = opt_pcap,
    };

    sc->tune(&p);
    p.nodes = pick(opt_nodes, 1, p.nodes);
    p.qps = pick(opt_qps, 1, p.qps);
    p.ops = pick(opt_ops, 1, p.ops);
    p.max_len = pick(opt_max_len, 1, p.max_len);
    p.queue = pick(opt_queue, 1, p.queue);
    p.loss = pick_chance(opt_loss, p.loss);
    p.dup = pick_chance(opt_dup, p.dup);
    p.reorder = pick_chance(opt_reorder, p.reorder);
    p.corrupt = pick_chance(opt_corrupt, p.corrupt);
    p.rate = pick(opt_rate, SEC, p.rate);
    p.reload = pick(opt_reload, US, p.reload);
    p.blackout = pick(opt_blackout, US, p.blackout);
    p.limit = pick(opt_limit, US, 0);
    p.path_mtu = opt_mtu == NOT_GIVEN ? p.path_mtu : mtu_code(opt_mtu);
    return p;
}

/* A result is known: one line of TAP. */
static void report(const char *what)
{
    static uint32_t number;

    if (opt_tap) {
        printf("ok %u - %s\n", ++number, what);
    }
    fflush(stdout);
}

/* All seeds on one link; compare: the other link's digests are known. */
static void run_link(const struct scenario *sc, enum sim_link link,
                     const char *name, uint64_t *digests, bool compare)
{
    gint64 start = g_get_monotonic_time();

    for (int k = 0; k < opt_seeds; k++) {
        struct sim_params p = params(sc, opt_seed + k);
        uint64_t digest;

        sim_call.p = p;
        sim_call.link = name;
        digest = sc->run(sc, &p, link);
        if (compare && digest != digests[k]) {
            sim_call.link = "both";
            sim_fail(NULL, "the links differ, wire %016llx, ref %016llx",
                     (unsigned long long)digests[k],
                     (unsigned long long)digest);
        }
        digests[k] = digest;
        printf("%s%-14s %-4s seed %-6u ok  %016llx  %.2f s\n",
               opt_tap ? "# " : "", sc->name, name, p.seed,
               (unsigned long long)digest,
               (g_get_monotonic_time() - start) / 1e6);
        fflush(stdout);
        start = g_get_monotonic_time();
    }
    report(name);
}

static void run_scenario(const struct scenario *sc)
{
    bool wire = !opt_link || strcmp(opt_link, "ref");
    bool ref = !opt_link || strcmp(opt_link, "wire");
    uint64_t *digests = g_new0(uint64_t, opt_seeds);

    if (opt_tap) {
        printf("1..%d\n", wire + ref + (wire && ref));
    }
    if (wire) {
        run_link(sc, SIM_WIRE, "wire", digests, false);
    }
    if (ref) {
        run_link(sc, SIM_REF, "ref", digests, wire);
    }
    if (wire && ref) {
        report("both links give the same");
    }
    g_free(digests);
}

int main(int argc, char **argv)
{
    GOptionContext *context =
        g_option_context_new("- the engine on a faulty fabric");
    GError *err = NULL;
    bool found = false;

    sim_call.program = argv[0];
    g_option_context_add_main_entries(context, options, NULL);
    if (!g_option_context_parse(context, &argc, &argv, &err)) {
        usage_error("%s", err->message);
    }
    if (argc > 1) {
        usage_error("there is no argument %s; see --help", argv[1]);
    }
    g_option_context_free(context);
    check_options();
    for (uint32_t i = 0; i < G_N_ELEMENTS(sets); i++) {
        for (const struct scenario *sc = sets[i]; sc->name; sc++) {
            if (opt_list) {
                printf("%-14s %s%s\n", sc->name, sc->help,
                       sets[i] == slow_scenarios ? " (slow)" : "");
                continue;
            }
            if (opt_scenario && strcmp(opt_scenario, sc->name)) {
                continue;
            }
            if (!opt_scenario && sets[i] == slow_scenarios) {
                continue;
            }
            found = true;
            run_scenario(sc);
        }
    }
    if (!opt_list && !found) {
        usage_error("no scenario is called %s; see --list", opt_scenario);
    }
    return 0;
}
