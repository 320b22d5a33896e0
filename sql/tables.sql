--
-- Tables.  Text keys are COLLATE "C": byte order, whatever the database's
-- locale, so that no library upgrade can reorder a key.  Every unique key leads
-- with service_id.  The unsafe lane writes unsafe_rows, receipts and markers
-- only; nothing there has a foreign key, and no row is shared by a view.
-- Fixed-width columns come first: it saves padding in every tuple.
--

CREATE TABLE unsafemv.services (
	service_id text COLLATE "C" NOT NULL PRIMARY KEY,
	last_view_no bigint NOT NULL
);
COMMENT ON TABLE unsafemv.services IS 'Tenants, and the allocator of their view numbers (never reused).';
COMMENT ON COLUMN unsafemv.services.service_id IS 'Tenant.';
COMMENT ON COLUMN unsafemv.services.last_view_no IS 'Greatest view_no ever given out in this service.';

CREATE TABLE unsafemv.views (
	service_id text COLLATE "C" NOT NULL,
	view_id text COLLATE "C" NOT NULL,
	view_no bigint NOT NULL,
	active_generation bigint,
	last_generation bigint NOT NULL,
	base text COLLATE "C" NOT NULL CHECK (base IN ('composed', 'unsafe')),
	indexes jsonb NOT NULL,
	receipt_retention interval NOT NULL,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (service_id, view_id),
	UNIQUE (service_id, view_no)
);
COMMENT ON TABLE unsafemv.views IS 'Registered read models.';
COMMENT ON COLUMN unsafemv.views.service_id IS 'Tenant.';
COMMENT ON COLUMN unsafemv.views.view_id IS 'Name of the view, unique per service.';
COMMENT ON COLUMN unsafemv.views.view_no IS 'Small number standing for the view in the hot tables, unique per service, never reused.';
COMMENT ON COLUMN unsafemv.views.active_generation IS 'The generation that reads and applies use.';
COMMENT ON COLUMN unsafemv.views.last_generation IS 'Greatest generation number ever given out in this view (never reused).';
COMMENT ON COLUMN unsafemv.views.base IS 'What an unsafe patch or delete works on: composed (the visible row) or unsafe (tentative rows only).';
COMMENT ON COLUMN unsafemv.views.indexes IS 'Declared indexes: array of at most 256 {"id","type","path"}; empty: any index id is accepted.';
COMMENT ON COLUMN unsafemv.views.receipt_retention IS 'How long settled receipts are kept: the window in which a redelivery is recognised.';
COMMENT ON COLUMN unsafemv.views.created_at IS 'When the view was registered.';

CREATE TABLE unsafemv.generations (
	view_no bigint NOT NULL,
	generation bigint NOT NULL,
	definition_version bigint NOT NULL,
	row_count bigint NOT NULL DEFAULT 0,
	history_count bigint NOT NULL DEFAULT 0,
	rebuild_required boolean NOT NULL DEFAULT false,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	candidate_since timestamptz,
	late_horizon timestamptz,
	updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	service_id text COLLATE "C" NOT NULL,
	status text COLLATE "C" NOT NULL CHECK (status IN ('active', 'candidate', 'retired', 'dropping')),
	last_suid unsafemv.suid,
	receipt_floor unsafemv.suid,
	observed_max_suid unsafemv.suid,
	settled_max_suid unsafemv.suid,
	behind_frontier_event_id text COLLATE "C",
	behind_frontier_suid unsafemv.suid,
	history_digest bytea,
	rebuilt_source_event_count bigint,
	rebuilt_source_max_suid unsafemv.suid,
	rebuilt_source_history_digest bytea,
	rebuilt_at timestamptz,
	PRIMARY KEY (service_id, view_no, generation)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX generations_active_key ON unsafemv.generations (service_id, view_no) WHERE status = 'active';
COMMENT ON TABLE unsafemv.generations IS 'Builds of the views. Written by the safe lane and by operators only.';
COMMENT ON COLUMN unsafemv.generations.view_no IS 'The view.';
COMMENT ON COLUMN unsafemv.generations.generation IS 'Number of the build.';
COMMENT ON COLUMN unsafemv.generations.definition_version IS 'Version of the projection code this build was made with.';
COMMENT ON COLUMN unsafemv.generations.row_count IS 'Exact number of safe rows.';
COMMENT ON COLUMN unsafemv.generations.history_count IS 'Number of events folded.';
COMMENT ON COLUMN unsafemv.generations.rebuild_required IS 'An event was passed over: reads stay closed until another generation is promoted. Never goes back to false.';
COMMENT ON COLUMN unsafemv.generations.created_at IS 'When the generation was created.';
COMMENT ON COLUMN unsafemv.generations.candidate_since IS 'When it became a candidate (begun or reopened): receipts of the active generation observed since then are not collected.';
COMMENT ON COLUMN unsafemv.generations.late_horizon IS 'Events that arrived since then may have become visible after the last pass looked: the next one looks at them again, and their receipts are kept. NULL: no pass yet; -infinity: all.';
COMMENT ON COLUMN unsafemv.generations.updated_at IS 'When the safe lane or an operator last wrote this row.';
COMMENT ON COLUMN unsafemv.generations.service_id IS 'Tenant.';
COMMENT ON COLUMN unsafemv.generations.status IS 'active, candidate, retired or dropping.';
COMMENT ON COLUMN unsafemv.generations.last_suid IS 'The head: SUID of the last event the safe lane folded; NULL: nothing yet.';
COMMENT ON COLUMN unsafemv.generations.receipt_floor IS 'Receipts at or below may have been collected.';
COMMENT ON COLUMN unsafemv.generations.observed_max_suid IS 'Greatest SUID among receipts that were collected.';
COMMENT ON COLUMN unsafemv.generations.settled_max_suid IS 'Greatest SUID that observe_safe_receipt settled; above the head, its receipt still excludes other events of that SUID.';
COMMENT ON COLUMN unsafemv.generations.behind_frontier_event_id IS 'The event that made rebuild_required true.';
COMMENT ON COLUMN unsafemv.generations.behind_frontier_suid IS 'Its SUID.';
COMMENT ON COLUMN unsafemv.generations.history_digest IS 'SHA-256 chain over the events folded.';
COMMENT ON COLUMN unsafemv.generations.rebuilt_source_event_count IS 'Rebuild proof: number of events in the source.';
COMMENT ON COLUMN unsafemv.generations.rebuilt_source_max_suid IS 'Rebuild proof: greatest SUID in the source.';
COMMENT ON COLUMN unsafemv.generations.rebuilt_source_history_digest IS 'Rebuild proof: digest chain of the source.';
COMMENT ON COLUMN unsafemv.generations.rebuilt_at IS 'Rebuild proof: when it was given.';

CREATE TABLE unsafemv.rows (
	view_no bigint NOT NULL,
	generation bigint NOT NULL,
	row_version bigint NOT NULL,
	source_suid unsafemv.suid NOT NULL,
	service_id text COLLATE "C" NOT NULL,
	row_key text COLLATE "C" NOT NULL,
	value jsonb NOT NULL,
	PRIMARY KEY (service_id, view_no, generation, row_key)
);
CREATE INDEX rows_suid_idx ON unsafemv.rows (service_id, view_no, generation, source_suid, row_key);
COMMENT ON TABLE unsafemv.rows IS 'Safe rows: what the safe lane folded. Nothing ever writes one above the head.';
COMMENT ON COLUMN unsafemv.rows.view_no IS 'The view.';
COMMENT ON COLUMN unsafemv.rows.generation IS 'The generation.';
COMMENT ON COLUMN unsafemv.rows.row_version IS 'Version given by the newest operation on the row.';
COMMENT ON COLUMN unsafemv.rows.source_suid IS 'SUID of the newest event that wrote the row.';
COMMENT ON COLUMN unsafemv.rows.service_id IS 'Tenant.';
COMMENT ON COLUMN unsafemv.rows.row_key IS 'Key of the row, byte-exact.';
COMMENT ON COLUMN unsafemv.rows.value IS 'The row.';

CREATE TABLE unsafemv.unsafe_rows (
	view_no bigint NOT NULL,
	generation bigint NOT NULL,
	row_version bigint NOT NULL,
	source_suid unsafemv.suid NOT NULL,
	tombstone boolean,
	service_id text COLLATE "C" NOT NULL,
	row_key text COLLATE "C" NOT NULL,
	value jsonb,
	entries jsonb,
	kept jsonb,
	kept_from unsafemv.suid,
	base_suid unsafemv.suid,
	PRIMARY KEY (service_id, view_no, generation, row_key)
);
CREATE INDEX unsafe_rows_suid_idx ON unsafemv.unsafe_rows (service_id, view_no, generation, source_suid, row_key);
COMMENT ON TABLE unsafemv.unsafe_rows IS 'Tentative rows of the unsafe lane, at most one per key. One counts only while its source_suid lies above the head.';
COMMENT ON COLUMN unsafemv.unsafe_rows.view_no IS 'The view.';
COMMENT ON COLUMN unsafemv.unsafe_rows.generation IS 'The generation.';
COMMENT ON COLUMN unsafemv.unsafe_rows.row_version IS 'Version given by the newest operation on the row.';
COMMENT ON COLUMN unsafemv.unsafe_rows.source_suid IS 'SUID of the newest event that took its place in this row.';
COMMENT ON COLUMN unsafemv.unsafe_rows.tombstone IS 'The row is hidden: deleted, or a patch or delete is remembered of a row that is not there. NULL: key claimed by the running call, never seen committed.';
COMMENT ON COLUMN unsafemv.unsafe_rows.service_id IS 'Tenant.';
COMMENT ON COLUMN unsafemv.unsafe_rows.row_key IS 'Key of the row, byte-exact.';
COMMENT ON COLUMN unsafemv.unsafe_rows.value IS 'The folded value; NULL in a tombstone.';
COMMENT ON COLUMN unsafemv.unsafe_rows.entries IS 'Index entries: array of [index id, value type, value] or, derived from a declaration, [index id, value type, value, true].';
COMMENT ON COLUMN unsafemv.unsafe_rows.kept IS 'Operations above the last upsert or delete, to be refolded when the base moves: array of {"suid","ops"}; NULL: none needed.';
COMMENT ON COLUMN unsafemv.unsafe_rows.kept_from IS 'Smallest SUID in kept.';
COMMENT ON COLUMN unsafemv.unsafe_rows.base_suid IS 'source_suid of the safe row that kept was folded on; NULL: there was none.';

CREATE TABLE unsafemv.index_entries (
	view_no bigint NOT NULL,
	generation bigint NOT NULL,
	integer_value bigint,
	real_value double precision,
	derived boolean NOT NULL,
	service_id text COLLATE "C" NOT NULL,
	row_key text COLLATE "C" NOT NULL,
	index_id text COLLATE "C" NOT NULL,
	value_type text COLLATE "C" NOT NULL CHECK (value_type IN ('text', 'integer', 'real')),
	text_value text COLLATE "C",
	CHECK (CASE value_type
		   WHEN 'text' THEN text_value IS NOT NULL AND integer_value IS NULL AND real_value IS NULL
		   WHEN 'integer' THEN integer_value IS NOT NULL AND text_value IS NULL AND real_value IS NULL
		   ELSE real_value IS NOT NULL AND text_value IS NULL AND integer_value IS NULL END)
);
CREATE UNIQUE INDEX index_entries_text_key ON unsafemv.index_entries (service_id, view_no, generation, index_id, text_value, row_key) WHERE value_type = 'text';
CREATE UNIQUE INDEX index_entries_integer_key ON unsafemv.index_entries (service_id, view_no, generation, index_id, integer_value, row_key) WHERE value_type = 'integer';
CREATE UNIQUE INDEX index_entries_real_key ON unsafemv.index_entries (service_id, view_no, generation, index_id, real_value, row_key) WHERE value_type = 'real';
CREATE INDEX index_entries_row_idx ON unsafemv.index_entries (service_id, view_no, generation, row_key);
COMMENT ON TABLE unsafemv.index_entries IS 'Index entries of the safe rows. An entry is a set member and exists only while its row does.';
COMMENT ON COLUMN unsafemv.index_entries.view_no IS 'The view.';
COMMENT ON COLUMN unsafemv.index_entries.generation IS 'The generation.';
COMMENT ON COLUMN unsafemv.index_entries.integer_value IS 'The value of an integer entry.';
COMMENT ON COLUMN unsafemv.index_entries.real_value IS 'The value of a real entry.';
COMMENT ON COLUMN unsafemv.index_entries.derived IS 'The entry follows from the view''s declared indexes, not from a plan.';
COMMENT ON COLUMN unsafemv.index_entries.service_id IS 'Tenant.';
COMMENT ON COLUMN unsafemv.index_entries.row_key IS 'Key of the row.';
COMMENT ON COLUMN unsafemv.index_entries.index_id IS 'Name of the index.';
COMMENT ON COLUMN unsafemv.index_entries.value_type IS 'text, integer or real.';
COMMENT ON COLUMN unsafemv.index_entries.text_value IS 'The value of a text entry.';

-- The event id comes first in the key: comparing it decides most steps of a descent.
-- Settling leaves a dead entry in receipts_unsettled_key, which the read gate walks
-- until vacuum removes it: hence vacuum comes early and always cleans the indexes.
CREATE TABLE unsafemv.receipts (
	view_no bigint NOT NULL,
	generation bigint NOT NULL,
	observed_at timestamptz NOT NULL,
	suid unsafemv.suid NOT NULL,
	settled boolean NOT NULL,
	service_id text COLLATE "C" NOT NULL,
	event_id text COLLATE "C" NOT NULL,
	outcome text COLLATE "C" NOT NULL,
	PRIMARY KEY (service_id, event_id, view_no, generation)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, vacuum_index_cleanup = on);
CREATE UNIQUE INDEX receipts_unsettled_key ON unsafemv.receipts (service_id, view_no, generation, suid) WHERE NOT settled;
CREATE INDEX receipts_settled_idx ON unsafemv.receipts (service_id, view_no, generation, suid) WHERE settled;
COMMENT ON TABLE unsafemv.receipts IS 'The fact that a generation has processed an event. The spine: duplicate, contradiction, late, the read gate, dirty and wait are answered from here.';
COMMENT ON COLUMN unsafemv.receipts.view_no IS 'The view.';
COMMENT ON COLUMN unsafemv.receipts.generation IS 'The generation.';
COMMENT ON COLUMN unsafemv.receipts.observed_at IS 'When the event was processed first (database clock, or as the caller said).';
COMMENT ON COLUMN unsafemv.receipts.suid IS 'The event''s place in the total order.';
COMMENT ON COLUMN unsafemv.receipts.settled IS 'The safe lane has folded the event.';
COMMENT ON COLUMN unsafemv.receipts.service_id IS 'Tenant.';
COMMENT ON COLUMN unsafemv.receipts.event_id IS 'The event.';
COMMENT ON COLUMN unsafemv.receipts.outcome IS 'What the unsafe lane answered: applied, older, patch-not-found, delete-without-row, no-change, behind-frontier; dismissed by an operator.';

CREATE TABLE unsafemv.markers (
	view_no bigint NOT NULL,
	generation bigint NOT NULL,
	suid unsafemv.suid NOT NULL,
	service_id text COLLATE "C" NOT NULL,
	event_id text COLLATE "C" NOT NULL,
	row_key text COLLATE "C" NOT NULL,
	reason text COLLATE "C" NOT NULL,
	PRIMARY KEY (service_id, view_no, generation, suid, row_key)
);
COMMENT ON TABLE unsafemv.markers IS 'Notes that an event left a key''s tentative state as it was. Informational.';
COMMENT ON COLUMN unsafemv.markers.view_no IS 'The view.';
COMMENT ON COLUMN unsafemv.markers.generation IS 'The generation.';
COMMENT ON COLUMN unsafemv.markers.suid IS 'The event''s SUID.';
COMMENT ON COLUMN unsafemv.markers.service_id IS 'Tenant.';
COMMENT ON COLUMN unsafemv.markers.event_id IS 'The event.';
COMMENT ON COLUMN unsafemv.markers.row_key IS 'The key, or the event id for an event without row mutations.';
COMMENT ON COLUMN unsafemv.markers.reason IS 'older, patch-not-found, delete-without-row or no-change.';

CREATE TABLE unsafemv.findings (
	view_no bigint NOT NULL,
	generation bigint NOT NULL,
	first_seen timestamptz NOT NULL DEFAULT clock_timestamp(),
	last_seen timestamptz NOT NULL DEFAULT clock_timestamp(),
	attempts bigint NOT NULL DEFAULT 1,
	service_id text COLLATE "C" NOT NULL,
	kind text COLLATE "C" NOT NULL,
	event_id text COLLATE "C",
	suid unsafemv.suid,
	detail jsonb NOT NULL DEFAULT '{}',
	resolved_at timestamptz
);
-- checkpoint-ahead and ordering-quarantine: one per generation, whatever the event
CREATE UNIQUE INDEX findings_key ON unsafemv.findings (service_id, view_no, generation, kind,
	(CASE WHEN kind IN ('checkpoint-ahead', 'ordering-quarantine') THEN '' ELSE coalesce(event_id, '') END));
COMMENT ON TABLE unsafemv.findings IS 'What an operator should know: one row per view, generation, kind and event, with attempts; checkpoint-ahead and ordering-quarantine once per generation.';
COMMENT ON COLUMN unsafemv.findings.view_no IS 'The view.';
COMMENT ON COLUMN unsafemv.findings.generation IS 'The generation.';
COMMENT ON COLUMN unsafemv.findings.first_seen IS 'When it was recorded first.';
COMMENT ON COLUMN unsafemv.findings.last_seen IS 'When it was recorded last.';
COMMENT ON COLUMN unsafemv.findings.attempts IS 'How often it was recorded.';
COMMENT ON COLUMN unsafemv.findings.service_id IS 'Tenant.';
COMMENT ON COLUMN unsafemv.findings.kind IS 'checkpoint-ahead, ordering-quarantine, unsafe-failure, poison-event, skipped-event, late-event, dismissed-event or forced-promotion.';
COMMENT ON COLUMN unsafemv.findings.event_id IS 'The event concerned, if one is.';
COMMENT ON COLUMN unsafemv.findings.suid IS 'Its SUID.';
COMMENT ON COLUMN unsafemv.findings.detail IS 'What was seen.';
COMMENT ON COLUMN unsafemv.findings.resolved_at IS 'When it was resolved; NULL: open.';

CREATE TABLE unsafemv.kicks (
	view_no bigint NOT NULL,
	lease_epoch bigint NOT NULL CHECK (lease_epoch > 0),
	granted_at timestamptz NOT NULL,
	lease_until timestamptz,
	not_before timestamptz,
	service_id text COLLATE "C" NOT NULL,
	lease_owner text COLLATE "C",
	PRIMARY KEY (service_id, view_no),
	CHECK ((lease_owner IS NULL) = (lease_until IS NULL))
) WITH (fillfactor = 50);
COMMENT ON TABLE unsafemv.kicks IS 'Leases of the views'' work, at most one per view; made by the first grant. Written by workers only; not dumped, because a lease is void after a restore.';
COMMENT ON COLUMN unsafemv.kicks.view_no IS 'The view.';
COMMENT ON COLUMN unsafemv.kicks.lease_epoch IS 'Number of grants: with the owner the token that renews and finishes.';
COMMENT ON COLUMN unsafemv.kicks.granted_at IS 'When the lease was last granted; orders the services in next_kick.';
COMMENT ON COLUMN unsafemv.kicks.lease_until IS 'When the lease expires; NULL: released.';
COMMENT ON COLUMN unsafemv.kicks.not_before IS 'next_kick does not offer the view before this moment.';
COMMENT ON COLUMN unsafemv.kicks.service_id IS 'Tenant.';
COMMENT ON COLUMN unsafemv.kicks.lease_owner IS 'Who holds the lease, or held it when it expired; NULL: released.';

CREATE TABLE unsafemv.projections (
	view_no bigint NOT NULL,
	attempts bigint NOT NULL DEFAULT 0,
	last_pass timestamptz,
	last_deadline timestamptz,
	window_floor interval NOT NULL DEFAULT '20 s',
	window_ceiling interval NOT NULL DEFAULT '120 s',
	service_id text COLLATE "C" NOT NULL,
	source text COLLATE "C" NOT NULL,
	plan_function text COLLATE "C" NOT NULL,
	key_function text COLLATE "C",
	attached_role text COLLATE "C" NOT NULL,
	last_stop text COLLATE "C",
	event_types text[] COLLATE "C",
	PRIMARY KEY (service_id, view_no)
) WITH (fillfactor = 50);
COMMENT ON TABLE unsafemv.projections IS 'How a view is made from events inside the database. Names only, never OIDs: resolved, and checked, whenever used.';
COMMENT ON COLUMN unsafemv.projections.view_no IS 'The view.';
COMMENT ON COLUMN unsafemv.projections.attempts IS 'Passes in a row that ended at a failing event.';
COMMENT ON COLUMN unsafemv.projections.last_pass IS 'When the last pass of follow ended; NULL: never.';
COMMENT ON COLUMN unsafemv.projections.last_deadline IS 'When the next pass can do more than the last one, as far as that pass could tell.';
COMMENT ON COLUMN unsafemv.projections.window_floor IS 'Least age of an event that is folded.';
COMMENT ON COLUMN unsafemv.projections.window_ceiling IS 'Greatest safe window; with more lag than this nothing is folded.';
COMMENT ON COLUMN unsafemv.projections.service_id IS 'Tenant.';
COMMENT ON COLUMN unsafemv.projections.source IS 'Qualified and quoted name of the table or view of events.';
COMMENT ON COLUMN unsafemv.projections.plan_function IS 'Qualified and quoted name of the function from event to mutation plan.';
COMMENT ON COLUMN unsafemv.projections.key_function IS 'Qualified and quoted name of the function from event to the keys whose rows the plan depends on; NULL: none.';
COMMENT ON COLUMN unsafemv.projections.attached_role IS 'Name of the role that attached: the source is read and the functions run as this role.';
COMMENT ON COLUMN unsafemv.projections.last_stop IS 'Why the last pass of follow ended.';
COMMENT ON COLUMN unsafemv.projections.event_types IS 'Only events of the source with one of these values in column event_type; NULL: all.';

CREATE TABLE unsafemv.lags (
	lag interval NOT NULL,
	observed_at timestamptz NOT NULL,
	service_id text COLLATE "C" NOT NULL PRIMARY KEY
) WITH (fillfactor = 50);
COMMENT ON TABLE unsafemv.lags IS 'How late events of a service reach their source, as observe_lag was told.';
COMMENT ON COLUMN unsafemv.lags.lag IS 'The greatest recent lag when it was observed; it decays by one second per second.';
COMMENT ON COLUMN unsafemv.lags.observed_at IS 'When it was observed.';
COMMENT ON COLUMN unsafemv.lags.service_id IS 'Tenant.';

CREATE TABLE unsafemv.rebuilds (
	view_no bigint NOT NULL,
	generation bigint,
	holder_pid bigint,
	lease_until timestamptz,
	holder_started timestamptz,
	started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	spoiled boolean NOT NULL DEFAULT false,
	service_id text COLLATE "C" NOT NULL,
	PRIMARY KEY (service_id, view_no)
) WITH (fillfactor = 50);
COMMENT ON TABLE unsafemv.rebuilds IS 'Rebuilds, at most one per view at a time, and the candidates that a later call resumes. Not dumped, because a lease is void after a restore.';
COMMENT ON COLUMN unsafemv.rebuilds.view_no IS 'The view.';
COMMENT ON COLUMN unsafemv.rebuilds.generation IS 'The candidate; NULL: not begun yet.';
COMMENT ON COLUMN unsafemv.rebuilds.holder_pid IS 'Process of the session that holds the lease; one that is gone holds it no more.';
COMMENT ON COLUMN unsafemv.rebuilds.lease_until IS 'When the lease expires, renewed per chunk; NULL: nobody rebuilds.';
COMMENT ON COLUMN unsafemv.rebuilds.holder_started IS 'Start of the session that holds the lease.';
COMMENT ON COLUMN unsafemv.rebuilds.started_at IS 'When the rebuild of this candidate began.';
COMMENT ON COLUMN unsafemv.rebuilds.spoiled IS 'The candidate cannot become right any more: the next call drops it and begins another.';
COMMENT ON COLUMN unsafemv.rebuilds.service_id IS 'Tenant.';

CREATE TABLE unsafemv.progress_state (
	view_no bigint NOT NULL,
	generation bigint NOT NULL,
	done bigint NOT NULL,
	total bigint,
	started_at timestamptz NOT NULL,
	updated_at timestamptz NOT NULL,
	service_id text COLLATE "C" NOT NULL,
	kind text COLLATE "C" NOT NULL CHECK (kind IN ('follow', 'rebuild')),
	PRIMARY KEY (service_id, view_no, generation, kind)
) WITH (fillfactor = 50);
COMMENT ON TABLE unsafemv.progress_state IS 'How far the last pass of follow or rebuild has come, written with every chunk. Not dumped.';
COMMENT ON COLUMN unsafemv.progress_state.view_no IS 'The view.';
COMMENT ON COLUMN unsafemv.progress_state.generation IS 'The generation folded into.';
COMMENT ON COLUMN unsafemv.progress_state.done IS 'Events folded by the pass.';
COMMENT ON COLUMN unsafemv.progress_state.total IS 'Events there were to fold when the pass began, as far as counted; NULL: not counted.';
COMMENT ON COLUMN unsafemv.progress_state.started_at IS 'When the pass began.';
COMMENT ON COLUMN unsafemv.progress_state.updated_at IS 'When its last chunk was folded.';
COMMENT ON COLUMN unsafemv.progress_state.service_id IS 'Tenant.';
COMMENT ON COLUMN unsafemv.progress_state.kind IS 'follow or rebuild.';

-- No unique key of columns alone: a published table needs to know its rows.
ALTER TABLE unsafemv.index_entries REPLICA IDENTITY FULL;
ALTER TABLE unsafemv.findings REPLICA IDENTITY FULL;

SELECT pg_catalog.pg_extension_config_dump('unsafemv.services', '');
SELECT pg_catalog.pg_extension_config_dump('unsafemv.views', '');
SELECT pg_catalog.pg_extension_config_dump('unsafemv.generations', '');
SELECT pg_catalog.pg_extension_config_dump('unsafemv.rows', '');
SELECT pg_catalog.pg_extension_config_dump('unsafemv.unsafe_rows', '');
SELECT pg_catalog.pg_extension_config_dump('unsafemv.index_entries', '');
SELECT pg_catalog.pg_extension_config_dump('unsafemv.receipts', '');
SELECT pg_catalog.pg_extension_config_dump('unsafemv.markers', '');
SELECT pg_catalog.pg_extension_config_dump('unsafemv.findings', '');
SELECT pg_catalog.pg_extension_config_dump('unsafemv.projections', '');
SELECT pg_catalog.pg_extension_config_dump('unsafemv.lags', '');
