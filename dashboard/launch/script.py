"""Run by Streamlit, once for every run of a session."""

from onearena.dashboard.app import main

main()
