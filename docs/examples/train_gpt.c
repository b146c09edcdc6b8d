/* train_gpt.c - trains a small GPT on text files, to have real checkpoints to compress.
 * Part of bitsnap; MIT licence, see bitsnap.h.
 *
 *     cc -std=c99 -O3 -o train_gpt train_gpt.c -lm -lpthread
 *     ./train_gpt --out checkpoints *.c *.md
 *
 * Random numbers are a poor test of a checkpoint codec. The statistics of weights, and even more those of
 * the optimizer's moments, come from training. So this program trains a byte-level GPT-2 the way large
 * models are trained: pre-LayerNorm, causal attention, GELU, tied head, AdamW, and mixed precision. Master
 * weights are float32; the forward and backward passes use their bfloat16 rounding. At chosen steps it writes
 *
 *     gpt-00100-model.safetensors         BF16: the master weights, rounded to nearest even
 *     gpt-00100-master.safetensors        F32
 *     gpt-00100-exp_avg.safetensors       F32: first moment
 *     gpt-00100-exp_avg_sq.safetensors    F32: second moment
 *
 * The last three are the whole state, and --resume continues from them. With the same options and text, a
 * resumed run ends at the same bits as an uninterrupted one. --until interrupts a run.
 *
 * The bits depend on the options and the text, not on --threads. A thread takes whole tasks (sequences of
 * the batch, tensors of the model), each task owns its output, and sums over tasks have a fixed order.
 * Compilers and machines that round sums differently give different bits. Needs C99 and POSIX (threads, fsync).
 *
 * --model chooses one of three architectures, whose states change in different ways: gpt; gated, with an MLP that multiplies two
 * halves (GEGLU) and a head of its own; moe, a mixture of experts where each token uses one (Switch).
 *
 * With -DTRAIN_ENGINE (make build/train_demo) it has the option --engine: after every step it hands the state to the checkpoint
 * engine (docs/examples/engine), which keeps it in shared memory. The next run with that name continues from there.
 *
 * With -DTRAIN_MPI (make train_mpi) it also has --engine, and runs on several ranks under mpirun. The ranks share the lanes of a
 * batch and the tensors of the optimizer. Sums have the same order as with one rank, so the bits do not depend on the number of
 * ranks.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef TRAIN_MPI
#define TRAIN_ENGINE
#include "engine/engine_mpi.h"
#include "engine/engine_store.h"
#elif defined TRAIN_ENGINE
#include "engine/bitsnap_engine.h"
#endif

/* Rounds a * b + c twice, even if the processor could fuse the two. GCC does this with -std=c99, and warns
 * about the pragma. */
#if defined(__clang__) || !defined(__GNUC__)
#pragma STDC FP_CONTRACT OFF
#endif

enum {
    VOCABULARY = 256,  /* bytes: no tokenizer */
    EXPERTS = 4,       /* of a layer, with --model moe */
    MAX_LAYERS = 48,
    MAX_LANES = 8,     /* sequences in work at one time; more threads would be idle */
    MAX_SAVES = 64,
    MAX_PATH = 4096
};

/* Ends the program. Status 1 is a failure, 2 wrong usage. */
static void stop(int status, const char *format, ...)
{
    va_list arguments;
    fputs("train_gpt: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputs(status == 2 ? "\nTry train_gpt --help.\n" : "\n", stderr);
    exit(status);
}

/* ================================================================================= NUMBERS */

/* splitmix64: hash() is its output function, so hash(seed + i) starts independent streams. */
static uint64_t hash(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* Mean 0, variance 1: a sum of twelve uniform numbers is close enough to normal for weights, and unlike
 * Box-Muller it is exact arithmetic, the same with every libm. */
static float normal(uint64_t *state)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++) {
        *state += UINT64_C(0x9E3779B97F4A7C15);
        sum += (double)(hash(*state) >> 11) * 0x1p-53;
    }
    return (float)sum;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Round to nearest, ties to even. Adding could carry a NaN into infinity: NaNs are cut, and kept quiet. */
static uint16_t to_bfloat16(float x)
{
    const uint32_t bits = bits_of(x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

/* e^x with a relative error under 2^-22, for |x| up to 87 and as if 87 beyond. Written out because loops
 * with expf stay scalar; so would the limit, were it not put on the bits, where floats compare as integers. */
static inline float exponential(float x)
{
    const int32_t size = (int32_t)(bits_of(x) & 0x7FFFFFFFu), limit = 0x42AE0000; /* 87.0f */
    x = float_of((bits_of(x) & 0x80000000u) | (uint32_t)(size < limit ? size : limit));
    const float shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the integer part is now the low bits */
    const float n = shifted - 12582912.0f, r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * r * r + r + 1.0f) * float_of((bits_of(shifted) + 127u) << 23);
}

/* ================================================================================= THREADS */

typedef void (*task)(void *argument, size_t index);

typedef struct pool {
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    pthread_t threads[MAX_LANES];
    size_t workers;   /* threads, without the main one */
    task run;
    void *argument;
    size_t next, finished, count;
    int quit;
} pool;

/* Takes tasks until none is left. The mutex is held on entry and on return. */
static void pool_drain(pool *p)
{
    while (p->next < p->count) {
        size_t index = p->next++;
        pthread_mutex_unlock(&p->mutex);
        p->run(p->argument, index);
        pthread_mutex_lock(&p->mutex);
        if (++p->finished == p->count)
            pthread_cond_signal(&p->done);
    }
}

static void *pool_worker(void *argument)
{
    pool *p = argument;
    pthread_mutex_lock(&p->mutex);
    while (!p->quit) {
        pool_drain(p);
        pthread_cond_wait(&p->work, &p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* Calls run(argument, i) for each i < count, on all threads, and returns after the last call. Any thread
 * may get any i, so a task must write only data of its own i. */
static void pool_run(pool *p, task run, void *argument, size_t count)
{
    pthread_mutex_lock(&p->mutex);
    p->run = run;
    p->argument = argument;
    p->next = p->finished = 0;
    p->count = count;
    pthread_cond_broadcast(&p->work);
    pool_drain(p);
    while (p->finished < count)
        pthread_cond_wait(&p->done, &p->mutex);
    pthread_mutex_unlock(&p->mutex);
}

static void pool_start(pool *p, size_t threads)
{
    for (; p->workers + 1 < threads; p->workers++) {
        const int error = pthread_create(&p->threads[p->workers], NULL, pool_worker, p);
        if (error)
            stop(1, "cannot start a thread: %s", strerror(error));
    }
}

static void pool_stop(pool *p)
{
    pthread_mutex_lock(&p->mutex);
    p->quit = 1;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->mutex);
    while (p->workers)
        pthread_join(p->threads[--p->workers], NULL);
}

/* ================================================================================= MODEL */

/* The tensors of a layer. Matrices are [in, out], as in GPT-2. */
enum { LN1_W, LN1_B, QKV_W, QKV_B, MIX_W, MIX_B, LN2_W, LN2_B, UP_W, UP_B, DOWN_W, DOWN_B, ROUTER_W, ROLES };
enum { WTE, WPE, MAX_TENSORS = 2 + MAX_LAYERS * ROLES + 3 };
typedef enum architecture { GPT, GATED, MOE } architecture;

typedef struct tensor {
    char name[48];
    size_t rows, columns; /* rows == 0: a vector */
    size_t offset, count; /* in each of the model's arrays */
    float init;           /* below 0: normal with that deviation; else the constant */
} tensor;

typedef struct model {
    architecture kind;
    size_t layers, dim, heads, context;
    size_t up, hidden; /* widths of the MLP, before and after its nonlinearity */
    size_t tensors, parameters;
    tensor table[MAX_TENSORS];
    size_t at[MAX_LAYERS + 1][ROLES], head; /* offsets; the final norm is LN1_W and LN1_B of layer `layers` */
    /* The state. A run needs only this and the step number to continue. */
    float *master, *exp_avg, *exp_avg_sq;
    /* Computed from the state after each step: the bfloat16 values, and their matrices transposed. */
    float *weights, *transposed;
} model;

/* Returns its offset. */
static size_t add_tensor(model *m, const char *prefix, const char *name, size_t rows, size_t columns, float init)
{
    tensor *t = &m->table[m->tensors++];
    snprintf(t->name, sizeof t->name, "%s%s", prefix, name);
    t->rows = rows;
    t->columns = columns;
    t->offset = m->parameters;
    t->count = (rows ? rows : 1) * columns;
    t->init = init;
    m->parameters += t->count;
    return t->offset;
}

static void describe(model *m)
{
    const size_t d = m->dim;
    /* GPT-2: weights that add to the residual stream begin smaller, the more layers there are. */
    const float plain = -0.02f, residual = plain / sqrtf(2.0f * (float)m->layers);
    m->up = m->kind == MOE ? EXPERTS * 2 * d : 4 * d;
    m->hidden = m->kind == GATED ? m->up / 2 : m->up;
    m->head = add_tensor(m, "", "wte.weight", VOCABULARY, d, plain);
    add_tensor(m, "", "wpe.weight", m->context, d, plain);
    for (size_t i = 0; i < m->layers; i++) {
        size_t *at = m->at[i];
        char prefix[16];
        snprintf(prefix, sizeof prefix, "h.%u.", (unsigned)i);
        at[LN1_W] = add_tensor(m, prefix, "ln_1.weight", 0, d, 1.0f);
        at[LN1_B] = add_tensor(m, prefix, "ln_1.bias", 0, d, 0.0f);
        at[QKV_W] = add_tensor(m, prefix, "attn.c_attn.weight", d, 3 * d, plain);
        at[QKV_B] = add_tensor(m, prefix, "attn.c_attn.bias", 0, 3 * d, 0.0f);
        at[MIX_W] = add_tensor(m, prefix, "attn.c_proj.weight", d, d, residual);
        at[MIX_B] = add_tensor(m, prefix, "attn.c_proj.bias", 0, d, 0.0f);
        at[LN2_W] = add_tensor(m, prefix, "ln_2.weight", 0, d, 1.0f);
        at[LN2_B] = add_tensor(m, prefix, "ln_2.bias", 0, d, 0.0f);
        at[UP_W] = add_tensor(m, prefix, "mlp.c_fc.weight", d, m->up, plain);
        at[UP_B] = add_tensor(m, prefix, "mlp.c_fc.bias", 0, m->up, 0.0f);
        at[DOWN_W] = add_tensor(m, prefix, "mlp.c_proj.weight", m->hidden, d, residual);
        at[DOWN_B] = add_tensor(m, prefix, "mlp.c_proj.bias", 0, d, 0.0f);
        if (m->kind == MOE)
            at[ROUTER_W] = add_tensor(m, prefix, "mlp.router.weight", d, EXPERTS, plain);
    }
    m->at[m->layers][LN1_W] = add_tensor(m, "", "ln_f.weight", 0, d, 1.0f);
    m->at[m->layers][LN1_B] = add_tensor(m, "", "ln_f.bias", 0, d, 0.0f);
    if (m->kind == GATED)
        m->head = add_tensor(m, "", "lm_head.weight", VOCABULARY, d, plain);
}

static void initialize(model *m, uint64_t seed)
{
    for (size_t i = 0; i < m->tensors; i++) {
        const tensor *t = &m->table[i];
        uint64_t state = hash(hash(seed) + i);
        for (size_t j = 0; j < t->count; j++)
            m->master[t->offset + j] = t->init < 0 ? -t->init * normal(&state) : t->init;
    }
}

/* to[columns][rows] = from[rows][columns] transposed, the rows of `from` being `stride` apart. */
static void transpose(float *to, const float *from, size_t rows, size_t columns, size_t stride)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            to[j * rows + i] = from[i * stride + j];
}

static void round_weights(model *m, const tensor *t)
{
    for (size_t i = t->offset; i < t->offset + t->count; i++)
        m->weights[i] = float_of((uint32_t)to_bfloat16(m->master[i]) << 16);
    transpose(m->transposed + t->offset, m->weights + t->offset, t->rows, t->columns, t->columns);
}

/* ================================================================================= KERNELS */

/* c += a * b for c[m][n], a[m][k], b[k][n]. Rows of b and c are ldb and ldc apart; the steps from row to row
 * and from column to column of a are free, so that it can be read transposed. All sizes of the model are
 * multiples of 4 (the options see to that): no loop needs a remainder.
 *
 * The innermost loop goes along rows of b and c: compilers vectorize it for every processor without leave
 * to reorder sums. Two rows of c and four of b at a time make 8 multiplications and additions of 6 loads and
 * 2 stores; a strip of b, 64 x 128 floats (32 KiB), stays in the first cache while all rows of c go by. */
static void multiply_add(float *restrict c, size_t ldc, const float *restrict a, size_t row, size_t column,
                         const float *restrict b, size_t ldb, size_t m, size_t n, size_t k)
{
    enum { DEPTH = 64, WIDTH = 128 };
    for (size_t first = 0; first < k; first += DEPTH) {
        const size_t end = k - first < DEPTH ? k : first + DEPTH;
        for (size_t left = 0; left < n; left += WIDTH) {
            const size_t width = n - left < WIDTH ? n - left : WIDTH;
            for (size_t i = 0; i < m; i += 2) {
                float *restrict c0 = c + i * ldc + left, *restrict c1 = c0 + ldc;
                for (size_t p = first; p < end; p += 4) {
                    const float *a0 = a + i * row + p * column, *a1 = a0 + row;
                    const float a00 = a0[0], a01 = a0[column], a02 = a0[2 * column], a03 = a0[3 * column];
                    const float a10 = a1[0], a11 = a1[column], a12 = a1[2 * column], a13 = a1[3 * column];
                    const float *restrict b0 = b + p * ldb + left, *restrict b1 = b0 + ldb;
                    const float *restrict b2 = b1 + ldb, *restrict b3 = b2 + ldb;
                    for (size_t j = 0; j < width; j++) {
                        const float x0 = b0[j], x1 = b1[j], x2 = b2[j], x3 = b3[j];
                        c0[j] = c0[j] + a00 * x0 + a01 * x1 + a02 * x2 + a03 * x3;
                        c1[j] = c1[j] + a10 * x0 + a11 * x1 + a12 * x2 + a13 * x3;
                    }
                }
            }
        }
    }
}

static float dot(const float *a, const float *b, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static float total(const float *a, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i];
    return sum;
}

static void zero(float *a, size_t n)
{
    memset(a, 0, n * sizeof *a);
}

/* y += x * w + bias, for `rows` rows. */
static void linear(float *y, const float *x, const float *w, const float *bias, size_t rows, size_t in,
                   size_t out)
{
    for (size_t t = 0; t < rows; t++)
        for (size_t j = 0; j < out; j++)
            y[t * out + j] += bias[j];
    multiply_add(y, out, x, in, 1, w, out, rows, out, in);
}

/* Backward of linear: dx = dy * w^T, dw += x^T * dy, dbias += dy. */
static void linear_backward(float *dx, float *dw, float *dbias, const float *dy, const float *x,
                            const float *transposed, size_t rows, size_t in, size_t out)
{
    for (size_t t = 0; t < rows; t++)
        for (size_t j = 0; j < out; j++)
            dbias[j] += dy[t * out + j];
    multiply_add(dw, out, x, 1, in, dy, out, in, out, rows);
    zero(dx, rows * in);
    multiply_add(dx, in, dy, out, 1, transposed, in, rows, in, out);
}

/* LayerNorm: hat = (x - mean) * scale, with scale = 1 / deviation of each row; out = hat * gain + bias. */
typedef struct norm {
    float *hat, *scale, *out;
} norm;

static void normalize(const norm *n, const float *x, const float *gain, const float *bias, size_t rows,
                      size_t dim)
{
    for (size_t t = 0; t < rows; t++) {
        float *hat = n->hat + t * dim, *out = n->out + t * dim;
        const float mean = total(x + t * dim, dim) / (float)dim;
        for (size_t j = 0; j < dim; j++)
            hat[j] = x[t * dim + j] - mean;
        const float scale = 1.0f / sqrtf(dot(hat, hat, dim) / (float)dim + 1e-5f);
        n->scale[t] = scale;
        for (size_t j = 0; j < dim; j++) {
            hat[j] *= scale;
            out[j] = hat[j] * gain[j] + bias[j];
        }
    }
}

/* Adds the gradients of input, gain and bias to dx, dgain and dbias. Overwrites dy. */
static void normalize_backward(float *dx, float *dgain, float *dbias, float *dy, const norm *n,
                               const float *gain, size_t rows, size_t dim)
{
    for (size_t t = 0; t < rows; t++, dy += dim, dx += dim) {
        const float *hat = n->hat + t * dim;
        for (size_t j = 0; j < dim; j++) {
            dgain[j] += dy[j] * hat[j];
            dbias[j] += dy[j];
            dy[j] *= gain[j];
        }
        const float mean = total(dy, dim) / (float)dim, slope = dot(dy, hat, dim) / (float)dim;
        for (size_t j = 0; j < dim; j++)
            dx[j] += (dy[j] - mean - hat[j] * slope) * n->scale[t];
    }
}

/* GELU, GPT-2's approximation by tanh, here in the equal form x * sigmoid(2 * ...). */
static void gelu(float *restrict y, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float u = x[i] * (1.59576912f + 0.0713548163f * x[i] * x[i]);
        y[i] = x[i] / (1.0f + exponential(-u));
    }
}

static void gelu_backward(float *restrict dy, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float square = x[i] * x[i];
        const float s = 1.0f / (1.0f + exponential(-x[i] * (1.59576912f + 0.0713548163f * square)));
        dy[i] *= s + x[i] * s * (1.0f - s) * (1.59576912f + 0.214064449f * square);
    }
}

/* x = e^(scale * x - greatest), where *greatest is the largest scale * x; returns the sum. */
static float softmax_terms(float *x, size_t n, float scale, float *greatest)
{
    float most = x[0];
    for (size_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < n; i++)
        x[i] = exponential((x[i] - most) * scale);
    *greatest = most * scale;
    return total(x, n);
}

/* ================================================================================= PASSES */

typedef struct layer {
    norm ln1, ln2;
    float *qkv;       /* [context][3 * dim] */
    float *attention; /* [heads][context][context]: softmax, 0 where a position would look ahead */
    float *mix;       /* [context][dim] */
    float *up, *act;  /* [context][up], [context][hidden]: before and after GELU */
    float *route;     /* [context][EXPERTS]: softmax; in the backward pass, its gradient */
} layer;

/* Memory for one sequence: activations kept for the backward pass, and gradients. A lane works on the
 * sequences lane, lane + lanes, ... of the batch in this order, and adds up their gradients. */
typedef struct lane {
    layer layers[MAX_LAYERS];
    norm final;
    float *stream;              /* [context][dim]: the residual stream */
    float *logits;              /* [context][VOCABULARY] */
    float *dstream, *dnorm, *dmix;
    float *dqkv, *dup, *dact;
    float *flip, *dscore;       /* of one head: keys or values transposed; a tile of gradients */
    float *gradients;           /* laid out as the model's arrays */
    double loss;
} lane;

/* Rows of a tile of attention scores. A tile needs only the columns up to its own end. */
enum { TILE = 32 };

static void attend(const model *m, lane *l, const layer *y)
{
    const size_t T = m->context, d = m->dim, width = d / m->heads, s = 3 * d;
    const float scale = 1.0f / sqrtf((float)width);
    zero(y->attention, m->heads * T * T);
    zero(y->mix, T * d);
    for (size_t h = 0; h < m->heads; h++) {
        const float *q = y->qkv + h * width, *k = q + d, *v = k + d;
        transpose(l->flip, k, T, width, s);
        for (size_t top = 0; top < T; top += TILE) {
            const size_t end = T - top < TILE ? T : top + TILE;
            float *score = y->attention + (h * T + top) * T;
            multiply_add(score, T, q + top * s, s, 1, l->flip, T, end - top, end, width);
            for (size_t t = top; t < end; t++) {
                float *row = score + (t - top) * T, greatest;
                const float sum = softmax_terms(row, t + 1, scale, &greatest);
                for (size_t j = 0; j <= t; j++)
                    row[j] /= sum;
                zero(row + t + 1, end - t - 1);
            }
            multiply_add(y->mix + top * d + h * width, d, score, T, 1, v, s, end - top, width, end);
        }
    }
}

static void attend_backward(const model *m, lane *l, const layer *y)
{
    const size_t T = m->context, d = m->dim, width = d / m->heads, s = 3 * d;
    const float scale = 1.0f / sqrtf((float)width);
    zero(l->dqkv, T * s);
    for (size_t h = 0; h < m->heads; h++) {
        const float *q = y->qkv + h * width, *k = q + d, *v = k + d;
        float *dq = l->dqkv + h * width, *dk = dq + d, *dv = dk + d;
        transpose(l->flip, v, T, width, s);
        for (size_t top = 0; top < T; top += TILE) {
            const size_t end = T - top < TILE ? T : top + TILE, rows = end - top;
            const float *p = y->attention + (h * T + top) * T, *dmix = l->dmix + top * d + h * width;
            multiply_add(dv, s, p, 1, T, dmix, d, end, width, rows);
            zero(l->dscore, TILE * T);
            multiply_add(l->dscore, T, dmix, d, 1, l->flip, T, rows, end, width);
            for (size_t t = 0; t < rows; t++) {
                float *ds = l->dscore + t * T;
                const float mean = dot(ds, p + t * T, end);
                for (size_t j = 0; j < end; j++)
                    ds[j] = p[t * T + j] * (ds[j] - mean) * scale;
            }
            multiply_add(dq + top * s, s, l->dscore, T, 1, k, s, rows, width, end);
            multiply_add(dk, s, l->dscore, 1, T, q + top * s, s, end, width, rows);
        }
    }
}

/* Returns the expert with the largest weight. */
static size_t expert_of(const float *route)
{
    size_t best = 0;
    for (size_t e = 1; e < EXPERTS; e++)
        best = route[e] > route[best] ? e : best;
    return best;
}

/* Clears the activations of all experts but the one chosen for each token. All experts are one wide layer. */
static void choose_experts(const model *m, const layer *y, const float *router)
{
    const size_t T = m->context, width = m->hidden / EXPERTS;
    zero(y->route, T * EXPERTS);
    multiply_add(y->route, EXPERTS, y->ln2.out, m->dim, 1, router, EXPERTS, T, EXPERTS, m->dim);
    for (size_t t = 0; t < T; t++) {
        float *route = y->route + t * EXPERTS, *act = y->act + t * m->hidden, greatest;
        const float sum = softmax_terms(route, EXPERTS, 1.0f, &greatest);
        for (size_t e = 0; e < EXPERTS; e++)
            route[e] /= sum;
        const size_t chosen = expert_of(route);
        for (size_t j = 0; j < m->hidden; j++)
            act[j] = j / width == chosen ? act[j] * route[chosen] : 0.0f;
    }
}

/* Reduces dact to the chosen expert, and turns the routes into their gradients, with the balance term of Switch. */
static void choose_experts_backward(const model *m, const layer *y, float *dact, size_t positions)
{
    const size_t T = m->context, width = m->hidden / EXPERTS;
    float share[EXPERTS] = {0};
    for (size_t t = 0; t < T; t++)
        share[expert_of(y->route + t * EXPERTS)] += 0.01f * EXPERTS / (float)T / (float)positions;
    for (size_t t = 0; t < T; t++, dact += m->hidden) {
        float *route = y->route + t * EXPERTS, d[EXPERTS], mean = 0;
        const size_t chosen = expert_of(route);
        memcpy(d, share, sizeof d);
        d[chosen] += dot(dact + chosen * width, y->act + t * m->hidden + chosen * width, width) / route[chosen];
        for (size_t j = 0; j < m->hidden; j++)
            dact[j] = j / width == chosen ? dact[j] * route[chosen] : 0.0f;
        for (size_t e = 0; e < EXPERTS; e++)
            mean += d[e] * route[e];
        for (size_t e = 0; e < EXPERTS; e++)
            route[e] *= d[e] - mean;
    }
}

static void activate(const model *m, const layer *y)
{
    if (m->kind != GATED) {
        gelu(y->act, y->up, m->context * m->up);
        return;
    }
    for (size_t t = 0; t < m->context; t++) {
        float *act = y->act + t * m->hidden, *up = y->up + t * m->up;
        gelu(act, up, m->hidden);
        for (size_t j = 0; j < m->hidden; j++)
            act[j] *= up[m->hidden + j];
    }
}

/* Computes dup from dact. Both are one array, except for GATED. */
static void activate_backward(const model *m, const lane *l, const layer *y)
{
    if (m->kind != GATED) {
        gelu_backward(l->dup, y->up, m->context * m->up);
        return;
    }
    for (size_t t = 0; t < m->context; t++) {
        float *up = y->up + t * m->up, *dup = l->dup + t * m->up, *dact = l->dact + t * m->hidden;
        gelu(dup + m->hidden, up, m->hidden);
        for (size_t j = 0; j < m->hidden; j++) {
            dup[m->hidden + j] *= dact[j];
            dup[j] = dact[j] * up[m->hidden + j];
        }
        gelu_backward(dup, up, m->hidden);
    }
}

static void forward(const model *m, lane *l, const unsigned char *text)
{
    const size_t T = m->context, d = m->dim;
    const float *w = m->weights, *wte = w + m->table[WTE].offset, *wpe = w + m->table[WPE].offset;
    for (size_t t = 0; t < T; t++)
        for (size_t j = 0; j < d; j++)
            l->stream[t * d + j] = wte[text[t] * d + j] + wpe[t * d + j];
    for (size_t i = 0; i < m->layers; i++) {
        const layer *y = &l->layers[i];
        normalize(&y->ln1, l->stream, w + m->at[i][LN1_W], w + m->at[i][LN1_B], T, d);
        zero(y->qkv, T * 3 * d);
        linear(y->qkv, y->ln1.out, w + m->at[i][QKV_W], w + m->at[i][QKV_B], T, d, 3 * d);
        attend(m, l, y);
        linear(l->stream, y->mix, w + m->at[i][MIX_W], w + m->at[i][MIX_B], T, d, d);
        normalize(&y->ln2, l->stream, w + m->at[i][LN2_W], w + m->at[i][LN2_B], T, d);
        zero(y->up, T * m->up);
        linear(y->up, y->ln2.out, w + m->at[i][UP_W], w + m->at[i][UP_B], T, d, m->up);
        activate(m, y);
        if (m->kind == MOE)
            choose_experts(m, y, w + m->at[i][ROUTER_W]);
        linear(l->stream, y->act, w + m->at[i][DOWN_W], w + m->at[i][DOWN_B], T, m->hidden, d);
    }
    normalize(&l->final, l->stream, w + m->at[m->layers][LN1_W], w + m->at[m->layers][LN1_B], T, d);
    zero(l->logits, T * VOCABULARY);
    multiply_add(l->logits, VOCABULARY, l->final.out, d, 1, m->transposed + m->head, VOCABULARY, T, VOCABULARY, d);
}

/* Adds the cross entropy of every position's next byte to the lane's loss. Turns the logits into the
 * gradients of a mean over `positions`. */
static void score(lane *l, const unsigned char *text, size_t context, size_t positions)
{
    for (size_t t = 0; t < context; t++) {
        float *row = l->logits + t * VOCABULARY, greatest;
        const unsigned char next = text[t + 1];
        const float logit = row[next], sum = softmax_terms(row, VOCABULARY, 1.0f, &greatest);
        l->loss += log((double)sum) - ((double)logit - (double)greatest);
        const float factor = 1.0f / (sum * (float)positions);
        for (size_t j = 0; j < VOCABULARY; j++)
            row[j] *= factor;
        row[next] -= 1.0f / (float)positions;
    }
}

static void backward(const model *m, lane *l, const unsigned char *text, size_t positions)
{
    const size_t T = m->context, d = m->dim;
    const float *w = m->weights, *wt = m->transposed;
    float *g = l->gradients, *dwte = g + m->table[WTE].offset, *dwpe = g + m->table[WPE].offset;

    multiply_add(g + m->head, d, l->logits, 1, VOCABULARY, l->final.out, d, VOCABULARY, d, T);
    zero(l->dnorm, T * d);
    multiply_add(l->dnorm, d, l->logits, VOCABULARY, 1, w + m->head, d, T, d, VOCABULARY);
    zero(l->dstream, T * d);
    normalize_backward(l->dstream, g + m->at[m->layers][LN1_W], g + m->at[m->layers][LN1_B], l->dnorm,
                       &l->final, w + m->at[m->layers][LN1_W], T, d);

    for (size_t i = m->layers; i-- > 0;) {
        const layer *y = &l->layers[i];
        linear_backward(l->dact, g + m->at[i][DOWN_W], g + m->at[i][DOWN_B], l->dstream, y->act,
                        wt + m->at[i][DOWN_W], T, m->hidden, d);
        if (m->kind == MOE)
            choose_experts_backward(m, y, l->dact, positions);
        activate_backward(m, l, y);
        linear_backward(l->dnorm, g + m->at[i][UP_W], g + m->at[i][UP_B], l->dup, y->ln2.out,
                        wt + m->at[i][UP_W], T, d, m->up);
        if (m->kind == MOE) {
            multiply_add(g + m->at[i][ROUTER_W], EXPERTS, y->ln2.out, 1, d, y->route, EXPERTS, d, EXPERTS, T);
            multiply_add(l->dnorm, d, y->route, EXPERTS, 1, wt + m->at[i][ROUTER_W], d, T, d, EXPERTS);
        }
        normalize_backward(l->dstream, g + m->at[i][LN2_W], g + m->at[i][LN2_B], l->dnorm, &y->ln2,
                           w + m->at[i][LN2_W], T, d);
        linear_backward(l->dmix, g + m->at[i][MIX_W], g + m->at[i][MIX_B], l->dstream, y->mix,
                        wt + m->at[i][MIX_W], T, d, d);
        attend_backward(m, l, y);
        linear_backward(l->dnorm, g + m->at[i][QKV_W], g + m->at[i][QKV_B], l->dqkv, y->ln1.out,
                        wt + m->at[i][QKV_W], T, d, 3 * d);
        normalize_backward(l->dstream, g + m->at[i][LN1_W], g + m->at[i][LN1_B], l->dnorm, &y->ln1,
                           w + m->at[i][LN1_W], T, d);
    }

    for (size_t t = 0; t < T; t++)
        for (size_t j = 0; j < d; j++) {
            dwte[text[t] * d + j] += l->dstream[t * d + j];
            dwpe[t * d + j] += l->dstream[t * d + j];
        }
}

/* ================================================================================= TRAINING */

typedef struct options {
    const char *out, *log, *resume, *validate, *model;
    uint64_t steps, until, seed, layers, dim, heads, context, batch, warmup, threads;
    uint64_t saves[MAX_SAVES];
    size_t save_count;
    double lr, beta2;
    int quiet;
    const char *engine, *engine_program, *engine_disk, *engine_policy, *engine_log;
    uint64_t engine_budget, engine_every, engine_group;
} options;

typedef struct trainer {
    options o;
    model m;
    pool workers;
    size_t lane_count;
    lane lanes[MAX_LANES];
    unsigned char *text, *unseen; /* for training, and for --validate */
    size_t text_size, unseen_size;
    uint64_t step;                /* updates done */
    double squares[MAX_TENSORS];  /* of the gradients of each tensor */
    float rate, clip;             /* of the current step: learning rate, factor of the gradients */
    float correction1, correction2;
    size_t rank, ranks;           /* this rank owns tensors first .. end - 1 */
    size_t first, end;
    struct checkpoints *checkpoints; /* with --engine */
} trainer;

/* ================================================================================= RANKS
 * Each rank has all weights, works on every ranks-th lane, and owns the tensors that begin in its part of the parameters. It gets
 * their gradients from all ranks, lane by lane, so sums have the same order for any number of ranks. */

static size_t first_tensor(const trainer *t, size_t rank)
{
    size_t i = 0;
    while (i < t->m.tensors && t->m.table[i].offset * t->ranks < t->m.parameters * rank)
        i++;
    return i;
}

#ifdef TRAIN_ENGINE
/* Returns the first parameter of a rank's tensors, and their number of parameters in *count. */
static size_t shard(const trainer *t, size_t rank, size_t *count)
{
    const size_t first = first_tensor(t, rank), end = first_tensor(t, rank + 1);
    const size_t begin = first < t->m.tensors ? t->m.table[first].offset : t->m.parameters;
    *count = (end < t->m.tensors ? t->m.table[end].offset : t->m.parameters) - begin;
    return begin;
}
#endif

#ifdef TRAIN_MPI
/* Adds numbers over the ranks. At most one rank has a nonzero value of each, and adding zeros is exact in any order. */
static void share_numbers(const trainer *t, double *numbers, size_t count)
{
    if (t->ranks > 1)
        MPI_Allreduce(MPI_IN_PLACE, numbers, (int)count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void trade_gradients(trainer *t)
{
    MPI_Request requests[2 * MAX_LANES * 64];
    int n = 0;
    size_t mine;
    const size_t first = shard(t, t->rank, &mine);
    for (size_t l = 0; l < t->lane_count; l++) {
        const size_t owner = l % t->ranks;
        if (owner != t->rank)
            MPI_Irecv(t->lanes[l].gradients + first, (int)mine, MPI_FLOAT, (int)owner, (int)l, MPI_COMM_WORLD, &requests[n++]);
        for (size_t r = 0; r < t->ranks && owner == t->rank; r++) {
            size_t count;
            const size_t begin = shard(t, r, &count);
            if (r != t->rank)
                MPI_Isend(t->lanes[l].gradients + begin, (int)count, MPI_FLOAT, (int)r, (int)l, MPI_COMM_WORLD, &requests[n++]);
        }
    }
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
}

/* Sends every rank's tensors to all ranks. */
static void share_values(const trainer *t, float *values)
{
    for (size_t r = 0; r < t->ranks && t->ranks > 1; r++) {
        size_t count;
        const size_t begin = shard(t, r, &count);
        MPI_Bcast(values + begin, (int)count, MPI_FLOAT, (int)r, MPI_COMM_WORLD);
    }
}
#else
static void share_numbers(const trainer *t, double *numbers, size_t count) { (void)t, (void)numbers, (void)count; }
static void trade_gradients(trainer *t) { (void)t; }
static void share_values(const trainer *t, float *values) { (void)t, (void)values; }
#endif

/* A task for each lane: forward and backward pass of its sequences. Seed, step and number of a sequence
 * determine its text, so a resumed run sees the same texts as an uninterrupted one. */
static void lane_task(void *argument, size_t index)
{
    trainer *t = argument;
    lane *l = &t->lanes[index];
    const size_t context = t->m.context, batch = (size_t)t->o.batch;
    l->loss = 0;
    if (index % t->ranks != t->rank)
        return;
    zero(l->gradients, t->m.parameters);
    for (size_t i = index; i < batch; i += t->lane_count) {
        const uint64_t random = hash(hash(hash(~t->o.seed) + t->step) + i);
        const unsigned char *text = t->text + random % (t->text_size - context);
        forward(&t->m, l, text);
        score(l, text, context, batch * context);
        backward(&t->m, l, text, batch * context);
    }
}

/* A task for each lane: the loss of its sequences of the validation text. */
static void validate_task(void *argument, size_t index)
{
    trainer *t = argument;
    lane *l = &t->lanes[index];
    const size_t context = t->m.context;
    l->loss = 0;
    for (size_t i = index * context; i + context < t->unseen_size; i += t->lane_count * context) {
        forward(&t->m, l, t->unseen + i);
        score(l, t->unseen + i, context, 1);
    }
}

/* Returns the mean loss over the validation text, cut into sequences from its start. */
static double validate(trainer *t)
{
    double loss = 0;
    pool_run(&t->workers, validate_task, t, t->lane_count);
    for (size_t i = 0; i < t->lane_count; i++)
        loss += t->lanes[i].loss;
    return loss / (double)((t->unseen_size - 1) / t->m.context * t->m.context);
}

/* A task for each owned tensor: adds the gradients of all lanes to those of the first. */
static void reduce_task(void *argument, size_t index)
{
    trainer *t = argument;
    const tensor *x = &t->m.table[index += t->first];
    float *g = t->lanes[0].gradients + x->offset;
    double squares = 0;
    for (size_t l = 1; l < t->lane_count; l++) {
        const float *other = t->lanes[l].gradients + x->offset;
        for (size_t i = 0; i < x->count; i++)
            g[i] += other[i];
    }
    for (size_t i = 0; i < x->count; i++)
        squares += (double)g[i] * (double)g[i];
    t->squares[index] = squares;
}

/* A task for each tensor: transposes the rounded weights that another rank has updated. */
static void renew_task(void *argument, size_t index)
{
    trainer *t = argument;
    const tensor *x = &t->m.table[index];
    if (index < t->first || index >= t->end)
        transpose(t->m.transposed + x->offset, t->m.weights + x->offset, x->rows, x->columns, x->columns);
}

/* A task for each owned tensor: applies AdamW to the master weights, and renews the rounded copies. */
static void update_task(void *argument, size_t index)
{
    trainer *t = argument;
    const tensor *x = &t->m.table[t->first + index];
    const float beta1 = 0.9f, beta2 = (float)t->o.beta2, epsilon = 1e-8f, decay = x->rows ? 0.1f : 0.0f;
    const float *g = t->lanes[0].gradients + x->offset;
    float *master = t->m.master + x->offset;
    float *m = t->m.exp_avg + x->offset, *v = t->m.exp_avg_sq + x->offset;
    for (size_t i = 0; i < x->count; i++) {
        const float gradient = g[i] * t->clip;
        m[i] = beta1 * m[i] + (1.0f - beta1) * gradient;
        v[i] = beta2 * v[i] + (1.0f - beta2) * gradient * gradient;
        const float direction = m[i] * t->correction1 / (sqrtf(v[i] * t->correction2) + epsilon);
        master[i] -= t->rate * (direction + decay * master[i]);
    }
    round_weights(&t->m, x);
}

/* Linear warm-up, then half a cosine down to a tenth. */
static double learning_rate(const options *o, uint64_t step)
{
    if (step < o->warmup)
        return o->lr * (double)(step + 1) / (double)o->warmup;
    const double progress = (double)(step - o->warmup) / (double)(o->steps - o->warmup);
    return o->lr * (0.55 + 0.45 * cos(3.14159265358979324 * progress));
}

/* One step. Returns the loss before it; *size is the norm of the gradient before clipping. */
static double train(trainer *t, double *size)
{
    double loss = 0, squares = 0, losses[MAX_LANES];
    pool_run(&t->workers, lane_task, t, t->lane_count);
    trade_gradients(t);
    for (size_t i = 0; i < t->m.tensors; i++)
        t->squares[i] = 0;
    pool_run(&t->workers, reduce_task, t, t->end - t->first);
    for (size_t i = 0; i < t->lane_count; i++)
        losses[i] = t->lanes[i].loss;
    share_numbers(t, losses, t->lane_count);
    share_numbers(t, t->squares, t->m.tensors);
    for (size_t i = 0; i < t->lane_count; i++)
        loss += losses[i];
    for (size_t i = 0; i < t->m.tensors; i++)
        squares += t->squares[i];
    *size = sqrt(squares);
    t->clip = *size > 1.0 ? (float)(1.0 / *size) : 1.0f;
    t->rate = (float)learning_rate(&t->o, t->step);
    t->correction1 = (float)(1.0 / (1.0 - pow(0.9, (double)(t->step + 1))));
    t->correction2 = (float)(1.0 / (1.0 - pow(t->o.beta2, (double)(t->step + 1))));
    pool_run(&t->workers, update_task, t, t->end - t->first);
    share_values(t, t->m.weights);
    pool_run(&t->workers, renew_task, t, t->m.tensors);
    t->step++;
    return loss / (double)(t->o.batch * t->o.context);
}

/* Allocates zeroed memory for the whole run. It is never freed. */
static float *floats(size_t count)
{
    float *memory = calloc(count, sizeof *memory);
    if (!memory)
        stop(1, "no memory for a model of this size");
    return memory;
}

static void make_norm(norm *n, size_t rows, size_t dim)
{
    n->hat = floats(rows * dim);
    n->scale = floats(rows);
    n->out = floats(rows * dim);
}

static void allocate(trainer *t)
{
    model *m = &t->m;
    const size_t T = m->context, d = m->dim;
    m->master = floats(m->parameters);
    m->exp_avg = floats(m->parameters);
    m->exp_avg_sq = floats(m->parameters);
    m->weights = floats(m->parameters);
    m->transposed = floats(m->parameters);
    for (size_t i = 0; i < t->lane_count; i++) {
        lane *l = &t->lanes[i];
        for (size_t j = 0; j < m->layers; j++) {
            layer *y = &l->layers[j];
            make_norm(&y->ln1, T, d);
            make_norm(&y->ln2, T, d);
            y->qkv = floats(T * 3 * d);
            y->attention = floats(m->heads * T * T);
            y->mix = floats(T * d);
            y->up = floats(T * m->up);
            y->act = floats(T * m->hidden);
            y->route = floats(T * EXPERTS);
        }
        make_norm(&l->final, T, d);
        l->stream = floats(T * d);
        l->logits = floats(T * VOCABULARY);
        l->dstream = floats(T * d);
        l->dnorm = floats(T * d);
        l->dmix = floats(T * d);
        l->dqkv = floats(T * 3 * d);
        l->dup = floats(T * m->up);
        l->dact = m->kind == GATED ? floats(T * m->hidden) : l->dup;
        l->flip = floats(T * (d / m->heads));
        l->dscore = floats(TILE * T);
        l->gradients = floats(m->parameters);
    }
}

/* ================================================================================= FILES */

/* Appends the bytes of a file to the buffer. */
static void append_file(unsigned char **buffer, size_t *size, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        stop(1, "%s: %s", path, strerror(errno));
    for (size_t got = 1, step = 65536; got; step *= 2) {
        unsigned char *more = step < SIZE_MAX / 4 - *size ? realloc(*buffer, *size + step) : NULL;
        if (!more)
            stop(1, "%s: no memory to read it", path);
        *buffer = more;
        got = fread(more + *size, 1, step, file);
        *size += got;
        if (ferror(file))
            stop(1, "%s: %s", path, strerror(errno));
    }
    fclose(file);
}

static int put_values(FILE *file, const float *values, size_t n, int half)
{
    unsigned char buffer[16384];
    while (n) {
        size_t size = 0;
        for (; n && size < sizeof buffer; n--, values++) {
            const uint32_t bits = half ? to_bfloat16(*values) : bits_of(*values);
            for (int i = 0; i < (half ? 2 : 4); i++)
                buffer[size++] = (unsigned char)(bits >> 8 * i);
        }
        if (fwrite(buffer, 1, size, file) != size)
            return 0;
    }
    return 1;
}

/* Writes the entry of a tensor in the JSON header, up to its offsets, with the same text as the safetensors library. */
static size_t put_entry(char *text, size_t capacity, const tensor *x, const char *dtype)
{
    char rows[24] = "";
    if (x->rows)
        snprintf(rows, sizeof rows, "%zu,", x->rows);
    return (size_t)snprintf(text, capacity, "\"%s\":{\"dtype\":\"%s\",\"shape\":[%s%zu],\"data_offsets\":[",
                            x->name, dtype, rows, x->columns);
}

/* Writes the header: its length, JSON, and spaces that align the data to 8 bytes. */
static int put_header(FILE *file, const trainer *t, int half)
{
    const size_t capacity = 256 + t->m.tensors * 192, width = half ? 2 : 4;
    char *json = malloc(capacity);
    unsigned char length[8];
    if (!json)
        return 0;
    size_t n = (size_t)snprintf(json, capacity, "{\"__metadata__\":{\"format\":\"pt\",\"step\":\"%" PRIu64
                                "\",\"heads\":\"%zu\"}", t->step, t->m.heads);
    for (size_t i = 0; i < t->m.tensors; i++) {
        const tensor *x = &t->m.table[i];
        json[n++] = ',';
        n += put_entry(json + n, capacity - n, x, half ? "BF16" : "F32");
        n += (size_t)snprintf(json + n, capacity - n, "%zu,%zu]}", x->offset * width,
                              (x->offset + x->count) * width);
    }
    json[n++] = '}';
    while (n % 8)
        json[n++] = ' ';
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)n >> 8 * i);
    const int good = fwrite(length, 1, 8, file) == 8 && fwrite(json, 1, n, file) == n;
    free(json);
    return good;
}

/* Writes one file of a checkpoint. The file gets its name only when it is complete and on disk, so a file
 * of that name is always whole. */
static void save_file(const trainer *t, const char *kind, const float *values, int half)
{
    char path[MAX_PATH + 64], temporary[MAX_PATH + 72];
    snprintf(path, sizeof path, "%s/gpt-%05" PRIu64 "-%s.safetensors", t->o.out, t->step, kind);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    FILE *file = fopen(temporary, "wb");
    if (!file || !put_header(file, t, half) || !put_values(file, values, t->m.parameters, half) ||
        fflush(file) != 0 || fsync(fileno(file)) != 0 || fclose(file) != 0 || rename(temporary, path) != 0) {
        const int error = errno;
        remove(temporary);
        stop(1, "%s: %s", path, strerror(error));
    }
}

static void save(const trainer *t)
{
    share_values(t, t->m.master);
    share_values(t, t->m.exp_avg);
    share_values(t, t->m.exp_avg_sq);
    if (t->rank)
        return;
    save_file(t, "model", t->m.master, 1);
    save_file(t, "master", t->m.master, 0);
    save_file(t, "exp_avg", t->m.exp_avg, 0);
    save_file(t, "exp_avg_sq", t->m.exp_avg_sq, 0);
    /* Saves the new names from a power failure, too. Errors are ignored: file systems that refuse this do not need it. */
    const int directory = open(t->o.out, O_RDONLY);
    if (directory >= 0) {
        fsync(directory);
        close(directory);
    }
    if (!t->o.quiet)
        printf("saved %s/gpt-%05" PRIu64 "-{model,master,exp_avg,exp_avg_sq}.safetensors\n", t->o.out, t->step);
}

/* Reads the number at p. Returns 0 unless there is one, followed by `end`. */
static int get_number(const char *p, char end, uint64_t *number)
{
    char *stopped;
    if (*p < '0' || *p > '9')
        return 0;
    *number = strtoull(p, &stopped, 10);
    return *stopped == end;
}

/* Reads one file of a checkpoint into `values`, and returns its step. Finds tensors by the text of their
 * entries, which allows any order and checks name, type and shape at once. */
static uint64_t load_file(const model *m, const char *prefix, const char *kind, float *values)
{
    char path[MAX_PATH + 64], entry[192];
    unsigned char *data = NULL;
    size_t size = 0;
    uint64_t length = 0, step = 0, heads = m->heads;
    snprintf(path, sizeof path, "%s-%s.safetensors", prefix, kind);
    append_file(&data, &size, path);
    for (size_t i = 0; i < 8 && size >= 8; i++)
        length |= (uint64_t)data[i] << 8 * i;
    if (length < 2 || length > size - 8)
        stop(1, "%s: not a safetensors file", path);
    const unsigned char *start = data + 8 + length;
    size -= 8 + (size_t)length;
    char *json = memmove(data, data + 8, (size_t)length);
    json[length] = 0;

    const char *found = strstr(json, "\"step\":\"");
    if (!found || !get_number(found + 8, '"', &step))
        stop(1, "%s: its header does not tell the step", path);
    found = strstr(json, "\"heads\":\"");
    if (found && (!get_number(found + 9, '"', &heads) || heads != m->heads))
        stop(1, "%s: of a model with another number of heads than --heads %zu", path, m->heads);
    for (size_t i = 0; i < m->tensors; i++) {
        const tensor *x = &m->table[i];
        uint64_t first, end;
        const size_t n = put_entry(entry, sizeof entry, x, "F32");
        found = strstr(json, entry);
        if (!found)
            stop(1, "%s: has no %s as this model needs it (another --layers, --dim or --context?)", path,
                 x->name);
        found += n;
        if (!get_number(found, ',', &first) || !get_number(strchr(found, ',') + 1, ']', &end) || end > size ||
            first > end || end - first != (uint64_t)x->count * 4)
            stop(1, "%s: the data of %s is not where its header says", path, x->name);
        for (size_t j = 0; j < x->count; j++) {
            const unsigned char *from = start + first + 4 * j;
            values[x->offset + j] = float_of((uint32_t)from[0] | (uint32_t)from[1] << 8 |
                                             (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24);
        }
    }
    free(data);
    return step;
}

static void load(trainer *t)
{
    const char *prefix = t->o.resume;
    t->step = load_file(&t->m, prefix, "master", t->m.master);
    if (load_file(&t->m, prefix, "exp_avg", t->m.exp_avg) != t->step ||
        load_file(&t->m, prefix, "exp_avg_sq", t->m.exp_avg_sq) != t->step)
        stop(1, "%s: the files are of different steps", prefix);
    if (t->step >= t->o.until)
        stop(1, "%s is of step %" PRIu64 ": nothing is left until step %" PRIu64, prefix, t->step, t->o.until);
}

/* ================================================================================= OPTIONS */

static const char help[] =
    "train_gpt - trains a small GPT on text files and writes its checkpoints as safetensors\n"
    "\n"
    "usage: train_gpt [options] FILE...\n"
    "\n"
    "  --text FILE...   the text, file behind file; the word --text may be left out\n"
    "  --out DIR        where checkpoints go; created if missing     [checkpoints]\n"
    "  --steps N        length of the run, and of the schedule       [250]\n"
    "  --until N        stops there, as if interrupted               [--steps]\n"
    "  --save N,N,...   steps to write, 0 being the start            [a tenth, half and all of --until]\n"
    "  --resume PREFIX  go on from PREFIX-master.safetensors, PREFIX-exp_avg.safetensors and\n"
    "                   PREFIX-exp_avg_sq.safetensors; with the same options and text, the run ends\n"
    "                   at the same bits as one that was not interrupted\n"
    "  --seed N         of the first weights and the order of the text [1]\n"
    "  --model NAME     gpt; gated: GEGLU, and a head of its own; moe: mixture of experts [gpt]\n"
    "  --layers N       1 to 48                                      [4]\n"
    "  --dim N          width, a multiple of 4 * heads               [128]\n"
    "  --heads N        1 to 64                                      [4]\n"
    "  --context N      bytes of a sequence, a multiple of 4         [128]\n"
    "  --batch N        sequences of a step                          [8]\n"
    "  --lr X           highest learning rate                        [0.002]\n"
    "  --warmup N       steps until it is reached                    [a tenth of --steps]\n"
    "  --beta2 X        how slowly the second moment forgets         [0.95]\n"
    "  --threads N      1 to 8; the results do not depend on it      [one a processor]\n"
    "  --validate FILE  a text that is not trained on: its loss at the steps that are written\n"
    "  --log FILE       a CSV line each step: step,loss,lr,grad_norm,validation; --resume appends\n"
    "  --quiet          print errors only\n"
#ifdef TRAIN_ENGINE
    "  --engine NAME    hand the state to the checkpoint engine after each step, and go on from what it has\n"
    "  --engine-budget N    MiB of shared memory for each rank       [64]\n"
    "  --engine-policy P    lossless, resume, standard, small        [lossless]\n"
    "  --engine-log FILE    a CSV line each step: what the snapshot took\n"
#endif
#ifdef TRAIN_MPI
    "  --engine-group N     keep parity in groups of N ranks         [0: copies, at partners]\n"
    "  --engine-program P   starts the agent of each rank, which writes to:  [none]\n"
    "  --engine-disk DIR    stores of snapshots, one for each rank   [none]\n"
    "  --engine-every N     only steps that are a multiple of N go to disk  [1]\n"
#endif
    "  --help           print this\n"
    "\n"
    "A checkpoint is four files, here of step 125: gpt-00125-model.safetensors (BF16), and, as F32,\n"
    "gpt-00125-master, gpt-00125-exp_avg and gpt-00125-exp_avg_sq.\n"
    "\n"
    "examples:\n"
    "  train_gpt --out checkpoints *.c *.md\n"
    "  train_gpt --steps 500 --save 100,499,500 --log loss.csv --text book.txt\n"
    "  train_gpt --steps 500 --save 500 --resume checkpoints/gpt-00100 --text book.txt\n"
    "  train_gpt --steps 500 --until 200 --save 200 --validate other.txt --text book.txt\n"
    "\n"
    "exit status: 0 done, 1 something failed, 2 wrong usage\n";

/* Returns the number at the start of an option's value. After it the value must end; a list may have a comma. */
static uint64_t parse_number(const char *name, const char **value, int list, uint64_t least, uint64_t most)
{
    const char *text = *value;
    char *end = NULL;
    errno = 0;
    const uint64_t number = *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
    if (!end || errno || (*end && !(list && *end == ',')) || number < least || number > most)
        stop(2, "--%s: '%s' should be a number from %" PRIu64 " to %" PRIu64, name, text, least, most);
    *value = end;
    return number;
}

/* Fills in the options. Moves the names of the text files to the front of argv, and returns their number. */
static size_t parse(options *o, int argc, char **argv)
{
    const struct {
        const char *name;
        uint64_t *number, least, most;
        const char **string;
    } table[] = {
        {"steps", &o->steps, 1, 99999, NULL},
        {"until", &o->until, 1, 99999, NULL},
        {"seed", &o->seed, 0, UINT64_MAX, NULL},
        {"layers", &o->layers, 1, MAX_LAYERS, NULL},
        {"dim", &o->dim, 4, 4096, NULL},
        {"heads", &o->heads, 1, 64, NULL},
        {"context", &o->context, 4, 4096, NULL},
        {"batch", &o->batch, 1, 4096, NULL},
        {"warmup", &o->warmup, 0, 99999, NULL},
        {"threads", &o->threads, 1, MAX_LANES, NULL},
        {"out", NULL, 0, 0, &o->out},
        {"log", NULL, 0, 0, &o->log},
        {"model", NULL, 0, 0, &o->model},
        {"resume", NULL, 0, 0, &o->resume},
        {"validate", NULL, 0, 0, &o->validate},
#ifdef TRAIN_ENGINE
        {"engine", NULL, 0, 0, &o->engine},
        {"engine-policy", NULL, 0, 0, &o->engine_policy},
        {"engine-log", NULL, 0, 0, &o->engine_log},
        {"engine-budget", &o->engine_budget, 1, 1 << 20, NULL},
#endif
#ifdef TRAIN_MPI
        {"engine-program", NULL, 0, 0, &o->engine_program},
        {"engine-disk", NULL, 0, 0, &o->engine_disk},
        {"engine-every", &o->engine_every, 1, 99999, NULL},
        {"engine-group", &o->engine_group, 0, MAX_LANES, NULL},
#endif
    };
    const size_t known = sizeof table / sizeof *table;
    size_t files = 0;
    int literal = 0;
    for (int i = 1; i < argc; i++) {
        if (literal || argv[i][0] != '-' || !argv[i][1]) {
            argv[files++] = argv[i];
        } else if (strcmp(argv[i], "--") == 0) {
            literal = 1;
        } else if (strcmp(argv[i], "--quiet") == 0) {
            o->quiet = 1;
        } else if (strcmp(argv[i], "--help") == 0) {
            fputs(help, stdout);
            exit(fflush(stdout) != 0);
        } else if (strncmp(argv[i], "--text=", 7) == 0) {
            argv[files++] = argv[i] + 7;
        } else if (strcmp(argv[i], "--text") != 0) {
            char *name = argv[i] + (argv[i][1] == '-' ? 2 : 1), *equals = strchr(name, '=');
            const char *value = equals ? equals + 1 : i + 1 < argc ? argv[i + 1] : "";
            size_t j = 0;
            if (equals)
                *equals = 0;
            while (j < known && strcmp(name, table[j].name) != 0)
                j++;
            const int is_lr = strcmp(name, "lr") == 0, is_beta2 = strcmp(name, "beta2") == 0;
            if (argv[i][1] != '-' || (j == known && !is_lr && !is_beta2 && strcmp(name, "save") != 0))
                stop(2, "unknown option %s", argv[i]);
            if (!*value || strlen(value) >= MAX_PATH)
                stop(2, "--%s wants a value, and not a very long one", name);
            i += !equals;
            if (j < known && table[j].string) {
                *table[j].string = value;
            } else if (j < known) {
                *table[j].number = parse_number(name, &value, 0, table[j].least, table[j].most);
            } else if (is_lr || is_beta2) {
                char *end;
                const double number = strtod(value, &end);
                if (*end || !(number > 0 && (is_lr ? number <= 1 : number < 1)))
                    stop(2, "--%s: '%s' should be a number above 0, %s 1", name, value, is_lr ? "at most" : "below");
                *(is_lr ? &o->lr : &o->beta2) = number;
            } else {
                do {
                    if (o->save_count == MAX_SAVES)
                        stop(2, "--save takes at most %d steps", MAX_SAVES);
                    o->saves[o->save_count++] = parse_number(name, &value, 1, 0, 99999);
                } while (*value++);
            }
        }
    }
    return files;
}

/* Sets the defaults, and checks options against each other. */
static void complete(options *o)
{
    if (o->dim % (4 * o->heads))
        stop(2, "--dim must be a multiple of 4 * heads, here %" PRIu64, 4 * o->heads);
    if (o->context % 4)
        stop(2, "--context must be a multiple of 4");
    if (o->warmup == UINT64_MAX)
        o->warmup = o->steps / 10;
    if (o->warmup > o->steps)
        stop(2, "--warmup is longer than --steps");
    if (!o->until)
        o->until = o->steps;
    if (o->until > o->steps)
        stop(2, "--until is behind the last step, %" PRIu64, o->steps);
    if (!o->save_count) {
        o->saves[o->save_count++] = (o->until + 9) / 10;
        o->saves[o->save_count++] = (o->until + 1) / 2;
        o->saves[o->save_count++] = o->until;
    }
    for (size_t i = 0; i < o->save_count; i++)
        if (o->saves[i] > o->until)
            stop(2, "--save %" PRIu64 " is behind the last step, %" PRIu64, o->saves[i], o->until);
    if (!o->threads) {
        const long online = sysconf(_SC_NPROCESSORS_ONLN);
        o->threads = online < 1 ? 1 : online > MAX_LANES ? MAX_LANES : (uint64_t)online;
    }
}

/* ================================================================================= ENGINE */

static double now(void);

#ifdef TRAIN_ENGINE
typedef struct checkpoints {
    engine_transport transport; /* with MPI */
    engine *e;
    engine_tensor *tensors;
    size_t count;
    char (*names)[64], name[256], every[24];
    const char *agent[9];
    char *copy;          /* target of time_of_memcpy */
    double copy_seconds;
    FILE *log;
} checkpoints;

static void say(void *context, const char *message)
{
    const trainer *t = context;
    fprintf(stderr, "train_gpt: rank %zu: %s\n", t->rank, message);
}

/* Lists the state of the tensors that this rank owns. */
static void list_state(trainer *t, checkpoints *c)
{
    static const char *const kinds[] = {"master", "exp_avg", "exp_avg_sq"};
    float *const values[] = {t->m.master, t->m.exp_avg, t->m.exp_avg_sq};
    c->count = 3 * (t->end - t->first);
    c->tensors = calloc(c->count + 1, sizeof *c->tensors);
    c->names = calloc(c->count + 1, sizeof *c->names);
    if (!c->tensors || !c->names)
        stop(1, "no memory for a list of tensors");
    for (size_t i = 0; i < c->count; i++) {
        const tensor *x = &t->m.table[t->first + i / 3];
        engine_tensor *y = &c->tensors[i];
        snprintf(c->names[i], sizeof c->names[i], "%s.%s", x->name, kinds[i % 3]);
        y->name = c->names[i];
        y->dtype = BITSNAP_F32;
        y->data = values[i % 3] + x->offset;
        y->count = x->count;
        y->columns = x->rows ? x->columns : 0;
        y->kind = (engine_kind)(i % 3);
    }
}

/* Returns the seconds that memcpy takes for the state. */
static double time_of_memcpy(const trainer *t, checkpoints *c)
{
    size_t count;
    const size_t first = shard(t, t->rank, &count);
    const float *const values[] = {t->m.master, t->m.exp_avg, t->m.exp_avg_sq};
    if (!c->copy && !(c->copy = calloc(3 * count + 1, 4)))
        stop(1, "no memory for a copy of the state");
    const double start = now();
    for (size_t i = 0; i < 3; i++)
        memcpy(c->copy + 4 * i * count, values[i] + first, 4 * count);
    return now() - start;
}

/* Opens the engine, and continues from its snapshot if it has one. */
static void open_engine(trainer *t)
{
    static checkpoints c;
    engine_options o = {.threads = 1, .when_busy = ENGINE_WAIT, .patience = 30, .partner_patience = 30, .say = say, .say_context = t};
    engine_error error;
    const double start = now();
    if (!t->o.engine)
        return;
    t->checkpoints = &c;
    snprintf(c.name, sizeof c.name, "%s.%zu", t->o.engine, t->rank);
    if (engine_policy(&o, t->o.engine_policy))
        stop(2, "--engine-policy: '%s' is none of lossless, resume, standard and small", t->o.engine_policy);
    list_state(t, &c);
    o.name = c.name;
    o.budget = t->o.engine_budget << 20;
#ifdef TRAIN_MPI
    if (engine_mpi_open(&c.transport, MPI_COMM_WORLD))
        stop(1, "this MPI cannot be called by several threads");
    o.transport = &c.transport;
    o.group = (unsigned)t->o.engine_group;
    o.disk = t->o.engine_disk;
    engine_use_stores();
#endif
    if (t->o.engine_program) {
        snprintf(c.every, sizeof c.every, "%" PRIu64, t->o.engine_every);
        const char *const arguments[] = {t->o.engine_program, "agent", c.name, "--every", c.every, o.disk ? "--store" : NULL, "--disk", o.disk, NULL};
        memcpy(c.agent, arguments, sizeof arguments);
        o.agent = c.agent;
    }
    if (engine_open(&c.e, &o, &error))
        stop(1, "%s", error.message);
    uint64_t step; /* t->step is that of --resume, until a snapshot replaces it */
    if (!engine_recover(c.e, &step, c.tensors, c.count, &error)) {
        t->step = step;
        static const char *const sources[] = {"memory", "partner", "disk"};
        const engine_cost *cost = engine_last_cost(c.e);
        fprintf(stderr, "train_gpt: rank %zu: step %" PRIu64 " from %s, in %.1f ms: %.1f to agree, %.1f to fetch, %.1f to decode\n", t->rank, t->step,
                sources[cost->source], 1e3 * (now() - start), 1e3 * cost->agree_seconds, 1e3 * cost->fetch_seconds, 1e3 * cost->decode_seconds);
    } else if (error.status != ENGINE_E_NONE) {
        stop(1, "%s", error.message);
    }
    if (t->o.engine_log) {
        char path[MAX_PATH + 32];
        snprintf(path, sizeof path, "%s.%zu", t->o.engine_log, t->rank);
        c.log = fopen(path, "a");
        if (!c.log)
            stop(1, "%s: %s", path, strerror(errno));
    }
    (void)time_of_memcpy(t, &c);
}

/* Takes a snapshot. A skipped one is reported and does not end the run. */
static void take_snapshot(trainer *t)
{
    checkpoints *c = t->checkpoints;
    engine_error error;
    if (!c)
        return;
    const double start = now();
    const int failed = engine_snapshot(c->e, t->step, c->tensors, c->count, &error) != ENGINE_OK;
    const double seconds = now() - start;
    const engine_cost *cost = engine_last_cost(c->e);
    if (failed)
        say(t, error.message);
    if (c->log) {
        fprintf(c->log, "%" PRIu64 ",%d,%.6f,%.6f,%.6f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", t->step, failed, seconds, cost->seconds,
                time_of_memcpy(t, c), cost->elements_size, cost->frames_size, cost->sent_size);
        fflush(c->log);
    }
}

static void close_engine(trainer *t)
{
    engine_error error;
    if (!t->checkpoints)
        return;
    if (engine_wait(t->checkpoints->e, 30, &error))
        say(t, error.message);
#ifdef TRAIN_MPI
    MPI_Barrier(MPI_COMM_WORLD);
#endif
    engine_close(t->checkpoints->e, ENGINE_KEEP);
#ifdef TRAIN_MPI
    engine_mpi_close(&t->checkpoints->transport);
#endif
}
#elif defined TRAIN_STUDY /* bench/study/stages.c includes this file and defines its own */
static void open_engine(trainer *t);
static void take_snapshot(trainer *t);
static void close_engine(trainer *t);
#else
static void open_engine(trainer *t) { (void)t; }
static void take_snapshot(trainer *t) { (void)t; }
static void close_engine(trainer *t) { (void)t; }
#endif

#ifdef TRAIN_MPI
static void begin_ranks(trainer *t, int *argc, char ***argv)
{
    int rank, ranks, threads;
    if (MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &threads) != MPI_SUCCESS)
        stop(1, "MPI does not start");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > MAX_LANES)
        stop(2, "at most %d ranks", MAX_LANES);
    t->rank = (size_t)rank;
    t->ranks = (size_t)ranks;
}

static void end_ranks(void) { MPI_Finalize(); }
#else
static void begin_ranks(trainer *t, int *argc, char ***argv) { (void)argc, (void)argv, t->ranks = 1; }
static void end_ranks(void) {}
#endif

/* ================================================================================= MAIN */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int is_saved(const options *o, uint64_t step)
{
    for (size_t i = 0; i < o->save_count; i++)
        if (o->saves[i] == step)
            return 1;
    return 0;
}

/* Runs all steps. A terminal shows progress in one line; other outputs get a line now and then. */
static void train_all(trainer *t)
{
    const options *o = &t->o;
    const int terminal = isatty(STDOUT_FILENO);
    const uint64_t first = t->step;
    FILE *log = o->log && !t->rank ? fopen(o->log, first ? "a" : "w") : NULL;
    if (o->log && !t->rank && (!log || (!first && fputs("step,loss,lr,grad_norm,validation\n", log) < 0)))
        stop(1, "%s: %s", o->log, strerror(errno));
    if (is_saved(o, first) && (first == 0 || t->checkpoints)) /* a run may have been killed before it was written */
        save(t);

    double smooth = 0, seconds = 0;
    while (t->step < o->until) {
        double size;
        const double start = now(), loss = train(t, &size);
        seconds += now() - start;
        const uint64_t step = t->step, done = step - first;
        const int good = isfinite(loss) && isfinite(size), saving = is_saved(o, step);
        const int final = saving || !good || step == o->until;
        char unseen[32] = "";
        if (saving && good && o->validate)
            snprintf(unseen, sizeof unseen, "%.9f", validate(t));
        smooth = done == 1 ? loss : smooth + 0.1 * (loss - smooth); /* a batch is small, its loss noisy */
        if (log && fprintf(log, "%" PRIu64 ",%.9f,%.9g,%.6g,%s\n", step, loss, (double)t->rate, size, unseen) < 0)
            stop(1, "%s: %s", o->log, strerror(errno));
        if (!o->quiet && (terminal || final || done == 1 || step % 10 == 0)) {
            const double each = seconds / (double)done;
            const unsigned left = (unsigned)(each * (double)(o->until - step) + 0.5);
            printf("%sstep %" PRIu64 "/%" PRIu64 "  loss %.3f  %.1f k tokens/s  %u:%02u left%s",
                   terminal ? "\r" : "", step, o->until, smooth, 1e-3 * (double)(o->batch * o->context) / each,
                   left / 60, left % 60, terminal ? "\033[K" : "");
            if (!terminal || final)
                putchar('\n');
            fflush(stdout);
        }
        if (*unseen && !o->quiet)
            printf("validation loss %s\n", unseen);
        if (!good)
            stop(1, "training diverged at step %" PRIu64 ": try a lower --lr", step);
        take_snapshot(t);
        if (saving)
            save(t);
    }
    if (log && fclose(log) != 0)
        stop(1, "%s: %s", o->log, strerror(errno));
}

int main(int argc, char **argv)
{
    static trainer t = {.workers = {.mutex = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER,
                                    .done = PTHREAD_COND_INITIALIZER}};
    t.o = (options){.out = "checkpoints", .model = "gpt", .steps = 250, .seed = 1, .layers = 4, .dim = 128, .heads = 4,
                    .context = 128, .batch = 8, .warmup = UINT64_MAX, .lr = 0.002, .beta2 = 0.95,
                    .engine_policy = "lossless", .engine_budget = 64, .engine_every = 1};
    begin_ranks(&t, &argc, &argv);
    const size_t files = parse(&t.o, argc, argv);
    complete(&t.o);
    if (!files)
        stop(2, "no text files given");

    static const char *const models[] = {[GPT] = "gpt", [GATED] = "gated", [MOE] = "moe"};
    while (t.m.kind < MOE && strcmp(t.o.model, models[t.m.kind]) != 0)
        t.m.kind++;
    if (strcmp(t.o.model, models[t.m.kind]) != 0)
        stop(2, "--model: '%s' is none of gpt, gated and moe", t.o.model);
    t.m.layers = (size_t)t.o.layers;
    t.m.dim = (size_t)t.o.dim;
    t.m.heads = (size_t)t.o.heads;
    t.m.context = (size_t)t.o.context;
    t.lane_count = t.o.batch < MAX_LANES ? (size_t)t.o.batch : MAX_LANES;
    for (size_t i = 0; i < files; i++)
        append_file(&t.text, &t.text_size, argv[i]);
    if (t.text_size < t.m.context + 2)
        stop(1, "the text has %zu bytes, --context %zu needs %zu", t.text_size, t.m.context, t.m.context + 2);

    if (t.o.validate)
        append_file(&t.unseen, &t.unseen_size, t.o.validate);
    if (t.o.validate && t.unseen_size <= t.m.context)
        stop(1, "%s has %zu bytes, --context %zu needs %zu", t.o.validate, t.unseen_size, t.m.context,
             t.m.context + 1);

    describe(&t.m);
    allocate(&t);
    if (t.o.resume)
        load(&t);
    else
        initialize(&t.m, t.o.seed);
    t.first = first_tensor(&t, t.rank);
    t.end = first_tensor(&t, t.rank + 1);
    open_engine(&t);
    for (size_t i = 0; i < t.m.tensors; i++)
        round_weights(&t.m, &t.m.table[i]);
    share_values(&t, t.m.weights);
    for (size_t i = 0; i < t.m.tensors; i++)
        renew_task(&t, i);
    struct stat found;
    if (mkdir(t.o.out, 0777) != 0 && (errno != EEXIST || stat(t.o.out, &found) != 0 || !S_ISDIR(found.st_mode)))
        stop(1, "cannot create %s: %s", t.o.out, strerror(errno));
    pool_start(&t.workers, (size_t)t.o.threads);
    t.o.quiet |= t.rank != 0;
    if (!t.o.quiet)
        printf("%zu parameters, %zu bytes of text, %u thread%s\n", t.m.parameters, t.text_size,
               (unsigned)t.o.threads, t.o.threads == 1 ? "" : "s");
    train_all(&t);
    close_engine(&t);
    pool_stop(&t.workers);
    end_ranks();
    if (fflush(stdout) != 0 || ferror(stdout))
        stop(1, "cannot write to standard output");
    return 0;
}
