"""`guss init`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from guss.errors import GussError
from guss.files import check_folder, writing
from guss.plugins import shipped

FILES = ("README.md", "system.py", "known.py", "preset.toml")


@dataclass
class InitCommand:
    """Write a project template: a custom system with comments, and a preset; it runs without changes.

    guss init my_project
    """

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """Folder to write to; existing files are not overwritten."""

    def run(self) -> None:
        """Write the files and print the next commands."""
        check_folder(self.folder)
        there = [name for name in FILES if (self.folder / name).exists()]
        if there:
            raise GussError(
                f"{self.folder} already contains {', '.join(there)}, which are not overwritten; choose another folder"
            )
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for name in FILES:
                (self.folder / name).write_text((shipped("examples/project")[0] / name).read_text())
        print(f"wrote {', '.join(FILES)} to {self.folder}")
        print(f"next: cd {self.folder}")
        print("      guss check-env system.py:make_env")
        print("      guss run --env system.py:make_env --preset preset.toml --seeds 3 --against random")
