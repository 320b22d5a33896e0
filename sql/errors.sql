-- errors: the error catalogue, as the C code has it

CREATE FUNCTION unsafemv.error_catalogue()
RETURNS TABLE (code text, sqlstate text, retryable boolean, meaning text)
LANGUAGE c IMMUTABLE PARALLEL SAFE ROWS 50
SET search_path = pg_catalog, pg_temp
AS 'MODULE_PATHNAME', 'unsafemv_error_catalogue';

COMMENT ON FUNCTION unsafemv.error_catalogue() IS
'every error code the extension raises, one row each, from the table the C code is built from; read it as the view unsafemv.errors';

CREATE VIEW unsafemv.errors AS
SELECT c.code, c.sqlstate, c.retryable, c.meaning
FROM unsafemv.error_catalogue() AS c;

COMMENT ON VIEW unsafemv.errors IS
'the error catalogue: what the extension raises, and whether trying again can help';
COMMENT ON COLUMN unsafemv.errors.code IS
'code word, stable; an error carries it in its constraint-name field';
COMMENT ON COLUMN unsafemv.errors.sqlstate IS
'SQLSTATE, five characters, class UM; stable';
COMMENT ON COLUMN unsafemv.errors.retryable IS
'true: the same call, after a fresh read where it compares versions, can succeed; false: it fails again until something else has changed';
COMMENT ON COLUMN unsafemv.errors.meaning IS
'what the error says';
