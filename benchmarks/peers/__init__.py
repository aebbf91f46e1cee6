"""What we measure ourselves against, each in a process of its own."""
