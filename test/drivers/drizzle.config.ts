export default {
	dialect: "postgresql",
	schema: "./drizzle.schema.ts",
	dbCredentials: { host: process.env.PGHOST, port: Number(process.env.PGPORT), user: process.env.PGUSER, database: process.env.PGDATABASE, ssl: false },
	schemaFilter: (process.env.SCHEMAS ?? "public").split(","),
};
