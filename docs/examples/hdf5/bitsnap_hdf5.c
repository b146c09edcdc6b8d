/* bitsnap_hdf5.c - chunks of HDF5 data sets as frames: a filter that HDF5 loads as a plug-in. MIT licence, see bitsnap.h.
 *
 *     cc -O2 -shared -fPIC -I. $(pkg-config --cflags hdf5) docs/examples/hdf5/bitsnap_hdf5.c -o libbitsnap_hdf5.so $(pkg-config
 *     --libs hdf5)
 *     export HDF5_PLUGIN_PATH=...                        # the directory of libbitsnap_hdf5.so
 *
 * Parameters of the filter: the level (0 to 3, 0 is the default) and the dtype (a number of bitsnap_dtype; 0: from the type of
 * the data set; 9: bfloat16 stored as 16-bit integers). For a data set, HDF5 stores the values below. */
#define BITSNAP_STATIC
#define BITSNAP_NO_DELTA /* chunks need none of these features */
#define BITSNAP_NO_QUANTIZE
#define BITSNAP_NO_PARTS
#define BITSNAP_NO_EXTRAS
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"

#include <hdf5.h>
#include <H5PLextern.h>
#include <string.h>

/* Numbers from 256 to 511 are for tests. The HDF Group assigns permanent ones. */
#ifndef BITSNAP_HDF5_FILTER
#define BITSNAP_HDF5_FILTER 411
#endif

/* Largest chunk, in bytes. HDF5 does not tell a filter the size of a chunk, so it comes from the values below. A hostile file can
 * claim any size, and expand 64 bytes to 4 GiB. */
#ifndef BITSNAP_HDF5_CHUNK_MOST
#define BITSNAP_HDF5_CHUNK_MOST (UINT32_C(1) << 30)
#endif

enum { LEVEL, DTYPE, CHUNK_LOW, CHUNK_HIGH, VALUES }; /* chunk: its size in bytes, which a frame must decode to */

static bitsnap_dtype dtype_of(hid_t type)
{
    static const bitsnap_dtype integers[9] = { 0, BITSNAP_I8, BITSNAP_I16, 0, BITSNAP_I32, 0, 0, 0, BITSNAP_I64 };
    const size_t size = H5Tget_size(type);
    size_t sign, exponent, exponent_bits = 0, mantissa, mantissa_bits = 0;
    if (size > 8 || !integers[size]) return BITSNAP_I8; /* compound types, strings: bytes */
    if (H5Tget_class(type) != H5T_FLOAT || H5Tget_order(type) != H5T_ORDER_LE ||
        H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0)
        return integers[size];
    if (size == 1 && exponent_bits == 4) return BITSNAP_F8_E4M3;
    if (size == 1 && exponent_bits == 5) return BITSNAP_F8_E5M2;
    if (size == 2 && exponent_bits == 5) return BITSNAP_F16;
    if (size == 2 && exponent_bits == 8) return BITSNAP_BF16;
    if (size == 4 && exponent_bits == 8) return BITSNAP_F32;
    if (size == 8 && exponent_bits == 11) return BITSNAP_F64;
    return integers[size];
}

static herr_t set_local(hid_t properties, hid_t type, hid_t space)
{
    unsigned flags, values[VALUES] = { 0, 0, 0, 0 };
    size_t count = VALUES;
    hsize_t chunk[H5S_MAX_RANK];
    const int rank = H5Pget_chunk(properties, H5S_MAX_RANK, chunk);
    uint64_t bytes = H5Tget_size(type); /* HDF5 has chunks of less than 4 GiB */
    int i;
    (void)space;
    if (rank < 0 || H5Pget_filter_by_id2(properties, BITSNAP_HDF5_FILTER, &flags, &count, values, 0, NULL, NULL) < 0) return -1;
    if (values[LEVEL] > BITSNAP_BEST || (values[DTYPE] && !bitsnap_width((bitsnap_dtype)values[DTYPE]))) return -1;
    if (!values[DTYPE]) values[DTYPE] = dtype_of(type);
    for (i = 0; i < rank; i++) bytes *= chunk[i];
    if (bytes > BITSNAP_HDF5_CHUNK_MOST) return -1;
    if (bytes % bitsnap_width((bitsnap_dtype)values[DTYPE])) return -1;
    values[CHUNK_LOW] = (unsigned)(bytes & 0xFFFFFFFF);
    values[CHUNK_HIGH] = (unsigned)(bytes >> 32);
    return H5Pmodify_filter(properties, BITSNAP_HDF5_FILTER, flags, VALUES, values);
}

/* Encodes a chunk to memory allocated by HDF5. *size: bytes of the frame. Returns null on an error, and, with `smaller`, if the
 * frame is larger than the chunk, which HDF5 then stores as it is. */
static void *encode(const void *from, size_t bytes, const unsigned *values, int smaller, size_t *size)
{
    const bitsnap_dtype dtype = (bitsnap_dtype)values[DTYPE];
    const unsigned width = bitsnap_width(dtype);
    bitsnap b;
    void *to = NULL;
    size_t capacity;
    memset(&b, 0, sizeof b);
    b.level = (int)values[LEVEL];
    if (!width || bytes % width || bytes != (values[CHUNK_LOW] | (uint64_t)values[CHUNK_HIGH] << 32)) return NULL;
    b.workspace_size = bitsnap_workspace_size(&b, bytes / width, dtype);
    b.workspace = H5allocate_memory(b.workspace_size, 0);
    capacity = smaller ? bytes : bitsnap_bound(&b, bytes / width, dtype);
    if (b.workspace) to = H5allocate_memory(capacity, 0);
    if (to && bitsnap_encode(&b, to, capacity, size, from, bytes / width, dtype)) {
        (void)H5free_memory(to);
        to = NULL;
    }
    (void)H5free_memory(b.workspace);
    return to;
}

static void *decode(const void *from, size_t bytes, const unsigned *values, size_t *size)
{
    const uint64_t chunk = values[CHUNK_LOW] | (uint64_t)values[CHUNK_HIGH] << 32;
    bitsnap b;
    bitsnap_info info;
    void *to = NULL;
    memset(&b, 0, sizeof b);
    if (chunk > BITSNAP_HDF5_CHUNK_MOST || bitsnap_read_info(&info, from, bytes) || info.elements_size != chunk || info.dtype != values[DTYPE]) return NULL;
    b.workspace_size = info.workspace_size;
    b.workspace = H5allocate_memory(b.workspace_size, 0);
    if (b.workspace) to = H5allocate_memory((size_t)chunk, 0);
    if (to && bitsnap_decode(&b, to, info.count, info.dtype, from, bytes)) {
        (void)H5free_memory(to);
        to = NULL;
    }
    (void)H5free_memory(b.workspace);
    *size = (size_t)chunk;
    return to;
}

static size_t filter(unsigned flags, size_t count, const unsigned *values, size_t bytes, size_t *room, void **buffer)
{
    size_t size = 0;
    void *other = NULL;
    if (count == VALUES && bytes && flags & H5Z_FLAG_REVERSE) other = decode(*buffer, bytes, values, &size);
    else if (count == VALUES && bytes) other = encode(*buffer, bytes, values, (flags & H5Z_FLAG_OPTIONAL) != 0, &size);
    if (!other) return 0;
    (void)H5free_memory(*buffer);
    *buffer = other;
    *room = size;
    return size;
}

static const H5Z_class2_t class = { H5Z_CLASS_T_VERS, BITSNAP_HDF5_FILTER, 1, 1, "bitsnap", NULL, set_local, filter };

/* Functions that HDF5 calls in a plug-in. */
__attribute__((visibility("default"))) H5PL_type_t H5PLget_plugin_type(void) { return H5PL_TYPE_FILTER; }
__attribute__((visibility("default"))) const void *H5PLget_plugin_info(void) { return &class; }
