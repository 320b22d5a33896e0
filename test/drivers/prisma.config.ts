// Prisma's schema engine as WebAssembly, on the driver adapter: no binary is downloaded.
import { defineConfig } from "prisma/config";
import { PrismaPg } from "@prisma/adapter-pg";

// The adapter refuses the catalogues' own types "char" and name, which the engine asks for. Nothing else is helped.
const systemTypes = (adapter: any) => {
	const performIO = adapter.performIO.bind(adapter);
	adapter.performIO = async (query: any) => {
		const result = await performIO(query);
		for (const field of result.fields) if (field.dataTypeID === 18 || field.dataTypeID === 19) field.dataTypeID = 25;
		return result;
	};
	return adapter;
};

// db push leaves a timer of a minute behind, for which the process would stay.
const setTimeout = globalThis.setTimeout;
globalThis.setTimeout = ((...call: any[]) => {
	const timer: any = (setTimeout as any)(...call);
	return call[1] >= 10000 ? timer.unref() : timer;
}) as any;

export default defineConfig({
	experimental: { adapter: true },
	engine: "js",
	schema: "schema.prisma",
	adapter: async () => {
		const factory: any = new PrismaPg({ host: process.env.PGHOST, port: Number(process.env.PGPORT), user: process.env.PGUSER, database: process.env.PGDATABASE, allowExitOnIdle: true });
		const connect = factory.connect.bind(factory);
		factory.connect = async () => systemTypes(await connect());
		return factory;
	},
});
