"""The Streamlit dashboard: draws snapshots of a running or recorded arena."""
