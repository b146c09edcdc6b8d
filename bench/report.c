#include "report.h"

#include <stdio.h>

#include "bitsnap.h"
#include "machine.h"
#include "peers.h"

#ifndef BENCH_COMMIT
#define BENCH_COMMIT "unknown"
#endif
#ifndef BENCH_FLAGS
#define BENCH_FLAGS "unknown"
#endif

static const char *machine(void)
{
    static char text[256];
    if (!text[0]) machine_describe(text, sizeof text);
    return text;
}

void report_title(int processor)
{
    printf("machine   %s", machine());
    if (processor >= 0) printf(" (on processor %d)", processor);
    printf("\ncompiler  %s %s\ncommit    %s, bitsnap %s\npeers     %s\n", machine_compiler(), BENCH_FLAGS, BENCH_COMMIT,
           BITSNAP_VERSION, peers_versions());
}

static void json_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putchar('\\');
        if ((unsigned char)*text >= ' ') putchar(*text);
    }
    putchar('"');
}

void json_member(const char *name, const char *text)
{
    printf("\"%s\":", name);
    if (text) json_text(text);
    else printf("null");
    putchar(',');
}

void json_title(void)
{
    putchar('{');
    json_member("machine", machine());
    json_member("compiler", machine_compiler());
    json_member("flags", BENCH_FLAGS);
    json_member("commit", BENCH_COMMIT);
    json_member("peers", peers_versions());
}

void json_speed(double speed)
{
    if (speed > 0) printf("%.4f", speed);
    else printf("null");
}

void json_counts(const char *name, const counts *c, double n)
{
    if (c->cycles > 0)
        printf(",\"%scycles\":%.4f,\"%sinstructions\":%.4f", name, c->cycles / n, name, c->instructions / n);
}
