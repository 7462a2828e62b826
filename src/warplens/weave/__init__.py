"""Marks to records: rewrite PTX whose marks are comments so that each mark records."""
