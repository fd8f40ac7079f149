"""What the friends of `memory_talks.py` talk about. The first half of the subjects is for tuning,
the other for the figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Domain:
    """One kind of event in a life.

    Attributes:
        events: how the event is told, and how a question names it.
        told: the turns that tell it; {x} is the event.
        when: questions for its time; {n} is the speaker, {x} the event as a question names it.
        all: the question for all events of a speaker.
        aspects: what the other asks, what is answered, and the question for that answer.
        open: a conclusion from having had such an event.
        chat: lines on the same matter that say nothing.
        kind: what is said with an event about its kind.
    """

    events: list[tuple[str, str]]
    told: list[str]
    when: list[str]
    all: str
    aspects: list[tuple[str, str, str]]
    open: str
    chat: list[str]
    kind: list[str]


DOMAINS = [
    Domain(
        [
            ("a charity run for the hospice", "the charity run"),
            ("a half marathon along the river", "the half marathon"),
            ("a triathlon with my brother-in-law", "the triathlon"),
            ("the city's night race", "the night race"),
            ("a relay across the dunes", "the relay"),
        ],
        ["I did {x} on Saturday, my legs are still jelly.", "Finally took part in {x}!", "So, {x} is behind me."],
        ["When did {n} take part in {x}?", "When was {x} that {n} ran?"],
        "Which races has {n} run?",
        [
            (
                "How did it feel at the end?",
                "It made me realize that rest matters as much as effort.",
                "What did {n} realize after {x}?",
            ),
            (
                "Did anyone cheer for you?",
                "My niece held up a huge sign with a drawing of a snail on it!",
                "What was on the sign for {n} at {x}?",
            ),
            (
                "How had you prepared?",
                "Mostly hill sprints before breakfast, and way too many bananas.",
                "How did {n} train for {x}?",
            ),
            (
                "Any injuries?",
                "A blister the size of a coin, nothing else, luckily.",
                "What injury did {n} get in {x}?",
            ),
            (
                "What do you get for it?",
                "A wooden medal. It hangs in the kitchen next to the clock.",
                "Where does {n} keep the medal from {x}?",
            ),
            (
                "Would you do it again?",
                "Next year I want to be below {d} minutes, that is the plan.",
                "What is the goal of {n} after {x}?",
            ),
        ],
        "Would {n} be considered an athletic person?",
        ["I should move more, I sit all day.", "Everybody seems to be jogging these days."],
        ["Races are my thing now.", "I feel like an athletic person for once."],
    ),
    Domain(
        [
            ("a stray kitten", "the kitten"),
            ("an elderly greyhound from the shelter", "the greyhound"),
            ("two guinea pigs", "the guinea pigs"),
            ("my uncle's parrot", "the parrot"),
            ("a rescued tortoise", "the tortoise"),
        ],
        [
            "I have big news, I took in {x}!",
            "There is {x} living with us since last week.",
            "We adopted {x}, the kids are over the moon.",
        ],
        ["When did {n} adopt {x}?", "When did {n} take in {x}?"],
        "What pets does {n} have?",
        [
            (
                "Aww! What are you calling it?",
                "We settled on {w}, after a very long debate at dinner.",
                "What is the name of the pet that {n} adopted, {x}?",
            ),
            (
                "How was the first night?",
                "Nobody slept. There was scratching behind the washing machine until four.",
                "What kept {n} awake after {x} arrived?",
            ),
            (
                "Does it eat well?",
                "Only cucumbers and the expensive stuff, of course.",
                "What food does {x} of {n} eat?",
            ),
            (
                "What did the vet say?",
                "Healthy apart from the teeth, two had to come out.",
                "What health problem did the vet find with {x} of {n}?",
            ),
            (
                "Where does it sleep?",
                "In an old drawer that my grandfather built, with a wool blanket.",
                "Where does {x} of {n} sleep?",
            ),
            (
                "And your landlord?",
                "She allowed it when I promised to replace the carpet.",
                "What did {n} promise the landlord because of {x}?",
            ),
        ],
        "Does {n} like animals?",
        ["The neighbour's dog barked all night again.", "I saw the funniest video of a cat."],
        ["Our pets rule the house.", "I like animals more than people."],
    ),
    Domain(
        [
            ("a pottery class", "the pottery class"),
            ("a course in welding", "the welding course"),
            ("evening lessons in sign language", "the sign language lessons"),
            ("a workshop on film photography", "the photography workshop"),
            ("a baking course", "the baking course"),
        ],
        ["I signed up for {x}, and I love it.", "Guess who started {x}? Me!", "Yesterday was my first time at {x}."],
        ["When did {n} sign up for {x}?", "When did {n} begin {x}?"],
        "What classes has {n} taken?",
        [
            (
                "Who teaches you?",
                "A retired sailor called {w}. Strict, but so funny.",
                "Who is the teacher of {x} that {n} attends?",
            ),
            (
                "Have you made anything yet?",
                "A crooked little owl for my mother's window sill.",
                "What did {n} make in {x}?",
            ),
            (
                "Why that, of all things?",
                "After the divorce I needed something to calm my thoughts.",
                "Why did {n} choose {x}?",
            ),
            (
                "Are the others nice?",
                "There is a pair of twins who finish each other's sentences, and a judge.",
                "Who else attends {x} with {n}?",
            ),
            (
                "Is it hard?",
                "My hands cramp. Patience is what I have to learn most.",
                "What does {n} find hard in {x}?",
            ),
            ("Is it expensive?", "{d} euros for ten evenings, material included.", "How much does {n} pay for {x}?"),
        ],
        "Is {n} open to learning new skills?",
        ["School feels like a hundred years ago.", "I have been reading a little every night."],
        ["I want to take more classes.", "Learning new skills keeps me young."],
    ),
    Domain(
        [
            ("a trip to Lisbon", "the trip to Lisbon"),
            ("two weeks in Iceland", "the holiday in Iceland"),
            ("a long weekend in Marrakesh", "the stay in Marrakesh"),
            ("a camping tour in the Alps", "the camping tour"),
            ("a road trip through Texas", "the road trip"),
        ],
        [
            "We are back from {x}, and I am broke but happy.",
            "Just unpacked from {x}!",
            "I treated myself to {x}, no phone, no laptop.",
        ],
        ["When did {n} go on {x}?", "When was {x} of {n}?"],
        "Where has {n} travelled?",
        [
            (
                "What was the best part?",
                "Watching the meteor shower from a rooftop, wrapped in blankets.",
                "What was the highlight of {x} for {n}?",
            ),
            ("Did everything go well?", "Until I lost my {o} at the station, yes.", "What did {n} lose during {x}?"),
            (
                "Where did you stay?",
                "In a former lighthouse, the stairs nearly killed me.",
                "In what kind of building did {n} stay on {x}?",
            ),
            ("What did you eat?", "So many grilled sardines that I smell of the sea now.", "What did {n} eat on {x}?"),
            (
                "Did you meet people?",
                "An old couple, both clockmakers, who invited us for tea.",
                "Whom did {n} meet on {x}?",
            ),
            (
                "Did you bring something back?",
                "A blue tile, it now holds my keys by the door.",
                "What souvenir did {n} bring from {x}?",
            ),
        ],
        "Does {n} enjoy adventures?",
        ["I wish I could travel more.", "Flights are so expensive this year."],
        ["I have never travelled so well.", "I enjoy a little adventure."],
    ),
    Domain(
        [
            ("a support group for new parents", "the support group"),
            ("the volunteer fire brigade", "the fire brigade"),
            ("a choir in the old church", "the choir"),
            ("a reading circle", "the reading circle"),
            ("the community garden", "the community garden"),
        ],
        [
            "I went to {x} for the first time, it was powerful.",
            "I joined {x} this week.",
            "You will laugh, but I am a member of {x} now.",
        ],
        ["When did {n} join {x}?", "When did {n} first go to {x}?"],
        "What groups is {n} a member of?",
        [
            (
                "What has it done for you?",
                "It gives me courage to be who I am, I feel accepted there.",
                "What has {x} given {n}?",
            ),
            (
                "How did you hear of it?",
                "My dentist mentioned it, with both hands in my mouth.",
                "Who told {n} about {x}?",
            ),
            (
                "How often do you meet?",
                "Every second {y}, unless there is football on.",
                "On what day does {x} of {n} meet?",
            ),
            ("What is your part in it?", "I look after the money, somebody has to.", "What is the role of {n} in {x}?"),
            (
                "What are you planning together?",
                "A big summer party, with lanterns and a brass band.",
                "What event does {n} plan with {x}?",
            ),
            (
                "Is there somebody you like best?",
                "{w}, ninety years old, who swears like a trooper.",
                "Who is {n}'s favourite person in {x}?",
            ),
        ],
        "Is {n} socially engaged?",
        ["People are so friendly around here.", "I never know what to say to strangers."],
        ["It is good to be a member of a group.", "I want to be more engaged."],
    ),
    Domain(
        [
            ("a painting of a sunrise", "the sunrise painting"),
            ("a short story about my childhood", "the short story"),
            ("a song for my sister's wedding", "the wedding song"),
            ("a quilt", "the quilt"),
            ("a bookshelf out of old doors", "the bookshelf"),
        ],
        [
            "Look, I finished {x} last night!",
            "I have been working on {x} for weeks.",
            "My hands are sore, but {x} is done.",
        ],
        ["When did {n} finish {x}?", "When did {n} tell about {x}?"],
        "What has {n} created?",
        [
            (
                "What inspired you?",
                "The view from my grandmother's porch, that light never left me.",
                "What inspired {x} by {n}?",
            ),
            (
                "What will you do with it?",
                "I am going to give it to the nurses on ward six.",
                "Who will receive {x} from {n}?",
            ),
            (
                "How long did that take?",
                "About {d} hours, most of them after midnight.",
                "How long did {n} work on {x}?",
            ),
            ("Did you have help?", "My son did the boring parts, for ice cream.", "Who helped {n} with {x}?"),
            ("What do the others say?", "My father cried, and he never cries.", "How did {n}'s father react to {x}?"),
            ("What does it mean to you?", "For me it stands for starting over.", "What does {x} symbolize for {n}?"),
        ],
        "Does {n} have artistic talent?",
        ["Museums make me tired after an hour.", "I doodled in the meeting again."],
        ["I have not created anything in years.", "Maybe there is a little talent in me."],
    ),
    # --- the subjects of the figures ------------------------------------------------------------------------------
    Domain(
        [
            ("a job at the children's hospital", "the job at the hospital"),
            ("an internship in a robotics firm", "the internship"),
            ("a shift in the harbour bakery", "the bakery job"),
            ("a position at the city library", "the library position"),
            ("a contract with a theatre", "the theatre contract"),
        ],
        [
            "They offered me {x}, I said yes at once.",
            "I started {x}, everything is new.",
            "You will not believe it, I got {x}!",
        ],
        ["When did {n} get {x}?", "When did {n} start {x}?"],
        "What jobs has {n} had?",
        [
            ("How is your boss?", "{w} is patient, and hums all day long.", "What is the boss of {n} called at {x}?"),
            (
                "Is the pay good?",
                "I earn {d} more a month than before, not much, but still.",
                "How much more does {n} earn with {x}?",
            ),
            (
                "What made you apply?",
                "I wanted work where somebody smiles at the end of the day.",
                "Why did {n} apply for {x}?",
            ),
            (
                "How do you get there?",
                "By ferry, twenty minutes with a book on my knees.",
                "How does {n} commute to {x}?",
            ),
            (
                "What do you do all day?",
                "At the moment I label boxes, thousands of them.",
                "What tasks does {n} have in {x}?",
            ),
            (
                "And your colleagues?",
                "They surprised me with a cactus on my desk.",
                "What present did the colleagues give {n} at {x}?",
            ),
        ],
        "Is {n} ambitious about a career?",
        ["Work was stressful today, nothing but meetings.", "I dream of sleeping late on Mondays."],
        ["I have had worse jobs.", "It is a step in my career."],
    ),
    Domain(
        [
            ("a flat near the canal", "the flat near the canal"),
            ("a tiny cabin in the woods", "the cabin"),
            ("an old farmhouse", "the farmhouse"),
            ("a houseboat", "the houseboat"),
            ("a room above a cinema", "the room above the cinema"),
        ],
        [
            "I rented {x}, the keys are in my pocket!",
            "We moved into {x}, boxes everywhere.",
            "We are the owners of {x}, can you imagine?",
        ],
        ["When did {n} move into {x}?", "When did {n} get {x}?"],
        "Where has {n} lived?",
        [
            (
                "Is there a lot to repair?",
                "The roof leaks over the bathtub, how convenient.",
                "What needs to be repaired in {x} of {n}?",
            ),
            (
                "What are the neighbours like?",
                "A beekeeper left a jar of honey at our door.",
                "What did a neighbour give {n} at {x}?",
            ),
            (
                "Which colour will you paint it?",
                "Mustard yellow, my partner lost the bet.",
                "What colour does {n} paint {x}?",
            ),
            (
                "What do you see from the window?",
                "A crooked pear tree and, behind it, trains.",
                "What is the view from {x} of {n}?",
            ),
            (
                "Who carried the furniture?",
                "Six students, paid in pizza, and one of them broke the mirror.",
                "Who helped {n} to move to {x}?",
            ),
            (
                "What do you like most?",
                "That I can hear the rain. It calms me down.",
                "What does {n} like best about {x}?",
            ),
        ],
        "Does {n} prefer an unusual way to live?",
        ["The street is one big building site.", "I need to water the plants."],
        ["I have never lived in such a place.", "An ordinary way to live bores me."],
    ),
    Domain(
        [
            ("a broken wrist", "the broken wrist"),
            ("a peanut allergy", "the peanut allergy"),
            ("bad migraines", "the migraines"),
            ("a torn ligament", "the torn ligament"),
            ("high blood pressure", "the high blood pressure"),
        ],
        [
            "I was at the doctor's, it is {x}.",
            "It turned out to be {x}, I should have gone sooner.",
            "So now I have {x}, on top of it all.",
        ],
        ["When was {n} diagnosed with {x}?", "When did {n} learn of {x}?"],
        "What health problems has {n} had?",
        [
            (
                "How did that happen?",
                "I slipped on a wet leaf in front of the whole school.",
                "What caused {x} of {n}?",
            ),
            (
                "What are you supposed to do now?",
                "No coffee for {d} days. I may cry.",
                "What must {n} give up because of {x}?",
            ),
            ("Who looks after you?", "My stepsister comes by with soup and gossip.", "Who takes care of {n} with {x}?"),
            ("Does it hurt?", "Mostly when I laugh, so please be boring.", "When does {n} feel pain from {x}?"),
            ("Was the doctor nice?", "Doctor {w} drew it all on a napkin for me.", "Which doctor treated {n} for {x}?"),
            ("What helps?", "Lying in a dark room with whale songs, honestly.", "What helps {n} against {x}?"),
        ],
        "Has {n} been to a doctor?",
        ["I slept badly, but I am fine.", "My head hurts after all that noise."],
        ["I have had enough of health problems.", "The doctor was honest with me."],
    ),
    Domain(
        [
            ("an electric bike", "the electric bike"),
            ("a telescope", "the telescope"),
            ("a second-hand van", "the van"),
            ("a sewing machine", "the sewing machine"),
            ("an accordion", "the accordion"),
        ],
        [
            "I could not resist, I bought {x}.",
            "Guess what stands in my hall: {x}!",
            "After months of saving I ordered {x}.",
        ],
        ["When did {n} buy {x}?", "When was {x} bought by {n}?"],
        "What has {n} bought?",
        [
            (
                "What did you pay?",
                "He wanted {d}, I talked him down by fifty.",
                "What was the price of {x} that {n} bought?",
            ),
            ("Where did you find it?", "In an advert at the laundrette, of all places.", "Where did {n} find {x}?"),
            (
                "Does it work well?",
                "It squeaks like a mouse, the dog hides from it.",
                "What noise does {x} of {n} make?",
            ),
            (
                "What do you want it for?",
                "To earn a little at markets during the summer.",
                "What does {n} use {x} for?",
            ),
            (
                "What does it look like?",
                "Dark red, with a scratch in the shape of a fish.",
                "What does {x} of {n} look like?",
            ),
            (
                "Is your family happy with it?",
                "My husband rolled his eyes, then asked to try it.",
                "What did {n}'s husband think of {x}?",
            ),
        ],
        "Does {n} like to spend money?",
        ["Shops are crowded, I hate it.", "I should stop buying things online."],
        ["It is the best thing I have bought.", "I should not spend so much money."],
    ),
    Domain(
        [
            ("my brother's wedding", "the brother's wedding"),
            ("my grandmother's ninetieth birthday", "the grandmother's birthday"),
            ("a school reunion", "the school reunion"),
            ("my nephew's christening", "the nephew's christening"),
            ("a farewell party for my oldest friend", "the farewell party"),
        ],
        ["We celebrated {x}, I danced until two.", "Still tired from {x}!", "Last weekend was {x}, what a day."],
        ["When was {x} that {n} went to?", "When did {n} celebrate {x}?"],
        "Which celebrations did {n} attend?",
        [
            ("What did you wear?", "A green velvet suit from the sixties, far too warm.", "What did {n} wear to {x}?"),
            (
                "Did you give a speech?",
                "I forgot the second half and sang instead.",
                "What went wrong with {n}'s speech at {x}?",
            ),
            ("What did you give?", "A map of the stars on the night they met.", "What gift did {n} bring to {x}?"),
            (
                "How was the food?",
                "{f}, cooked over an open fire. I had three plates.",
                "What was served at {x} of {n}?",
            ),
            (
                "Was there any drama?",
                "Two cousins did not speak because of a lawnmower.",
                "What did relatives of {n} quarrel about at {x}?",
            ),
            (
                "What touched you most?",
                "When the old photos were shown, everyone went quiet.",
                "What was the most moving moment of {x} for {n}?",
            ),
        ],
        "Is family important to {n}?",
        ["Family dinners are always loud.", "My parents send their regards."],
        ["I love celebrations like that.", "Family is what counts, after all."],
    ),
    Domain(
        [
            ("a concert of a jazz trio", "the jazz concert"),
            ("an exhibition about whales", "the whale exhibition"),
            ("a play in the open air", "the open-air play"),
            ("a documentary on glaciers", "the glacier documentary"),
            ("a poetry night", "the poetry night"),
        ],
        [
            "I saw {x} yesterday, still thinking about it.",
            "My cousin dragged me to {x}, and it was wonderful.",
            "Have you heard of {x}? I was there!",
        ],
        ["When did {n} see {x}?", "When did {n} go to {x}?"],
        "Which cultural events has {n} been to?",
        [
            (
                "What did you like about it?",
                "How quiet it got, one could hear the snow fall outside.",
                "What did {n} like about {x}?",
            ),
            ("Who was with you?", "A colleague who snored through half of it.", "Who accompanied {n} to {x}?"),
            (
                "How did you get tickets?",
                "I won them on the radio by naming a river.",
                "How did {n} get tickets for {x}?",
            ),
            (
                "Did you learn something?",
                "That we have very little time left to change our ways.",
                "What lesson did {n} take from {x}?",
            ),
            (
                "And afterwards?",
                "We ended up in a bar and talked to the performers about {f}.",
                "What did {n} do after {x}?",
            ),
            (
                "Would you recommend it?",
                "Only if you can sit on hard benches for {d} minutes.",
                "What was uncomfortable for {n} at {x}?",
            ),
        ],
        "Is {n} interested in culture?",
        ["I watched a film last night and fell asleep.", "There is nothing good on television."],
        ["I should go to more events like that.", "A little culture does me good."],
    ),
]
