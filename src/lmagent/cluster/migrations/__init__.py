"""The steps that make the schema of the cluster's database."""
