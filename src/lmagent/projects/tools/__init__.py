"""The own tools of an agent project: JavaScript, Python and programs, which run in the sandbox and nowhere else.

Read `own.py` first: from the rows of `tools:` in agent.yaml to the tools that the toolbox gets.
"""
