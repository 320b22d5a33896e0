/*
 * JDBC: strings by setString with a cast, and by setObject with Types.OTHER; what comes back; errors; CALL; batches; and
 * statements that the driver keeps prepared on the server, from the first execution on (prepareThreshold=1) or the fifth.
 */
import java.sql.*;
import java.time.OffsetDateTime;
import java.util.*;
import org.postgresql.PGConnection;
import org.postgresql.PGStatement;
import org.postgresql.util.PGInterval;
import org.postgresql.util.PSQLException;

public class Jdbc
{
	static final String APPLY = "SELECT * FROM unsafemv.apply(?, ?, ?, ?, ?::jsonb)";

	static void verdict(String name, boolean ok, Object detail)
	{
		System.out.println((ok ? "ok      " : "not ok  ") + name + (ok ? "" : " (" + detail + ")"));
	}

	static void result(String name, Object got, Object... expected)
	{
		verdict(name, Arrays.asList(expected).equals(got), got);
	}

	static String suid(int n)
	{
		return String.format("%019d%011d", n, 0);
	}

	static String upsert(String key, Object n)
	{
		return "{\"upserts\": [{\"rowKey\": \"" + key + "\", \"value\": {\"n\": " + n + ", \"status\": \"open\"}}]}";
	}

	static Connection connect(String options) throws SQLException
	{
		String socket = System.getenv("PGHOST") + "/.s.PGSQL." + System.getenv("PGPORT");
		return DriverManager.getConnection("jdbc:postgresql://localhost/" + System.getenv("PGDATABASE") +
			"?socketFactory=org.newsclub.net.unix.AFUNIXSocketFactory$FactoryArg&socketFactoryArg=" + socket +
			"&sslmode=disable&gssEncMode=disable&user=" + System.getenv("PGUSER") + options);
	}

	/* Strings go as the driver declares them: varchar. */
	static List<List<Object>> all(Connection c, String sql, Object... arguments) throws SQLException
	{
		try (PreparedStatement s = c.prepareStatement(sql))
		{
			for (int i = 0; i < arguments.length; i++)
				if (arguments[i] instanceof String)
					s.setString(i + 1, (String) arguments[i]);
				else if (arguments[i] == null)
					s.setNull(i + 1, Types.NULL);
				else
					s.setObject(i + 1, arguments[i]);
			List<List<Object>> rows = new ArrayList<>();
			try (ResultSet r = s.executeQuery())
			{
				while (r.next())
				{
					List<Object> row = new ArrayList<>();
					for (int i = 1; i <= r.getMetaData().getColumnCount(); i++)
						row.add(r.getObject(i));
					rows.add(row);
				}
			}
			return rows;
		}
	}

	static List<Object> one(Connection c, String sql, Object... arguments) throws SQLException
	{
		List<List<Object>> rows = all(c, sql, arguments);
		return rows.isEmpty() ? null : rows.get(0);
	}

	static void error(Connection c, String state, String word, String sql, Object... arguments)
	{
		String name = "JDBC: " + word + ": SQLSTATE and code word in the exception";
		try
		{
			one(c, sql, arguments);
			verdict(name, false, "no error");
		}
		catch (SQLException e)
		{
			String constraint = ((PSQLException) e).getServerErrorMessage().getConstraint();
			verdict(name, state.equals(e.getSQLState()) && (word.equals(constraint) || constraint == null && word.startsWith("no code word")), e);
		}
	}

	static void surface(Connection c) throws SQLException
	{
		result("JDBC: create_view: a long", one(c, "SELECT unsafemv.create_view(?, ?, indexes => ?::jsonb)", "JDBC", "v",
			"[{\"id\": \"status\", \"type\": \"text\", \"path\": \"status\"}]"), 0L);
		String big = "1533947986218845197";
		result("JDBC: apply: setString, the jsonb with a cast", one(c, APPLY, "JDBC", "v", "e1", suid(1), upsert("a", big)), "applied", false);
		error(c, "42883", "no code word: without the cast there is no such function", "SELECT * FROM unsafemv.apply(?, ?, ?, ?, ?)", "JDBC", "v", "e2", suid(2), upsert("b", 2));
		try (PreparedStatement s = c.prepareStatement("SELECT * FROM unsafemv.apply(?, ?, ?, ?, ?)"))
		{
			String[] strings = {"JDBC", "v", "e2", suid(2), upsert("b", 2)};
			for (int i = 0; i < strings.length; i++)
				s.setObject(i + 1, strings[i], Types.OTHER);
			try (ResultSet r = s.executeQuery())
			{
				r.next();
				verdict("JDBC: apply: Types.OTHER needs no cast", r.getString("outcome").equals("applied"), r.getString(1));
			}
		}
		result("JDBC: apply: every optional argument is NULL", one(c, "SELECT * FROM unsafemv.apply(?, ?, ?, ?, ?::jsonb, generation => ?, " +
			"definition_version => ?, safe_head => ?, expected_row_version => ?, record_arrival => ?, observed_at => ?)",
			"JDBC", "v", "e2", suid(2), upsert("b", 2), null, null, null, null, true, null), "no-change", true);
		verdict("JDBC: apply_batch", all(c, "SELECT * FROM unsafemv.apply_batch(?, ?, ?::jsonb, on_error => ?)", "JDBC", "v",
			"[{\"eventId\": \"e3\", \"suid\": \"" + suid(3) + "\", \"mutations\": " + upsert("c", 3) + "}, {\"eventId\": \"bad\", \"suid\": \"" + suid(4) + "\", \"mutations\": {\"x\": 1}}]",
			"report").equals(List.of(List.of(1, "e3", "applied", false, "-"), List.of(2, "bad", "-", "-", "MV_PLAN_INVALID")).stream().map(row ->
				{ List<Object> copy = new ArrayList<>(row); copy.replaceAll(o -> "-".equals(o) ? null : o); return copy; }).toList()), "");
		result("JDBC: apply_safe: NULL for no head", one(c, "SELECT * FROM unsafemv.apply_safe(?, ?, ?, ?, ?::jsonb, ?)", "JDBC", "v", null, suid(1), upsert("a", big), "e1"),
			suid(1), 1L, 0L, 0L, 1L);

		String page = "SELECT row_key, value::text, row_version, source_suid, unsafe, total_count " +
			"FROM unsafemv.query_composed_page(?, ?, \"limit\" => ?, after_suid => ?, after_key => ?)";
		List<List<Object>> first = all(c, page, "JDBC", "v", 2, null, null);
		result("JDBC: page: types, and every digit", first.get(0), "a", "{\"n\": " + big + ", \"status\": \"open\"}", 1L, suid(1), false, 3L);
		List<List<Object>> second = all(c, page, "JDBC", "v", 2L, first.get(1).get(3), first.get(1).get(0));
		verdict("JDBC: page: the cursor is the last row's", second.size() == 1 && second.get(0).get(0).equals("c"), second);
		verdict("JDBC: composed_page", one(c, "SELECT unsafemv.composed_page(?, ?)", "JDBC", "v").get(0).toString().contains("\"totalCount\": 3"), "");
		verdict("JDBC: read_rows: an array of keys", all(c, "SELECT row_key FROM unsafemv.read_rows(?, ?, ?)", "JDBC", "v",
			c.createArrayOf("text", new String[]{"b", "none", "a"})).equals(List.of(List.of("a"), List.of("b"))), "");
		verdict("JDBC: query_rows", all(c, "SELECT row_key FROM unsafemv.query_rows(?, ?, ?, ?, equals => ?)", "JDBC", "v", "status", "text", "open").size() == 3, "");
		List<Object> status = one(c, "SELECT gate, unsettled, oldest_unsettled_age FROM unsafemv.status WHERE service_id = ? AND view_id = ?", "JDBC", "v");
		verdict("JDBC: status", status.get(0).equals("open") && ((Number) status.get(1)).longValue() == 2 && status.get(2) instanceof PGInterval, status);

		PGInterval minute = new PGInterval("1 min");
		List<Object> kick = one(c, "SELECT target_suid, dirty, lease_epoch, lease_until FROM unsafemv.acquire_kick(?, ?, ?, ?)", "JDBC", "v", "me", minute);
		verdict("JDBC: acquire_kick", kick.get(0).equals(suid(3)) && kick.get(1).equals(true) && kick.get(2) instanceof Long && kick.get(3) instanceof Timestamp, kick);
		result("JDBC: finish_kick, NULL for the SUID", one(c, "SELECT unsafemv.finish_kick(?, ?, ?, ?, ?)", "JDBC", "v", "me", null, kick.get(2)), true);
		result("JDBC: wait_for: an interval as a string with a cast", one(c, "SELECT unsafemv.wait_for(?, ?, ?, ?, ?::interval)", "JDBC", "v", "e3", suid(3), "1 min"), "visible");
		result("JDBC: CALL wait_until", one(c, "CALL unsafemv.wait_until(?, ?, ?, ?, ?)", "JDBC", "v", "e3", suid(3), minute), "visible");
		one(c, "SELECT unsafemv.create_view(?, ?)", "JDBC", "g");
		one(c, APPLY, "JDBC", "g", "e1", suid(1), upsert("k", 1));
		result("JDBC: begin_rebuild: an int for a bigint", one(c, "SELECT unsafemv.begin_rebuild(?, ?, ?)", "JDBC", "g", 2), 1L);
		Object array = one(c, "SELECT redeliver FROM unsafemv.promote_generation(?, ?, ?, ?)", "JDBC", "g", 1, 0).get(0);
		verdict("JDBC: promote_generation: an array comes back", Arrays.equals((String[]) ((java.sql.Array) array).getArray(), new String[]{"e1"}), array);

		error(c, "UM101", "MV_VIEW_MISSING", "SELECT * FROM unsafemv.read_meta(?, ?)", "JDBC", "none");
		error(c, "UM202", "MV_PLAN_INVALID", APPLY, "JDBC", "v", "e9", suid(9), "{\"x\": 1}");
		error(c, "UM401", "SUID_INVALID", APPLY, "JDBC", "v", "e9", "9", "{}");
	}

	static void transactions(Connection c, Connection other) throws SQLException
	{
		c.setAutoCommit(false);
		one(c, APPLY, "JDBC", "v", "undone", suid(20), upsert("undone", 1));
		c.rollback();
		List<Object> again = one(c, APPLY, "JDBC", "v", "undone", suid(20), upsert("undone", 1));
		c.commit();
		result("JDBC: what a rollback took is applied by the redelivery", again, "applied", false);
		c.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
		int failures = 0;
		List<Object> outcome = null;
		while (outcome == null && failures < 5)
		{
			try
			{
				one(c, "SELECT count(*) FROM unsafemv.read_rows(?, ?)", "JDBC", "v");
				if (failures == 0)
					one(other, APPLY, "JDBC", "v", "theirs", suid(30), upsert("hot", 1));
				outcome = one(c, APPLY, "JDBC", "v", "mine", suid(31), upsert("hot", 2));
				c.commit();
			}
			catch (SQLException e)
			{
				c.rollback();
				if (!"40001".equals(e.getSQLState()))
					throw e;
				failures++;
			}
		}
		verdict("JDBC: REPEATABLE READ: 40001, the second try applies", failures == 1 && outcome.equals(List.of("applied", false)), outcome);
		c.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
		error(c, "25001", "no code word: a CALL in a transaction block is refused", "CALL unsafemv.wait_until(?, ?, ?, ?)", "JDBC", "v", "mine", suid(31));
		c.rollback();
		c.setAutoCommit(true);
	}

	static void prepared(Connection c, String how, int first) throws SQLException
	{
		int applied = 0;
		boolean onServer;
		try (PreparedStatement s = c.prepareStatement(APPLY))
		{
			for (int n = first; n < first + 20; n++)
			{
				String[] strings = {"JDBC", "v", "r" + n, suid(n), upsert("again", n)};
				for (int i = 0; i < strings.length; i++)
					s.setString(i + 1, strings[i]);
				try (ResultSet r = s.executeQuery())
				{
					r.next();
					applied += r.getString(1).equals("applied") && !r.getBoolean(2) ? 1 : 0;
				}
			}
			onServer = s.unwrap(PGStatement.class).isUseServerPrepare();
		}
		List<Object> generic = one(c, "SELECT coalesce(sum(generic_plans), 0)::bigint FROM pg_prepared_statements WHERE statement ~ 'FROM unsafemv.apply\\('");
		verdict("JDBC: " + how + ": twenty applies, the later ones with the generic plan", applied == 20 && onServer && (Long) generic.get(0) >= 5, applied + " " + generic);
	}

	static void batches(Connection c) throws SQLException
	{
		one(c, "SELECT unsafemv.create_view(?, ?), unsafemv.attach_projection(?, ?, ?, ?)", "JDBC", "p", "JDBC", "p", "public.event", "public.plan");
		one(c, "SELECT unsafemv.alter_view(?, ?, window_floor => ?)", "JDBC", "p", new PGInterval("0 s"));
		try (PreparedStatement s = c.prepareStatement("INSERT INTO event (service_id, event_id, suid, event) VALUES (?, ?, ?, ?::jsonb)"))
		{
			for (int n = 0; n < 30; n++)
			{
				String[] strings = {"JDBC", "e" + n, suid(n + 1), "{\"key\": \"k" + n + "\"}"};
				for (int i = 0; i < strings.length; i++)
					s.setString(i + 1, strings[i]);
				s.addBatch();
			}
			s.executeBatch();
		}
		result("JDBC: a batch of INSERTs is rows", one(c, "SELECT total_count FROM unsafemv.query_composed_page(?, ?, \"limit\" => ?)", "JDBC", "p", 1), 30L);
		result("JDBC: CALL follow in autocommit", one(c, "CALL unsafemv.follow(?, ?)", "JDBC", "p"), 30L, suid(30), "caught_up", null);
		result("JDBC: CALL rebuild_and_promote", one(c, "CALL unsafemv.rebuild_and_promote(?, ?, ?)", "JDBC", "p", 2), 1L, "promoted");
		verdict("JDBC: check finds nothing", all(c, "SELECT * FROM unsafemv.check(?)", "JDBC").isEmpty(), "");
	}

	public static void main(String[] arguments) throws SQLException
	{
		try (Connection c = connect(""); Connection eager = connect("&prepareThreshold=1"))
		{
			surface(c);
			transactions(c, eager);
			prepared(c, "default threshold", 100);
			prepared(eager, "prepareThreshold=1", 200);
			batches(eager);
		}
		System.out.println("done");
	}
}
