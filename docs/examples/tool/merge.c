#include "commands.h"
int command_merge(const options *o, codec *c, const base *b, fault *f) { (void)o; (void)c; (void)b; return fault_set(f, "not yet"); }
int command_invert(const options *o, codec *c, const base *b, const char *path, fault *f) { (void)o; (void)c; (void)b; (void)path; return fault_set(f, "not yet"); }
