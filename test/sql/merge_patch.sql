-- RFC 7396 merge patch, and the patch kinds that compute.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS unsafemv;
RESET client_min_messages;
SET search_path = public, unsafemv;

CREATE FUNCTION pg_temp.provoke(statement text)
RETURNS TABLE (state text, code text, message text, detail text, hint text)
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, code = CONSTRAINT_NAME,
        message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT;
END $$;

-- The test cases of RFC 7396, appendix A
SELECT n, target, patch, jsonb_merge_patch(target, patch) AS result,
       jsonb_merge_patch(target, patch) = expected AS ok
FROM (VALUES
    (1, '{"a":"b"}'::jsonb, '{"a":"c"}'::jsonb, '{"a":"c"}'::jsonb),
    (2, '{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    (3, '{"a":"b"}', '{"a":null}', '{}'),
    (4, '{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    (5, '{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    (6, '{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    (7, '{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    (8, '{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    (9, '["a","b"]', '["c","d"]', '["c","d"]'),
    (10, '{"a":"b"}', '["c"]', '["c"]'),
    (11, '{"a":"foo"}', 'null', 'null'),
    (12, '{"a":"foo"}', '"bar"', '"bar"'),
    (13, '{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    (14, '[1,2]', '{"a":"b","c":null}', '{"a":"b"}'),
    (15, '{}', '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}')
) AS v (n, target, patch, expected)
ORDER BY n;

-- The example of RFC 7396, section 3
SELECT jsonb_merge_patch(
    '{"title":"Goodbye!","author":{"givenName":"John","familyName":"Doe"},"tags":["example","sample"],"content":"This will be unchanged"}',
    '{"title":"Hello!","phoneNumber":"+01-123-456-7890","author":{"familyName":null},"tags":["example"]}');

-- scenario 11
SELECT jsonb_merge_patch('{"a":1,"b":{"c":1}}', '{"a":null,"b":{"d":2}}') AS nested,
       jsonb_merge_patch('[1]', '{"a":1}') AS from_array,
       jsonb_merge_patch('{"a":1,"b":null}', '{}') AS unchanged,
       jsonb_merge_patch('[1]', '{}') AS no_object;

-- Null and array semantics that others got wrong
SELECT jsonb_merge_patch('{}', '{"a":{"b":null}}') AS inner_null,
       jsonb_merge_patch('{"a":1}', '{"a":[null,1]}') AS null_in_array,
       jsonb_merge_patch('{"a":1}', '{"a":[{"b":null}]}') AS object_in_array,
       jsonb_merge_patch('{"a":1}', '{"a":null}') AS gone,
       jsonb_merge_patch('{"a":1}', 'null') AS by_null,
       jsonb_merge_patch('{"a":1}', '[]') AS by_array,
       jsonb_merge_patch('{"a":1}', '"x"') AS by_string;
-- two patches in turn are not their merge
SELECT jsonb_merge_patch(jsonb_merge_patch('{"a":{"y":1}}', '{"a":null}'), '{"a":{"x":1}}') AS in_turn,
       jsonb_merge_patch('{"a":{"y":1}}', jsonb_merge_patch('{"a":null}', '{"a":{"x":1}}')) AS squashed;

-- Absent target, NULL patch, scalars; numbers keep every digit
SELECT jsonb_merge_patch(NULL, '{"a":null,"b":{"c":null,"d":1}}') AS onto_nothing,
       jsonb_merge_patch(NULL, '5') AS scalar,
       jsonb_merge_patch('"s"', '{"a":1}') AS onto_scalar,
       jsonb_merge_patch('null', '{}') AS onto_null,
       jsonb_merge_patch('{"a":1}', NULL) IS NULL AS no_patch;
SELECT jsonb_merge_patch('{"n":9007199254740993,"d":1.10}', '{"m":0.10000000000000000000000001,"e":1e3}');

-- Members with keys of every length, the empty one too
SELECT jsonb_merge_patch('{"":1,"b":2,"aa":3,"é":4}', '{"":null,"a":5,"aa":{"":6},"zzz":7}');

-- The other kinds
SELECT n, kind, target, patch, jsonb_apply_patch(kind, target, patch) AS result,
       jsonb_apply_patch(kind, target, patch)::text = expected::text AS ok
FROM (VALUES
    (1, 'json_patch', '{"a":1,"b":2}'::jsonb, '{"a":null,"c":3}'::jsonb, '{"b":2,"c":3}'::jsonb),
    (2, 'add', '{"n":1,"o":{"p":2,"q":3}}', '{"n":2,"o":{"p":-5}}', '{"n":3,"o":{"p":-3,"q":3}}'),
    (3, 'add', '{"n":"x","m":null,"k":[1],"o":{"a":1}}', '{"n":1,"m":2,"k":3,"o":4}', '{"n":1,"m":2,"k":3,"o":4}'),
    (4, 'add', '{"o":5}', '{"o":{"p":{"q":1}},"z":{}}', '{"o":{"p":{"q":1}},"z":{}}'),
    (5, 'add', NULL, '{"n":1.50}', '{"n":1.50}'),
    (6, 'add', '[1,2]', '{"n":1}', '{"n":1}'),
    (7, 'add', '7', '{"n":1}', '{"n":1}'),
    (8, 'add', '{"n":9223372036854775807,"d":0.1}', '{"n":1,"d":0.20}', '{"n":9223372036854775808,"d":0.30}'),
    (9, 'add', '{"n":true}', '{"n":1}', '{"n":1}'),
    (10, 'min', '{"a":3,"b":3,"c":"x","o":{"p":1}}', '{"a":2,"b":4,"c":9,"d":5,"o":{"p":0,"q":7}}', '{"a":2,"b":3,"c":9,"d":5,"o":{"p":0,"q":7}}'),
    (11, 'max', '{"a":3,"b":3,"c":"x","o":{"p":1}}', '{"a":2,"b":4,"c":9,"d":5,"o":{"p":0,"q":7}}', '{"a":3,"b":4,"c":9,"d":5,"o":{"p":1,"q":7}}'),
    (12, 'min', '{"a":1.0}', '{"a":1}', '{"a":1.0}'),
    (13, 'max', '{"a":1}', '{"a":1.00}', '{"a":1}'),
    (14, 'max', '{"a":9}', '{"a":10}', '{"a":10}'),
    (15, 'append', '{"l":[1]}', '{"l":[1,[2],{"a":null}],"m":"x"}', '{"l":[1,1,[2],{"a":null}],"m":["x"]}'),
    (16, 'append', '{"l":5,"m":{"a":1},"n":null}', '{"l":6,"m":[],"n":null}', '{"l":[6],"m":[],"n":[null]}'),
    (17, 'append', '{"o":{"l":[1]}}', '{"o":{"l":[2],"m":3}}', '{"o":{"l":[1,2],"m":[3]}}'),
    (18, 'union', '{"l":[1,"1",true,null]}', '{"l":[1.0,"1",true,null,false,"true",2,2.00]}', '{"l":[1,"1",true,null,false,"true",2]}'),
    (19, 'union', '{"l":[1,1]}', '{"l":[1]}', '{"l":[1,1]}'),
    (20, 'union', '{"l":[{"a":1,"b":[1,2]},[1]]}', '{"l":[{"b":[1.0,2],"a":1.00},{"b":[2,1],"a":1},[1.0],[],{}]}', '{"l":[{"a":1,"b":[1,2]},[1],{"a":1,"b":[2,1]},[],{}]}'),
    (21, 'union', '{"l":"x"}', '{"l":"x","m":["y","y"]}', '{"l":["x"],"m":["y"]}'),
    (22, 'union', '{"l":[[1],{}]}', '{"l":[[[1]],[{}],1,"",[""]]}', '{"l":[[1],{},[[1]],[{}],1,"",[""]]}'),
    (23, 'append', '{"a":1}', '{}', '{"a":1}'),
    (24, 'append', '[1]', '{}', '{}')
) AS v (n, kind, target, patch, expected)
ORDER BY n;

-- A sum that numeric cannot hold leaves the number
SELECT jsonb_apply_patch('add', t, p) = t AS left_alone, length(t::text)
FROM (SELECT ('{"n":' || repeat('9', 131072) || '}')::jsonb, '{"n":1}'::jsonb) AS v (t, p);
SELECT jsonb_apply_patch('add', t, '{"n":-1}') < t AS smaller
FROM (SELECT ('{"n":' || repeat('9', 131072) || '}')::jsonb) AS v (t);

-- Refusals
\set VERBOSITY sqlstate
SELECT jsonb_apply_patch('multiply', '{}', '{}');
SELECT jsonb_apply_patch('', '{}', '{}');
SELECT jsonb_apply_patch('ADD', '{}', '{}');
-- scenario 9, the array patch
SELECT jsonb_apply_patch('json_patch', '{}', '[1]');
SELECT jsonb_apply_patch('json_patch', '{}', 'null');
SELECT jsonb_apply_patch('add', '{}', '1');
SELECT jsonb_apply_patch('union', '{}', '[]');
SELECT jsonb_apply_patch('add', '{"n":1}', '{"n":"1"}');
SELECT jsonb_apply_patch('add', '{"n":1}', '{"n":null}');
SELECT jsonb_apply_patch('min', '{"n":1}', '{"n":[1]}');
SELECT jsonb_apply_patch('max', '{"n":1}', '{"o":{"n":true}}');
SELECT jsonb_apply_patch(NULL, '{}', '{}');
SELECT jsonb_apply_patch('add', '{}', NULL);
\set VERBOSITY default
\x on
SELECT * FROM pg_temp.provoke($$SELECT jsonb_apply_patch('multiply', '{}', '{}')$$);
SELECT * FROM pg_temp.provoke($$SELECT jsonb_apply_patch('add', '{}', '[]')$$);
SELECT * FROM pg_temp.provoke($$SELECT jsonb_apply_patch('add', '{}', '{"a":1,"b":{"c":2,"d e":{"\"f":"x"}}}')$$);
SELECT * FROM pg_temp.provoke($$SELECT jsonb_apply_patch(NULL, '{}', '{}')$$);
\x off

-- Depth: 1,000 levels merge, deeper ones meet PostgreSQL's own limit
WITH deep AS (
    SELECT (repeat('{"a":', 1000) || '{"b":1}' || repeat('}', 1000))::jsonb AS t,
           (repeat('{"a":', 1000) || '{"b":2,"c":3}' || repeat('}', 1000))::jsonb AS p)
SELECT jsonb_merge_patch(t, p) = p AS merged,
       jsonb_apply_patch('add', t, p) #>> array_fill('a'::text, ARRAY[1000]) AS added,
       jsonb_apply_patch('union', t, p) #>> array_fill('a'::text, ARRAY[1000]) AS united,
       jsonb_merge_patch(NULL, p) = p AS alone
FROM deep;

-- Width: 100,000 members on 100,000 members; 50,000 elements united with 50,000
WITH wide AS (
    SELECT (SELECT jsonb_object_agg('k' || g, g) FROM generate_series(1, 100000) AS g) AS t,
           (SELECT jsonb_object_agg('k' || g, CASE WHEN g % 2 = 0 THEN g END) FROM generate_series(50001, 150000) AS g) AS p)
SELECT count(*), sum(value::bigint) FROM wide, jsonb_each_text(jsonb_merge_patch(t, p));
WITH wide AS (
    SELECT (SELECT jsonb_build_object('l', jsonb_agg(g)) FROM generate_series(1, 50000) AS g) AS t,
           (SELECT jsonb_build_object('l', jsonb_agg(g + 0.0)) FROM generate_series(25001, 75000) AS g) AS p)
SELECT jsonb_array_length(jsonb_apply_patch('union', t, p) -> 'l') FROM wide;

-- Laws, on random values: seed 42
SELECT setseed(0.42);
CREATE TEMP TABLE samples AS
SELECT g, (ARRAY['{}', '{"a":1}', '{"a":{"b":2}}', '{"a":{"b":null,"c":[1]}}', '[1]', '"s"', 'null',
                 '{"bb":{"a":{"c":1}},"a":5}', '{"a":[1,2]}'])[1 + floor(random() * 9)]::jsonb AS t,
       (ARRAY['{}', '{"a":null}', '{"a":{"b":3}}', '{"a":{"b":null}}', '{"bb":{"a":null}}', '{"a":{"c":{"d":null}}}',
              '{"c":[null]}', '{"bb":{"a":{"c":null,"e":1}}}'])[1 + floor(random() * 8)]::jsonb AS p
FROM generate_series(1, 500) AS g;
SELECT count(*) FILTER (WHERE jsonb_merge_patch(jsonb_merge_patch(t, p), p) <> jsonb_merge_patch(t, p)) AS not_idempotent,
       count(*) FILTER (WHERE jsonb_typeof(jsonb_merge_patch(t, p)) <> 'object') AS not_object,
       count(*) FILTER (WHERE jsonb_merge_patch(t, p)::text::jsonb <> jsonb_merge_patch(t, p)) AS malformed,
       count(*) FILTER (WHERE jsonb_merge_patch(NULL, p) <> jsonb_merge_patch('{}', p)) AS absent_differs
FROM samples;

-- Everything carries a comment, nothing depends on more than its arguments
SELECT p.proname, p.provolatile, p.proparallel, p.proisstrict, obj_description(p.oid, 'pg_proc') IS NOT NULL AS commented
FROM pg_proc AS p
WHERE p.pronamespace = 'unsafemv'::regnamespace AND p.proname IN ('jsonb_merge_patch', 'jsonb_apply_patch')
ORDER BY 1;
