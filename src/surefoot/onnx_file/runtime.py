"""The one import of onnxruntime. It reports usage to its makers within seconds of being imported, unless this is set first."""

import os
from typing import Any

from surefoot.errors import MissingExtra

SILENT = (
    "ORT_DISABLE_TELEMETRY"  # read by onnxruntime when it is loaded; its own disable_telemetry_events() comes too late
)


def runtime(what: str = "running an ONNX file") -> Any:
    """onnxruntime, which opens no connection; whoever sets the variable themselves has decided otherwise."""
    os.environ.setdefault(SILENT, "1")
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra(what, "export") from None
    return onnxruntime
