"""The bytes that marks leave behind: record layout, launch buffer, region names and capture file."""
