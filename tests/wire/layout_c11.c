/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* wire.h as the shim sees it. */
#include "layout_asserts.h"
