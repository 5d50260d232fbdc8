/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* wire.h as the BPF programs see it: see CMakeLists.txt. */
#include "bpf/kernel_types.h"

#include "layout_asserts.h"
