"""Bundled data, written for this project: an agent memory and an attack on it."""
