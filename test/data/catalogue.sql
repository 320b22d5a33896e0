-- Everything the catalogues hold of the extension, one row of text each: its
-- members, what belongs to them (columns, defaults, constraints, indexes,
-- triggers, rules), comments, privileges and dependencies. OIDs are given as
-- names, so that two installs can be compared line by line. Left out is what a
-- table gathers while it is used, and TOAST tables, named by OID.
CREATE TEMP TABLE objects AS
WITH RECURSIVE found(classid, objid) AS (
	SELECT 'pg_extension'::regclass::oid, oid FROM pg_extension WHERE extname = 'unsafemv'
	UNION
	SELECT 'pg_namespace'::regclass::oid, extnamespace FROM pg_extension WHERE extname = 'unsafemv'
	UNION
	SELECT d.classid, d.objid
	FROM found f JOIN pg_depend d ON d.refclassid = f.classid AND d.refobjid = f.objid
	WHERE f.classid <> 'pg_namespace'::regclass AND d.deptype <> 'n')
SELECT classid, objid FROM found f
WHERE NOT EXISTS (
	SELECT FROM pg_class c WHERE f.classid = 'pg_class'::regclass AND c.oid = f.objid AND c.relnamespace = 'pg_toast'::regnamespace);

CREATE TEMP TABLE lines (line text);

-- The name of an object given by OID; NULL for none.
CREATE FUNCTION pg_temp.name(class regclass, object oid) RETURNS text LANGUAGE sql STABLE AS
$$ SELECT CASE WHEN object <> 0 THEN coalesce((pg_identify_object(class, object, 0)).identity, '<no such object>') END $$;

DO $$
DECLARE
	catalogue record;
	refers regclass;
	col record;
	columns text;
	value text;
BEGIN
	-- where one catalogue's rows are found by
	FOR catalogue IN
		SELECT * FROM (
			SELECT DISTINCT classid::regclass AS class, format('r.oid = o.objid AND o.classid = %L::regclass', classid::regclass) AS found_by FROM objects
			UNION ALL VALUES
				('pg_attribute'::regclass, 'r.attrelid = o.objid AND o.classid = ''pg_class''::regclass'),
				('pg_index', 'r.indexrelid = o.objid AND o.classid = ''pg_class''::regclass'),
				('pg_sequence', 'r.seqrelid = o.objid AND o.classid = ''pg_class''::regclass'),
				('pg_aggregate', 'r.aggfnoid = o.objid AND o.classid = ''pg_proc''::regclass'),
				('pg_description', 'r.objoid = o.objid AND r.classoid = o.classid'),
				('pg_seclabel', 'r.objoid = o.objid AND r.classoid = o.classid'),
				('pg_init_privs', 'r.objoid = o.objid AND r.classoid = o.classid'),
				('pg_depend', 'r.objid = o.objid AND r.classid = o.classid AND (r.refclassid, r.refobjid) IN (SELECT classid, objid FROM objects)')
			) AS all_catalogues
	LOOP
		columns := '';
		FOR col IN
			SELECT attname, atttypid::regtype::text AS type FROM pg_attribute
			WHERE attrelid = catalogue.class AND attnum > 0 AND NOT attisdropped
				AND attname NOT IN ('oid', 'relfilenode', 'relfrozenxid', 'relminmxid', 'relpages', 'reltuples',
					'relallvisible', 'relallfrozen', 'reltoastrelid', 'attcacheoff', 'attmissingval')
			ORDER BY attnum
		LOOP
			refers := (SELECT k.pktable FROM pg_get_catalog_foreign_keys() k
				WHERE k.fktable = catalogue.class AND k.fkcols = ARRAY[col.attname::text]);
			value := CASE
				WHEN col.attname IN ('objid', 'objoid') THEN
					'pg_describe_object(o.classid, o.objid, 0)'
				WHEN col.attname = 'refobjid' THEN 'pg_describe_object(r.refclassid, r.refobjid, r.refobjsubid)'
				WHEN col.attname IN ('classid', 'classoid', 'refclassid') THEN format('r.%I::regclass', col.attname)
				-- some servers keep the number of the row type's version there
				WHEN col.attname = 'attoptions' THEN 'ARRAY(SELECT e FROM unnest(r.attoptions) e WHERE e NOT LIKE ''pg_attver=%'')'
				WHEN refers IS NOT NULL AND col.type IN ('oid[]', 'oidvector') THEN
					format('ARRAY(SELECT pg_temp.name(%L, e) FROM unnest(r.%I::oid[]) WITH ORDINALITY u(e, i) ORDER BY i)', refers, col.attname)
				WHEN refers IS NOT NULL THEN format('pg_temp.name(%L, r.%I)', refers, col.attname)
				WHEN col.type <> 'pg_node_tree' THEN format('r.%I', col.attname)
				WHEN col.attname = 'adbin' THEN 'pg_get_expr(r.adbin, r.adrelid)'
				WHEN catalogue.class = 'pg_index'::regclass THEN 'pg_get_indexdef(r.indexrelid)'
				WHEN catalogue.class = 'pg_constraint'::regclass THEN 'pg_get_constraintdef(r.oid)'
				WHEN catalogue.class = 'pg_trigger'::regclass THEN 'pg_get_triggerdef(r.oid)'
				WHEN catalogue.class = 'pg_rewrite'::regclass THEN 'pg_get_ruledef(r.oid)'
				WHEN catalogue.class = 'pg_policy'::regclass THEN format('pg_get_expr(r.%I, r.polrelid)', col.attname)
				WHEN catalogue.class = 'pg_proc'::regclass THEN 'CASE WHEN r.prokind <> ''a'' THEN pg_get_functiondef(r.oid) END'
				WHEN catalogue.class IN ('pg_class'::regclass, 'pg_type'::regclass) THEN format('r.%I IS NOT NULL', col.attname)
				ELSE format('1 / 0 /* %s.%s: how to show it? */', catalogue.class, col.attname)
			END;
			columns := columns || format(', %L || coalesce((%s)::text, ''NULL'')', col.attname || '=', value);
		END LOOP;
		EXECUTE format(
			'INSERT INTO lines SELECT %1$L || '' '' || concat_ws('' '', %3$s)
			FROM objects o JOIN %1$s r ON %2$s',
			catalogue.class, catalogue.found_by, substr(columns, 3));
	END LOOP;
END $$;

SELECT replace(line, E'\n', ' ') FROM lines ORDER BY line COLLATE "C";
