"""The command line ``dream``: one file per command; builds, wires, prints."""
