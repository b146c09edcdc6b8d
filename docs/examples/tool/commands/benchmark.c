/* benchmark.c - the command benchmark: the ratio and the speed of the codec on a file, in memory.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * The elements are those of the file, in the frames that compress makes. Every repetition encodes and decodes all of them, one
 * after the other, so that both see the same machine; the fastest of each counts. */
#include "../system/posix.h"

#include "../files/bytes.h"
#include "commands.h"
#include "../files/file.h"
#include "../files/header.h"
#include "../tensors/plan.h"
#include "../console/progress.h"
#include "../files/container.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECONDS 1.0      /* to spend on a file, at least */
#define REPETITIONS_MIN 5
#define REPETITIONS_MAX 200

/* The frame of a piece. */
typedef struct frame {
    size_t at, size;
} frame;

typedef struct job {
    const options *o;
    codec *codec;
    input in;
    header header;
    plan plan;
    frame *made;                   /* of each piece */
    uint8_t *elements, *back, *frames;
    uint64_t bytes;
    size_t frames_size, text_size, pieces; /* of the coded header text */
    double encode, decode;         /* seconds */
    fault *f;
} job;

/* The frames that compress makes, of tensors or of raw elements. */
static int make_plan(job *j)
{
    safetensors raw = { 0 };
    tensor all = { 0 };
    if (j->o->dtype) {
        all.type = j->o->dtype;
        all.end = j->bytes;
        all.elements = j->bytes / bitsnap_width(j->o->dtype->codec);
        raw.tensors = &all;
        raw.count = 1;
    }
    if (plan_make(&j->plan, j->o->dtype ? &raw : &j->header.model, NULL, NULL, NULL, 0, j->o->level, j->f)) return 1;
    j->made = (frame *)calloc(j->plan.count + 1, sizeof *j->made);
    return j->made ? 0 : fault_memory(j->f);
}

static int load(job *j, const char *path)
{
    uint64_t room = 0;
    size_t i, at, got;
    uint8_t *coded;
    if (input_open(&j->in, path, j->f)) return 1;
    if (!j->o->dtype) {
        if (header_read(&j->header, &j->in, j->f)) return 1;
        j->bytes = j->header.model.data_size;
        if (text_encode(&coded, &j->text_size, j->header.text, j->header.size, j->f)) return 1;
        for (at = 0; at < j->text_size; at += BITSNAP_TEXT_PREFIX + load32(coded + at + 8) + 8) j->pieces++;
        free(coded);
    } else {
        if (j->in.size == SIZE_UNKNOWN) return fault_set(j->f, "benchmark needs a file, not a pipe");
        j->bytes = j->in.size - j->in.size % bitsnap_width(j->o->dtype->codec);
    }
    if (j->bytes > SIZE_MAX / 4) return fault_memory(j->f);
    if (make_plan(j)) return 1;
    for (i = 0; i < j->plan.count; i++) {
        const piece *p = &j->plan.pieces[i];
        const size_t bound = bitsnap_bound(&j->codec->b, p->bytes / bitsnap_width(p->form.dtype), p->form.dtype);
        if (!bound) return fault_memory(j->f);
        if (p->form.columns && codec_reserve(j->codec, 20, 1, j->f)) return 1;
        j->made[i].at = (size_t)room;
        room += bound;
    }
    j->elements = (uint8_t *)malloc((size_t)j->bytes + 1);
    j->back = (uint8_t *)malloc((size_t)j->bytes + 1);
    j->frames = (uint8_t *)malloc((size_t)room + 1);
    if (!j->elements || !j->back || !j->frames) return fault_memory(j->f);
    if (input_read(&j->in, j->elements, (size_t)j->bytes, &got, j->f)) return 1;
    if (got < j->bytes) return fault_set(j->f, "ended at byte %llu", (unsigned long long)j->in.offset);
    for (i = 0; i < j->plan.count; i++) {
        const piece *p = &j->plan.pieces[i];
        swap_elements(j->elements + p->begin, (size_t)p->bytes, bitsnap_width(p->form.dtype));
    }
    return 0;
}

static void keep_fastest(double *best, double seconds)
{
    if (*best <= 0 || seconds < *best) *best = seconds;
}

static int repeat(job *j)
{
    bitsnap *b = &j->codec->b;
    const double begun = seconds_now();
    unsigned n;
    size_t i;
    for (n = 0; n < REPETITIONS_MIN || (n < REPETITIONS_MAX && seconds_now() - begun < SECONDS); n++) {
        double t = seconds_now();
        for (i = 0, j->frames_size = 0; i < j->plan.count; i++) {
            const piece *p = &j->plan.pieces[i];
            const bitsnap_dtype dtype = p->form.dtype;
            const uint64_t count = p->bytes / bitsnap_width(dtype);
            frame *x = &j->made[i];
            b->columns = p->form.columns;
            if (bitsnap_encode(b, j->frames + x->at, bitsnap_bound(b, count, dtype), &x->size, j->elements + p->begin, count, dtype))
                return fault_set(j->f, "%s", bitsnap_message(b));
            j->frames_size += x->size;
        }
        keep_fastest(&j->encode, seconds_now() - t);
        t = seconds_now();
        for (i = 0; i < j->plan.count; i++) {
            const piece *p = &j->plan.pieces[i];
            const frame *x = &j->made[i];
            if (bitsnap_decode(b, j->back + p->begin, p->bytes / bitsnap_width(p->form.dtype), p->form.dtype, j->frames + x->at, x->size))
                return fault_set(j->f, "%s", bitsnap_message(b));
        }
        keep_fastest(&j->decode, seconds_now() - t);
        if (memcmp(j->elements, j->back, (size_t)j->bytes)) return fault_set(j->f, "decoded to other elements: a fault of the codec or of this machine");
    }
    b->columns = 0;
    return 0;
}

/* Bytes of the .bsnap file that compress makes of it: header, text, frames, end record. */
static uint64_t file_size(const job *j)
{
    return BITSNAP_FILE_HEADER + j->text_size + j->frames_size + BITSNAP_END_PREFIX +
           bitsnap_tree_size(j->pieces + j->plan.count, BITSNAP_RECORD_ENTRY) + BITSNAP_END_SUFFIX +
           (j->pieces > 1 ? bitsnap_tree_size(j->header.model.count, BITSNAP_NAME_ENTRY) : 0);
}

/* Returns the width of the first column. On a narrow terminal, names lose their beginning. */
static size_t name_width(void)
{
    const size_t least = 12, most = 40, others = 41, columns = terminal_columns(STDOUT_FILENO);
    return !columns || columns > most + others ? most : columns > least + others ? columns - others : least;
}

static void report(const job *j, const char *path)
{
    const size_t width = name_width();
    size_t columns;
    const uint64_t whole = j->o->dtype ? j->bytes : 8 + (uint64_t)j->header.size + j->bytes;
    const uint64_t packed = file_size(j);
    const double gigabytes = (double)j->bytes / 1e9;
    if (j->o->json) {
        json out = json_report("benchmark", path);
        json_member_whole(&out, "bytes_in", whole);
        json_member_whole(&out, "bytes_out", packed);
        json_member_real(&out, "ratio", (double)whole / (double)packed);
        json_member_whole(&out, "threads", j->codec->b.workers);
        json_member_real(&out, "compress_gbps", gigabytes / j->encode);
        json_member_real(&out, "decompress_gbps", gigabytes / j->decode);
        json_report_end(&out);
        return;
    }
    columns = terminal_columns(STDOUT_FILENO) ? print_end(stdout, path, strlen(path), width)
                                              : print_text(stdout, path, strlen(path));
    (void)printf("%*s %12llu %9.4f %8.2f %8.2f\n", columns < width ? (int)(width - columns) : 0, "", (unsigned long long)whole,
                 (double)whole / (double)packed, gigabytes / j->encode, gigabytes / j->decode);
    (void)fflush(stdout);
}

void benchmark_title(const options *o)
{
    if (!o->json)
        (void)printf("%-*s %12s %9s %8s %8s\n", (int)name_width(), "file", "bytes", "ratio", "in GB/s", "out GB/s");
}

int command_benchmark(const options *o, codec *c, const char *path, fault *f)
{
    job j = { .o = o, .codec = c, .f = f, .in.fd = -1 };
    int failed;
    failed = load(&j, path) || repeat(&j);
    if (!failed) report(&j, path);
    plan_free(&j.plan);
    free(j.made);
    free(j.elements);
    free(j.back);
    free(j.frames);
    header_free(&j.header);
    input_close(&j.in);
    return failed;
}
