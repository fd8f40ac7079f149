"""The slash commands, by subject; each module is imported at the first look-up of a command."""
