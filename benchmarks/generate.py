"""Nested events as JSON lines, the same bytes for the same arguments: `--rows N --out F [--bad-share S] [--seed K]`.

A row is about 1 KB, three to four levels deep and of one of seven event types whose payloads differ, as in the event streams of
code hosting services: fields that only some types have, lists of objects, a field that is always null, ids, dates as text.
Bad rows, `--bad-share` of all, are of four kinds in turn: cut off, one byte overwritten, a number where text belongs, bytes that
are not UTF-8.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["lines", "main"]

WORDS: Final = [
    "fix", "add", "remove", "update", "parser", "reader", "writer", "table", "column", "schema", "index", "lease", "offset", "segment",
    "query", "plan", "cache", "test", "docs", "build", "release", "merge", "branch", "error", "retry", "limit", "stream", "batch",
    "value", "record", "partition", "commit", "snapshot", "metadata", "manifest", "pointer",
]
URL: Final = "https://api.code.example"
Event = dict[str, object]


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def _hex(rng: random.Random) -> str:
    return f"{rng.getrandbits(160):040x}"


def _user(rng: random.Random) -> Event:
    number = rng.randrange(200_000)
    login = f"{WORDS[number % len(WORDS)]}-{number}"
    return {"id": number, "login": login, "url": f"{URL}/users/{login}", "avatar_url": f"https://avatars.code.example/u/{number}?"}


def _push(rng: random.Random) -> Event:
    commits = [
        {
            "sha": _hex(rng), "author": {"email": f"{_hex(rng)[:12]}@mail.example", "name": _text(rng, 2)},
            "message": _text(rng, 8), "distinct": rng.random() < 0.9, "url": f"{URL}/repos/x/commits/{_hex(rng)}",
        }
        for _ in range(rng.choice((1, 1, 1, 2, 3)))
    ]
    return {
        "push_id": rng.randrange(10**10), "size": len(commits), "ref": f"refs/heads/{rng.choice(WORDS)}", "head": _hex(rng),
        "before": _hex(rng), "commits": commits,
    }


def _pull_request(rng: random.Random) -> Event:
    number = rng.randrange(5000)
    branch = {"label": f"{rng.choice(WORDS)}:main", "ref": "main", "sha": _hex(rng), "user": _user(rng)}
    return {
        "action": rng.choice(("opened", "closed", "reopened")), "number": number,
        "pull_request": {
            "id": rng.randrange(10**9), "number": number, "state": rng.choice(("open", "closed")), "title": _text(rng, 6),
            "user": _user(rng), "body": _text(rng, 30) if rng.random() < 0.8 else None, "milestone": None,
            "labels": [{"name": rng.choice(WORDS), "color": f"{rng.getrandbits(24):06x}"} for _ in range(rng.randrange(3))],
            "head": branch, "additions": rng.randrange(2000), "deletions": rng.randrange(900), "score": rng.random(),
            "merged": rng.random() < 0.5,
        },
    }


def _issue(rng: random.Random) -> Event:
    return {
        "action": rng.choice(("opened", "closed")),
        "issue": {
            "number": rng.randrange(9000), "title": _text(rng, 7), "body": _text(rng, 40), "user": _user(rng),
            "comments": rng.randrange(40),
            "labels": [{"name": rng.choice(WORDS), "color": f"{rng.getrandbits(24):06x}"} for _ in range(rng.randrange(4))],
            "reactions": {"total": rng.randrange(20), "up": rng.randrange(10), "down": rng.randrange(3)},
        },
    }


def _comment(rng: random.Random) -> Event:
    return {
        "action": "created", "issue": {"number": rng.randrange(9000), "title": _text(rng, 7), "user": _user(rng)},
        "comment": {"id": rng.randrange(10**9), "user": _user(rng), "body": _text(rng, 45)},
    }


def _create(rng: random.Random) -> Event:
    return {"ref": rng.choice(WORDS), "ref_type": rng.choice(("branch", "tag")), "master_branch": "main", "description": _text(rng, 60)}


def _watch(rng: random.Random) -> Event:
    return {"action": "started", "source": {"page": _text(rng, 40), "referrer": None if rng.random() < 0.5 else f"{URL}/{_text(rng, 2)}"}}


def _fork(rng: random.Random) -> Event:
    return {
        "forkee": {
            "id": rng.randrange(10**8), "full_name": _text(rng, 2), "owner": _user(rng), "private": False, "description": _text(rng, 30),
            "stars": rng.randrange(1000), "topics": rng.choices(WORDS, k=rng.randrange(6)),
        },
    }


KINDS: Final[tuple[tuple[str, int, Callable[[random.Random], Event]], ...]] = (
    ("PushEvent", 50, _push), ("PullRequestEvent", 12, _pull_request), ("IssuesEvent", 8, _issue), ("IssueCommentEvent", 12, _comment),
    ("CreateEvent", 8, _create), ("WatchEvent", 7, _watch), ("ForkEvent", 3, _fork),
)


def _event(rng: random.Random, number: int) -> Event:
    name, _, payload = rng.choices(KINDS, weights=[k[1] for k in KINDS])[0]
    actor = _user(rng)
    repository = rng.randrange(50_000)
    full_name = f"{WORDS[repository % len(WORDS)]}/repository-{repository}"
    second = number // 40
    event: Event = {
        "id": str(30_000_000_000 + number), "type": name,
        "actor": actor | {"display_login": actor["login"], "gravatar_id": ""},
        "repo": {"id": repository, "name": full_name, "url": f"{URL}/repos/{full_name}"},
        "payload": payload(rng), "public": True,
        "created_at": f"2026-03-{1 + second // 86400 % 28:02d}T{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z",
    }
    if rng.random() < 0.3:
        organisation = rng.randrange(3000)
        event["org"] = {"id": organisation, "login": f"org-{organisation}", "url": f"{URL}/orgs/org-{organisation}"}
    return event


def _spoil(rng: random.Random, line: bytes, kind: int) -> bytes:
    match kind % 4:
        case 0:
            return line[: rng.randrange(1, len(line) - 1)]
        case 1:
            at = line.index(b":", rng.randrange(len(line) // 2))
            return line[:at] + b";" + line[at + 1 :]
        case 2:
            head, _, tail = line.partition(b'"type":"')
            return head + b'"type":7' + tail[tail.index(b'"') + 1 :]
        case _:
            return line.replace(b'"login":"', b'"login":"\xff\xfe', 1)


def lines(rows: int, *, seed: int = 7, bad_share: float = 0.0) -> Iterator[bytes]:
    """The events as JSON texts without newlines; about `bad_share` of them, evenly spread, spoiled."""
    rng = random.Random(seed)
    encode = msgspec.json.Encoder().encode
    every = round(1 / bad_share) if bad_share else 0
    for number in range(rows):
        line = encode(_event(rng, number))
        if every and number % every == every // 2:
            line = _spoil(rng, line, number // every)
        yield line


def main(arguments: list[str] | None = None) -> None:
    """Write the file; prints its size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--bad-share", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args(arguments)
    with open(given.out, "wb", buffering=1 << 20) as out:
        for line in lines(given.rows, seed=given.seed, bad_share=given.bad_share):
            out.write(line)
            out.write(b"\n")
    print(f"{given.out}: {given.rows} rows, {given.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
