"""Typed verbs over rows of the offset table."""
