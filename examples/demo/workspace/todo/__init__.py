"""A to-do list that lives in one text file."""

from todo.item import Item
from todo.store import Store

__all__ = ["Item", "Store"]
