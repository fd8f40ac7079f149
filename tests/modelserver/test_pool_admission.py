"""Who may run, what is loaded, what has to go: properties of the decisions over whole histories."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from testkit.amount import examples

from lmagent.modelserver.pool.admission import PoolSnapshot, ResidentModel, Want, decide

SIZES = {"a": 3, "b": 3, "c": 2, "d": 5, "e": 1, "huge": 99}
BUDGET = 6


@dataclass
class Life:
    phase: str = "loading"
    memory: int = 0
    active: int = 0
    used: float = 0.0
    fresh: bool = False


@dataclass
class World:
    """A pool without processes: decisions are applied, and checked as they come."""

    budget: int = BUDGET
    lives: dict[str, Life] = field(default_factory=dict)
    queue: list[Want] = field(default_factory=list)
    granted: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    tickets: int = 0
    time: float = 0.0
    loads: int = 0

    def decide(self) -> None:
        self.time += 1
        residents = [
            ResidentModel(name, life.phase, life.memory, SIZES[name], life.active, life.used, life.fresh)
            for name, life in self.lives.items()
        ]
        decision = decide(PoolSnapshot(self.budget, residents, self.queue))
        wants = {want.ticket: want for want in self.queue}
        assert len(set(decision.grants)) == len(decision.grants)
        assert not set(decision.grants) & set(decision.refusals)
        for name in decision.wakes:
            self.lives[name].phase, self.lives[name].memory = "ready", SIZES[name]
        for ticket in decision.grants:
            life = self.lives[wants[ticket].name]
            assert life.phase == "ready", "only what is loaded is given away"
            life.active, life.used, life.fresh = life.active + 1, self.time, False
        for name in decision.evictions:
            assert self.lives[name].active == 0, "what runs is never evicted"
            assert self.lives[name].phase in ("ready", "sleeping")
            self.lives[name].phase = "stopping"
        for name in decision.starts:
            assert name not in self.lives, "one worker a model"
            self.lives[name] = Life(memory=SIZES[name])
            self.loads += 1
        assert sum(life.memory for life in self.lives.values()) <= self.budget, "never over the budget"
        for life in self.lives.values():
            life.fresh = False
        for ticket in decision.refusals:
            assert SIZES[wants[ticket].name] > self.budget
        self.granted += decision.grants
        self.refused += decision.refusals
        done = {*decision.grants, *decision.refusals}
        self.queue = [want for want in self.queue if want.ticket not in done]

    def come(self, name: str) -> int:
        self.tickets += 1
        self.queue.append(Want(self.tickets, name, SIZES[name]))
        self.decide()
        return self.tickets

    def cancel(self, index: int) -> None:
        if self.queue:
            self.queue.pop(index % len(self.queue))
            self.decide()

    def finish(self, index: int) -> None:
        busy = [life for life in self.lives.values() if life.active]
        if busy:
            life = busy[index % len(busy)]
            life.active -= 1
            life.used = self.time if not life.active else life.used
            self.decide()

    def progress(self, index: int) -> None:
        """Something that takes time is done: a load (which may fail), or an end."""
        moving = [name for name, life in self.lives.items() if life.phase in ("loading", "stopping")]
        if moving:
            name = moving[index % len(moving)]
            if self.lives[name].phase == "stopping":
                if self.lives[name].active:
                    return
                del self.lives[name]
            else:
                self.lives[name].phase, self.lives[name].fresh = "ready", True
            self.decide()

    def crash(self, index: int) -> None:
        if self.lives:
            del self.lives[list(self.lives)[index % len(self.lives)]]
            self.decide()

    def sleep(self, index: int) -> None:
        idle = [life for life in self.lives.values() if life.phase == "ready" and not life.active]
        if idle:
            life = idle[index % len(idle)]
            life.phase, life.memory = "sleeping", 0
            self.decide()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["come", "come", "come", "finish", "finish", "progress", "progress", "cancel", "crash", "sleep"]
        ),
        st.integers(0, 30),
    ),
    max_size=60,
)
NAMES = list(SIZES)


def play(world: World, steps) -> None:
    for kind, number in steps:
        if kind == "come":
            world.come(NAMES[number % len(NAMES)])
        else:
            getattr(world, kind)(number)


@given(STEPS)
@settings(max_examples=examples(400), deadline=None)
def test_no_history_breaks_the_budget_evicts_what_runs_or_leaves_anyone_waiting_for_ever(steps):
    world = World()
    play(world, steps)
    for _ in range(40 * (len(steps) + 2)):  # from here on nobody comes; each thing that takes time is done in turn
        if not world.queue:
            break
        world.progress(0)
        world.finish(0)
    assert not world.queue, "whoever waits is served once what runs is done"


@given(STEPS)
@settings(max_examples=examples(200), deadline=None)
def test_a_second_look_at_the_same_state_finds_nothing_to_do(steps):
    world = World()
    play(world, steps)
    world.decide()
    before = (len(world.granted), world.loads, len(world.queue), [life.phase for life in world.lives.values()])
    world.decide()
    assert before == (len(world.granted), world.loads, len(world.queue), [life.phase for life in world.lives.values()])


@given(STEPS, st.lists(st.sampled_from(["a", "b", "c", "e"]), min_size=40, max_size=80))
@settings(max_examples=examples(200), deadline=None)
def test_a_request_is_served_however_many_others_keep_coming(steps, crowd):
    world = World()
    play(world, steps)
    ticket = world.come("d")  # needs nearly everything
    for name in crowd * 30:
        world.come(name)
        world.progress(0)
        for _ in range(4):
            world.finish(0)
        if ticket in world.granted:
            return
    raise AssertionError("it starved")


@given(STEPS)
@settings(max_examples=examples(200), deadline=None)
def test_requests_of_one_model_run_in_the_order_of_their_coming(steps):
    world = World()
    names: dict[int, str] = {}
    for kind, number in steps:
        if kind == "come":
            name = NAMES[number % len(NAMES)]
            names[world.tickets + 1] = name
            world.come(name)
        elif kind != "crash":
            getattr(world, kind)(number)
    for name in NAMES:
        order = [ticket for ticket in world.granted if names[ticket] == name]
        assert order == sorted(order)


def test_two_models_in_a_memory_for_one_are_swapped_once_a_batch():
    world = World(budget=3)
    for _ in range(25):
        world.come("a")
        world.come("b")
    for _ in range(200):
        world.progress(0)
        world.finish(0)
    assert world.queue == []
    assert world.loads == 2


def test_behind_a_blocked_request_its_victims_take_no_more_and_others_do():
    world = World()
    world.come("a")
    world.progress(0)
    world.come("e")
    world.progress(0)
    blocked = world.come("d")  # 5 of 6: `e` may stay
    assert blocked not in world.granted
    late = world.come("a")
    assert late not in world.granted
    other = world.come("e")
    assert other in world.granted
    world.finish(0)
    world.progress(0)
    world.progress(0)
    assert blocked in world.granted
    assert world.lives["e"].active == 2


def test_the_least_recently_used_idle_model_goes_and_none_needlessly():
    residents = [
        ResidentModel("old", "ready", 2, used=1.0),
        ResidentModel("new", "ready", 2, used=3.0),
        ResidentModel("busy", "ready", 2, active=1, used=0.5),
    ]
    assert decide(PoolSnapshot(6, residents, [Want(1, "x", 1)])).evictions == ["old"]
    assert decide(PoolSnapshot(6, residents, [Want(1, "x", 3)])).evictions == ["old", "new"]
    sizes = [ResidentModel("small", "ready", 1, used=1.0), ResidentModel("large", "ready", 5, used=2.0)]
    assert decide(PoolSnapshot(6, sizes, [Want(1, "x", 5)])).evictions == ["large"]


def test_one_that_grew_beyond_the_budget_while_alone_is_woken_all_the_same():
    asleep = ResidentModel("a", "sleeping", 1, needed=9)
    decision = decide(PoolSnapshot(6, [asleep], [Want(1, "a", 4)]))
    assert decision.wakes == ["a"]
    assert decision.grants == [1]
