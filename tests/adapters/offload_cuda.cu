/* The device code on a GPU: decodes what the codec has encoded, compares, and measures. MIT licence, see bitsnap.h.
 *
 *     offload_cuda check FILE.safetensors...   every dtype and level, and damaged blocks
 *     offload_cuda bench FILE.safetensors...   1 GiB of elements, beside a copy within the device
 *     offload_cuda small FILE.safetensors...   little, for compute-sanitizer
 *     offload_cuda bench1 FILE.safetensors...  few launches, for ncu
 *
 * Files whose names begin with "adam" are moments, which bench quantizes; with "bf16" and "fp16" they are of that type. */
#define BITSNAP_OFFLOAD
#include "docs/examples/offload/cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#define MUST(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(e_)); exit(1); } } while (0)

static unsigned failures, processors;
static u32 memory_size = 48 << 10;
static const u32 scratch_size = 1056 << 10;

struct Tensors { std::vector<u8> bytes; const char *name; size_t begin; };

static Tensors load(const char *path)
{
    Tensors t;
    FILE *f = fopen(path, "rb");
    u64 size = 0;
    if (!f) { perror(path); exit(1); }
    fseek(f, 0, SEEK_END);
    t.bytes.resize(ftell(f));
    rewind(f);
    if (fread(t.bytes.data(), 1, t.bytes.size(), f) != t.bytes.size()) exit(1);
    fclose(f);
    memcpy(&size, t.bytes.data(), 8);
    t.bytes.erase(t.bytes.begin(), t.bytes.begin() + 8 + size);
    t.name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    return t;
}

struct Frame {
    std::vector<u8> bytes, elements;
    bitsnap_info info;
    std::vector<bitsnap_extent> blocks;
    bitsnap_dtype dtype;
};

enum { CELLS = 35 }; /* of an octave: what is quantized is within 1 % */

static bitsnap options(int level, unsigned log2)
{
    static std::vector<u8> workspace(64 << 20);
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace.data();
    b.workspace_size = workspace.size();
    b.level = level;
    b.block_log2 = log2;
    return b;
}

static Frame encode(const Tensors &t, bitsnap_dtype dtype, int level, unsigned log2, const std::vector<u8> *base = NULL, unsigned cells = 0, u64 columns = 0)
{
    Frame f;
    bitsnap b = options(level, log2);
    b.quantizer.bins = cells;
    b.columns = columns;
    if (base) {
        b.base.data = base->data();
        b.base.count = t.bytes.size() / bitsnap_width(dtype);
        b.base.dtype = dtype;
    }
    static bitsnap_index index;
    const unsigned width = bitsnap_width(dtype);
    const u64 count = t.bytes.size() / width;
    size_t size;
    f.dtype = dtype;
    f.elements.assign(t.bytes.begin(), t.bytes.begin() + count * width);
    f.bytes.resize(bitsnap_bound(&b, count, dtype));
    if (bitsnap_encode(&b, f.bytes.data(), f.bytes.size(), &size, f.elements.data(), count, dtype)) { puts(bitsnap_message(&b)); exit(1); }
    f.bytes.resize(size);
    if (cells && bitsnap_decode(&b, f.elements.data(), count, dtype, f.bytes.data(), size)) { puts(bitsnap_message(&b)); exit(1); } /* what comes back */
    bitsnap_source source = { 0, 0, f.bytes.data(), size };
    bitsnap_index_open(&b, &index, &f.info, &source);
    for (u64 at = 0; at < count;) {
        bitsnap_extent x;
        if (bitsnap_index_find(&b, &index, at, &x)) exit(1);
        f.blocks.push_back(x);
        at += x.count;
    }
    return f;
}

static bitsnap_work work_of(const Frame &f, const bitsnap_extent &x, u64 source, u64 target, u8 flags, u64 base = 0)
{
    bitsnap_work w;
    memset(&w, 0, sizeof w);
    w.source = source + x.offset;
    w.target = target + x.first * bitsnap_width(f.dtype);
    w.first = x.first;
    w.header_check = f.info.header_check;
    w.size = (u32)x.size;
    w.count = (u32)x.count;
    memcpy(&w.head, f.bytes.data() + x.offset, 4);
    w.dtype = (u8)f.dtype;
    w.flags = flags;
    w.role = f.info.has_base;
    w.bins = f.info.bins;
    w.columns = (uint32_t)(f.info.columns < 0xFFFFFFFF ? f.info.columns : 0xFFFFFFFF);
    if (base) w.base = base + x.first * bitsnap_width(f.dtype);
    return w;
}

/* Blocks of words are another kernel's. */
static bool has_words(const std::vector<bitsnap_work> &works)
{
    for (auto &w : works)
        if (offload_has_words(&w)) return true;
    return false;
}

template <class T> static T *device(size_t n) { T *p; MUST(cudaMalloc(&p, n * sizeof(T) + 64)); return p; }
template <class T> static T *upload(const std::vector<T> &v) { T *p = device<T>(v.size()); MUST(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice)); return p; }

static u32 *scratch;
static unsigned groups(void)
{
    int n = 0;
    MUST(cudaFuncSetAttribute(offload_decode, cudaFuncAttributeMaxDynamicSharedMemorySize, memory_size));
    MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, offload_decode, THREADS, memory_size));
    return (unsigned)n * processors;
}
static void launch(const bitsnap_work *works, bitsnap_done *done, u32 count, bool deltas = false)
{
    const unsigned n = std::min(groups(), count);
    MUST(cudaFuncSetAttribute(offload_decode_deltas, cudaFuncAttributeMaxDynamicSharedMemorySize, memory_size));
    (deltas ? offload_decode_deltas : offload_decode)<<<n, THREADS, memory_size>>>(works, done, count, scratch, scratch_size, memory_size);
    MUST(cudaGetLastError());
}

static const char *quantized(const Frame &f) { return !f.info.bins ? "" : f.info.columns ? ", quantized in columns" : ", quantized"; }

static void compare(const Frame &f, const char *name, int level, u8 flags)
{
    u8 *source = upload(f.bytes), *target = device<u8>(f.elements.size());
    std::vector<bitsnap_work> works;
    for (auto &x : f.blocks) works.push_back(work_of(f, x, (u64)source, (u64)target, flags));
    bitsnap_work *w = upload(works);
    bitsnap_done *d = device<bitsnap_done>(works.size());
    std::vector<bitsnap_done> done(works.size());
    std::vector<u8> out(f.elements.size());
    MUST(cudaMemset(target, 0xA5, f.elements.size()));
    launch(w, d, (u32)works.size(), has_words(works));
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(done.data(), d, done.size() * sizeof done[0], cudaMemcpyDeviceToHost));
    MUST(cudaMemcpy(out.data(), target, out.size(), cudaMemcpyDeviceToHost));
    size_t equal = 0, different = 0, declined = 0, refused = 0;
    const unsigned width = bitsnap_width(f.dtype);
    for (size_t i = 0; i < works.size(); i++) {
        const size_t at = f.blocks[i].first * width, size = f.blocks[i].count * width;
        if (done[i].status == ST_DECLINED) declined++;
        else if (done[i].status) refused++;
        else if (memcmp(out.data() + at, f.elements.data() + at, size)) different++;
        else equal++;
    }
    printf("%s as %s level %d%s: %zu blocks equal, %zu different, %zu left to the host, %zu refused\n", name, bitsnap_dtype_name(f.dtype), level, quantized(f), equal, different, declined, refused);
    failures += different + refused;
    cudaFree(source); cudaFree(target); cudaFree(w); cudaFree(d);
}

/* Every block damaged in some ways, checks ignored: the device must say what the host says, and store nothing it should not. */
static void damage(const Frame &f, unsigned rounds)
{
    std::vector<u8> bytes;
    std::vector<bitsnap_work> works;
    std::vector<bitsnap_extent> blocks;
    std::vector<size_t> at;
    u32 seed = 1;
    const unsigned width = bitsnap_width(f.dtype);
    for (unsigned r = 0; r < rounds; r++)
        for (auto &x : f.blocks) {
            const size_t begin = (bytes.size() + 3) & ~(size_t)3;
            bytes.resize(begin);
            at.push_back(begin);
            bytes.insert(bytes.end(), f.bytes.begin() + x.offset, f.bytes.begin() + x.offset + x.size);
            const size_t where[4] = { 12, 13, 0, 0 };
            for (int k = 0; k < 2; k++) {
                seed = seed * 1664525 + 1013904223;
                size_t i = (seed >> 30) ? 12 + (seed >> 8) % (x.size - 12) : x.size > f.blocks[0].count + 200 ? 12 + 1 + x.count + (seed >> 8) % 180 : where[k];
                if (i >= x.size) i = x.size - 1;
                bytes[begin + i] ^= (u8)(1 + (seed >> 3) % 255);
            }
            blocks.push_back(x);
        }
    u8 *source = upload(bytes);
    const size_t each = (f.blocks[0].count * width + 255) & ~(size_t)255;
    u8 *target = device<u8>(each * blocks.size());
    MUST(cudaMemset(target, 0xA5, each * blocks.size()));
    for (size_t i = 0; i < blocks.size(); i++) {
        bitsnap_work w = work_of(f, blocks[i], 0, 0, 3);
        w.source = (u64)source + at[i];
        w.target = (u64)target + each * i;
        works.push_back(w);
    }
    bitsnap_work *w = upload(works);
    bitsnap_done *d = device<bitsnap_done>(works.size());
    std::vector<bitsnap_done> done(works.size());
    std::vector<u8> out(each * blocks.size());
    launch(w, d, (u32)works.size(), has_words(works));
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(done.data(), d, done.size() * sizeof done[0], cudaMemcpyDeviceToHost));
    MUST(cudaMemcpy(out.data(), target, out.size(), cudaMemcpyDeviceToHost));
    size_t same = 0, rule = 0, declined = 0, wrong = 0, outside = 0;
    std::vector<u8> expected(each);
    for (size_t i = 0; i < blocks.size(); i++) {
        bitsnap b = options(0, 0);
        b.flags = BITSNAP_IGNORE_CHECKS;
        const bitsnap_status s = bitsnap_block_decode(&b, expected.data(), blocks[i].first, blocks[i].count, &f.info, &blocks[i], bytes.data() + at[i]);
        const size_t size = blocks[i].count * width;
        if (done[i].status == ST_DECLINED) declined++;
        else if ((s == BITSNAP_OK) != (done[i].status == 0)) wrong++;
        else if (s) rule += done[i].status >> 8 == b.error.rule;
        else if (memcmp(out.data() + each * i, expected.data(), size)) wrong++;
        else same++;
        for (size_t k = size; k < each; k++) /* what is refused may have been written in part, where there is no base */
            if (out[each * i + k] != 0xA5) { outside++; break; }
    }
    printf("damaged %s: %zu blocks: %zu the same, %zu refused by the same rule, %zu left to the host, %zu wrong, %zu written outside\n", bitsnap_dtype_name(f.dtype), blocks.size(), same, rule, declined, wrong, outside);
    failures += wrong + outside;
    cudaFree(source); cudaFree(target); cudaFree(w); cudaFree(d);
}

/* Frames in host memory through bitsnap_offload_decode and _apply. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* bitsnap.run: threads that are there already. */
enum { WORKERS = 16 };
struct Pool {
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::condition_variable changed;
    bitsnap_task task = NULL;
    void *argument = NULL;
    std::atomic<uint64_t> next{0};
    uint64_t count = 0;
    unsigned round = 0, busy = 0, workers;

    explicit Pool(unsigned workers) : workers(workers)
    {
        for (unsigned worker = 0; worker < workers; worker++) threads.emplace_back([this, worker] { work(worker); });
    }
    ~Pool()
    {
        run(NULL, NULL, 0);
        for (auto &t : threads) t.join();
    }
    void work(unsigned worker)
    {
        for (unsigned seen = 0;; ) {
            std::unique_lock<std::mutex> lock(mutex);
            changed.wait(lock, [&] { return round != seen; });
            seen = round;
            lock.unlock();
            if (task)
                for (uint64_t i; (i = next++) < count;) task(argument, i, worker);
            lock.lock();
            if (!--busy) changed.notify_all();
            if (!task) return;
        }
    }
    void run(bitsnap_task task_, void *argument_, uint64_t count_)
    {
        std::unique_lock<std::mutex> lock(mutex);
        task = task_, argument = argument_, count = count_, next = 0, busy = workers, round++;
        changed.notify_all();
        changed.wait(lock, [&] { return !busy; });
    }
};
static void run_tasks(void *context, bitsnap_task task, void *argument, uint64_t count) { ((Pool *)context)->run(task, argument, count); }

static void hook(const std::vector<Frame> &frames, const std::vector<const std::vector<u8> *> &bases, const char *name, int times, bool pinned = false)
{
    static std::vector<u8> workspace;
    offload_cuda c;
    bitsnap_offload o;
    bitsnap b;
    std::vector<bitsnap_request> requests;
    std::vector<u8> out;
    u64 total = 0;
    for (auto &f : frames) total += f.elements.size();
    for (int k = 0; k < times; k++)
        for (size_t i = 0; i < frames.size(); i++) {
            const Frame &f = frames[i];
            bitsnap_request r;
            memset(&r, 0, sizeof r);
            r.frame = f.bytes.data();
            r.size = f.bytes.size();
            r.elements = (u64)device<u8>(f.elements.size());
            r.count = f.info.count;
            r.dtype = f.dtype;
            if (f.info.has_base) {
                r.base = (u64)upload(*bases[i]);
                r.base_dtype = f.info.base_dtype;
            }
            requests.push_back(r);
        }
    if (offload_cuda_begin(&c, &o, 64 << 20, 512 << 20)) { puts("offload_cuda_begin fails"); exit(1); }
    if (pinned) {
        for (auto &f : frames) MUST(cudaHostRegister((void *)f.bytes.data(), f.bytes.size(), 0));
        o.host = NULL;
    }
    memset(&b, 0, sizeof b);
    workspace.resize(bitsnap_offload_workspace(requests.data(), requests.size()));
    b.workspace = workspace.data();
    b.workspace_size = workspace.size();
    for (int pass = 0; pass < 3; pass++) {
        const bool applying = pass == 2;
        if (applying && !frames[0].info.has_base) break;
        if (applying)
            for (auto &r : requests) MUST(cudaMemcpy((void *)r.elements, (void *)r.base, r.count * bitsnap_width(r.dtype), cudaMemcpyDeviceToDevice));
        MUST(cudaDeviceSynchronize());
        const double start = now();
        const bitsnap_status s = applying ? bitsnap_offload_apply(&b, &o, requests.data(), requests.size()) : bitsnap_offload_decode(&b, &o, requests.data(), requests.size());
        const double seconds = now() - start;
        size_t bad = s != 0;
        for (size_t i = 0; i < requests.size(); i++) {
            const Frame &f = frames[i % frames.size()];
            out.resize(f.elements.size());
            MUST(cudaMemcpy(out.data(), (void *)requests[i].elements, out.size(), cudaMemcpyDeviceToHost));
            bad += out != f.elements;
        }
        printf("%s %s: %zu frames from %s memory, %.1f MB: %s, %.1f GB/s of elements%s\n", applying ? "apply" : "decode", name, requests.size(), pinned ? "page-locked" : "host", total * times / 1e6,
               bad ? "WRONG" : "right", total * times / seconds / 1e9, pass == 0 ? " (first call)" : "");
        failures += bad;
    }
    if (pinned)
        for (auto &f : frames) MUST(cudaHostUnregister((void *)f.bytes.data()));
    /* the other way round, what the card has made checked by one thread, by several, and not at all */
    for (unsigned workers : { 1u, (unsigned)WORKERS, 0u }) {
        if (pinned || frames[0].info.has_base) break;
        std::vector<std::vector<u8>> made(requests.size());
        std::vector<bitsnap_request> some = requests;
        memset(&b, 0, sizeof b);
        b.level = 2;
        b.block_log2 = frames[0].info.block_log2;
        b.workers = workers;
        Pool pool(workers);
        b.run = run_tasks;
        b.run_context = &pool;
        if (workers < 2) b.run = NULL, b.workers = 0;
        o.trusted = !workers;
        for (size_t i = 0; i < some.size(); i++) {
            made[i].resize(bitsnap_bound(&b, some[i].count, some[i].dtype));
            some[i].destination = made[i].data();
            some[i].size = made[i].size();
        }
        workspace.resize(bitsnap_offload_encode_workspace(&b, some.data(), some.size()));
        b.workspace = workspace.data();
        b.workspace_size = workspace.size();
        const double start = now();
        const bitsnap_status s = bitsnap_offload_encode(&b, &o, some.data(), some.size());
        const double seconds = now() - start;
        bool bad = s != 0;
        for (size_t i = 0; i < some.size(); i++) {
            const Frame &f = frames[i % frames.size()];
            bad |= some[i].size != f.bytes.size() || memcmp(made[i].data(), f.bytes.data(), f.bytes.size());
        }
        printf("encode %s by the hook, %s: %zu frames, %.1f MB: %s, %.1f GB/s of elements\n", name,
               !workers ? "trusted" : workers == 1 ? "checked by 1 thread" : "checked by 16 threads", some.size(), total * times / 1e6,
               bad ? "WRONG" : "right", total * times / seconds / 1e9);
        failures += bad;
    }
    o.trusted = 0;
    offload_cuda_end(&c);
    for (auto &r : requests) { cudaFree((void *)r.elements); cudaFree((void *)r.base); }
}

static float timed(const bitsnap_work *w, bitsnap_done *d, u32 count, bool deltas)
{
    cudaEvent_t a, z;
    std::vector<float> ms;
    MUST(cudaEventCreate(&a)); MUST(cudaEventCreate(&z));
    for (int i = 0; i < 7; i++) {
        float t;
        MUST(cudaEventRecord(a));
        launch(w, d, count, deltas);
        MUST(cudaEventRecord(z));
        MUST(cudaEventSynchronize(z));
        MUST(cudaEventElapsedTime(&t, a, z));
        ms.push_back(t);
    }
    std::sort(ms.begin(), ms.end());
    return ms[3];
}

static void bench(const Frame &f, const char *name, int level, size_t total, const char *what, const std::vector<u8> *base = NULL)
{
    u8 *source = upload(f.bytes);
    const unsigned width = bitsnap_width(f.dtype);
    u8 *target = device<u8>(total);
    std::vector<bitsnap_work> works;
    u64 made = 0, read = 0;
    u8 *bases = base ? device<u8>(total) : NULL;
    /* the frame again and again, each copy of it at an address of its own */
    u8 *sources = device<u8>((total / f.elements.size() + 1) * (f.bytes.size() + 16));
    while (made + f.elements.size() <= total) {
        u8 *to = sources + made / f.elements.size() * f.bytes.size();
        MUST(cudaMemcpy(to, source, f.bytes.size(), cudaMemcpyDeviceToDevice));
        if (base) MUST(cudaMemcpy(bases + made, base->data(), f.elements.size(), cudaMemcpyHostToDevice));
        for (auto &x : f.blocks) {
            if (x.count != f.blocks[0].count) continue;
            works.push_back(work_of(f, x, (u64)to, (u64)target + made, 1, base ? (u64)bases + made : 0));
            read += x.size;
        }
        made += f.elements.size() / 256 * 256;
    }
    u64 elements = 0;
    for (auto &w : works) elements += (u64)w.count * width;
    bitsnap_work *w = upload(works);
    bitsnap_done *d = device<bitsnap_done>(works.size());
    const bool words = has_words(works);
    const float checked = timed(w, d, (u32)works.size(), words);
    std::vector<bitsnap_done> done(works.size());
    MUST(cudaMemcpy(done.data(), d, done.size() * sizeof done[0], cudaMemcpyDeviceToHost));
    size_t bad = 0;
    for (auto &x : done) bad += x.status != 0;
    for (auto &x : works) x.flags = 3;
    MUST(cudaMemcpy(w, works.data(), works.size() * sizeof works[0], cudaMemcpyHostToDevice));
    const float unchecked = timed(w, d, (u32)works.size(), words);
    printf("%s %s as %s level %d%s: %zu blocks (%zu refused), %.3f of elements: %.1f GB/s of elements, %.1f without checks\n", what, name,
           bitsnap_dtype_name(f.dtype), level, quantized(f), works.size(), bad, (double)read / elements, elements / checked / 1e6, elements / unchecked / 1e6);
    cudaFree(source); cudaFree(target); cudaFree(sources); cudaFree(bases); cudaFree(w); cudaFree(d);
}

static u32 encode_memory = 48 << 10;
static unsigned encode_groups(offload_cuda_kernel kernel = offload_encode)
{
    int n = 0;
    MUST(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, encode_memory));
    MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, kernel, THREADS, encode_memory));
    return (unsigned)n * processors;
}

/* The blocks of a frame encoded by the device, `times` of them all: compared, and timed where there are many. */
static void encodes(const Frame &f, const std::vector<u8> &elements_of, const char *name, int level, int times)
{
    const offload_cuda_kernel kernel = f.info.bins ? offload_encode_cells : offload_encode;
    const unsigned width = bitsnap_width(f.dtype), most = encode_groups(kernel);
    u8 *source = device<u8>(f.elements.size() * times);
    const size_t slot = (f.blocks[0].count * width + 28 + 15) / 16 * 16;
    u8 *target = device<u8>(slot * f.blocks.size());
    std::vector<bitsnap_work> works;
    u64 elements = 0;
    for (int k = 0; k < times; k++) {
        MUST(cudaMemcpy(source + k * f.elements.size(), elements_of.data(), f.elements.size(), cudaMemcpyHostToDevice));
        for (size_t i = 0; i < f.blocks.size(); i++) {
            bitsnap_work w;
            if (times > 1 && f.blocks[i].count != f.blocks[0].count) continue;
            memset(&w, 0, sizeof w);
            w.source = (u64)source + k * f.elements.size() + f.blocks[i].first * width;
            w.target = (u64)target + slot * i;
            w.first = f.blocks[i].first;
            w.header_check = f.info.header_check;
            w.size = (u32)slot;
            w.count = (u32)f.blocks[i].count;
            w.dtype = (u8)f.dtype;
            w.level = (u8)level;
            w.flags = BITSNAP_WORK_CHECKS;
            w.bins = f.info.bins;
            w.columns = (uint32_t)f.info.columns;
            works.push_back(w);
            elements += (u64)w.count * width;
        }
    }
    bitsnap_work *w = upload(works);
    bitsnap_done *d = device<bitsnap_done>(works.size());
    std::vector<bitsnap_done> done(works.size());
    std::vector<float> ms;
    cudaEvent_t a, z;
    MUST(cudaEventCreate(&a)); MUST(cudaEventCreate(&z));
    for (int i = 0; i < (times > 1 ? 5 : 1); i++) {
        float t;
        MUST(cudaEventRecord(a));
        kernel<<<std::min(most, (unsigned)works.size()), THREADS, encode_memory>>>(w, d, (u32)works.size(), scratch, scratch_size, encode_memory);
        MUST(cudaGetLastError());
        MUST(cudaEventRecord(z));
        MUST(cudaEventSynchronize(z));
        MUST(cudaEventElapsedTime(&t, a, z));
        ms.push_back(t);
    }
    std::sort(ms.begin(), ms.end());
    MUST(cudaMemcpy(done.data(), d, done.size() * sizeof done[0], cudaMemcpyDeviceToHost));
    std::vector<u8> out(slot * f.blocks.size());
    MUST(cudaMemcpy(out.data(), target, out.size(), cudaMemcpyDeviceToHost));
    size_t equal = 0, different = 0, declined = 0;
    for (size_t i = 0, j = 0; i < f.blocks.size(); i++) {
        if (times > 1 && f.blocks[i].count != f.blocks[0].count) continue;
        if (done[j].status == ST_DECLINED) declined++;
        else if (done[j].status || done[j].size != f.blocks[i].size || memcmp(out.data() + slot * i, f.bytes.data() + f.blocks[i].offset, f.blocks[i].size)) different++;
        else equal++;
        j++;
    }
    printf("encode %s as %s level %d%s: %zu blocks equal, %zu different, %zu left to the host", name, bitsnap_dtype_name(f.dtype), level, quantized(f), equal, different, declined);
    if (times > 1) printf("; %zu blocks, %u groups: %.1f GB/s of elements", works.size(), most, elements / ms[ms.size() / 2] / 1e6);
    puts("");
    failures += different;
    cudaFree(source); cudaFree(target); cudaFree(w); cudaFree(d);
}

/* Blocks, each in a slot of its own, or as its elements where it was declined, one behind the other, at multiples of 4. */
static __host__ __device__ size_t packed(const bitsnap_done *done, size_t size) { return (done->status ? size : done->size + 3) & ~(size_t)3; }
__global__ void pack(const u8 *source, size_t size, const u8 *slots, size_t slot, const bitsnap_done *done, u8 *to)
{
    __shared__ unsigned long long at;
    const u32 *from = (const u32 *)(done[blockIdx.x].status ? source + size * blockIdx.x : slots + slot * blockIdx.x);
    unsigned long long before = 0;
    if (!threadIdx.x) at = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < blockIdx.x; i += blockDim.x) before += packed(done + i, size);
    atomicAdd(&at, before);
    __syncthreads();
    for (size_t i = threadIdx.x; i < packed(done + blockIdx.x, size) / 4; i += blockDim.x) ((u32 *)(to + at))[i] = from[i];
}

/* A checkpoint on its way out: 1 GiB of elements, coded by the GPU and copied to page-locked memory, beside copying them as they are.
 * In pieces by two streams in turn, so that one codes while the other copies. */
static void leaves(const Frame &f, const char *name, int level)
{
    const u32 pieces = 16;
    const unsigned width = bitsnap_width(f.dtype);
    const size_t total = (size_t)1 << 30, size = f.blocks[0].count * width, slot = (size + 28 + 15) / 16 * 16;
    const u32 each = (u32)(total / pieces / size);
    size_t whole = 0, copied = 0;
    double best[2] = { 1e9, 1e9 };
    while (whole < f.blocks.size() && f.blocks[whole].count == f.blocks[0].count) whole++;
    u8 *source = device<u8>(total), *target[2], *together[2], *host;
    bitsnap_work *works[2];
    bitsnap_done *dones[2];
    u32 *memory[2];
    cudaStream_t streams[2];
    std::vector<bitsnap_done> done[2];
    const unsigned most = encode_groups();
    MUST(cudaMallocHost(&host, std::max(total, slot * each * pieces)));
    for (size_t at = 0, i = 0; at + size <= total; at += size, i++)
        MUST(cudaMemcpy(source + at, f.elements.data() + i % whole * size, size, cudaMemcpyHostToDevice));
    for (int k = 0; k < 2; k++) {
        MUST(cudaStreamCreate(&streams[k]));
        target[k] = device<u8>(slot * each);
        together[k] = device<u8>(slot * each);
        works[k] = device<bitsnap_work>(each);
        dones[k] = device<bitsnap_done>(each);
        memory[k] = (u32 *)device<u8>((size_t)scratch_size * most);
        done[k].resize(each);
        MUST(cudaHostRegister(done[k].data(), each * sizeof(bitsnap_done), 0));
    }
    std::vector<bitsnap_work> piece(each);
    for (int round = 0; round < 5; round++) {
        double start = now();
        for (u32 p = 0; p < pieces; p++)
            MUST(cudaMemcpyAsync(host + p * (total / pieces), source + p * (total / pieces), total / pieces, cudaMemcpyDeviceToHost, streams[p % 2]));
        MUST(cudaDeviceSynchronize());
        best[0] = std::min(best[0], now() - start);
        copied = 0;
        start = now();
        for (u32 p = 0; p < pieces + 1; p++) { /* piece p is coded while p - 1 is copied */
            const u32 k = p % 2, z = k ^ 1;
            if (p < pieces) {
                MUST(cudaStreamSynchronize(streams[k]));
                for (u32 i = 0; i < each; i++) {
                    bitsnap_work &w = piece[i];
                    memset(&w, 0, sizeof w);
                    w.source = (u64)source + ((u64)p * each + i) * size;
                    w.target = (u64)target[k] + slot * i;
                    w.first = ((u64)p * each + i) * f.blocks[0].count;
                    w.header_check = f.info.header_check;
                    w.size = (u32)slot;
                    w.count = (u32)f.blocks[0].count;
                    w.dtype = (u8)f.dtype;
                    w.level = (u8)level;
                    w.flags = BITSNAP_WORK_CHECKS;
                }
                MUST(cudaMemcpyAsync(works[k], piece.data(), each * sizeof piece[0], cudaMemcpyHostToDevice, streams[k]));
                offload_encode<<<std::min(most, each), THREADS, encode_memory, streams[k]>>>(works[k], dones[k], each, memory[k], scratch_size, encode_memory);
                MUST(cudaGetLastError());
                pack<<<each, 256, 0, streams[k]>>>(source + (u64)p * each * size, size, target[k], slot, dones[k], together[k]);
                MUST(cudaMemcpyAsync(done[k].data(), dones[k], each * sizeof(bitsnap_done), cudaMemcpyDeviceToHost, streams[k]));
            }
            if (!p) continue;
            MUST(cudaStreamSynchronize(streams[z])); /* how long its blocks are */
            size_t n = 0;
            for (u32 i = 0; i < each; i++) n += packed(&done[z][i], size);
            MUST(cudaMemcpyAsync(host + copied, together[z], n, cudaMemcpyDeviceToHost, streams[z]));
            copied += n;
        }
        MUST(cudaDeviceSynchronize());
        best[1] = std::min(best[1], now() - start);
    }
    const double bytes = (double)size * each * pieces;
    printf("out %s as %s level %d: plain copy %.1f GB/s; coded, %.3f of the bytes, %.1f GB/s of elements: %.2f of the copy's time\n", name,
           bitsnap_dtype_name(f.dtype), level, bytes / best[0] / 1e9, copied / bytes, bytes / best[1] / 1e9, best[1] / best[0]);
    for (int k = 0; k < 2; k++) {
        MUST(cudaHostUnregister(done[k].data()));
        cudaStreamDestroy(streams[k]);
        cudaFree(target[k]); cudaFree(together[k]); cudaFree(works[k]); cudaFree(dones[k]); cudaFree(memory[k]);
    }
    cudaFree(source); cudaFreeHost(host);
}

/* nvCOMP beside it, where its package (nvidia-libnvcomp-cu13) is: 1 GiB of elements in pieces of 64 KiB, from and to the card's memory. */
#if __has_include(<nvcomp/ans.h>) && __has_include(<nvcomp/lz4.h>)
#include <nvcomp/ans.h>
#include <nvcomp/lz4.h>
#define PEERS 1
#define NVCOMP(call) do { if ((call) != nvcompSuccess) { printf("%s:%d: nvCOMP\n", __FILE__, __LINE__); return; } } while (0)
#define PEER(NAME)                                                                                                                       \
    static void peer_##NAME(const Frame &f, const char *name, nvcompType_t type)                                                         \
    {                                                                                                                                    \
        const size_t piece = 65536, count = ((size_t)1 << 30) / piece;                                                                   \
        nvcompBatched##NAME##CompressOpts_t options = nvcompBatched##NAME##CompressDefaultOpts;                                           \
        size_t slot, room[2];                                                                                                            \
        options.data_type = type;                                                                                                        \
        NVCOMP(nvcompBatched##NAME##CompressGetMaxOutputChunkSize(piece, options, &slot));                                               \
        NVCOMP(nvcompBatched##NAME##CompressGetTempSize(count, piece, options, &room[0], count * piece, 0));                             \
        NVCOMP(nvcompBatched##NAME##DecompressGetTempSize(count, piece, nvcompBatched##NAME##DecompressDefaultOpts, &room[1], count * piece, 0)); \
        slot = (slot + 255) / 256 * 256;                                                                                                 \
        Peer p(f, piece, count, slot, std::max(room[0], room[1]));                                                                       \
        for (int i = 0; i < 5; i++) {                                                                                                    \
            p.begin();                                                                                                                   \
            NVCOMP(nvcompBatched##NAME##CompressAsync(p.elements, p.sizes, piece, count, p.memory, room[0], p.coded, p.coded_sizes,      \
                                                      options, p.statuses, 0));                                                          \
            p.end(0);                                                                                                                    \
        }                                                                                                                                \
        for (int i = 0; i < 5; i++) {                                                                                                    \
            p.begin();                                                                                                                   \
            NVCOMP(nvcompBatched##NAME##DecompressAsync(p.coded, p.coded_sizes, p.sizes, p.made_sizes, count, p.memory, room[1], p.made, \
                                                        nvcompBatched##NAME##DecompressDefaultOpts, p.statuses, 0));                     \
            p.end(1);                                                                                                                    \
        }                                                                                                                                \
        p.tell(#NAME, name);                                                                                                             \
    }

struct Peer {
    size_t piece, count;
    u8 *from, *slots, *to, *memory;
    void **elements, **coded, **made;
    size_t *sizes, *coded_sizes, *made_sizes;
    nvcompStatus_t *statuses;
    cudaEvent_t a, z;
    std::vector<float> ms[2];
    Peer(const Frame &f, size_t piece, size_t count, size_t slot, size_t room) : piece(piece), count(count)
    {
        std::vector<void *> at[3];
        const size_t whole = f.elements.size() / piece;
        from = device<u8>(piece * count), to = device<u8>(piece * count), slots = device<u8>(slot * count), memory = device<u8>(room);
        for (size_t i = 0; i < count; i++) {
            MUST(cudaMemcpy(from + i * piece, f.elements.data() + i % whole * piece, piece, cudaMemcpyHostToDevice));
            at[0].push_back(from + i * piece), at[1].push_back(slots + i * slot), at[2].push_back(to + i * piece);
        }
        elements = upload(at[0]), coded = upload(at[1]), made = upload(at[2]);
        sizes = upload(std::vector<size_t>(count, piece));
        coded_sizes = device<size_t>(count), made_sizes = device<size_t>(count), statuses = device<nvcompStatus_t>(count);
        MUST(cudaEventCreate(&a)); MUST(cudaEventCreate(&z));
    }
    ~Peer()
    {
        for (void *p : { (void *)from, (void *)slots, (void *)to, (void *)memory, (void *)elements, (void *)coded, (void *)made, (void *)sizes,
                         (void *)coded_sizes, (void *)made_sizes, (void *)statuses }) cudaFree(p);
    }
    void begin() { MUST(cudaEventRecord(a)); }
    void end(int what)
    {
        float t;
        MUST(cudaEventRecord(z));
        MUST(cudaEventSynchronize(z));
        MUST(cudaEventElapsedTime(&t, a, z));
        ms[what].push_back(t);
    }
    void tell(const char *what, const char *name)
    {
        std::vector<size_t> n(count);
        std::vector<u8> in(piece * count), out(piece * count);
        size_t all = 0;
        MUST(cudaMemcpy(n.data(), coded_sizes, count * sizeof n[0], cudaMemcpyDeviceToHost));
        MUST(cudaMemcpy(in.data(), from, in.size(), cudaMemcpyDeviceToHost));
        MUST(cudaMemcpy(out.data(), to, out.size(), cudaMemcpyDeviceToHost));
        for (size_t x : n) all += x;
        for (auto &m : ms) std::sort(m.begin(), m.end());
        printf("nvCOMP %s of %s: %s, ratio %.3f, encode %.1f, decode %.1f GB/s of elements\n", what, name, in == out ? "right" : "WRONG",
               (double)(piece * count) / all, piece * count / ms[0][2] / 1e6, piece * count / ms[1][2] / 1e6);
    }
};
PEER(ANS)
PEER(LZ4)
#endif

int main(int argc, char **argv)
{
    cudaDeviceProp p;
    setvbuf(stdout, NULL, _IOLBF, 0);
    MUST(cudaGetDeviceProperties(&p, 0));
    processors = p.multiProcessorCount;
    const bool benching = argc > 1 && !strncmp(argv[1], "bench", 5), once = argc > 1 && !strcmp(argv[1], "bench1");
    const bool few = argc > 1 && !strcmp(argv[1], "small"); /* for tools that take their time */
    if (getenv("MEMORY")) memory_size = atoi(getenv("MEMORY"));
    scratch = (u32 *)device<u8>((size_t)scratch_size * processors * 8);
    printf("%s, %u multiprocessors, %u groups at once\n", p.name, processors, groups());
    if (benching && !once) {
        const size_t total = (size_t)1 << 30;
        u8 *a = device<u8>(total), *z = device<u8>(total);
        cudaEvent_t e[2];
        float ms;
        cudaEventCreate(&e[0]); cudaEventCreate(&e[1]);
        for (int i = 0; i < 3; i++) { cudaEventRecord(e[0]); MUST(cudaMemcpyAsync(z, a, total, cudaMemcpyDeviceToDevice)); cudaEventRecord(e[1]); cudaEventSynchronize(e[1]); cudaEventElapsedTime(&ms, e[0], e[1]); }
        printf("device copy %.1f GB/s\n", total / ms / 1e6);
        cudaFree(a); cudaFree(z);
    }
    for (int i = 2; i < argc; i++) {
        Tensors t = load(argv[i]);
        if (few) t.bytes.resize(150000);
        const bool half = strstr(t.name, "bf16") != 0, f16 = strstr(t.name, "fp16") != 0;
        const bitsnap_dtype dtype = half ? BITSNAP_BF16 : f16 ? BITSNAP_F16 : BITSNAP_F32;
        if (once) {
            bench(encode(t, dtype, 2, 16), t.name, 2, (size_t)1 << 28, "decode");
            encodes(encode(t, dtype, 2, 16), t.bytes, t.name, 2, 38);
            continue;
        }
        if (benching) {
            const Frame f = encode(t, dtype, 2, 16);
            const int times = (int)(((size_t)1 << 30) / t.bytes.size());
            if (!strncmp(t.name, "adam", 4)) { /* moments, which are quantized */
                for (u64 columns : { 0, 192 }) {
                    const Frame q = encode(t, dtype, 2, 16, NULL, CELLS, columns);
                    encodes(q, t.bytes, t.name, 2, times);
                    bench(q, t.name, 2, (size_t)1 << 30, "decode");
                }
                continue;
            }
            for (int level = 1; level <= 2; level++) encodes(encode(t, dtype, level, 16), t.bytes, t.name, level, times);
            leaves(f, t.name, 1);
#ifdef PEERS
            if (f.elements.size() >= 65536) {
                peer_ANS(f, t.name, dtype == BITSNAP_F32 ? NVCOMP_TYPE_FLOAT32 : NVCOMP_TYPE_FLOAT16);
                peer_LZ4(f, t.name, bitsnap_width(dtype) == 4 ? NVCOMP_TYPE_INT : NVCOMP_TYPE_SHORT);
            }
#endif
            for (int level = 1; level <= 3; level++) bench(encode(t, dtype, level, 16), t.name, level, (size_t)1 << 30, "decode");
            continue;
        }
        for (int level = 1; level <= 3; level++) {
            const Frame f = encode(t, dtype, level, 16);
            compare(f, t.name, level, 1);
            compare(encode(t, dtype, level, 12), t.name, level, 1);
            damage(f, 4);
            if (level < 3)
                for (unsigned log2 : { 16u, 13u }) encodes(encode(t, dtype, level, log2), t.bytes, t.name, level, 1);
            for (u64 columns : { 0, 192 }) { /* quantized, and at level best without loss */
                const Frame q = encode(t, dtype, level, 16, NULL, level < 3 ? CELLS : 0, columns);
                compare(q, t.name, level, 1);
                damage(q, 1);
                if (level < 3) encodes(q, t.bytes, t.name, level, 1);
            }
        }
        for (int other : { BITSNAP_F8_E4M3, BITSNAP_F8_E5M2, BITSNAP_I8, BITSNAP_I16, BITSNAP_I32, BITSNAP_F16, BITSNAP_F32 }) {
            const Frame f = encode(t, (bitsnap_dtype)other, 2, 16);
            compare(f, t.name, 2, 1);
            damage(f, 1);
            encodes(f, t.bytes, t.name, 2, 1);
        }
    }
    /* consecutive files of one size as deltas */
    for (int i = 2; i + 1 < argc && !few; i++) {
        const Tensors a = load(argv[i]), z = load(argv[i + 1]);
        if (a.bytes.size() != z.bytes.size() || strncmp(a.name, z.name, 4)) continue;
        const bitsnap_dtype dtype = strstr(a.name, "bf16") ? BITSNAP_BF16 : strstr(a.name, "fp16") ? BITSNAP_F16 : BITSNAP_F32;
        for (int level = 1; level <= 2; level++) {
            const Frame f = encode(z, dtype, level, 16, &a.bytes);
            char name[200];
            snprintf(name, sizeof name, "%s of %s, level %d", z.name, a.name, level);
            if (!once) hook({ f }, { &a.bytes }, name, benching ? 40 : 1);
            if (benching) bench(f, name, level, (size_t)1 << 30, "delta", &a.bytes);
        }
    }
    for (int i = 2; i < argc && !once && !few; i++) {
        const Tensors t = load(argv[i]);
        const bitsnap_dtype dtype = strstr(t.name, "bf16") ? BITSNAP_BF16 : strstr(t.name, "fp16") ? BITSNAP_F16 : BITSNAP_F32;
        hook({ encode(t, dtype, 2, 16) }, { NULL }, t.name, benching ? 80 : 2);
        hook({ encode(t, dtype, 2, 16) }, { NULL }, t.name, benching ? 80 : 2, true);
    }
    if (!benching) printf("%s\n", failures ? "not ok" : "ok");
    return failures != 0;
}
