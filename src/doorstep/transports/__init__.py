"""Transports: the only code that connects to receivers or runs the application's handlers."""
