"""The checker behind annotated shapes: whole numbers pass for floats, as type checkers have it."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
