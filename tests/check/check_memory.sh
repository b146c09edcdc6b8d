#!/bin/sh
# The memory sanitizer's part of check_sanitize.sh, as its own check so that both run in parallel.
MEMORY=1 exec "$(dirname "$0")/check_sanitize.sh"
