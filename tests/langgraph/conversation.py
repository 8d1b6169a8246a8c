"""A conversation of 60 turns in six sessions, invented for these tests.

Session 1 tells where Ada lives, session 5 what Ada likes; nothing else says both.
"""

from __future__ import annotations

FACT = "My sister Ada Lindqvist moved to Lisbon last spring and rents a flat above a bakery there."
PREFERENCE = "Ada Lindqvist drinks nothing but jasmine tea, so I always look for a tin of it."
QUESTION = "Which present would please my sister in Lisbon?"

SESSIONS: tuple[tuple[str, ...], ...] = (
    (
        "Hello, I am Tomas and I repair string instruments.",
        "The workshop is in an old stable behind our house.",
        FACT,
        "This week a cello came in with a split in its belly.",
        "I glue such cracks with warm hide glue.",
        "The varnish has to match, which takes longest.",
        "A violin from 1890 is waiting for a new bridge.",
        "My neighbour lends me his band saw on Thursdays.",
        "The stable roof leaks when the wind is from the west.",
        "That is all for today, thank you.",
    ),
    (
        "Good morning, the roof leaks again.",
        "A roofer will come on the ninth and wants 400 euros.",
        "I have put buckets under the worst places.",
        "The cello is dry, I moved it into the kitchen.",
        "Its owner, Mrs. Oduya, called twice.",
        "She plays in the town orchestra on Sundays.",
        "The concert in November has Dvorak on the programme.",
        "I promised the cello for the end of October.",
        "The glue needs three more days.",
        "Until tomorrow.",
    ),
    (
        "I started to train for a half marathon.",
        "I run along the canal before breakfast.",
        "My left knee hurts after eight kilometres.",
        "The doctor told me to do squats on a cushion.",
        "New shoes are in the post, size 44.",
        "My friend Ruben runs with me on Saturdays.",
        "Ruben is faster and waits at the lock for me.",
        "The race is on the fourth of December in Utrecht.",
        "I want to finish in under two hours.",
        "Enough about running.",
    ),
    (
        "Our tomcat Pablo has learnt to open the fridge.",
        "He stole a whole trout yesterday.",
        "We put a child lock on the fridge door.",
        "Pablo now sits before it and complains.",
        "The vet says that he weighs 6.2 kilos.",
        "He is on a diet of 180 grams a day.",
        "My daughter Noor weighs his food on the letter scales.",
        "Noor starts school after the summer.",
        "She wants to learn the double bass, of all things.",
        "Pablo sends his regards.",
    ),
    (
        "I am making a list of presents.",
        "Noor wishes for a book about whales.",
        PREFERENCE,
        "Ruben gets a head torch for dark mornings.",
        "Mrs. Oduya has earned a set of strings.",
        "For the neighbour I bottle our plum brandy.",
        "The roofer did good work, he gets a bottle too.",
        "The list is longer than my purse.",
        "I will wrap everything in old sheet music.",
        "Thanks for listening.",
    ),
    (
        "The orchestra played well last night.",
        "Mrs. Oduya's cello filled the hall.",
        "After the concert we had soup at the station.",
        "The varnish looks as if it had never cracked.",
        "A bassoon player asked whether I repair woodwind.",
        "I do not, but I know somebody in Leiden.",
        "My knee is better, the squats helped.",
        "I booked a train for the holidays.",
        "The plum brandy is clear by now.",
        QUESTION,
    ),
)
REPLIES = (
    "I see.",
    "That sounds like a lot of work.",
    "Good to know.",
    "How nice!",
    "I will keep that in mind.",
    "Tell me more if you like.",
)
