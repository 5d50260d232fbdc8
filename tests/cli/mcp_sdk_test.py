#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ingero mcp` with the official Python SDK as its client, and an investigation
of the kept H200 recording by its tools: what starved the GPU, which process,
what a fix would save, against what the recording's page says.

  mcp_sdk_test.py --ingero I --store FOLDER --sdk FOLDER

Installs the SDK into --sdk; where it can't be had, it says so and ends with 77.
"""
import argparse
import asyncio
import contextlib
import importlib
import os
import re
import subprocess
import sys
import tempfile

SDK = "mcp>=1.8,<2"


def get_sdk(folder):
    sys.path.insert(0, folder)
    try:
        import mcp  # noqa: F401
        return ""
    except ImportError:
        pass
    if sys.version_info < (3, 10):
        return "the SDK needs Python 3.10 or later"
    done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet",
                           "--disable-pip-version-check", "--target", folder,
                           SDK], capture_output=True, text=True)
    if done.returncode != 0:
        return "pip could not install it: " + done.stderr.strip()[-200:]
    importlib.invalidate_caches()
    try:
        import mcp  # noqa: F401
    except ImportError as e:
        return f"it was installed but cannot be imported: {e}"
    return ""


def page_says(store):
    """Epoch time, time lost and cause of each phase in README.md's table."""
    rows = {}
    with open(os.path.join(store, "README.md")) as f:
        for line in f:
            row = re.match(r"\| ([^|]+?) \| ([\d.]+) s[^|]*\| [^|]*\| "
                           r"`([a-z-]+)` \| ([\d.]+) s", line)
            if row:
                rows[row[1]] = (float(row[2]), row[3], float(row[4]))
    windows = {}
    with open(os.path.join(store, "README.md")) as f:
        for name, begin, end in re.findall(
                r"### ([^:]+): `--from ([\d.]+)s --to ([\d.]+)s`", f.read()):
            windows[name] = (begin, end)
    return rows, windows


def over_stdio(options):
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client
    return stdio_client(StdioServerParameters(
        command=options.ingero, args=["mcp", "--db", options.store]))


@contextlib.asynccontextmanager
async def over_http(options):
    from mcp.client.streamable_http import streamablehttp_client
    server = subprocess.Popen(
        [options.ingero, "mcp", "--db", options.store, "--http",
         "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
    try:
        url = server.stderr.readline().split()[-1]
        if not url.startswith("http"):
            raise RuntimeError("it does not serve: " + url)
        async with streamablehttp_client(url) as (read, write, _):
            yield read, write
    finally:
        server.terminate()
        assert server.wait(30) == 0


async def every_version(options, transport):
    """As clients of each age that the SDK knows."""
    import mcp.types
    from mcp import ClientSession
    from mcp.shared.version import SUPPORTED_PROTOCOL_VERSIONS
    newest = mcp.types.LATEST_PROTOCOL_VERSION
    for version in SUPPORTED_PROTOCOL_VERSIONS:
        mcp.types.LATEST_PROTOCOL_VERSION = version
        async with transport(options) as (read, write):
            async with ClientSession(read, write) as session:
                info = await session.initialize()
                assert info.protocolVersion == version, (info, version)
                result = await session.call_tool("run_sql",
                                                 {"sql": "SELECT 1 AS x"})
                assert not result.isError, (version, result)
    mcp.types.LATEST_PROTOCOL_VERSION = newest
    print(f"ok: {', '.join(SUPPORTED_PROTOCOL_VERSIONS)}")


async def investigate(options, transport):
    from mcp import ClientSession
    async with transport(options) as (read, write):
        async with ClientSession(read, write) as session:
            info = await session.initialize()
            assert info.serverInfo.name == "ingero", info
            tools = {t.name: t for t in (await session.list_tools()).tools}
            for name, arguments in {
                    **{t: {} for t in tools}, "run_sql": {"sql": "SELECT 1 AS x"},
                    "compare_traces": {"other_db": options.store},
                    "get_timeline": {"pid": 2912, "limit": 5}}.items():
                result = await session.call_tool(name, arguments)
                assert not result.isError, (name, result)
                assert result.structuredContent, name
            for name in tools:
                assert (await session.call_tool(name, {"no_such": 1})).isError
            result = await session.call_tool("run_sql", {"sql": "SELECT nope"})
            assert result.isError
            for resource in (await session.list_resources()).resources:
                assert (await session.read_resource(resource.uri)).contents
            prompts = (await session.list_prompts()).prompts
            text = (await session.get_prompt(prompts[0].name, {
                "question": "why?"})).messages[0].content.text
            assert "get_recording_health" in text
            await session.send_ping()

            async def ask(tool, **arguments):
                result = await session.call_tool(tool, arguments)
                assert not result.isError, result
                return result.structuredContent

            rows, windows = page_says(options.store)
            assert len(rows) == 3 and len(windows) == 3, (rows, windows)
            health = await ask("get_recording_health")
            assert health["trace"]["complete"], health
            for (phase, (seconds, cause, lost)), (begin, end) in zip(
                    rows.items(), windows.values()):
                part = {"from": begin + "s", "to": end + "s"}
                # What starved it?
                first = (await ask("get_causal_chains", **part))["findings"][0]
                assert first["cause"] == cause, (phase, first)
                assert abs(first["lost_ns"] / 1e9 - lost) < 0.06 * lost, first
                # Proved by its own sum over the path: whose time was it?
                sql = ("SELECT thread_pid, thread_name, sum(ns) AS ns FROM path "
                       f"WHERE at_s >= {begin} AND at_s < {end} AND known = 1 "
                       "GROUP BY thread_pid ORDER BY ns DESC")
                who = (await ask("run_sql", sql=sql))["rows"]
                if cause == "loader-cpu-bound":
                    assert who[0]["thread_name"] == "pt_data_worker", who
                else:
                    assert who[0]["thread_pid"] == 2912, who
                # What would a fix save at most?
                gain = max(r["gain_ns"] for r in first["recommendations"])
                assert gain <= first["lost_ns"] <= seconds * 1e9, first
            print(f"ok: {len(tools)} tools, {len(rows)} phases as the page says")


ENDLESS = ("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) "
           "SELECT count(*) FROM n, calls")
EVENTS = 5_000_000


def make_big_store(options, folder):
    subprocess.run([options.resample, f"--events={EVENTS}", folder], check=True,
                   stdout=subprocess.DEVNULL)
    store = os.path.join(folder, "big.store")
    subprocess.run([options.ingero, "merge", "--dir", folder, "-o", store],
                   check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return store


async def ask_a_big_store(options):
    import mcp.types
    from mcp import ClientSession
    async with over_stdio(options) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            sums = {"sql": "SELECT sum(calls) AS n, min(pid) AS pid "
                           "FROM operations"}
            stats = (await session.call_tool(
                "run_sql", sums)).structuredContent["rows"][0]
            for tool in (await session.list_tools()).tools:
                arguments = {
                    "run_sql": {"sql": "SELECT * FROM calls"},
                    "compare_traces": {"other_db": options.store},
                    "get_timeline": {"pid": stats["pid"]},
                }.get(tool.name, {})
                result = await session.call_tool(tool.name, arguments)
                assert not result.isError, (tool.name, result)
                size = len(result.content[0].text.encode())
                assert 0 < size < 60_000, (tool.name, size)
            # A question without end leaves the others be, and ends when told.
            first = session._request_id
            endless = asyncio.create_task(
                session.call_tool("run_sql", {"sql": ENDLESS}))
            await asyncio.sleep(0.5)
            assert not endless.done()
            await session.send_ping()
            again = (await session.call_tool(
                "run_sql", sums)).structuredContent["rows"][0]
            assert again == stats and stats["n"] > EVENTS / 4, (again, stats)
            await session.send_notification(mcp.types.ClientNotification(
                mcp.types.CancelledNotification(
                    method="notifications/cancelled",
                    params=mcp.types.CancelledNotificationParams(
                        requestId=first))))
            await session.send_ping()
            endless.cancel()
            print(f"ok: a store of {EVENTS} events, {stats['n']} of them calls")


def main():
    parser = argparse.ArgumentParser()
    for name in ("ingero", "store", "sdk"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--http", action="store_true",
                        help="also over HTTP")
    parser.add_argument("--resample", help="makes a big store to ask, too")
    options = parser.parse_args()
    why = get_sdk(options.sdk)
    if why:
        print("SKIP: no MCP SDK: " + why)
        return 77
    for transport in [over_stdio] + [over_http] * options.http:
        asyncio.run(every_version(options, transport))
        asyncio.run(investigate(options, transport))
    if options.resample:
        with tempfile.TemporaryDirectory(prefix="ingero-mcp-") as folder:
            options.store = make_big_store(options, folder)
            asyncio.run(ask_a_big_store(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
