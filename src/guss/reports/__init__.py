"""Reports: tables and figures from stored records alone."""
