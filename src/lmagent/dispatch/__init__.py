"""The embedded dispatcher: the queue of a process, with lanes, repeats and rests."""
