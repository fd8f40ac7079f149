"""Proof: whether a turn's changes are verified, by the checks that ran. Read `feature.py` first."""
