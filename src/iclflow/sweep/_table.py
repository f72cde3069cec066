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

# What SQL does not read as names of its own: texts, names in quotes, comments.
QUOTED = r"""'[^']*'|"[^"]*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|--[^\n]*|/\*.*?\*/"""
_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


def schema_of(sweep: Sweep) -> dict[str, str]:
    """The columns of the table with their DuckDB types."""
    swept = {name: _type([point.settings[name] for point in sweep.points]) for name in sweep.axes}
    columns = {"run": "BIGINT", **swept, "seed": "BIGINT", "hash": "VARCHAR", "result": "VARCHAR"}
    columns |= {"last_time": "DOUBLE", "initial_loss": "DOUBLE", "final_loss": "DOUBLE"}
    return columns | columns_of(sweep.names) | {"not_measured": "VARCHAR"}


def _type(values: Sequence[Any]) -> str:
    """The type that holds all values of an axis; text (JSON) where there is no other."""
    if all(isinstance(value, list | tuple) for value in values):
        inner = _type([entry for value in values for entry in value])
        return "VARCHAR" if inner == "VARCHAR" else f"{inner}[]"
    kinds = {type(value) for value in values}
    if kinds == {int, float}:
        return "DOUBLE"
    return _TYPES.get(kinds.pop(), "VARCHAR") if len(kinds) == 1 else "VARCHAR"


def part_bytes(schema: Mapping[str, str], rows: Sequence[Mapping[str, Any]], folder: Path) -> bytes:
    """Rows as a Parquet file, made in a folder and gone from there."""
    texts = [name for name, kind in schema.items() if kind == "VARCHAR"]
    with temporary_file(folder, "rows.json") as lines:
        with open(lines, "w") as stream:
            for row in rows:
                row = {name: row.get(name) for name in schema}
                row |= {name: _text(row[name]) for name in texts}
                stream.write(json.dumps(row, allow_nan=False) + "\n")
        columns = ", ".join(f"{_quoted(name)}: '{kind}'" for name, kind in schema.items())
        options = f"format = 'newline_delimited', columns = {{{columns}}}"
        return _copied(f"SELECT * FROM read_json({_path(lines)}, {options})", folder)


def joined_bytes(parts: Sequence[Path], folder: Path) -> bytes:
    """The parts as one Parquet file, in the order of the runs, made in a folder and gone from
    there."""
    return _copied(f"SELECT * FROM {_parquet(parts)} ORDER BY run", folder)


def _copied(query: str, folder: Path) -> bytes:
    """What a query gives as a Parquet file."""
    import duckdb

    with temporary_file(folder, "rows.parquet") as table:
        # DuckDB would write to a file of its own beside it, which nobody knows who kills us.
        options = "FORMAT parquet, USE_TMP_FILE false"
        try:
            with _translate_interrupts():
                _connection().execute(f"COPY ({query}) TO {_path(table)} ({options})")
        except duckdb.IOException as error:  # such as a full disk
            raise OSError(_reason(error)) from None
        return table.read_bytes()


def _type_of(statement: Any) -> Any:
    """What kind of statement it is; None where DuckDB's Python does not know, as of `UPDATE
    EXTENSIONS`."""
    try:
        return statement.type
    except ValueError:
        return None


class Table:
    """The results of a sweep, to be asked in SQL: they are called `results`, and can be read and
    not changed.

    **Arguments:**

    - `files`: of the table, or its parts.
    - `timeout`: seconds after which a question is refused; None: never.
    - `memory`: bytes that the table and a question may take in DuckDB; None: what it takes by
      itself.
    """

    def __init__(
        self, files: Sequence[Path], timeout: float | None = None, memory: int | None = None
    ):
        import duckdb

        self._timeout, self._memory = timeout, memory
        self._connection = _connection()
        if memory is not None:
            self._connection.execute(f"SET memory_limit = '{memory}B'")
        # What does not fit would be written to files beside us.
        self._connection.execute("SET temp_directory = ''")
        try:
            with _translate_interrupts():
                self._connection.execute(f"CREATE TABLE results AS SELECT * FROM {_parquet(files)}")
        except duckdb.OutOfMemoryException:
            raise InputError(f"`{files[0]}` is too large: {self._too_large}") from None
        except duckdb.Error as error:
            raise InputError(f"`{files[0]}` cannot be read as a table: {_reason(error)}.") from None
        # From here on no statement reads or writes a file.
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")
        described = self._connection.execute("DESCRIBE results").fetchall()
        self.columns = {row[0]: row[1] for row in described}

    def ask(self, query: str) -> tuple[list[str], list[tuple]]:
        """The names of the columns and the rows that a SELECT gives. Dotted settings need no
        quotes: `model.scale`."""
        import duckdb

        query = self.spelled(query)
        try:
            statements = self._connection.extract_statements(query)
            if [_type_of(statement) for statement in statements] != [duckdb.StatementType.SELECT]:
                raise InputError(f"`{_line(query)}` is not one SELECT: results can be read only.")
            with _translate_interrupts(), self._limited():
                found = self._connection.execute(statements[0])
                return [column[0] for column in found.description or ()], found.fetchall()
        except duckdb.InterruptException:
            raise InputError(
                f"`{_line(query)}` takes longer than {self._timeout:g} s: ask for less, or raise "
                "`--timeout`."
            ) from None
        except (duckdb.OutOfMemoryException, MemoryError):
            raise InputError(f"`{_line(query)}` is too large: {self._too_large}") from None
        except duckdb.Error as error:
            reason = self._misspelled(str(error), query) or f"{_reason(error)}."
            raise InputError(f"`{_line(query)}` cannot be answered: {reason}") from None

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        """Ends what the connection does when its time is over."""
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
            return "it needs more memory than there is."
        return f"it needs more than {self._memory / 2**30:.3g} GiB of memory; raise `--memory`."

    def _misspelled(self, error: str, query: str) -> str | None:
        """What is meant by a column that there is none of, if DuckDB says that this is wrong."""
        found = re.search(r'Referenced (column|table) "([^"]*)" not found', error)
        found = found or re.search(r'does not have a (column) named "([^"]*)"', error)
        if not found:
            return None
        kind, name = found.groups()
        if kind == "table" or f"{name}." in query:  # of a dotted name DuckDB tells the beginning
            dotted = re.search(rf"(?<!\w){re.escape(name)}\.[\w.]+", query)
            if kind == "table" and not dotted:
                return None
            name = dotted[0] if dotted else name
        known = {column.lower(): column for column in self.columns}
        close = difflib.get_close_matches(name.lower(), known, n=1)
        allowed = f"did you mean `{known[close[0]]}`?" if close else f"there are {self._names}."
        return f"there is no column `{name}`: {allowed}"

    @property
    def _names(self) -> str:
        return ", ".join(self.columns)

    def spelled(self, text: str) -> str:
        """SQL with dotted settings in the quotes that SQL wants around them."""
        dotted = sorted((name for name in self.columns if "." in name), key=len, reverse=True)
        if not dotted:
            return text
        names, known = "|".join(map(re.escape, dotted)), {name.lower(): name for name in dotted}
        # A name of the table may come first, as in results.model.scale; capitals are as good.
        pattern = (
            rf"(?P<quoted>{QUOTED})|(?<![\w.])(?P<table>(?:\w+\.)??)(?P<name>{names})(?![\w.])"
        )
        return re.sub(
            pattern,
            lambda found: found["quoted"] or found["table"] + _quoted(known[found["name"].lower()]),
            text,
            flags=re.IGNORECASE | re.DOTALL,
        )


@contextlib.contextmanager
def _translate_interrupts() -> Iterator[None]:
    """Makes of Ctrl-C what it is everywhere: DuckDB makes another error of it."""
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _reason(error: Exception) -> str:
    """The first line of what DuckDB says, which is the error; then come hints."""
    return _line(str(error).split("\n")[0]).rstrip(".!")


def _line(text: str) -> str:
    return " ".join(text.split())
