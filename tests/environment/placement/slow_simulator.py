"""A slow and plain simulator of placements in exact fractions, written from the description and not from the engine.

It looks at everything at every moment: there are no queues of events, no routes that are kept, and rates are found from
the definition of max-min fairness.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class SlowTensor:
    """storage: 0 computed by a task, 1 fed on a device, 2 a parameter of a task, 3 replicated."""

    storage: int
    owner: int
    size: int
    state: int
    kept: bool
    readers: list[int]


@dataclass
class SlowCopy:
    tensor: int
    source: int
    destination: int
    began: Fraction | None = None
    left: Fraction = Fraction(0)
    done: bool = False


@dataclass
class SlowStep:
    """One step of tasks with integer times and sizes, on devices with integer bandwidths and latencies."""

    task_ms: list[list[int]]
    workspace: list[int]
    tensors: list[SlowTensor]
    bandwidth: list[int]
    routes: list[list[list[int]]]
    latency: list[list[int]]
    placement: list[int]
    now: Fraction = Fraction(0)
    began: dict[int, Fraction] = field(default_factory=dict)
    ended: dict[int, Fraction] = field(default_factory=dict)
    ready: dict[int, Fraction] = field(default_factory=dict)
    copies: list[SlowCopy] = field(default_factory=list)
    peaks: list[Fraction] = field(default_factory=list)

    def run(self) -> Fraction:
        self.peaks = [Fraction(0)] * len(self.routes)
        while True:
            self._note_ready()
            self._start()
            self._note_memory()
            if len(self.ended) == len(self.task_ms) and all(copy.done for copy in self.copies):
                return self.now
            self._advance()

    def home(self, tensor: SlowTensor) -> int:
        return tensor.owner if tensor.storage == 1 else self.placement[tensor.owner]

    def is_at(self, number: int, device: int) -> bool:
        tensor = self.tensors[number]
        if tensor.storage == 3:
            return True
        if self.home(tensor) == device:
            return tensor.storage != 0 or tensor.owner in self.ended
        return any(copy.tensor == number and copy.destination == device and copy.done for copy in self.copies)

    def _note_ready(self) -> None:
        for task, device in enumerate(self.placement):
            read = [number for number, tensor in enumerate(self.tensors) if task in tensor.readers]
            if task not in self.ready and all(self.is_at(number, device) for number in read):
                self.ready[task] = self.now
        for number, tensor in enumerate(self.tensors):
            if tensor.storage == 3 or not self.is_at(number, self.home(tensor)):
                continue
            for reader in tensor.readers:
                way = (number, self.placement[reader])
                sent = [(copy.tensor, copy.destination) for copy in self.copies]
                if self.placement[reader] != self.home(tensor) and way not in sent:
                    self.copies.append(SlowCopy(number, self.home(tensor), self.placement[reader]))

    def _start(self) -> None:
        for device in range(len(self.routes)):
            tasks = [task for task, where in enumerate(self.placement) if where == device]
            if any(task in self.began and task not in self.ended for task in tasks):
                continue
            waiting = [(self.ready[task], task) for task in tasks if task in self.ready and task not in self.began]
            if waiting:
                self.began[min(waiting)[1]] = self.now
        busy = {(copy.source, copy.destination) for copy in self.copies if copy.began is not None and not copy.done}
        for copy in self.copies:
            if copy.began is None and (copy.source, copy.destination) not in busy:
                copy.began, copy.left = self.now, Fraction(self.tensors[copy.tensor].size)
                busy.add((copy.source, copy.destination))

    def _transfers(self) -> list[SlowCopy]:
        return [
            copy for copy in self.copies if copy.began is not None and not copy.done and self._opened(copy) <= self.now
        ]

    def _opened(self, copy: SlowCopy) -> Fraction:
        assert copy.began is not None
        return copy.began + self.latency[copy.source][copy.destination]

    def _rates(self) -> dict[int, Fraction]:
        """Raises all rates together until a channel is full, holds those that use it, and goes on with the others."""
        flows = {id(copy): self.routes[copy.source][copy.destination] for copy in self._transfers()}
        rates = dict.fromkeys(flows, Fraction(0))
        growing = set(flows)
        while growing:
            rises = {}
            for channel, width in enumerate(self.bandwidth):
                users = [flow for flow in flows if channel in flows[flow]]
                rising = [flow for flow in users if flow in growing]
                if rising:
                    rises[channel] = (width - sum((rates[flow] for flow in users), Fraction(0))) / len(rising)
            rise = min(rises.values())
            for flow in growing:
                rates[flow] += rise
            full = {channel for channel, each in rises.items() if each == rise}
            growing = {flow for flow in growing if not full & set(flows[flow])}
        return rates

    def _advance(self) -> None:
        rates = self._rates()
        moments = [
            self.began[task] + self.task_ms[task][self.placement[task]] for task in self.began if task not in self.ended
        ]
        for copy in self.copies:
            if copy.began is not None and not copy.done:
                opened = self._opened(copy)
                moments.append(opened if opened > self.now else self.now + copy.left / rates[id(copy)])
        then = min(moments)
        for copy in self._transfers():
            copy.left -= rates[id(copy)] * (then - self.now)
            copy.done = copy.left == 0
        self.now = then
        for task, begin in self.began.items():
            if task not in self.ended and begin + self.task_ms[task][self.placement[task]] == then:
                self.ended[task] = then

    def _note_memory(self) -> None:
        for device in range(len(self.peaks)):
            self.peaks[device] = max(self.peaks[device], Fraction(self._held(device)))

    def _held(self, device: int) -> int:
        running = [task for task in self.began if task not in self.ended and self.placement[task] == device]
        held = sum(self.workspace[task] for task in running)
        for number, tensor in enumerate(self.tensors):
            readers = [task for task in tensor.readers if self.placement[task] == device]
            if tensor.storage == 3:
                held += tensor.size if readers else 0
            elif self.home(tensor) != device:
                began = any(
                    copy.tensor == number and copy.destination == device and copy.began is not None
                    for copy in self.copies
                )
                held += tensor.size if began and any(task not in self.ended for task in readers) else 0
            elif tensor.storage == 2:
                held += tensor.size + tensor.state
            else:
                held += tensor.size if self._is_held_at_home(number, tensor, readers) else 0
        return held

    def _is_held_at_home(self, number: int, tensor: SlowTensor, readers: list[int]) -> bool:
        if tensor.storage == 0 and tensor.owner not in self.began:
            return False
        away = {self.placement[task] for task in tensor.readers} - {self.home(tensor)}
        sent = {copy.destination for copy in self.copies if copy.tensor == number and copy.done}
        unmade = tensor.storage == 0 and tensor.owner not in self.ended
        return tensor.kept or unmade or any(task not in self.ended for task in readers) or bool(away - sent)
