"""Floor 5: parse arguments and pick a surface. Nothing heavy is imported at module level."""
