"""The sources of settings: the environment, a TOML file, ``pyproject.toml``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tau_live.core.errors import SettingsError, pass_on
from tau_live.core.settings.kinds import Setting, Table, nearest, show_value
from tau_live.core.switch import KILL, OLD_SWITCH, PREFIX, SWITCH

PYPROJECT = "pyproject.toml"

ELSEWHERE = frozenset({"tfgrpo", "pipelines"})
"""Tables that only runs of lessons read."""


class RawValue(NamedTuple):
    """A value as it was written.

    Attributes:
        raw: Text, or a TOML value.
        source: ``environment`` or the file.
        where: The name of its place in errors.
        folder: The base of a relative path: the folder of the file, so that an agent started
            anywhere below it uses the same store.
    """

    raw: object
    source: str
    where: str
    folder: Path


def parse_value(row: Setting, raw_value: RawValue) -> object:
    """Return the parsed value.

    Raises:
        SettingsError: It is not of the row's kind; names the place, what was expected and given.
    """
    where = raw_value.where
    label = f"{where}: safety_reward.{row.field}" if row.group else where
    try:
        value = row.kind.parse(raw_value.raw)
    except ValueError as error:
        pass_on(error)
        raise SettingsError(f"{label} {error}") from None
    return raw_value.folder / value if isinstance(value, Path) else value


def from_environment(
    rows: Sequence[Setting], environ: Mapping[str, str], warnings: list[str]
) -> dict[str, RawValue]:
    """Return the settings in the environment, by name; warn about old and unknown variables."""
    values = {}
    for row in rows:
        variable, value = row.variable, environ.get(row.variable, "")
        if row.alias is not None and row.alias in environ:
            warnings.append(f"{row.alias} is deprecated; set {row.variable} instead")
            if not value.strip():
                variable, value = row.alias, environ[row.alias]
        if value.strip():
            values[row.name] = RawValue(value, "environment", variable, Path())

    known = {SWITCH, OLD_SWITCH, KILL}
    known |= {name for row in rows for name in (row.variable, row.alias) if name is not None}
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and name not in known)
    names = [row.name.upper() for row in rows]
    warnings.extend(_unknown(name.removeprefix(PREFIX), names, PREFIX) for name in unknown)
    return values


def from_pyproject(
    rows: Sequence[Setting], directory: Path, warnings: list[str]
) -> dict[str, RawValue]:
    """Return the settings under ``[tool.tau-live]`` in the nearest ``pyproject.toml`` that has it.

    Raises:
        SettingsError: A file that mentions us is not TOML, or has a setting not allowed there.
    """
    for file in _pyprojects(directory, warnings):
        own = _own_table_of(file, read_toml(file))
        if own is not None:
            return _from_table(rows, own, file=file, at="tool.tau-live.", warnings=warnings)
    return {}


def from_file(rows: Sequence[Setting], file: Path, warnings: list[str]) -> dict[str, RawValue]:
    """Return the settings of a TOML file: its ``[tool.tau-live]``, or all of it without one.

    Raises:
        SettingsError: It cannot be read, is not TOML, or has a setting not allowed there.
    """
    document = read_toml(file)
    own = _own_table_of(file, document)
    at = "" if own is None else "tool.tau-live."
    return _from_table(rows, document if own is None else own, file=file, at=at, warnings=warnings)


def read_toml(file: Path) -> Table:
    """Return the contents of a TOML file.

    Raises:
        SettingsError: It cannot be read or is not TOML; names the file and the line.
    """
    import tomllib

    try:
        if file.exists() and not (file.is_file() or file.is_dir()):  # reading it may never end
            raise SettingsError(f"cannot read {file}: it is not a file")
        content = file.read_bytes()
        return tomllib.loads(content.decode())
    except OSError as error:
        pass_on(error)
        raise SettingsError(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        pass_on(error)
        line = error.object[: error.start].count(b"\n") + 1
        raise SettingsError(f"{file} is not TOML: it is not UTF-8 (at line {line})") from error
    except RecursionError as error:
        pass_on(error)
        raise SettingsError(f"{file} is not TOML: it is nested too deeply") from error
    except ValueError as error:
        pass_on(error)
        last = content.count(b"\n") + 1
        why = str(error).replace("at end of document", f"at line {last}, the end")
        raise SettingsError(f"{file} is not TOML: {why}") from error


def _unknown(name: str, known: Iterable[str], prefix: str) -> str:
    near = nearest(name, known)  # without the prefix, which makes all of them look alike
    hint = f"did you mean {prefix}{near}?" if near else "`tau-live config` lists them all"
    return f"{prefix}{name} is not a setting of tau-live; {hint}"


def _pyprojects(directory: Path, warnings: list[str]) -> Iterator[Path]:
    """Yield the files that mention us, nearest first; others are not ours to judge."""
    for folder in (directory.absolute(), *directory.absolute().parents):
        file = folder / PYPROJECT
        try:
            if file.is_file() and b"tau-live" in file.read_bytes():
                yield file
        except OSError as error:
            pass_on(error)
            warnings.append(f"cannot read {file}: {error.strerror or error}")


def own_table(document: Table) -> Table | None:
    """Return the table ``[tool.tau-live]`` of a document; ``None`` without one.

    Raises:
        SettingsError: It is something else than a table.
    """
    tool = document.get("tool")
    own = tool.get("tau-live") if isinstance(tool, Mapping) else None
    if own is None or isinstance(own, Mapping):
        return own
    raise SettingsError("tool.tau-live must be a table: write [tool.tau-live], once")


def _own_table_of(file: Path, document: Table) -> Table | None:
    try:
        return own_table(document)
    except SettingsError as error:
        raise SettingsError(f"{file}: {error}") from error


def _from_table(
    rows: Sequence[Setting],
    table: Table,
    *,
    file: Path,
    at: str,
    warnings: list[str],
) -> dict[str, RawValue]:
    values: dict[str, RawValue] = {}
    by_key = {_snake(row.key): row for row in rows}
    for key, raw in _flat(table, file):
        row, where = by_key.get(_snake(key)), f"{at}{key} in {file}"
        if row is None:
            warnings.append(f"{file}: {_unknown(key, (row.key for row in rows), at)}")
        elif row.name == "config":
            raise SettingsError(f"{where} cannot be set in a file, only as {row.variable}")
        elif row.name in values:
            raise SettingsError(f"{where} is given twice, also as {values[row.name].where}")
        elif not (isinstance(raw, str) and not raw.strip()):
            values[row.name] = RawValue(raw, str(file), where, file.parent)
    return values


def _flat(table: Table, file: Path) -> Iterator[tuple[str, object]]:
    for key, raw in table.items():
        if key in ELSEWHERE:
            continue
        if key != "safety":
            yield key, raw
        elif isinstance(raw, Mapping):
            yield from ((f"{key}.{inner}", value) for inner, value in raw.items())
        else:
            raise SettingsError(f"safety in {file} must be a table, got {show_value(raw)}")


def _snake(key: str) -> str:
    return key.replace("-", "_")
