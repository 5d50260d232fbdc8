/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Turns each line of layout.golden into an assertion, in any language. */
#include "wire/wire.h"

#define STRUCT(name, size) \
	INGERO_STATIC_ASSERT(sizeof(struct name) == (size), #name);
#define FIELD(name, member, offset, size)                                     \
	INGERO_STATIC_ASSERT(__builtin_offsetof(struct name, member) ==       \
				     (offset),                                \
			     #name "." #member " moved");                     \
	INGERO_STATIC_ASSERT(sizeof(((struct name *)0)->member) == (size),    \
			     #name "." #member " changed its size");
#define VALUE(id, value) INGERO_STATIC_ASSERT((int)(id) == (value), #id);
#include "layout.golden"
#undef STRUCT
#undef FIELD
#undef VALUE
