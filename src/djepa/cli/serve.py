"""`djepa serve`: a planner behind HTTP."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from djepa.cli.console import console

TOKEN = "DJEPA_TOKEN"  # not a flag: other users of a machine can see command lines


@dataclass(frozen=True)
class Serve:
    """Serve a planner over HTTP until Ctrl-C: arrays in, choices out; see docs/interop.md.

    Beyond this machine every request must bear the token that is in the variable DJEPA_TOKEN.
    """

    planner: Annotated[Path, Positional, arg(metavar="PLANNER")]
    """File that `djepa export` wrote."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8765
    """Port; 0 takes a free one."""
    queue: int = 4
    """Requests that are computed or wait; further ones are answered 503."""
    megabytes: int = 64
    """Largest request."""
    candidates: int = 4096
    """Most candidates of a request, over all its starts."""
    controls: int = 2**18
    """Most controls of a request, over all its candidates."""
    seconds: float = 30.0
    """Longest time to send a request, to wait for its turn, and to take the answer."""
    device: str = "cpu"
    """cpu or cuda."""

    def run(self) -> int:
        """Serve until interrupted."""
        from djepa.interop.requests import Limits
        from djepa.interop.serve import Server
        from djepa.lift.planner import load_planner

        limits = Limits(self.queue, self.megabytes, self.candidates, self.seconds, self.controls)
        planner = load_planner(self.planner, self.device)
        token = os.environ.get(TOKEN, "")
        with Server(planner, self.host, self.port, token, limits, self.device) as server:
            console.print(f"serving {self.planner} on http://{self.host}:{server.server_port}")
            server.serve_forever()
        return 0
