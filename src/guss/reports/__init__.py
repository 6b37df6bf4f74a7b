"""Reports: tables, figures and an HTML page from stored records."""
