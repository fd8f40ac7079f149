"""Sandbox: where commands run. One file a backend, and what they share."""
