"""Dialects: recognise a model server, the window it really serves, and its features beyond the common API.

Begin with `probe.py`. How to add one: docs/dialects.md.
"""
