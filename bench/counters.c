#if defined(__linux__)
#define _GNU_SOURCE /* syscall */
#endif

#include "counters.h"

#if defined(__linux__)

#include <linux/perf_event.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int leader = -1; /* counts cycles; the group's second member counts instructions */

static int open_event(uint64_t what, int group)
{
    struct perf_event_attr event;
    memset(&event, 0, sizeof event);
    event.size = sizeof event;
    event.type = PERF_TYPE_HARDWARE;
    event.config = what;
    event.disabled = group < 0;
    event.exclude_kernel = 1; /* without this, more kernels refuse */
    event.exclude_hv = 1;
    event.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    return (int)syscall(SYS_perf_event_open, &event, 0, -1, group, 0);
}

int counters_work(void)
{
    static int known, work;
    if (known) return work;
    known = 1;
    leader = open_event(PERF_COUNT_HW_CPU_CYCLES, -1);
    work = leader >= 0 && open_event(PERF_COUNT_HW_INSTRUCTIONS, leader) >= 0;
    if (!work && leader >= 0) close(leader);
    return work;
}

void counters_start(void)
{
    ioctl(leader, PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP);
    ioctl(leader, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
}

counts counters_stop(void)
{
    struct {
        uint64_t members, enabled, running, values[2];
    } got;
    counts c = {0, 0};
    ioctl(leader, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
    if (read(leader, &got, sizeof got) != (ssize_t)sizeof got || got.members != 2 || !got.running) return c;
    /* if others share the unit, the group was counted for a part of the time */
    c.cycles = (double)got.values[0] * (double)got.enabled / (double)got.running;
    c.instructions = (double)got.values[1] * (double)got.enabled / (double)got.running;
    return c;
}

#else

int counters_work(void) { return 0; }

void counters_start(void) {}

counts counters_stop(void)
{
    counts c = {0, 0};
    return c;
}

#endif
