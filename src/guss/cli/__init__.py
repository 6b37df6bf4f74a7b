"""The commands of the command line, one file each. Nothing heavy is imported before a command runs."""
