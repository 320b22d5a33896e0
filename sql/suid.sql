-- suid: the sortable unique id of an event

CREATE TYPE unsafemv.suid;

CREATE FUNCTION unsafemv.suid_in(cstring) RETURNS unsafemv.suid
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_in';
COMMENT ON FUNCTION unsafemv.suid_in(cstring) IS
'text input of suid. Errors: SUID_INVALID, SUID_TICKS_INVALID';

CREATE FUNCTION unsafemv.suid_out(unsafemv.suid) RETURNS cstring
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_out';
COMMENT ON FUNCTION unsafemv.suid_out(unsafemv.suid) IS
'text output of suid';

CREATE FUNCTION unsafemv.suid_recv(internal) RETURNS unsafemv.suid
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_recv';
COMMENT ON FUNCTION unsafemv.suid_recv(internal) IS
'binary input of suid. Errors: SUID_TICKS_INVALID, SUID_SUFFIX_INVALID';

CREATE FUNCTION unsafemv.suid_send(unsafemv.suid) RETURNS bytea
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_send';
COMMENT ON FUNCTION unsafemv.suid_send(unsafemv.suid) IS
'binary output of suid: ticks and suffix, each a big-endian unsigned 64-bit integer';

CREATE TYPE unsafemv.suid (
	INPUT = unsafemv.suid_in,
	OUTPUT = unsafemv.suid_out,
	RECEIVE = unsafemv.suid_recv,
	SEND = unsafemv.suid_send,
	INTERNALLENGTH = 16,
	ALIGNMENT = char,
	STORAGE = plain
);
COMMENT ON TYPE unsafemv.suid IS
'sortable unique id of an event, its place in the total order: 30 digits, 19 of .NET ticks (100 ns since 0001-01-01) and 11 of suffix; compared byte by byte';

-- Casts

CREATE FUNCTION unsafemv.suid_from_text(value text) RETURNS unsafemv.suid
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_from_text';
COMMENT ON FUNCTION unsafemv.suid_from_text(text) IS
'a SUID from its 30 digits; the cast from text and varchar. Errors: SUID_INVALID, SUID_TICKS_INVALID';

CREATE FUNCTION unsafemv.suid_to_text(value unsafemv.suid) RETURNS text
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_to_text';
COMMENT ON FUNCTION unsafemv.suid_to_text(unsafemv.suid) IS
'the 30 digits of a SUID; the cast to text';

CREATE CAST (text AS unsafemv.suid)
	WITH FUNCTION unsafemv.suid_from_text(text) AS IMPLICIT;
COMMENT ON CAST (text AS unsafemv.suid) IS
'implicit, so that a string parameter typed by a driver reaches a function that takes a suid';

CREATE CAST (varchar AS unsafemv.suid)
	WITH FUNCTION unsafemv.suid_from_text(text) AS IMPLICIT;
COMMENT ON CAST (varchar AS unsafemv.suid) IS
'implicit, so that a string parameter typed by a driver reaches a function that takes a suid';

CREATE CAST (unsafemv.suid AS text)
	WITH FUNCTION unsafemv.suid_to_text(unsafemv.suid) AS ASSIGNMENT;
COMMENT ON CAST (unsafemv.suid AS text) IS
'the 30 digits';

-- Comparison

CREATE FUNCTION unsafemv.suid_lt(unsafemv.suid, unsafemv.suid) RETURNS boolean
LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_lt';
COMMENT ON FUNCTION unsafemv.suid_lt(unsafemv.suid, unsafemv.suid) IS
'implementation of the operator for less than';

CREATE FUNCTION unsafemv.suid_le(unsafemv.suid, unsafemv.suid) RETURNS boolean
LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_le';
COMMENT ON FUNCTION unsafemv.suid_le(unsafemv.suid, unsafemv.suid) IS
'implementation of the operator for less than or equal';

CREATE FUNCTION unsafemv.suid_eq(unsafemv.suid, unsafemv.suid) RETURNS boolean
LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_eq';
COMMENT ON FUNCTION unsafemv.suid_eq(unsafemv.suid, unsafemv.suid) IS
'implementation of the operator for equal';

CREATE FUNCTION unsafemv.suid_ge(unsafemv.suid, unsafemv.suid) RETURNS boolean
LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_ge';
COMMENT ON FUNCTION unsafemv.suid_ge(unsafemv.suid, unsafemv.suid) IS
'implementation of the operator for greater than or equal';

CREATE FUNCTION unsafemv.suid_gt(unsafemv.suid, unsafemv.suid) RETURNS boolean
LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_gt';
COMMENT ON FUNCTION unsafemv.suid_gt(unsafemv.suid, unsafemv.suid) IS
'implementation of the operator for greater than';

CREATE FUNCTION unsafemv.suid_ne(unsafemv.suid, unsafemv.suid) RETURNS boolean
LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_ne';
COMMENT ON FUNCTION unsafemv.suid_ne(unsafemv.suid, unsafemv.suid) IS
'implementation of the operator for not equal';

CREATE OPERATOR unsafemv.< (
	LEFTARG = unsafemv.suid,
	RIGHTARG = unsafemv.suid,
	FUNCTION = unsafemv.suid_lt,
	COMMUTATOR = OPERATOR(unsafemv.>),
	NEGATOR = OPERATOR(unsafemv.>=),
	RESTRICT = scalarltsel,
	JOIN = scalarltjoinsel
);
COMMENT ON OPERATOR unsafemv.< (unsafemv.suid, unsafemv.suid) IS
'less than';

CREATE OPERATOR unsafemv.<= (
	LEFTARG = unsafemv.suid,
	RIGHTARG = unsafemv.suid,
	FUNCTION = unsafemv.suid_le,
	COMMUTATOR = OPERATOR(unsafemv.>=),
	NEGATOR = OPERATOR(unsafemv.>),
	RESTRICT = scalarlesel,
	JOIN = scalarlejoinsel
);
COMMENT ON OPERATOR unsafemv.<= (unsafemv.suid, unsafemv.suid) IS
'less than or equal';

CREATE OPERATOR unsafemv.= (
	LEFTARG = unsafemv.suid,
	RIGHTARG = unsafemv.suid,
	FUNCTION = unsafemv.suid_eq,
	COMMUTATOR = OPERATOR(unsafemv.=),
	NEGATOR = OPERATOR(unsafemv.<>),
	RESTRICT = eqsel,
	JOIN = eqjoinsel,
	HASHES,
	MERGES
);
COMMENT ON OPERATOR unsafemv.= (unsafemv.suid, unsafemv.suid) IS
'equal';

CREATE OPERATOR unsafemv.>= (
	LEFTARG = unsafemv.suid,
	RIGHTARG = unsafemv.suid,
	FUNCTION = unsafemv.suid_ge,
	COMMUTATOR = OPERATOR(unsafemv.<=),
	NEGATOR = OPERATOR(unsafemv.<),
	RESTRICT = scalargesel,
	JOIN = scalargejoinsel
);
COMMENT ON OPERATOR unsafemv.>= (unsafemv.suid, unsafemv.suid) IS
'greater than or equal';

CREATE OPERATOR unsafemv.> (
	LEFTARG = unsafemv.suid,
	RIGHTARG = unsafemv.suid,
	FUNCTION = unsafemv.suid_gt,
	COMMUTATOR = OPERATOR(unsafemv.<),
	NEGATOR = OPERATOR(unsafemv.<=),
	RESTRICT = scalargtsel,
	JOIN = scalargtjoinsel
);
COMMENT ON OPERATOR unsafemv.> (unsafemv.suid, unsafemv.suid) IS
'greater than';

CREATE OPERATOR unsafemv.<> (
	LEFTARG = unsafemv.suid,
	RIGHTARG = unsafemv.suid,
	FUNCTION = unsafemv.suid_ne,
	COMMUTATOR = OPERATOR(unsafemv.<>),
	NEGATOR = OPERATOR(unsafemv.=),
	RESTRICT = neqsel,
	JOIN = neqjoinsel
);
COMMENT ON OPERATOR unsafemv.<> (unsafemv.suid, unsafemv.suid) IS
'not equal';

CREATE FUNCTION unsafemv.suid_cmp(unsafemv.suid, unsafemv.suid) RETURNS integer
LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_cmp';
COMMENT ON FUNCTION unsafemv.suid_cmp(unsafemv.suid, unsafemv.suid) IS
'less than, equal to or greater than zero: btree comparison of suid';

CREATE FUNCTION unsafemv.suid_sortsupport(internal) RETURNS void
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_sortsupport';
COMMENT ON FUNCTION unsafemv.suid_sortsupport(internal) IS
'sort support of suid, with abbreviated keys';

CREATE FUNCTION unsafemv.suid_hash(unsafemv.suid) RETURNS integer
LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_hash';
COMMENT ON FUNCTION unsafemv.suid_hash(unsafemv.suid) IS
'32-bit hash of a suid';

CREATE FUNCTION unsafemv.suid_hash_extended(unsafemv.suid, bigint) RETURNS bigint
LANGUAGE c IMMUTABLE STRICT LEAKPROOF PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_hash_extended';
COMMENT ON FUNCTION unsafemv.suid_hash_extended(unsafemv.suid, bigint) IS
'64-bit hash of a suid, with a seed';

CREATE OPERATOR FAMILY unsafemv.suid_ops USING btree;
COMMENT ON OPERATOR FAMILY unsafemv.suid_ops USING btree IS
'order of suid: byte order = text order = (ticks, suffix) order';

CREATE OPERATOR CLASS unsafemv.suid_ops
DEFAULT FOR TYPE unsafemv.suid USING btree FAMILY unsafemv.suid_ops AS
	OPERATOR 1 unsafemv.<,
	OPERATOR 2 unsafemv.<=,
	OPERATOR 3 unsafemv.=,
	OPERATOR 4 unsafemv.>=,
	OPERATOR 5 unsafemv.>,
	FUNCTION 1 unsafemv.suid_cmp(unsafemv.suid, unsafemv.suid),
	FUNCTION 2 unsafemv.suid_sortsupport(internal),
	FUNCTION 4 pg_catalog.btequalimage(pg_catalog.oid);
COMMENT ON OPERATOR CLASS unsafemv.suid_ops USING btree IS
'btree operator class of suid: sort support with abbreviated keys, deduplication';

CREATE OPERATOR FAMILY unsafemv.suid_hash_ops USING hash;
COMMENT ON OPERATOR FAMILY unsafemv.suid_hash_ops USING hash IS
'hashing of suid';

CREATE OPERATOR CLASS unsafemv.suid_hash_ops
DEFAULT FOR TYPE unsafemv.suid USING hash FAMILY unsafemv.suid_hash_ops AS
	OPERATOR 1 unsafemv.=,
	FUNCTION 1 unsafemv.suid_hash(unsafemv.suid),
	FUNCTION 2 unsafemv.suid_hash_extended(unsafemv.suid, bigint);
COMMENT ON OPERATOR CLASS unsafemv.suid_hash_ops USING hash IS
'hash operator class of suid, for hash joins, hash aggregation, hash indexes and hash partitions';

-- Aggregates

CREATE FUNCTION unsafemv.suid_smaller(unsafemv.suid, unsafemv.suid) RETURNS unsafemv.suid
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_smaller';
COMMENT ON FUNCTION unsafemv.suid_smaller(unsafemv.suid, unsafemv.suid) IS
'the smaller of two SUIDs';

CREATE FUNCTION unsafemv.suid_larger(unsafemv.suid, unsafemv.suid) RETURNS unsafemv.suid
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_larger';
COMMENT ON FUNCTION unsafemv.suid_larger(unsafemv.suid, unsafemv.suid) IS
'the larger of two SUIDs';

CREATE AGGREGATE unsafemv.min(unsafemv.suid) (
	SFUNC = unsafemv.suid_smaller,
	STYPE = unsafemv.suid,
	COMBINEFUNC = unsafemv.suid_smaller,
	SORTOP = OPERATOR(unsafemv.<),
	PARALLEL = SAFE
);
COMMENT ON AGGREGATE unsafemv.min(unsafemv.suid) IS
'the least SUID of the input; NULL if there is none';

CREATE AGGREGATE unsafemv.max(unsafemv.suid) (
	SFUNC = unsafemv.suid_larger,
	STYPE = unsafemv.suid,
	COMBINEFUNC = unsafemv.suid_larger,
	SORTOP = OPERATOR(unsafemv.>),
	PARALLEL = SAFE
);
COMMENT ON AGGREGATE unsafemv.max(unsafemv.suid) IS
'the greatest SUID of the input; NULL if there is none';

-- Making SUIDs and taking them apart

CREATE FUNCTION unsafemv.suid_from_timestamp(moment timestamptz, suffix bigint DEFAULT 0)
RETURNS unsafemv.suid
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_from_timestamp';
COMMENT ON FUNCTION unsafemv.suid_from_timestamp(timestamptz, bigint) IS
'the SUID of a moment (microseconds are kept) and a suffix, 0 to 99999999999. NULL gives NULL. Errors: SUID_TICKS_INVALID (before the year 1, after 9999, infinity), SUID_SUFFIX_INVALID';

CREATE FUNCTION unsafemv.suid_from_position("position" bigint) RETURNS unsafemv.suid
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_from_position';
COMMENT ON FUNCTION unsafemv.suid_from_position(bigint) IS
'the SUID of an event in a store ordered by a global position: ticks = position (0 to 3155378975999999999), suffix 0. NULL gives NULL. Errors: SUID_TICKS_INVALID';

CREATE FUNCTION unsafemv.suid_timestamp(value unsafemv.suid) RETURNS timestamptz
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_timestamp';
COMMENT ON FUNCTION unsafemv.suid_timestamp(unsafemv.suid) IS
'the moment of a SUID''s ticks, cut to microseconds. NULL gives NULL';

CREATE FUNCTION unsafemv.suid_ticks(value unsafemv.suid) RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_ticks';
COMMENT ON FUNCTION unsafemv.suid_ticks(unsafemv.suid) IS
'the first 19 digits: .NET ticks, 100 ns since 0001-01-01. NULL gives NULL';

CREATE FUNCTION unsafemv.suid_suffix(value unsafemv.suid) RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_suffix';
COMMENT ON FUNCTION unsafemv.suid_suffix(unsafemv.suid) IS
'the last 11 digits. NULL gives NULL';

CREATE FUNCTION unsafemv.generate_suid() RETURNS unsafemv.suid
LANGUAGE c VOLATILE PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_generate_suid';
COMMENT ON FUNCTION unsafemv.generate_suid() IS
'a new SUID: the database''s clock at the moment of the call and a cryptographically random 31-bit suffix';

CREATE FUNCTION unsafemv.suid_above(head unsafemv.suid) RETURNS unsafemv.suid
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'unsafemv_suid_above';
COMMENT ON FUNCTION unsafemv.suid_above(unsafemv.suid) IS
'internal: the least value above a head, of all if it is NULL; a bound for index conditions, never to be stored';
