"""A real SMTP server on its own socket, with the mails that it received."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, NamedTuple

from aiosmtpd.smtp import SMTP


class Mail(NamedTuple):
    sender: str
    to: list[str]
    message: EmailMessage

    @property
    def subject(self) -> str:
        return str(self.message["subject"])

    @property
    def text(self) -> str:
        return str(self.message.get_content())


class Mailbox:
    """Accepts every mail unless `answer`, or `answers` for an address, specifies something else."""

    def __init__(self) -> None:
        self.port = 0
        self.mails: list[Mail] = []
        self.answer: Callable[[], str] = lambda: "250 OK"
        self.answers: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:
        answer = self.answers.get(address, "250 OK")
        if answer.startswith("250"):
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        answer = self.answer()
        if answer.startswith("250"):
            message = message_from_bytes(envelope.content, policy=policy.default)
            assert isinstance(message, EmailMessage)
            self.mails.append(Mail(envelope.mail_from, list(envelope.rcpt_tos), message))
        return answer


@asynccontextmanager
async def receiving_mail(**options: Any) -> AsyncIterator[Mailbox]:
    mailbox, loop = Mailbox(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(mailbox, loop=loop, **options), "127.0.0.1", 0)
    mailbox.port = server.sockets[0].getsockname()[1]
    try:
        yield mailbox
    finally:
        server.close()
