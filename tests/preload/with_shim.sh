#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# with_shim.sh LIBRARY PROGRAM ARGUMENTS...: runs it under the shim, in a trace
# folder of its own that is removed again.
library=$1
shift
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
INGERO_DIR=$dir LD_PRELOAD=$library "$@"
