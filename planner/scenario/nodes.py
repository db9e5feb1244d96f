"""From a node as a scenario file says it to nodes with their GPUs, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from planner import quantities
from planner.gpu_models import known_memory_mib, mig_memory_mib
from planner.model import MIG_SEPARATOR, Gpu, Host, Node
from planner.scenario.files import GPUS_LIMIT, GPUS_PER_NODE_LIMIT, GpuSpec, Mig, NodeSpec, Shards

MIG_SLICES = 7  # https://docs.nvidia.com/datacenter/tesla/mig-user-guide: compute slices of the largest cards
SHARED_KEYS = tuple(Host.model_fields)


class SpecError(ValueError):
    """What is wrong with a node, at which key."""

    def __init__(self, key: str, text: str) -> None:
        self.key = key
        super().__init__(text)


def expand(spec: NodeSpec) -> list[Node]:
    """The nodes that a spec stands for, in order.

    Raises
    ------
    SpecError
        If a list by GPU has another length than there are GPUs, or MIG instances do not fit on the card.
    """
    cards = _cards(spec)
    partitions = _one_each("partition", spec.partition, len(cards))
    uuids = _one_each("uuids", spec.uuids or None, len(cards))
    unmanaged = _unmanaged(spec, len(cards))
    for i, index in enumerate(spec.unhealthy):
        if index >= len(cards):
            raise SpecError(f"unhealthy[{i}]", f"got {index}; accepted: {_indices(len(cards))}")
    told = {k: getattr(spec, k) for k in SHARED_KEYS if k in spec.model_fields_set and k != "name"}
    names = quantities.hostlist(spec.name)
    if len(names) * len(cards) > GPUS_LIMIT:
        raise SpecError(
            "gpus", f"{len(names) * len(cards)} GPUs on {len(names)} nodes; accepted: at most {GPUS_LIMIT}"
        )
    nodes = []
    for name in names:
        gpus: list[Gpu] = []
        for index, card in enumerate(cards):
            whole = {
                "node": name,
                "healthy": index not in spec.unhealthy,
                "unmanaged_memory_mib": unmanaged[index],
                "uuid": uuids[index],
            }
            gpus += _devices(index, card, partitions[index], whole)
        nodes.append(Node(name=name, gpus=tuple(gpus), **told))
    return nodes


def _cards(spec: NodeSpec) -> list[GpuSpec]:
    """One entry a GPU."""
    specs = spec.gpus if isinstance(spec.gpus, tuple) else (spec.gpus,)
    cards = [card for card in specs for _ in range(card.count)]
    if len(cards) > GPUS_PER_NODE_LIMIT:
        raise SpecError("gpus", f"{len(cards)} GPUs on one node; accepted: at most {GPUS_PER_NODE_LIMIT}")
    return cards


def _memory_mib(card: GpuSpec) -> int | None:
    """As stated, else what is known of the model."""
    return card.memory_mib if "memory_mib" in card.model_fields_set else known_memory_mib(card.model)


def _one_each(key: str, value: Any, gpus: int) -> Sequence[Any]:
    """A list by GPU as it is, any other value for every GPU."""
    if not isinstance(value, tuple):
        return [value] * gpus
    if len(value) != gpus:
        raise SpecError(key, f"got a list of {len(value)}; accepted: one for each of the {gpus} GPUs")
    return value


def _unmanaged(spec: NodeSpec, gpus: int) -> list[int | None]:
    """By GPU; those that a mapping does not name have none."""
    told = spec.unmanaged_gpu_memory_mib
    if not isinstance(told, dict):
        return [told] * gpus
    for index in told:
        if index >= gpus:
            raise SpecError("unmanaged_gpu_memory_mib", f"got the GPU {index}; accepted: {_indices(gpus)}")
    return [told.get(i, 0) for i in range(gpus)]


def _indices(gpus: int) -> str:
    return f"0 to {gpus - 1}" if gpus else "none, the node has no GPUs"


def _devices(index: int, card: GpuSpec, partition: Any, whole: dict[str, Any]) -> Iterator[Gpu]:
    """What a card offers: itself, or its MIG instances."""
    if not isinstance(partition, Mig):
        shards = partition.shards if isinstance(partition, Shards) else None
        yield Gpu(slot=str(index), model=card.model, memory_mib=_memory_mib(card), shards=shards, **whole)
        return
    _check_mig(card, partition)
    for profile, count in partition.mig.items():
        for number in range(count):
            yield Gpu(
                slot=MIG_SEPARATOR.join((str(index), profile, str(number))),
                model=f"{card.model}{MIG_SEPARATOR}{profile}",
                memory_mib=mig_memory_mib(profile),
                **(whole | {"uuid": None}),  # the UUID is the card's, an instance has its own
            )


def _check_mig(card: GpuSpec, partition: Mig) -> None:
    """The instances are on the card at the same time."""
    slices, memory = 0, 0
    for profile, count in partition.mig.items():
        size = mig_memory_mib(profile)
        if size is None:
            raise SpecError("partition.mig", f"got {profile!r}; accepted: profiles such as 1g.5gb or 3g.40gb")
        slices += count * int(profile.split("g", 1)[0])
        memory += count * size
    if slices > MIG_SLICES:
        raise SpecError("partition.mig", f"{slices} compute slices; accepted: at most {MIG_SLICES} on a card")
    has = _memory_mib(card)
    if has is not None and memory > has:
        raise SpecError("partition.mig", f"instances of {memory} MiB; accepted: at most the card's {has} MiB")


def collapse(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Specs that expand to these nodes; neighbours that differ only in a running number become one range."""
    specs: list[dict[str, Any]] = []
    for shape, group in groupby(nodes, key=_shape):
        alike = list(group)
        for names in _runs([n.name for n in alike]):
            specs.append({"name": names, **shape})
    return specs


def _shape(node: Node) -> dict[str, Any]:
    """A node's spec but for its name, without what is the default.

    Raises
    ------
    ValueError
        If no spec says this node.
    """
    told = node.model_dump(mode="json", exclude_defaults=True, include=set(SHARED_KEYS) - {"name"})
    spec = {**_gpu_specs(node), **told}
    if expand(NodeSpec.model_validate({"name": node.name, **spec})) != [node]:
        raise ValueError(f"node {node.name} is more than a scenario file can say; a snapshot file can")
    return spec


def _gpu_specs(node: Node) -> dict[str, Any]:
    """GPUs, partition, health and foreign memory, by card."""
    cards = [list(devices) for _, devices in groupby(node.gpus, key=lambda g: g.index)]
    spec: dict[str, Any] = {}
    models = [
        {"model": a, "count": len(list(same)), "memory_mib": b}
        for (a, b), same in groupby(map(_card_of, cards), key=lambda card: card)
    ]
    if models:
        spec["gpus"] = models[0] if len(models) == 1 else models
    unhealthy = [i for i, card in enumerate(cards) if not card[0].healthy]
    if unhealthy:
        spec["unhealthy"] = unhealthy
    foreign = [card[0].unmanaged_memory_mib for card in cards]
    if any(x != 0 for x in foreign):
        alike = len(set(foreign)) == 1
        spec["unmanaged_gpu_memory_mib"] = (
            foreign[0] if alike else {i: x for i, x in enumerate(foreign) if x != 0}
        )
    partitions = [_partition_of(card) for card in cards]
    if any(p != "whole" for p in partitions):
        spec["partition"] = partitions[0] if all(p == partitions[0] for p in partitions) else partitions
    if any(g.uuid for g in node.gpus):
        spec["uuids"] = [card[0].uuid for card in cards]
    return spec


def _card_of(devices: list[Gpu]) -> tuple[str, int | None]:
    """Model and memory of the whole card."""
    model, mig, _ = devices[0].model.partition(MIG_SEPARATOR)
    return model, known_memory_mib(model) if mig else devices[0].memory_mib


def _partition_of(devices: list[Gpu]) -> Any:
    """How a card is divided."""
    if not devices[0].is_mig:
        return "whole" if devices[0].shards is None else {"shards": devices[0].shards}
    profiles = [g.slot.split(MIG_SEPARATOR)[1] for g in devices]
    return {"mig": {p: profiles.count(p) for p in dict.fromkeys(profiles)}}


def _runs(names: list[str]) -> Iterator[str]:
    """Names as host lists: numbers that follow each other become a range."""
    start = 0
    for end in range(1, len(names) + 1):
        if end == len(names) or _successor(names[end - 1]) != names[end]:
            yield _range(names[start], names[end - 1])
            start = end


def _split(name: str) -> tuple[str, str]:
    """A name's stem and the digits it ends on."""
    stem = name.rstrip("0123456789")
    return stem, name[len(stem) :]


def _successor(name: str) -> str | None:
    stem, digits = _split(name)
    return stem + str(int(digits) + 1).zfill(len(digits)) if digits else None


def _range(first: str, last: str) -> str:
    if first == last:
        return first
    stem, low = _split(first)
    return f"{stem}[{low}-{last[len(stem) :]}]"
