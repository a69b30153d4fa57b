"""Sending from programs of every kind: scripts, threads, forked processes, event loops, handlers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.integration.embedding import event_types, run, states, write

DS = """
from doorstep import Doorstep
ds = Doorstep("sqlite:///app.db")
"""


def test_a_script_sends_with_one_call_and_may_simply_end(tmp_path: Path) -> None:
    receipt = run(tmp_path, "-c", DS + "print(ds.send_sync('order.paid', {'order': 1}).event_id)")
    assert len(receipt.strip()) == 36 and event_types(tmp_path) == ["order.paid"]


def test_a_script_may_also_close_and_go_on_later(tmp_path: Path) -> None:
    code = DS + "for n in range(3):\n    ds.send_sync(f'n.{n}', {})\n    ds.close_sync()\nds.close_sync()"
    run(tmp_path, "-c", code)
    assert event_types(tmp_path) == ["n.0", "n.1", "n.2"]


def test_threads_that_send_at_once_open_it_once_and_all_their_events_are_there(tmp_path: Path) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
opened = []
open_it = ds._store.open
async def counted():
    opened.append(1)
    await open_it()
ds._store.open = counted
with ThreadPoolExecutor(16) as pool:
    receipts = list(pool.map(lambda n: ds.send_sync("n", n), range(200)))
print(len(opened), len({receipt.event_id for receipt in receipts}))
"""
    assert run(tmp_path, "-c", DS + code) == "1 200\n"
    assert len(event_types(tmp_path)) == 200


def test_processes_forked_from_one_that_has_sent_send_on_connections_of_their_own(tmp_path: Path) -> None:
    """gunicorn forks like this with --preload."""
    code = """
import os
ds.send_sync("parent", 0)
children = []
for n in range(4):
    if not (child := os.fork()):
        for m in range(5):
            ds.send_sync("child", m)
        os._exit(0)
    children.append(child)
ds.send_sync("parent", 1)
print([os.waitpid(child, 0)[1] for child in children])
ds.send_sync("parent", 2)
"""
    assert run(tmp_path, "-c", DS + code) == "[0, 0, 0, 0]\n"
    assert sorted(event_types(tmp_path)) == ["child"] * 20 + ["parent"] * 3


def test_what_a_forked_process_has_sent_is_not_lost_when_its_parent_closes(tmp_path: Path) -> None:
    """SQLite removes the write-ahead log when a process closes its last connection, unless another process holds a
    lock."""
    code = """
import os
ds.send_sync("parent", 0)
sent, closed = os.pipe(), os.pipe()
if not (child := os.fork()):
    ds.send_sync("child", 0)
    os.write(sent[1], b"!")
    os.read(closed[0], 1)
    for n in range(200):
        ds.send_sync("child", n)
    os._exit(0)
os.read(sent[0], 1)
ds.close_sync()
os.write(closed[1], b"!")
for n in range(200):
    ds.send_sync("parent", n)
print(os.waitpid(child, 0)[1])
"""
    assert run(tmp_path, "-c", DS + code) == "0\n"
    assert Counter(event_types(tmp_path)) == {"child": 201, "parent": 201}


def test_processes_may_be_forked_in_the_middle_of_whatever_threads_do_with_the_file(tmp_path: Path) -> None:
    code = """
import os, threading
ends = threading.Event()
def send():
    while not ends.is_set():
        ds.send_sync("parent", "x" * 5_000)
senders = [threading.Thread(target=send) for _ in range(2)]
for sender in senders:
    sender.start()
codes = []
for n in range(6):
    if not (child := os.fork()):
        ds.send_sync("child", n)
        os._exit(0)
    codes.append(os.waitpid(child, 0)[1])
ends.set()
for sender in senders:
    sender.join()
print(set(codes))
"""
    assert run(tmp_path, "-c", DS + code) == "{0}\n"
    assert event_types(tmp_path).count("child") == 6


def test_the_blocking_call_is_refused_inside_an_event_loop_with_what_to_do(tmp_path: Path) -> None:
    code = """
import asyncio
async def main():
    for _ in range(2):
        try:
            ds.send_sync("x", 1)
        except RuntimeError as error:
            print(error)
        await ds.send("y", 1)
    await ds.close()
asyncio.run(main())
"""
    sentence = "this call would block the running event loop; await the asynchronous method instead\n"
    assert run(tmp_path, "-c", DS + code) == 2 * sentence
    assert event_types(tmp_path) == ["y", "y"]


def test_a_forgotten_await_is_told_of_wherever_the_program_ends(tmp_path: Path) -> None:
    """Without any configured logging, as in most scripts. Lines 5 and 8 drop their event at once; line 10 keeps it in a
    variable until the interpreter exits, and line 12 in a task that never runs."""
    code = """
import asyncio, sys
sys.stderr = sys.stdout
def view():
    ds.send("dropped", 1)
view()
async def main():
    ds.send("dropped", 2)
asyncio.run(main())
kept = ds.send("kept", 3)
loop = asyncio.new_event_loop()
task = loop.create_task(ds.send("never run", 4))
"""
    write(tmp_path, "shop", "from doorstep import Doorstep; ds = Doorstep('sqlite:///app.db')" + code)
    lines = [line.partition(", so")[0] for line in run(tmp_path, "shop.py").splitlines() if "was never" in line]
    place = "was never awaited at shop.py"
    assert sorted(lines) == [
        f"send('dropped', …) {place}:5",
        f"send('dropped', …) {place}:8",
        f"send('kept', …) {place}:10",
        f"send('never run', …) {place}:12",
    ]
    assert not (tmp_path / "app.db").exists()


def test_the_first_of_many_tasks_that_send_opens_it(tmp_path: Path) -> None:
    code = """
import asyncio
async def main():
    await asyncio.gather(*(ds.send("n", n) for n in range(50)))
    await ds.close()
asyncio.run(main())
"""
    run(tmp_path, "-c", DS + code)
    assert len(event_types(tmp_path)) == 50


def test_one_doorstep_serves_threads_and_event_loops_whichever_came_first(tmp_path: Path) -> None:
    code = """
import asyncio
ds.send_sync("thread", 1)
asyncio.run(ds.send("loop", 1))
ds.send_sync("thread", 2)
asyncio.run(ds.send("loop", 2))

async def at_work():
    async with ds:
        await ds.send("worker", 1)
        await asyncio.to_thread(ds.send_sync, "worker", 2)
asyncio.run(at_work())
ds.send_sync("thread", 3)
asyncio.run(at_work())
"""
    run(tmp_path, "-c", DS + code)
    assert event_types(tmp_path) == ["thread", "loop", "thread", "loop", *["worker"] * 2, "thread", *["worker"] * 2]


def test_an_event_loop_for_each_event_costs_nothing_that_stays(tmp_path: Path) -> None:
    code = """
import asyncio, os, threading
def held():
    return threading.active_count(), len(os.listdir("/proc/self/fd"))
asyncio.run(ds.send("n", 0))
before = held()
for n in range(5):
    asyncio.run(ds.send("n", n))
print(held() == before)
"""
    assert run(tmp_path, "-c", DS + code) == "True\n"
    assert len(event_types(tmp_path)) == 6


def test_a_thread_that_sends_while_the_program_opens_neither_breaks_it_nor_loses_anything(tmp_path: Path) -> None:
    """The thread sends throughout the opening: before, during, and after."""
    code = """
import asyncio, threading, time
seen, errors = [], []

@ds.handler("n")
def take(event):
    seen.append(event.json())

def send(number):
    try:
        time.sleep(number / 200)
        ds.send_sync("n", number)
    except Exception as error:
        errors.append(repr(error))

async def main():
    threads = [threading.Thread(target=send, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    await asyncio.sleep(0.01)
    async with ds:
        await asyncio.to_thread(lambda: [thread.join() for thread in threads])
        await ds.send("n", 40)
        async with asyncio.timeout(120):
            while len(seen) < 41:
                await asyncio.sleep(0.01)
    print(sorted(seen) == list(range(41)), errors)
asyncio.run(main())
"""
    assert run(tmp_path, "-c", DS + code) == "True []\n"


def test_a_process_that_was_forked_in_the_middle_of_an_opening_opens_one_of_its_own(tmp_path: Path) -> None:
    """The child waits for no lock or task of its parent, because in the child nothing would ever release or finish
    it."""
    code = """
import asyncio, os, threading
begun, go_on = threading.Event(), threading.Event()
open_it = ds._store.open
async def held_up():
    begun.set()
    await asyncio.to_thread(go_on.wait)
    await open_it()
ds._store.open = held_up
sender = threading.Thread(target=ds.send_sync, args=("parent", 1))
sender.start()
begun.wait()
if not (child := os.fork()):
    from doorstep.stores.open import store_from_url
    ds.store = store_from_url("sqlite:///app.db")
    ds.send_sync("child", 1)
    os._exit(0)
print(os.waitpid(child, 0)[1])
go_on.set()
sender.join()
"""
    assert run(tmp_path, "-c", DS + code) == "0\n"
    assert sorted(event_types(tmp_path)) == ["child", "parent"]


def test_an_event_loop_that_stands_still_is_told_instead_of_waited_for(tmp_path: Path) -> None:
    code = """
import asyncio
loop = asyncio.new_event_loop()
loop.run_until_complete(ds.open())
async def ask():
    for asking in (ds.send("x", 1), ds.open(), ds.close()):
        try:
            await asking
        except RuntimeError as error:
            print(error)
try:
    ds.send_sync("x", 1)
except RuntimeError as error:
    print(error)
asyncio.run(ask())
loop.run_until_complete(ds.close())
loop.close()
ds.send_sync("y", 1)
"""
    said = run(tmp_path, "-c", DS + code)
    assert said == 4 * "the event loop that Doorstep was opened in is not running; close Doorstep there first\n"
    assert event_types(tmp_path) == ["y"]


def test_handlers_send_on_plain_ones_with_the_blocking_call_and_isolated_ones_too(tmp_path: Path) -> None:
    write(
        tmp_path,
        "relay",
        DS
        + """
import asyncio, threading

ended = threading.Event()

@ds.handler("start")
def plain(event):
    ds.send_sync("second", {})

@ds.handler("second")
async def asynchronous(event):
    await ds.send("third", {})

@ds.handler("third", isolated=True)
def isolated(event):
    ds.send_sync("fourth", {})

@ds.handler("fourth", isolated=True)
async def isolated_and_asynchronous(event):
    await ds.send("end", {})

@ds.handler("end")
def end(event):
    ended.set()

async def main():
    async with ds:
        await ds.send("start", {})
        assert await asyncio.to_thread(ended.wait, 30)

if __name__ == "__main__":
    asyncio.run(main())
""",
    )
    run(tmp_path, "relay.py")
    assert event_types(tmp_path) == ["start", "second", "third", "fourth", "end"]
    assert set(states(tmp_path)) == {"delivered"}
