"""English word lists that the rules of this package share, all case-folded.

Written for dialogue. They are closed classes (function words, calendar words, numerals) and the words that
commonly open a spoken sentence; none of them names anything.
"""

from __future__ import annotations


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _numbered(text: str, first: int, step: int = 1) -> dict[str, int]:
    return {word: first + step * place for place, word in enumerate(text.split())}


MONTHS: dict[str, int] = {
    name: number
    for number, names in enumerate(
        (
            "january jan",
            "february feb",
            "march mar",
            "april apr",
            "may",
            "june jun",
            "july jul",
            "august aug",
            "september sept sep",
            "october oct",
            "november nov",
            "december dec",
        ),
        start=1,
    )
    for name in names.split()
}
"""Month names and their usual abbreviations, January is 1."""

WEEKDAYS = _numbered("monday tuesday wednesday thursday friday saturday sunday", 0)
"""Full names only, Monday is 0; "sun" and "sat" are English words."""

NUMERALS = (
    _numbered("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen", 0)
    | _numbered("fifteen sixteen seventeen eighteen nineteen twenty", 15)
    | _numbered("thirty forty fifty sixty seventy eighty ninety hundred", 30, 10)
)
"""Number words up to twenty, and the tens up to a hundred."""

STOP_WORDS = _set(
    """
    a about above across actually after afterwards again against ago ah aha all almost alone along already
    also although always am among an and another any anybody anyhow anymore anyone anything anyway
    anywhere apart are aren't around as at away aw aww awww back be became because become becomes been
    before behind being below beside besides between beyond both but by bye can can't cannot could
    couldn't cuz 'cause did didn't do does doesn't doing don't done dont down due during each either else
    enough especially even ever every everybody everyone everything everywhere except few for from further
    get gets getting go goes going gonna got gotta gotten had hadn't haha hahaha has hasn't have haven't
    having he he'd he'll he's hello hence her here here's hers herself hey hi hiya him himself his hmm how
    how's however huh i i'd i'll i'm i've if im in indeed instead into is isn't it it'd it'll it's its
    itself ive just kinda last least less let let's like lol lots many may maybe me meanwhile might mine
    more moreover most mostly much must my myself nah near neither never nevertheless next no nobody none
    nope nor not nothing now nowhere of off oh ok okay omg on once one ones only onto oops or other others
    otherwise ouch our ours ourselves out over own per perhaps please plus pretty quite rather really same
    she she'd she'll she's should shouldn't since so some somebody somehow someone something sometime
    sometimes somewhere soon still such sure than thank thanks that that'd that'll that's thats the their
    theirs them themselves then there there's therefore these they they'd they'll they're they've this
    those though through throughout thus till to together too toward towards uh uhh um under unless unlike
    until up upon us very via wanna was wasn't we we'd we'll we're we've well were weren't what what's
    whatever when whenever where where's wherever whether which whichever while who who's whoever whole
    whom whose why will with within without won't would wouldn't wow ya yay yeah yep yes yet yo you you'd
    you'll you're you've your yours yourself yourselves yup
    """
)
"""Function words, contractions and interjections; no content."""

OPENERS = _set(
    """
    absolutely achieve admire adopt afternoon agree agreed aim alright amazing anytime appreciate
    apparently appreciated art artists ask asap attend awesome awful babe backpacking bad baking balance
    basically beautiful beauty believe best better birds biggest bless books both bravo breakfast brb
    brilliant bringing bro brother btw bud buddy building business call camping capturing care cats
    certainly challenges change chasing check cheers chicken children chocolate choose christmas classes
    coding coffee come coming community completely congrats congratulations connecting consider continue
    cooking cool count country crazy creating cute dad daddy dance dancing darn dear definitely depends
    despite dinner discovering dogs doubt dream dreams driving drop dude each early easy eating education
    embrace encouraging engaging enjoy enjoyed enjoying evening eventually every everyday exactly
    excellent exciting excited exercise exploring failure fair faith family fantastic fashion favorite
    feel feels feeling fellow find finding fine finally fingers finished first fitness folks follow food
    football former fortunately forward friends friendship fun funny fyi gaming gardening girl give giving
    glad god goin good goodbye goodness gorgeous gosh gotcha great greetings grandma grandpa growing guess
    guys hahah hang hanging happened happy hard hate haven hearing heard heartwarming heck hehe help
    helped helping high hiking history hold home honestly honesty hopefully hope hoping hot huge hugs
    hungry hurray hurry husband idk imagine impressive including incredible inspiring inspired interesting
    interested investing join joining joy keep keeping kids kind kindness kinds know knowing lately later
    laughter leaving learning left legit letting life lifting likewise list listen listening literally
    little live living long look looking looks looked losing lost lovely love loved loves loving lucky
    lunch made make makes making man marketing math maybe mean means meditation meeting mental merry met
    mighty mom mommy moments morning mornings mother mountains move movies moving mum music nature natural
    need needed networking neat nice night nonetheless note nowadays number obviously old opening open
    overall paint painting parents part passion past patience people perfect performing photography phew
    picking pizza place plans planning play played playing pleased pleasure positive practice practicing
    prayers preparing pride probably promise promoting proud pursuing put putting question quick quit rain
    reading ready read real recently regardless relationships remember remind reminds resilience rest
    right running sad saw say says saying second secondly see seeing seems seen self seriously setting
    several sharing shame shoot shopping short sick similar simple simply sis sister sleep slow small
    someday somethin sorry sound sounds speaking spending sports spring staying stay starting started
    start step sticking stop stress strange strength strong stuff studying summer super support supporting
    supportive surely surprisingly surprise surrounding sweet swimming take taking talk talking tea team
    teaching tell ten terrific text that'll therapy thing things think thinking thought thirdly time times
    today told tomorrow tonight top totally touching traveling treat true truly trust truth trying try
    turning tv two typically ugh unfortunately understanding understood used usually vacation violin visit
    visiting volunteering wait waking walking want wanted warm watch watching water wedding week weekend
    weeks weird welcome went whew winter wish winning wishing woah wonder wonderful wondering woo woohoo
    work working works worth wouldn wrap writing xoxo year years yesterday yikes yoga young yum yummy
    additionally accordingly afterward altogether consequently earlier furthermore initially similarly
    specifically subsequently ultimately according based both given regarding three four five six seven
    eight nine eleven twelve hundreds thousands dozens aunt uncle grandmother grandfather cousin niece
    nephew wife son daughter boyfriend girlfriend boss sir madam mr mrs ms miss dr prof am pm ps diy faq
    eta lmao rofl tbh imo imho nvm thx pls plz
    """
)

"""Common words that open a spoken sentence; capitalised there, or for emphasis, they are not names."""

ROLES = _set(
    """
    user assistant system human ai bot agent customer operator speaker speaker_1 speaker_2 narrator
    """
)
"""Labels that stand before a turn without naming its speaker."""

KIN = _set("dad daddy mom mommy mum mother father grandma grandpa sis bro dude babe lord god mr mrs ms miss")

NEVER_NAMES = STOP_WORDS | ROLES | KIN | MONTHS.keys() | WEEKDAYS.keys() | NUMERALS.keys()
"""Capitalised, these alone are not names."""

TITLES = _set("mr mrs ms miss dr prof sir st mt ft sgt capt lt col gen rev")
"""Abbreviations whose full stop ends no sentence and which belong to the name that follows."""

ABBREVIATIONS = TITLES | _set(
    """
    vs etc e.g i.e a.m p.m no inc ltd co jr sr approx dept est fig u.s u.k jan feb mar apr jun jul aug sept
    sep oct nov dec
    """
)

WEAK_WORDS = _set(
    """
    able add added afraid agree allow amazing annoying ask asked awesome awful bad beautiful began begin
    believe best better big bit bought brand bring brought busy buy call called came care certain check
    cheer chill close come coming complete cool couple course crazy cute day days deal decide decided
    definitely different difficult easy end enjoy enjoyed enjoying exactly excited exciting expect fact
    fall fantastic far favorite feel feeling feels fell felt figure finally find fine finish finished
    first following fond found free friendly full fun funny gave give given gives giving glad gone good
    great guess guy guys had half hand handle happen happened happy hard hate heard hear help helped
    helpful helping helps honestly hope hopefully hoping huge idea imagine important incredible interested
    interesting join joined keep keeping keeps kept kind know known large late lately later learn learned
    leave left let life little live lived lives living long look looked looking looks lose lost lot love
    loved lovely loves loving lucky made main make makes making matter mean means meant meet meeting met
    mind moment need needed needs new nice nicely night old open opened part past people perfect person
    pick place plan planned planning play played plays plenty point possible probably proud put ready real
    reason recent recently recommend remember right run sad said saw say saying says second see seeing
    seem seems seen send sense share shared sharing short show showed side small sometimes sorry sort
    sound sounds special spend spent start started starting stay stayed stop stuff super support sweet
    take taken takes taking talk talked talking tell thing things think thinking thought three time times
    today told tomorrow tonight took totally tough tried true truly trust try trying turn turned two type
    understand use used useful using usual usually visit visited wait waiting walk want wanted wants watch
    watched way ways week weekend weeks weird went wish wonder wonderful wondering word words work worked
    working works world worried worry worth wow write wrong year years yesterday young
    """
)
"""Frequent verbs, adjectives and vague nouns: content words, but no concept by which to link memories."""

PERSON_VERBS = _set("said says told asked lives works loves likes wants moved married thinks invited called")
"""What, in the third person, only persons do."""

DETERMINERS = _set("the my our your his her their its at every each very these those")
"""Before "last month" they make a duration or an ordinal of it, not a date."""

ROUNDERS = _set("than over least nearly almost under half and or to point") | NUMERALS.keys()
"""Before "two years ago" they say that it was not just two: "more than", "a hundred and"."""
