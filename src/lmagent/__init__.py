"""lmagent: a locally-hosted AI agent.

Importing the package is free: it loads nothing but itself.
"""

__version__ = "0.1.0"
