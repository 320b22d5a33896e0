#include "postgres.h"
#include "fmgr.h"
PG_FUNCTION_INFO_V1(unsafemv_follow);
PG_FUNCTION_INFO_V1(unsafemv_skip_event);
PG_FUNCTION_INFO_V1(unsafemv_retry_event);
Datum unsafemv_follow(PG_FUNCTION_ARGS){elog(ERROR, "not yet");}
Datum unsafemv_skip_event(PG_FUNCTION_ARGS){elog(ERROR, "not yet");}
Datum unsafemv_retry_event(PG_FUNCTION_ARGS){elog(ERROR, "not yet");}
