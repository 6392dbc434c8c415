"""What operators cost on a device: measured one signature at a time, kept in a database, and summed over graphs."""
