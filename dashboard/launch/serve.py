"""What `streamlit run` serves: the pages, and the answers that keep the Arena page live."""

from pathlib import Path

from starlette.routing import Route
from streamlit.starlette import App

from onearena.dashboard.live import PATH, answer

app = App(Path(__file__).with_name("script.py"), routes=[Route(f"/{PATH}", answer)])
