#!/bin/sh
# The memory sanitizer's part of check_sanitize.sh, so that both run side by side.
MEMORY=1 exec "$(dirname "$0")/check_sanitize.sh"
