"""A conversation of nine sessions in which an allergy and a taste for baking are told far apart."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from shared_core.bank.conversation import Page

ALLERGY, BAKING = "s1-2", "s5-1"
SNACK = "Recommend me a quick snack recipe."
START = datetime(2024, 1, 8, tzinfo=timezone.utc)

SESSIONS: dict[str, list[str]] = {
    "s1": [
        "Hi there! I just started with this assistant and want to tell a few things about me.",
        "My name is Marlene, and I work night shifts as a nurse at the harbour clinic.",
        (
            "One serious thing: I have a severe nut allergy. I carry an EpiPen, and one almond in a cookie "
            "is too much."
        ),
        "My brother Tobias thinks I worry too much, but he has never seen me turn blue.",
        "Anyway, could you remind me of the clinic meeting on Thursday?",
        "Thanks, talk soon!",
    ],
    "s2": [
        "Hello again. The Thursday meeting went on for three hours.",
        "Our head nurse wants us to use a new rota from March.",
        "I asked for two free weekends a month and got one.",
        "My old bicycle has a flat tyre, so I took the tram to work.",
        "The tram was late twice this week.",
    ],
    "s3": [
        "Good evening. I signed up for a pottery class at the community centre.",
        "The teacher is called Ruben and he used to be a glass blower.",
        "My first bowl cracked in the kiln, and everybody laughed kindly.",
        "Next week we glaze, and I want a dark green one.",
        "Somebody brought a quick lunch for all of us, a lentil salad.",
        "I liked the piano album that you named.",
    ],
    "s4": [
        "I moved my bed under the window and sleep better now.",
        "The neighbour's dog barks whenever my night shift ends.",
        "His name is Bruno and he is a very old beagle.",
        "I bought ear plugs at the chemist, the soft orange ones.",
        "Send me a recipe for a simple soup when you can, I eat alone after the shift.",
    ],
    "s5": [
        "I had a whole free Sunday for the first time this month!",
        "On free days I bake my own snacks. I love brownies and cookies with caramel.",
        "Quick recipe ideas are welcome any time, chocolate is my weakness.",
        "My oven runs hot, so I take things out five minutes early.",
        "Ruben asked me to bring something sweet to the pottery class.",
        "I still have to return his kiln gloves.",
    ],
    "s6": [
        "The clinic got a new ultrasound machine and nobody knows how it works.",
        "I spent the morning with its manual, four hundred pages.",
        "Doctor Albrecht let me hold the training for my ward.",
        "Six colleagues came, and two of them stayed awake.",
        "The canteen gave us free snacks for the whole day, mostly crisps.",
    ],
    "s7": [
        "Tobias visits next month with his twins.",
        "I need bunk beds, or at least two mattresses.",
        "The twins are six and love dinosaurs.",
        "They eat pancakes for breakfast, so I need a quick batter.",
        "We might go to the natural history museum on Saturday, which is free for children.",
        "Please remember to tell me about the whale hall.",
    ],
    "s8": [
        "My landlord wants to raise the rent by eighty euros.",
        "I wrote him a letter and asked for the heating bill first.",
        "The tenants' union costs seven euros a month.",
        "They answered within a day, which surprised me.",
        "The raise may not be lawful before September.",
    ],
    "s9": [
        "Hello! The landlord took the raise back.",
        "To celebrate I repaired the bicycle and rode along the canal.",
        "I saw a heron and two swans near the lock.",
        "My legs hurt, but the sunset was worth it.",
        "Tomorrow I have the late shift again.",
        "Good night for now.",
    ],
}


def pages() -> list[Page]:
    """Return the fifty pages, a session a week."""
    return [
        Page(
            text=text,
            session=session,
            speaker="Marlene",
            time=START + timedelta(weeks=week, minutes=minute),
            id=f"{session}-{minute}",
        )
        for week, (session, texts) in enumerate(SESSIONS.items())
        for minute, text in enumerate(texts)
    ]
