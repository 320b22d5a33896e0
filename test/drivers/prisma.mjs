// Prisma Client: $queryRaw with its parameters; void, which it cannot read, as the test of the test; errors; a transaction.
import { PrismaClient, Prisma } from "@prisma/client";
import { PrismaPg } from "@prisma/adapter-pg";
import { isDeepStrictEqual as same } from "node:util";

const prisma = new PrismaClient({ adapter: new PrismaPg({ host: process.env.PGHOST, port: Number(process.env.PGPORT), user: process.env.PGUSER, database: process.env.PGDATABASE }) });
const verdict = (name, ok, detail) => console.log((ok ? "ok      " : "not ok  ") + "Prisma: " + name + (ok ? "" : " (" + detail + ")"));
const result = (name, got, expected) => verdict(name, same(got, expected), JSON.stringify(got, (_, v) => (typeof v === "bigint" ? v + "n" : v)));
const suid = (n) => String(n).padStart(19, "0") + "0".repeat(11);
const upsert = (rowKey, n) => ({ upserts: [{ rowKey, value: { n } }] });
const apply = (db, id, n, plan) => db.$queryRaw`SELECT * FROM unsafemv.apply(${"prisma"}, ${"v"}, ${id}, ${suid(n)}, ${plan})`;
const applied = [{ outcome: "applied", duplicate: false }];
const fails = async (call) => { try { await call; return null; } catch (e) { return e; } };
const cause = (e) => e?.meta?.driverAdapterError?.cause;

const voids = await fails(prisma.$queryRaw`SELECT pg_advisory_unlock_all()`);
result("void cannot be read: the test can fail", cause(voids), { kind: "UnsupportedNativeDataType", type: "void" });
result("create_view: a BigInt", await prisma.$queryRaw`SELECT unsafemv.create_view(${"prisma"}, ${"v"}) AS generation`, [{ generation: 0n }]);
result("apply: an object for jsonb", await apply(prisma, "e1", 1, upsert("a", 1)), applied);
result("apply: its text with a cast", await prisma.$queryRaw`SELECT * FROM unsafemv.apply(${"prisma"}, ${"v"}, ${"e2"}, ${suid(2)}, ${JSON.stringify(upsert("b", 2))}::jsonb)`, applied);
result("apply: null for optional arguments", await prisma.$queryRaw`SELECT * FROM unsafemv.apply(${"prisma"}, ${"v"}, ${"e2"}, ${suid(2)}, ${upsert("b", 2)}, ${null}, ${null}, ${null})`,
	[{ outcome: "no-change", duplicate: true }]);
result("apply_batch", await prisma.$queryRaw`SELECT * FROM unsafemv.apply_batch(${"prisma"}, ${"v"}, ${JSON.stringify([{ eventId: "e3", suid: suid(3), mutations: upsert("c", 3) }])}::jsonb)`,
	[{ position: 1, event_id: "e3", ...applied[0], error_code: null }]);
result("apply_safe", await prisma.$queryRaw`SELECT * FROM unsafemv.apply_safe(${"prisma"}, ${"v"}, ${null}, ${suid(1)}, ${upsert("a", 1)}, ${"e1"})`,
	[{ last_suid: suid(1), row_upserts: 1n, row_patches: 0n, row_deletes: 0n, index_entries: 0n }]);
result("page", await prisma.$queryRaw`SELECT * FROM unsafemv.query_composed_page(${"prisma"}, ${"v"}, "limit" => ${1}, after_suid => ${suid(1)}, after_key => ${"a"})`,
	[{ row_key: "b", value: { n: 2 }, row_version: 1n, source_suid: suid(2), unsafe: true, total_count: 3n }]);
result("read_rows: an array of keys", (await prisma.$queryRaw`SELECT * FROM unsafemv.read_rows(${"prisma"}, ${"v"}, ${["a", "none", "c"]})`).map((r) => r.row_key), ["a", "c"]);
const kick = (await prisma.$queryRaw`SELECT * FROM unsafemv.acquire_kick(${"prisma"}, ${"v"}, ${"me"}, ${"1 min"}::interval)`)[0];
result("acquire_kick, finish_kick", [kick.lease_until instanceof Date, await prisma.$queryRaw`SELECT unsafemv.finish_kick(${"prisma"}, ${"v"}, ${"me"}, ${suid(3)}, ${kick.lease_epoch}) AS done`], [true, [{ done: true }]]);
result("CALL wait_until", await prisma.$queryRaw`CALL unsafemv.wait_until(${"prisma"}, ${"v"}, ${"e3"}, ${suid(3)}, ${"1 min"}::interval)`, [{ result: "visible" }]);
const error = cause(await fails(prisma.$queryRaw`SELECT * FROM unsafemv.read_meta(${"prisma"}, ${"none"})`));
result("an error has its SQLSTATE, by which unsafemv.errors knows the code word",
	[error?.originalCode, await prisma.$queryRaw`SELECT code FROM unsafemv.errors WHERE sqlstate = ${error?.originalCode}`], ["UM101", [{ code: "MV_VIEW_MISSING" }]]);
await fails(prisma.$transaction(async (db) => { await apply(db, "undone", 20, upsert("undone", 1)); throw new Error("undo"); }));
result("what a rollback took is applied by the redelivery", await apply(prisma, "undone", 20, upsert("undone", 1)), applied);
let tries = 0, outcome;
while (!outcome && tries++ < 5) {
	try {
		outcome = await prisma.$transaction(async (db) => {
			await db.$queryRaw`SELECT count(*) FROM unsafemv.read_rows(${"prisma"}, ${"v"})`;
			if (tries === 1) await apply(prisma, "theirs", 30, upsert("hot", 1));
			return apply(db, "mine", 31, upsert("hot", 2));
		}, { isolationLevel: Prisma.TransactionIsolationLevel.RepeatableRead });
	} catch (e) {
		if (e.code !== "P2034" && cause(e)?.originalCode !== "40001") throw e;
	}
}
result("REPEATABLE READ: a write conflict, the second try applies", [tries, outcome], [2, applied]);
const status = (columns) => prisma.$queryRawUnsafe(`SELECT ${columns} FROM unsafemv.status WHERE service_id = 'prisma'`);
result("an interval wants a cast, as README says", [cause(await fails(status("oldest_unsettled_age")))?.type, typeof (await status("oldest_unsettled_age::text"))[0].oldest_unsettled_age],
	["interval", "string"]);
result("status", await status("gate, head"), [{ gate: "open", head: suid(1) }]);
await prisma.$disconnect();
console.log("done");
