"""The table of a sweep: Parquet files, written and read through DuckDB."""

import contextlib
import difflib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..config import InputError
from ..files import temporary_file
from ._file import Sweep
from ._measurements import columns_of

# Parts of SQL in which no names are looked for: texts, quoted names, comments.
QUOTED = r"""'[^']*'|"[^"]*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|--[^\n]*|/\*.*?\*/"""
_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


def schema_of(sweep: Sweep) -> dict[str, str]:
    """The columns of the table with their DuckDB types."""
    swept = {
        name: _column_type([point.settings[name] for point in sweep.points]) for name in sweep.axes
    }
    columns = {"run": "BIGINT", **swept, "seed": "BIGINT", "hash": "VARCHAR", "result": "VARCHAR"}
    columns |= {"last_time": "DOUBLE", "initial_loss": "DOUBLE", "final_loss": "DOUBLE"}
    return columns | columns_of(sweep.names) | {"not_measured": "VARCHAR"}


def _column_type(values: Sequence[Any]) -> str:
    """The type that holds all values of an axis; JSON text if there is no other."""
    if all(isinstance(value, list | tuple) for value in values):
        inner = _column_type([entry for value in values for entry in value])
        return "VARCHAR" if inner == "VARCHAR" else f"{inner}[]"
    kinds = {type(value) for value in values}
    if kinds == {int, float}:
        return "DOUBLE"
    return _TYPES.get(kinds.pop(), "VARCHAR") if len(kinds) == 1 else "VARCHAR"


def encode_part(
    schema: Mapping[str, str], rows: Sequence[Mapping[str, Any]], folder: Path
) -> bytes:
    """Rows as the bytes of a Parquet file; `folder` is for temporary files.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> schema, rows = {"run": "INTEGER", "loss": "DOUBLE"}, [{"run": 0, "loss": 0.5}]
    >>> data = icl.sweeps.encode_part(schema, rows, folder)
    >>> data[:4]
    b'PAR1'
    ```
    """
    texts = [name for name, kind in schema.items() if kind == "VARCHAR"]
    with temporary_file(folder, "rows.json") as lines:
        with open(lines, "w") as stream:
            for row in rows:
                row = {name: row.get(name) for name in schema}
                row |= {name: _text(row[name]) for name in texts}
                stream.write(json.dumps(row, allow_nan=False) + "\n")
        columns = ", ".join(f"{_quote(name)}: '{kind}'" for name, kind in schema.items())
        options = f"format = 'newline_delimited', columns = {{{columns}}}"
        return _copy_to_parquet(f"SELECT * FROM read_json({_path(lines)}, {options})", folder)


def join_parts(parts: Sequence[Path], folder: Path) -> bytes:
    """The parts as the bytes of one Parquet file, in the order of the runs; `folder` is for
    temporary files."""
    return _copy_to_parquet(f"SELECT * FROM {_parquet(parts)} ORDER BY run", folder)


def _copy_to_parquet(query: str, folder: Path) -> bytes:
    """The result of a query as the bytes of a Parquet file."""
    import duckdb

    with temporary_file(folder, "rows.parquet") as table:
        # DuckDB's own temporary file would stay if this process were killed.
        options = "FORMAT parquet, USE_TMP_FILE false"
        try:
            with _translate_interrupts():
                _connection().execute(f"COPY ({query}) TO {_path(table)} ({options})")
        except duckdb.IOException as error:  # such as a full disk
            raise OSError(_reason(error)) from None
        return table.read_bytes()


def _statement_type(statement: Any) -> Any:
    """The type of a statement; None where the Python API of DuckDB has no name for it, such as
    `UPDATE EXTENSIONS`."""
    try:
        return statement.type
    except ValueError:
        return None


class Table:
    """The results of a sweep as a read-only SQL table called `results`.

    **Arguments:**

    - `files`: the Parquet files of the table, or its parts.
    - `timeout`: seconds after which a query is stopped; None: never.
    - `memory`: bytes that the table and a query may take in DuckDB; None: its default.
    - `further`: further tables by name, and their files.

    **Example:**

    ```pycon
    >>> spec = {"seeds": 2, "base": {
    ...     "task": {"kind": "linear_regression", "eigenvalues": [0.6, 0.4], "context": 31},
    ...     "model": {"kind": "separate", "heads": 2}, "flow": {"end": 10.0}}}
    >>> table = icl.sweep(spec, progress=False)
    >>> table.ask("SELECT count(*) AS runs FROM results")
    (['runs'], [(2,)])
    ```
    """

    def __init__(
        self,
        files: Sequence[Path],
        timeout: float | None = None,
        memory: int | None = None,
        further: Mapping[str, Sequence[Path]] | None = None,
    ):
        self._timeout, self._memory = timeout, memory
        with _translate_interrupts():
            self._connection = _connection()
            self._open({"results": files, **(further or {})})

    def _open(self, tables: Mapping[str, Sequence[Path]]) -> None:

        if self._memory is not None:
            self._connection.execute(f"SET memory_limit = '{self._memory}B'")
        # Without this, DuckDB writes what does not fit into memory to the working folder.
        self._connection.execute("SET temp_directory = ''")
        for name, files in tables.items():
            self._create(name, files)
        # From here on no statement reads or writes a file.
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        self.tables = {name: self._describe(name) for name in tables}
        self.columns = self.tables["results"]

    def _create(self, name: str, files: Sequence[Path]) -> None:
        import duckdb

        try:
            self._connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {_parquet(files)}")
        except duckdb.OutOfMemoryException:
            raise InputError(f"`{files[0]}` is too large: {self._too_large}") from None
        except duckdb.Error as error:
            raise InputError(f"`{files[0]}` cannot be read as a table: {_reason(error)}.") from None

    def _describe(self, name: str) -> dict[str, str]:
        described = self._connection.execute(f"DESCRIBE {name}").fetchall()
        return {row[0]: row[1] for row in described}

    def ask(self, query: str) -> tuple[list[str], list[tuple]]:
        """The column names and the rows of a SELECT. Dotted settings such as `model.scale` need no
        quotes."""
        import duckdb

        given, query = _line(query), self.quote_settings(query)
        try:
            statements = self._connection.extract_statements(query)
            kinds = [_statement_type(statement) for statement in statements]
            if kinds != [duckdb.StatementType.SELECT]:
                raise InputError("query", given, "results can be read only", "is not one SELECT")
            with _translate_interrupts(), self._limit_time():
                found = self._connection.execute(statements[0])
                return [column[0] for column in found.description or ()], found.fetchall()
        except duckdb.InterruptException:
            problem = f"takes longer than {self._timeout:g} s"
            raise InputError(
                "query", given, "ask for less, or raise the timeout", problem
            ) from None
        except (duckdb.OutOfMemoryException, MemoryError):
            raise InputError("query", given, self._too_large, "is too large") from None
        except duckdb.Error as error:
            reason = self._suggest_column(str(error), query) or _reason(error)
            raise InputError("query", given, reason, "cannot be answered") from None

    @contextlib.contextmanager
    def _limit_time(self) -> Iterator[None]:
        """Interrupts the query when its time is over."""
        if self._timeout is None:
            yield
            return
        timer = threading.Timer(self._timeout, self._connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @property
    def _too_large(self) -> str:
        if self._memory is None:
            return "it needs more memory than there is"
        return f"it needs more than {self._memory / 2**30:.3g} GiB of memory; raise this limit"

    def _suggest_column(self, error: str, query: str) -> str | None:
        """A suggestion for a column that does not exist, if DuckDB reports one.

        DuckDB reports this only as text: its errors have no field for the name. A message of
        another form is shown as it is.
        """
        found = re.search(r'Referenced (column|table) "([^"]*)" not found', error)
        found = found or re.search(r'does not have a (column) named "([^"]*)"', error)
        if not found:
            return None
        kind, name = found.groups()
        if kind == "table" or f"{name}." in query:  # of a dotted name DuckDB reports the first part
            dotted = re.search(rf"(?<!\w){re.escape(name)}\.[\w.]+", query)
            if kind == "table" and not dotted:
                return None
            name = dotted[0] if dotted else name
        each = (column for columns in self.tables.values() for column in columns)
        known = {column.lower(): column for column in each}
        close = difflib.get_close_matches(name.lower(), known, n=1)
        allowed = f"did you mean `{known[close[0]]}`?" if close else f"there are {self._names}."
        return f"there is no column `{name}`: {allowed}"

    @property
    def _names(self) -> str:
        return ", ".join(self.columns)

    def quote_settings(self, text: str) -> str:
        """Puts dotted settings into the quotes that SQL requires."""
        dotted = sorted((name for name in self.columns if "." in name), key=len, reverse=True)
        if not dotted:
            return text
        names, known = "|".join(map(re.escape, dotted)), {name.lower(): name for name in dotted}
        # The name of the table may come first, as in results.model.scale; case does not matter.
        pattern = (
            rf"(?P<quoted>{QUOTED})|(?<![\w.])(?P<table>(?:\w+\.)??)(?P<name>{names})(?![\w.])"
        )
        return re.sub(
            pattern,
            lambda found: found["quoted"] or found["table"] + _quote(known[found["name"].lower()]),
            text,
            flags=re.IGNORECASE | re.DOTALL,
        )


@contextlib.contextmanager
def _translate_interrupts() -> Iterator[None]:
    """Raises `KeyboardInterrupt` for Ctrl-C, which DuckDB turns into another error."""
    try:
        yield
    except RuntimeError as error:
        if str(error) == "Query interrupted":
            raise KeyboardInterrupt from None
        raise


def _connection():
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET enable_progress_bar = false")
    return connection


def _parquet(files: Sequence[Path]) -> str:
    return f"read_parquet([{', '.join(map(_path, files))}])"


def _path(file: Path) -> str:
    return "'" + str(file).replace("'", "''") + "'"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _reason(error: Exception) -> str:
    """The first line of a message of DuckDB, which is the error; hints follow."""
    return _line(str(error).split("\n")[0]).rstrip(".!")


def _line(text: str) -> str:
    return " ".join(text.split())
