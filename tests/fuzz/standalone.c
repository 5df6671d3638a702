/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Runs a fuzz target without libFuzzer: over the files given (folders: each
 * file in them), then over random inputs: --random COUNT [SEED].
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

#define MAX_LEN 2048

static uint64_t runs;

static void run_path(const char *path)
{
    GError *err = NULL;
    char *data;
    gsize len;
    GDir *dir = g_dir_open(path, 0, NULL);
    const char *name;

    if (dir) {
        while ((name = g_dir_read_name(dir))) {
            char *child = g_build_filename(path, name, NULL);

            run_path(child);
            g_free(child);
        }
        g_dir_close(dir);
        return;
    }
    if (!g_file_get_contents(path, &data, &len, &err)) {
        fprintf(stderr, "%s\n", err->message);
        exit(2);
    }
    printf("\r%s ", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput((const uint8_t *)data, len);
    runs++;
    g_free(data);
}

static void run_random(uint32_t count, uint32_t seed)
{
    for (uint32_t i = 0; i < count; i++) {
        GRand *r = g_rand_new_with_seed(seed + i);
        uint32_t len = g_rand_int_range(r, 0, MAX_LEN);
        uint8_t *data = g_malloc(len);

        for (uint32_t k = 0; k < len; k++) {
            /* Small numbers say more to a target than large ones. */
            data[k] = g_rand_boolean(r) ? g_rand_int_range(r, 0, 8) :
                      g_rand_int_range(r, 0, 256);
        }
        /* To be repeated by: --random 1 SEED */
        printf("\rseed %u ", seed + i);
        fflush(stdout);
        LLVMFuzzerTestOneInput(data, len);
        runs++;
        g_free(data);
        g_rand_free(r);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    int i;

    for (i = 1; i < argc && strcmp(argv[i], "--random"); i++) {
        run_path(argv[i]);
    }
    if (i < argc) {
        run_random(i + 1 < argc ? atoi(argv[i + 1]) : 100,
                   i + 2 < argc ? atoi(argv[i + 2]) : 1);
    }
    if (!runs) {
        fprintf(stderr, "usage: %s [FILE|FOLDER]... [--random COUNT [SEED]]\n",
                argv[0]);
        return 2;
    }
    printf("%llu inputs\n", (unsigned long long)runs);
    return 0;
}
