"""Read what a child has left behind, and make an Outcome of it."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from loaderscope.isolation import faults, inside, stacks
from loaderscope.records import NotMeasured, Outcome, ThreadStack

if TYPE_CHECKING:
    from loaderscope.isolation.child import Child

_TAIL_BYTES = 2048
# A crash writes the stacks of all threads and then the names of all extension modules.
_CRASH_BYTES = 1 << 16
_OUR_FILE = os.path.join("isolation", "inside.py:")


def read_left(folder: str) -> tuple[str, int]:
    text, index = "", inside.NO_INDEX
    with contextlib.suppress(OSError), open(os.path.join(folder, inside.STDERR), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _CRASH_BYTES))
        text = file.read().decode("utf-8", "replace")
    with contextlib.suppress(OSError, struct.error), open(os.path.join(folder, inside.INDEX), "rb") as file:
        index = inside.INDEX_FORMAT.unpack(file.read())[0]
    return text, index


def outcome(child: Child, status: str, elapsed: float, deadline_s: float, method: str) -> Outcome:
    told: dict[str, Any] = {
        "elapsed_s": elapsed,
        "deadline_s": deadline_s,
        "cpu_s": child.cpu_s,
        "stderr_tail": _tail(child.stderr),
        "last_index": child.index if child.index != inside.NO_INDEX else NotMeasured("the function reported no index"),
        "method": method,
    }
    if status == "answer":
        return Outcome(**told, **_read_answer(child.answer))
    if status == "hang":
        seen = [v for v in (child.busy_s, child.cpu_s) if isinstance(v, float)]
        return Outcome("hang", **{**told, "cpu_s": max(seen, default=child.cpu_s)}, stacks=_below_us(child.stacks))
    code = child.exit_code
    if code is not None and code < 0:
        # faulthandler has written the stacks of a crash to the child's error output.
        crash = _below_us(stacks.parse_dump(child.stderr))
        return Outcome("signal", **told, signal_number=-code, signal_name=faults.signal_name(-code), stacks=crash)
    return Outcome("exit", **told, exit_code=code)


def _tail(text: str) -> str:
    """The end of the error output; of a crash's stacks only what lies below us, as in `_below_us`."""
    kept, hidden = [], False
    for line in text.splitlines(keepends=True):
        in_dump = line.startswith('  File "') and ", line " in line
        hidden = in_dump and (hidden or _OUR_FILE[:-1] in line)
        if not hidden and not line.startswith("Extension modules:"):
            kept.append(line)
    return "".join(kept)[-_TAIL_BYTES:]


def _below_us(threads: tuple[ThreadStack, ...]) -> tuple[ThreadStack, ...]:
    """The stacks without the frames that called the reader's function: ours, and the parent's copied by the fork."""
    return tuple(
        replace(thread, frames=tuple(takewhile(lambda frame: _OUR_FILE not in frame, thread.frames)))
        for thread in threads
    )


def _read_answer(answer: bytearray) -> dict[str, Any]:
    kind, body = answer[:1], memoryview(answer)[inside.HEADER.size :]
    if kind == inside.ERROR:
        name, text, trace = pickle.loads(body)
        return {"status": "exception", "error_type": name, "error_text": text, "traceback": trace}
    try:
        return {"status": "ok", "value": pickle.loads(body)}
    except Exception as error:
        text = f"the value the child returned cannot be unpickled here: {error}"
        return {"status": "exception", "error_type": type(error).__name__, "error_text": text}
