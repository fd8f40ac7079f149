"""`python -m lmagent.testing`: the scripted model server as a program."""

from lmagent.testing.serve import main

main()
