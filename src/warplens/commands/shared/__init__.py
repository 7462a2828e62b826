"""Code that several verbs share: consoles and options, argument parsing, and tables of results."""
