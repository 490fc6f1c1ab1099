# SPDX-License-Identifier: Apache-2.0
"""Scripts of serve_clients.py for packages that build on others' clients and live by tools and schemas: llm,
langchain-ollama, instructor and pydantic-ai."""
import asyncio
import json
from typing import Literal

CITY = "Weather in Rome?"


def get_weather(city: str) -> str:
    """Weather of a city."""
    return "sunny in " + city


# ---- llm ----


def llm_script(script, url, model, key):
    import openai
    from llm.default_plugins.openai_models import Chat

    chat = Chat(model, model_name=model, api_base=url + "/v1", supports_schema=True, supports_tools=True)
    chat.key = key
    for question in ("Say hello.", "Name a colour.", "What is 2 + 2?"):
        with script.call("prompt"):
            response = chat.prompt(question, max_tokens=16, stream=False)
            assert response.text() and response.usage().output <= 16
        with script.call("stream"):
            assert "".join(chat.prompt(question, max_tokens=16))
    with script.call("a system prompt"):
        assert chat.prompt("Hello", system="Be brief.", max_tokens=8).text()
    talk = chat.conversation()
    for question in ("My name is Ada.", "What is my name?"):
        with script.call("a conversation"):
            assert talk.prompt(question, max_tokens=12).text()
    with script.call("a schema"):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        assert isinstance(json.loads(chat.prompt("A number?", schema=schema, max_tokens=64, stream=False).text())["n"], int)
    with script.call("tools"):
        answer = chat.prompt(CITY, tools=[get_weather], max_tokens=100, temperature=0, stream=False)
        assert all(c.name == "get_weather" and isinstance(c.arguments["city"], str) for c in answer.tool_calls())
    with script.call("a chain with tools"):
        assert chat.chain(CITY, tools=[get_weather], options={"max_tokens": 60, "temperature": 0}).text() is not None
    # The first answer reads the prompt in one pass, the next ones find it in the cache: their rounding may differ.
    with script.call("a seed"):
        stories = [chat.prompt("Tell a story.", seed=7, max_tokens=12, stream=False).text() for _ in range(3)]
        assert stories[1] == stories[2]
    with script.call("a wrong key"):
        other = Chat(model, model_name=model, api_base=url + "/v1")
        other.key = "wrong"
        try:
            other.prompt("x", stream=False).text()
        except openai.AuthenticationError:
            return
        raise AssertionError("a wrong key was accepted")


# ---- langchain-ollama ----


def langchain_ollama_script(script, url, model, key):
    import ollama
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM
    from pydantic import BaseModel

    class Number(BaseModel):
        n: int

    common = {"base_url": url, "model": model, "client_kwargs": {"headers": {"Authorization": "Bearer " + key}}}
    chat = ChatOllama(num_predict=16, **common)
    for question in ("Say hello.", "Name a colour."):
        with script.call("invoke"):
            answer = chat.invoke(question)
            assert answer.content and answer.usage_metadata["output_tokens"] <= 16
        with script.call("stream"):
            assert "".join(c.content for c in chat.stream(question))
        with script.call("ainvoke"):
            assert asyncio.run(ChatOllama(num_predict=16, **common).ainvoke(question)).content
    with script.call("batch"):
        assert len(chat.batch(["a", "b"])) == 2
    with script.call("tools"):
        answer = ChatOllama(num_predict=100, temperature=0, **common).bind_tools([get_weather]).invoke(CITY)
        assert all(c["name"] == "get_weather" and isinstance(c["args"]["city"], str) for c in answer.tool_calls)
    with script.call("a result"):
        call = {"name": "get_weather", "args": {"city": "Rome"}, "id": "1"}
        turns = [HumanMessage(CITY), AIMessage("", tool_calls=[call]), ToolMessage("sunny", tool_call_id="1")]
        assert chat.bind_tools([get_weather]).invoke(turns) is not None
    with script.call("structured output"):
        structured = ChatOllama(num_predict=64, **common).with_structured_output(Number, method="json_schema")
        assert isinstance(structured.invoke("A number?").n, int)
    with script.call("json"):
        assert json.loads(ChatOllama(num_predict=200, format={"type": "object", "properties": {"a": {"type": "boolean"}}}, **common).invoke("?").content) is not None
    with script.call("stop"):
        assert " " not in chat.invoke("Count: 1 2 3", stop=[" "]).content
    with script.call("a text"):
        assert OllamaLLM(num_predict=8, **common).invoke("Once upon a time")
    embeddings = OllamaEmbeddings(**common)
    with script.call("embeddings"):
        assert len(embeddings.embed_documents(["a", "b"])) == 2
    with script.call("an embedding"):
        assert len(embeddings.embed_query("a")) > 16
    with script.call("a model that the package looks for"):
        listed = ollama.Client(host=url, headers=common["client_kwargs"]["headers"]).list().models[0].model
        assert ChatOllama(validate_model_on_init=True, **{**common, "model": listed})


# ---- instructor ----


def instructor_script(script, url, model, key):
    import instructor
    import openai
    from pydantic import BaseModel, Field

    class Person(BaseModel):
        name: str = Field(max_length=20)
        age: int = Field(ge=0, le=150)

    class Sentiment(BaseModel):
        label: Literal["positive", "negative"]

    ask = {"model": model, "max_retries": 0, "max_tokens": 200, "temperature": 0}
    text = [{"role": "user", "content": "Ada Lovelace is 36 years old."}]
    for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0), mode=mode)
        with script.call(f"a person by {mode.name}"):
            person = client.chat.completions.create(response_model=Person, messages=text, **ask)
            assert 0 <= person.age <= 150
        with script.call(f"a label by {mode.name}"):
            assert client.chat.completions.create(response_model=Sentiment, messages=text, **ask).label in ("positive", "negative")
        with script.call(f"partial answers by {mode.name}"):
            assert list(client.chat.completions.create_partial(response_model=Sentiment, messages=text, **ask))
    with script.call("the completion"):
        person, completion = client.chat.completions.create_with_completion(response_model=Person, messages=text, **ask)
        assert completion.usage.total_tokens and person.name is not None


# ---- pydantic-ai ----


def pydantic_ai_script(script, url, model, key):
    from pydantic import BaseModel
    from pydantic_ai import Agent, ModelHTTPError, NativeOutput, ToolOutput
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Number(BaseModel):
        n: int

    provider = OpenAIProvider(base_url=url + "/v1", api_key=key)
    settings = {"max_tokens": 100, "temperature": 0}
    for kind in (OpenAIChatModel, OpenAIResponsesModel):
        served = kind(model, provider=provider)
        with script.call(f"text, {kind.__name__}"):
            assert Agent(served, model_settings={"max_tokens": 16}).run_sync("Say hello.").output
        with script.call(f"a system prompt, {kind.__name__}"):
            assert Agent(served, system_prompt="Be brief.", model_settings={"max_tokens": 16}).run_sync("Hello").output
        for output in (ToolOutput(Number), NativeOutput(Number)):
            with script.call(f"{type(output).__name__}, {kind.__name__}"):
                answer = Agent(served, output_type=output, model_settings=settings).run_sync("A number?")
                assert isinstance(answer.output.n, int)
        with script.call(f"stream, {kind.__name__}"):

            async def stream(agent):
                async with agent.run_stream("Say hello.") as result:
                    return [part async for part in result.stream_text(delta=True)]

            assert asyncio.run(stream(Agent(kind(model, provider=OpenAIProvider(base_url=url + "/v1", api_key=key)), model_settings={"max_tokens": 16})))
        with script.call(f"tools, {kind.__name__}"):
            called = []

            def weather(city: str) -> str:
                """Weather of a city."""
                called.append(city)
                return "sunny"

            agent = Agent(served, tools=[weather], model_settings=settings, retries=0)
            assert agent.run_sync("Say hello.").output is not None and all(isinstance(c, str) for c in called)
    with script.call("no model"):
        try:
            Agent(OpenAIChatModel("nobody", provider=provider)).run_sync("x")
        except ModelHTTPError as e:
            assert e.status_code == 404
        else:
            raise AssertionError("an unknown model answered")


SCRIPTS = {
    "llm": (llm_script, 14),
    "langchain-ollama": (langchain_ollama_script, 16),
    "instructor": (instructor_script, 10),
    "pydantic-ai": (pydantic_ai_script, 13),
}
