"""What every record shares: absence as a value, rows, two reprs, JSON.

A record is a frozen dataclass that keeps raw samples. This package imports neither torch nor matplotlib
nor ipywidgets, so a record saved on a GPU machine opens on a laptop.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import os
from dataclasses import dataclass
from typing import Any, ClassVar

from loaderscope.errors import NotMeasuredError, RecordError

SCHEMA_VERSION = 1
MAX_REPR_LINES = 8

# Marks a dict in JSON as something richer. Not a possible field name, so no record can collide with it.
TAG = "@"

_KINDS: dict[str, type] = {}

# Records that live outside this package; imported only when a file names one of them.
_FURTHER_HOMES = ("loaderscope.records", "loaderscope.diagnosis.report", "loaderscope.claims")


def register(cls: type) -> type:
    """Let a dataclass be written to and read from JSON under its class name."""
    _KINDS[cls.__name__] = cls
    return cls


def _raise_not_measured(self, *_):
    raise NotMeasuredError(
        "A value that was not measured was used as a number",
        seen=f"NotMeasured({self.reason!r})",
        way_out="ask is_measured(value) first, and show the reason where it is not",
    )


@register
@dataclass(frozen=True)
class NotMeasured:
    """A value that is absent, and why. It is never 0: arithmetic, ordering and truth tests on it raise."""

    reason: str

    def __str__(self) -> str:
        return f"not measured ({self.reason})"

    for _name in (
        "bool float int index round abs neg lt le gt ge add radd sub rsub mul rmul truediv rtruediv "
        "floordiv rfloordiv mod rmod pow rpow"
    ).split():
        locals()[f"__{_name}__"] = _raise_not_measured
    del _name


def is_measured(value: Any) -> bool:
    """Whether `value` is there at all (0 and empty count as measured)."""
    return value is not None and not isinstance(value, NotMeasured)


@dataclass(frozen=True)
class Row:
    """One line of a record as shown to people: both reprs are built from the same rows.

    status is "ok", "missing" (grey, with its reason), "warning" or "bad".
    """

    label: str
    value: str
    status: str = "ok"


def printable(words: str) -> str:
    """The same text where halves of surrogate pairs, as undecodable paths hold them, do not stop `print`."""
    return words.encode("utf-8", "backslashreplace").decode("utf-8")


def row(label: str, value: Any, show=str, status: str = "ok") -> Row:
    """A Row that turns grey by itself where the value was not measured."""
    if isinstance(value, NotMeasured):
        return Row(label, str(value), "missing")
    return Row(label, show(value), status)


class Record:
    """Base of the frozen results. Subclasses are dataclasses and say what they show in `rows()`."""

    title: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        register(cls)

    def rows(self) -> tuple[Row, ...]:
        """What this record shows, in order of importance."""
        raise NotImplementedError

    def __repr__(self) -> str:
        rows = self.rows()
        lines = [self.title or type(self).__name__]
        width = max((len(r.label) for r in rows), default=0)
        shown = rows if len(rows) < MAX_REPR_LINES else rows[: MAX_REPR_LINES - 2]
        lines += [f"  {r.label:<{width}}  {r.value}" for r in shown]
        if len(shown) < len(rows):
            lines.append(f"  … {len(rows) - len(shown)} more rows: .rows() or the notebook view")
        return printable("\n".join(lines))

    def _repr_html_(self) -> str:
        from loaderscope.views import html

        return html.record(self)

    def plot(self, ax=None):
        """Draw this record; returns the axes. Measures nothing and shows nothing by itself."""
        from loaderscope.views import plots

        return plots.draw(self, ax)

    def to_dict(self) -> dict:
        """Plain dicts, lists, strings and numbers, ready for `json.dumps`."""
        return encode(self)

    def to_frame(self):
        """The rows as a pandas DataFrame (pandas is not a dependency: it is imported here or not at all)."""
        try:
            import pandas
        except ImportError as error:
            from loaderscope.errors import MissingExtraError

            raise MissingExtraError(
                "to_frame() needs pandas, which is not installed", way_out="pip install pandas, or use .to_dict()"
            ) from error
        return pandas.DataFrame([dataclasses.asdict(r) for r in self.rows()])

    def save(self, path: str | os.PathLike) -> str:
        """Write the record as .json (readable again by `load`) or as one self-contained .html file."""
        path = os.fspath(path)
        if path.endswith(".json"):
            text = json.dumps({"loaderscope": SCHEMA_VERSION, "record": encode(self)}, allow_nan=False)
        elif path.endswith((".html", ".htm")):
            from loaderscope.views import html

            text = html.page(self)
        else:
            raise RecordError(
                "A record is saved as .json or .html", seen=repr(path), way_out='use a name such as "report.html"'
            )
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise RecordError(
                "The file could not be written",
                seen=f"{path}: {error.strerror}",
                way_out="choose a folder you may write to",
            ) from error
        return path


def load(path: str | os.PathLike):
    """Read a record saved with `.save("x.json")`.

    Raises:
        RecordError: the file is not a saved record, or was written by a newer version.
    """
    path = os.fspath(path)
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (ValueError, UnicodeDecodeError) as error:
        raise RecordError(
            "This file is not JSON", seen=f"{path}: {error}", way_out="pass a file saved by .save('x.json')"
        ) from error
    if not isinstance(data, dict) or "loaderscope" not in data or "record" not in data:
        raise RecordError(
            "This JSON file is not a loaderscope record", seen=path, way_out="pass a file saved by .save('x.json')"
        )
    version = data["loaderscope"]
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise RecordError(
            "This record was written by a newer loaderscope",
            seen=f"schema {version}, this version reads up to {SCHEMA_VERSION}",
            way_out="pip install --upgrade loaderscope",
        )
    return decode(data["record"])


def encode(value: Any) -> Any:
    """Turn records and what they hold into plain JSON values; dataclasses carry their name under TAG."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = {
            f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value) if f.metadata.get("saved", True)
        }
        return {TAG: type(value).__name__, **shown}
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {TAG: "float", "value": repr(value)}
    if isinstance(value, dict):
        return {TAG: "dict", "items": [[encode(k), encode(v)] for k, v in value.items()]}
    if isinstance(value, (tuple, list)):
        return [encode(v) for v in value]
    if hasattr(value, "item") and not getattr(value, "shape", ()):
        return encode(value.item())
    if hasattr(value, "tolist"):
        return encode(value.tolist())
    raise RecordError("A record holds something that cannot be saved", seen=type(value).__name__)


def decode(value: Any) -> Any:
    """The inverse of `encode`; sequences come back as tuples."""
    if isinstance(value, list):
        return tuple(decode(v) for v in value)
    if not isinstance(value, dict):
        return value
    kind = value.get(TAG)
    if kind == "float":
        return float(value["value"])
    if kind == "dict":
        return {decode(k): decode(v) for k, v in value["items"]}
    cls = _KINDS.get(kind) or _from_further_homes(kind)
    if cls is None:
        raise RecordError("This record holds a part this version does not know", seen=repr(kind))
    known = {f.name: f for f in dataclasses.fields(cls)}
    fields = {k: decode(v) for k, v in value.items() if k in known}
    for name, field in known.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if name not in fields and required:
            fields[name] = NotMeasured("not in the file: it was written by an older version")
    return cls(**fields)


def _from_further_homes(kind: Any) -> type | None:
    for module in _FURTHER_HOMES:
        importlib.import_module(module)
    return _KINDS.get(kind)
