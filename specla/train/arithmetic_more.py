"""More templates of arithmetic word problems, of three steps and of other subjects."""

from specla.train.arithmetic import ANIMALS, FIRST_TEMPLATES, FOODS, GOODS, NAMES, PLACES, Template, Worked


def _library(w: Worked) -> str:
    place = w.one_of(PLACES)
    shelves, each, lent, back = w.number(3, 12), w.number(8, 25), w.number(5, 20), w.number(1, 20)
    total = w.step("The shelves hold {} books.", shelves, "*", each)
    left = w.step("After lending there are {} books.", total, "-", lent)
    w.step("After the return there are {} books.", left, "+", back)
    return (
        f"The library of {place} has {shelves} shelves with {each} books each. It lends {lent} books and gets {back} "
        f"{'book' if back == 1 else 'books'} back. How many books are in the library then?"
    )


def _average(w: Worked) -> str:
    name = w.one_of(NAMES)
    mean, spread, other = w.number(10, 40), w.number(1, 9), w.number(1, 9)
    first, second = mean - spread, mean + spread + other
    third = 3 * mean - first - second
    pair = w.step("The first two give {} points.", first, "+", second)
    total = w.step("All three give {} points.", pair, "+", third)
    w.step("The average is {} points.", total, "/", 3)
    return f"{name} scores {first}, {second} and {third} points in three games. What is {name}'s average score?"


def _half(w: Worked) -> str:
    name, goods = w.one_of(NAMES), w.one_of(GOODS)
    half, more = w.number(4, 40), w.number(2, 20)
    rest = w.step(f"{name} has {{}} {goods} after selling half.", 2 * half, "/", 2)
    w.step(f"With the new ones {name} has {{}} {goods}.", rest, "+", more)
    return (
        f"{name} has {2 * half} {goods}, sells half of them and then buys {more} more. How many {goods} "
        f"does {name} have?"
    )


def _discount(w: Worked) -> str:
    name, goods = w.one_of(NAMES), w.one_of(("coat", "chair", "radio", "clock", "table", "mirror"))
    tenth, tens = w.number(3, 20), w.number(1, 5)
    one = w.step("Ten percent of the price is {} dollars.", 10 * tenth, "/", 10)
    off = w.step("The discount is {} dollars.", one, "*", tens)
    w.step(f"The {goods} costs {{}} dollars.", 10 * tenth, "-", off)
    return (
        f"A {goods} costs {10 * tenth} dollars. In a sale {name} gets {10 * tens} percent off. "
        f"How many dollars does {name} pay for the {goods}?"
    )


def _seats(w: Worked) -> str:
    rows, each, empty, price = w.number(4, 15), w.number(5, 15), w.number(1, 12), w.number(2, 9)
    total = w.step("The theatre has {} seats.", rows, "*", each)
    taken = w.step("{} seats are taken.", total, "-", empty)
    w.step("The tickets bring {} dollars.", taken, "*", price)
    return (
        f"A theatre has {rows} rows of {each} seats. One evening {empty} "
        f"{'seat stays' if empty == 1 else 'seats stay'} empty. "
        f"A ticket costs {price} dollars. How many dollars do the tickets bring?"
    )


def _harvest(w: Worked) -> str:
    name = w.one_of(NAMES)
    trees, each, sack = w.number(2, 9), w.number(2, 9), w.number(2, 8)
    apples = w.step("The trees give {} kg of apples.", trees * sack, "*", each)
    w.step("That fills {} sacks.", apples, "/", sack)
    return (
        f"{name} has {trees * sack} apple trees and picks {each} kg from each tree. A sack holds {sack} kg. "
        f"How many sacks does {name} fill?"
    )


def _reading(w: Worked) -> str:
    name = w.one_of(NAMES)
    daily, days, rest_days = w.number(5, 30), w.number(3, 9), w.number(2, 8)
    read = w.step(f"{name} has read {{}} pages.", daily, "*", days)
    left = w.step("{} pages are left.", daily * (days + rest_days), "-", read)
    w.step("They take {} more days.", left, "/", daily)
    return (
        f"A book has {daily * (days + rest_days)} pages. {name} reads {daily} pages a day and has "
        f"read for {days} days. "
        "How many more days does the book take?"
    )


def _farm(w: Worked) -> str:
    name, (first, second) = w.one_of(NAMES), w.two_of(ANIMALS)
    count, times, sold = w.number(3, 15), w.number(2, 5), w.number(1, 6)
    more = w.step(f"There are {{}} {second}.", count, "*", times)
    total = w.step("That makes {} animals.", count, "+", more)
    w.step("After the sale there are {} animals.", total, "-", sold)
    return (
        f"{name} has {count} {first} and {times} times as many {second}. {name} sells {sold} of the animals. "
        "How many animals are left?"
    )


def _machine(w: Worked) -> str:
    goods = w.one_of(GOODS)
    minutes, each, hours = 10 * w.number(1, 3), w.number(2, 12), w.number(2, 8)
    runs = w.step("In an hour the machine runs {} times.", 60, "/", minutes)
    hourly = w.step(f"It makes {{}} {goods} an hour.", runs, "*", each)
    w.step(f"In {hours} hours it makes {{}} {goods}.", hourly, "*", hours)
    return f"A machine makes {each} {goods} every {minutes} minutes. How many {goods} does it make in {hours} hours?"


def _bakery(w: Worked) -> str:
    name, food = w.one_of(NAMES), w.one_of(FOODS)
    trays, each, sold, price = w.number(2, 9), w.number(4, 12), w.number(3, 7), w.number(2, 6)
    baked = w.step(f"{name} bakes {{}} {food}.", trays, "*", each)
    left = w.step(f"{{}} {food} are left for the afternoon.", baked, "-", sold)
    w.step("They bring {} dollars.", left, "*", price)
    return (
        f"{name} bakes {trays} trays of {each} {food}. In the morning {sold} are given away. In the "
        "afternoon the rest are sold "
        f"at {price} dollars each. How many dollars do they bring?"
    )


def _walk(w: Worked) -> str:
    name, place = w.one_of(NAMES), w.one_of(PLACES)
    there, days = w.number(2, 9), w.number(2, 7)
    daily = w.step(f"{name} walks {{}} km a day.", there, "*", 2)
    w.step(f"In {days} days that is {{}} km.", daily, "*", days)
    return (
        f"{name} walks {there} km to school in {place} and {there} km back. How many km does {name} walk "
        f"in {days} days?"
    )


def _groups(w: Worked) -> str:
    place = w.one_of(PLACES)
    buses, seats, teachers = w.number(2, 8), w.number(10, 30), w.number(2, 9)
    people = w.step("The buses carry {} people.", buses, "*", seats)
    w.step("{} of them are children.", people, "-", teachers)
    return (
        f"A school in {place} fills {buses} buses with {seats} people in each. {teachers} of the "
        "people are teachers and the "
        "others are children. How many children are there?"
    )


def _triangle(w: Worked) -> str:
    base, height = w.number(3, 20), 2 * w.number(2, 10)
    whole = w.step("A rectangle of that size has {} square cm.", base, "*", height)
    w.step("The triangle has half of it, {} square cm.", whole, "/", 2)
    return f"A triangle has a base of {base} cm and a height of {height} cm. What is its area in square cm?"


def _difference(w: Worked) -> str:
    (first, second), goods = w.two_of(NAMES), w.one_of(GOODS)
    few, more = w.number(5, 40), w.number(2, 30)
    other = w.step(f"{second} has {{}} {goods}.", few, "+", more)
    w.step(f"Together they have {{}} {goods}.", few, "+", other)
    return f"{first} has {few} {goods}. {second} has {more} more than {first}. How many {goods} do they have together?"


TEMPLATES: tuple[Template, ...] = (
    *FIRST_TEMPLATES,
    *(_library, _average, _half, _discount, _seats, _harvest, _reading, _farm),
    *(_machine, _bakery, _walk, _groups, _triangle, _difference),
)
