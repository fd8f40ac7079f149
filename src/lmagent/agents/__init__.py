"""Agents: sub-agents, each an ordinary session that works for one call of another one (ADR 0014)."""
