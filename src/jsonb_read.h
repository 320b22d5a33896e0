/*
 * jsonb_read.h
 *	  Small readers of jsonb values, shared by the rooms that parse.
 */
#ifndef UNSAFEMV_JSONB_READ_H
#define UNSAFEMV_JSONB_READ_H

#include "utils/builtins.h"
#include "utils/jsonb.h"

/* Does a jsonb string (or member name) read "expected"? */
static inline bool
jsonb_string_is(const JsonbValue *string, const char *expected)
{
	return string->val.string.len == (int) strlen(expected) &&
		memcmp(string->val.string.val, expected, string->val.string.len) == 0;
}

static inline text *
jsonb_string_text(const JsonbValue *string)
{
	return cstring_to_text_with_len(string->val.string.val, string->val.string.len);
}

#endif							/* UNSAFEMV_JSONB_READ_H */
