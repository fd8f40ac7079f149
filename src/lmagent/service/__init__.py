"""Service: lmagent as a program that the system starts with the user's login and keeps running."""
