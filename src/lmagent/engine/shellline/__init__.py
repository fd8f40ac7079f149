"""Shell lines, as permission rules see them: what a line runs, and whether a pattern allows or denies it."""
