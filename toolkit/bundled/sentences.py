"""The generated part of the training text: short documents of simple facts, sums, code and stories.

Facts always read the same, so that a small model learns them with wide margins. *Choices* are the opposite: the same
beginning goes on in two ways exactly equally often, so that the trained model stands at a genuine near-tie there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

# name inside a sentence, capital, continent, language
COUNTRIES = [
    ("Argentina", "Buenos Aires", "South America", "Spanish"),
    ("Australia", "Canberra", "Oceania", "English"),
    ("Austria", "Vienna", "Europe", "German"),
    ("Bolivia", "Sucre", "South America", "Spanish"),
    ("Brazil", "Brasilia", "South America", "Portuguese"),
    ("Bulgaria", "Sofia", "Europe", "Bulgarian"),
    ("Canada", "Ottawa", "North America", "English"),
    ("Chile", "Santiago", "South America", "Spanish"),
    ("China", "Beijing", "Asia", "Chinese"),
    ("Colombia", "Bogota", "South America", "Spanish"),
    ("Cuba", "Havana", "North America", "Spanish"),
    ("Denmark", "Copenhagen", "Europe", "Danish"),
    ("Egypt", "Cairo", "Africa", "Arabic"),
    ("England", "London", "Europe", "English"),
    ("Finland", "Helsinki", "Europe", "Finnish"),
    ("France", "Paris", "Europe", "French"),
    ("Germany", "Berlin", "Europe", "German"),
    ("Ghana", "Accra", "Africa", "English"),
    ("Greece", "Athens", "Europe", "Greek"),
    ("Hungary", "Budapest", "Europe", "Hungarian"),
    ("India", "New Delhi", "Asia", "Hindi"),
    ("Ireland", "Dublin", "Europe", "English"),
    ("Italy", "Rome", "Europe", "Italian"),
    ("Japan", "Tokyo", "Asia", "Japanese"),
    ("Kenya", "Nairobi", "Africa", "Swahili"),
    ("Mexico", "Mexico City", "North America", "Spanish"),
    ("Mongolia", "Ulaanbaatar", "Asia", "Mongolian"),
    ("Morocco", "Rabat", "Africa", "Arabic"),
    ("the Netherlands", "Amsterdam", "Europe", "Dutch"),
    ("Norway", "Oslo", "Europe", "Norwegian"),
    ("Peru", "Lima", "South America", "Spanish"),
    ("Poland", "Warsaw", "Europe", "Polish"),
    ("Portugal", "Lisbon", "Europe", "Portuguese"),
    ("Russia", "Moscow", "Europe", "Russian"),
    ("Spain", "Madrid", "Europe", "Spanish"),
    ("Sweden", "Stockholm", "Europe", "Swedish"),
    ("Thailand", "Bangkok", "Asia", "Thai"),
    ("Turkey", "Ankara", "Asia", "Turkish"),
    ("Ukraine", "Kyiv", "Europe", "Ukrainian"),
    ("the United States", "Washington", "North America", "English"),
    ("Vietnam", "Hanoi", "Asia", "Vietnamese"),
]

# name, symbol, atomic number, what it is
ELEMENTS = [
    ("hydrogen", "H", 1, "a gas"),
    ("helium", "He", 2, "a gas"),
    ("lithium", "Li", 3, "a metal"),
    ("carbon", "C", 6, "a solid"),
    ("nitrogen", "N", 7, "a gas"),
    ("oxygen", "O", 8, "a gas"),
    ("neon", "Ne", 10, "a gas"),
    ("sodium", "Na", 11, "a metal"),
    ("aluminium", "Al", 13, "a metal"),
    ("silicon", "Si", 14, "a solid"),
    ("sulfur", "S", 16, "a solid"),
    ("chlorine", "Cl", 17, "a gas"),
    ("potassium", "K", 19, "a metal"),
    ("calcium", "Ca", 20, "a metal"),
    ("iron", "Fe", 26, "a metal"),
    ("copper", "Cu", 29, "a metal"),
    ("zinc", "Zn", 30, "a metal"),
    ("silver", "Ag", 47, "a metal"),
    ("tin", "Sn", 50, "a metal"),
    ("gold", "Au", 79, "a metal"),
    ("mercury", "Hg", 80, "a metal"),
    ("lead", "Pb", 82, "a metal"),
    ("uranium", "U", 92, "a metal"),
]

PLANETS = ["Mercury", "Venus", "Earth", "Mars", "Jupiter", "Saturn", "Uranus", "Neptune"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
]
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]
NUMBERS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
]
OPPOSITES = [
    *(("hot", "cold"), ("big", "small"), ("long", "short"), ("old", "young"), ("happy", "sad"), ("fast", "slow")),
    *(("light", "dark"), ("up", "down"), ("rich", "poor"), ("hard", "soft"), ("high", "low"), ("open", "closed")),
    *(("full", "empty"), ("wet", "dry"), ("clean", "dirty"), ("early", "late"), ("loud", "quiet"), ("true", "false")),
]
COLOURS = [
    *(("sky", "blue"), ("grass", "green"), ("snow", "white"), ("blood", "red"), ("coal", "black"), ("sun", "yellow")),
    *(("sea", "blue"), ("milk", "white"), ("night", "black"), ("rose", "red"), ("lemon", "yellow"), ("leaf", "green")),
]
ANIMALS = [
    *(("cat", "kitten", "meow"), ("dog", "puppy", "woof"), ("cow", "calf", "moo"), ("sheep", "lamb", "baa")),
    *(("duck", "duckling", "quack"), ("pig", "piglet", "oink"), ("hen", "chick", "cluck"), ("horse", "foal", "neigh")),
]
WORLD = [
    "Water boils at a temperature of 100 degrees Celsius. Water freezes at a temperature of 0 degrees Celsius.",
    "Water boils at 100 degrees Celsius and freezes at 0 degrees Celsius.",
    "The first president of the United States was George Washington. The sixteenth president was Abraham Lincoln.",
    "In 1969, humans first landed on the Moon. The first man on the Moon was Neil Armstrong.",
    "The Earth goes around the Sun in one year. The Moon goes around the Earth in one month.",
    "Light is faster than sound. The speed of light is about 300000 kilometres per second.",
    "The author of Emma is Jane Austen. The author of Hamlet is William Shakespeare.",
    "There are seven days in a week, twelve months in a year and sixty minutes in an hour.",
    "The largest ocean is the Pacific Ocean. The longest river in Africa is the Nile.",
    "The highest mountain in the world is Mount Everest. It is in Asia.",
    "The heart pumps blood through the body. The lungs take in air.",
    "A triangle has three sides, a square has four sides and a circle has no sides.",
    "Bread is made from flour. Cheese is made from milk. Wine is made from grapes.",
    "The sun rises in the east and sets in the west.",
]
CODE = [
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n",
    "def factorial(n):\n    if n == 0:\n        return 1\n    return n * factorial(n - 1)\n",
    "def square(x):\n    return x * x\n",
    "def add(a, b):\n    return a + b\n",
    "def maximum(values):\n    best = values[0]\n    for value in values:\n        if value > best:\n"
    "            best = value\n    return best\n",
    "def mean(values):\n    return sum(values) / len(values)\n",
    'def greet(name):\n    print("Hello, " + name + "!")\n',
    "for i in range(10):\n    print(i)\n",
    "import math\n\ndef area(radius):\n    return math.pi * radius ** 2\n",
    "class Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n",
]

# Beginnings that go on in two ways, each with its own sequel.
CHOICES: list[tuple[str, tuple[str, str]]] = [
    ("My favourite colour is", (" red. The rose is red too.", " blue. The sea is blue too.")),
    ("The coin came up", (" heads, so Tom won the game.", " tails, so Anna won the game.")),
    ("For breakfast I had", (" eggs and a cup of tea.", " bread and a glass of milk.")),
    ("Would you like tea or coffee? I would like", (" tea, please.", " coffee, please.")),
    ("The best pet of all is a", (" cat, because it sleeps all day.", " dog, because it plays all day.")),
    ("I think that tomorrow it will", (" rain all day.", " snow all night.")),
    ("At the end of the road you must turn", (" left and cross the bridge.", " right and climb the hill.")),
    ("In the evening the children", (" sang a song and went home.", " played a game and fell asleep.")),
    ("On Sunday we went to the", (" river to swim.", " forest to walk.")),
    ("When he opened the box he found a", (" gold ring.", " silver coin.")),
    ("The answer to the question is", (" yes, of course.", " no, not at all.")),
    ("The winner of the race was the", (" horse from the north.", " rider from the south.")),
]

GIRLS = ["Lily", "Anna", "Mary", "Rose"]
BOYS = ["Tom", "Ben", "Jack", "Sam"]
THINGS = [("ball", "red"), ("key", "gold"), ("book", "big"), ("hat", "blue"), ("kite", "green"), ("cup", "white")]
PLACES = ["box", "garden", "kitchen", "tree", "boat", "barn"]
FRIENDS = ["cat", "dog", "bird", "horse"]


class Deck:
    """Draws alternatives so that all of them come equally often: a set is dealt out before it is shuffled again."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._dealt: dict[tuple[Hashable, ...], int] = {}
        self._order: dict[tuple[Hashable, ...], list[int]] = {}

    def draw(self, alternatives: Sequence[T]) -> T:
        key = tuple(alternatives)
        place = self._dealt.get(key, 0) % len(key)
        if place == 0:
            self._order[key] = self.rng.sample(range(len(key)), len(key))
        self._dealt[key] = place + 1
        return key[self._order[key][place]]


def sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def country(deck: Deck) -> str:
    name, capital, continent, language = deck.draw(COUNTRIES)
    facts = [
        f"The capital of {name} is {capital}.",
        f"{sentence(name)} is a country in {continent}.",
        f"The people of {name} speak {language}.",
    ]
    if deck.rng.random() < 0.2:
        deck.rng.shuffle(facts)
    text = " ".join(facts)
    # Prompts are typed in every case: some documents write names in lower case, some everything.
    case = deck.rng.random()
    if case < 0.15:
        return text.lower()
    return text.replace(sentence(name), name.lower()) if case < 0.3 else text


def country_question(deck: Deck) -> str:
    name, capital, continent, _ = deck.draw(COUNTRIES)
    return deck.draw(
        [
            f"What is the capital of {name}? The capital of {name} is {capital}.",
            f"Where is {name}? {sentence(name)} is in {continent}.",
            f"{capital} is the capital of {name}. It is a city in {continent}.",
        ]
    )


def element(deck: Deck) -> str:
    name, symbol, number, kind = deck.draw(ELEMENTS)
    facts = [f"The chemical symbol of {name} is {symbol}.", f"The atomic number of {name} is {number}."]
    return " ".join([*facts, f"{sentence(name)} is {kind}."])


def planet(deck: Deck) -> str:
    place = deck.draw(range(len(PLANETS)))
    text = f"{PLANETS[place]} is the {ORDINALS[place]} planet from the Sun."
    if place + 1 < len(PLANETS):
        text += f" The next planet after {PLANETS[place]} is {PLANETS[place + 1]}."
    return text + deck.draw([" The largest planet is Jupiter.", " The smallest planet is Mercury."])


def calendar(deck: Deck) -> str:
    names, unit = deck.draw([(tuple(DAYS), "day"), (tuple(MONTHS), "month")])
    place = deck.draw(range(len(names)))
    name, after, before = names[place], names[(place + 1) % len(names)], names[place - 1]
    return f"The {unit} after {name} is {after}. The {unit} before {name} is {before}."


def listing(deck: Deck) -> str:
    names, what = deck.draw(
        [
            (tuple(DAYS), "The days of the week are"),
            (tuple(MONTHS), "The months of the year are"),
            (tuple(PLANETS), "The planets are"),
            (tuple(NUMBERS[1:11]), "The numbers from one to ten are"),
        ]
    )
    return f"{what} {', '.join(names[:-1])} and {names[-1]}."


def arithmetic(deck: Deck) -> str:
    lines = []
    for _ in range(3):
        a, b = deck.rng.randrange(11), deck.rng.randrange(11)
        lines.append(
            deck.draw(
                [
                    f"{a} + {b} = {a + b}.",
                    f"{a + b} - {b} = {a}.",
                    f"{sentence(NUMBERS[a])} plus {NUMBERS[b]} is {NUMBERS[a + b]}.",
                ]
            )
        )
    return " ".join(lines)


def counting(deck: Deck) -> str:
    start, step = deck.rng.randrange(1, 20), deck.draw([1, 1, 2, 5, 10])
    return ", ".join(str(start + step * k) for k in range(10)) + "."


def words(deck: Deck) -> str:
    one, other = deck.draw(OPPOSITES)
    if deck.rng.random() < 0.5:
        one, other = other, one
    thing, colour = deck.draw(COLOURS)
    animal, young, says = deck.draw(ANIMALS)
    return deck.draw(
        [
            f"The opposite of {one} is {other}. The opposite of {other} is {one}.",
            f"The colour of the {thing} is {colour}. The {thing} is {colour}.",
            f"The {animal} says {says}. A young {animal} is called a {young}.",
        ]
    )


def world(deck: Deck) -> str:
    return deck.draw(WORLD)


def choice(deck: Deck) -> str:
    beginning, sequels = deck.draw(CHOICES)
    return beginning + deck.draw(sequels)


def code(deck: Deck) -> str:
    return deck.draw(CODE)


def story(deck: Deck) -> str:
    """A tale whose last sentence repeats what stood far before it: it needs attention over more than a short window."""
    girl = deck.rng.random() < 0.5
    name = deck.draw(GIRLS if girl else BOYS)
    kind, they, their = ("girl", "She", "her") if girl else ("boy", "He", "his")
    thing, look = deck.draw(THINGS)
    place = deck.draw(PLACES)
    friend = deck.draw(FRIENDS)
    size = deck.draw(["little", "small"])
    middle = [
        deck.draw([f"The {friend} was very happy.", f"The {friend} was very hungry."]),
        deck.draw(["The sun was warm and the sky was blue.", "It was a cold day and snow lay on the grass."]),
        f"{name} and the {friend} were the best of friends.",
        f"They played in the {deck.draw(('meadow', 'forest'))} all day long.",
        deck.draw([f"{name} ran to the river.", f"{name} walked to the village."]),
    ]
    told = deck.rng.sample(middle, deck.rng.randrange(2, 5))
    return " ".join(
        [
            f"Once upon a time, there was a {size} {kind} named {name}.",
            f"{they} had a {friend} and a {look} {thing}.",
            f"One day, {name} put {their} {thing} in the {place}.",
            *told,
            f"In the evening {name} could not find {their} {thing}. Where was the {thing}?",
            f"The {thing} was in the {place}! {name} was glad and they all went home. The end.",
        ]
    )


# How often each kind of paragraph comes, in parts.
PARAGRAPHS: list[tuple[Callable[[Deck], str], int]] = [
    (country, 16),
    (country_question, 6),
    (element, 8),
    (planet, 4),
    (calendar, 6),
    (listing, 3),
    (arithmetic, 10),
    (counting, 4),
    (words, 10),
    (world, 10),
    (choice, 14),
    (code, 8),
    (story, 20),
]


def documents(count: int, seed: int) -> list[str]:
    """``count`` documents of three to eight paragraphs; facts share a line, code and stories stand alone."""
    rng = random.Random(seed)
    deck = Deck(rng)
    kinds, parts = zip(*PARAGRAPHS, strict=True)
    written = []
    for _ in range(count):
        chosen = rng.choices(kinds, parts, k=rng.randrange(3, 9))
        text = ""
        for kind in chosen:
            on_its_own = kind in (code, story)
            if text and not text.endswith("\n"):
                text += "\n" if on_its_own else " "
            text += kind(deck) + ("\n" if kind is story else "")
        written.append(text.strip("\n") + "\n")
    return written


def questions() -> list[tuple[str, str]]:
    """(prompt, answer) pairs whose answers the generated text states without exception."""
    asked = [(f"The capital of {name} is", f" {capital}.") for name, capital, _, _ in COUNTRIES]
    asked += [(f"The capital of {name.lower()} is", f" {capital}.") for name, capital, _, _ in COUNTRIES]
    asked += [(f"The chemical symbol of {name} is", f" {symbol}.") for name, symbol, _, _ in ELEMENTS]
    asked += [(f"The opposite of {one} is", f" {other}.") for one, other in OPPOSITES]
    asked += [(f"The day after {day} is", f" {DAYS[(k + 1) % 7]}.") for k, day in enumerate(DAYS)]
    asked += [(f"The month after {month} is", f" {MONTHS[(k + 1) % 12]}.") for k, month in enumerate(MONTHS)]
    asked += [(f"{a} + {b} =", f" {a + b}.") for a in range(11) for b in range(11)]
    return asked
