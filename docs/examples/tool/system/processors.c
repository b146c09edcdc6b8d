/* processors.c - the number of processors that this process may use, and its memory.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A thread without a processor costs more than it brings: it waits for one while others wait for it. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* cpu_set_t */
#endif
#include "posix.h"

#include "processors.h"

#include <float.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__

static unsigned allowed(unsigned all)
{
    cpu_set_t set[16];
    int n;
    if (sched_getaffinity(0, sizeof set, set)) return all; /* more than 16384 processors */
    n = CPU_COUNT_S(sizeof set, set);
    return n > 0 && (unsigned)n < all ? (unsigned)n : all;
}

/* Returns 1 if a word is in a list of words separated by commas. */
static int lists(const char *list, const char *word)
{
    const size_t size = strlen(word);
    const char *at = list;
    while ((at = strstr(at, word)) != NULL) {
        if ((at == list || at[-1] == ',') && (at[size] == ',' || !at[size])) return 1;
        at += size;
    }
    return 0;
}

/* Reads the first line of a file; returns 1 if there is no line. */
static int read_line(char *line, int room, const char *directory, const char *name)
{
    char path[2 * PATH_MAX];
    FILE *file;
    int failed;
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    file = fopen(path, "r");
    if (!file) return 1;
    failed = !fgets(line, room, file);
    (void)fclose(file);
    return failed;
}

/* The limits of one group; DBL_MAX without a limit. */
static double processors_of_group(const char *directory, int version)
{
    char line[64], *next = line;
    double quota, period = 0;
    if (version == 2) {
        if (read_line(line, sizeof line, directory, "cpu.max")) return DBL_MAX;
        quota = strtod(line, &next); /* "max 100000" or "150000 100000" */
        period = strtod(next, NULL);
    } else {
        if (read_line(line, sizeof line, directory, "cpu.cfs_quota_us")) return DBL_MAX;
        quota = strtod(line, NULL); /* -1: none */
        if (!read_line(line, sizeof line, directory, "cpu.cfs_period_us")) period = strtod(line, NULL);
    }
    return quota > 0 && period > 0 ? quota / period : DBL_MAX;
}

static double memory_of_group(const char *directory, int version)
{
    char line[64];
    double bytes;
    if (read_line(line, sizeof line, directory, version == 2 ? "memory.max" : "memory.limit_in_bytes")) return DBL_MAX;
    bytes = strtod(line, NULL); /* "max" */
    return bytes > 0 ? bytes : DBL_MAX;
}

/* A resource that control groups limit. In version 1 each has its own tree of groups. */
typedef struct controller {
    const char *name;
    double (*limit)(const char *directory, int version);
} controller;

static const controller of_processors = { "cpu", processors_of_group }, of_memory = { "memory", memory_of_group };

/* Reads the path of the process's group from /proc/self/cgroup: "0::/path", or "4:cpu,cpuacct:/path". Returns 1 if it has no
 * group. */
static int find_group(const controller *k, char *path, size_t room, const char *root, int version)
{
    char name[PATH_MAX], line[PATH_MAX + 256];
    FILE *file;
    int found = 0;
    (void)snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    file = fopen(name, "r");
    if (!file) return 1;
    while (!found && fgets(line, sizeof line, file)) {
        char *list = strchr(line, ':'), *at = list ? strchr(list + 1, ':') : NULL;
        if (!at) continue;
        line[strcspn(line, "\n")] = 0;
        *at++ = 0;
        found = version == 2 ? !strcmp(line, "0:") : lists(list + 1, k->name);
        if (found) (void)snprintf(path, room, "%s", at);
    }
    (void)fclose(file);
    return !found;
}

/* The smallest limit of a group and its parents, up to the mount point. */
static double limit_of_mount(const controller *k, const char *root, const char *top, const char *point, int version)
{
    char group[PATH_MAX], path[2 * PATH_MAX];
    const char *below = group;
    const size_t size = strcmp(top, "/") ? strlen(top) : 0;
    size_t mount;
    double least = DBL_MAX;
    if (find_group(k, group, sizeof group, root, version)) return DBL_MAX;
    if (strncmp(group, top, size) || (group[size] && group[size] != '/') || strstr(group, "/..")) below = ""; /* elsewhere */
    else below += size;
    (void)snprintf(path, sizeof path, "%s%s", root, point);
    mount = strlen(path);
    (void)snprintf(path + mount, sizeof path - mount, "%s", below);
    for (;;) {
        const double limit = k->limit(path, version);
        char *slash = strrchr(path + mount, '/');
        if (limit < least) least = limit;
        if (!slash) return least;
        *slash = 0;
    }
}

/* The smallest limit of all control groups of this process; DBL_MAX without a limit. `root` is put before all paths; it is empty
 * except in tests. */
static double limit_of_groups(const controller *k, const char *root)
{
    char name[PATH_MAX], line[4 * PATH_MAX];
    FILE *file;
    double least = DBL_MAX;
    (void)snprintf(name, sizeof name, "%s/proc/self/mountinfo", root);
    file = fopen(name, "r");
    if (!file) return DBL_MAX;
    while (fgets(line, sizeof line, file)) {
        /* 36 35 98:0 TOP POINT options ... - cgroup source options */
        char *const behind = strstr(line, " - cgroup"), *word[6], *rest = line;
        int i, version = 1;
        double limit;
        if (!behind) continue;
        if (behind[9] == '2') version = 2;
        for (i = 0; i < 6; i++) word[i] = strtok_r(i ? NULL : line, " ", &rest);
        if (!word[4]) continue;
        if (version == 1) {
            char *options = strrchr(behind + 1, ' ');
            if (!options) continue;
            options[strcspn(options, "\n")] = 0;
            if (!lists(options + 1, k->name)) continue;
        }
        limit = limit_of_mount(k, root, word[3], word[4], version);
        if (limit < least) least = limit;
    }
    (void)fclose(file);
    return least;
}

#endif

unsigned processors(void)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned n = online < 1 ? 1 : online > 1024 ? 1024 : (unsigned)online;
#ifdef __linux__
    const double limit = limit_of_groups(&of_processors, "");
    n = allowed(n);
    if (limit < n) n = (unsigned)limit + (limit > (unsigned)limit);
#endif
    return n;
}

uint64_t memory_size(void)
{
    double n = (double)((uint64_t)1 << 30);
#ifdef _SC_PHYS_PAGES
    const long pages = sysconf(_SC_PHYS_PAGES), each = sysconf(_SC_PAGESIZE);
    if (pages > 0 && each > 0) n = (double)pages * (double)each;
#endif
#ifdef __linux__
    const double limit = limit_of_groups(&of_memory, "");
    if (limit < n) n = limit;
#endif
    return (uint64_t)n;
}
