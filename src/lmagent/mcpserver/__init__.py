"""MCP server: offers our tools, and the whole agent, to other programs."""
