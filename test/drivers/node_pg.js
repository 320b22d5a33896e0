// node-postgres: strings without a type, objects and arrays as parameters; bigint columns as strings; named statements.
const { Client } = require(require("fs").existsSync("node_modules/pg") ? "./node_modules/pg" : "/usr/share/nodejs/pg");
const { isDeepStrictEqual: same } = require("util");

const APPLY = "SELECT * FROM unsafemv.apply($1, $2, $3, $4, $5)";
const verdict = (name, ok, detail) => console.log((ok ? "ok      " : "not ok  ") + "node-postgres: " + name + (ok ? "" : " (" + JSON.stringify(detail) + ")"));
const result = (name, got, expected) => verdict(name, same(got, expected), got);
const suid = (n) => String(n).padStart(19, "0") + "0".repeat(11);
const upsert = (rowKey, n) => ({ upserts: [{ rowKey, value: { n } }] });

async function main() {
	const client = new Client(), other = new Client();
	await client.connect();
	await other.connect();
	const all = async (text, ...values) => (await client.query({ text, values, rowMode: "array" })).rows;
	const one = async (...call) => (await all(...call))[0];
	const fails = async (call) => { try { await call; return "no error"; } catch (err) { return err; } };

	result("create_view: a bigint is a string", await one("SELECT unsafemv.create_view($1, $2)", "node", "v"), ["0"]);
	result("apply: an object for jsonb", await one(APPLY, "node", "v", "e1", suid(1), upsert("a", 1)), ["applied", false]);
	const big = '{"upserts": [{"rowKey": "b", "value": {"n": 1533947986218845197, "s": "1533947986218845197"}}]}';
	result("apply: its text", await one(APPLY, "node", "v", "e2", suid(2), big), ["applied", false]);
	result("apply: strings typed as text", await one("SELECT * FROM unsafemv.apply($1::text, $2::text, $3::text, $4::text, $5::text::jsonb)", "node", "v", "e2", suid(2), big),
		["no-change", true]);
	result("apply: null for every optional argument", await one("SELECT * FROM unsafemv.apply($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
		"node", "v", "e2", suid(2), big, null, null, null, null, true, null), ["no-change", true]);
	const events = [{ eventId: "e3", suid: suid(3), mutations: upsert("c", 3) }];
	// An array is an array of PostgreSQL to this driver: events go as their text.
	result("apply_batch: the array as its JSON text", await one("SELECT * FROM unsafemv.apply_batch($1, $2, $3)", "node", "v", JSON.stringify(events)), [1, "e3", "applied", false, null]);
	result("apply_batch: a bare array is refused", (await fails(one("SELECT * FROM unsafemv.apply_batch($1, $2, $3)", "node", "v", events))).code, "22P02");
	result("apply_safe: null for no head", await one("SELECT * FROM unsafemv.apply_safe($1, $2, $3, $4, $5, $6)", "node", "v", null, suid(1), upsert("a", 1), "e1"), [suid(1), "1", "0", "0", "0"]);

	const page = 'SELECT * FROM unsafemv.query_composed_page($1, $2, "limit" => $3, after_suid => $4, after_key => $5)';
	result("page: row_version and total_count are strings", await one(page, "node", "v", 1, null, null), ["a", { n: 1 }, "1", suid(1), false, "3"]);
	const second = await one(page, "node", "v", 1, suid(1), "a");
	result("page: JavaScript rounds a great number, and keeps a string", [second[0], second[1].n === 1533947986218845197n, second[1].s], ["b", false, "1533947986218845197"]);
	const whole = (await one("SELECT unsafemv.composed_page($1, $2)", "node", "v"))[0];
	result("composed_page: rowVersion is a string, totalCount a number", [whole.rows[0].rowVersion, whole.totalCount], ["1", 3]);
	result("read_rows: an array of keys", await all("SELECT row_key FROM unsafemv.read_rows($1, $2, $3)", "node", "v", ["c", "none", "a"]), [["a"], ["c"]]);
	const epoch = (await one("SELECT lease_epoch FROM unsafemv.acquire_kick($1, $2, $3, $4)", "node", "v", "me", "1 min"))[0];
	result("acquire_kick, finish_kick: the token goes back as it came", [typeof epoch, await one("SELECT unsafemv.finish_kick($1, $2, $3, $4, $5)", "node", "v", "me", suid(3), epoch)], ["string", [true]]);
	result("wait_for: an interval as a string", await one("SELECT unsafemv.wait_for($1, $2, $3, $4, $5)", "node", "v", "e3", suid(3), "1 min"), ["visible"]);
	result("CALL wait_until", await one("CALL unsafemv.wait_until($1, $2, $3, $4, $5)", "node", "v", "e3", suid(3), "1 min"), ["visible"]);
	await one("SELECT unsafemv.create_view($1, $2)", "node", "g");
	await one(APPLY, "node", "g", "e1", suid(1), upsert("k", 1));
	await one("SELECT unsafemv.begin_rebuild($1, $2, $3)", "node", "g", 2);
	result("promote_generation: an array comes back", await one("SELECT * FROM unsafemv.promote_generation($1, $2, $3, $4)", "node", "g", 1, 0), ["1", "0", ["e1"]]);

	for (const [code, word, ...call] of [["UM101", "MV_VIEW_MISSING", "SELECT * FROM unsafemv.read_meta($1, $2)", "node", "none"], ["UM202", "MV_PLAN_INVALID", APPLY, "node", "v", "e9", suid(9), { x: 1 }]]) {
		const err = await fails(one(...call));
		result(word + ": SQLSTATE and code word", [err.code, err.constraint], [code, word]);
	}

	await client.query("BEGIN");
	await one(APPLY, "node", "v", "undone", suid(20), upsert("undone", 1));
	await client.query("ROLLBACK");
	result("what a rollback took is applied by the redelivery", await one(APPLY, "node", "v", "undone", suid(20), upsert("undone", 1)), ["applied", false]);
	let failures = 0, outcome;
	while (!outcome && failures < 5) {
		try {
			await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ");
			await one("SELECT count(*) FROM unsafemv.read_rows($1, $2)", "node", "v");
			if (!failures) await other.query(APPLY, ["node", "v", "theirs", suid(30), upsert("hot", 1)]);
			outcome = await one(APPLY, "node", "v", "mine", suid(31), upsert("hot", 2));
			await client.query("COMMIT");
		} catch (err) {
			await client.query("ROLLBACK");
			if (err.code !== "40001") throw err;
			failures++;
		}
	}
	result("REPEATABLE READ: 40001, the second try applies", [failures, outcome], [1, ["applied", false]]);

	const numbers = Array.from({ length: 20 }, (_, n) => 100 + n);
	const outcomes = await Promise.all(numbers.map((n) => client.query({ name: "apply", text: APPLY, values: ["node", "v", "r" + n, suid(n), upsert("again", n)] })));
	const generic = (await one("SELECT coalesce(sum(generic_plans), 0)::int FROM pg_prepared_statements WHERE name = 'apply'"))[0];
	verdict("twenty applies by a named statement, the later ones with the generic plan", outcomes.every((r) => r.rows[0].outcome === "applied") && generic >= 10, generic);
	await one("SELECT unsafemv.create_view($1, $2), unsafemv.attach_projection($3, $4, $5, $6)", "node", "p", "node", "p", "public.event", "public.plan");
	await one("SELECT unsafemv.alter_view($1, $2, window_floor => $3)", "node", "p", "0 s");
	await Promise.all(numbers.map((n) => client.query("INSERT INTO event (service_id, event_id, suid, event) VALUES ($1, $2, $3, $4)", ["node", "e" + n, suid(n), { key: "k" + n }])));
	result("CALL follow in autocommit", await one("CALL unsafemv.follow($1, $2)", "node", "p"), ["20", suid(119), "caught_up", null]);
	result("CALL rebuild_and_promote", await one("CALL unsafemv.rebuild_and_promote($1, $2, $3)", "node", "p", 2), ["1", "promoted"]);
	result("check finds nothing", await all("SELECT * FROM unsafemv.check($1)", "node"), []);
	await client.end();
	await other.end();
	console.log("done");
}

main().catch((err) => { console.log(err); process.exit(1); });
