"""Client of MCP servers (https://modelcontextprotocol.io): their tools, resources and prompts for the agent."""
