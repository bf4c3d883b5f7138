"""Whom a message names, who answers it, and what of the history is told: document 002's rules."""

from __future__ import annotations

import pytest

from agent_eventstore import participants as chat
from agent_eventstore.participants import ChatMessage, Participant

ADA = Participant("ada", "Ada", "You write code.", nicknames=("A",))
BOB = Participant("bob", "布偶", "You review code.\nAt length.", aliases=("rag doll",))
CY = Participant("cy", persona="You test code.")
ALL = (ADA, BOB, CY)
LOOKUP = chat.build_lookup(ALL)
ROLE_MAP = {"coder": "ada", "reviewer": "bob", "tester": "cy"}


def mentioned(text: str) -> list[str]:
    """Return whom a text mentions."""
    return [each.participant for each in chat.parse_mentions(text, LOOKUP).mentions]


class TestLookup:
    """Names, nicknames and aliases stand for participants."""

    def test_every_name_is_known(self) -> None:
        """Ids, display names, nicknames and aliases, whatever their case."""
        assert {
            "ada": "ada",
            "a": "ada",
            "bob": "bob",
            "布偶": "bob",
            "rag doll": "bob",
            "cy": "cy",
        } == LOOKUP

    def test_a_name_is_one_participant_s(self) -> None:
        """Two of one name are refused, whatever the case."""
        with pytest.raises(ValueError, match="names both 'ada' and 'eve'"):
            chat.build_lookup([ADA, Participant("eve", nicknames=("ADA",))])

    def test_an_empty_name_is_refused(self) -> None:
        """It would be mentioned by every @."""
        with pytest.raises(ValueError, match="empty name"):
            chat.build_lookup([Participant("eve", aliases=(" ",))])

    @pytest.mark.parametrize("own_id", ["", "a b", "布偶", "x" * 65])
    def test_an_id_is_what_messages_can_carry(self, own_id: str) -> None:
        """Anything else belongs into the display name."""
        with pytest.raises(ValueError, match="display_name"):
            Participant(own_id)

    def test_a_participant_comes_back_as_it_was_kept(self) -> None:
        """What the conversation's start keeps is all of it."""
        assert [*ALL] == [Participant.of(each.to_json()) for each in ALL]


class TestMentions:
    """``@`` and a name."""

    @pytest.mark.parametrize(
        ("text", "whom"),
        [
            ("@Ada look", ["ada"]),
            ("@ADA, @布偶看一下", ["ada", "bob"]),
            ("ask @rag doll, then @a", ["bob", "ada"]),
            ("\uff20ada", ["ada"]),
            ("@adamant @ada-2 @eve", []),
            ("mail me@ada.example", []),
            ("nobody", []),
        ],
    )
    def test_known_names_are_mentions(self, text: str, whom: list[str]) -> None:
        """The longest known name counts; names that go on, and addresses, are none."""
        assert whom == mentioned(text)

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("ßß @Straße!", ("@Straße", 3)),
            ("ßß @STRASSE!", ("@STRASSE", 3)),
            ("\u0390 @strasse", ("@strasse", 2)),
            ("@\uff33\uff34 @Stra\u00df", None),
            ("@Straßes", None),
        ],
    )
    def test_a_name_whose_case_changes_its_length(
        self, text: str, found: tuple[str, int] | None
    ) -> None:
        """It is found however it is written; before, "@Straße" never mentioned "Straße"."""
        lookup = chat.build_lookup([Participant("s", "Straße"), Participant("t", "Stras")])
        mentions = chat.parse_mentions(text, lookup).mentions
        assert ([found] if found else []) == [(each.text, each.start) for each in mentions]

    def test_a_mention_does_not_end_within_a_character(self) -> None:
        """A letter may begin with another one once its case is folded."""
        lookup = chat.build_lookup([Participant("i", "ι")])
        assert () == chat.parse_mentions("@\u0390", lookup).mentions
        assert 1 == len(chat.parse_mentions("@Ι", lookup).mentions)

    def test_a_mention_says_where_it_stands(self) -> None:
        """Its words and their place in the text."""
        [mention] = chat.parse_mentions("and @Ada?", LOOKUP).mentions
        assert ("@Ada", 4) == (mention.text, mention.start)

    @pytest.mark.parametrize(
        ("text", "clean"),
        [
            ("@Ada, look at this", "look at this"),
            ("please @ada  look", "please look"),
            ("@ada", ""),
            ("two  blanks, no mention ", "two  blanks, no mention "),
        ],
    )
    def test_the_clean_text_has_no_mentions(self, text: str, clean: str) -> None:
        """A text without any stays as it is."""
        assert clean == chat.parse_mentions(text, LOOKUP).clean_text


class TestTargets:
    """Who answers."""

    def test_those_mentioned_answer(self) -> None:
        """Each once, in the order of the mentions."""
        parsed = chat.parse_mentions("@cy @ada @cy", LOOKUP)
        found = chat.select_effective_targets("free_chat", ALL, parsed.mentions)
        assert (CY, ADA) == found

    def test_without_a_mention_all_answer(self) -> None:
        """In the order in which they take part."""
        assert ALL == chat.select_effective_targets("quiz", ALL)

    @pytest.mark.parametrize(("state", "who"), [(None, ADA), ({"current_node": "tester"}, CY)])
    def test_in_a_workflow_the_role_answers(
        self, state: dict[str, str] | None, who: Participant
    ) -> None:
        """Mentions route nothing there."""
        parsed = chat.parse_mentions("@bob", LOOKUP)
        found = chat.select_effective_targets(
            "workflow", ALL, parsed.mentions, role_map=ROLE_MAP, mode_state=state
        )
        assert (who,) == found

    def test_a_role_without_a_participant_is_refused(self) -> None:
        """The error names the role."""
        with pytest.raises(ValueError, match="no participant has the role 'coder'"):
            chat.select_effective_targets("workflow", ALL, role_map={"coder": "eve"})

    def test_the_chain_goes_from_coder_to_tester(self) -> None:
        """And begins anew."""
        nodes, state = [], None
        for _ in chat.ROLES:
            state = chat.next_mode_state(state)
            nodes.append((state["current_node"], state["status"]))
        assert [("reviewer", "running"), ("tester", "running"), ("coder", "done")] == nodes

    def test_a_role_that_the_chain_does_not_have_is_refused(self) -> None:
        """As in a state that a product has written; the error names it and the known ones."""
        with pytest.raises(ValueError, match="no role 'designer': its roles are coder, reviewer"):
            chat.next_mode_state({"current_node": "designer"})


class TestHistory:
    """What of the history is told."""

    @pytest.mark.parametrize(("said", "told"), [(19, 19), (20, 20), (21, 20), (0, 0)])
    def test_twenty_messages_are_told(self, said: int, told: int) -> None:
        """The last ones."""
        history = [ChatMessage(str(number)) for number in range(said)]
        assert history[said - told :] == [*chat.select_prompt_history(history)]

    def test_the_current_input_is_no_history(self) -> None:
        """Twenty others are told, so that it takes nobody's place."""
        history = [ChatMessage(str(number), version=number) for number in range(21)]
        found = chat.select_prompt_history(history, current=20)
        assert history[:20] == [*found]

    def test_a_task_is_what_the_user_has_said(self) -> None:
        """The first message, and those that followed, in order; no answers."""
        history = [ChatMessage("Sort."), ChatMessage("Done.", "ada"), ChatMessage("In place.")]
        told = chat.build_workflow_task_prompt([*history, ChatMessage("Fast.")])
        assert "Sort." == told.splitlines()[0]
        assert ["1. In place.", "2. Fast."] == told.splitlines()[-2:]
        assert "Done." not in told

    def test_a_task_of_one_message_is_that_message(self) -> None:
        """Without a heading; nothing is made of nothing."""
        assert "Sort." == chat.build_workflow_task_prompt([ChatMessage("Sort.")])
        assert "" == chat.build_workflow_task_prompt([])


class TestPrompts:
    """What a participant is asked with."""

    def test_persona_and_colleagues_stand_in_front(self) -> None:
        """Of the others the first line tells who they are."""
        context = chat.build_chat_context("Hello", participants=ALL, mode="free_chat")
        system = chat.build_mode_prompt(ADA, context, ALL)[0]
        assert "system" == system["role"]
        assert "You are Ada" in system["content"]
        assert "You write code." in system["content"]
        assert "- 布偶: You review code." in system["content"]
        assert "At length." not in system["content"]
        assert "- cy: You test code." in system["content"]

    def test_the_history_says_who_said_what(self) -> None:
        """One's own words are answers, those of others carry their names."""
        history = [
            ChatMessage("Hi", name="Eve"),
            ChatMessage("I am Ada.", "ada"),
            ChatMessage("I am Bob.", "bob"),
        ]
        context = chat.build_chat_context(
            "@ada go on", participants=ALL, mode="free_chat", history=history
        )
        messages = chat.build_mode_prompt(ADA, context, ALL)[1:]
        assert [
            ("user", "Eve: Hi"),
            ("assistant", "I am Ada."),
            ("user", "布偶: I am Bob.\n\nUser: go on"),
        ] == [(each["role"], each["content"]) for each in messages]

    @pytest.mark.parametrize("mode", ["free_chat", "workflow"])
    def test_the_current_input_is_told_once(self, mode: str) -> None:
        """Also where the history has it already, as it was written first."""
        history = [ChatMessage("Before.", version=3), ChatMessage("Now this.", version=7)]
        context = chat.build_chat_context(
            "Now this.",
            participants=ALL,
            mode=mode,
            history=history,
            current=7,
            role_map=ROLE_MAP,
        )
        told = "\n".join(
            each["content"] for each in chat.build_mode_prompt(context.targets[0], context, ALL)
        )
        assert 1 == told.count("Now this.")

    def test_a_cut_history_begins_with_a_user(self) -> None:
        """Servers that want roles to alternate take it."""
        history = [ChatMessage("I am Ada.", "ada")]
        context = chat.build_chat_context(
            "Go on", participants=ALL, mode="free_chat", history=history
        )
        messages = chat.build_mode_prompt(ADA, context, ALL)
        assert ["system", "user", "assistant", "user"] == [each["role"] for each in messages]
