"""`djepa convert`: read a checkpoint profile of the published release."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console

if TYPE_CHECKING:
    from djepa.lift.official import Profile
    from djepa.models.lewm import LeWM


@dataclass(frozen=True)
class Convert:
    """Turn a profile of the published release into an alignment, patch, geometry or planner."""

    folder: Annotated[Path, Positional, arg(metavar="FOLDER")]
    """Folder of the profile: model.pt and config.json."""
    out: Path = Path("runs/converted")
    """Folder for what it becomes."""
    profile: str = ""
    """Name of the profile, where the folder is called something else; such as pusht-relational."""
    weights: tuple[float, ...] = ()
    """Weights of the ranks of the base score, where the profile does not hold them."""
    base: Path | None = None
    """pusht-predictive-adaptation: folder of the TD-JEPA that was adapted."""

    def run(self) -> int:
        """Convert, save, say what it is."""
        from djepa.errors import DjepaError
        from djepa.lift.official import read_profile

        if self.out.exists() and any(self.out.iterdir()):
            raise DjepaError(f"{self.out} is not empty. Choose another --out.")
        profile = read_profile(self.folder, self.profile)
        console.print(f"{profile.name}: {self._convert(profile)}")
        console.print(f"{self.out}")
        return 0

    def _convert(self, profile: "Profile") -> str:
        from djepa.align.plastic import save_patch
        from djepa.align.store import save_alignment
        from djepa.lift import official
        from djepa.lift.head import save_head
        from djepa.models.weights import save_geometry

        card = {"profile": profile.name, "config": profile.config}
        if profile.name in official.ALIGNMENTS:
            save_alignment(official.to_alignment(profile, self.weights), self.out, card)
            return "an alignment; use it with djepa decide"
        if profile.name == official.PATCH:
            save_patch(official.to_patch(profile, self._base()), self.out)
            return "a patch of TD-JEPA"
        if profile.name == official.GEOMETRY:
            save_geometry(official.to_geometry(profile), self.out, card)
            return "a geometry; use it with djepa predict --geometry"
        if profile.name == official.TRANSPORT:
            save_head(official.to_transport(profile), self.out, card)
            return "a transport head"
        parts = official.to_parts(profile)
        if parts.transport is not None:
            save_head(parts.transport, self.out / "transport", card)
        for name, model in parts.geometries.items():
            save_geometry(model, self.out / "geometries" / name, card)
        save_alignment(parts.alignment, self.out / "alignment", card)
        return "two geometries and an alignment; put them together with djepa export"

    def _base(self) -> "LeWM":
        from djepa.errors import DjepaError
        from djepa.models.lewm import LeWM
        from djepa.models.weights import load_geometry

        if self.base is None:
            raise DjepaError("A patch belongs to weights: give the TD-JEPA it adapts with --base.")
        model = load_geometry(self.base)
        if not isinstance(model, LeWM):
            raise DjepaError(f"{self.base} holds a {model.name}; a patch adapts a TD-JEPA.")
        return model
