"""Planning: the views on a session's tasks, plan mode and deep work. All of it is data of the one loop (ADR 0014)."""
