"""Service: lmagent as something the system starts with the user's login and keeps running."""
