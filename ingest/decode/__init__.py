"""Decoding: bytes of a partition to Arrow, with every bad record kept apart."""
