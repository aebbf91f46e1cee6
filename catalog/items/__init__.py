"""The conditional item table and its backends."""
