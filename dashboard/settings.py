"""What the command tells the application: which sources, and the folder files are taken from.

Streamlit runs the application as a script, so it comes in one variable of the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

VARIABLE: Final = "ONEARENA_DASHBOARD"


@dataclass(frozen=True, slots=True)
class Settings:
    """`sources` are addresses as given, `folder` the only folder whose files may be opened.

    `file` is the name in `folder` that is opened first.
    """

    sources: tuple[str, ...] = ()
    folder: str = ""
    file: str = ""

    def to_environment(self) -> dict[str, str]:
        """The variable to start the application with."""
        return {VARIABLE: json.dumps(asdict(self))}


def settings_of(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings in the environment; none of them if the variable is not there."""
    text = (os.environ if environment is None else environment).get(VARIABLE)
    if not text:
        return Settings()
    document = json.loads(text)
    assert isinstance(document, dict), f"{VARIABLE} is written by the command: {text!r}"
    return Settings(
        tuple(str(source) for source in document.get("sources", ())),
        str(document.get("folder", "")),
        str(document.get("file", "")),
    )


def folder_of(settings: Settings) -> Path | None:
    """The folder, resolved; None if there is none."""
    return Path(settings.folder).resolve() if settings.folder else None
