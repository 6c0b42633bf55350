"""The script that Streamlit runs, in a folder of its own.

Beside `pages/` Streamlit would take every file there for a page of its own making.
"""
