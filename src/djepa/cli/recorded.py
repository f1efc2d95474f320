"""`djepa import`: somebody's recorded episodes, to train on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console


@dataclass(frozen=True)
class ImportEpisodes:
    """Read recorded episodes into a folder that `djepa train FOLDER` takes. Run again to resume."""

    format: Annotated[str, Positional, arg(metavar="FORMAT")]
    """lerobot (LeRobotDataset v3), hdf5 or lance (stable-worldmodel)."""
    path: Annotated[Path, Positional, arg(metavar="DATA")]
    """The data set: a folder, of hdf5 a file."""
    out: Path = Path("runs/recorded")
    """Folder for the episodes."""
    pixels: str = ""
    """Camera or column of frames; the first camera, or pixels."""
    action: str = "action"
    """Column of controls."""
    size: int = 112
    """Pixels of a stored frame: the middle square of the recorded one, scaled."""
    stride: int = 5
    """Controls between two frames that a geometry sees."""
    episodes: int = 0
    """The first so many; 0: all of them. All frames must fit into memory."""

    def run(self) -> int:
        """Read, and say what was written."""
        from djepa.artefacts.folder import Folder
        from djepa.interop.recorded import Columns, import_episodes
        from djepa.tasks.recorded import RECORDED

        columns = Columns(self.pixels, self.action)
        sizes = {"size": self.size, "stride": self.stride, "most": self.episodes}
        import_episodes(self.format, self.path, self.out, columns, lambda *_: None, **sizes)
        about = Folder(self.out, RECORDED).about
        console.print(
            f"{about.episodes} episodes, {about.frames} frames, controls of {about.actions} numbers"
        )
        console.print(f"train on them: djepa train {self.out} --out runs/weights/own")
        return 0
