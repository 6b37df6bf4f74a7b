"""The generated parts of README.md and docs/: `pages.py` rewrites them, the other files write their texts."""
