"""The query node: Arrow Flight SQL over Iceberg and the live log."""
