"""Agent for editors, by the Agent Client Protocol (https://agentclientprotocol.com)."""
