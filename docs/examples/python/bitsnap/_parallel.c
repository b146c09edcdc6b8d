/* The tool's threads. They are included, because a source outside of this folder would leave its object outside, too. */
#include "tool/system/parallel.c"
