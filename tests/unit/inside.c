/* The program of the tests that are compiled with the codec (codec.c): it is what its name says, up to a dot (test_frame.exe). */
#include "inside.h"
#include <string.h>

int main(int argc, char **argv)
{
    const char *name = argv[0], *p;
    for (p = name; *p; p++)
        if (*p == '/' || *p == '\\') name = p + 1;
    return inside_run(name, strcspn(name, "."), argc, argv);
}
