#if defined(__linux__)
#define _GNU_SOURCE /* sched_setaffinity */
#elif defined(__APPLE__)
#define _DARWIN_C_SOURCE /* sysctlbyname */
#else
#define _POSIX_C_SOURCE 200809L
#endif

#include "machine.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#include <sys/types.h>
#endif

double machine_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int machine_pin(void)
{
#if defined(__linux__)
    int processor = sched_getcpu();
    cpu_set_t set;
    if (processor < 0 || processor >= CPU_SETSIZE) return -1;
    CPU_ZERO(&set);
    CPU_SET((size_t)processor, &set);
    return sched_setaffinity(0, sizeof set, &set) ? -1 : processor;
#else
    return -1;
#endif
}

#if defined(__linux__)

/* Returns the value of a "key : value" line of /proc/cpuinfo; null for another key. */
static const char *value_of(char *line, const char *key)
{
    size_t n = strlen(key);
    char *value;
    if (strncmp(line, key, n) != 0) return NULL;
    value = line + n;
    while (*value == ' ' || *value == '\t') value++;
    if (*value++ != ':') return NULL;
    while (*value == ' ') value++;
    value[strcspn(value, "\n")] = 0;
    return value;
}

/* Adds the model's numbers, because virtual machines may hide its name and ARM has none. */
void machine_describe(char *text, size_t size)
{
    enum { KEYS = 5 };
    static const char *const keys[KEYS] = {"model name", "cpu family", "model", "CPU implementer", "CPU part"};
    static const char *const forms[KEYS] = {"%s", ", family %s", ", model %s", "ARM, implementer %s", ", part %s"};
    char values[KEYS][128] = {{0}}, line[512];
    size_t used = 0;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        for (unsigned k = 0; k < KEYS; k++) {
            const char *value = value_of(line, keys[k]);
            if (value && !values[k][0]) snprintf(values[k], sizeof values[k], "%.127s", value);
        }
    }
    if (file) fclose(file);
    snprintf(text, size, "unknown");
    for (unsigned k = 0; k < KEYS && used < size; k++)
        if (values[k][0]) used += (size_t)snprintf(text + used, size - used, forms[k], values[k]);
}

#elif defined(__APPLE__)

void machine_describe(char *text, size_t size)
{
    if (sysctlbyname("machdep.cpu.brand_string", text, &size, NULL, 0)) snprintf(text, size, "unknown");
}

#else

void machine_describe(char *text, size_t size) { snprintf(text, size, "unknown"); }

#endif

const char *machine_compiler(void)
{
#define TEXT(x) TEXT_OF(x)
#define TEXT_OF(x) #x
#if defined(__clang__)
    return "clang " TEXT(__clang_major__) "." TEXT(__clang_minor__) "." TEXT(__clang_patchlevel__);
#elif defined(__GNUC__)
    return "gcc " __VERSION__;
#else
    return "unknown";
#endif
}
