"""The `yaie` command with the child server in the engine's place. Run as a script."""

import sys
from pathlib import Path

from yaie.cli.main import main
from yaie_local.kubelet import containers

SERVER = Path(__file__).with_name("child_server.py")

if __name__ == "__main__":
    containers.PROGRAMS["yaie"] = (sys.executable, str(SERVER))
    sys.exit(main())
