"""The report on a program's time: figures, plain-language notes, a page, traces. `profile.py` is the place to begin.

`reading.py` flattens program and timeline; `measures.py`, `notes.py` and `note_rules.py` draw figures and conclusions;
`view.py`, `lanes.py`, `bars.py` and `source_view.py` prepare the page, which the `.j2` templates and the scripts only
place and draw; `summary.py` is the terminal's form, `exports.py` those of other tools.
"""

from __future__ import annotations

from interpreter.profile.measures import CriticalStep, DmaSummary, EngineSummary, LineTime
from interpreter.profile.profile import Profile
from interpreter.profile.remarks import Note

__all__ = ["CriticalStep", "DmaSummary", "EngineSummary", "LineTime", "Note", "Profile"]
