#include "postgres.h"
#include "fmgr.h"
PG_FUNCTION_INFO_V1(unsafemv_rebuild);
PG_FUNCTION_INFO_V1(unsafemv_rebuild_and_promote);
Datum unsafemv_rebuild(PG_FUNCTION_ARGS){elog(ERROR, "not yet");}
Datum unsafemv_rebuild_and_promote(PG_FUNCTION_ARGS){elog(ERROR, "not yet");}
