"""Planted facts in varied words: sixteen kinds in English, Chinese and German, and corrections.

A conversation of 1,000 turns of unrelated talk contains ten facts, each stated once. At the end the
user asks for one of them, or for something else. A fact counts as kept if the request contains its
value. A correction states another value ten turns later; 300 turns follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from benchmarks.context.retrieval import Asked, Chain, Follow, Found, measured
from benchmarks.context.transcripts import Message, request_tokens, said

__all__ = [
    "VARIED_SHARES",
    "Corrected",
    "corrected",
    "correction_chain",
    "varied",
    "varied_chain",
]

VARIED_SHARES = (0.1, 0.5, 0.9)
"""Budgets, as shares of the whole history."""

_TURNS = 1_000
_FACTS = 10
_AFTER = 300
_GAP = 10
CORRECTION_BUDGETS = (1_500, 3_000)

# Statement, question, value.
_ENGLISH = (
    ("The account we pay from is DE-4417-902.", "Which account do we pay from?", "DE-4417-902"),
    ("My last order was number W5520981.", "What was the number of my last order?", "W5520981"),
    ("Please never phone me before ten in the morning.", "When may you phone me?", "before ten"),
    ("I would love a window seat whenever there is one.", "What seat do I like?", "window seat"),
    ("By the way, shellfish makes me really ill.", "What food makes me ill?", "shellfish"),
    ("My sister is called Marlene.", "What is the name of my sister?", "Marlene"),
    ("My birthday is on the 3rd of March.", "When is my birthday?", "3rd of March"),
    ("We have four cats at home.", "How many cats do we have?", "four cats"),
    ("I moved to 14 Linden Road last spring.", "Which road did I move to?", "14 Linden Road"),
    (
        "We decided to paint the kitchen green.",
        "Which colour did we choose for the kitchen?",
        "green",
    ),
    (
        "I can spend at most 75 dollars on the gift.",
        "How much can I spend on the gift?",
        "75 dollars",
    ),
    ("My shoe size is 43.", "What is my shoe size?", "43"),
    ("I work as a paramedic.", "What do I work as?", "paramedic"),
    ("The wifi password at the cabin is bluefinch.", "What is the wifi password?", "bluefinch"),
    ("Call me Robin instead of Roberta.", "What should you call me?", "Robin"),
    ("I can't stand coriander.", "Which herb can't I stand?", "coriander"),
)
_GERMAN = (
    (
        "Unser Konto bei der Bank hat die Nummer 77120-45.",
        "Welche Nummer hat unser Konto?",
        "77120-45",
    ),
    (
        "Meine Bestellung läuft unter B-90321.",
        "Unter welcher Nummer läuft meine Bestellung?",
        "B-90321",
    ),
    ("Ruf mich bitte nie nach acht Uhr abends an.", "Wann darfst du mich anrufen?", "nach acht"),
    ("Ich hätte gern ein ruhiges Zimmer zum Hof.", "Was für ein Zimmer hätte ich gern?", "zum Hof"),
    ("Von Nüssen bekomme ich Ausschlag.", "Wovon bekomme ich Ausschlag?", "Nüssen"),
    ("Mein Bruder heißt Anselm.", "Wie heißt mein Bruder?", "Anselm"),
    ("Ich habe am 12. Mai Geburtstag.", "Wann habe ich Geburtstag?", "12. Mai"),
    ("Wir haben drei Kinder.", "Wie viele Kinder haben wir?", "drei Kinder"),
    ("Ich wohne jetzt in der Gartenstraße 8.", "In welcher Straße wohne ich?", "Gartenstraße 8"),
    (
        "Wir haben uns auf Eiche für den Boden geeinigt.",
        "Welches Holz nehmen wir für den Boden?",
        "Eiche",
    ),
    ("Mein Budget für den Urlaub liegt bei 900 Euro.", "Wie hoch ist mein Budget?", "900 Euro"),
    ("Ich trage Größe 52.", "Welche Größe trage ich?", "52"),
    ("Ich bin Hebamme von Beruf.", "Was bin ich von Beruf?", "Hebamme"),
    (
        "Das Passwort fürs Gartentor lautet Amsel.",
        "Wie lautet das Passwort fürs Gartentor?",
        "Amsel",
    ),
    ("Nenn mich bitte Toni.", "Wie sollst du mich nennen?", "Toni"),
    ("Ich mag keinen Koriander.", "Welches Kraut mag ich nicht?", "Koriander"),
)
_CHINESE = (
    ("我们付款的账号是6222-0193。", "我们付款的账号是多少?", "6222-0193"),
    ("我上次的订单号是T88301。", "我上次的订单号是多少?", "T88301"),
    ("请不要在早上九点之前打电话给我。", "什么时候可以打电话给我?", "九点之前"),
    ("我希望座位靠窗。", "我希望坐在哪里?", "靠窗"),
    ("我对花生过敏。", "我对什么过敏?", "花生"),
    ("我妹妹叫小梅。", "我妹妹叫什么?", "小梅"),
    ("我的生日是三月五日。", "我的生日是哪天?", "三月五日"),
    ("我家有两只狗。", "我家有几只狗?", "两只狗"),
    ("我搬到了解放路18号。", "我搬到了哪条路?", "解放路18号"),
    ("我们决定把客厅刷成米色。", "客厅决定刷成什么颜色?", "米色"),
    ("礼物的预算最多是300元。", "礼物的预算是多少?", "300元"),
    ("我穿41码的鞋。", "我穿多大的鞋?", "41码"),
    ("我是护士。", "我的职业是什么?", "护士"),
    ("仓库的门禁密码是海鸥。", "仓库的门禁密码是什么?", "海鸥"),
    ("以后叫我阿宁。", "应该怎么叫我?", "阿宁"),
    ("我不喜欢香菜。", "我不喜欢什么菜?", "香菜"),
)
_LANGUAGES = {"English": _ENGLISH, "German": _GERMAN, "Chinese": _CHINESE}

_TOPICS = (
    *("glaciers", "violins", "tides", "lanterns", "bridges", "comets", "orchards", "pottery"),
    *("chess", "sailing", "beetles", "maps", "theatre", "steam engines", "deserts", "clocks"),
)
_TALK = (
    (
        "What makes {0} so interesting to people?",
        "Many enjoy how {0} and {1} have changed over time.",
    ),
    (
        "Tell me a little about {0}, please.",
        "There is much to read about {0}; most begin with {1}.",
    ),
    ("Is there a good book on {0}?", "Several: the best known compares {0} with {1}."),
    ("How did {0} begin?", "Nobody is sure, but {0} came up around the time of {1}."),
    ("That reminds me of {1}.", "Indeed, {0} and {1} have that in common."),
    ("And what do experts think of {0}?", "They differ, and few agree on {1}."),
    ("I read something about {0} yesterday.", "It is a wide field; {1} belongs to it too."),
    ("I enjoy {0} more than {1}.", "That is a matter of taste, and {0} have their friends."),
    ("We visited an exhibition of {0} in 1987.", "It must have been lovely; {1} came later."),
    ("My neighbour collects things about {0}.", "A fine pastime, and cheaper than {1}."),
    ("Was ist an {0} so besonders?", "Viele schätzen daran die Nähe zu {1}."),
    ("{0}有什么特别的地方?", "很多人喜欢{0}, 因为它和{1}有关。"),
)

_CORRECTIONS = (
    ("The invoice number is 4471.", "No, not 4471 but 4717.", "4471", "4717"),
    (
        "My invoice has the number INV-20931.",
        "Sorry, not INV-20931 but INV-20913.",
        "INV-20931",
        "INV-20913",
    ),
    ("The meeting is on Tuesday.", "No, not on Tuesday but on Thursday.", "Tuesday", "Thursday"),
    ("My name is Katrin.", "Correction: my name is Karin, not Katrin.", "Katrin", "Karin"),
    ("Die Rechnung hat die Nummer 8812.", "Nein, nicht 8812, sondern 8821.", "8812", "8821"),
    ("Mein Termin ist am Montag.", "Nicht am Montag, sondern am Freitag.", "Montag", "Freitag"),
    ("发票号是3307。", "不对, 不是3307, 而是3370。", "3307", "3370"),
    ("我住在南京。", "不是南京, 是南宁。", "南京", "南宁"),
    ("I live in Bremen.", "I actually live in Bonn now.", "Bremen", "Bonn"),
    (
        "My budget is 500 dollars.",
        "My budget is 650 dollars after all.",
        "500 dollars",
        "650 dollars",
    ),
)


def varied(
    readers: Mapping[str, Follow], turns: int = _TURNS
) -> list[tuple[str, list[tuple[Found, Found]]]]:
    """Return for each reader what it keeps at each budget: asked for, and not asked for.

    Args:
        readers: By name.
        turns: Number of turns of each conversation.
    """
    chains = [varied_chain(name, number, turns) for name in _LANGUAGES for number in range(2)]
    found = []
    for name, follow in readers.items():
        results = [(Found(), Found()) for _ in VARIED_SHARES]
        for chain in chains:
            read = follow(chain)
            for share, (asked, unasked) in zip(VARIED_SHARES, results, strict=True):
                measured(chain, read, share, asked)
                other = tuple(
                    Asked("And what about rivers?", each.evidence) for each in chain.asked
                )
                measured(Chain(chain.messages, other), read, share, unasked)
        found.append((name, results))
    return found


def varied_chain(language: str, number: int, turns: int = _TURNS) -> Chain:
    """Return a conversation with ten facts of a language; each number has other facts."""
    pool = _LANGUAGES[language]
    facts = [pool[(number * _FACTS + place) % len(pool)] for place in range(_FACTS)]
    every, messages = turns // _FACTS, list[Message]()
    for turn, pair in enumerate(islice(_talk(number), turns)):
        if turn % every == every // 3:
            messages += _stated(facts[turn // every][0])
        messages += pair
    return Chain(tuple(messages), tuple(Asked(each[1], (each[2],)) for each in facts))


def _talk(seed: int) -> Iterator[tuple[Message, Message]]:
    turn = seed
    while True:
        question, answer = _TALK[turn % len(_TALK)]
        topics = (_TOPICS[turn * 5 % len(_TOPICS)], _TOPICS[(turn * 7 + 3) % len(_TOPICS)])
        yield (
            {"role": "user", "content": question.format(*topics)},
            {"role": "assistant", "content": f"{answer.format(*topics)} " * (1 + turn % 3)},
        )
        turn += 1


def _stated(text: str) -> tuple[Message, Message]:
    return {"role": "user", "content": text}, {"role": "assistant", "content": "Thank you."}


@dataclass(slots=True)
class Corrected:
    """Counts of requests after a correction, by what they contain."""

    requests: int = 0
    newer: int = 0
    both: int = 0
    older_alone: int = 0

    @property
    def newer_share(self) -> float:
        """Requests with the newer value, as a share of all, 0.0 to 1.0."""
        return self.newer / self.requests if self.requests else 0.0

    @property
    def older_share(self) -> float:
        """Requests with the older value alone, as a share of all, 0.0 to 1.0."""
        return self.older_alone / self.requests if self.requests else 0.0


def correction_chain(first: str, then: str, after: int = _AFTER) -> tuple[Message, ...]:
    """Return a conversation with a statement, its correction ten turns later, and more turns."""
    turns = islice(_talk(1), _GAP + _GAP + after)
    messages: list[Message] = []
    for turn, pair in enumerate(turns):
        if turn in (_GAP, 2 * _GAP):
            messages += _stated(first if turn == _GAP else then)
        messages += pair
    return tuple(messages)


def corrected(readers: Mapping[str, Follow], after: int = _AFTER) -> list[tuple[str, Corrected]]:
    """Return what each reader's requests contain after corrections, within two budgets."""
    found = []
    for name, follow in readers.items():
        result = Corrected()
        for first, then, old, new in _CORRECTIONS:
            chain = Chain(correction_chain(first, then, after), ())
            read = follow(chain)
            for budget in CORRECTION_BUDGETS:
                messages = read("And what about rivers?", budget)
                if request_tokens(messages) > budget:
                    continue
                text = said(messages)
                result.requests += 1
                result.newer += new in text
                result.both += new in text and old in text.replace(then, "")
                result.older_alone += old in text and new not in text
        found.append((name, result))
    return found
