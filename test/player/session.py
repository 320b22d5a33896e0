"""One psql process as a database session: send SQL, get lines or an error."""
import os
import subprocess


class DatabaseError(Exception):
    """An error of the server: code is its constraint field (the code word), else its SQLSTATE."""

    def __init__(self, sqlstate, constraint, text):
        super().__init__(text)
        self.sqlstate, self.constraint, self.text = sqlstate, constraint, text
        self.code = constraint or sqlstate


def literal(value):
    """A Python value as an SQL literal (text, unknown type)."""
    if value is None:
        return "NULL"
    return "'" + str(value).replace("'", "''") + "'"


class Session:
    END = "--end-of-answer--"

    def __init__(self, database=None, name="unsafemv test"):
        environment = dict(os.environ, PGAPPNAME=name, PGCLIENTENCODING="UTF8")
        command = ["psql", "-X", "-q", "-A", "-t", "-v", "VERBOSITY=verbose", "-v", "SHOW_CONTEXT=never"]
        if database:
            command += ["-d", database]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=environment, encoding="utf-8", errors="replace")
        self.run("SET client_min_messages = warning")

    def run(self, sql):
        """Runs SQL and returns the output lines; raises the first error. Errors travel on
        their own pipe, so that a result's buffered output never mixes with them."""
        if not (sql.startswith("\\") or sql.rstrip().endswith((";", "\\."))):
            sql += "\n;"                        # an empty statement right after COPY data confuses psql
        try:
            self.process.stdin.write(f"{sql}\n\\echo {self.END}\n\\warn {self.END}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        lines, errors = self._read(self.process.stdout), self._read(self.process.stderr)
        if lines is None or errors is None:
            raise DatabaseError("08006", None, "connection lost\n" + "\n".join((lines or []) + (errors or [])))
        error = next((i for i, line in enumerate(errors) if line.startswith(("ERROR:", "FATAL:"))), None)
        if error is not None:
            fields = errors[error].split(":", 2)
            constraint = next((line.split(":", 1)[1].strip() for line in errors if line.startswith("CONSTRAINT NAME:")), None)
            raise DatabaseError(fields[1].strip(), constraint, "\n".join(errors[error:]))
        return lines

    def value(self, sql):
        lines = self.run(sql)
        return lines[0] if lines else None

    def file(self, path):
        self.run(f"\\i {path}")

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(timeout=60)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()

    def _read(self, pipe):
        lines = []
        while True:
            line = pipe.readline()
            if not line:
                return None
            line = line.rstrip("\n")
            if line == self.END:
                return lines
            lines.append(line)
