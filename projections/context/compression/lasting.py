"""What is kept of a user's message at any age: lasting statements verbatim, and identifiers.

A lasting statement holds until it is taken back: a rule ("A must never be charged in euro"), what
somebody is, has or wishes ("my daughter is allergic to peanuts", "call me Kim"), or a correction
("no, not X but Y"). A list of facts cannot replace one. Rules and corrections are *strong*: they
come before other statements. Any other sentence in which users speak of themselves, or state the
value of something with one value (a password, a date, a budget), is a statement too; so are short
sentences in the first person of other languages. Of every sentence that contains an identifier, the
identifiers and names are kept as well. The patterns are fixed, so the same text always keeps the
same. If you change a pattern, raise the version of the projection `context`, which notes
the messages of which anything is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from projections.context.compression.facts import (
    LONGEST_FACT,
    Fact,
    facts_of_text,
    lasting_facts,
    names_identifier,
    texts_of,
)
from projections.context.compression.sentences import sentences_of

__all__ = [
    "LONG",
    "MOST_READ",
    "Lasting",
    "about",
    "conclusions_in",
    "facts_to_keep",
    "has_frame",
    "is_lasting",
    "lasting_of",
    "leaves_anything",
    "may_take_back",
    "replaced_in",
    "superseded",
    "takes_back",
]

MOST_READ = 8_000  # characters; the rest of a message is not searched
LONG = 600
"""The most characters of prose that is short."""

_LONGEST_RULE = 240
_MOST_RULES = 4  # of one message
_MOST_CONCLUSIONS = 2  # of one message
_MOST_FACTS = 12
_NEAR = 64  # versions
_IDENTIFIES = re.compile("[0-9@/_]")  # Every identifier contains one of these.

_STRONG = re.compile(
    r"\b(?:must|mustn't|never|always|shall|may not|under no circumstances|do not ever"
    r"|(?:from|starting) (?:now|today|this point) on|make sure|in (?:the )?future|from here on"
    r"|for future reference|(?:keep|bear)(?: \w+)? in mind|don't forget|do not forget"
    r"|remember(?= that|:|,| to| this| my| I| we| it\b)|allerg(?:ic|y|ies)|intolerant"
    r"|vegetarian|vegan"
    r"|diabetic|call me|address me as|my name is|my pronouns|no longer|not anymore"
    r"|(?:i|we) (?:only|strictly) |(?:please|only|strictly) (?:use|answer|write|reply|speak)"
    r"|i (?:would )?(?:prefer|insist)|avoid|stop \w+ing|correction|i meant"
    # German
    r"|muss|musst|müssen|müsst|dar(?:f|fst)|dürfen|niemals|nie|stets|immer(?! noch| wieder)"
    r"|keinesfalls|auf keinen fall|unbedingt|ab (?:jetzt|sofort|heute)|von (?:nun|jetzt) an"
    r"|in zukunft|künftig|merken? (?:sie )?(?:dir|sich)|merk dir|denk(?:e"
    r"|en sie)? (?:bitte )?daran"
    r"|vergiss nicht|nicht vergessen|bitte (?:nur|nie|immer|nicht|keine?n?)|nenn(?:e"
    r"|en sie)? mich"
    r"|ich heiße|mein name ist|allergi\w+|unverträglich\w*|vegetari\w+|bevorzuge|verboten)\b"
    r"|(?:\A|[,;:] |\b(?:please|and|so|also|but) )(?:don't|do not|no more) "
    r"(?!know|have|think|see|understand|want|need|care|worry|mind|remember|get\b|like)"
    r"|\b(?:verwende|benutze|nutze|erwähne|schreibe?|antworte|nimm|sprich)\b.*\b(?:nicht"
    r"|keine?n?|nur|auf)\b"
    r"|必须|不得|绝不|绝对不|永远|务必|禁止|总是|始终|一律|千万|不要|不准|不许|别再|记住|请记|牢记|别忘|不要忘"
    r"|以后|从现在起|从今|今后|叫我|称呼我|我叫|名字是|过敏|吃素|素食|请用|只用|只能|只要用|更正|应该是",
    re.IGNORECASE,
)
_WEAK = re.compile(
    r"\b(?:i'm|i am) (?!sorry|looking|trying|not sure|sure|afraid|wondering|calling|writing"
    r"|here|happy"
    r"|interested|glad|going|just|still|asking|hoping|thinking|having|checking|getting|ready"
    r"|okay|ok\b"
    r"|fine|unable|aware|confused|very|so\b|really|also|curious|done|back|in \w+ of|facing"
    r"|planning)\w"
    r"|\bmy (?:[\w'-]+ ){1,4}(?:is|are|was)\b|\b(?:i|we) (?:live|work|hate|love|can't eat"
    r"|cannot eat|do(?:n't| not)"
    r" (?:like|eat|drink|want any)|have (?:a|an|two|three|four|no)|decided|agreed|use) "
    r"|\b(?:i was born|let's (?:go with|use|take)|decision:|we (?:will|'ll) (?:go with|use|take))"
    r"|\bich (?:bin|habe|wohne|arbeite|mag|hasse|liebe|esse|trinke|möchte nie)\b"
    r"|\b(?:mein|meine|unser|unsere) (?:[\wäöüß-]+ ){1,4}(?:ist|sind|war|heißt|hat)\b"
    r"|\bwir (?:haben entschieden|nehmen|verwenden)\b"
    r"|我是|我的[^\uff0c。]{1,20}(?:是|在|叫)|我(?:住在|喜欢|讨厌|不吃|不喜欢|决定|在[^\uff0c。]{1,12}工作)|我们(?:决定|用)|生日",
    re.IGNORECASE,
)

# Nouns for things that have one value at a time.
_ENGLISH_NOUNS = (
    r"(?:name|nickname|address|numbers?|e-?mail|phone|birthday|anniversary|code|pin|password"
    r"|passphrase"
    r"|account|iban|appointment|meeting|deadline|due date|date|time|budget|limit|size|age|weight"
    r"|height"
    r"|job|salary|rent|seat|room|gate|invoice|order|booking|reservation|flight|policy|plan|ticket"
    r"|port"
    r"|version|branch|host|url|path|id|user ?name|login|colou?r|title|currency|language|favou?rite"
    r"(?: \w+)?|price|doctor|dentist|blood type|licen[cs]e(?: plate)?|contact|time ?zone)"
)
_GERMAN_NOUNS = (
    r"(?:\w*(?:name|adresse|nummer|konto|geburtstag|termin|budget|größe|passwort|kennwort|code"
    r"|datum"
    r"|frist|preis|limit|alter|gewicht|beruf|miete|gehalt|sitzplatz|zimmer|rechnung|bestellung"
    r"|buchung|farbe|titel|währung|sprache|arzt|ärztin|besprechung|iban)|e-?mail|pin|lieblings\w+)"
)
_CHINESE_NOUNS = (
    r"(?:名字|姓名|昵称|地址|住址|电话|手机|号码?|邮箱|生日|预算|密码|账号|账户|卡号|订单号?|发票号?|日期|时间|截止"
    r"|期限|会议|预约|尺码|尺寸|年龄|体重|身高|职业|工作|工资|房租|座位|房间|航班|版本|价格|颜色|限额|上限|编号)"
)
_VALUE = re.compile(
    rf"\b(?:the|my|our|his|her|their|this|your) (?:[\w'-]+ ){{0,3}}?{_ENGLISH_NOUNS}"
    r"(?: (?:of|for|at|in|on|to|with) (?:[\w'.-]+ ){1,5}?| )(?:is|are|will be|has|was moved to"
    r"|ends?) "
    rf"|\b(?:der|die|das|dem|den|mein|meine|unser|unsere|ihr|ihre|sein|seine) (?:[\w-]+ ){{0,2}}?"
    rf"{_GERMAN_NOUNS}(?: (?:von|für|fürs|vom|bei|beim|im|in|am|zum|zur|der"
    rf"|des) (?:[\w-]+ ){{1,4}}?| )"
    r"(?:ist|sind|lautet|heißt|liegt|beträgt|läuft|hat|wird) "
    rf"|{_CHINESE_NOUNS}[^\uff0c,。?\uff1f]{{0,6}}?(?:是|为|改为|最多|[:\uff1a])",
    re.IGNORECASE,
)

# Sentences in which users speak of themselves, whatever they say.
_SELF = re.compile(
    r"\b(?:i|we|i'm|i've|i'd|we're|we've|we'd|my|our|mine|ours|myself)\b"
    r"|\b(?:makes?|gives?|suits?|bothers?|upsets?) (?:me|us)\b|\bfor me\b"
    r"|\b(?:ich|wir|mein\w{0,2}|unser\w{0,2}|mir|mich|uns)\b"
    r"|我|咱|本人"
    # French, Spanish, Portuguese, Italian, Dutch
    r"|\b(?:je|j'ai|j'habite|j'aime|mon|ma|mes|nous|notre|nos|yo|soy|tengo|vivo|prefiero|mi|mis"
    r"|nuestr[oa]s?|eu"
    r"|sou|tenho|moro|prefiro|meus?|minhas?|nosso|nossa|io|sono|ho|abito|preferisco|mio|mia|miei"
    r"|nostro|nostra"
    r"|ik|mijn|wij|onze)\b|\bj'"
    # Russian, Polish, Turkish, Japanese, Korean, Arabic
    r"|\b(?:я|мой|моя|моё|мои|меня|мне|мы|наш|наша|наше|jestem|mam|mój|moja|moje|benim|ben|bizim"
    r"|أنا|لدي)\b"
    r"|私|僕|俺|わたし|(?:저|나)(?:는|의)|내 |제 |우리",
    re.IGNORECASE,
)
_PASSING = re.compile(
    # What users think, read or want to know now, and what they ask for.
    r"\b(?:i|we)(?:'m| am|'d| would|'ve| have|'ll| will|'re| are| was| were)? ?"
    r"(?:\b(?:just|really|only|also|still|already|recently|often|sometimes|once|always) )*"
    r"\b(?:think|thought|guess|suppose|wonder\w*|see|saw|seen|know|knew|understand|understood"
    r"|mean|meant|agree"
    r"|hope|hoping|read|reading|heard|hear|watch\w*|notice\w*|remember\w*|find|found|feel|felt"
    r"|believe"
    r"|assume|imagine|learn\w*|ask\w*|say|said|tell|told|look\w*|try\w*|tried|appreciate|thank\w*"
    r"|sorry|glad|happy|sure|curious|interested|confused|afraid|ready|fine|okay|done|back|going"
    r"|talk\w*"
    r"|check\w*|get|got|getting|can (?:see|understand|imagine|remember)|can't (?:see|find"
    r"|remember|wait)|could|may|might"
    r"|should|do not know|don't know|enjoy(?:ed)?|writing|calling|planning to ask|aware|unable"
    r"|facing|here)\b"
    r"|\b(?:let me|lets? us|tell (?:me|us)|show (?:me|us)|give (?:me|us)|help (?:me|us)"
    r"|reminds? (?:me|us)"
    r"|explain|can you|could you|would you|will you|do you|are you)\b"
    r"|\b(?:ich|wir) (?:denke|glaube|meine|finde|weiß|verstehe|sehe|hoffe|frage|wundere|hörte|las"
    r"|sah|kann"
    r"|könnte|möchte (?:wissen|fragen)|danke|würde gern wissen)\b"
    r"|\b(?:habe|haben) (?:\w+ ){0,5}(?:gelesen|gehört|gesehen|gefragt|gedacht)\b"
    r"|\b(?:erzähl\w*|zeig\w*|erklär\w*|sag\w*|hilf|gib) (?:mir|uns)\b"
    r"|我(?:们)?(?:想知道|想问|觉得|认为|猜|知道|明白|看到|听说|读到|看了|听了|希望知道|再问|问一下)"
    r"|(?:告诉|给|帮|提醒|教|让)我",
    re.IGNORECASE,
)
_LONGEST_STATEMENT = 160  # characters
_MAY_BE_WEAK = (
    " is ",
    " are ",
    " has ",
    " me ",
    "our ",
    "we'",
    "i'",
    " ist ",
    "lautet",
    " liegt ",
    " hat ",
    " mir",
    " mich",
    "je ",
    "j'",
    "mon ",
    "yo ",
    "soy ",
    "tengo",
    "mi ",
    "eu ",
    "meu",
    "io ",
    "sono ",
    "ik ",
    "mijn",
    "i'm",
    "i am",
    "my ",
    "i ",
    "we ",
    "ich ",
    "mein",
    "unser",
    "wir ",
    "let's",
    "decision",
)
_MAY_BE_STRONG = re.compile(
    r"must|never|always|shall|may not|circumstances|do not|don't|now on|today on|point on"
    r"|make sure"
    r"|future|here on|in mind|remember|allerg|intoleran|vegetari|vegan|diabetic|call me"
    r"|address me|name is"
    r"|pronouns|no longer|anymore|only|strictly|please|prefer|insist|avoid|stop |correction"
    r"|i meant"
    r"|no more|muss|darf|nie|stets|immer|keinesfalls|keinen fall|unbedingt|ab (?:jetzt|sofort"
    r"|heute)"
    r"|jetzt an|nun an|in zukunft|merke? |merken |denk|vergiss|vergessen|bitte |nenn|ich hei"
    r"|mein name"
    r"|bevorzug|verboten|verwende|benutze|nutze|schreib|antworte|nimm|sprich|not "
    r"|instead|rather"
    r"|nicht|statt|wrong|falsch"
)
_QUESTION = re.compile(r"[?\uff1f]\s*\Z")

# What a correction takes back, and what it says instead.
_CORRECTIONS = (
    re.compile(
        r"\b(?:not|nicht) (?!only|just|merely|nur"
        r"|sure)(?P<old>[^,.;:!?]{1,80}?),? (?:but(?: rather)?|rather|sondern) "
        r"(?P<new>[^.;!?]{1,120})",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?P<new>[^,.;:!?]{1,80}),? (?:instead of|rather than|statt|anstatt"
        r"|anstelle von) (?P<old>[^,.;:!?]{1,80})",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?P<new>[^,;:!?]{1,80}), (?:and |und )?(?:not|nicht) (?!sure|now|yet|only|just"
        r"|at all|really|today|that|nur|wahr)"
        r"(?P<old>[^,;:!?]{1,60}?)[.!]?\Z",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:不是|并非)(?P<old>[^\uff0c,。\uff1b\uff01\uff1f]{1,60})[\uff0c,]?\s*(?:而是|是"
        r"|应该是)(?P<new>[^。\uff1b\uff01\uff1f]{1,80})"
    ),
    re.compile(
        r"(?:把|将)(?P<old>[^\uff0c,。\uff1b\uff01\uff1f]{1,60}?)(?:改成|改为"
        r"|换成)(?P<new>[^。\uff1b\uff01\uff1f]{1,80})"
    ),
    re.compile(
        r"\b(?P<old>[\w#@./-]+) (?:was|is|war|ist) (?:wrong|a mistake|a typo|falsch"
        r"|ein fehler)\b",
        re.IGNORECASE,
    ),
)
_MAY_CORRECT = re.compile(
    r"not|nicht|instead|rather|statt|wrong|mistake|typo|falsch|fehler|不是|并非|改成|改为|换成",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(
    r"\b(?=[cfiostuz])(?:conclusions?|summary|in short|in sum|to sum up|overall|therefore"
    r"|fazit|zusammenfassung|zusammengefasst|schlussfolgerung|insgesamt|unterm strich)\b"
    r"|结论|总结|综上|总之",
    re.IGNORECASE,
)
_PAIRED = re.compile(r"[\s\"'“”\u2018\u2019«»「」『』]+")

# Statements of which only one can hold: a newer one with the same words takes the older one back.
_FRAME = re.compile(
    r"\b(?:call|address) me\b|\bi (?:(?:now|actually|currently) )?(?:live|work) (?:in|at|for"
    r"|as)\b|\bmy (?:[\w-]+ ){0,2}?(?:name"
    r"|address"
    r"|numbers?|e-?mail|phone|birthday|code|pin|account|appointment|meeting|deadline|budget|size"
    r"|favou?rite \w+) (?:is|are)\b"
    r"|\b(?:answer|reply|respond|write|speak)(?: to)?(?: me)?(?: only)? in\b"
    r"|\bnenn(?:e|en sie)? mich\b|\bich (?:wohne in|heiße)\b|\b(?:mein"
    r"|meine) (?:[\w-]+ ){0,2}?(?:name|adresse"
    r"|\w*nummer|e-?mail|geburtstag|termin|budget|größe|lieblings\w+) (?:ist|lautet)\b"
    r"|\b(?:antworte|schreibe?|sprich)(?: mir)?(?: bitte)?(?: nur)? auf\b"
    r"|叫我|称呼我|我叫|我住在|我的[^\uff0c。]{0,8}?(?:名字|地址|电话|号码?|邮箱|生日|预算)是"
    r"|用(?=[\u4e00-\u9fff]{1,6}(?:回答|回复|写))",
    re.IGNORECASE,
)
_LANGUAGE = re.compile(
    r"(?:answer|reply|respond|write|speak|antworte|schreib|sprich)|用", re.IGNORECASE
)


_FREE = frozenset(
    "i we my our the this new current correct right actual actually now really is are will be has"
    " das der die den dem mein meine unser unsere neue neuer neues jetzt ist sind lautet heißt"
    " liegt"
    " beträgt".split()
)


class Lasting(NamedTuple):
    """What is kept of a message.

    Attributes:
        rules: Rules and corrections, verbatim.
        facts: Identifiers in other sentences, and the names in those sentences.
        statements: Other lasting statements, verbatim.
        taken_back: Texts that a correction in the message takes back.
    """

    rules: tuple[str, ...]
    facts: tuple[str, ...]
    statements: tuple[str, ...] = ()
    taken_back: tuple[str, ...] = ()

    def without(self, newer: Sequence[tuple[int, str]], version: int) -> Lasting:
        """Return the same without what newer messages take back of a message at a version."""
        rules, facts, statements = (
            tuple([n for n in each if not any(takes_back(text, (version, n)) for text in newer)])
            for each in (self.rules, self.facts, self.statements)
        )
        return self._replace(rules=rules, facts=facts, statements=statements)


_NOTHING = Lasting((), ())


def lasting_of(text: str) -> Lasting:
    """Return the statements and facts to keep of a user's text; often none."""
    rules: list[str] = []
    statements: list[str] = []
    facts: dict[str, None] = {}
    taken_back: list[str] = []
    for statement, strength in _left(text):
        taken_back += _taken_back(statement)
        if strength:
            (rules if strength > 1 else statements).append(statement)
            continue
        found = (
            fact.text for fact in facts_of_text(statement) if fact.kind in ("identifier", "name")
        )
        facts.update(dict.fromkeys(text for text in found if len(text) <= LONGEST_FACT))
    if not (rules or facts or statements):
        return _NOTHING
    return Lasting(
        tuple(rules[:_MOST_RULES]),
        tuple([*facts][:_MOST_FACTS]),
        tuple(statements[:_MOST_RULES]),
        tuple(taken_back),
    )


def leaves_anything(text: str) -> bool:
    """Whether `lasting_of` finds anything in a text; stops at the first match."""
    return next(_left(text), None) is not None


@lru_cache(maxsize=1 << 12)
def is_lasting(sentence: str) -> bool:
    """Whether a sentence is a lasting statement."""
    return len(sentence) <= _LONGEST_RULE and _strength(sentence) > 0


@lru_cache(maxsize=1 << 12)
def has_frame(statement: str) -> bool:
    """Whether a statement has a typical form, such as "my ... is", beyond the first person."""
    return _WEAK.search(statement) is not None or _VALUE.search(statement) is not None


@lru_cache(maxsize=1 << 12)
def about(statement: str) -> str:
    """Return what a statement is about if only one such statement can hold; otherwise ``""``.

    >>> about("Please call me Kim."), about("Call me Alex!"), about("Never mention it.")
    ('call me', 'call me', '')
    """
    found = _FRAME.search(statement)
    if found is not None:
        return "language" if _LANGUAGE.match(found[0]) else _subject(found[0])
    value = _VALUE.search(statement)
    return "" if value is None else _subject(value[0])


def _subject(frame: str) -> str:
    """Return a frame in lower case, without words that differ between statements of one thing."""
    words = _PAIRED.sub(" ", frame.lower()).split()
    return " ".join(word for word in words if word not in _FREE)


def conclusions_in(text: str, sentences: Sequence[str]) -> list[int]:
    """Return the indexes of the sentences with which an answer concludes.

    Those that say so; if there are none, the last sentence of a long text.
    """
    found = [place for place, each in enumerate(sentences) if _CONCLUDES.search(each)]
    return found or ([len(sentences) - 1] if len(text) > LONG else [])


def facts_to_keep(
    messages: Sequence[Mapping[str, Any]], shorter: Sequence[Mapping[str, Any]]
) -> tuple[Fact, ...]:
    """Return the facts in messages for a digest: lasting statements, conclusions, and literals.

    Only those that the shorter form of the messages contains too.
    """
    facts = lasting_facts(messages, shorter)
    for message in messages:
        if message.get("role") == "user":
            text = "\n".join(texts_of(message))[:MOST_READ]
            left = lasting_of(text)
            remaining_text = "\n".join(text for each in shorter for text in texts_of(each))
            # Of a statement with an identifier, the identifier alone is kept: half of the calls
            # that a line of its words displaces in a tool agent's digest need one.
            bare = (each for each in left.statements if not names_identifier(each))
            rules = (each for each in (*left.rules, *bare) if each in remaining_text)
            facts = (*(Fact(each, "rule") for each in rules), *facts)
    if len(messages) == 1 and messages[0].get("role") == "assistant":
        answer = sentences_of("\n".join(texts_of(shorter[0]))[-MOST_READ:])
        places = conclusions_in("\n".join(texts_of(messages[0])), answer)
        ends = [answer[place] for place in places[-_MOST_CONCLUSIONS:]]
        short = (each for each in ends if len(each) <= _LONGEST_RULE and not _QUESTION.search(each))
        facts = (*(Fact(each, "conclusion") for each in short), *facts)
    return facts


@lru_cache(maxsize=1 << 12)
def _replaces(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return what a user's text takes back, and what its statements are about."""
    left = lasting_of(text[:MOST_READ]) if _may_last(text) else _NOTHING
    may_name = _FRAME.search(text) or _VALUE.search(text)
    named = (about(each) for each in sentences_of(text[:MOST_READ])) if may_name else ()
    return left.taken_back, frozenset(filter(None, named))


def may_take_back(text: str) -> bool:
    """Whether a user's text takes back anything that an older one may say."""
    return any(_replaces(text))


def replaced_in(text: str) -> tuple[str, ...]:
    """Return what a user's text takes back; usually nothing."""
    return _replaces(text)[0]


def takes_back(newer: tuple[int, str], older: tuple[int, str]) -> bool:
    """Whether a user's message takes back an older one, each given by its version and its text.

    It does so by correcting what the older one names, or by stating anew what only one statement
    can say. Words that are no identifiers are corrected only in messages shortly before.
    """
    old, topics = _replaces(newer[1])
    near = newer[0] - older[0] <= _NEAR
    if any((near or any(map(str.isdigit, each))) and says(older[1], each) for each in old):
        return True
    return bool(topics) and not topics.isdisjoint(_replaces(older[1])[1])


def superseded(statements: Sequence[tuple[int, str]]) -> dict[int, int]:
    """Return for messages that newer ones take back, by index, the index of the newest of these.

    Args:
        statements: Version and text of each message of a user, oldest first.
    """
    newer = [index for index, (_, text) in enumerate(statements) if any(_replaces(text))]
    return {
        before: index
        for index in newer
        for before in range(index)
        if takes_back(statements[index], statements[before])
    }


def says(text: str, statement: str) -> bool:
    """Whether a text contains what a correction takes back, as whole words."""
    text, statement = text.lower(), statement.lower()
    start = text.find(statement)
    while start >= 0:
        around = (
            text[max(start - 1, 0) : start],
            text[start + len(statement) : start + len(statement) + 1],
        )
        if not any(each.isascii() and each.isalnum() for each in around if each):
            return True
        start = text.find(statement, start + 1)
    return False


def _taken_back(sentence: str) -> Iterable[str]:
    if _MAY_CORRECT.search(sentence) is None:
        return ()
    found = (pattern.search(sentence) for pattern in _CORRECTIONS)
    old = [each["old"] for each in found if each][:1]
    facts = [fact.text for each in old for fact in facts_of_text(each) if fact.kind == "identifier"]
    words = [_PAIRED.sub(" ", each).strip() for each in old]
    return facts or [each for each in words if len(each) > 2 or not each.isascii()]


def _left(text: str) -> Iterator[tuple[str, int]]:
    """Yield each sentence that lasts or contains an identifier: 2 if strong, 1 if weak, else 0."""
    obliges = _may_last(text)
    if not (obliges or _IDENTIFIES.search(text)):
        return
    for sentence in sentences_of(text[:MOST_READ]):
        stripped = sentence.strip()
        strength = _strength(stripped) if obliges and len(stripped) <= _LONGEST_RULE else 0
        if strength < 2 and _IDENTIFIES.search(stripped) and names_identifier(stripped):
            yield stripped, 0
            if strength and len(stripped) > _LONGEST_STATEMENT:
                continue
        if strength:
            yield stripped, strength


def _strength(sentence: str) -> int:
    if _STRONG.search(sentence) or _taken_back(sentence):
        return 2
    if _QUESTION.search(sentence) is not None:
        return 0
    if has_frame(sentence):
        return 1
    return int(
        len(sentence) <= _LONGEST_STATEMENT
        and _SELF.search(sentence) is not None
        and _PASSING.search(sentence) is None
    )


def _may_last(text: str) -> bool:
    """Whether a text may contain a lasting statement; faster than to look for one."""
    if not text.isascii():
        return True
    lowered = text.lower()
    for word in _MAY_BE_WEAK:  # Faster than `any`: this runs for every user message.
        if word in lowered:
            return True
    return _MAY_BE_STRONG.search(lowered) is not None
