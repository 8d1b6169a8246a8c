"""The science of a memory that forgets poison and repairs itself; knows no agent framework."""

__version__ = "0.1.0"
