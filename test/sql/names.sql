-- Names with quotes, semicolons and format letters, and of the greatest length, also of characters of several
-- bytes, through every function.  Report 53 in part: a view named like a statement.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
CREATE ROLE regress_names;
RESET client_min_messages;
SELECT unsafemv.grant_access('regress_names', 'admin');
\set ECHO none
\i test/sql/every_call.inc
\set ECHO all
CREATE TABLE witness ();
CREATE SCHEMA "sch""ema'; DROP TABLE public.witness; -- %s $1";
GRANT ALL ON SCHEMA every, "sch""ema'; DROP TABLE public.witness; -- %s $1" TO regress_names;
SET ROLE regress_names;
\t on
\pset format unaligned
SELECT every.objects('sch"ema''; DROP TABLE public.witness; -- %s $1') \gexec
SELECT statement FROM every.calls('x"; DROP TABLE public.witness; --', ARRAY['v''iew"; DROP TABLE public.witness; --', 'a $1 %s %n \ {}', E'line\nfeed\ttab'],
    'e"''; --', 'k''"; DROP %s', 'i"''; --', 'sch"ema''; DROP TABLE public.witness; -- %s $1') ORDER BY place \gexec
SELECT to_regclass('public.witness');

-- 255 bytes of service and view, 1,024 of event and key, 63 of index id; of one to four bytes a character.
-- \gexec would print kilobytes, so a long name is told as what it is.
CREATE FUNCTION every.fill(c text, bytes int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT repeat(c, bytes / octet_length(c)) || repeat('y', bytes % octet_length(c)) $$;
CREATE FUNCTION every.short(told text, c text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT replace(replace(replace(replace(told, every.fill(c, 1024), 'key'), every.fill(c, 1023), 'event'), every.fill(c, 254), 'view'), every.fill(c, 63), 'index') $$;
\set ECHO none
SELECT CASE WHEN s.statement ~ '^SELECT' THEN format('SELECT string_agg(every.short(x::text, %L), '' '') FROM (%s) x', c, s.statement) ELSE s.statement END
FROM unnest(ARRAY['x', 'é', '🙂']) AS c, every.calls(every.fill(c, 255), ARRAY[every.fill(c, 254) || '1', every.fill(c, 254) || '2', every.fill(c, 254) || '3'],
    every.fill(c, 1023), every.fill(c, 1024), every.fill(c, 63), 'sch"ema''; DROP TABLE public.witness; -- %s $1') s ORDER BY c COLLATE "C", s.place \gexec
\set ECHO all
-- a byte more of any of them
CREATE FUNCTION every.said(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    word text;
BEGIN
    EXECUTE statement;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS word = CONSTRAINT_NAME;
    RETURN coalesce(nullif(word, ''), SQLSTATE);
END $$;
-- (the names that have no limit: of a lease's owner, of a finding's kind; CALLs commit, and refuse an outer transaction first)
SELECT said, count(*), string_agg(DISTINCT substring(statement FROM 'unsafemv\.(\w+)'), ' ') FILTER (WHERE said <> 'MV_LIMIT_EXCEEDED') AS functions
FROM (SELECT statement, every.said(statement) AS said FROM every.calls(every.fill('é', 256), ARRAY['v1', 'v2', 'v3'], 'e', 'k', 'i', 'none') WHERE statement ~ 'unsafemv\.\w+\(') x GROUP BY 1 ORDER BY 1;
SELECT said, count(*), string_agg(DISTINCT substring(statement FROM 'unsafemv\.(\w+)'), ' ') FILTER (WHERE said <> 'MV_LIMIT_EXCEEDED') AS functions
FROM (SELECT statement, every.said(statement) AS said FROM every.calls('s', ARRAY[every.fill('é', 256), every.fill('é', 256), every.fill('é', 256)], 'e', 'k', 'i', 'none') WHERE statement ~ 'unsafemv\.\w+\(') x GROUP BY 1 ORDER BY 1;

RESET ROLE;
\t off
SELECT * FROM unsafemv.check();
SELECT count(*) AS views FROM unsafemv.views WHERE octet_length(service_id) > 200 OR service_id ~ 'DROP';
DROP TABLE witness;
SET client_min_messages = warning;
DROP OWNED BY regress_names;
DROP SCHEMA every, "sch""ema'; DROP TABLE public.witness; -- %s $1" CASCADE;
DROP ROLE regress_names;
