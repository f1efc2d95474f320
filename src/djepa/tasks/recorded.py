"""Recorded episodes as a task: a geometry is trained on them, nothing is executed.

A folder of recorded episodes, which `djepa import` writes, can be named instead of a world for
training. Its state is one number, the frame; only the recorded controls are known, and none can be
executed. So it has no starts, candidates or success: checkpoints are chosen by the prediction loss
on held-out episodes.

FOLDER/
  manifest.json
  frames/BLOCK.safetensors  frames (n, S, S, 3) uint8, controls (n, A) float32, lengths (E,)

The control of a frame leads to the next one; the control of an episode's last frame is never used.

Legend: n frames, S side of a frame, A action width, E episodes.
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from djepa.artefacts.folder import Arrays, Folder, load_arrays
from djepa.artefacts.layout import Layout, check_blocks, check_layout
from djepa.artefacts.records import Kind, begins
from djepa.checks import check_int
from djepa.errors import DjepaError
from djepa.tasks.task import Task
from djepa.worlds.protocol import Floats

if TYPE_CHECKING:
    from torch import Tensor

HORIZON = 5  # strides of a candidate, as elsewhere
SEGMENT = 16  # strides of a training episode
RULE = "none"
SHARE = 10  # one episode in SHARE is held out, at least one
EXACT = 1 << 24  # frame numbers that float32 represents exactly
SHARD = "frames/{:06d}.safetensors"  # the file of some episodes
LAYOUT: Layout = {
    "frames": ("uint8", "n S S 3"),
    "controls": ("float32", "n A"),
    "lengths": ("int64", "E"),
}


class RecordedAbout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the manifest says of recorded episodes."""

    source: str  # of the imported episodes
    size: int  # px
    stride: int  # controls between two frames that a geometry sees
    most: int  # episodes read, from the first; 0: all
    actions: int
    episodes: int
    frames: int

    def __post_init__(self) -> None:
        for name, least in {"stride": 1, "most": 0}.items():
            check_int(name, getattr(self, name), least)
        if 0 < self.most < self.episodes:
            raise DjepaError(f"{self.episodes} episodes are more than the first {self.most}.")


RECORDED = Kind(
    "folder of recorded episodes",
    "djepa-recorded",
    1,
    RecordedAbout,
    shards=r"frames/\d{6}\.safetensors",
    again="Import it again into another folder.",
)


def is_recorded(path: Path) -> bool:
    """Whether a folder holds recorded episodes."""
    try:
        return begins(path) == RECORDED.format or bool(Folder(path, RECORDED).hash)
    except DjepaError:
        return False


class Recording:
    """All episodes: frames (n, S, S, 3), controls (n, A), first frames and lengths (E,)."""

    def __init__(self, path: Path) -> None:
        folder = Folder(path, RECORDED)
        self.path, self.about, self.hash = path, folder.about, folder.hash
        blocks = range(len(folder.manifest.files))
        check_blocks(folder, [SHARD], len(blocks))
        parts = [_block(folder, block) for block in blocks]
        self.frames, self.controls, self.lengths = (
            np.concatenate([part[name] for part in parts] or [np.empty(0)]) for name in LAYOUT
        )
        if (len(self.lengths), len(self.frames)) != (self.about.episodes, self.about.frames):
            raise DjepaError(
                f"{path} holds {len(self.lengths)} episodes and {len(self.frames)} frames, not "
                f"those that it should. {RECORDED.again}"
            )
        self.first = np.concatenate([[0], np.cumsum(self.lengths)[:-1]])

    def starts(self, held_out: bool) -> npt.NDArray[np.int64]:
        """Frames from which a whole segment follows, in held-out episodes or in the others."""
        need = SEGMENT * self.about.stride
        aside = np.arange(len(self.lengths)) % SHARE == 0
        found = [
            first + np.arange(length - need)
            for first, length, apart in zip(self.first, self.lengths, aside, strict=True)
            if apart == held_out and length > need
        ]
        if not found:
            kind = "set aside" if held_out else "to train on"
            raise DjepaError(
                f"{self.path}: no episode {kind} is longer than {need} controls. Import more "
                "episodes, or with a smaller --stride."
            )
        return np.concatenate(found)


def _block(folder: Folder, block: int) -> Arrays:
    """The arrays of one file of whole episodes."""
    name, about = SHARD.format(block), folder.about
    path = folder.path / name
    arrays, sizes = load_arrays(path, folder.read(name)), {"S": about.size, "A": about.actions}
    known = check_layout(path, arrays, LAYOUT, sizes, RECORDED.again)
    if arrays["lengths"].min() < 1 or arrays["lengths"].sum() != known["n"]:
        raise DjepaError(f"{path} does not hold whole episodes. {RECORDED.again}")
    return arrays


@lru_cache(maxsize=2)
def recording(path: str) -> Recording:
    """The recording in a folder, read once per process."""
    return Recording(Path(path))


class RecordedWorld:
    """A world that steps from frame to frame and ignores the control; execution is refused."""

    name, version, variant, rule, state_size = "recorded", 1, "recorded", RULE, 1

    def __init__(self, path: str, held_out: bool = False) -> None:
        self.recording = recording(path)
        self.action_size = self.recording.about.actions
        self.starts = self.recording.starts(held_out)
        self._frame = 0.0

    def restore(self, state: npt.ArrayLike) -> None:
        """Go to a frame (1,)."""
        self._frame = float(np.asarray(state).reshape(()))

    def snapshot(self) -> Floats:
        """(1,) the frame."""
        return np.array([self._frame])

    def step(self, control: npt.ArrayLike) -> Floats:
        """The next frame."""
        self._frame += 1.0
        return self.snapshot()

    def execute(self, state: npt.ArrayLike, controls: npt.ArrayLike) -> Floats:
        """Always raises: recorded episodes cannot be executed."""
        raise DjepaError("Recorded episodes cannot be executed with other controls.")


class Replay:
    """The behaviour that repeats the recorded controls."""

    def __init__(self, world: RecordedWorld, rng: np.random.Generator) -> None:
        self._controls = world.recording.controls

    def act(self, state: Floats) -> Floats:
        """(1,) frame -> (A,) the control that followed it."""
        return self._controls[int(state[0])].astype(np.float64)


def _first(world: RecordedWorld, rng: np.random.Generator) -> Floats:
    """(1,) a frame from which a whole segment follows."""
    return np.array([float(world.starts[int(rng.integers(len(world.starts)))])])


def _refuse(*_: Any) -> Any:
    raise DjepaError("Recorded episodes have no starts to choose from: nothing can be executed.")


@lru_cache(maxsize=2)
def _on(path: str, device: str) -> Tensor:
    """All frames on a device, where the training step indexes them."""
    import torch

    return torch.from_numpy(recording(path).frames).to(device)


def _observe(path: str, shape: str, states: Tensor, image: int, look: str) -> tuple[Tensor, Tensor]:
    """(N, 1) -> frames of side `image`; proprioception is (N, 4) zeros."""
    from torch.nn.functional import interpolate

    frames = _on(path, str(states.device))[states[:, 0].long()]
    if frames.shape[1] != image:
        planes = frames.permute(0, 3, 1, 2).float()
        planes = interpolate(planes, (image, image), mode="bilinear", antialias=True)
        frames = planes.round().clamp(0, 255).byte().permute(0, 2, 3, 1)
    return frames, states.new_zeros(len(states), 4).float()


def recorded_task(path: Path) -> Task:
    """The task of a folder of recorded episodes."""
    about = Folder(path, RECORDED).about
    return Task(
        name="recorded",
        version=1,
        engines=(),
        shapes=("recorded",),
        rules=(RULE,),
        profiles=(),
        make=lambda shape, rule: RecordedWorld(str(path)),
        horizon=HORIZON * about.stride,
        stride=about.stride,
        actions=about.actions,
        behaviours={"replay": Replay},
        explorer=Replay,
        initial_state=_first,
        drops=("replay",),
        draw_start=_refuse,
        pool=_refuse,
        observe=partial(_observe, str(path)),
        limit=float("inf"),
        validating=lambda world: RecordedWorld(str(path), held_out=True),
    )
