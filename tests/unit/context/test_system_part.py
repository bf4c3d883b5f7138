"""The system part follows mode, persona, tools and run; the product's texts go before ours."""

from __future__ import annotations

import os
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from eventstore.events.values import Mode
from projections.context import prompts
from projections.context.prompts import (
    BASE_RULES_CHAT,
    BASE_RULES_RUN,
    TOOL_POLICY,
    Injection,
    PromptTexts,
    compose,
    persona_name,
)
from projections.errors import InvalidPrompt

TOOLS = [{"type": "function", "function": {"name": "search"}}]
RUNS = (Injection("run directive", "RUN_DIRECTIVE\n- run: r", (3,)),)
HEADING = re.compile(r"\b[A-Z]+(?:_[A-Z]+)+\b|\bNOTEBOOK\b")
CODER = PromptTexts(texts={"personas/coder.md": "You write code."})


def labels(parts: tuple[Injection, ...]) -> list[str]:
    """Return what the parts are."""
    return [part.label for part in parts]


def own(directory: Path, **files: str) -> PromptTexts:
    """Return the texts of a product that has these files; a double underscore is a slash."""
    for name, text in files.items():
        path = directory / f"{name.replace('__', '/').replace('_', '-')}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return PromptTexts(directory=directory)


class TestComposition:
    """Which parts there are, and in what order."""

    @pytest.mark.parametrize("runs", [(), RUNS])
    @pytest.mark.parametrize("tools", [[], TOOLS])
    @pytest.mark.parametrize("agent", [None, "coder"])
    @pytest.mark.parametrize("mode", ["chat", "agent", "run"])
    def test_the_parts_follow_the_mode(
        self, mode: Mode, agent: str | None, tools: list[Any], runs: tuple[Injection, ...]
    ) -> None:
        """Chat has no persona, only runs are told of runs, and no tools mean no policy."""
        expected = ["base rules"]
        expected += ["tool policy"] if tools else []
        expected += ["persona"] if agent and mode in ("agent", "run") else []
        expected += ["mode banner"]
        expected += ["run directive"] if runs and mode == "run" else []
        assert expected == labels(compose(mode, texts=CODER, agent=agent, tools=tools, runs=runs))

    def test_without_a_mode_nothing_is_composed(self) -> None:
        """The plain view stays plain; a run that was asked for is told all the same."""
        assert () == compose(None, texts=CODER, agent="coder", tools=TOOLS)
        assert RUNS == compose(None, runs=RUNS)

    @pytest.mark.parametrize("mode", ["chat", "agent", "run"])
    def test_the_banner_is_that_of_the_document(self, mode: Mode) -> None:
        """Word for word, with the active mode."""
        expected = (
            f"MODE\n- active: {mode}\n"
            "- note: history may include other modes; follow current instructions."
        )
        assert expected == compose(mode)[-1].text

    def test_agents_follow_the_rules_of_chat(self) -> None:
        """The document has base rules for chat and for runs."""
        chat, agent, run = compose("chat")[0], compose("agent")[0], compose("run")[0]
        assert (chat, False) == (agent, chat == run)

    def test_the_same_arguments_give_the_same_parts(self) -> None:
        """Nothing but the arguments decides."""
        first, second = (compose("run", texts=CODER, agent="coder", tools=TOOLS) for _ in "12")
        assert first == second

    def test_no_event_stands_behind_the_composed_parts(self) -> None:
        """They are not facts of the conversation; what a run is told is."""
        parts = compose("run", tools=TOOLS, runs=RUNS)
        assert [(), (), (), (3,)] == [part.versions for part in parts]

    def test_an_unknown_mode_is_refused(self) -> None:
        """A product's own have names of small letters; the error names the others."""
        with pytest.raises(ValueError, match="invalid mode 'Plan A': choose from chat, agent, run"):
            compose("Plan A")

    def test_a_mode_of_the_product_has_rules_of_its_own(self) -> None:
        """Or else those of chat; an empty text leaves them out."""
        own = {"system-base-rules-quiz.md": "Ask.", "system-base-rules-night.md": ""}
        texts = PromptTexts(texts=own)
        told = {mode: compose(mode, texts=texts)[0].text for mode in ("quiz", "plan", "night")}
        assert "Ask." == told["quiz"]
        assert PromptTexts().text(BASE_RULES_CHAT) == told["plan"]
        assert told["night"].startswith("MODE")


class TestDefaults:
    """The texts that are used where a product has none."""

    @pytest.mark.parametrize("name", [BASE_RULES_CHAT, BASE_RULES_RUN, TOOL_POLICY])
    def test_every_heading_that_they_explain_exists(self, name: str) -> None:
        """A heading that no view writes any more must go from the texts too."""
        words = Path(prompts.__file__).read_text("utf-8")
        explained = set(HEADING.findall(PromptTexts().text(name)))
        assert explained
        assert set() == {heading for heading in explained if heading not in words}

    @pytest.mark.parametrize(
        "heading",
        [
            "TOOL_OUTCOME_UNKNOWN",
            "TOOL_NOT_STARTED",
            "TOOL_RESULT_PREVIEW",
            "Full output:",
            "LLM_ERROR",
            "CONVERSATION_SUMMARY",
        ],
    )
    def test_the_tool_policy_explains(self, heading: str) -> None:
        """The model is told what the marks in its history ask of it."""
        assert heading in PromptTexts().text(TOOL_POLICY)

    def test_every_default_is_a_file_of_the_package(self) -> None:
        """They ship with it, under the names that products use."""
        files = resources.files("projections.context").joinpath("texts").iterdir()
        assert {BASE_RULES_CHAT, BASE_RULES_RUN, TOOL_POLICY} == {file.name for file in files}


class TestProducts:
    """A product's own texts."""

    def test_a_file_goes_before_the_default(self, tmp_path: Path) -> None:
        """And only for what it stands for: the others stay."""
        texts = own(tmp_path, system_base_rules_chat="Our rules.")
        assert "Our rules." == compose("chat", texts=texts)[0].text
        assert compose("run") == compose("run", texts=texts)

    def test_a_text_goes_before_a_file(self, tmp_path: Path) -> None:
        """What was handed over is nearer than what lies in a directory."""
        own(tmp_path, system_tool_policy="file")
        texts = PromptTexts(directory=tmp_path, texts={TOOL_POLICY: "given"})
        assert "given" == compose("chat", texts=texts, tools=TOOLS)[1].text

    @pytest.mark.parametrize("agent", ["coder", "team/coder", "编码", "v1.2", "..hidden"])
    def test_a_persona_is_found_by_the_id_of_its_agent(self, tmp_path: Path, agent: str) -> None:
        """Ids may be of any script, and may have folders."""
        path = tmp_path / persona_name(agent)
        path.parent.mkdir(parents=True)
        path.write_text("You are it.", "utf-8")
        texts = PromptTexts(directory=tmp_path)
        assert Injection("persona", "You are it.") in compose("agent", texts=texts, agent=agent)

    @pytest.mark.parametrize("agent", ["nobody", "x" * 300])
    def test_an_agent_without_a_persona_has_no_such_part(self, tmp_path: Path, agent: str) -> None:
        """There is no persona that would do for any agent."""
        texts = PromptTexts(directory=tmp_path)
        assert ["base rules", "mode banner"] == labels(compose("agent", texts=texts, agent=agent))

    def test_an_empty_text_leaves_its_part_out(self, tmp_path: Path) -> None:
        """That is how a product goes without one."""
        texts = own(tmp_path, system_base_rules_chat=" \n")
        assert ["mode banner"] == labels(compose("chat", texts=texts))

    def test_a_changed_file_is_read_again(self, tmp_path: Path) -> None:
        """The text is remembered for one modification time."""
        texts = own(tmp_path, system_base_rules_chat="one")
        path = tmp_path / BASE_RULES_CHAT
        os.utime(path, ns=(1, 1))
        assert "one" == texts.text(BASE_RULES_CHAT)
        path.write_text("two", "utf-8")
        os.utime(path, ns=(2, 2))
        assert "two" == texts.text(BASE_RULES_CHAT)

    def test_an_unchanged_file_is_not_read_again(self, tmp_path: Path) -> None:
        """Same modification time, size and inode: what was read is what counts."""
        texts = own(tmp_path, system_base_rules_chat="one")
        path = tmp_path / BASE_RULES_CHAT
        os.utime(path, ns=(1, 1))
        assert "one" == texts.text(BASE_RULES_CHAT)
        path.write_text("two", "utf-8")
        os.utime(path, ns=(1, 1))
        assert "one" == texts.text(BASE_RULES_CHAT)

    def test_line_ends_and_byte_order_marks_do_not_count(self, tmp_path: Path) -> None:
        """A checkout on another system gives the same bytes."""
        (tmp_path / TOOL_POLICY).write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
        assert "one\ntwo" == PromptTexts(directory=tmp_path).text(TOOL_POLICY)


class TestWrongInput:
    """What cannot be used is refused, and named."""

    def test_a_file_that_is_not_utf_8(self, tmp_path: Path) -> None:
        """The error names the file and the byte."""
        (tmp_path / TOOL_POLICY).write_bytes(b"caf\xe9")
        with pytest.raises(InvalidPrompt, match=rf"{TOOL_POLICY}: is not UTF-8 \(byte 3\)"):
            compose("chat", texts=PromptTexts(directory=tmp_path), tools=TOOLS)

    def test_a_file_that_cannot_be_read(self, tmp_path: Path) -> None:
        """Something is there under the name, so the default would be wrong."""
        (tmp_path / TOOL_POLICY).mkdir()
        with pytest.raises(InvalidPrompt, match=r"cannot be read \(Is a directory\)") as caught:
            PromptTexts(directory=tmp_path).text(TOOL_POLICY)
        assert isinstance(caught.value.__cause__, IsADirectoryError)

    def test_a_directory_that_does_not_exist(self, tmp_path: Path) -> None:
        """A slip in its path is not a wish for the defaults."""
        with pytest.raises(InvalidPrompt, match="the directory does not exist"):
            compose("chat", texts=PromptTexts(directory=tmp_path / "promts"))

    @pytest.mark.parametrize(
        "agent",
        ["../secret", "..", ".", "/etc/x", "a/../../secret", "a\\b", "C:x", "a\0b", "a//b"],
    )
    def test_an_agent_cannot_leave_the_directory(self, tmp_path: Path, agent: str) -> None:
        """Whatever an id holds, on any system; the file outside exists."""
        (tmp_path / "prompts").mkdir()
        (tmp_path / "prompts" / "personas").mkdir()
        (tmp_path / "secret.md").write_text("secret", "utf-8")
        with pytest.raises(InvalidPrompt, match="must name a file inside the directory"):
            compose("agent", texts=PromptTexts(directory=tmp_path / "prompts"), agent=agent)

    def test_an_id_that_no_file_can_have(self, tmp_path: Path) -> None:
        """Half a surrogate pair cannot be written to any file system."""
        with pytest.raises(InvalidPrompt, match="cannot be the name of a file"):
            PromptTexts(directory=tmp_path).persona("\ud800")

    def test_without_a_directory_any_id_will_do(self) -> None:
        """An id is only a name where no file is looked for."""
        texts = PromptTexts(texts={persona_name("../coder"): "You are it."})
        assert "You are it." == texts.persona("../coder")

    @pytest.mark.parametrize("name", ["rules.md", "personas/.md", "personas/x", "tool-policy"])
    def test_a_text_of_an_unknown_name(self, name: str) -> None:
        """It would never be used."""
        with pytest.raises(ValidationError, match=r"unknown text .* choose from"):
            PromptTexts(texts={name: "x"})
