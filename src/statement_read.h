/*
 * statement_read.h
 *	  SQL texts of the reads; included by statement_text.c inside the table.
 *
 * Guarantees: with the settings statement.c pins, each text has one plan that
 * does not sort safe rows, whatever the statistics were when it was made:
 *
 * - a scan's ORDER BY names the columns of the index meant for it, which no other
 *	 index provides;
 * - a look-up by key is a range from the key to the key with an ORDER BY, because
 *	 only the primary key gives that order, while for a plain equality an index
 *	 that merely shares the leading columns looks as good on a small table;
 * - what merges the lanes is a UNION ALL of two ordered inputs under one ORDER BY
 *	 (MergeAppend), so that a limit stops the scan of the safe rows.
 *
 * A safe row is skipped if its key has a tentative row that counts, that is, one
 * at or above the bound (infinity for safe reads: nothing counts).
 *
 * Not a header of declarations: a part of one initialiser, hence no guard.
 */

/* Does no tentative row of the key "key" count (bound: $4)? */
#define READ_NOT_TENTATIVE(key) \
	"(SELECT u.source_suid OPERATOR(unsafemv.>=) $4 FROM unsafemv.unsafe_rows u" \
	" WHERE u.service_id = $1 AND u.view_no = $2 AND u.generation = $3" \
	" AND u.row_key >= " key " AND u.row_key <= " key \
	" ORDER BY u.row_key LIMIT 1) IS NOT TRUE"

/* The safe row of the key "key". */
#define READ_SAFE_ROW(columns, key) \
	"(SELECT " columns " FROM unsafemv.rows r" \
	" WHERE r.service_id = $1 AND r.view_no = $2 AND r.generation = $3" \
	" AND r.row_key >= " key " AND r.row_key <= " key \
	" ORDER BY r.row_key LIMIT 1)"

/* The rows of a generation in alias.  */
#define READ_GENERATION(alias) \
	alias ".service_id = $1 AND " alias ".view_no = $2 AND " alias ".generation = $3"

/* The tentative rows that count and are not hidden. */
#define READ_TENTATIVE \
	READ_GENERATION("t") " AND t.source_suid OPERATOR(unsafemv.>=) $4 AND NOT t.tombstone"

/* Gate and facts of a view: service, view. */
[STATEMENT_READ_STATE] =
{
	"tt",
		"SELECT s.view_no, s.generation, s.indexes, s.last_suid, s.row_count, s.rebuild_required,"
		" s.offender_event_id, s.offender_suid, s.checkpoint_ahead, s.ordering_quarantined"
		" FROM unsafemv.read_gates s WHERE s.service_id = $1 AND s.view_id = $2"
},

/*
 * Visible tentative rows, and tentative rows over a safe row, that count: $4.  In
 * the order of the keys, because look-ups of neighbours find their pages in the
 * processor's cache.
 */
[STATEMENT_READ_TOTAL] =
{
	"tnns",
		"SELECT count(*) FILTER (WHERE NOT c.tombstone), count(c.safe) FROM"
		" (SELECT t.tombstone, " READ_SAFE_ROW("true", "t.row_key") " AS safe"
		" FROM unsafemv.tentative_rows t"
		" WHERE " READ_GENERATION("t") " AND t.source_suid OPERATOR(unsafemv.>=) $4"
		" ORDER BY t.row_key) c"
},

/*
 * A lane of the composed page: $4 bound; SUIDs from $5 to before $6 and keys
 * beyond $7; offset, limit; total, which is passed through.  The condition on the
 * key is one of the index, so that a cursor in the middle of many equal SUIDs
 * fetches no row before it.
 */
#define READ_PAGE_SAFE(beyond, direction) { \
	"tnnssstnnn", \
	"SELECT r.row_key, r.value, r.row_version, CAST(r.source_suid AS text), false, $10" \
	" FROM unsafemv.rows r" \
	" WHERE " READ_GENERATION("r") \
	" AND r.source_suid OPERATOR(unsafemv.>=) $5 AND r.source_suid OPERATOR(unsafemv.<) $6" \
	" AND r.row_key " beyond " $7 AND " READ_NOT_TENTATIVE("r.row_key") \
	" ORDER BY r.source_suid " direction ", r.row_key " direction " OFFSET $8 LIMIT $9" \
}
#define READ_PAGE_TENTATIVE(beyond, direction) { \
	"tnnssstnnn", \
	"SELECT t.row_key, t.value, t.row_version, CAST(t.source_suid AS text), true, $10" \
	" FROM unsafemv.tentative_rows t" \
	" WHERE " READ_TENTATIVE \
	" AND t.source_suid OPERATOR(unsafemv.>=) $5 AND t.source_suid OPERATOR(unsafemv.<) $6" \
	" AND t.row_key " beyond " $7" \
	" ORDER BY t.source_suid " direction ", t.row_key " direction " OFFSET $8 LIMIT $9" \
}
[STATEMENT_PAGE_SAFE] = READ_PAGE_SAFE(">", "ASC"),
[STATEMENT_PAGE_SAFE_DESC] = READ_PAGE_SAFE("<", "DESC"),
[STATEMENT_PAGE_TENTATIVE] = READ_PAGE_TENTATIVE(">", "ASC"),
[STATEMENT_PAGE_TENTATIVE_DESC] = READ_PAGE_TENTATIVE("<", "DESC"),

/* Rows by key: $4 bound; keys beyond $5; offset, limit. */
#define READ_ROWS(beyond, direction) { \
	"tnnstnn", \
	"SELECT m.row_key, m.value, m.row_version, CAST(m.source_suid AS text), m.unsafe FROM" \
	" ((SELECT r.row_key, r.value, r.row_version, r.source_suid, false AS unsafe" \
	"   FROM unsafemv.rows r" \
	"   WHERE " READ_GENERATION("r") \
	"   AND r.row_key " beyond " $5 AND " READ_NOT_TENTATIVE("r.row_key") \
	"   ORDER BY r.row_key " direction ")" \
	"  UNION ALL" \
	"  (SELECT t.row_key, t.value, t.row_version, t.source_suid, true" \
	"   FROM unsafemv.tentative_rows t" \
	"   WHERE " READ_TENTATIVE " AND t.row_key " beyond " $5" \
	"   ORDER BY t.row_key " direction ")) m" \
	" ORDER BY m.row_key " direction " OFFSET $6 LIMIT $7" \
}
[STATEMENT_READ_ROWS] = READ_ROWS(">", "ASC"),
[STATEMENT_READ_ROWS_DESC] = READ_ROWS("<", "DESC"),

/* The same, of the keys $8 only. */
#define READ_ROWS_KEYS(beyond, direction) { \
	"tnnstnnT", \
	"SELECT k.row_key," \
	" CASE WHEN t.row_key IS NULL THEN s.value ELSE t.value END," \
	" CASE WHEN t.row_key IS NULL THEN s.row_version ELSE t.row_version END," \
	" CAST(CASE WHEN t.row_key IS NULL THEN s.source_suid ELSE t.source_suid END AS text)," \
	" t.row_key IS NOT NULL" \
	" FROM (SELECT DISTINCT n.k COLLATE \"C\" AS row_key FROM unnest($8) n(k)" \
	"  WHERE n.k COLLATE \"C\" " beyond " $5 ORDER BY 1 " direction ") k" \
	" LEFT JOIN LATERAL (SELECT u.row_key, u.value, u.row_version, u.source_suid, u.tombstone" \
	"  FROM unsafemv.tentative_rows u WHERE " READ_GENERATION("u") \
	"  AND u.source_suid OPERATOR(unsafemv.>=) $4" \
	"  AND u.row_key >= k.row_key AND u.row_key <= k.row_key" \
	"  ORDER BY u.row_key LIMIT 1) t ON true" \
	" LEFT JOIN LATERAL " READ_SAFE_ROW("r.row_key, r.value, r.row_version, r.source_suid", "k.row_key") \
	" s ON t.row_key IS NULL" \
	" WHERE CASE WHEN t.row_key IS NULL THEN s.row_key IS NOT NULL ELSE NOT t.tombstone END" \
	" ORDER BY k.row_key " direction " OFFSET $6 LIMIT $7" \
}
[STATEMENT_READ_ROWS_KEYS] = READ_ROWS_KEYS(">", "ASC"),
[STATEMENT_READ_ROWS_KEYS_DESC] = READ_ROWS_KEYS("<", "DESC"),

/* A tentative row's entries of one type, expanded; another type's is not cast. */
#define READ_EXPANDED(type, cast, columns) \
	"(SELECT (x.e ->> 0) COLLATE \"C\" AS index_id," \
	" CASE x.e ->> 1 WHEN '" type "' THEN " cast " END AS v, t.row_key" columns \
	" FROM unsafemv.tentative_rows t CROSS JOIN LATERAL jsonb_array_elements(t.entries) x(e)" \
	" WHERE " READ_TENTATIVE ")"
#define READ_CAST_TEXT "(x.e ->> 2) COLLATE \"C\""
#define READ_CAST_INTEGER "CAST(x.e ->> 2 AS int8)"
#define READ_CAST_REAL "CAST(x.e ->> 2 AS float8)"

/*
 * Rows by an index of one type: $4 bound; index $5, values from $6 to $7; offset,
 * limit.
 */
#define READ_QUERY(letters, type, cast, direction) { \
	"tnnst" letters "nn", \
	"SELECT m.row_key, CAST(m.v AS text), m.value, m.row_version, CAST(m.source_suid AS text), m.unsafe FROM" \
	" ((SELECT e.row_key, e." type "_value AS v, s.value, s.row_version, s.source_suid, false AS unsafe" \
	"   FROM unsafemv.index_entries e" \
	"   CROSS JOIN LATERAL " READ_SAFE_ROW("r.value, r.row_version, r.source_suid", "e.row_key") " s" \
	"   WHERE " READ_GENERATION("e") " AND e.value_type = '" type "' AND e.index_id = $5" \
	"   AND e." type "_value >= $6 AND e." type "_value <= $7" \
	"   AND " READ_NOT_TENTATIVE("e.row_key") \
	"   ORDER BY e." type "_value " direction ", e.row_key " direction ")" \
	"  UNION ALL" \
	"  (SELECT e.row_key, e.v, e.value, e.row_version, e.source_suid, true" \
	"   FROM " READ_EXPANDED(type, cast, ", t.value, t.row_version, t.source_suid") " e" \
	"   WHERE e.index_id = $5 AND e.v >= $6 AND e.v <= $7" \
	"   ORDER BY e.v " direction ", e.row_key " direction ")) m" \
	" ORDER BY m.v " direction ", m.row_key " direction " OFFSET $8 LIMIT $9" \
}
[STATEMENT_QUERY_TEXT] = READ_QUERY("tt", "text", READ_CAST_TEXT, "ASC"),
[STATEMENT_QUERY_TEXT_DESC] = READ_QUERY("tt", "text", READ_CAST_TEXT, "DESC"),
[STATEMENT_QUERY_INTEGER] = READ_QUERY("nn", "integer", READ_CAST_INTEGER, "ASC"),
[STATEMENT_QUERY_INTEGER_DESC] = READ_QUERY("nn", "integer", READ_CAST_INTEGER, "DESC"),
[STATEMENT_QUERY_REAL] = READ_QUERY("rr", "real", READ_CAST_REAL, "ASC"),
[STATEMENT_QUERY_REAL_DESC] = READ_QUERY("rr", "real", READ_CAST_REAL, "DESC"),

/*
 * Index entries of one type: $4 bound; index ids from $5 to $6 (a range, also for
 * one, so that only the index in the order of the result will do); offset, limit.
 */
#define READ_ENTRIES(type, cast, direction) { \
	"tnnsttnn", \
	"SELECT m.index_id, '" type "'::text, CAST(m.v AS text), m.row_key, m.unsafe FROM" \
	" ((SELECT e.index_id, e." type "_value AS v, e.row_key, false AS unsafe" \
	"   FROM unsafemv.index_entries e" \
	"   WHERE " READ_GENERATION("e") " AND e.value_type = '" type "'" \
	"   AND e.index_id >= $5 AND e.index_id <= $6" \
	"   AND " READ_NOT_TENTATIVE("e.row_key") \
	"   ORDER BY e.index_id " direction ", e." type "_value " direction ", e.row_key " direction ")" \
	"  UNION ALL" \
	"  (SELECT e.index_id, e.v, e.row_key, true" \
	"   FROM " READ_EXPANDED(type, cast, "") " e" \
	"   WHERE e.index_id >= $5 AND e.index_id <= $6 AND e.v IS NOT NULL" \
	"   ORDER BY e.index_id " direction ", e.v " direction ", e.row_key " direction ")) m" \
	" ORDER BY m.index_id " direction ", m.v " direction ", m.row_key " direction " OFFSET $7 LIMIT $8" \
}
[STATEMENT_ENTRIES_TEXT] = READ_ENTRIES("text", READ_CAST_TEXT, "ASC"),
[STATEMENT_ENTRIES_TEXT_DESC] = READ_ENTRIES("text", READ_CAST_TEXT, "DESC"),
[STATEMENT_ENTRIES_INTEGER] = READ_ENTRIES("integer", READ_CAST_INTEGER, "ASC"),
[STATEMENT_ENTRIES_INTEGER_DESC] = READ_ENTRIES("integer", READ_CAST_INTEGER, "DESC"),
[STATEMENT_ENTRIES_REAL] = READ_ENTRIES("real", READ_CAST_REAL, "ASC"),
[STATEMENT_ENTRIES_REAL_DESC] = READ_ENTRIES("real", READ_CAST_REAL, "DESC"),
