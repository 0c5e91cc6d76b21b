"""The exceptions of loaderscope: each message says what happened, what was seen, why, and the way out."""

from __future__ import annotations


class LoaderscopeError(Exception):
    """Base of every error raised by loaderscope on purpose.

    Args:
        what: what happened, one sentence.
        seen: the value or state that was seen, if any.
        likely: the likely cause, if any.
        way_out: what the reader can do about it.
    """

    def __init__(self, what: str, *, seen: str = "", likely: str = "", way_out: str = ""):
        self.what, self.seen, self.likely, self.way_out = what, seen, likely, way_out
        parts = [what.rstrip(".") + "."]
        for label, text in (("Seen", seen), ("Likely cause", likely), ("Way out", way_out)):
            if text:
                parts.append(f"{label}: {text.rstrip('.')}.")
        super().__init__(" ".join(parts))

    def __reduce__(self):
        # Keyword-only arguments do not survive Exception's own pickling.
        return (_rebuild, (type(self), self.what, self.seen, self.likely, self.way_out))


def _rebuild(cls, what, seen, likely, way_out):
    return cls(what, seen=seen, likely=likely, way_out=way_out)


class BadInputError(LoaderscopeError, ValueError):
    """An argument cannot be used as given."""


class CannotRebuildError(LoaderscopeError):
    """A loader cannot be rebuilt with the asked change without changing what the data is."""


class NotMeasuredError(LoaderscopeError, ArithmeticError):
    """A value that was not measured was used as if it were a number."""


class RecordError(LoaderscopeError, ValueError):
    """A saved record cannot be read."""


class StepFailedError(LoaderscopeError):
    """The reader's own training step raised; the original exception is `__cause__`."""


class MissingExtraError(LoaderscopeError, ImportError):
    """An optional dependency is needed for this and is not installed."""
