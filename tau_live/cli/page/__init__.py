"""The page of ``tau-live report``: facts become figures and tables, and these one HTML file."""
