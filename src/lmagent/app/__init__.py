"""The only place that wires settings, adapters and features to a running host."""
