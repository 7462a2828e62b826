"""What builds the documentation site: generated reference pages, the configuration of MkDocs, and the link check."""
