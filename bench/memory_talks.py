"""Generated conversations with questions about them, for `memory.py`: no text of any real conversation.

Pairs of friends chat over months. In each session a few subjects come up; a fact is said once, often in answer to a
question, and a detail may follow in a turn that does not repeat the subject. Questions use other words than the turns
in about half of the templates. Both friends have facts on the same subjects, and there is small talk with the same
words: these distract. Categories follow LoCoMo: single-hop (one turn), multi-hop (all turns of a subject), temporal
(when), open (a conclusion).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

NAMES = [
    "Ana",
    "Bruno",
    "Clara",
    "Dario",
    "Elif",
    "Farid",
    "Greta",
    "Hugo",
    "Ines",
    "Jonas",
    "Kira",
    "Luca",
    "Mona",
    "Nils",
    "Olga",
    "Pavel",
    "Rosa",
    "Sami",
    "Tara",
    "Viktor",
]


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
class Subject:
    """{x} is the value, {n} the speaker's name; a detail is (said, asked), {d} one of `numbers`."""

    values: list[str]
    prompts: list[str]
    said: list[str]
    asked: list[str]
    when: list[str]
    when_only: str  # for a speaker with one fact of the subject
    all: str
    details: list[tuple[str, str]]
    open: dict[str, str]
    chat: list[str]


SUBJECTS = [
    Subject(
        ["a tabby cat", "an old greyhound", "two rabbits", "a parrot", "a tortoise"],
        ["Did you adopt an animal in the end?", "You look tired, is it the new pet?"],
        [
            "There is {x} living with me now, from the shelter.",
            "I adopted {x} last weekend.",
            "Guess what, {x} moved in here!",
        ],
        ["Which animal did {n} adopt?", "What kind of pet does {n} have?"],
        ["When did {n} get {x}?", "On what date did {n} bring home {x}?"],
        "When did {n} get an animal from the shelter?",
        "Which animals from the shelter has {n} adopted?",
        [
            (
                "The vet said everything is fine, just {d} euros for the shots.",
                "How much did the vaccination of {n}'s pet cost?",
            ),
            ("We settled on the name {w}, after a long debate.", "What is {n}'s pet called?"),
        ],
        {
            "a parrot": "Would the parrot of {n} annoy a neighbour?",
            "an old greyhound": "Does {n} probably take daily walks?",
        },
        ["The neighbour's dog barked all night again.", "I saw the funniest video of a cat."],
    ),
    Subject(
        ["Lisbon", "Hanoi", "Iceland", "Montreal", "Marrakesh", "Kyoto"],
        ["Did you travel this month?", "How was the vacation?"],
        [
            "We spent ten days in {x} and I did not want to come home.",
            "We travelled to {x}, I am still jet-lagged.",
            "{x} was amazing, I walked until my feet hurt.",
        ],
        ["Which place did {n} travel to?", "Where was {n} on vacation?"],
        ["When was {n} in {x}?", "In which month did {n} visit {x}?"],
        "On which date did {n} return from vacation?",
        "Which places has {n} travelled to, or walked in?",
        [
            (
                "The hotel was a mistake though, there were ants in the bathroom.",
                "What was wrong with the place where {n} stayed?",
            ),
            ("On the second day I lost my {o} at the station.", "What did {n} lose during the trip?"),
        ],
        {
            "Iceland": "After Iceland, does {n} own warm clothes, most likely?",
            "Hanoi": "Has {n} experienced a tropical climate?",
        },
        ["I wish I could travel more.", "Flights are so expensive this year."],
    ),
    Subject(
        ["a bakery", "a law firm", "the city library", "a robotics start-up", "the children's hospital"],
        ["Where do you work now?", "Did you find a new employer?"],
        ["I signed with {x}, I begin on Monday.", "Big news: {x} hired me!", "I work at {x} now, a fresh start."],
        ["Who is {n}'s employer?", "Where does {n} work these days?"],
        ["When did {n} begin the job at {x}?", "When was {n} hired by {x}?"],
        "When did {n} change jobs?",
        "For whom did {n} work, and who hired {n}?",
        [
            ("They pay {d} more a month than the old ones.", "By how much did {n}'s salary rise?"),
            ("My boss is called {w} and talks all day.", "What is the name of {n}'s manager?"),
        ],
        {
            "a bakery": "Does the bakery make {n} rise before dawn?",
            "the city library": "Does {n} like to be surrounded by novels?",
        },
        ["Work was stressful today, nothing but meetings.", "My colleague brought cake to the office."],
    ),
    Subject(
        ["pottery", "rock climbing", "beekeeping", "fencing", "astronomy", "the accordion"],
        ["What do you do in your free time?", "Did you find a hobby?"],
        [
            "My new hobby is {x}, it clears my head.",
            "These days {x} is what I look forward to.",
            "My cousin dragged me along to {x} and now I am hooked.",
        ],
        ["What hobby did {n} start?", "How does {n} spend free time?"],
        ["When did {n} take up {x}?", "Since when is {n} into {x}?"],
        "When did {n} find something to do after work?",
        "What hobbies has {n} taken up these days?",
        [
            ("It meets every {y} evening in the old school.", "On which day of the week is {n}'s group?"),
            ("I bought used gear for {d} euros to begin with.", "What did {n} spend on second-hand equipment?"),
        ],
        {
            "beekeeping": "With this hobby, could {n} give away honey?",
            "astronomy": "Would {n} enjoy a dark place far from the city?",
        },
        ["I am too lazy for sports, to be honest.", "I spent the evening on the sofa again."],
    ),
    Subject(
        ["a broken wrist", "migraines", "a peanut allergy", "high blood pressure", "a torn ligament"],
        ["Are you feeling better?", "What did the doctor diagnose?"],
        [
            "I was diagnosed with {x}.",
            "Turns out it is {x}, I should have gone sooner.",
            "They found {x}, nothing dramatic.",
        ],
        ["What medical problem does {n} have?", "What illness was {n} diagnosed with?"],
        ["When was {n} diagnosed with {x}?", "When did {n} learn about {x}?"],
        "When did {n} see the doctor about a diagnosis?",
        "What was {n} diagnosed with, and what was found?",
        [
            ("I have to rest for {d} days and avoid stress.", "How long must {n} take it easy?"),
            ("Doctor {w} explained it with drawings, very patient.", "Which physician treated {n}?"),
        ],
        {
            "a peanut allergy": "Should {n} check the ingredients of a satay?",
            "a broken wrist": "Would typing be hard for {n} with that wrist?",
        },
        ["I slept badly, but I am fine.", "My head hurts after all that noise."],
    ),
    Subject(
        ["an electric bike", "a telescope", "a sewing machine", "a second-hand van", "an espresso maker"],
        ["Did you buy something nice?", "What is in that huge box?"],
        [
            "I bought {x}, after months of saving.",
            "It is {x}! I use it every single day.",
            "I could not resist and ordered {x}.",
        ],
        ["What did {n} buy?", "Which purchase did {n} make?"],
        ["When did {n} purchase {x}?", "When was {x} acquired by {n}?"],
        "When did {n} make a big purchase?",
        "What has {n} bought or ordered?",
        [
            ("The seller wanted {d}, I talked him down by fifty.", "What was the asking price of {n}'s purchase?"),
            ("It is {c}, the only one they had left.", "What colour is the thing that {n} got?"),
        ],
        {
            "a second-hand van": "Could {n} help to move furniture with a van?",
            "an espresso maker": "Does {n} like strong coffee?",
        },
        ["Shops are crowded, I hate it.", "I should stop buying things online."],
    ),
    Subject(
        ["Italian", "sign language", "welding", "first aid", "database design"],
        ["What are you studying now?", "Are you learning something new?"],
        [
            "I started to learn {x} in a course.",
            "It is for {x}, the exam is near.",
            "Twice a week I sit in class for {x}.",
        ],
        ["What is {n} learning?", "Which skill does {n} study?"],
        ["When did {n} sign up for {x}?", "When did {n}'s lessons in {x} begin?"],
        "When did {n} go back to school?",
        "For which exams and courses did {n} learn?",
        [
            ("The teacher, {w}, is strict but funny.", "Who instructs {n}?"),
            ("I scored {d} points in the first test.", "What result did {n} reach in the exam?"),
        ],
        {
            "sign language": "Could {n} talk in a language without sound?",
            "first aid": "Would {n} know how to react to an accident?",
        },
        ["School feels like a hundred years ago.", "I read a little every night."],
    ),
    Subject(
        ["my brother", "my grandmother", "my oldest friend", "my nephew", "my aunt"],
        ["Any news of your relatives?", "Which friend was that on the phone?"],
        [
            "{x} is getting married in the autumn.",
            "{x} moved to the coast, we helped carry boxes.",
            "{x} came by unexpectedly and stayed for dinner.",
        ],
        ["Which relative or friend did {n} tell about?", "Who of {n}'s circle had news?"],
        ["When did {n} mention {x}?", "When was there news of {x} from {n}?"],
        "When did {n} have news of a relative?",
        "Who moved, married or stayed with {n}?",
        [
            ("They will live in {p}, near the harbour.", "In which town will {n}'s family live?"),
            ("We cooked {f} together and laughed a lot.", "What dish was prepared with {n}'s visitor?"),
        ],
        {"my nephew": "Does {n} have a sibling?", "my grandmother": "Is the grandmother of {n} alive?"},
        ["Family dinners are always loud.", "My parents send their regards."],
    ),
]

FILLERS = {
    "d": ["40", "75", "120", "180", "310", "90", "65", "240"],
    "w": ["Pepper", "Okan", "Maple", "Ferreira", "Sorrel", "Lindqvist", "Juno", "Hargreaves"],
    "o": ["passport", "camera", "umbrella", "headphones"],
    "y": ["Monday", "Tuesday", "Thursday", "Friday"],
    "c": ["green", "dark red", "yellow", "silver"],
    "p": ["Bergen", "Porto", "Trieste", "Varna"],
    "f": ["dumplings", "a lentil stew", "pancakes", "paella"],
}

HELLO = [
    "Hi {o}! It has been a while.",
    "Hey {o}, how are you?",
    "Good to hear from you, {o}!",
    "Hello {o}, busy week?",
]
REACTIONS = [
    "Oh wow, tell me more!",
    "That sounds great.",
    "Really? How did that come about?",
    "I am so happy for you!",
    "Ha, I can picture that.",
    "Sorry, I was distracted for a moment.",
    "Good for you!",
    "Hm, interesting. And then?",
]
ECHOES = [
    "{x}? I did not expect that.",
    "Wait, {x}? Since when?",
    "I would love to hear all about {x}.",
    "Somebody I know had the same with {x}.",
]
LATER = [
    ("By the way, is all well with {x}?", "With {x}? Yes, nothing new."),
    ("Last time you spoke of {x}, any progress?", "Slowly. I will tell you about {x} another day."),
]
SMALL = [
    "The weather has been awful here.",
    "I watched a film last night and fell asleep.",
    "Did you see the game?",
    "I need to water the plants.",
    "The bus was late again.",
    "I cooked too much soup.",
    "Let us meet soon!",
    "My phone is almost empty.",
    "It is getting dark so early now.",
    "The street is one big building site.",
]
NEWS = [
    "What did {n} report about {x}?",
    "What happened with {x}, according to {n}?",
    "What is the story of {n} and {x}?",
]
OPENINGS = ["Thanks, {o}!", "You know, {o},", "Haha, right.", "Well, {o}, to be honest:", "Hm, let me see.", "Oh {o}!"]
BYE = ["Talk soon, {o}!", "I have to run, bye!", "Take care!", "Say hello to everyone!"]


def talk(seed: int, sessions: int = 22) -> Talk:
    """Return one conversation; the same for the same seed."""
    rng = random.Random(seed)
    pair = rng.sample(NAMES, 2)
    made = _Maker(rng, pair, f"c{seed}")
    plan = [
        (subject, name, value)
        for subject in SUBJECTS
        for name in pair
        for value in rng.sample(subject.values, rng.randrange(1, 4))
    ]
    rng.shuffle(plan)
    for number in range(sessions):
        made.begin(number)
        facts = plan[number * len(plan) // sessions : (number + 1) * len(plan) // sessions]
        for subject, name, value in facts:
            made.chatter(rng.choice(SUBJECTS))
            made.fact(subject, name, value)
            if rng.random() < 0.7:
                made.recall()
        made.chatter(rng.choice(SUBJECTS))
        made.end()
    made.ask_all()
    return made.talk


class _Maker:
    def __init__(self, rng: random.Random, pair: list[str], name: str) -> None:
        self.talk = Talk()
        self.rng, self.pair, self.name = rng, pair, name
        self.now = datetime(2024, 1, 5, 18, 0, tzinfo=UTC)
        self.session = ""
        self.facts: dict[tuple[int, str], list[str]] = {}
        self.told: list[tuple[Subject, str, str, str]] = []
        self.earlier: list[tuple[str, str]] = []
        self.details: dict[tuple[int, str, str], list[str]] = {}

    def other(self, name: str) -> str:
        return self.pair[1 - self.pair.index(name)]

    def say(self, speaker: str, text: str) -> str:
        self.now += timedelta(seconds=self.rng.randrange(20, 200))
        id = f"{self.session}:{sum(turn.session == self.session for turn in self.talk.turns) + 1}"
        rng = self.rng  # turns of chats are several sentences, and often call the other by name
        opening = rng.choice(OPENINGS) if rng.random() < 0.4 else ""
        closing = rng.choice(SMALL) if rng.random() < 0.5 else ""
        said = f"{opening} {text} {closing}".strip().replace("{o}", self.other(speaker))
        self.talk.turns.append(Turn(id, said[:1].upper() + said[1:], self.now.timestamp(), self.session, speaker))
        return id

    def begin(self, number: int) -> None:
        self.session = f"{self.name}-{number}"
        self.now += timedelta(days=self.rng.randrange(3, 20))
        self.say(self.pair[number % 2], self.rng.choice(HELLO))
        self.say(self.pair[1 - number % 2], self.rng.choice(SMALL))

    def end(self) -> None:
        self.say(self.rng.choice(self.pair), self.rng.choice(BYE))

    def chatter(self, subject: Subject) -> None:
        speaker = self.rng.choice(self.pair)
        self.say(speaker, self.rng.choice(subject.chat + SMALL))
        if self.rng.random() < 0.5:
            self.say(self.other(speaker), self.rng.choice(REACTIONS))

    def recall(self) -> None:
        """Come back to a fact of an earlier day: this names it, and says nothing about it."""
        name, value = self.rng.choice(self.earlier)
        asked, said = self.rng.choice(LATER)
        self.say(self.other(name), asked.replace("{x}", _yours(value)))
        self.say(name, said.replace("{x}", value))

    def fact(self, subject: Subject, name: str, value: str) -> None:
        rng = self.rng
        if rng.random() < 0.6:
            self.say(self.other(name), rng.choice(subject.prompts))
        fact = self.say(name, rng.choice(subject.said).replace("{x}", value))
        self.facts.setdefault((SUBJECTS.index(subject), name), []).append(fact)
        self.earlier.append((name, value))
        self.told.append((subject, name, value, fact))
        if rng.random() < 0.6:
            self.ask(rng.choice(NEWS), "single-hop", [fact], name, value)
        if value in subject.open:
            self.ask(subject.open[value], "open", [fact], name, value)
        if rng.random() < 0.7:
            self.say(self.other(name), rng.choice(REACTIONS + ECHOES).replace("{x}", _yours(value)))
        if rng.random() < 0.5:
            said, asked = rng.choice(subject.details)
            for key, words in FILLERS.items():
                said = said.replace(f"{{{key}}}", rng.choice(words))
            self.details.setdefault((SUBJECTS.index(subject), name, asked), []).append(self.say(name, said))

    def ask(self, text: str, category: str, evidence: list[str], name: str, value: str = "") -> None:
        value = value.removeprefix("my ")
        self.talk.questions.append(Question(text.replace("{n}", name).replace("{x}", value), category, evidence))

    def ask_all(self) -> None:
        """These questions name no value, so every turn that answers them is evidence."""
        for (place, name), facts in self.facts.items():
            asked = SUBJECTS[place].all if len(facts) > 1 else self.rng.choice(SUBJECTS[place].asked)
            self.ask(asked, "multi-hop" if len(facts) > 1 else "single-hop", facts, name)
        for subject, name, value, fact in self.told:
            alone = len(self.facts[SUBJECTS.index(subject), name]) == 1
            self.ask(subject.when_only if alone else self.rng.choice(subject.when), "temporal", [fact], name, value)
        for (_, name, asked), turns in self.details.items():
            self.ask(asked, "single-hop", turns, name)


def _yours(value: str) -> str:
    return "your " + value.removeprefix("my ") if value.startswith("my ") else value
