/* The program of tests in codec.c. It runs the test with its own name, up to a dot (test_frame.exe). */
#include "inside.h"
#include <string.h>

int main(int argc, char **argv)
{
    const char *name = argv[0], *p;
    for (p = name; *p; p++)
        if (*p == '/' || *p == '\\') name = p + 1;
    return inside_run(name, strcspn(name, "."), argc, argv);
}
