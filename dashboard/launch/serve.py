"""What `streamlit run` serves: the pages, and the answers that keep the Arena page live.

What the first page needs is loaded before it is asked for, so that it need not wait for it.
"""

from pathlib import Path

from starlette.routing import Route
from streamlit.starlette import App

from onearena.dashboard import shell
from onearena.dashboard.components import arena_map, live_line
from onearena.dashboard.live import PATH, answer

LOADED = (arena_map, live_line, shell)
app = App(Path(__file__).with_name("script.py"), routes=[Route(f"/{PATH}", answer)])
