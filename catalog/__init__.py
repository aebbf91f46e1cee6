"""The control plane: conditional items, offsets, and the Iceberg catalog over them."""
