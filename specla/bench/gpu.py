"""What an NVIDIA GPU says of itself, through NVML. Every fact is optional: a driver that refuses one leaves it None."""

import os
from collections.abc import Callable
from typing import Any

THROTTLE_REASONS = {
    0x001: "idle",
    0x002: "application_clocks",
    0x004: "power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "thermal_software",
    0x040: "thermal_hardware",
    0x080: "power_brake",
    0x100: "display_clocks",
}
"""NVML's bits of why clocks are below their maximum."""


def gpu_record(device: str) -> dict[str, Any]:
    """Name, driver, memory, clocks, throttling, temperature, power and other processes of a CUDA device.

    Args:
        device: `cuda` or `cuda:N`, as torch counts devices.

    Returns:
        The facts; with a `note` in their place where NVML does not answer. Without a GPU, the note alone.
    """
    uuid, name = _torch_device(device)
    known = {"name": name} if name else {}
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # ImportError, or one of NVML's own errors, a type for each code
        return {**known, "note": f"NVML does not answer ({type(error).__name__})"}
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else pynvml.nvmlDeviceGetHandleByIndex(0)
        return {**known, **_facts(pynvml, handle)}
    except pynvml.NVMLError as error:
        return {**known, "note": f"NVML does not know this device ({type(error).__name__})"}
    finally:
        pynvml.nvmlShutdown()


def _torch_device(device: str) -> tuple[str | None, str | None]:
    """(NVML's UUID, name) of torch's device. Torch's order of devices is not NVML's, so an index would not do."""
    import torch

    if not torch.cuda.is_available():
        return None, None
    facts = torch.cuda.get_device_properties(torch.device(device))
    uuid = getattr(facts, "uuid", None)
    return (None if uuid is None else f"GPU-{uuid}"), facts.name


def _facts(nvml: Any, handle: Any) -> dict[str, Any]:
    def ask(question: Callable[[], Any]) -> Any:
        try:
            return question()
        except (nvml.NVMLError, AttributeError):
            return None

    memory = ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    reasons = ask(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if reasons is None:
        reasons = ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
    return {
        "name": _text(ask(lambda: nvml.nvmlDeviceGetName(handle))),
        "driver": _text(ask(nvml.nvmlSystemGetDriverVersion)),
        "memory_gib": None if memory is None else round(memory.total / 2**30, 1),
        "memory_used_gib": None if memory is None else round(memory.used / 2**30, 1),
        "clocks": {
            "sm_mhz": ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "sm_max_mhz": ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "memory_mhz": ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            "memory_max_mhz": ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM)),
        },
        "throttling": None if reasons is None else throttling(reasons),
        "temperature_c": ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        "power_w": _watts(ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))),
        "power_limit_w": _watts(ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))),
        "other_processes": _others(ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))),
    }


def throttling(bits: int) -> str:
    """The reasons in NVML's bit mask by name, `none` where there is none."""
    names = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    unknown = bits & ~sum(THROTTLE_REASONS)
    return ", ".join(names + ([f"unknown {unknown:#x}"] if unknown else [])) or "none"


def _others(processes: Any) -> int | None:
    """How many processes compute on the device besides this one."""
    if processes is None:
        return None
    import torch

    pids = [process.pid for process in processes]
    # In a container NVML reports the host's process ids, so this process may stand there under another one.
    own = os.getpid() in pids or torch.cuda.is_initialized()
    return max(0, len(pids) - int(own))


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def _watts(milliwatts: Any) -> float | None:
    return None if milliwatts is None else round(milliwatts / 1000, 1)
