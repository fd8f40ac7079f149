"""Generated conversations with questions about them, for `memory.py`: no text of any real conversation.

They follow what LoCoMo's conversations are. The rules were written before any figure of the test half was taken:

- Two friends talk in 20 sessions over a year; a session begins with greetings by name and ends with goodbyes.
- A session has two topics, small talk between them, and comes back to a topic of an earlier day.
- A topic is an event of one friend. One turn tells it. Then the other asks about it three or four times, with its name
  in two of five, and the answers tell more. One turn in three calls the other by name; statements may end with a
  question in return.
- Both friends have events of the same kinds, some the same ones: these distract, and so does small talk on the matter.
- Each question names the speaker. Single-hop (7 of 10): a detail of an event, which it names; the evidence is the
  answer. Temporal: when an event was; the turn that tells it. Multi-hop: all events of a kind; the turns that tell
  them. Open: a conclusion from events of a kind; the turns that tell them.
- Questions were written from the answers, as an annotator would do it; about half of them share a word with the answer.
- How often an answer names its event, and a turn the kind of its event, was set on the tuning half so that plain FTS5
  finds there about what it finds in LoCoMo (R@10 .56, LoCoMo .54). Nothing else was set by a figure.
- Half of the subjects, and their own seeds, are for tuning. The figures are of the other half.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from memory_domains import DOMAINS, Domain

NAMES = (
    *("Ana", "Bruno", "Clara", "Dario", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas"),
    *("Kira", "Luca", "Mona", "Nils", "Olga", "Pavel", "Rosa", "Sami", "Tara", "Viktor"),
)
FILLERS = {
    "d": ["40", "75", "120", "180", "310", "90", "65", "240"],
    "w": ["Pepper", "Okan", "Maple", "Ferreira", "Sorrel", "Lindqvist", "Juno", "Hargreaves"],
    "o": ["passport", "camera", "umbrella", "headphones"],
    "y": ["Monday", "Tuesday", "Thursday", "Friday"],
    "f": ["Dumplings", "Lentil stew", "Pancakes", "Paella"],
}
HELLO = [
    "Hi {o}! It has been a while.",
    "Hey {o}, how are you?",
    "Good to hear from you, {o}!",
    "Hello {o}, busy week?",
]
BYE = ["Talk soon, {o}!", "I have to run, bye!", "Take care, {o}!", "Say hello to everyone!"]
CALLS = ["Thanks, {o}!", "Wow, {o}!", "Oh {o}!", "You know, {o},", "Totally agree, {o}.", "Haha, {o}, right."]
TAILS = [
    "I did not expect that.",
    "It was quite a week.",
    "I will show you the pictures some day.",
    "Life is full of surprises.",
    "It felt good to say it out loud.",
    "That is how it goes.",
    "I am so grateful.",
    "One step after the other.",
]
BACK = [
    "What about you?",
    "What have you been up to?",
    "Can you imagine?",
    "Isn't that something?",
    "How is your week going?",
]
REACTIONS = [
    "That sounds great, tell me more.",
    "Really? How wonderful.",
    "I am so happy for you!",
    "That must have meant a lot to you.",
    "You should be proud of yourself.",
    "Oh no, poor you.",
    "That is so inspiring.",
]
SMALL = [
    "The weather has been awful here.",
    "Did you see the game?",
    "The bus was late again.",
    "I cooked too much soup.",
    "Let us meet soon!",
    "My phone is almost empty.",
    "It is getting dark so early now.",
]
NAMED, KIND = 0.75, 0.7
"""How often an answer names its event, and a turn that tells an event names its kind."""

LATER = ["Last time you spoke of {x}.", "I have been thinking of {x} again.", "By the way, any news of {x}?"]


@dataclass
class Turn:
    id: str
    text: str
    ts: float
    session: str
    speaker: str


@dataclass
class Question:
    text: str
    category: str
    evidence: list[str]


@dataclass
class Talk:
    turns: list[Turn] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)


@dataclass
class Topic:
    domain: Domain
    speaker: str
    event: tuple[str, str]
    aspects: list[tuple[str, str, str]]  # those not spoken of yet


def talk(seed: int, tuning: bool, sessions: int = 20) -> Talk:
    """Return one conversation; the same for the same arguments."""
    half = len(DOMAINS) // 2
    maker = _Maker(random.Random(f"{tuning} {seed}"), DOMAINS[:half] if tuning else DOMAINS[half:])
    topics = maker.topics(sessions * 2)
    for number in range(sessions):
        maker.session(number, topics[number * 2 : number * 2 + 2])
    maker.ask_about_all()
    return maker.talk


class _Maker:
    def __init__(self, rng: random.Random, domains: list[Domain]) -> None:
        self.talk = Talk()
        self.rng, self.domains = rng, domains
        self.pair = rng.sample(NAMES, 2)
        self.now = datetime(2024, 1, 5, 18, 0, tzinfo=UTC)
        self.name, self.turns = "", 0
        self.told: list[tuple[Topic, str]] = []

    def topics(self, most: int) -> list[Topic]:
        found: list[Topic] = []
        for domain in self.domains:
            for speaker in self.pair:
                aspects = self.rng.sample(domain.aspects, len(domain.aspects))
                events = self.rng.sample(domain.events, self.rng.choice((3, 3, 4)))
                # An aspect comes up with two events at most.
                found += [Topic(domain, speaker, event, aspects[i % 3 :: 2]) for i, event in enumerate(events)]
        self.rng.shuffle(found)
        return found[:most]

    def session(self, number: int, topics: list[Topic]) -> None:
        self.name, self.turns = f"s{number}", 0
        self.now += timedelta(days=self.rng.randrange(7, 30))
        first = self.rng.choice(self.pair)
        self.say(first, self.rng.choice(HELLO))
        self.say(self.other(first), self.rng.choice(HELLO))
        earlier = self.told[:]
        for topic in topics:
            self.topic(topic)
            self.chatter()
        if earlier and (left := [topic for topic, _ in earlier if topic.aspects]):
            topic = self.rng.choice(left)
            self.follow_up(topic, f"{self.rng.choice(LATER)} {{}}".replace("{x}", topic.event[1]))
        self.say(first, self.rng.choice(BYE))
        self.say(self.other(first), self.rng.choice(BYE))

    def topic(self, topic: Topic) -> None:
        rng = self.rng
        text = rng.choice(topic.domain.told).replace("{x}", topic.event[0])
        if rng.random() < KIND:
            text = f"{text} {rng.choice(topic.domain.kind)}"
        told = self.say(topic.speaker, text, rich=True)
        self.told.append((topic, told))
        if rng.random() < 0.6:
            self.ask(rng.choice(topic.domain.when), "temporal", [told], topic)
        if rng.random() < 0.5:
            self.say(self.other(topic.speaker), rng.choice(REACTIONS), rich=True)
            self.say(topic.speaker, rng.choice(TAILS), rich=True)
        for _ in range(rng.choice((3, 4))):
            if topic.aspects:
                about = f"About {topic.event[1]}: {{}}" if rng.random() < 0.4 else f"{rng.choice(REACTIONS)} {{}}"
                self.follow_up(topic, about)

    def follow_up(self, topic: Topic, about: str) -> None:
        """Ask for an aspect, and answer."""
        rng = self.rng
        asked, answer, question = topic.aspects.pop()
        for key, words in FILLERS.items():
            answer = answer.replace(f"{{{key}}}", rng.choice(words))
        if rng.random() < NAMED:
            answer = f"Yes, {topic.event[1]}! {answer}"
        self.say(self.other(topic.speaker), about.format(asked), call=True)
        said = self.say(topic.speaker, answer, rich=True)
        if rng.random() < 0.8:
            self.ask(question, "single-hop", [said], topic)

    def chatter(self) -> None:
        speaker = self.rng.choice(self.pair)
        for _ in range(self.rng.randrange(2, 5)):
            lines = [*SMALL, *self.rng.choice(self.domains).chat]
            self.say(speaker, self.rng.choice(lines), rich=True)
            speaker = self.other(speaker)

    def say(self, speaker: str, text: str, *, rich: bool = False, call: bool = False) -> str:
        """Add a turn and return its id; `rich` adds what turns have around their matter, `call` the name alone."""
        rng = self.rng
        if (rich or call) and rng.random() < 0.4:
            text = f"{rng.choice(CALLS)} {text}"
        if rich and rng.random() < 0.5:
            text = f"{text} {rng.choice(TAILS)}"
        if rich and rng.random() < 0.2:
            text = f"{text} {rng.choice(BACK)}"
        self.now += timedelta(seconds=rng.randrange(20, 200))
        self.turns += 1
        id = f"{self.name}:{self.turns}"
        text = text.replace("{o}", self.other(speaker))
        self.talk.turns.append(Turn(id, text[:1].upper() + text[1:], self.now.timestamp(), self.name, speaker))
        return id

    def ask(self, text: str, category: str, evidence: list[str], topic: Topic) -> None:
        named = text.replace("{n}", topic.speaker).replace("{x}", topic.event[1])
        self.talk.questions.append(Question(named, category, evidence))

    def ask_about_all(self) -> None:
        for domain in self.domains:
            for speaker in self.pair:
                told = [(topic, id) for topic, id in self.told if topic.domain is domain and topic.speaker == speaker]
                if len(told) > 1:
                    self.ask(domain.all, "multi-hop", [id for _, id in told], told[0][0])
                if told and self.rng.random() < 0.6:
                    self.ask(domain.open, "open", [id for _, id in told], told[0][0])

    def other(self, name: str) -> str:
        return self.pair[1 - self.pair.index(name)]
