"""Automatic marks: the rules that place them in TTGIR and in PTX."""
