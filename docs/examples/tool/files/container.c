/* container.c - bitsnap_file.h as the tool uses it. Only this file of the tool compiles its implementation.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#define BITSNAP_FILE_IMPLEMENTATION
#include "container.h"

int safetensors_parse(safetensors *s, const char *text, size_t size, fault *f)
{
    bitsnap_file_error e;
    char which[112] = "";
    if (!bitsnap_safetensors_parse(s, text, size, NULL, &e)) return 0;
    if (e.status == BITSNAP_E_WORKSPACE) return fault_memory(f);
    if (e.tensor.at)
        (void)snprintf(which, sizeof which, "tensor \"%.*s\"%s: ", (int)(e.tensor.size < 80 ? e.tensor.size : 80), e.tensor.at,
                       e.tensor.size < 80 ? "" : "...");
    if (e.wanted == e.found) return fault_set(f, "bad .safetensors header: %s%s (byte %llu)", which, e.message, (unsigned long long)e.offset);
    return fault_set(f, "bad .safetensors header: %sshape and dtype need %llu bytes, data_offsets hold %llu (byte %llu)", which,
                     (unsigned long long)e.wanted, (unsigned long long)e.found, (unsigned long long)e.offset);
}

int text_encode(uint8_t **coded, size_t *coded_size, const void *text, size_t size, fault *f)
{
    bitsnap_file_error e;
    if (!bitsnap_text_encode(coded, coded_size, text, size, NULL, &e)) return 0;
    return e.status == BITSNAP_E_WORKSPACE ? fault_memory(f) : fault_set(f, "the header text could not be coded: %s", e.message);
}

int text_decode(void *text, size_t size, const void *coded, size_t coded_size, fault *f)
{
    bitsnap_file_error e;
    if (!bitsnap_text_decode(text, size, coded, coded_size, NULL, &e)) return 0;
    if (e.status == BITSNAP_E_WORKSPACE) return fault_memory(f);
    return fault_set(f, "damaged text: %s (S%u, byte %llu of it)", e.message, e.rule, (unsigned long long)e.offset);
}

int container_failed(const bitsnap_file_error *e, fault *f)
{
    const char *advice = "; take another copy of the file";
    const unsigned long long at = e->offset;
    if (e->status == BITSNAP_E_UNSUPPORTED) {
        if (e->found) (void)fault_set(f, "%s: bits %08llX (S%u); use a newer one", e->message, (unsigned long long)e->found, e->rule);
        else if (e->frame_rule) (void)fault_set(f, "%s (R%u, byte %llu): made by a newer bitsnap; use that version", e->message, e->frame_rule, at);
        else (void)fault_set(f, "%s (S%u, byte %llu); use a newer one", e->message, e->rule, at);
        return f->passes = 1; /* the file may be fine */
    }
    if (e->status == BITSNAP_E_WORKSPACE) return fault_memory(f);
    if (e->status == BITSNAP_E_BASE) return fault_set(f, "%s; give the right base", e->message);
    if (e->tensor.at)
        return fault_set(f, "tensor \"%.*s\": %s (byte %llu)%s", e->tensor.size < 80 ? (int)e->tensor.size : 80, e->tensor.at, e->message, at, advice);
    if (e->rule) return fault_set(f, "%s (S%u, byte %llu)%s", e->message, e->rule, at, advice);
    return fault_set(f, "%s (byte %llu)%s", e->message, at, advice);
}
