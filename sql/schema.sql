--
-- The schema, where it was there before.  Its owner, and whoever could create functions
-- or operators in it, could let them capture calls of the script and of applications.
-- A schema that CREATE EXTENSION made may have its rights from default privileges.
--

DO $$
BEGIN
	IF EXISTS (SELECT FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) n.nspowner
		WHERE n.nspname OPERATOR(pg_catalog.=) 'unsafemv' AND NOT r.rolsuper AND r.rolname OPERATOR(pg_catalog.<>) CURRENT_USER)
	THEN
		RAISE EXCEPTION 'schema unsafemv belongs to another role, which is no superuser'
			USING ERRCODE = 'insufficient_privilege', HINT = 'Drop the schema, or change its owner.';
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_namespace n CROSS JOIN LATERAL pg_catalog.aclexplode(n.nspacl) a
		LEFT JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) a.grantee
		WHERE n.nspname OPERATOR(pg_catalog.=) 'unsafemv' AND a.privilege_type OPERATOR(pg_catalog.=) 'CREATE'
		AND a.grantee OPERATOR(pg_catalog.<>) n.nspowner AND r.rolsuper IS NOT TRUE)
	THEN
		RAISE EXCEPTION 'schema unsafemv grants CREATE to a role that is neither its owner nor a superuser'
			USING ERRCODE = 'insufficient_privilege', HINT = 'Revoke it; where default privileges grant it, revoke these.';
	END IF;
	IF EXISTS (SELECT FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_proc p ON p.pronamespace OPERATOR(pg_catalog.=) n.oid
			WHERE n.nspname OPERATOR(pg_catalog.=) 'unsafemv')
		OR EXISTS (SELECT FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_operator o ON o.oprnamespace OPERATOR(pg_catalog.=) n.oid
			WHERE n.nspname OPERATOR(pg_catalog.=) 'unsafemv')
	THEN
		RAISE EXCEPTION 'schema unsafemv has functions or operators already'
			USING ERRCODE = 'duplicate_function', HINT = 'Drop them.';
	END IF;
END
$$;

