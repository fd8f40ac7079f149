"""MCP server: offers our tools, and the whole agent, to other programs. Read `service.py` first.

`protocol.py` is the only module that knows the SDK's server; `stdio.py` and `http.py` its transports. The others know
the client only as `watch.Client`.
"""
