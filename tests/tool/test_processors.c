/* test_processors.c - how many processors the tool thinks that there are: limits of control groups as Linux shows them. */
#include "docs/examples/tool/system/posix.h"

#include "tests/unit/test.h"

#include "docs/examples/tool/system/processors.c"

#ifdef __linux__
#include <errno.h>
#include <sys/stat.h>

static char root[64];

/* A file below `root`, with the folders above it. */
static void put(const char *name, const char *text)
{
    char path[512];
    char *slash;
    FILE *file;
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    for (slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = 0;
        if (mkdir(path, 0700) && errno != EEXIST) abort();
    }
    file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file)) abort();
}

static void begin(void)
{
    (void)strcpy(root, "/tmp/bitsnap-processors-XXXXXX");
    if (!mkdtemp(root)) abort();
}

static void end(void)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", root);
    if (system(command)) abort();
}

#define OTHERS "21 1 0:20 / /proc rw - proc proc rw\n22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
#define V2 OTHERS "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"

/* Processors, rounded up; UINT_MAX: no limit. */
static unsigned limit(const char *at)
{
    const double x = limit_of_groups(&of_processors, at);
    return x > 65536 ? UINT_MAX : (unsigned)x + (x > (unsigned)x);
}

/* Version 2: the smallest limit of the group and of the groups above it. */
static void version_2(void)
{
    begin();
    CHECK(limit(root) == UINT_MAX, "nothing there");
    put("proc/self/mountinfo", V2);
    CHECK(limit(root) == UINT_MAX, "no group");
    put("proc/self/cgroup", "0::/a.slice/b.scope\n");
    CHECK(limit(root) == UINT_MAX, "no file");
    put("sys/fs/cgroup/a.slice/b.scope/cpu.max", "max 100000\n");
    CHECK(limit(root) == UINT_MAX, "max");
    put("sys/fs/cgroup/a.slice/b.scope/cpu.max", "400000 100000\n");
    CHECK(limit(root) == 4, "its own");
    put("sys/fs/cgroup/a.slice/cpu.max", "150000 100000\n");
    CHECK(limit(root) == 2, "of the group above, rounded up");
    put("sys/fs/cgroup/a.slice/cpu.max", "900000 100000\n");
    CHECK(limit(root) == 4, "the least");
    put("sys/fs/cgroup/cpu.max", "1000 100000\n");
    CHECK(limit(root) == 1, "where they are mounted");
    put("sys/fs/cgroup/cpu.max", "");
    put("sys/fs/cgroup/a.slice/cpu.max", "0 0\n");
    put("sys/fs/cgroup/a.slice/b.scope/cpu.max", "some 1\n");
    CHECK(limit(root) == UINT_MAX, "what is no limit");
    end();
}

/* Version 1, and both at once. */
static void version_1(void)
{
    begin();
    put("proc/self/mountinfo", OTHERS "31 22 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
                               "32 22 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n"
                               "33 22 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n");
    put("proc/self/cgroup", "9:cpuset:/wrong\n4:cpu,cpuacct:/docker/f00\n0::/both\n");
    put("sys/fs/cgroup/cpuset/wrong/cpu.cfs_quota_us", "100000\n");
    put("sys/fs/cgroup/cpuset/wrong/cpu.cfs_period_us", "100000\n");
    CHECK(limit(root) == UINT_MAX, "of another controller");
    put("sys/fs/cgroup/cpu,cpuacct/docker/f00/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/docker/f00/cpu.cfs_period_us", "100000\n");
    CHECK(limit(root) == UINT_MAX, "none");
    put("sys/fs/cgroup/cpu,cpuacct/docker/f00/cpu.cfs_quota_us", "300000\n");
    CHECK(limit(root) == 3, "its own");
    put("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "50000\n");
    CHECK(limit(root) == 3, "without a period");
    put("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "25000\n");
    CHECK(limit(root) == 2, "of the group above");
    put("sys/fs/cgroup/unified/both/cpu.max", "10000 100000\n");
    CHECK(limit(root) == 1, "of the other version");
    end();
}

static void memory(void)
{
    begin();
    put("proc/self/mountinfo", V2);
    put("proc/self/cgroup", "0::/a.slice/b.scope\n");
    CHECK(limit_of_groups(&of_memory, root) >= DBL_MAX, "no file");
    put("sys/fs/cgroup/a.slice/b.scope/memory.max", "max\n");
    CHECK(limit_of_groups(&of_memory, root) >= DBL_MAX, "max");
    put("sys/fs/cgroup/a.slice/memory.max", "268435456\n");
    CHECK(limit_of_groups(&of_memory, root) <= 268435456 && limit_of_groups(&of_memory, root) >= 268435456, "of the group above");
    end();
    begin();
    put("proc/self/mountinfo", OTHERS "32 22 0:28 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n");
    put("proc/self/cgroup", "4:memory:/docker/f00\n");
    put("sys/fs/cgroup/memory/docker/f00/memory.limit_in_bytes", "1048576\n");
    CHECK(limit_of_groups(&of_memory, root) <= 1048576 && limit_of_groups(&of_memory, root) >= 1048576, "version 1");
    CHECK(memory_size() >= 1 << 20, "of this machine");
    end();
}

/* In a container what is mounted may be a group itself. */
static void containers(void)
{
    begin();
    put("proc/self/mountinfo", "30 22 0:26 /docker/f00 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("proc/self/cgroup", "0::/docker/f00/inner\n");
    put("sys/fs/cgroup/cpu.max", "200000 100000\n");
    CHECK(limit(root) == 2, "the container's");
    put("sys/fs/cgroup/inner/cpu.max", "100000 100000\n");
    CHECK(limit(root) == 1, "of a group in it");
    put("proc/self/cgroup", "0::/docker/f00bar\n");
    CHECK(limit(root) == 2, "of a name that only begins so");
    put("proc/self/cgroup", "0::/../other\n");
    CHECK(limit(root) == 2, "of another namespace");
    put("proc/self/cgroup", "0::/\n");
    put("proc/self/mountinfo", V2);
    CHECK(limit(root) == 2, "the root of a namespace");
    end();
}

static void this_process(void)
{
    cpu_set_t before, one;
    int i = 0;
    if (sched_getaffinity(0, sizeof before, &before)) return;
    CHECK(processors() >= 1 && processors() <= (unsigned)CPU_COUNT(&before), "%u", processors());
    while (!CPU_ISSET(i, &before)) i++;
    CPU_ZERO(&one);
    CPU_SET(i, &one);
    CHECK(!sched_setaffinity(0, sizeof one, &one) && processors() == 1, "%u where one is allowed", processors());
}
#endif

int main(void)
{
    test_program = "processors:";
#ifdef __linux__
    RUN(version_2);
    RUN(version_1);
    RUN(containers);
    RUN(memory);
    RUN(this_process);
#else
    SKIP("version_2", "no Linux");
#endif
    return test_failures > 0;
}
