"""Templates of arithmetic word problems with worked answers.

Each template draws small whole numbers, writes a question, and works the answer out step by step; the arithmetic is
done by `Worked`, so that a written step is always right.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

_NAMES = (
    "Ada Ahmed Alice Amara Anna Anton Ben Bruno Carla Chen Clara Daniel David Dina Elena Emma Erik Eva Farid "
    "Felix Fiona Grace Hana Hugo Ida Ines Ivan Jack Jana Jonas Julia Karim Kate Kenji Lara Leo Lina Lucas Maria "
    "Marco Maya Mei Mila Nadia Nina Noah Nora Olga Omar Oscar Paula Peter Petra Rahul Rosa Ruth Sam Sara Sofia "
    "Tariq Tom Vera Victor Yuki Zoe"
)
_GOODS = "pens notebooks apples oranges candles cups lamps brushes tickets stamps books plants scarves tiles jars"
_FOODS = "pancakes cookies muffins rolls pies cakes loaves tarts pizzas omelettes"
_PLACES = "Northfield Easton Milbrook Harwick Lowbridge Stonehill Riverton Oakdale Fairview Westport Ashford Kingsley"
_ANIMALS = "cows goats sheep horses ducks geese rabbits hens"

NAMES = tuple(_NAMES.split())
GOODS = tuple(_GOODS.split())
FOODS = tuple(_FOODS.split())
INGREDIENTS = ("eggs", "cups of flour", "spoons of sugar", "cups of milk", "spoons of butter", "pinches of salt")
PLACES = tuple(_PLACES.split())
ANIMALS = tuple(_ANIMALS.split())


@dataclass
class Worked:
    """One problem while it is being written: the draws and the steps of its answer."""

    random: Random
    sentences: list[str] = field(default_factory=list)
    answer: int = 0

    def number(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return self.random.randint(low, high)

    def one_of(self, words: tuple[str, ...]) -> str:
        """One of the words."""
        return self.random.choice(words)

    def two_of(self, words: tuple[str, ...]) -> tuple[str, str]:
        """Two different words."""
        first, second = self.random.sample(words, 2)
        return first, second

    def step(self, sentence: str, left: int, sign: str, right: int) -> int:
        """Do one calculation and write it where the sentence has '{}'; returns its result."""
        if sign == "/":
            if left % right:
                raise ValueError(f"{left} / {right} is not a whole number")
            result = left // right
        else:
            result = {"+": left + right, "-": left - right, "*": left * right}[sign]
        self.sentences.append(sentence.format(f"{left} {sign} {right} = {result}"))
        self.answer = result
        return result


def _shop(w: Worked) -> str:
    name, goods = w.one_of(NAMES), w.one_of(GOODS)
    count, price = w.number(2, 12), w.number(2, 15)
    note = next(note for note in (20, 50, 100, 200) if note > count * price)
    cost = w.step(f"The {goods} cost {{}} dollars.", count, "*", price)
    w.step(f"{name} gets {{}} dollars back.", note, "-", cost)
    return (
        f"{name} buys {count} {goods} at {price} dollars each and pays with {note} dollars. How much "
        f"change does {name} get?"
    )


def _two_goods(w: Worked) -> str:
    name, (first, second) = w.one_of(NAMES), w.two_of(GOODS)
    a, b, price_a, price_b = w.number(2, 9), w.number(2, 9), w.number(2, 9), w.number(2, 12)
    left = w.step(f"The {first} cost {{}} dollars.", a, "*", price_a)
    right = w.step(f"The {second} cost {{}} dollars.", b, "*", price_b)
    w.step("Together that is {} dollars.", left, "+", right)
    return (
        f"At a market {first} cost {price_a} dollars each and {second} cost {price_b} dollars each. "
        f"{name} buys {a} {first} and {b} {second}. How many dollars does {name} spend?"
    )


def _train(w: Worked) -> str:
    start, end = w.two_of(PLACES)
    speed, hours = 10 * w.number(4, 15), w.number(2, 6)
    rest = w.number(15, 90)
    driven = w.step("In that time the train covers {} km.", speed, "*", hours)
    w.step("The whole way is {} km.", driven, "+", rest)
    return (
        f"A train leaves {start} for {end} at {speed} km per hour. After {hours} hours it still has {rest} km to go. "
        f"How many km is it from {start} to {end}?"
    )


def _trip_time(w: Worked) -> str:
    start, end = w.two_of(PLACES)
    speed, hours, pause = 10 * w.number(3, 12), w.number(2, 7), w.number(1, 3)
    time = w.step("The drive takes {} hours.", speed * hours, "/", speed)
    w.step("With the rest it takes {} hours.", time, "+", pause)
    return (
        f"The road from {start} to {end} is {speed * hours} km long. A bus drives at {speed} km per hour and rests for "
        f"{pause} {'hour' if pause == 1 else 'hours'} on the way. How many hours does the journey take?"
    )


def _meeting(w: Worked) -> str:
    start, end = w.two_of(PLACES)
    first, second, hours = 5 * w.number(2, 12), 5 * w.number(2, 12), w.number(2, 6)
    together = w.step("Each hour they come {} km closer.", first, "+", second)
    w.step("They meet after {} hours.", together * hours, "/", together)
    return (
        f"{start} and {end} are {together * hours} km apart. One rider leaves {start} at {first} km "
        "per hour, another leaves "
        f"{end} at {second} km per hour towards the first. After how many hours do they meet?"
    )


def _recipe(w: Worked) -> str:
    name, food, ingredient = w.one_of(NAMES), w.one_of(FOODS), w.one_of(INGREDIENTS)
    per_batch, uses, batches = w.number(4, 12), w.number(2, 6), w.number(2, 8)
    needed = w.step("That makes {} batches.", per_batch * batches, "/", per_batch)
    w.step(f"{name} needs {{}} {ingredient}.", needed, "*", uses)
    return (
        f"A recipe for {per_batch} {food} takes {uses} {ingredient}. {name} wants to make "
        f"{per_batch * batches} {food}. "
        f"How many {ingredient} does {name} need?"
    )


def _ages(w: Worked) -> str:
    first, second = w.two_of(NAMES)
    age, older, later = w.number(4, 20), w.number(2, 15), w.number(2, 20)
    now = w.step(f"{second} is {{}} years old now.", age, "+", older)
    w.step(f"In {later} years {second} will be {{}} years old.", now, "+", later)
    return (
        f"{first} is {age} years old. {second} is {older} years older than {first}. "
        f"How old will {second} be in {later} years?"
    )


def _ages_sum(w: Worked) -> str:
    first, second = w.two_of(NAMES)
    age, times = w.number(3, 15), w.number(2, 5)
    other = w.step(f"{second} is {{}} years old.", age, "*", times)
    w.step("Together they are {} years old.", age, "+", other)
    return f"{first} is {age} years old and {second} is {times} times as old. How old are they together?"


def _sharing(w: Worked) -> str:
    name, goods = w.one_of(NAMES), w.one_of(GOODS)
    friends, each, kept = w.number(2, 9), w.number(2, 12), w.number(1, 12)
    left = w.step(f"There are {{}} {goods} to share.", friends * each + kept, "-", kept)
    w.step(f"Each friend gets {{}} {goods}.", left, "/", friends)
    return (
        f"{name} has {friends * each + kept} {goods}, keeps {kept} and shares the rest equally among "
        f"{friends} friends. "
        f"How many {goods} does each friend get?"
    )


def _area(w: Worked) -> str:
    length, width, price = w.number(3, 20), w.number(2, 12), w.number(2, 9)
    area = w.step("The floor has {} square metres.", length, "*", width)
    w.step("The carpet costs {} dollars.", area, "*", price)
    return (
        f"A room is {length} metres long and {width} metres wide. Carpet costs {price} dollars for a square metre. "
        "How much does it cost to cover the whole floor?"
    )


def _fence(w: Worked) -> str:
    name, animals = w.one_of(NAMES), w.one_of(ANIMALS)
    length, width = w.number(5, 40), w.number(4, 30)
    half = w.step("One long and one short side are {} metres.", length, "+", width)
    w.step("The fence is {} metres long.", half, "*", 2)
    return (
        f"{name} puts a fence around a field for {animals}. The field is {length} metres long and {width} metres wide. "
        "How many metres of fence are needed?"
    )


def _tank(w: Worked) -> str:
    flow, leak, minutes = w.number(6, 20), w.number(1, 5), w.number(3, 15)
    net = w.step("Each minute the tank gains {} litres.", flow, "-", leak)
    w.step("In that time it gains {} litres.", net, "*", minutes)
    return (
        f"A pump brings {flow} litres into a tank each minute while {leak} "
        f"{'litre leaks' if leak == 1 else 'litres leak'} "
        f"out. How many litres are in the tank, empty at first, after {minutes} minutes?"
    )


def _wages(w: Worked) -> str:
    name = w.one_of(NAMES)
    hours, wage, days, spent = w.number(3, 8), w.number(5, 20), w.number(2, 6), w.number(5, 25)
    daily = w.step(f"{name} earns {{}} dollars a day.", hours, "*", wage)
    total = w.step(f"In {days} days that is {{}} dollars.", daily, "*", days)
    w.step("After the purchase {} dollars are left.", total, "-", spent)
    return (
        f"{name} works {hours} hours a day for {wage} dollars an hour. After {days} days {name} "
        f"spends {spent} dollars. "
        f"How many dollars does {name} have left?"
    )


def _saving(w: Worked) -> str:
    name, goods = w.one_of(NAMES), w.one_of(("bicycle", "guitar", "camera", "telescope", "tent", "violin"))
    have, weekly, weeks = w.number(5, 60), w.number(3, 15), w.number(3, 12)
    missing = w.step(f"{name} still needs {{}} dollars.", have + weekly * weeks, "-", have)
    w.step("That takes {} weeks.", missing, "/", weekly)
    return (
        f"A {goods} costs {have + weekly * weeks} dollars. {name} has {have} dollars and saves "
        f"{weekly} dollars each week. "
        f"After how many weeks can {name} buy the {goods}?"
    )


def _legs(w: Worked) -> str:
    name = w.one_of(NAMES)
    four, two = w.number(3, 20), w.number(3, 25)
    a = w.step("The sheep have {} legs.", four, "*", 4)
    b = w.step("The ducks have {} legs.", two, "*", 2)
    w.step("Together they have {} legs.", a, "+", b)
    return f"{name} keeps {four} sheep and {two} ducks. How many legs do the animals have together?"


def _boxes(w: Worked) -> str:
    name, goods = w.one_of(NAMES), w.one_of(GOODS)
    boxes, each, broken = w.number(3, 12), w.number(4, 15), w.number(1, 9)
    total = w.step(f"There are {{}} {goods} in all.", boxes, "*", each)
    w.step(f"{{}} {goods} are whole.", total, "-", broken)
    return (
        f"{name} unpacks {boxes} boxes with {each} {goods} in each. {broken} of them "
        f"{'is' if broken == 1 else 'are'} broken. "
        f"How many {goods} are whole?"
    )


Template = Callable[[Worked], str]
FIRST_TEMPLATES: tuple[Template, ...] = (
    *(_shop, _two_goods, _train, _trip_time, _meeting, _recipe, _ages, _ages_sum),
    *(_sharing, _area, _fence, _tank, _wages, _saving, _legs, _boxes),
)
