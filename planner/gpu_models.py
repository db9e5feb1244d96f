"""One name for each GPU model: NVML's, Kubernetes' labels', traces' and people's spellings lead to it.

Canonical names are lower case, with the memory where a model comes in two sizes (``a100-40gb``); a MIG instance
is ``model:profile`` (``a100-40gb:1g.5gb``). A name that is not in the table is kept, in lower case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class KnownModel:
    """What the table knows of a model.

    ``memory_mib`` is the total that NVML (nvidia-smi, the label ``nvidia.com/gpu.memory``) gives for the whole card
    under drivers from 510 on, with ECC on where the card has it; older drivers leave their own reserve, up to 700 MiB,
    out of it. A cluster that knows better states its own. None: the name leaves it open.
    """

    memory_mib: int | None
    aliases: tuple[str, ...]


#: Aliases are as ``_plain`` leaves them: lower case, hyphens, no maker, no ``sxm4``, ``pcie`` and the like.
#: Where a spelling leaves the size open (``a100``), it stays a model of its own, of unknown size.
KNOWN: dict[str, KnownModel] = {
    "k80": KnownModel(11441, ("gk210", "k80-12gb")),
    "m40": KnownModel(None, ()),
    "p4": KnownModel(7680, ("p4-8gb",)),
    "p40": KnownModel(23040, ("p40-24gb",)),
    "p100-12gb": KnownModel(12288, ()),
    "p100": KnownModel(16384, ("p100-16gb",)),
    "v100": KnownModel(None, ()),
    "v100-16gb": KnownModel(16384, ("v100m16", "v100-16g", "v100-16")),
    "v100-32gb": KnownModel(32768, ("v100m32", "v100-32g", "v100-32", "v100s-32gb", "v100s")),
    "t4": KnownModel(15360, ("t4-16gb", "t4-16g", "t4g")),
    "a2": KnownModel(15356, ()),
    "a10": KnownModel(23028, ("a10-24gb", "a10-24g")),
    "a10g": KnownModel(23028, ("a10g-24gb",)),
    "a16": KnownModel(15356, ()),
    "a30": KnownModel(24576, ("a30-24gb",)),
    "a40": KnownModel(46068, ("a40-48gb", "a40-48q")),
    "a100": KnownModel(None, ()),
    "a100-40gb": KnownModel(40960, ("a100-40g", "a100-40")),
    "a100-80gb": KnownModel(81920, ("a100-80g", "a100-80", "a100x")),
    "a800-80gb": KnownModel(81920, ("a800", "a800-80g")),
    "h100": KnownModel(81559, ("h100-80gb", "h100-80g", "h100-80", "h100-80gb-hbm3", "h100-hbm3")),
    "h100-94gb": KnownModel(95830, ("h100-nvl", "h100-94g")),
    "h800": KnownModel(81559, ("h800-80gb",)),
    "h20": KnownModel(97871, ("h20-96gb",)),
    "h200": KnownModel(143771, ("h200-141gb", "h200-nvl")),
    "b200": KnownModel(183359, ("b200-180gb", "b200-192gb")),
    "l4": KnownModel(23034, ("l4-24gb",)),
    "l40": KnownModel(46068, ("l40-48gb",)),
    "l40s": KnownModel(46068, ("l40s-48gb",)),
    "gtx-1080-ti": KnownModel(11264, ("1080ti", "gtx1080ti", "1080-ti")),
    "rtx-2080-ti": KnownModel(11264, ("2080ti", "rtx2080ti", "2080-ti")),
    "rtx-3090": KnownModel(24576, ("3090", "rtx3090")),
    "rtx-4090": KnownModel(24564, ("4090", "rtx4090")),
    "rtx-a6000": KnownModel(46068, ("a6000", "rtxa6000")),
}

ALIASES = {alias: model for model, known in KNOWN.items() for alias in known.aliases}
_PREFIXES = re.compile(r"^(?:nvidia-)?(?:tesla-|geforce-|quadro-|graphics-device-)?")
_BOARDS = re.compile(r"-(?:sxm\d?|sxm-\d|pcie?|pg5\d\d?|dgxs|fhhl|shared|mps)(?=-|$)")
_MIG_LABEL = re.compile(r"(?:-mig-|:(?:mig-)?)(\d+c?\.?\d*g\.\d+gb(?:\+[a-z.]+)?)$")
_MIG_NAME = re.compile(r"\d+g\.\d+gb(?:\+[a-z.]+)?")
_SIZE = re.compile(r"-\d+gb$")
_JOINED_SIZE = re.compile(r"^(.+?)-?(\d+)-?(?:gib|gb|g)$")


def canonical_model(name: Any) -> Any:
    """The model's one name. A value that is no text is returned as it is, for ``quantities.name`` to refuse."""
    if not isinstance(name, str):
        return name
    text = name.lower() if name != name.strip() else "-".join(name.lower().replace("_", "-").split())
    mig = _MIG_LABEL.search(text)
    if mig:
        return f"{_of_card(text[: mig.start()])}:{mig[1]}"
    return _of_card(text)


def _of_card(text: str) -> str:
    """The one name of a whole card."""
    plain = _plain(text)
    if not plain:
        return text
    if plain in KNOWN:
        return plain
    if plain in ALIASES:
        return ALIASES[plain]
    sized = _JOINED_SIZE.match(plain)
    joined = f"{sized[1]}-{sized[2]}gb" if sized else plain
    if joined in KNOWN:
        return joined
    return ALIASES.get(joined, plain)


def _plain(text: str) -> str:
    """Without the maker's, the line's and the board's name."""
    return _BOARDS.sub("", _PREFIXES.sub("", text)).strip("-")


def without_size(model: str) -> str:
    """A canonical model's name without a memory size or MIG profile: ``v100-16gb`` is a ``v100``."""
    return _SIZE.sub("", model.partition(":")[0])


def known_memory_mib(model: str) -> int | None:
    """Memory of a canonical model where it is well known; a MIG instance is not in the table."""
    known = KNOWN.get(model)
    return known.memory_mib if known else None


def mig_memory_mib(profile: str) -> int | None:
    """Memory of a MIG profile, from its name: ``1g.5gb`` -> 4864.

    An instance has a little less than its name says, 4.75 GiB for ``5gb`` in NVIDIA's MIG user guide; 95 % of the
    name is never more than the card gives.
    """
    if not _MIG_NAME.fullmatch(profile):
        return None
    named_gib = int(profile.split(".", 1)[1].split("gb", 1)[0])
    return int(named_gib * 1024 * 0.95)
