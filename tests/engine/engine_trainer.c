/* engine_trainer.c - a trainer for tests/engine/engine.test. Its state depends only on the step. It recovers, checks the
 * state, prints the source, and takes a snapshot after each step. The environment sets options: ANEW=1, ADOPT=id.
 *   engine_trainer NAME DIRECTORY DISK AGENT-LOG BUDGET STEPS MILLISECONDS POLICY [AGENT [OPTION...]] */
#define _GNU_SOURCE
#include "docs/examples/engine/engine_store.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 200000 };
static float master[N], m[N], v[N], again[3][N];
static uint16_t weights[N], weights_again[N];

static void fill(uint64_t step)
{
    uint32_t i, x, bits;
    for (i = 0; i < N; i++) {
        x = (uint32_t)(i * 2654435761u + step * 40503);
        x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
        master[i] = (float)((int)(i * 7919 % 20011) - 10000) * 1e-5f + (float)step * 1e-7f;
        m[i] = (float)((int)(x % 20001) - 10000) * 1e-9f;
        v[i] = (float)(1 + x / 65536 % 1000) * 1e-12f;
        memcpy(&bits, &master[i], 4);
        weights[i] = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
}

static void say(void *context, const char *message)
{
    (void)context;
    printf("engine: %s\n", message);
}

int main(int argc, char **argv)
{
    engine_options o = {0};
    engine_error error;
    engine_tensor t[4] = {{0}}, back[4];
    engine *e;
    uint64_t step, last;
    unsigned i;
    if (argc < 9) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    o.name = argv[1], o.directory = argv[2], o.disk = strcmp(argv[3], "-") ? argv[3] : NULL;
    o.budget = strtoull(argv[5], NULL, 10), o.threads = 2, o.say = say, o.agent = argc > 9 ? (const char *const *)argv + 9 : NULL;
    if (engine_policy(&o, argv[8])) return 2;
    o.anew = getenv("ANEW") != NULL, o.adopt = getenv("ADOPT");
    t[0].name = "weights", t[0].dtype = BITSNAP_BF16, t[0].data = weights, t[0].master = &t[1];
    t[1].name = "master", t[1].dtype = BITSNAP_F32, t[1].data = master;
    t[2].name = "exp_avg", t[2].dtype = BITSNAP_F32, t[2].data = m, t[2].kind = ENGINE_MOMENT1, t[2].columns = 400;
    t[3].name = "exp_avg_sq", t[3].dtype = BITSNAP_F32, t[3].data = v, t[3].kind = ENGINE_MOMENT2, t[3].columns = 400;
    for (i = 0; i < 4; i++) t[i].count = N, back[i] = t[i], back[i].data = i ? (void *)again[i - 1] : (void *)weights_again;
    back[0].master = &back[1];
    engine_use_stores();
    if (engine_open(&e, &o, &error)) return printf("open: %s\n", error.message), 1;
    if (!engine_recover(e, &step, back, 4, &error)) {
        fill(step);
        printf("step %u from %s: %s\n", (unsigned)step, engine_last_cost(e)->source ? "disk" : "memory",
               memcmp(weights, weights_again, sizeof weights) || memcmp(master, again[0], sizeof master) ? "wrong"
               : memcmp(m, again[1], sizeof m) || memcmp(v, again[2], sizeof v) ? "within bounds" : "exact");
    } else if (error.status != ENGINE_E_NONE) {
        return printf("recover: %s\n", error.message), 1;
    } else {
        printf("nothing there\n");
    }
    for (last = step + strtoull(argv[6], NULL, 10); step < last;) {
        fill(++step);
        if (engine_snapshot(e, step, t, 4, &error)) printf("step %u: %s\n", (unsigned)step, error.message);
        usleep((useconds_t)(1000 * atoi(argv[7])));
    }
    printf("done %u\n", (unsigned)step);
    engine_close(e, ENGINE_KEEP);
    return 0;
}
