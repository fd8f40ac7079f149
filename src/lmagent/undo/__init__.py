"""The undo store: what calls change in a workspace, kept so that it can be taken back and done again."""

from lmagent.undo.limits import UndoLimits
from lmagent.undo.records import escaped, unescaped
from lmagent.undo.snapshots import WorkspaceSnapshots

__all__ = ["UndoLimits", "WorkspaceSnapshots", "escaped", "unescaped"]
