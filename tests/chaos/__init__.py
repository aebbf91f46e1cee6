"""Lasting proofs: real processes killed at random for as long as one likes."""
