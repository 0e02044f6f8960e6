"""The one family of errors: each says what went wrong, where, and what would be accepted."""

from __future__ import annotations


class DiagkitError(Exception):
    """Base of every error that diagkit raises on purpose.

    The parts of the message are kept as attributes, so that a caller, a test or a chapter can read
    them: ``axis`` and ``box`` (names), ``reason`` (what is wrong), ``remedy`` (what would be accepted).

    >>> raise AxisError("no axis 'y'", axis="y", remedy="use one of: q, x")
    Traceback (most recent call last):
    ...
    diagkit.term.errors.AxisError: no axis 'y'; use one of: q, x
    """

    def __init__(
        self, reason: str, *, axis: str | None = None, box: str | None = None, remedy: str | None = None
    ) -> None:
        self.reason, self.axis, self.box, self.remedy = reason, axis, box, remedy
        super().__init__("; ".join(part for part in (reason, remedy) if part))


class AxisError(DiagkitError):
    """Axes that disagree: an unknown name, two sizes for one name, a repeated axis, a silent stretch."""


class InputError(DiagkitError):
    """Arrays handed to a diagram that do not fit it: missing, extra, of the wrong shape or kind."""


class CallError(InputError, TypeError):
    """A call with an argument too many, too few or of another name."""


class MissingKeyError(InputError, KeyError):
    """An amount that a table of costs does not have under the name asked for.

    >>> import diagkit as dk
    >>> dk.Diagram(dk.exp(dk.array("X", dk.axis("x")))).transfers()["X"]
    Traceback (most recent call last):
    ...
    diagkit.term.errors.MissingKeyError: no amount 'X'; a key is, for example, ('X', 0, 1, 'input'); \
by_array() adds up by name
    """

    __str__ = Exception.__str__  # KeyError would quote the message


class TermError(DiagkitError):
    """A diagram that is not one: an unknown wire, a name used twice, an output nobody makes."""


class MissingNameError(TermError, AttributeError):
    """A name that a value of a diagram does not have, though an array or a number would."""


class LabelError(DiagkitError):
    """A label that would change the meaning, and is therefore refused."""


class FuseError(LabelError):
    """An intermediate that cannot stay in fast memory."""


class GroupError(LabelError):
    """An axis along which the function is not mapped, and which can therefore not be tiled."""


class StreamError(LabelError):
    """An axis along which no bounded state carries the function from chunk to chunk."""


class FormatError(DiagkitError):
    """A number format that does not exist, or that an engine cannot hold."""
