"""Self-contained HTML pages: one file, no network, and no script but their own."""
