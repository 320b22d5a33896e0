import { customType, index, jsonb, pgTable, text, timestamp } from "drizzle-orm/pg-core";

// drizzle-kit quotes a type's name as a whole: schema unsafemv has to be in the search path.
const suid = customType<{ data: string }>({ dataType: () => "suid" });

export const item = pgTable("drizzle_item", { id: text().primaryKey(), name: text().notNull() });
export const event = pgTable("drizzle_event", {
	serviceId: text("service_id").notNull(),
	eventId: text("event_id").primaryKey(),
	suid: suid().notNull(),
	event: jsonb().notNull(),
	arrivedAt: timestamp("arrived_at", { withTimezone: true }).defaultNow().notNull(),
}, (t) => [index("drizzle_suid").on(t.serviceId, t.suid), index("drizzle_arrived").on(t.serviceId, t.arrivedAt)]);
