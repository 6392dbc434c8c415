"""Measured prices in an SQLite file."""
